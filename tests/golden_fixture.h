/* The fixtures of tests/reference, read; and how far a trajectory is from one. Fails the running test on any error. */
#ifndef DLC_TESTS_GOLDEN_FIXTURE_H
#define DLC_TESTS_GOLDEN_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"
#include "optim/optim.h"
#include "outer/outer_opt.h"

enum { ISLANDS = 3, ROUNDS = 4, INNER = 5, STEPS = ROUNDS * INNER, SEQ = 16, MAX_BATCH = 3 };

/* Everything that a trajectory depends on; mistakes change a copy. */
struct golden_settings {
    struct dlc_model_config model;
    struct dlc_schedule schedule;
    struct dlc_adamw_config adamw;
    struct dlc_outer_opt outer;
    double weights[ISLANDS];
    bool forget_moments; /* AdamW starts anew each round */
    bool restart_count;  /* only its step count does */
    bool decay_all;      /* norms too */
    bool stale_start;    /* islands start from the parameters of one round before */
};

struct golden_trajectory {
    double losses[ISLANDS][STEPS], norms[ISLANDS][STEPS];
    float *gradient, *theta[ROUNDS]; /* [n] */
};

struct golden_fixture {
    char folder[64];
    struct golden_settings settings;
    int batch[ISLANDS];
    double lr[STEPS];
    int32_t *tokens[ISLANDS]; /* [STEPS][batch][SEQ + 1] */
    struct dlc_param *table;
    size_t n_table, n;
    float *init;
    struct golden_trajectory expected;
};

struct golden_distances {
    double losses, norms, gradient, theta[ROUNDS];
    const char *worst; /* tensor, of the last round */
};

/* variant: a folder of tests/fixtures/golden. */
void golden_open(struct golden_fixture *f, const char *variant);
void golden_close(struct golden_fixture *f);
void golden_trajectory_free(struct golden_trajectory *t);

struct golden_distances golden_compare(const struct golden_fixture *f, const struct golden_trajectory *got);

/* max |a - b| / max |b|, the largest over the tensors, and in *worst the name of that tensor. Not a number counts as
 * infinitely far. */
double golden_tensors_apart(const char **worst, const struct golden_fixture *f, const float *a, const float *b);

void *golden_zeros(size_t count, size_t size_bytes);

#define OK(call) golden_assert_ok((call), #call, __LINE__)
void golden_assert_ok(dlc_err err, const char *call, int line);

#endif
