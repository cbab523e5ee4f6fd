/* Choosing the next token from logits: temperature, then top-k, then top-p, then one draw. A pure function of (logits,
 * settings, seed, position). */
#ifndef DLC_TRAIN_SAMPLE_H
#define DLC_TRAIN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct dlc_sampling {
    double temperature; /* 0: always the most likely token, the lowest id of equals */
    int top_k;          /* the k most likely only; 0: all */
    double top_p;       /* the smallest set of most likely tokens with at least this probability; 1: all */
    uint64_t seed;
};

typedef struct dlc_sampler dlc_sampler;

/* DLC_EUSAGE for a setting out of range: temperature >= 0, top_k >= 0, 0 < top_p <= 1. */
dlc_err dlc_sampler_create(dlc_sampler **out, const struct dlc_sampling *settings, int vocab_size);
void dlc_sampler_destroy(dlc_sampler *sampler); /* accepts NULL */

/* logits[vocab_size] of the token at `position`. Logits that are not finite lose against all others (+inf included);
 * when none is finite the answer is token 0. No allocation. */
int32_t dlc_sampler_next(dlc_sampler *sampler, const float *logits, uint64_t position);

#endif
