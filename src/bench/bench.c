/* Which measurements are made, in which order, and how the time is shared out. */
#include "bench/bench.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "bench/machine.h"

#define MIB ((size_t)1 << 20)

dlc_err dlc_bench_case_init(struct dlc_bench_case *out, const struct dlc_bench_options *o, const char *preset,
                            dlc_precision precision)
{
    struct dlc_model_config *m = &out->model;
    bool large;

    *out = (struct dlc_bench_case){ .preset = preset, .precision = precision };
    DLC_TRY(dlc_model_preset(m, preset));
    large = m->d_model >= 512;
    m->vocab_size = o->vocab ? o->vocab : large ? 32000 : 4096;
    out->batch = o->batch ? o->batch : large ? 4 : 16;
    out->seq = o->seq ? o->seq : m->context < 256 ? m->context : 256;
    if (m->context < out->seq)
        m->context = out->seq;
    DLC_TRY(dlc_model_config_check(m));
    out->n_params = dlc_model_n_params(m);
    return DLC_OK;
}

struct run {
    const struct dlc_bench_options *o;
    struct dlc_bench_result *out;
    dlc_backend *be;
    struct dlc_bench_case *cases;
    size_t n_cases;
    double share; /* seconds of one part; a part is what a measurement gets, steps get several */
};

enum { STEP_PARTS = 4 };

static bool wants(const struct run *r, unsigned sections)
{
    return (r->o->sections & sections) != 0;
}

static void share_time(struct run *r)
{
    int parts = wants(r, DLC_BENCH_ALL) + wants(r, DLC_BENCH_PEAKS | DLC_BENCH_DECODE) +
                STEP_PARTS * wants(r, DLC_BENCH_OPS | DLC_BENCH_STEP) + wants(r, DLC_BENCH_DECODE);

    r->share = r->o->seconds / (parts ? parts : 1);
}

static dlc_err check_memory(const struct run *r, const struct dlc_bench_case *c)
{
    size_t needed = dlc_bench_step_bytes(c, r->be);

    if (!wants(r, DLC_BENCH_OPS | DLC_BENCH_STEP) || r->o->available_bytes == 0 ||
        needed <= (size_t)r->o->available_bytes)
        return DLC_OK;
    return dlc_fail(
        DLC_ENOMEM,
        "preset %s with %d x %d tokens needs %zu MiB to train, %zu MiB are available; take a smaller --batch",
        c->preset, c->batch, c->seq, needed / MIB, (size_t)r->o->available_bytes / MIB);
}

/* Without a wish bf16 is measured where it is more than rounding. */
static bool in_precision(const struct run *r, dlc_precision precision)
{
    bool any = !r->o->f32 && !r->o->bf16;

    if (precision == DLC_PRECISION_F32)
        return any || r->o->f32;
    return r->o->bf16 || (any && strstr(r->be->isa, "bf16") != NULL) || (any && strcmp(r->be->isa, "amx") == 0);
}

static dlc_err make_cases(struct run *r)
{
    static const dlc_precision precisions[] = { DLC_PRECISION_F32, DLC_PRECISION_BF16 };

    r->cases = dlc_calloc(2 * r->o->n_presets, sizeof *r->cases);
    if (!r->cases)
        return DLC_ENOMEM;
    for (size_t i = 0; i < r->o->n_presets; i++)
        for (size_t p = 0; p < 2; p++) {
            struct dlc_bench_case *c = &r->cases[r->n_cases];

            if (!in_precision(r, precisions[p]))
                continue;
            DLC_TRY(dlc_bench_case_init(c, r->o, r->o->presets[i], precisions[p]));
            c->n_threads = dlc_pool_n_threads(r->be->pool);
            DLC_TRY(check_memory(r, c));
            r->n_cases++;
        }
    return DLC_OK;
}

static void describe_machine(const struct run *r)
{
    dlc_machine_cpu(r->out->cpu, sizeof r->out->cpu);
    r->out->cores = dlc_n_cores();
    snprintf(r->out->isa, sizeof r->out->isa, "%s", r->be->isa);
    snprintf(r->out->matmul, sizeof r->out->matmul, "%s", r->be->matmul);
}

/* The three together larger than the caches, but a short measurement takes short arrays, and small machines small ones.
 * Virtual machines tell of caches that they share with others, hence the limit. */
static size_t array_bytes(const struct dlc_bench_options *o)
{
    size_t bytes = 256 * MIB, caches = 2 * dlc_machine_cache_bytes();

    bytes = bytes > caches ? bytes : caches;
    bytes = bytes < 512 * MIB ? bytes : 512 * MIB;
    if (o->seconds < 8)
        bytes = (size_t)(o->seconds / 8 * (double)bytes);
    if (o->available_bytes > 0 && bytes > (size_t)o->available_bytes / 8)
        bytes = (size_t)o->available_bytes / 8;
    return bytes > MIB ? bytes : MIB;
}

static dlc_err measure_peaks(struct run *r)
{
    struct dlc_streams streams;

    dlc_info("measuring arithmetic");
    dlc_peaks_arithmetic(&r->out->peaks, r->be->pool, r->share);
    if (!wants(r, DLC_BENCH_PEAKS | DLC_BENCH_DECODE))
        return DLC_OK;
    dlc_info("measuring memory");
    DLC_TRY(dlc_streams_init(&streams, r->be->pool, array_bytes(r->o)));
    dlc_streams_measure(&r->out->peaks.memory, &streams, r->share);
    dlc_streams_fini(&streams);
    return DLC_OK;
}

static dlc_err measure_step(struct run *r, const struct dlc_bench_case *c, double seconds)
{
    struct dlc_bench_step *step = &r->out->steps[r->out->n_steps++];
    struct dlc_bench_step_options o = { .seconds = seconds, .timed = wants(r, DLC_BENCH_STEP) };
    dlc_err err;

    if (wants(r, DLC_BENCH_OPS))
        o.array_bytes = array_bytes(r->o);
    dlc_info("training %s, %d x %d tokens, %s", c->preset, c->batch, c->seq, dlc_bench_precision_name(c->precision));
    err = dlc_bench_measure_step(step, c, r->be, &o);
    step->peaks.n_threads = r->out->peaks.n_threads;
    step->peaks.f32_flops = r->out->peaks.f32_flops;
    step->peaks.bf16_flops = r->out->peaks.bf16_flops;
    return err;
}

static dlc_err measure_decode(struct run *r, const struct dlc_bench_case *c, double seconds)
{
    dlc_info("generating with %s, %s", c->preset, dlc_bench_precision_name(c->precision));
    return dlc_bench_measure_decode(&r->out->decodes[r->out->n_decodes++], c, r->be, seconds);
}

static dlc_err measure_cases(struct run *r)
{
    struct dlc_bench_result *out = r->out;
    double seconds = r->share / (double)r->n_cases;

    out->steps = dlc_calloc(r->n_cases, sizeof *out->steps);
    out->decodes = dlc_calloc(r->n_cases, sizeof *out->decodes);
    if (!out->steps || !out->decodes)
        return DLC_ENOMEM;
    for (size_t i = 0; i < r->n_cases && wants(r, DLC_BENCH_OPS | DLC_BENCH_STEP); i++)
        DLC_TRY(measure_step(r, &r->cases[i], STEP_PARTS * seconds));
    for (size_t i = 0; i < r->n_cases && wants(r, DLC_BENCH_DECODE); i++)
        DLC_TRY(measure_decode(r, &r->cases[i], seconds));
    return DLC_OK;
}

static dlc_err run(struct run *r)
{
    DLC_TRY(dlc_backend_create(&r->be, r->o->isa, r->o->threads));
    DLC_TRY(make_cases(r));
    describe_machine(r);
    share_time(r);
    DLC_TRY(measure_peaks(r));
    return r->n_cases > 0 ? measure_cases(r) : DLC_OK;
}

dlc_err dlc_bench_run(struct dlc_bench_result *out, const struct dlc_bench_options *options)
{
    struct run r = { .o = options, .out = out };
    dlc_err err;

    memset(out, 0, sizeof *out);
    out->sections = options->sections;
    err = run(&r);
    dlc_free(r.cases);
    dlc_backend_destroy(r.be);
    return err;
}

void dlc_bench_result_fini(struct dlc_bench_result *result)
{
    for (size_t i = 0; i < result->n_steps; i++) {
        dlc_free(result->steps[i].seconds);
        dlc_free(result->steps[i].rows);
    }
    dlc_free(result->steps);
    dlc_free(result->decodes);
    memset(result, 0, sizeof *result);
}
