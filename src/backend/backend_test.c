/* The formulas of conformance_ops.c against finite differences, and what the list of shapes cannot say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend/conformance.h"
#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/rng.h"

/* ---- gradients ---- */

struct arrays {
    int n;
    struct array_spec specs[MAX_ARRAYS];
    double *a[MAX_ARRAYS];
    int32_t *index[MAX_ARRAYS];
};

static void open_arrays(struct arrays *s, const struct op *op, const size_t *d)
{
    *s = (struct arrays){ 0 };
    s->n = op->arrays(s->specs, d);
    for (int i = 0; i < s->n; i++) {
        s->a[i] = dlc_calloc(s->specs[i].n, sizeof(double));
        s->index[i] = dlc_calloc(s->specs[i].n, sizeof(int32_t));
        for (size_t j = 0; j < s->specs[i].n; j++) {
            s->a[i][j] = s->specs[i].shift + s->specs[i].scale * dlc_rng_normal(3, (uint64_t)i, j);
            if (s->specs[i].kind == INDEX)
                s->index[i][j] = (int32_t)(dlc_rng_u64(4, (uint64_t)i, j) % s->specs[i].limit);
        }
    }
    if (op->prepare)
        op->prepare(s->a, s->index, d);
}

static void close_arrays(struct arrays *s)
{
    for (int i = 0; i < s->n; i++) {
        dlc_free(s->a[i]);
        dlc_free(s->index[i]);
    }
}

static int find(const struct arrays *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->specs[i].name, name) == 0)
            return i;
    return -1;
}

/* sum of weight * y over the first array of the forward operation, whose inputs stay as they are. */
static double objective(const struct op *op, const struct arrays *s, const size_t *d, const double *weight)
{
    double *a[MAX_ARRAYS], sum = 0;

    for (int i = 0; i < s->n; i++) {
        a[i] = dlc_calloc(s->specs[i].n, sizeof(double));
        memcpy(a[i], s->a[i], s->specs[i].n * sizeof(double));
    }
    op->right(a, (int32_t **)s->index, d);
    for (size_t j = 0; j < s->specs[0].n; j++)
        sum += weight[j] * a[0][j];
    for (int i = 0; i < s->n; i++)
        dlc_free(a[i]);
    return sum;
}

static void check_slope(const struct op *fwd, struct arrays *s, const size_t *d, const double *weight, int input,
                        const double *gradient, const char *what)
{
    const double h = 1e-5;

    for (size_t j = 0; j < s->specs[input].n; j++) {
        double x = s->a[input][j], up, down, slope;

        s->a[input][j] = x + h;
        up = objective(fwd, s, d, weight);
        s->a[input][j] = x - h;
        down = objective(fwd, s, d, weight);
        s->a[input][j] = x;
        slope = (up - down) / (2 * h);
        if (!(fabs(slope - gradient[j]) <= 1e-7 * (1 + fabs(slope))))
            fail_msg("%s, d %s[%zu]: formula %.10g, finite difference %.10g", what, s->specs[input].name, j,
                     gradient[j], slope);
    }
}

/* The arrays of a backward operation are named after those of its forward one: dy and y, dx and x. */
static int check_pair(const char *fwd_name, const char *bwd_name, const size_t *fwd_d, const size_t *d)
{
    const struct op *fwd = conformance_op(fwd_name), *bwd = conformance_op(bwd_name);
    struct arrays f, b;
    int n_checked = 0;

    open_arrays(&f, fwd, fwd_d);
    open_arrays(&b, bwd, d);
    for (int i = 0; i < f.n; i++) {
        int same = find(&b, f.specs[i].name);

        if (same < 0 || f.specs[i].kind == OUT)
            continue;
        memcpy(f.a[i], b.a[same], f.specs[i].n * sizeof(double));
        memcpy(f.index[i], b.index[same], f.specs[i].n * sizeof(int32_t));
    }
    for (int i = 0; i < b.n; i++) /* gradients that are added to start from 0 */
        if (b.specs[i].kind == ADD)
            memset(b.a[i], 0, b.specs[i].n * sizeof(double));
    bwd->right(b.a, b.index, d);
    for (int i = 0; i < f.n; i++) {
        char name[40];
        int gradient;

        snprintf(name, sizeof name, "d%s", f.specs[i].name);
        gradient = find(&b, name);
        if (gradient < 0 || f.specs[i].kind == OUT)
            continue;
        check_slope(fwd, &f, fwd_d, b.a[find(&b, "dy")], i, b.a[gradient], bwd_name);
        n_checked++;
    }
    close_arrays(&f);
    close_arrays(&b);
    return n_checked;
}

static void gradients_are_slopes(void **state)
{
    static const struct {
        const char *fwd, *bwd;
        int n_gradients;
    } pairs[] = {
        { "matmul_nt", "matmul_nn", 1 },     { "matmul_nt", "matmul_tn", 1 },         { "embed_fwd", "embed_bwd", 1 },
        { "rmsnorm_fwd", "rmsnorm_bwd", 2 }, { "attention_fwd", "attention_bwd", 3 }, { "swiglu_fwd", "swiglu_bwd", 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct op *bwd = conformance_op(pairs[i].bwd);

        for (int s = 0; s < MAX_SHAPES && bwd->shapes[s].why; s++)
            if (bwd->shapes[s].small)
                assert_int_equal(check_pair(pairs[i].fwd, pairs[i].bwd, bwd->shapes[s].d, bwd->shapes[s].d),
                                 pairs[i].n_gradients);
    }
}

static void cross_entropy_gradient_is_the_slope(void **state)
{
    const struct op *fwd = conformance_op("cross_entropy"), *grad = conformance_op("cross_entropy_grad");
    const size_t d[MAX_DIMS] = { 3, 7 };
    double weight[3];
    struct arrays f, g;

    (void)state;
    for (int i = 0; i < 3; i++)
        weight[i] = 0.37f; /* the dscale of the list */
    open_arrays(&f, fwd, d);
    open_arrays(&g, grad, d);
    grad->right(g.a, g.index, d);
    check_slope(fwd, &f, d, weight, 1, g.a[1], "cross_entropy");
    close_arrays(&f);
    close_arrays(&g);
}

/* A rotation's transpose is its inverse: w . rope(x) = rope_inverse(w) . x, so the inverse is the gradient. */
static void rope_inverse_is_the_transpose(void **state)
{
    const struct op *op = conformance_op("rope");
    const size_t turn[MAX_DIMS] = { 6, 3, 2, 2, 10, 0 }, back[MAX_DIMS] = { 6, 3, 2, 2, 10, 1 };
    struct arrays x, w;
    double left = 0, right = 0;
    size_t n;
    double *kept;

    (void)state;
    open_arrays(&x, op, turn);
    open_arrays(&w, op, back);
    n = x.specs[0].n;
    for (size_t i = 0; i < n; i++)
        w.a[0][i] = dlc_rng_normal(9, 9, i);
    kept = dlc_calloc(2 * n, sizeof(double));
    memcpy(kept, x.a[0], n * sizeof(double));
    memcpy(kept + n, w.a[0], n * sizeof(double));
    op->right(x.a, x.index, turn);
    op->right(w.a, w.index, back);
    for (size_t i = 0; i < n; i++) {
        left += kept[n + i] * x.a[0][i];
        right += w.a[0][i] * kept[i];
    }
    assert_true(fabs(left - right) < 1e-12 * n);
    assert_true(fabs(left) > 0.01); /* not the comparison of two zeros */
    dlc_free(kept);
    close_arrays(&x);
    close_arrays(&w);
}

/* ---- values that the list does not hold ---- */

/* Runs `check` on every instruction set of this machine. */
static void on_every_set(void (*check)(dlc_backend *be))
{
    for (int isa = DLC_ISA_REF; isa <= (int)dlc_cpu_best_isa(); isa++) {
        dlc_backend *be;

        assert_int_equal(dlc_backend_create(&be, dlc_cpu_isa_name((dlc_isa)isa), 2), DLC_OK);
        check(be);
        dlc_backend_destroy(be);
    }
}

/* The range in steps of about 1/300, and the edges. */
static void check_exp(dlc_backend *be)
{
    enum { N = 60000 };
    dlc_exp_fn *fn = dlc_cpu_of(be)->kernels.exp;
    float *x = dlc_alloc(N * sizeof *x), *y = dlc_alloc(N * sizeof *y), edges[8], got[8];
    double worst = 0;

    for (int i = 0; i < N; i++)
        x[i] = (float)(-110 + 200.0 * i / N + 1e-3 * dlc_rng_uniform(5, 5, (uint64_t)i));
    fn(y, x, N);
    for (int i = 0; i < N; i++) {
        double right = exp(x[i]), error = fabs(y[i] - right) / right;

        if (x[i] > 88.7228f)
            assert_true(isinf(y[i]));
        else if (x[i] < -87.3f) /* below the smallest normal number: an absolute bound */
            assert_true(fabs(y[i] - right) <= 3e-45);
        else
            worst = error > worst ? error : worst;
    }
    if (!(worst < 1.2e-7))
        fail_msg("%s: relative error of exp %.3g, promised 1.2e-7", be->isa, worst);
    memcpy(edges, (float[]){ 0, -0.f, INFINITY, -INFINITY, NAN, 88.72f, -1000, 1000 }, sizeof edges);
    fn(got, edges, 8);
    assert_true(got[0] == 1 && got[1] == 1 && isinf(got[2]) && got[3] == 0 && isnan(got[4]));
    assert_true(isfinite(got[5]) && got[6] == 0 && isinf(got[7]));
    dlc_free(x);
    dlc_free(y);
}

static void exp_keeps_its_bound(void **state)
{
    (void)state;
    on_every_set(check_exp);
}

/* Each place of a NaN or an infinity must be seen: in whole vectors and in the tail. */
static void check_non_finite(dlc_backend *be)
{
    enum { N = 45 };
    float x[N], logits[N], loss;
    const float bad[] = { NAN, INFINITY, -INFINITY };

    for (int i = 0; i < N; i++) {
        for (int j = 0; j < 3; j++) {
            for (int k = 0; k < N; k++)
                x[k] = logits[k] = 0.25f;
            x[i] = bad[j];
            assert_false(isfinite(be->ops->sum_squares(be, x, N)));
            if (j == 2)
                continue; /* a logit of -infinity is a probability of 0 */
            logits[i] = bad[j];
            be->ops->cross_entropy(be, &loss, logits, NULL, &(int32_t){ 3 }, 1, N, 1);
            if (isfinite(loss))
                fail_msg("%s: logit %d is %g and the loss %g", be->isa, i, bad[j], loss);
        }
    }
}

static void non_finite_values_are_seen(void **state)
{
    (void)state;
    on_every_set(check_non_finite);
}

/* Scores of some hundreds overflow without the running maximum; probabilities then are 0 and 1. */
static void check_large_scores(dlc_backend *be)
{
    enum { T = 130, D = 8 };
    static float q[T * D], k[T * D], v[T * D], y[T * D], lse[T], dy[T * D], dq[T * D], dk[T * D], dv[T * D];
    const struct dlc_attention shape = { 1, T, 1, 1, D, D, D, D, DLC_F32 };

    for (int t = 0; t < T; t++) {
        for (int d = 0; d < D; d++) {
            q[t * D + d] = d == 0 ? 300 : 0;
            k[t * D + d] = d == 0 ? (float)(t % 7) : 0; /* keys with t % 7 = 6 win */
            v[t * D + d] = (float)(t % 7);
            dy[t * D + d] = 1;
        }
    }
    be->ops->attention_fwd(be, y, lse, q, k, v, &shape);
    be->ops->attention_bwd(be, dq, dk, dv, dy, q, k, v, y, lse, &shape);
    for (int t = 0; t < T; t++) {
        float largest = t < 6 ? (float)t : 6;

        assert_true(fabsf(y[t * D + 3] - largest) < 1e-5f);
        assert_true(isfinite(lse[t]) && isfinite(dq[t * D]) && isfinite(dk[t * D]) && isfinite(dv[t * D]));
    }
}

static void attention_survives_large_scores(void **state)
{
    (void)state;
    on_every_set(check_large_scores);
}

/* Exact ties, the largest finite value, infinities, NaN, subnormals. */
static void check_bf16(dlc_backend *be)
{
    static const struct {
        uint32_t f32;
        uint16_t bf16;
        const char *why;
    } cases[] = {
        { 0x3f808000, 0x3f80, "tie to even, down" },
        { 0x3f818000, 0x3f82, "tie to even, up" },
        { 0x3f808001, 0x3f81, "just above a tie" },
        { 0x7f7fffff, 0x7f80, "rounds up to infinity" },
        { 0x7f800000, 0x7f80, "infinity" },
        { 0xff800000, 0xff80, "minus infinity" },
        { 0x7f800001, 0x7fc0, "NaN with only low bits" },
        { 0x7fffffff, 0x7fff, "NaN that would round over" },
        { 0x80000000, 0x8000, "minus zero" },
        { 0x00008001, 0x0001, "subnormal" },
    };
    enum { N = sizeof cases / sizeof *cases, TIMES = 5 };
    float x[N * TIMES];
    dlc_bf16 y[N * TIMES];

    for (int i = 0; i < N * TIMES; i++)
        memcpy(&x[i], &cases[i % N].f32, 4);
    be->ops->to_bf16(be, y, x, N * TIMES);
    for (int i = 0; i < N * TIMES; i++)
        if (y[i] != cases[i % N].bf16)
            fail_msg("%s: %08x (%s) became %04x, should be %04x", be->isa, (unsigned)cases[i % N].f32, cases[i % N].why,
                     (unsigned)y[i], (unsigned)cases[i % N].bf16);
}

static void bf16_rounds_to_even(void **state)
{
    (void)state;
    on_every_set(check_bf16);
}

static void same_rounded(const dlc_bf16 *got, const float *x, size_t n, const dlc_backend *be, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != dlc_f32_to_bf16(x[i]))
            fail_msg("%s: %s[%zu] is %04x in bf16 and %.9g in f32", be->isa, what, i, (unsigned)got[i], x[i]);
}

/* Also where no f32 is left to be compared with: every value in bf16 is the one in f32, rounded. */
static void check_rounded_outputs(dlc_backend *be)
{
    enum { R = 70, F = 66, H = 3, D = 22, N = R * F };
    const struct dlc_ops *ops = be->ops;
    static float x[4][N], y[3][N], g[F], lse[R * H];
    static dlc_bf16 y16[3][N];
    struct dlc_norm norm = dlc_norm_rows(R, F, 1e-5f);
    struct dlc_attention shape = { 1, R, H, H, D, F, F, F, DLC_F32 };

    for (int i = 0; i < 4; i++)
        for (int j = 0; j < N; j++)
            x[i][j] = (float)dlc_rng_normal(6, (uint64_t)i, (uint64_t)j);
    for (int i = 0; i < F; i++)
        g[i] = 1 + 0.01f * (float)i;
    ops->rmsnorm_fwd(be, y[0], NULL, x[0], g, &norm);
    norm.y_type = shape.y_type = DLC_BF16;
    ops->rmsnorm_fwd(be, y16[0], NULL, x[0], g, &norm);
    same_rounded(y16[0], y[0], N, be, "rmsnorm_fwd");
    ops->swiglu_fwd(be, y[0], x[0], x[1], R, F, F, DLC_F32);
    ops->swiglu_fwd(be, y16[0], x[0], x[1], R, F, F, DLC_BF16);
    same_rounded(y16[0], y[0], N, be, "swiglu_fwd");
    ops->swiglu_bwd(be, y[0], y[1], y[2], x[0], x[1], x[2], R, F, F, DLC_F32);
    ops->swiglu_bwd(be, y16[0], y16[1], y16[2], x[0], x[1], x[2], R, F, F, DLC_BF16);
    for (int i = 0; i < 3; i++)
        same_rounded(y16[i], y[i], N, be, "swiglu_bwd");
    ops->attention_fwd(be, y16[0], lse, x[0], x[1], x[2], &shape);
    shape.y_type = DLC_F32;
    ops->attention_fwd(be, y[0], lse, x[0], x[1], x[2], &shape);
    same_rounded(y16[0], y[0], N, be, "attention_fwd");
}

static void bf16_outputs_are_rounded_ones(void **state)
{
    (void)state;
    on_every_set(check_rounded_outputs);
}

static void check_empty(dlc_backend *be)
{
    float y[2] = { 5, 6 }, x = 1;

    assert_true(be->ops->sum_squares(be, NULL, 0) == 0);
    be->ops->add(be, y, NULL, 0);
    be->ops->matmul_nt(be, y, &x, &x, 1, 2, 0, DLC_F32, 1);
    assert_true(y[0] == 5 && y[1] == 6);
    be->ops->matmul_nt(be, y, &x, &x, 1, 2, 0, DLC_F32, 0);
    assert_true(y[0] == 0 && y[1] == 0);
    be->ops->matmul_tn(be, y, &x, &x, 0, 2, 1, DLC_F32, 1);
    assert_true(y[0] == 0 && y[1] == 0);
}

static void nothing_to_do_is_done(void **state)
{
    (void)state;
    on_every_set(check_empty);
}

/* ---- the device ---- */

static void unknown_or_missing_sets_are_usage_errors(void **state)
{
    dlc_backend *be;

    (void)state;
    assert_int_equal(dlc_backend_create(&be, "sse9", 1), DLC_EUSAGE);
    assert_null(be);
    assert_non_null(strstr(dlc_err_text(), "sse9"));
    if (dlc_cpu_best_isa() < DLC_ISA_AVX512BF16) {
        assert_int_equal(dlc_backend_create(&be, "avx512bf16", 1), DLC_EUSAGE);
        assert_non_null(strstr(dlc_err_text(), dlc_cpu_isa_name(dlc_cpu_best_isa())));
    }
    assert_int_equal(dlc_cpu_create(&be, "auto", "fastblas", 1), DLC_EUSAGE);
    assert_non_null(strstr(dlc_err_text(), "fastblas"));
    assert_int_equal(dlc_backend_create(&be, "ref", 1), DLC_OK);
    assert_string_equal(be->isa, "ref");
    assert_string_equal(be->matmul, "ref");
    assert_int_equal(be->ops->abi, DLC_BACKEND_ABI);
    dlc_backend_destroy(be);
    dlc_backend_destroy(NULL);
}

static void creation_survives_every_failed_allocation(void **state)
{
    dlc_backend *be;
    int n = 0;
    dlc_err err;

    (void)state;
    do {
        dlc_mem_fail_at((uint64_t)++n);
        err = dlc_backend_create(&be, "auto", 2);
        dlc_mem_fail_at(0);
        assert_true(err == DLC_OK || err == DLC_ENOMEM);
    } while (err != DLC_OK);
    assert_true(n > 3);
    dlc_backend_destroy(be);
}

static void memory_is_zeroed_and_aligned(void **state)
{
    dlc_backend *be;
    void *p;

    (void)state;
    assert_int_equal(dlc_backend_create(&be, "auto", 1), DLC_OK);
    assert_int_equal(dlc_backend_alloc(be, &p, 100000, "test"), DLC_OK);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(((char *)p)[i], 0);
    dlc_backend_free(be, p, 100000);
    assert_int_equal(dlc_backend_alloc(be, &p, (size_t)1 << 62, "a test"), DLC_ENOMEM);
    assert_non_null(strstr(dlc_err_text(), "a test"));
    dlc_backend_destroy(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(cross_entropy_gradient_is_the_slope),
        cmocka_unit_test(rope_inverse_is_the_transpose),
        cmocka_unit_test(exp_keeps_its_bound),
        cmocka_unit_test(non_finite_values_are_seen),
        cmocka_unit_test(attention_survives_large_scores),
        cmocka_unit_test(bf16_rounds_to_even),
        cmocka_unit_test(bf16_outputs_are_rounded_ones),
        cmocka_unit_test(nothing_to_do_is_done),
        cmocka_unit_test(unknown_or_missing_sets_are_usage_errors),
        cmocka_unit_test(creation_survives_every_failed_allocation),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
    };

    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
