/* Speed of single operations of the backend: one row an operation, best of several repetitions.
 *
 *   ops_bench [isa] [library] [threads]        defaults: auto auto 1
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/rng.h"

static dlc_backend *be;

static float *array(size_t n)
{
    void *p;

    if (dlc_backend_alloc(be, &p, n * sizeof(float), "benchmark") != DLC_OK) {
        fprintf(stderr, "%s\n", dlc_err_text());
        exit(1);
    }
    for (size_t i = 0; i < n; i++)
        ((float *)p)[i] = (float)dlc_rng_uniform(1, 2, i) - 0.5f;
    return p;
}

struct job {
    float *a[9];
    int32_t *tokens;
    size_t d[5];
    dlc_dtype in;
};

static double best_s(void (*fn)(struct job *), struct job *j)
{
    double best = 1e9, begin = dlc_now_s();

    fn(j);
    for (int i = 0; i < 200 && (i < 3 || dlc_now_s() - begin < 0.25); i++) {
        double t = dlc_now_s();

        fn(j);
        t = dlc_now_s() - t;
        best = t < best ? t : best;
    }
    return best;
}

static void free_arrays(struct job *j, const size_t *n)
{
    for (int i = 0; i < 9; i++)
        dlc_backend_free(be, j->a[i], n[i] * sizeof(float));
}

static void nt(struct job *j)
{
    be->ops->matmul_nt(be, j->a[0], j->a[1], j->a[2], j->d[0], j->d[1], j->d[2], j->in, 0);
}

static void nn(struct job *j)
{
    be->ops->matmul_nn(be, j->a[1], j->a[0], j->a[2], j->d[0], j->d[1], j->d[2], j->in, 0);
}

static void tn(struct job *j)
{
    be->ops->matmul_tn(be, j->a[2], j->a[0], j->a[1], j->d[0], j->d[1], j->d[2], j->in, 1);
}

static void bench_matmul(size_t R, size_t N, size_t K)
{
    size_t n[9] = { R * N, R * K, N * K };
    struct job j = { .a = { array(n[0]), array(n[1]), array(n[2]) }, .d = { R, N, K } };
    double gflop = 2e-9 * (double)R * (double)N * (double)K;

    for (int bf16 = 0; bf16 < 2; bf16++) {
        j.in = bf16 ? DLC_BF16 : DLC_F32;
        printf("matmul %s R %5zu N %5zu K %5zu   nt %6.1f  nn %6.1f  tn %6.1f GFLOP/s\n", bf16 ? "bf16" : "f32 ", R, N,
               K, gflop / best_s(nt, &j), gflop / best_s(nn, &j), gflop / best_s(tn, &j));
        memset(j.a[1], 0, n[1] * sizeof(float)); /* no NaN among the bf16 */
        memset(j.a[2], 0, n[2] * sizeof(float));
        memset(j.a[0], 0, n[0] * sizeof(float));
    }
    free_arrays(&j, n);
}

static void att_fwd(struct job *j)
{
    be->ops->attention_fwd(be, j->a[0], j->a[1], j->a[2], j->a[3], j->a[4], j->d[0], j->d[1], j->d[2], j->d[3],
                           j->d[4]);
}

static void att_bwd(struct job *j)
{
    be->ops->attention_bwd(be, j->a[5], j->a[6], j->a[7], j->a[8], j->a[2], j->a[3], j->a[4], j->a[0], j->a[1], j->d[0],
                           j->d[1], j->d[2], j->d[3], j->d[4]);
}

static void bench_attention(size_t B, size_t T, size_t H, size_t K, size_t D)
{
    size_t q = B * T * H * D, kv = B * T * K * D, n[9] = { q, B * T * H, q, kv, kv, q, kv, kv, q };
    struct job j = { .d = { B, T, H, K, D } };
    double gflop = 2e-9 * (double)(B * T * T * H * D), fwd, bwd; /* two products, half of each above the diagonal */

    for (int i = 0; i < 9; i++)
        j.a[i] = array(n[i]);
    fwd = best_s(att_fwd, &j);
    bwd = best_s(att_bwd, &j);
    printf("attention B %zu T %4zu H %zu K %zu D %3zu   forward %6.2f ms %5.1f GFLOP/s   backward %6.2f ms %5.1f "
           "GFLOP/s\n",
           B, T, H, K, D, fwd * 1e3, gflop / fwd, bwd * 1e3, 2.5 * gflop / bwd);
    free_arrays(&j, n);
}

static void rms_fwd(struct job *j)
{
    be->ops->rmsnorm_fwd(be, j->a[0], j->a[1], j->a[2], j->a[3], j->d[0], j->d[1], 1e-5f);
}

static void rms_bwd(struct job *j)
{
    be->ops->rmsnorm_bwd(be, j->a[0], j->a[4], j->a[2], j->a[5], j->a[1], j->a[3], j->d[0], j->d[1]);
}
static void rope(struct job *j)
{
    be->ops->rope(be, j->a[0], j->a[2], j->d[0], 256, 0, j->d[1] / 64, 64, 0);
}
static void swiglu_fwd(struct job *j)
{
    be->ops->swiglu_fwd(be, j->a[0], j->a[2], j->a[5], j->d[0] * j->d[1]);
}
static void swiglu_bwd(struct job *j)
{
    be->ops->swiglu_bwd(be, j->a[0], j->a[6], j->a[2], j->a[5], j->a[7], j->d[0] * j->d[1]);
}
static void ce(struct job *j)
{
    be->ops->cross_entropy(be, j->a[1], j->a[0], j->tokens, j->d[0], j->d[1], 1e-3f);
}
static void add(struct job *j)
{
    be->ops->add(be, j->a[0], j->a[2], j->d[0] * j->d[1]);
}
static void to_bf16(struct job *j)
{
    be->ops->to_bf16(be, (dlc_bf16 *)j->a[0], j->a[2], j->d[0] * j->d[1]);
}
static void squares(struct job *j)
{
    be->ops->sum_squares(be, j->a[0], j->d[0] * j->d[1]);
}
static void adamw(struct job *j)
{
    struct dlc_adamw a = { 1e-3f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.5f, 0.5f, 1 };

    be->ops->adamw(be, j->a[0], j->a[2], j->a[5], j->a[6], j->d[0] * j->d[1], &a);
}
static void embed_fwd(struct job *j)
{
    be->ops->embed_fwd(be, j->a[0], j->tokens, j->a[2], j->d[0], j->d[1]);
}
static void embed_bwd(struct job *j)
{
    be->ops->embed_bwd(be, j->a[2], j->tokens, j->a[0], j->d[0], j->d[1]);
}

static void bench_rows(size_t R, size_t C)
{
    static const struct {
        const char *name;
        void (*fn)(struct job *);
        double arrays;
    } ops[] = {
        { "rmsnorm_fwd", rms_fwd, 2 },
        { "rmsnorm_bwd", rms_bwd, 4 },
        { "rope", rope, 2 },
        { "swiglu_fwd", swiglu_fwd, 3 },
        { "swiglu_bwd", swiglu_bwd, 5 },
        { "cross_entropy", ce, 2 },
        { "add", add, 3 },
        { "to_bf16", to_bf16, 1.5 },
        { "sum_squares", squares, 1 },
        { "adamw", adamw, 7 },
        { "embed_fwd", embed_fwd, 2 },
        { "embed_bwd", embed_bwd, 3 },
    };
    size_t n = R * C, sizes[9] = { n, R, n, C, C, n, n, n };
    struct job j = { .d = { R, C } };

    for (int i = 0; i < 8; i++)
        j.a[i] = array(sizes[i]);
    j.tokens = calloc(R, sizeof(int32_t));
    for (size_t i = 0; i < R; i++)
        j.tokens[i] = (int32_t)(i * 7919 % (C < R ? C : R));
    for (size_t i = 0; i < n; i++)
        j.a[5][i] = j.a[5][i] * j.a[5][i];
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        double s = best_s(ops[i].fn, &j);

        printf("%-14s R %5zu C %5zu   %7.3f ms   %5.2f ns a value   %5.1f GB/s\n", ops[i].name, R, C, s * 1e3,
               s * 1e9 / (double)n, 4e-9 * ops[i].arrays * (double)n / s);
    }
    free(j.tokens);
    free_arrays(&j, sizes);
}

int main(int argc, char **argv)
{
    const char *isa = argc > 1 ? argv[1] : "auto", *lib = argc > 2 ? argv[2] : "auto";

    if (dlc_cpu_create(&be, isa, lib, argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1) != DLC_OK) {
        fprintf(stderr, "%s\n", dlc_err_text());
        return 1;
    }
    printf("%s, products by %s, %d threads\n", be->isa, be->matmul, dlc_pool_n_threads(be->pool));
    bench_matmul(1, 1024, 256);
    bench_matmul(64, 128, 128);
    bench_matmul(512, 128, 128);
    bench_matmul(1024, 256, 64);
    bench_matmul(2048, 384, 128);
    bench_matmul(4096, 512, 512);
    bench_matmul(1024, 2048, 128);
    bench_matmul(1024, 4096, 256);
    bench_attention(8, 128, 4, 4, 32);
    bench_attention(4, 256, 4, 2, 64);
    bench_attention(1, 1024, 8, 8, 64);
    bench_rows(2048, 256);
    dlc_backend_destroy(be);
    return 0;
}
