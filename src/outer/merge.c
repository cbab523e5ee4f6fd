#include "outer/merge.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "outer/robust.h"

#define BLOCK DLC_CODEC_BLOCK /* values: 16 KiB of double sums stay in the first-level cache */
#define PAYLOAD_BLOCK_MAX ((size_t)16384) /* bytes of an encoded block */
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
    unsigned char *update; /* may be NULL */
    const struct dlc_merge *m;
    const struct dlc_merge_part *parts;
    size_t n_parts;
    double total_weight;
    bool is_update; /* the one part is the update already */
    bool adopts;    /* theta_new is the parameters that the update holds */
    double *squares; /* [NORM_PARTS] */
};

static void mean_of_block(double *sums, const struct job *j, size_t begin, size_t end)
{
    memset(sums, 0, (end - begin) * sizeof *sums);
    for (size_t k = 0; k < j->n_parts; k++) {
        const struct dlc_merge_part *p = &j->parts[k];

        j->m->codec->decode_add(sums, p->weight / j->total_weight, p->payload, p->base ? p->base : j->theta_old, begin,
                                end);
    }
}

static void robust_of_block(double *sums, const struct job *j, size_t begin, size_t end)
{
    double values[2 * DLC_ROBUST_PARTS_MAX];
    size_t width = 2 * DLC_ROBUST_PARTS_MAX / j->n_parts;

    for (size_t at = begin; at < end; at += width) {
        size_t to = at + width < end ? at + width : end, n = to - at;

        memset(values, 0, j->n_parts * n * sizeof *values);
        for (size_t k = 0; k < j->n_parts; k++) {
            const struct dlc_merge_part *p = &j->parts[k];

            j->m->codec->decode_add(values + k * n, 1.0, p->payload, p->base ? p->base : j->theta_old, at, to);
        }
        dlc__robust(sums + (at - begin), values, n, j->parts, j->n_parts, j->m->aggregate);
    }
}

/* The update of the block goes into its place or, when nobody wants it, through a scratch in the cache. */
static void step_block(const struct job *j, double *sums, size_t begin, size_t end)
{
    const struct dlc_codec *codec = j->m->codec;
    unsigned char scratch[PAYLOAD_BLOCK_MAX];
    const void *payload = j->is_update ? j->parts[0].payload : j->update ? j->update : scratch;
    bool shifted = payload == scratch;
    const float *base = shifted ? j->theta_old + begin : j->theta_old;
    size_t first = shifted ? 0 : begin, last = shifted ? end - begin : end;
    float *state[2] = { j->state[0] ? j->state[0] + begin : NULL, j->state[1] ? j->state[1] + begin : NULL };

    if (!j->is_update) {
        codec->encode_block(shifted ? scratch : j->update, base, sums, first, last);
        memset(sums, 0, (end - begin) * sizeof *sums);
        codec->decode_add(sums, 1.0, payload, base, first, last);
    }
    dlc_outer_opt_step(j->m->opt, j->theta_new + begin, j->theta_old + begin, state, sums, end - begin, j->m->t);
    if (j->adopts)
        codec->params(j->theta_new + begin, payload, first, last);
}

static void merge_part(void *arg, struct dlc_part range)
{
    const struct job *j = arg;
    bool robust = j->n_parts > 1 && j->m->aggregate != DLC_AGGREGATE_MEAN;
    double sums[BLOCK];
    size_t part = part_values(j->m->n);

    for (size_t begin = range.begin; begin < range.end; begin += BLOCK) {
        size_t end = begin + BLOCK < range.end ? begin + BLOCK : range.end;

        (robust ? robust_of_block : mean_of_block)(sums, j, begin, end);
        step_block(j, sums, begin, end);
        j->squares[begin / part] += sum_squares(sums, end - begin);
    }
}

static bool moves_all_the_way(const struct dlc_outer_opt *opt)
{
    return opt->lr == 1.0 && opt->kind != DLC_OUTER_ADAM && (opt->kind == DLC_OUTER_SGD || opt->momentum == 0);
}

double dlc_merge(float *theta_new, const float *theta_old, float *const state[2], void *update,
                 const struct dlc_merge *m, const struct dlc_merge_part *parts, size_t n_parts, dlc_pool *pool)
{
    double squares[NORM_PARTS] = { 0 };
    struct job j = { .theta_new = theta_new,
                     .theta_old = theta_old,
                     .state = state,
                     .update = update,
                     .m = m,
                     .parts = parts,
                     .n_parts = n_parts,
                     .is_update = n_parts == 1 && (!parts[0].base || parts[0].base == theta_old),
                     .adopts = m->codec->params && moves_all_the_way(m->opt),
                     .squares = squares };

    assert(m->codec->size_bytes(BLOCK) <= PAYLOAD_BLOCK_MAX);
    assert(m->aggregate == DLC_AGGREGATE_MEAN || n_parts <= DLC_ROBUST_PARTS_MAX);
    for (size_t k = 0; k < n_parts; k++)
        j.total_weight += parts[k].weight;
    dlc_pool_each(pool, merge_part, &j, m->n, part_values(m->n));
    if (update && j.is_update)
        memcpy(update, parts[0].payload, m->codec->size_bytes(m->n));
    return norm_of(squares, m->n);
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
