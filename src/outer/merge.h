/* The arithmetic of an outer step: weighted mean of the contributions, in island order, then the outer optimizer, in
 * one pass over memory. Also the look at a contribution before it is let in. */
#ifndef DLC_OUTER_MERGE_H
#define DLC_OUTER_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "outer/codecs/codec.h"
#include "outer/outer_opt.h"

struct dlc_merge_part {
    const void *payload; /* codec->size_bytes(n) bytes */
    double weight;       /* > 0; the mean divides by the sum of the weights handed over here */
};

/* theta_new = outer step of theta_old with the mean of `parts` (island order, n_parts >= 1). theta_new and theta_old
 * are different arrays. Blocks are divided over `pool` (NULL: this thread); the result does not depend on it.
 * One part and an optimizer that moves theta by exactly the outer gradient (eta 1, mu 0) give the island's parameters,
 * bit for bit where the codec holds them.
 * Returns the L2 norm of the mean outer gradient, summed in the same pass. */
double dlc_merge(float *theta_new, const float *theta_old, float *const state[2], const struct dlc_codec *codec,
                 const struct dlc_merge_part *parts, size_t n_parts, const struct dlc_outer_opt *opt, size_t n,
                 uint64_t t, dlc_pool *pool);

/* Data parallelism: mean[i] = sum over k of weights[k] * grads[k][i] / sum of weights; double, in the order given. */
void dlc_mean_gradients(float *mean, const float *const *grads, const double *weights, size_t n_grads, size_t n,
                        dlc_pool *pool);

/* The L2 norm of one contribution's outer gradient; NaN or infinite when any value is. The same for every pool. */
double dlc_contribution_norm(const struct dlc_codec *codec, const void *payload, const float *base, size_t n,
                             dlc_pool *pool);

#endif
