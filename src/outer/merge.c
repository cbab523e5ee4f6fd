#include "outer/merge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK 2048 /* values: 16 KiB of double sums stay in the first-level cache */

struct job {
    float *theta_new;
    const float *theta_old;
    float *const *state;
    const struct dlc_codec *codec;
    const struct dlc_merge_part *parts;
    size_t n_parts;
    double total_weight;
    bool adopts; /* theta_new is the one island's parameters */
    const struct dlc_outer_opt *opt;
    size_t n;
    uint64_t t;
};

static void mean_of_block(double *sums, const struct job *j, size_t begin, size_t end)
{
    memset(sums, 0, (end - begin) * sizeof *sums);
    for (size_t k = 0; k < j->n_parts; k++)
        j->codec->decode_add(sums, j->parts[k].weight / j->total_weight, j->parts[k].payload, j->theta_old, begin, end);
}

static void merge_part(void *arg, int worker, int n_workers)
{
    const struct job *j = arg;
    double sums[BLOCK];
    size_t first, last;

    dlc_pool_part(&first, &last, j->n, BLOCK, worker, n_workers);
    for (size_t begin = first; begin < last; begin += BLOCK) {
        size_t end = begin + BLOCK < last ? begin + BLOCK : last;
        float *state[2] = { j->state[0] ? j->state[0] + begin : NULL, j->state[1] ? j->state[1] + begin : NULL };

        mean_of_block(sums, j, begin, end);
        dlc_outer_opt_step(j->opt, j->theta_new + begin, j->theta_old + begin, state, sums, end - begin, j->t);
        if (j->adopts)
            j->codec->params(j->theta_new + begin, j->parts[0].payload, begin, end);
    }
}

static double mean_norm(const struct job *j)
{
    double sums[BLOCK], total = 0;

    for (size_t begin = 0; begin < j->n; begin += BLOCK) {
        size_t end = begin + BLOCK < j->n ? begin + BLOCK : j->n;

        mean_of_block(sums, j, begin, end);
        for (size_t i = 0; i < end - begin; i++)
            total += sums[i] * sums[i];
    }
    return sqrt(total);
}

static bool moves_all_the_way(const struct dlc_outer_opt *opt)
{
    return opt->lr == 1.0 && opt->kind != DLC_OUTER_ADAM && (opt->kind == DLC_OUTER_SGD || opt->momentum == 0);
}

double dlc_merge(float *theta_new, const float *theta_old, float *const state[2], const struct dlc_codec *codec,
                 const struct dlc_merge_part *parts, size_t n_parts, const struct dlc_outer_opt *opt, size_t n,
                 uint64_t t, dlc_pool *pool)
{
    struct job j = { .theta_new = theta_new,
                     .theta_old = theta_old,
                     .state = state,
                     .codec = codec,
                     .parts = parts,
                     .n_parts = n_parts,
                     .adopts = n_parts == 1 && codec->params && moves_all_the_way(opt),
                     .opt = opt,
                     .n = n,
                     .t = t };

    for (size_t k = 0; k < n_parts; k++)
        j.total_weight += parts[k].weight;
    if (pool)
        dlc_pool_run(pool, merge_part, &j);
    else
        merge_part(&j, 0, 1);
    return mean_norm(&j);
}

double dlc_contribution_norm(const struct dlc_codec *codec, const void *payload, const float *base, size_t n)
{
    double delta[BLOCK], total = 0;

    for (size_t begin = 0; begin < n; begin += BLOCK) {
        size_t end = begin + BLOCK < n ? begin + BLOCK : n;

        memset(delta, 0, (end - begin) * sizeof *delta);
        codec->decode_add(delta, 1.0, payload, base, begin, end);
        for (size_t i = 0; i < end - begin; i++)
            total += delta[i] * delta[i];
    }
    return sqrt(total);
}

struct mean_job {
    float *mean;
    const float *const *grads;
    const double *weights;
    size_t n_grads, n;
    double total_weight;
};

static void mean_part(void *arg, int worker, int n_workers)
{
    const struct mean_job *j = arg;
    size_t begin, end;

    dlc_pool_part(&begin, &end, j->n, BLOCK, worker, n_workers);
    for (size_t i = begin; i < end; i++) {
        double sum = 0;

        for (size_t k = 0; k < j->n_grads; k++)
            sum += j->weights[k] * (double)j->grads[k][i];
        j->mean[i] = (float)(sum / j->total_weight);
    }
}

void dlc_mean_gradients(float *mean, const float *const *grads, const double *weights, size_t n_grads, size_t n,
                        dlc_pool *pool)
{
    struct mean_job j = { .mean = mean, .grads = grads, .weights = weights, .n_grads = n_grads, .n = n };

    for (size_t k = 0; k < n_grads; k++)
        j.total_weight += weights[k];
    if (pool)
        dlc_pool_run(pool, mean_part, &j);
    else
        mean_part(&j, 0, 1);
}
