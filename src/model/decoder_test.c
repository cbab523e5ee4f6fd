/* The decoder: the same logits as the forward pass at every position, however the tokens are fed and wherever the
 * weights are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/decoder_internal.h"
#include "model/reference_test.h"

enum { T_MAX = 290, V_MAX = 40 };

static const struct {
    struct dlc_model_config c;
    int T;
    const char *why;
} shapes[] = {
    { { .vocab_size = 7, .n_layers = 1, .d_model = 4, .n_heads = 1, .n_kv_heads = 1, .head_dim = 2, .d_ffn = 3 },
      1,
      "one position" },
    { { .vocab_size = 17, .n_layers = 2, .d_model = 8, .n_heads = 2, .n_kv_heads = 2, .head_dim = 4, .d_ffn = 24 },
      20,
      "untied" },
    { { .vocab_size = 40,
        .n_layers = 2,
        .d_model = 12,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 6,
        .d_ffn = 10,
        .tie_embeddings = true },
      140,
      "tied, heads share; many rows" },
    { { .vocab_size = 13,
        .n_layers = 2,
        .d_model = 10,
        .n_heads = 4,
        .n_kv_heads = 1,
        .head_dim = 4,
        .d_ffn = 21,
        .qk_norm = true,
        .tie_embeddings = true },
      40,
      "QK-norm, all heads share, odd sizes" },
    { { .vocab_size = 19,
        .n_layers = 1,
        .d_model = 33,
        .n_heads = 2,
        .n_kv_heads = 2,
        .head_dim = 18,
        .d_ffn = 35,
        .qk_norm = true },
      T_MAX,
      "vectors and tails, more than a chunk, shares of positions" },
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

struct fixture {
    struct dlc_model_config config;
    dlc_backend *be;
    dlc_model *m;
    size_t N, V;
    int T;
    int32_t tokens[T_MAX];
};

/* Matrices that bf16 can write: what is left between the precisions is the arithmetic. */
static void open_model(struct fixture *f, size_t shape, dlc_precision precision, int n_threads)
{
    struct dlc_model_options options = { .precision = precision, .max_batch = 1, .max_seq = shapes[shape].T };
    float *p;

    *f = (struct fixture){ .config = shapes[shape].c, .T = shapes[shape].T };
    f->V = (size_t)f->config.vocab_size;
    f->config.context = f->T;
    f->config.rope_theta = 100;
    f->config.norm_eps = 1e-3;
    f->config.init_std = 0.02;
    f->N = dlc_model_n_params(&f->config);
    assert_int_equal(dlc_backend_create(&f->be, "auto", n_threads), DLC_OK);
    assert_int_equal(dlc_model_create(&f->m, &f->config, &options, f->be), DLC_OK);
    p = dlc_model_params(f->m);
    for (struct dlc__walk w = { .config = &f->config }; dlc__walk_next(&w);)
        for (size_t i = w.offset; i < w.offset + w.n_values; i++)
            p[i] = w.n_dims == 2 ? dlc_bf16_to_f32(dlc_f32_to_bf16((float)(0.2 * dlc_rng_normal(1, 2, i))))
                                 : 1 + (float)(0.2 * dlc_rng_normal(1, 2, i));
    dlc_model_params_changed(f->m);
    for (int i = 0; i < f->T; i++)
        f->tokens[i] = (int32_t)(dlc_rng_u64(3, 4, (uint64_t)i) % f->V);
}

static void close_model(struct fixture *f)
{
    dlc_model_destroy(f->m);
    dlc_backend_destroy(f->be);
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double d = 0;

    for (size_t i = 0; i < n; i++)
        d = fmax(d, isnan(a[i]) ? INFINITY : fabs((double)a[i] - b[i]));
    return d;
}

static float *zeros(size_t n)
{
    float *x = dlc_calloc(n, sizeof *x);

    assert_non_null(x);
    return x;
}

static double rms(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum / (double)n);
}

/* How far the worst of thousands of logits may be off, of their root mean square: in bf16 ten steps of its 8 bits. */
static const double limits[] = { [DLC_PRECISION_F32] = 1e-5, [DLC_PRECISION_BF16] = 10 * 0x1p-8 };

/* Logits [T][V] a step at a time. */
static float *steps(struct fixture *f, dlc_decoder *dec)
{
    float *all = zeros((size_t)f->T * f->V);
    uint64_t before = dlc_mem_n_allocs();

    for (int t = 0; t < f->T; t++) {
        const float *row;

        assert_int_equal(dlc_decoder_position(dec), t);
        row = dlc_decoder_step(dec, f->tokens[t]);
        assert_non_null(row);
        memcpy(all + (size_t)t * f->V, row, f->V * sizeof *row);
    }
    assert_null(dlc_decoder_step(dec, 0)); /* full */
    assert_int_equal(dlc_decoder_position(dec), f->T);
    assert_int_equal(dlc_mem_n_allocs(), before);
    return all;
}

static double *logits_in_double(struct fixture *f)
{
    double *P = dlc_alloc(f->N * sizeof *P), *logits = dlc_alloc((size_t)f->T * f->V * sizeof *logits);

    assert_true(P && logits);
    for (size_t i = 0; i < f->N; i++)
        P[i] = dlc_model_params(f->m)[i];
    reference_loss(logits, &f->config, P, f->tokens, f->tokens, 1, f->T);
    dlc_free(P);
    return logits;
}

/* In bf16 what is lost is in the cached keys and values: the matrices of these models are such that nothing else is. */
static void steps_match_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        for (int precision = 0; precision < 2; precision++) {
            struct fixture f;
            dlc_decoder *dec;
            float *got;
            double *right;

            open_model(&f, i, (dlc_precision)precision, 2);
            right = logits_in_double(&f);
            assert_int_equal(dlc_decoder_create(&dec, f.m, f.T), DLC_OK);
            for (int pass = 0; pass < 2; pass++) { /* the second after a reset */
                double worst = 0;

                got = steps(&f, dec);
                for (size_t j = 0; j < (size_t)f.T * f.V; j++)
                    worst = fmax(worst, isnan(got[j]) ? INFINITY : fabs(got[j] - right[j]));
                worst /= rms(got, (size_t)f.T * f.V);
                if (!(worst <= limits[precision]))
                    fail_msg("%s, precision %d, pass %d: off by %g of the rms", shapes[i].why, precision, pass, worst);
                dlc_decoder_reset(dec);
                dlc_free(got);
            }
            dlc_free(right);
            dlc_decoder_destroy(dec);
            close_model(&f);
        }
    }
}

/* Two prefills that meet anywhere, then steps. In bf16 products of many rows round their inputs, as training does. */
static void prefill_matches_steps(void **state)
{
    static const int cuts[][2] = { { 1, 0 },  { 2, 1 },   { 8, 0 },    { 9, 0 },  { 5, 12 },
                                   { 17, 3 }, { 128, 1 }, { 20, 250 }, { 257, 9 } };

    (void)state;
    for (size_t i = 0; i < N_SHAPES * 2; i++) {
        int precision = (int)(i % 2);
        struct fixture f;
        dlc_decoder *dec;
        float *expected;
        double scale;

        open_model(&f, i / 2, (dlc_precision)precision, 2);
        assert_int_equal(dlc_decoder_create(&dec, f.m, f.T), DLC_OK);
        expected = steps(&f, dec);
        scale = rms(expected, (size_t)f.T * f.V);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts && cuts[c][0] + cuts[c][1] <= f.T; c++) {
            int at = cuts[c][0];
            uint64_t before = dlc_mem_n_allocs();
            const float *row;
            double d;

            dlc_decoder_reset(dec);
            row = dlc_decoder_prefill(dec, f.tokens, (size_t)at);
            if (cuts[c][1] > 0)
                row = dlc_decoder_prefill(dec, f.tokens + at, (size_t)cuts[c][1]);
            at += cuts[c][1];
            for (;; at++) {
                assert_int_equal(dlc_decoder_position(dec), at);
                d = largest_difference(row, expected + (size_t)(at - 1) * f.V, f.V) / scale;
                if (!(d <= limits[precision]))
                    fail_msg("%s, precision %d, %d and %d at once: logits after %d off by %g of the rms",
                             shapes[i / 2].why, precision, cuts[c][0], cuts[c][1], at, d);
                if (at == f.T)
                    break;
                row = dlc_decoder_step(dec, f.tokens[at]);
            }
            assert_int_equal(dlc_mem_n_allocs(), before);
        }
        dlc_free(expected);
        dlc_decoder_destroy(dec);
        close_model(&f);
    }
}

static void what_does_not_fit_is_not_fed(void **state)
{
    struct fixture f;
    dlc_decoder *dec;

    (void)state;
    open_model(&f, 2, DLC_PRECISION_F32, 1);
    assert_int_equal(dlc_decoder_create(&dec, f.m, 5), DLC_OK);
    assert_null(dlc_decoder_prefill(dec, f.tokens, 6));
    assert_int_equal(dlc_decoder_position(dec), 0);
    assert_non_null(dlc_decoder_prefill(dec, f.tokens, 3));
    assert_null(dlc_decoder_prefill(dec, f.tokens, 3));
    assert_int_equal(dlc_decoder_position(dec), 3);
    assert_non_null(dlc_decoder_prefill(dec, f.tokens, 2));
    assert_null(dlc_decoder_step(dec, 1));
    dlc_decoder_destroy(dec);
    close_model(&f);
}

struct source {
    const struct fixture *f;
    size_t fail_at; /* place of a tensor; none: SIZE_MAX */
};

static dlc_err read_tensor(float *out, void *arg, size_t index)
{
    const struct source *s = arg;
    struct dlc__walk w = { .config = &s->f->config };

    if (index == s->fail_at)
        return dlc_fail(DLC_EIO, "no tensor %zu", index);
    while (dlc__walk_next(&w) && w.index < index)
        ;
    memcpy(out, dlc_model_params(s->f->m) + w.offset, w.n_values * sizeof *out);
    return DLC_OK;
}

static void alone_is_the_same_as_beside_a_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES * 2; i++) {
        dlc_precision precision = (dlc_precision)(i % 2);
        struct fixture f;
        dlc_decoder *beside, *alone;
        float *a, *b;

        open_model(&f, i / 2, precision, 2);
        assert_int_equal(dlc_decoder_create(&beside, f.m, f.T), DLC_OK);
        assert_int_equal(dlc_decoder_create_alone(&alone, &f.config, precision, f.be, f.T), DLC_OK);
        assert_int_equal(dlc_decoder_load(alone, read_tensor, &(struct source){ &f, 3 }), DLC_EIO);
        assert_int_equal(dlc_decoder_load(alone, read_tensor, &(struct source){ &f, SIZE_MAX }), DLC_OK);
        a = steps(&f, beside);
        b = steps(&f, alone);
        assert_memory_equal(a, b, (size_t)f.T * f.V * sizeof *a); /* the matrices are such that bf16 loses nothing */
        dlc_free(a);
        dlc_free(b);
        dlc_decoder_destroy(alone);
        dlc_decoder_destroy(beside);
        close_model(&f);
    }
}

/* Every operation of a step promises the same bits for all numbers of threads. */
static void threads_do_not_show(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        float *logits[2];

        for (int n = 0; n < 2; n++) {
            struct fixture f;
            dlc_decoder *dec;

            open_model(&f, i, DLC_PRECISION_BF16, n == 0 ? 1 : 3);
            assert_int_equal(dlc_decoder_create(&dec, f.m, f.T), DLC_OK);
            logits[n] = steps(&f, dec);
            dlc_decoder_destroy(dec);
            close_model(&f);
        }
        assert_memory_equal(logits[0], logits[1], (size_t)shapes[i].T * (size_t)shapes[i].c.vocab_size * sizeof(float));
        dlc_free(logits[0]);
        dlc_free(logits[1]);
    }
}

static void memory_is_as_planned(void **state)
{
    struct dlc_model_config c = { .vocab_size = 50257 };
    struct dlc_decoder_memory f32, bf16;
    struct fixture f;
    dlc_decoder *dec;

    (void)state;
    assert_int_equal(dlc_model_preset(&c, "124m"), DLC_OK);
    dlc_decoder_memory_plan(&f32, &c, DLC_PRECISION_F32, 1024);
    dlc_decoder_memory_plan(&bf16, &c, DLC_PRECISION_BF16, 1024);
    assert_true(bf16.weights < f32.weights * 0.51 && bf16.cache * 2 == f32.cache);
    assert_true(bf16.scratch < bf16.weights / 16);
    assert_int_equal(f32.cache, (size_t)2 * 12 * 1024 * 768 * 4);
    assert_int_equal(bf16.loading, (size_t)50257 * 768 * 4);
    assert_int_equal(f32.loading, 0);

    open_model(&f, 3, DLC_PRECISION_F32, 1);
    assert_int_equal(dlc_decoder_create_alone(&dec, &f.config, DLC_PRECISION_BF16, f.be, 30), DLC_OK);
    dlc_decoder_memory_plan(&bf16, &f.config, DLC_PRECISION_BF16, 30);
    assert_int_equal(dec->weights.block_bytes, bf16.weights);
    assert_int_equal(dec->cache_bytes, bf16.cache);
    assert_int_equal(dec->scratch_bytes, bf16.scratch);
    dlc_decoder_destroy(dec);
    close_model(&f);
}

static void failed_allocations_leave_nothing(void **state)
{
    struct fixture f;
    dlc_decoder *dec = NULL;
    dlc_err err = DLC_ENOMEM;

    (void)state;
    open_model(&f, 1, DLC_PRECISION_F32, 1);
    for (uint64_t n = 1; err != DLC_OK; n++) {
        assert_true(n < 50);
        dlc_mem_fail_at(n);
        err = dlc_decoder_create_alone(&dec, &f.config, DLC_PRECISION_BF16, f.be, 4);
        assert_true(err == DLC_OK ? dec != NULL : err == DLC_ENOMEM && dec == NULL);
    }
    dlc_mem_fail_at(1);
    assert_int_equal(dlc_decoder_load(dec, read_tensor, &(struct source){ &f, SIZE_MAX }), DLC_ENOMEM);
    dlc_mem_fail_at(0);
    dlc_decoder_destroy(dec);
    assert_int_equal(dlc_decoder_create_alone(&dec, &f.config, DLC_PRECISION_F32, f.be, 0), DLC_EUSAGE);
    assert_null(dec);
    close_model(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_match_the_reference),
        cmocka_unit_test(prefill_matches_steps),
        cmocka_unit_test(what_does_not_fit_is_not_fed),
        cmocka_unit_test(alone_is_the_same_as_beside_a_model),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };

    return cmocka_run_group_tests_name("decoder", tests, NULL, NULL);
}
