/* The arithmetic of an outer step: the contributions become one outer gradient, which is written in the codec's form (the
 * *update* of the step), read back and given to the outer optimizer, in one pass over memory. So whoever has the update,
 * theta(t-1) and the outer state gets the same theta(t): for him the update is the one contribution. Also the look at a
 * contribution before it is let in. */
#ifndef DLC_OUTER_MERGE_H
#define DLC_OUTER_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "outer/codecs/codec.h"
#include "outer/outer_opt.h"
#include "outer/policy.h"

struct dlc_merge_part {
    const void *payload; /* codec->size_bytes(n) bytes */
    double weight;       /* > 0; the mean divides by the sum of the weights handed over here */
    const float *base;   /* NULL: theta_old. A contribution that came a step late has a base of its own, and that may be
                          * the memory of theta_new */
};

#define DLC_ROBUST_PARTS_MAX 4096 /* trimmed and median */

struct dlc_merge {
    const struct dlc_codec *codec;
    const struct dlc_outer_opt *opt;
    dlc_aggregate aggregate;
    size_t n;   /* values */
    uint64_t t; /* outer step */
};

/* theta_new = outer step of theta_old with `parts` (island order, n_parts >= 1). theta_new and theta_old are different
 * arrays. Blocks are divided over `pool` (NULL: this thread); the result does not depend on it.
 * update: codec->size_bytes(n) bytes; NULL: not wanted, theta_new is the same. One part alone is its own update, byte
 * for byte, when its base is theta_old.
 * An optimizer that moves theta by exactly the outer gradient (eta 1, mu 0) gives the parameters that the update holds,
 * bit for bit, where the codec holds parameters: those of the one island when there is one.
 * Returns the L2 norm of the update's outer gradient, summed in the same pass. */
double dlc_merge(float *theta_new, const float *theta_old, float *const state[2], void *update,
                 const struct dlc_merge *m, const struct dlc_merge_part *parts, size_t n_parts, dlc_pool *pool);

/* Data parallelism: mean[i] = sum over k of weights[k] * grads[k][i] / sum of weights; double, in the order given. */
void dlc_mean_gradients(float *mean, const float *const *grads, const double *weights, size_t n_grads, size_t n,
                        dlc_pool *pool);

/* The L2 norm of one contribution's outer gradient; NaN or infinite when any value is. The same for every pool. */
double dlc_contribution_norm(const struct dlc_codec *codec, const void *payload, const float *base, size_t n,
                             dlc_pool *pool);

#endif
