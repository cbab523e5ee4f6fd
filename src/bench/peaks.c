#include "bench/peaks.h"

#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/mem.h"

size_t dlc_peak_sets(struct dlc_peak_set out[DLC_PEAK_MAX_SETS])
{
    size_t n = 0;

    out[n++] = (struct dlc_peak_set){ "generic", &dlc_peak_vectors_generic, NULL };
#ifdef DLC_HAVE_PEAK_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[n++] = (struct dlc_peak_set){ "avx2", &dlc_peak_vectors_avx2, NULL };
#endif
#ifdef DLC_HAVE_PEAK_AVX512
    if (__builtin_cpu_supports("avx512f"))
        out[n++] = (struct dlc_peak_set){ "avx512", &dlc_peak_vectors_avx512, NULL };
#endif
#ifdef DLC_HAVE_PEAK_AVX512BF16
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16"))
        out[n++] = (struct dlc_peak_set){ "avx512bf16", NULL, dlc_peak_dot_avx512bf16 };
#endif
#ifdef DLC_HAVE_PEAK_AMX
    if (dlc_cpu_best_isa() >= DLC_ISA_AMX)
        out[n++] = (struct dlc_peak_set){ "amx", NULL, dlc_peak_dot_amx };
#endif
    return n;
}

/* --- repetition --------------------------------------------------------------------------------------------------- */

enum { MIN_REPETITIONS = 3 };

/* `once` does some work and says how much; the best amount a second. */
static double best_rate(double (*once)(void *job), void *job, double seconds)
{
    double begin = dlc_now_s(), best = 0;

    for (int i = 0; i < MIN_REPETITIONS || dlc_now_s() - begin < seconds; i++) {
        double t = dlc_now_s(), amount = once(job);

        t = dlc_now_s() - t;
        if (t > 0 && amount / t > best)
            best = amount / t;
    }
    return best;
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

struct flops_job {
    dlc_peak_flops_fn *fn;
    dlc_pool *pool; /* NULL: the calling thread alone */
    double flops;   /* of one call */
};

static _Thread_local volatile float kept; /* nothing may be left out because nobody looks at it */

static void flops_part(void *arg, int worker, int n_workers)
{
    struct flops_job *j = arg;
    float sink = 0;
    double flops = j->fn(&sink);

    (void)n_workers;
    kept = sink;
    if (worker == 0)
        j->flops = flops;
}

static double flops_once(void *arg)
{
    struct flops_job *j = arg;

    if (!j->pool) {
        flops_part(j, 0, 1);
        return j->flops;
    }
    dlc_pool_run(j->pool, flops_part, j);
    return j->flops * dlc_pool_n_threads(j->pool);
}

static void best_flops(double *out, dlc_peak_flops_fn *fn, dlc_pool *pool, double seconds)
{
    struct flops_job job = { fn, pool, 0 };
    double rate = fn ? best_rate(flops_once, &job, seconds) : 0;

    if (rate > *out)
        *out = rate;
}

/* A wider set is not always the faster one: all are tried. */
void dlc_peaks_arithmetic(struct dlc_peaks *out, dlc_pool *pool, double seconds)
{
    struct dlc_peak_set sets[DLC_PEAK_MAX_SETS];
    size_t n = dlc_peak_sets(sets);

    out->n_threads = dlc_pool_n_threads(pool);
    seconds /= (double)(2 * n);
    for (size_t i = 0; i < n; i++) {
        dlc_peak_flops_fn *fma = sets[i].vectors ? sets[i].vectors->fma : NULL;

        best_flops(&out->f32_flops, fma, pool, seconds);
        best_flops(&out->f32_flops_1, fma, NULL, seconds);
        best_flops(&out->bf16_flops, sets[i].dot, pool, seconds);
        best_flops(&out->bf16_flops_1, sets[i].dot, NULL, seconds);
    }
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

struct stream_job {
    const struct dlc_streams *s;
    void (*part)(const struct dlc_streams *s, size_t begin, size_t n);
    double arrays; /* how many times the size of an array are read and written */
};

static void fill_part(const struct dlc_streams *s, size_t begin, size_t n)
{
    for (size_t i = begin; i < begin + n; i++) {
        s->a[i] = 1;
        s->b[i] = 2;
        s->c[i] = 3;
    }
}

static void read_part(const struct dlc_streams *s, size_t begin, size_t n)
{
    kept = s->vectors->read(s->a + begin, n);
}

static void triad_part(const struct dlc_streams *s, size_t begin, size_t n)
{
    s->vectors->triad(s->a + begin, s->b + begin, s->c + begin, 0.5f, n);
}

static void in_place_part(const struct dlc_streams *s, size_t begin, size_t n)
{
    s->vectors->in_place(s->a + begin, 1, n);
}

static void stream_worker(void *arg, int worker, int n_workers)
{
    const struct stream_job *j = arg;
    size_t begin, end;

    dlc_pool_part(&begin, &end, j->s->n, DLC_PEAK_GRAIN, worker, n_workers);
    if (begin < end)
        j->part(j->s, begin, end - begin);
}

static double stream_once(void *arg)
{
    struct stream_job *j = arg;

    dlc_pool_run(j->s->pool, stream_worker, j);
    return j->arrays * (double)(j->s->n * sizeof(float));
}

static void raise_to(double *best, const struct dlc_streams *s, double arrays,
                     void (*part)(const struct dlc_streams *s, size_t begin, size_t n), double seconds)
{
    struct stream_job job = { s, part, arrays };
    double rate = best_rate(stream_once, &job, seconds);

    if (rate > *best)
        *best = rate;
}

void dlc_streams_measure(struct dlc_bandwidth *best, const struct dlc_streams *s, double seconds)
{
    best->array_bytes = s->n * sizeof(float);
    raise_to(&best->read, s, 1, read_part, seconds / 3);
    raise_to(&best->triad, s, 3, triad_part, seconds / 3);
    raise_to(&best->in_place, s, 2, in_place_part, seconds / 3);
}

dlc_err dlc_streams_init(struct dlc_streams *out, dlc_pool *pool, size_t array_bytes)
{
    struct dlc_peak_set sets[DLC_PEAK_MAX_SETS];
    struct stream_job fill = { out, fill_part, 0 };
    void *arena;

    *out = (struct dlc_streams){ .pool = pool, .n = array_bytes / sizeof(float) / DLC_PEAK_GRAIN * DLC_PEAK_GRAIN };
    for (size_t i = dlc_peak_sets(sets); !out->vectors; i--)
        out->vectors = sets[i - 1].vectors;
    DLC_TRY(dlc_arena_alloc(&arena, 3 * out->n * sizeof(float), "arrays of the bandwidth measurement"));
    out->a = arena;
    out->b = out->a + out->n;
    out->c = out->b + out->n;
    dlc_pool_run(pool, stream_worker, &fill); /* each part's pages become resident where its worker runs */
    return DLC_OK;
}

void dlc_streams_fini(struct dlc_streams *s)
{
    dlc_arena_free(s->a, 3 * s->n * sizeof(float));
}
