/* A whole model against an independent one in double precision, and what every caller relies on: gradients by finite
 * differences, accumulation, same bits, no allocation, the decoder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/model_internal.h"
#include "model/reference_test.h"

#define MAX_TOKENS 64

/* A model with lively parameters (so that no nonlinearity is near its linear range) and random tokens. At 0.3
 * instead of 0.2 some gradients already move by 6e-6 of themselves when each parameter moves by half a unit in its last
 * place. */
struct fixture {
    struct dlc_model_config config;
    dlc_backend *be;
    dlc_model *m;
    size_t N;
    int B, T;
    int32_t tokens[MAX_TOKENS], targets[MAX_TOKENS];
};

static void randomise(struct fixture *f)
{
    float *p = dlc_model_params(f->m);

    for (size_t i = 0; i < f->N; i++)
        p[i] = (float)(0.2 * dlc_rng_normal(1, 2, i));
    for (struct dlc__walk w = { .config = &f->config }; dlc__walk_next(&w);)
        for (size_t i = 0; w.n_dims == 1 && i < w.n_values; i++)
            p[w.offset + i] += 1;
    dlc_model_params_changed(f->m);
    for (int i = 0; i < f->B * f->T; i++) {
        f->tokens[i] = (int32_t)(dlc_rng_u64(3, 4, (uint64_t)i) % (uint64_t)f->config.vocab_size);
        f->targets[i] = (int32_t)(dlc_rng_u64(3, 5, (uint64_t)i) % (uint64_t)f->config.vocab_size);
    }
}

static void open_model(struct fixture *f, const struct dlc_model_config *config, int B, int T,
                       struct dlc_model_options options, const char *isa, int n_threads)
{
    *f = (struct fixture){ .config = *config, .B = B, .T = T, .N = dlc_model_n_params(config) };
    assert_true(B * T <= MAX_TOKENS);
    f->config.context = T;
    f->config.rope_theta = 100; /* makes the slow pairs turn within T */
    f->config.norm_eps = 1e-3;  /* large enough to be noticed when it is forgotten */
    f->config.init_std = 0.02;
    options.max_batch = options.max_batch ? options.max_batch : B;
    options.max_seq = options.max_seq ? options.max_seq : T;
    assert_int_equal(dlc_backend_create(&f->be, isa, n_threads), DLC_OK);
    assert_int_equal(dlc_model_create(&f->m, &f->config, &options, f->be), DLC_OK);
    assert_int_equal(dlc_model_size(f->m), f->N);
    randomise(f);
}

static void close_model(struct fixture *f)
{
    dlc_model_destroy(f->m);
    dlc_backend_destroy(f->be);
}

static const struct dlc_model_options training = { .training = true };

static const struct {
    struct dlc_model_config c;
    int B, T;
    const char *why;
} shapes[] = {
    { { .vocab_size = 7, .n_layers = 1, .d_model = 4, .n_heads = 1, .n_kv_heads = 1, .head_dim = 2, .d_ffn = 3 },
      1,
      1,
      "one position" },
    { { .vocab_size = 17, .n_layers = 2, .d_model = 8, .n_heads = 2, .n_kv_heads = 2, .head_dim = 2, .d_ffn = 24 },
      2,
      5,
      "untied; the MLP needs the most scratch" },
    { { .vocab_size = 17,
        .n_layers = 2,
        .d_model = 12,
        .n_heads = 3,
        .n_kv_heads = 3,
        .head_dim = 4,
        .d_ffn = 10,
        .tie_embeddings = true },
      2,
      5,
      "tied: two paths into one matrix" },
    { { .vocab_size = 16,
        .n_layers = 1,
        .d_model = 16,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 4,
        .d_ffn = 16,
        .tie_embeddings = true },
      3,
      4,
      "two heads share keys and values" },
    { { .vocab_size = 11, .n_layers = 1, .d_model = 8, .n_heads = 4, .n_kv_heads = 1, .head_dim = 6, .d_ffn = 9 },
      1,
      9,
      "all heads share, H*D is not C" },
    { { .vocab_size = 13,
        .n_layers = 2,
        .d_model = 8,
        .n_heads = 2,
        .n_kv_heads = 2,
        .head_dim = 6,
        .d_ffn = 8,
        .qk_norm = true },
      2,
      6,
      "QK-norm" },
    { { .vocab_size = 13,
        .n_layers = 2,
        .d_model = 10,
        .n_heads = 4,
        .n_kv_heads = 2,
        .head_dim = 4,
        .d_ffn = 21,
        .qk_norm = true,
        .tie_embeddings = true },
      2,
      7,
      "QK-norm, shared, tied, odd" },
    { { .vocab_size = 19,
        .n_layers = 1,
        .d_model = 17,
        .n_heads = 1,
        .n_kv_heads = 1,
        .head_dim = 18,
        .d_ffn = 19,
        .tie_embeddings = true },
      1,
      9,
      "a vector and a tail everywhere" },
};
#define N_SHAPES (sizeof shapes / sizeof *shapes)

/* The gradient of 0.5 * loss by central differences in double; the caller frees it. */
static double *finite_differences(const struct fixture *f, double *P)
{
    const double h = 1e-5;
    double *d = dlc_alloc(f->N * sizeof *d);

    assert_non_null(d);
    for (size_t i = 0; i < f->N; i++) {
        double p = P[i];

        P[i] = p + h;
        d[i] = reference_loss(NULL, &f->config, P, f->tokens, f->targets, f->B, f->T);
        P[i] = p - h;
        d[i] -= reference_loss(NULL, &f->config, P, f->tokens, f->targets, f->B, f->T);
        d[i] *= 0.5 / (2 * h);
        P[i] = p;
    }
    return d;
}

/* Relative to the largest of each tensor. */
static void check_gradient(const struct fixture *f, const double *expected, const char *why)
{
    const float *grads = dlc_model_grads(f->m);

    for (struct dlc__walk w = { .config = &f->config }; dlc__walk_next(&w);) {
        double worst = 0, largest = 0;

        for (size_t i = w.offset; i < w.offset + w.n_values; i++) {
            largest = fmax(largest, fabs(expected[i]));
            worst = fmax(worst, isnan(grads[i]) ? INFINITY : fabs(expected[i] - grads[i]));
        }
        if (!(worst <= 1e-5 * largest + 1e-7))
            fail_msg("%s, %s: gradient of tensor %zu (role %d, layer %d): off by %g of %g", why, f->be->isa, w.index,
                     (int)w.role, w.layer, worst, largest);
    }
}

static double *params_in_double(const struct fixture *f)
{
    double *P = dlc_alloc(f->N * sizeof *P);

    assert_non_null(P);
    for (size_t i = 0; i < f->N; i++)
        P[i] = dlc_model_params(f->m)[i];
    return P;
}

static void gradients_match_finite_differences(void **state)
{
    static const struct {
        const char *isa;
        int n_threads;
    } backends[] = { { "ref", 1 }, { "auto", 2 } };

    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        double *expected_grads = NULL;

        for (size_t b = 0; b < 2; b++) {
            struct fixture f;
            double *P, loss, expected;

            open_model(&f, &shapes[i].c, shapes[i].B, shapes[i].T, training, backends[b].isa, backends[b].n_threads);
            P = params_in_double(&f);
            if (!expected_grads)
                expected_grads = finite_differences(&f, P);
            loss = dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 0.5f);
            expected = reference_loss(NULL, &f.config, P, f.tokens, f.targets, f.B, f.T);
            if (!(fabs(loss - expected) <= 1e-6 * expected))
                fail_msg("%s, %s: loss %.9g, reference %.9g", shapes[i].why, f.be->isa, loss, expected);
            check_gradient(&f, expected_grads, shapes[i].why);
            dlc_free(P);
            close_model(&f);
        }
        dlc_free(expected_grads);
    }
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double d = 0;

    for (size_t i = 0; i < n; i++)
        d = fmax(d, fabs((double)a[i] - b[i]));
    return d;
}

static float *copy(const float *x, size_t n)
{
    float *c = dlc_alloc(n * sizeof *c);

    assert_non_null(c);
    memcpy(c, x, n * sizeof *c);
    return c;
}

static void two_micro_batches_equal_one_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        int B = 4, T = shapes[i].T < 8 ? shapes[i].T : 8;
        struct fixture f;
        double whole, parts;
        float *grads;

        open_model(&f, &shapes[i].c, B, T, training, "auto", 1);
        whole = dlc_model_loss_grad(f.m, f.tokens, f.targets, B, T, 1.0f / (float)(B * T));
        grads = copy(dlc_model_grads(f.m), f.N);
        dlc_model_zero_grads(f.m);
        parts = dlc_model_loss_grad(f.m, f.tokens, f.targets, 1, T, 1.0f / (float)(B * T));
        parts += dlc_model_loss_grad(f.m, f.tokens + T, f.targets + T, 3, T, 1.0f / (float)(B * T));
        assert_true(fabs(whole - parts) <= 1e-6 * whole);
        assert_true(largest_difference(dlc_model_grads(f.m), grads, f.N) <= 1e-6);
        dlc_free(grads);
        close_model(&f);
    }
}

/* Logits are made for some rows at a time; how many must not matter. */
static void chunks_of_the_head_do_not_show(void **state)
{
    (void)state;
    for (size_t chunk = 1; chunk <= 14; chunk += 3) {
        struct fixture f;
        double loss;
        float *grads;

        open_model(&f, &shapes[6].c, 2, 7, training, "auto", 1);
        assert_int_equal(f.m->chunk_rows, 14);
        loss = dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 1);
        grads = copy(dlc_model_grads(f.m), f.N);
        dlc_model_zero_grads(f.m);
        f.m->chunk_rows = chunk;
        assert_true(fabs(dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 1) - loss) <= 1e-6 * loss);
        assert_true(largest_difference(dlc_model_grads(f.m), grads, f.N) <= 2e-5);
        dlc_free(grads);
        close_model(&f);
    }
}

static void same_inputs_give_the_same_bits(void **state)
{
    static const dlc_precision precisions[] = { DLC_PRECISION_F32, DLC_PRECISION_BF16 };

    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        for (size_t p = 0; p < 2; p++) {
            struct dlc_model_options options = { .training = true, .precision = precisions[p] }, forward = options;
            struct fixture f, g;
            double loss;

            forward.training = false;
            open_model(&f, &shapes[i].c, shapes[i].B, shapes[i].T, options, "auto", 2);
            open_model(&g, &shapes[i].c, shapes[i].B, shapes[i].T, options, "auto", 2);
            loss = dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 1);
            /* Work in between must leave no trace. */
            dlc_model_loss_grad(g.m, g.targets, g.tokens, g.B, g.T, 3);
            dlc_model_zero_grads(g.m);
            assert_true(dlc_model_loss_grad(g.m, g.tokens, g.targets, g.B, g.T, 1) == loss);
            assert_memory_equal(dlc_model_grads(f.m), dlc_model_grads(g.m), f.N * sizeof(float));
            assert_true(dlc_model_loss(g.m, g.tokens, g.targets, g.B, g.T) == loss);
            close_model(&g);
            open_model(&g, &shapes[i].c, shapes[i].B, shapes[i].T, forward, "auto", 2);
            assert_null(dlc_model_grads(g.m));
            assert_true(dlc_model_loss(g.m, g.tokens, g.targets, g.B, g.T) == loss);
            close_model(&g);
            close_model(&f);
        }
    }
}

static void scale_multiplies_the_gradient(void **state)
{
    struct fixture f;
    float *grads;

    (void)state;
    open_model(&f, &shapes[1].c, 2, 5, training, "auto", 1);
    dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 1);
    grads = copy(dlc_model_grads(f.m), f.N);
    dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 0); /* adds nothing */
    assert_memory_equal(grads, dlc_model_grads(f.m), f.N * sizeof *grads);
    dlc_model_zero_grads(f.m);
    dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 0.25f);
    for (size_t i = 0; i < f.N; i++)
        grads[i] *= 0.25f; /* a power of two: exact */
    assert_memory_equal(grads, dlc_model_grads(f.m), f.N * sizeof *grads);
    dlc_free(grads);
    close_model(&f);
}

static void a_smaller_batch_than_planned_is_the_same(void **state)
{
    struct dlc_model_options roomy = { .training = true, .max_batch = 5, .max_seq = 12 };
    struct fixture f, g;

    (void)state;
    open_model(&f, &shapes[6].c, 2, 7, training, "auto", 1);
    open_model(&g, &shapes[6].c, 2, 7, roomy, "auto", 1);
    assert_true(dlc_model_loss_grad(f.m, f.tokens, f.targets, 2, 7, 1) ==
                dlc_model_loss_grad(g.m, f.tokens, f.targets, 2, 7, 1));
    assert_memory_equal(dlc_model_grads(f.m), dlc_model_grads(g.m), f.N * sizeof(float));
    close_model(&f);
    close_model(&g);
}

static void a_step_allocates_nothing(void **state)
{
    (void)state;
    for (int precision = 0; precision < 2; precision++) {
        struct dlc_model_options options = { .training = true, .precision = (dlc_precision)precision };
        struct fixture f;
        uint64_t before;
        float logits[7 * 13];

        open_model(&f, &shapes[6].c, 2, 7, options, "auto", 2);
        before = dlc_mem_n_allocs();
        dlc_model_zero_grads(f.m);
        dlc_model_loss_grad(f.m, f.tokens, f.targets, 2, 7, 1);
        dlc_model_loss(f.m, f.tokens, f.targets, 2, 7);
        dlc_model_params_changed(f.m);
        dlc_model_logits(f.m, logits, f.tokens, 7);
        assert_int_equal(dlc_mem_n_allocs(), before);
        close_model(&f);
    }
}

static void non_finite_parameters_show_in_the_loss(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    (void)state;
    for (struct dlc__walk w = { .config = &shapes[6].c }; dlc__walk_next(&w);) {
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            struct fixture f;
            double loss, evaluated;

            open_model(&f, &shapes[6].c, 2, 7, training, "auto", 1);
            for (size_t k = 0; k < w.n_values; k++)
                dlc_model_params(f.m)[w.offset + k] = bad[i];
            loss = dlc_model_loss_grad(f.m, f.tokens, f.targets, 2, 7, 1);
            evaluated = dlc_model_loss(f.m, f.tokens, f.targets, 2, 7);
            if (isfinite(loss) || isfinite(evaluated))
                fail_msg("tensor %zu all %g: loss %g", w.index, (double)bad[i], loss);
            close_model(&f);
        }
    }
}

static void bf16_is_close_and_different(void **state)
{
    (void)state;
    for (size_t i = 1; i < N_SHAPES; i++) {
        struct dlc_model_options bf16 = { .training = true, .precision = DLC_PRECISION_BF16 };
        struct fixture f, g;
        double a, b, dot = 0, ff = 0, gg = 0;

        open_model(&f, &shapes[i].c, shapes[i].B, shapes[i].T, training, "auto", 1);
        open_model(&g, &shapes[i].c, shapes[i].B, shapes[i].T, bf16, "auto", 1);
        a = dlc_model_loss_grad(f.m, f.tokens, f.targets, f.B, f.T, 1);
        b = dlc_model_loss_grad(g.m, f.tokens, f.targets, f.B, f.T, 1);
        for (size_t k = 0; k < f.N; k++) {
            double x = dlc_model_grads(f.m)[k], y = dlc_model_grads(g.m)[k];

            dot += x * y;
            ff += x * x;
            gg += y * y;
        }
        print_message("%s: loss %.6f in f32, %.6f in bf16; cosine of gradients %.6f\n", shapes[i].why, a, b,
                      dot / sqrt(ff * gg));
        assert_true(a != b && fabs(a - b) <= 0.01 * a);
        assert_true(dot / sqrt(ff * gg) > 0.999 && fabs(sqrt(ff / gg) - 1) < 0.02);
        close_model(&f);
        close_model(&g);
    }
}

/* In bf16 the products read copies: they follow the masters when told, and only then. */
static void params_changed_renews_the_copies(void **state)
{
    struct dlc_model_options bf16 = { .precision = DLC_PRECISION_BF16 };
    struct fixture f;
    double before, after;
    size_t q;

    (void)state;
    open_model(&f, &shapes[1].c, 2, 5, bf16, "auto", 1);
    q = f.m->layer_at[1].at[DLC__Q];
    before = dlc_model_loss(f.m, f.tokens, f.targets, 2, 5);
    for (size_t i = 0; i < 8; i++)
        dlc_model_params(f.m)[q + i] = 1;
    dlc_model_params_changed(f.m);
    after = dlc_model_loss(f.m, f.tokens, f.targets, 2, 5);
    assert_true(after != before);
    close_model(&f);
}

static void logits_and_decoder_match_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        int T = shapes[i].T, V = shapes[i].c.vocab_size;
        struct dlc_model_options forward = { 0 };
        double *P, expected[9 * 19];
        float logits[9 * 19];
        struct fixture f;
        dlc_decoder *dec;

        open_model(&f, &shapes[i].c, 1, T, forward, "auto", 2);
        P = params_in_double(&f);
        reference_loss(expected, &f.config, P, f.tokens, f.targets, 1, T);
        dlc_model_logits(f.m, logits, f.tokens, T);
        assert_int_equal(dlc_decoder_create(&dec, f.m, T), DLC_OK);
        for (int pass = 0; pass < 2; pass++) { /* the second after a reset */
            uint64_t before = dlc_mem_n_allocs();

            for (int t = 0; t < T; t++) {
                const float *row;

                assert_int_equal(dlc_decoder_position(dec), t);
                row = dlc_decoder_step(dec, f.tokens[t]);
                assert_non_null(row);
                for (int v = 0; v < V; v++)
                    if (!(fabs(row[v] - expected[t * V + v]) <= 1e-5) || !(fabs(row[v] - logits[t * V + v]) <= 1e-5))
                        fail_msg("%s, position %d, token %d: decoder %.8g, forward pass %.8g, reference %.8g",
                                 shapes[i].why, t, v, (double)row[v], (double)logits[t * V + v], expected[t * V + v]);
            }
            assert_null(dlc_decoder_step(dec, 0)); /* full */
            assert_int_equal(dlc_mem_n_allocs(), before);
            dlc_decoder_reset(dec);
        }
        dlc_decoder_destroy(dec);
        dlc_free(P);
        close_model(&f);
    }
}

/* Layers made again are the same to the last bit, and take less. */
static void recomputed_layers_change_no_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * N_SHAPES; i++) {
        struct dlc_model_options options = { .training = true, .precision = (dlc_precision)(i % 2) };
        struct fixture kept, again;
        double loss[2];

        open_model(&kept, &shapes[i / 2].c, shapes[i / 2].B, shapes[i / 2].T, options, "auto", 1);
        options.recompute_layers = true;
        open_model(&again, &shapes[i / 2].c, shapes[i / 2].B, shapes[i / 2].T, options, "auto", 1);
        for (int step = 0; step < 2; step++) {
            loss[0] = dlc_model_loss_grad(kept.m, kept.tokens, kept.targets, kept.B, kept.T, 0.5f);
            loss[1] = dlc_model_loss_grad(again.m, again.tokens, again.targets, again.B, again.T, 0.5f);
            if (loss[0] != loss[1] ||
                memcmp(dlc_model_grads(kept.m), dlc_model_grads(again.m), kept.N * sizeof(float)) != 0)
                fail_msg("%s, bf16 %d, step %d: not the same bits", shapes[i / 2].why, (int)(i % 2), step);
        }
        if (kept.config.n_layers > 1)
            assert_true(again.m->blocks[DLC__BLOCK_ACTIVATIONS].size_bytes <
                        kept.m->blocks[DLC__BLOCK_ACTIVATIONS].size_bytes);
        close_model(&kept);
        close_model(&again);
    }
}

static void within(const struct dlc__block *b, const void *p, size_t size_bytes, const char *what, const char *why)
{
    const char *at = p;

    if (at < b->base || at + size_bytes > b->base + b->size_bytes)
        fail_msg("%s: %s is not inside its block", why, what);
}

/* The last arrays of every block; whichever half of the backward pass needs more decides the size of the scratch. */
static void arrays_stand_inside_their_blocks(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * N_SHAPES; i++) {
        const char *why = shapes[i / 2].why;
        struct dlc_model_options options = { .training = true, .precision = (dlc_precision)(i % 2) };
        struct fixture f;
        struct dlc__dims d;
        size_t R;

        open_model(&f, &shapes[i / 2].c, shapes[i / 2].B, shapes[i / 2].T, options, "auto", 1);
        d = dlc__dims(&f.config);
        R = (size_t)f.B * (size_t)f.T;
        within(&f.m->blocks[DLC__BLOCK_PARAMS], f.m->params, f.N * 4, "params", why);
        within(&f.m->blocks[DLC__BLOCK_GRADS], f.m->grads, f.N * 4, "grads", why);
        within(&f.m->blocks[DLC__BLOCK_ACTIVATIONS], f.m->s.x_last, R * d.C * 4, "x_last", why);
        within(&f.m->blocks[DLC__BLOCK_SCRATCH], f.m->s.dact, R * d.F * 4, "dact", why);
        within(&f.m->blocks[DLC__BLOCK_SCRATCH], f.m->s.dqkv, R * d.QKV * 4, "dqkv", why);
        within(&f.m->blocks[DLC__BLOCK_SCRATCH], f.m->s.dqk, R * d.QK * 4, "dqk", why);
        if (i % 2) {
            within(&f.m->blocks[DLC__BLOCK_PARAMS], f.m->params16, f.N * 2, "params16", why);
            within(&f.m->blocks[DLC__BLOCK_SCRATCH], f.m->s.dgate_up16, R * 2 * d.F * 2, "dgate_up16", why);
            within(&f.m->blocks[DLC__BLOCK_SCRATCH], f.m->s.dqkv16, R * d.QKV * 2, "dqkv16", why);
        }
        close_model(&f);
    }
}

static void failed_allocations_leave_nothing(void **state)
{
    struct fixture f;
    dlc_model *m = NULL;
    dlc_decoder *dec = NULL;
    struct dlc_model_options options = { .max_batch = 2, .max_seq = 4, .training = true };
    dlc_err err = DLC_ENOMEM;

    (void)state;
    open_model(&f, &shapes[1].c, 2, 5, training, "auto", 1);
    for (uint64_t n = 1; err != DLC_OK; n++) {
        assert_true(n < 50);
        dlc_mem_fail_at(n);
        err = dlc_model_create(&m, &f.config, &options, f.be);
        assert_true(err == DLC_OK ? m != NULL : err == DLC_ENOMEM && m == NULL);
    }
    dlc_mem_fail_at(0);
    dlc_model_destroy(m);
    err = DLC_ENOMEM;
    for (uint64_t n = 1; err != DLC_OK; n++) {
        assert_true(n < 50);
        dlc_mem_fail_at(n);
        err = dlc_decoder_create(&dec, f.m, 4);
        assert_true(err == DLC_OK ? dec != NULL : err == DLC_ENOMEM && dec == NULL);
    }
    dlc_mem_fail_at(0);
    dlc_decoder_destroy(dec);
    assert_int_equal(dlc_decoder_create(&dec, f.m, 0), DLC_EUSAGE);
    dlc_decoder_destroy(NULL);
    dlc_model_destroy(NULL);
    close_model(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(two_micro_batches_equal_one_batch),
        cmocka_unit_test(chunks_of_the_head_do_not_show),
        cmocka_unit_test(same_inputs_give_the_same_bits),
        cmocka_unit_test(scale_multiplies_the_gradient),
        cmocka_unit_test(a_smaller_batch_than_planned_is_the_same),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(non_finite_parameters_show_in_the_loss),
        cmocka_unit_test(bf16_is_close_and_different),
        cmocka_unit_test(params_changed_renews_the_copies),
        cmocka_unit_test(logits_and_decoder_match_the_reference),
        cmocka_unit_test(recomputed_layers_change_no_bit),
        cmocka_unit_test(arrays_stand_inside_their_blocks),
        cmocka_unit_test(failed_allocations_leave_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
