/* A result as tables for people. */
#include <math.h>

#include "base/units.h"
#include "bench/bench.h"

/* Operations that take less of a step than this are left out of the table. */
#define SHOWN_SHARE 0.002

static dlc_err flops_line(struct dlc_buf *out, const char *name, double one, double all)
{
    if (all == 0)
        return dlc_buf_printf(out, "  %-20s none on this machine\n", name);
    return dlc_buf_printf(out, "  %-20s %8.1f GFLOP/s   one thread %8.1f\n", name, all * 1e-9, one * 1e-9);
}

static dlc_err peaks(struct dlc_buf *out, const struct dlc_peaks *p)
{
    char arrays[DLC_UNITS_TEXT];

    dlc_format_bytes(arrays, (double)p->memory.array_bytes);
    DLC_TRY(dlc_buf_printf(out, "\nPeaks, %d threads (a multiply-add is 2 FLOPs)\n", p->n_threads));
    DLC_TRY(flops_line(out, "f32 multiply-add", p->f32_flops_1, p->f32_flops));
    DLC_TRY(flops_line(out, "bf16 dot product", p->bf16_flops_1, p->bf16_flops));
    DLC_TRY(dlc_buf_printf(out, "  %-20s %8.1f GB/s      arrays of %s, huge pages asked for\n", "memory: read",
                           p->memory.read * 1e-9, arrays));
    DLC_TRY(dlc_buf_printf(out, "  %-20s %8.1f GB/s      three arrays counted\n", "memory: a = b + s c",
                           p->memory.triad * 1e-9));
    return dlc_buf_printf(out, "  %-20s %8.1f GB/s      read and written\n", "memory: in place",
                          p->memory.in_place * 1e-9);
}

static dlc_err case_line(struct dlc_buf *out, const struct dlc_bench_case *c)
{
    char n[DLC_UNITS_TEXT];

    dlc_format_count(n, (double)c->n_params);
    return dlc_buf_printf(out, "%s in %s: %s parameters, vocabulary %d, %d x %d tokens, %d threads\n", c->preset,
                          dlc_bench_precision_name(c->precision), n, c->model.vocab_size, c->batch, c->seq,
                          c->n_threads);
}

static dlc_err op_line(struct dlc_buf *out, const struct dlc_timed_row *row, const struct dlc_peaks *p)
{
    dlc_roof roof = row->roof;
    double rate = row->amount / row->best_s, highest = dlc_bench_roof(p, &roof);
    char shape[160];

    dlc_timed_shape(shape, sizeof shape, row);
    return dlc_buf_printf(out, "  %-14s %-30s %5d %10.3f %8.1f %-7s %5.0f %% of %s\n", dlc_timed_op_name(row->op),
                          shape, row->n_calls, row->best_s * 1e3, rate * 1e-9,
                          roof <= DLC_ROOF_BF16 ? "GFLOP/s" : "GB/s", 100 * rate / highest, dlc_bench_roof_name(roof));
}

static dlc_err ops(struct dlc_buf *out, const struct dlc_bench_step *s)
{
    const struct dlc_bandwidth *memory = &s->peaks.memory;

    DLC_TRY(dlc_buf_printf(out, "\nOperations of a step, "));
    DLC_TRY(case_line(out, &s->c));
    DLC_TRY(dlc_buf_printf(out, "  %-14s %-30s %5s %10s %8s %-7s %s\n", "", "shape", "calls", "best ms", "rate", "",
                           "share of its roof"));
    for (size_t i = 0; i < s->n_rows; i++)
        if (s->rows[i].seconds >= SHOWN_SHARE * s->profile_s)
            DLC_TRY(op_line(out, &s->rows[i], &s->peaks));
    return dlc_buf_printf(out,
                          "  memory between these steps: read %.1f, triad %.1f, in_place %.1f GB/s; data in a cache "
                          "passes 100 %%\n",
                          memory->read * 1e-9, memory->triad * 1e-9, memory->in_place * 1e-9);
}

static dlc_err memory_line(struct dlc_buf *out, const struct dlc_bench_step *s)
{
    const double bytes[] = { (double)s->planned.params, (double)s->planned.grads, (double)s->planned_moments,
                             (double)s->planned.activations, (double)s->planned.scratch };
    static const char *const names[] = { "parameters", "gradients", "moments", "activations", "scratch" };
    char text[DLC_UNITS_TEXT];
    double sum = 0;

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        sum += bytes[i];
    dlc_format_bytes(text, (double)s->peak_rss_bytes);
    DLC_TRY(dlc_buf_printf(out, "  memory: peak %s resident, ", s->peak_rss_bytes ? text : "unknown"));
    dlc_format_bytes(text, sum);
    DLC_TRY(dlc_buf_printf(out, "%s planned:", text));
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        dlc_format_bytes(text, bytes[i]);
        DLC_TRY(dlc_buf_printf(out, "%s %s %s", i ? "," : "", names[i], text));
    }
    return dlc_buf_printf(out, "\n");
}

static dlc_err profile(struct dlc_buf *out, const struct dlc_bench_step *s)
{
    struct dlc_bench_op_time times[DLC_BENCH_MAX_OPS];
    size_t n;
    double rest = dlc_bench_profile(times, &n, s);

    DLC_TRY(dlc_buf_printf(out, "  %-14s %5s %10s %7s   (a step of its own, %.1f ms)\n", "operation", "calls", "ms",
                           "%", s->profile_s * 1e3));
    for (size_t i = 0; i < n; i++)
        DLC_TRY(dlc_buf_printf(out, "  %-14s %5d %10.3f %7.1f\n", times[i].op, times[i].n_calls, times[i].seconds * 1e3,
                               100 * times[i].seconds / s->profile_s));
    return dlc_buf_printf(out, "  %-14s %5s %10.3f %7.1f\n", "(rest)", "", rest * 1e3, 100 * rest / s->profile_s);
}

static dlc_err step(struct dlc_buf *out, const struct dlc_bench_step *s)
{
    double tokens_per_s = dlc_bench_tokens_per_s(&s->c, s->median_s);
    dlc_roof roof;
    double mfu = dlc_bench_mfu(s, tokens_per_s, &roof);

    DLC_TRY(dlc_buf_printf(out, "\nTraining, "));
    DLC_TRY(case_line(out, &s->c));
    DLC_TRY(dlc_buf_printf(out, "  %.0f tokens/s median, %.0f best of %zu steps; a step %.1f ms\n", tokens_per_s,
                           dlc_bench_tokens_per_s(&s->c, s->best_s), s->n, s->median_s * 1e3));
    DLC_TRY(dlc_buf_printf(out,
                           "  MFU %.1f %% of %.1f GFLOP/s in %s (6 x parameters x tokens/s; attention not counted)\n",
                           100 * mfu, dlc_bench_roof(&s->peaks, &roof) * 1e-9, dlc_bench_roof_name(roof)));
    DLC_TRY(memory_line(out, s));
    return profile(out, s);
}

static dlc_err decode(struct dlc_buf *out, const struct dlc_bench_decode *d, const struct dlc_peaks *p)
{
    char weights[DLC_UNITS_TEXT];
    double rate = d->weight_bytes / d->median_s;

    dlc_format_bytes(weights, d->weight_bytes);
    return dlc_buf_printf(out,
                          "  %-8s %-5s %9.1f tokens/s median, %9.1f best; %s of weights a token: %.1f GB/s, %.0f %% "
                          "of read\n",
                          d->c.preset, dlc_bench_precision_name(d->c.precision), 1 / d->median_s, 1 / d->best_s,
                          weights, rate * 1e-9, 100 * rate / p->memory.read);
}

dlc_err dlc_bench_text(struct dlc_buf *out, const struct dlc_bench_result *r)
{
    DLC_TRY(
        dlc_buf_printf(out, "%s, %d cores; kernels %s, matrix products by %s\n", r->cpu, r->cores, r->isa, r->matmul));
    if (r->sections & DLC_BENCH_PEAKS)
        DLC_TRY(peaks(out, &r->peaks));
    for (size_t i = 0; i < r->n_steps; i++) {
        if (r->sections & DLC_BENCH_OPS)
            DLC_TRY(ops(out, &r->steps[i]));
        if (r->sections & DLC_BENCH_STEP)
            DLC_TRY(step(out, &r->steps[i]));
    }
    if (r->n_decodes > 0)
        DLC_TRY(dlc_buf_printf(out, "\nGenerating, one token at a time (weights that fit a cache pass 100 %%)\n"));
    for (size_t i = 0; i < r->n_decodes; i++)
        DLC_TRY(decode(out, &r->decodes[i], &r->peaks));
    return DLC_OK;
}
