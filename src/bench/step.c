/* Whole training steps: zeroing, forward, backward, clipping, AdamW, as the trainer of an island does them. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "bench/machine.h"
#include "optim/optim.h"

enum { WARM_UP_STEPS = 2, MIN_STEPS = 5, MAX_STEPS = 200, PROFILE_STEPS = 3 };

struct replica {
    const struct dlc_bench_case *c;
    dlc_backend *be;
    dlc_model *model;
    struct dlc_param *table;
    size_t n_table;
    float *m, *v;              /* [N] each, one arena */
    int32_t *tokens, *targets; /* [batch][seq] */
    int64_t step;
    double loss, zero_s; /* of the last step */
};

static struct dlc_model_options model_options(const struct dlc_bench_case *c)
{
    return (struct dlc_model_options){
        .max_batch = c->batch, .max_seq = c->seq, .training = true, .precision = c->precision
    };
}

static size_t moments_bytes(const struct dlc_bench_case *c)
{
    return 2 * c->n_params * sizeof(float);
}

size_t dlc_bench_step_bytes(const struct dlc_bench_case *c, const dlc_backend *be)
{
    struct dlc_model_options options = model_options(c);
    struct dlc_model_memory m;

    dlc_model_memory_plan(&m, &c->model, &options, be);
    return m.params + m.grads + m.activations + m.scratch + moments_bytes(c);
}

void dlc_bench_init_params(float *params, const struct dlc_param *table, size_t n_table, double std)
{
    float scale = (float)(std * sqrt(3.0) / 2147483648.0); /* uniform over +-std sqrt(3) */
    uint32_t x = 1;

    for (size_t i = 0; i < n_table; i++)
        for (size_t j = 0; j < table[i].n_values; j++) {
            x = x * 1664525u + 1013904223u; /* Numerical Recipes' generator */
            params[table[i].offset + j] = table[i].n_dims == 2 ? scale * (float)(int32_t)x : 1;
        }
}

static void destroy(struct replica *r)
{
    dlc_model_destroy(r->model);
    dlc_arena_free(r->m, moments_bytes(r->c));
    dlc_free(r->table);
    dlc_free(r->tokens);
}

static dlc_err create(struct replica *r)
{
    const struct dlc_bench_case *c = r->c;
    struct dlc_model_options options = model_options(c);
    size_t positions = (size_t)c->batch * (size_t)c->seq;
    struct dlc_rng random = { .seed = 1 };

    DLC_TRY(dlc_model_params_table(&r->table, &r->n_table, &c->model));
    DLC_TRY(dlc_model_create(&r->model, &c->model, &options, r->be));
    DLC_TRY(dlc_arena_alloc((void **)&r->m, moments_bytes(c), "AdamW's moments"));
    r->v = r->m + c->n_params;
    r->tokens = dlc_calloc(2 * positions, sizeof *r->tokens);
    if (!r->tokens)
        return DLC_ENOMEM;
    r->targets = r->tokens + positions;
    for (size_t i = 0; i < 2 * positions; i++)
        r->tokens[i] = (int32_t)dlc_rng_below(&random, (uint64_t)c->model.vocab_size);
    dlc_bench_init_params(dlc_model_params(r->model), r->table, r->n_table, c->model.init_std);
    dlc_model_params_changed(r->model);
    return DLC_OK;
}

/* Returns its time. */
static double one_step(struct replica *r)
{
    static const struct dlc_adamw_config adamw = { 0.9, 0.99, 1e-8, 0.1, 1 };
    double positions = (double)r->c->batch * r->c->seq, begin = dlc_now_s();

    dlc_model_zero_grads(r->model);
    r->zero_s = dlc_now_s() - begin;
    r->loss = dlc_model_loss_grad(r->model, r->tokens, r->targets, r->c->batch, r->c->seq, (float)(1 / positions));
    dlc_adamw_step(r->be, dlc_model_params(r->model), r->m, r->v, dlc_model_grads(r->model), r->table, r->n_table,
                   &adamw, 1e-4, ++r->step);
    dlc_model_params_changed(r->model);
    return dlc_now_s() - begin;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double dlc_bench_median(double *out_best, const double *values, size_t n, double *scratch)
{
    memcpy(scratch, values, n * sizeof *values);
    qsort(scratch, n, sizeof *scratch, by_value);
    *out_best = scratch[0];
    return (scratch[(n - 1) / 2] + scratch[n / 2]) / 2;
}

static dlc_err time_steps(struct dlc_bench_step *out, struct replica *r, double seconds)
{
    double scratch[MAX_STEPS], begin = dlc_now_s();

    out->seconds = dlc_calloc(MAX_STEPS, sizeof *out->seconds);
    if (!out->seconds)
        return DLC_ENOMEM;
    while (out->n < MAX_STEPS && (out->n < MIN_STEPS || dlc_now_s() - begin < seconds))
        out->seconds[out->n++] = one_step(r);
    out->median_s = dlc_bench_median(&out->best_s, out->seconds, out->n, scratch);
    return DLC_OK;
}

/* Calls and seconds become those of this step when it is the fastest so far. */
static void profile_step(struct dlc_bench_step *out, struct replica *r, struct dlc_timed *t)
{
    double step_s;

    dlc_timed_clear(t);
    dlc_timed_begin(t, r->be);
    step_s = one_step(r);
    dlc_timed_end(t);
    if (out->n_rows > 0 && step_s >= out->profile_s)
        return;
    out->profile_s = step_s;
    out->zero_s = r->zero_s;
    out->n_rows = t->n_rows;
    memcpy(out->rows, t->rows, t->n_rows * sizeof *t->rows);
}

static dlc_err profile_steps(struct dlc_bench_step *out, struct replica *r, const struct dlc_bench_step_options *o)
{
    double begin = dlc_now_s(), seconds = o->seconds / 3, stream_s = seconds / (2 * PROFILE_STEPS);
    struct dlc_timed *t = dlc_calloc(1, sizeof *t);
    struct dlc_streams streams = { .a = NULL };
    dlc_err err = DLC_ENOMEM;

    out->rows = dlc_calloc(DLC_TIMED_MAX_ROWS, sizeof *out->rows);
    if (!t || !out->rows)
        goto done;
    if (o->array_bytes)
        DLC_TRY_TO(done, dlc_streams_init(&streams, r->be->pool, o->array_bytes));
    for (int i = 0; i < PROFILE_STEPS && (i == 0 || dlc_now_s() - begin < seconds); i++) {
        profile_step(out, r, t);
        if (o->array_bytes)
            dlc_streams_measure(&out->peaks.memory, &streams, stream_s);
    }
    for (size_t i = 0; i < out->n_rows; i++)
        out->rows[i].best_s = t->rows[i].best_s;
    err = DLC_OK;
done:
    dlc_streams_fini(&streams);
    dlc_free(t);
    return err;
}

static dlc_err measure(struct dlc_bench_step *out, struct replica *r, const struct dlc_bench_step_options *o)
{
    DLC_TRY(create(r));
    for (int i = 0; i < WARM_UP_STEPS; i++)
        one_step(r);
    if (o->timed)
        DLC_TRY(time_steps(out, r, o->seconds * 2 / 3));
    out->peak_rss_bytes = dlc_machine_peak_rss_bytes();
    DLC_TRY(profile_steps(out, r, o));
    if (!isfinite(r->loss))
        return dlc_fail(DLC_EFAIL, "the loss of preset %s is not finite after %lld steps: times mean nothing",
                        r->c->preset, (long long)r->step);
    return DLC_OK;
}

dlc_err dlc_bench_measure_step(struct dlc_bench_step *out, const struct dlc_bench_case *c, dlc_backend *be,
                               const struct dlc_bench_step_options *o)
{
    struct dlc_model_options options = model_options(c);
    struct replica r = { .c = c, .be = be };
    dlc_err err;

    *out = (struct dlc_bench_step){ .c = *c, .planned_moments = moments_bytes(c) };
    dlc_model_memory_plan(&out->planned, &c->model, &options, be);
    dlc_machine_reset_peak_rss();
    err = measure(out, &r, o);
    destroy(&r);
    return err;
}
