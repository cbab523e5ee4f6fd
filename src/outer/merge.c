#include "outer/merge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK ((size_t)2048) /* values: 16 KiB of double sums stay in the first-level cache */
#define NORM_PARTS ((size_t)512)

/* Squares are summed in at most NORM_PARTS parts of whole blocks, then over the parts in order: threads take whole
 * parts and the sum does not depend on them. */
static size_t part_values(size_t n)
{
    size_t blocks = (n + BLOCK - 1) / BLOCK;

    return (blocks + NORM_PARTS - 1) / NORM_PARTS * BLOCK;
}

static double norm_of(const double *squares, size_t n)
{
    size_t part = part_values(n);
    double total = 0;

    for (size_t begin = 0; begin < n; begin += part)
        total += squares[begin / part];
    return sqrt(total);
}

static double sum_squares(const double *x, size_t n)
{
    double total = 0;

    for (size_t i = 0; i < n; i++)
        total += x[i] * x[i];
    return total;
}

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
    double *squares; /* [NORM_PARTS] */
};

static void mean_of_block(double *sums, const struct job *j, size_t begin, size_t end)
{
    memset(sums, 0, (end - begin) * sizeof *sums);
    for (size_t k = 0; k < j->n_parts; k++)
        j->codec->decode_add(sums, j->parts[k].weight / j->total_weight, j->parts[k].payload, j->theta_old, begin, end);
}

static void merge_block(const struct job *j, const double *sums, size_t begin, size_t end)
{
    float *state[2] = { j->state[0] ? j->state[0] + begin : NULL, j->state[1] ? j->state[1] + begin : NULL };

    dlc_outer_opt_step(j->opt, j->theta_new + begin, j->theta_old + begin, state, sums, end - begin, j->t);
    if (j->adopts)
        j->codec->params(j->theta_new + begin, j->parts[0].payload, begin, end);
}

static void merge_part(void *arg, struct dlc_part range)
{
    const struct job *j = arg;
    double sums[BLOCK];
    size_t part = part_values(j->n);

    for (size_t begin = range.begin; begin < range.end; begin += BLOCK) {
        size_t end = begin + BLOCK < range.end ? begin + BLOCK : range.end;

        mean_of_block(sums, j, begin, end);
        merge_block(j, sums, begin, end);
        j->squares[begin / part] += sum_squares(sums, end - begin);
    }
}

static bool moves_all_the_way(const struct dlc_outer_opt *opt)
{
    return opt->lr == 1.0 && opt->kind != DLC_OUTER_ADAM && (opt->kind == DLC_OUTER_SGD || opt->momentum == 0);
}

double dlc_merge(float *theta_new, const float *theta_old, float *const state[2], const struct dlc_codec *codec,
                 const struct dlc_merge_part *parts, size_t n_parts, const struct dlc_outer_opt *opt, size_t n,
                 uint64_t t, dlc_pool *pool)
{
    double squares[NORM_PARTS] = { 0 };
    struct job j = { .theta_new = theta_new,
                     .theta_old = theta_old,
                     .state = state,
                     .codec = codec,
                     .parts = parts,
                     .n_parts = n_parts,
                     .adopts = n_parts == 1 && codec->params && moves_all_the_way(opt),
                     .opt = opt,
                     .n = n,
                     .t = t,
                     .squares = squares };

    for (size_t k = 0; k < n_parts; k++)
        j.total_weight += parts[k].weight;
    dlc_pool_each(pool, merge_part, &j, n, part_values(n));
    return norm_of(squares, n);
}

struct norm_job {
    const struct dlc_codec *codec;
    const void *payload;
    const float *base;
    size_t n;
    double *squares;
};

static void norm_part(void *arg, struct dlc_part range)
{
    const struct norm_job *j = arg;
    double delta[BLOCK];
    size_t part = part_values(j->n);

    for (size_t begin = range.begin; begin < range.end; begin += BLOCK) {
        size_t end = begin + BLOCK < range.end ? begin + BLOCK : range.end;

        memset(delta, 0, (end - begin) * sizeof *delta);
        j->codec->decode_add(delta, 1.0, j->payload, j->base, begin, end);
        j->squares[begin / part] += sum_squares(delta, end - begin);
    }
}

double dlc_contribution_norm(const struct dlc_codec *codec, const void *payload, const float *base, size_t n,
                             dlc_pool *pool)
{
    double squares[NORM_PARTS] = { 0 };

    dlc_pool_each(pool, norm_part, &(struct norm_job){ codec, payload, base, n, squares }, n, part_values(n));
    return norm_of(squares, n);
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
