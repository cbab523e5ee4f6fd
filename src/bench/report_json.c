/* A result as one JSON object. A number that was not measured, or that JSON has no word for, is null. */
#include <math.h>

#include "base/json.h"
#include "base/mem.h"
#include "bench/bench.h"

static json_t *number(double v)
{
    return isfinite(v) && v != 0 ? json_real(v) : json_null();
}

static json_t *count(size_t v)
{
    return json_integer((json_int_t)v);
}

/* Both are taken over; NULL when either is. */
static json_t *appended(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *peaks(const struct dlc_peaks *p)
{
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "threads", p->n_threads, "f32_gflops",
                     number(p->f32_flops * 1e-9), "bf16_gflops", number(p->bf16_flops * 1e-9), "f32_gflops_1",
                     number(p->f32_flops_1 * 1e-9), "bf16_gflops_1", number(p->bf16_flops_1 * 1e-9), "read_gbs",
                     number(p->memory.read * 1e-9), "triad_gbs", number(p->memory.triad * 1e-9), "in_place_gbs",
                     number(p->memory.in_place * 1e-9), "array_bytes", count(p->memory.array_bytes));
}

static json_t *op(const struct dlc_timed_row *row, const struct dlc_bench_case *c, const struct dlc_peaks *p)
{
    dlc_roof roof = row->roof;
    double rate = row->amount / row->best_s, highest = dlc_bench_roof(p, &roof);
    bool computes = roof == DLC_ROOF_F32 || roof == DLC_ROOF_BF16;
    char shape[160];

    dlc_timed_shape(shape, sizeof shape, row);
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:s, s:o}", "op", dlc_timed_op_name(row->op), "shape", shape,
                     "preset", c->preset, "precision", dlc_bench_precision_name(c->precision), "calls", row->n_calls,
                     "seconds", number(row->best_s), computes ? "gflops" : "gbs", number(rate * 1e-9), "roof",
                     dlc_bench_roof_name(roof), "roof_share", number(rate / highest));
}

static json_t *ops(const struct dlc_bench_result *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->n_steps; i++)
        for (size_t j = 0; j < r->steps[i].n_rows; j++)
            array = appended(array, op(&r->steps[i].rows[j], &r->steps[i].c, &r->steps[i].peaks));
    return array;
}

static json_t *step_seconds(const struct dlc_bench_step *s)
{
    json_t *array = json_array();

    for (size_t i = 0; i < s->n; i++)
        array = appended(array, json_real(s->seconds[i]));
    return array;
}

static json_t *profile(double *rest, const struct dlc_bench_step *s)
{
    struct dlc_bench_op_time times[DLC_BENCH_MAX_OPS];
    json_t *array = json_array();
    size_t n;

    *rest = dlc_bench_profile(times, &n, s);
    for (size_t i = 0; i < n; i++)
        array = appended(array, json_pack("{s:s, s:i, s:o}", "op", times[i].op, "calls", times[i].n_calls, "seconds",
                                          json_real(times[i].seconds)));
    return array;
}

static json_t *step(const struct dlc_bench_step *s)
{
    double tokens_per_s = dlc_bench_tokens_per_s(&s->c, s->median_s), rest;
    dlc_roof roof;
    double mfu = dlc_bench_mfu(s, tokens_per_s, &roof);
    json_t *planned = json_pack("{s:o, s:o, s:o, s:o, s:o}", "params", count(s->planned.params), "grads",
                                count(s->planned.grads), "moments", count(s->planned_moments), "activations",
                                count(s->planned.activations), "scratch", count(s->planned.scratch));
    json_t *by_op = profile(&rest, s);

    return json_pack("{s:s, s:o, s:i, s:i, s:i, s:s, s:i, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "preset",
                     s->c.preset, "n_params", count(s->c.n_params), "vocab", s->c.model.vocab_size, "batch", s->c.batch,
                     "seq", s->c.seq, "precision", dlc_bench_precision_name(s->c.precision), "threads", s->c.n_threads,
                     "tokens_per_s", number(tokens_per_s), "tokens_per_s_best",
                     number(dlc_bench_tokens_per_s(&s->c, s->best_s)), "step_seconds", step_seconds(s), "mfu",
                     number(mfu), "mfu_roof", dlc_bench_roof_name(roof), "peak_rss_bytes",
                     s->peak_rss_bytes ? count(s->peak_rss_bytes) : json_null(), "planned_bytes", planned, "profile",
                     by_op, "profile_rest_seconds", json_real(rest));
}

static json_t *steps(const struct dlc_bench_result *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->n_steps; i++)
        array = appended(array, step(&r->steps[i]));
    return array;
}

static json_t *decode(const struct dlc_bench_result *r)
{
    json_t *array = json_array();

    for (size_t i = 0; i < r->n_decodes; i++) {
        const struct dlc_bench_decode *d = &r->decodes[i];
        double rate = d->weight_bytes / d->median_s;

        array = appended(array, json_pack("{s:s, s:o, s:i, s:i, s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "preset",
                                          d->c.preset, "n_params", count(d->c.n_params), "vocab", d->c.model.vocab_size,
                                          "positions", d->c.seq, "precision", dlc_bench_precision_name(d->c.precision),
                                          "threads", d->c.n_threads, "tokens_per_s", number(1 / d->median_s),
                                          "tokens_per_s_best", number(1 / d->best_s), "weight_bytes_per_token",
                                          json_real(d->weight_bytes), "weight_gbs", number(rate * 1e-9), "read_share",
                                          number(rate / r->peaks.memory.read)));
    }
    return array;
}

static dlc_err dump(struct dlc_buf *out, const json_t *v)
{
    char *text = dlc_json_dump_indented(v);
    dlc_err err = text ? dlc_buf_printf(out, "%s\n", text) : DLC_ENOMEM;

    dlc_free(text);
    return err;
}

dlc_err dlc_bench_json(struct dlc_buf *out, const struct dlc_bench_result *r)
{
    json_t *v = json_object();
    bool failed = json_object_set_new(v, "machine",
                                      json_pack("{s:s, s:i, s:s, s:s}", "cpu", r->cpu, "cores", r->cores, "isa", r->isa,
                                                "matmul", r->matmul)) != 0;
    dlc_err err;

    if (r->sections & DLC_BENCH_PEAKS)
        failed |= json_object_set_new(v, "peaks", peaks(&r->peaks)) != 0;
    if (r->sections & DLC_BENCH_OPS)
        failed |= json_object_set_new(v, "ops", ops(r)) != 0;
    if (r->sections & DLC_BENCH_STEP)
        failed |= json_object_set_new(v, "steps", steps(r)) != 0;
    if (r->sections & DLC_BENCH_DECODE)
        failed |= json_object_set_new(v, "decode", decode(r)) != 0;
    err = failed ? dlc_fail(DLC_ENOMEM, "out of memory: result of bench") : dump(out, v);
    json_decref(v);
    return err;
}
