/* Schedules, AdamW, and whether a model learns with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "optim/optim.h"

static void rates_at_the_edges(void **state)
{
    static const struct dlc_schedule cosine = { DLC_SCHEDULE_COSINE, 2, 0.1, 0, 10, 110 },
                                     linear = { DLC_SCHEDULE_LINEAR, 2, 0.1, 0, 10, 110 },
                                     wsd = { DLC_SCHEDULE_WSD, 2, 0.1, 0.25, 10, 100 },
                                     constant = { DLC_SCHEDULE_CONSTANT, 2, 0.1, 0, 10, 110 },
                                     no_warmup = { DLC_SCHEDULE_COSINE, 2, 0, 0, 0, 4 },
                                     all_warmup = { DLC_SCHEDULE_COSINE, 2, 0.1, 0, 10, 10 },
                                     longer_warmup = { DLC_SCHEDULE_LINEAR, 2, 0.1, 0, 10, 4 },
                                     all_decay = { DLC_SCHEDULE_WSD, 2, 0.1, 1, 10, 110 },
                                     one_step = { DLC_SCHEDULE_COSINE, 2, 0.1, 0, 0, 1 };
    static const struct {
        const struct dlc_schedule *s;
        int64_t step;
        double lr;
        const char *why;
    } rows[] = {
        { &cosine, 0, 0.2, "the first step already learns" },
        { &cosine, 8, 1.8, "warming up" },
        { &cosine, 9, 2, "last of the warm-up: the peak" },
        { &cosine, 10, 2, "decay starts from the peak" },
        { &cosine, 60, 0.2 + 1.8 * 0.5, "half way: cos is 0" },
        { &cosine, 85, 0.2 + 1.8 * 0.5 * (1 - 0.70710678118654752), "three quarters" },
        { &cosine, 109, 0.2 + 1.8 * 0.5 * (1 - 0.99950656036573156), "last step, as in llm.c" },
        { &cosine, 110, 0.2, "after the end" },
        { &cosine, 1000000, 0.2, "long after" },
        { &linear, 9, 2, "peak" },
        { &linear, 35, 0.2 + 1.8 * 0.75, "a quarter down" },
        { &linear, 109, 0.2 + 1.8 * 0.01, "last step is above the end" },
        { &linear, 110, 0.2, "after the end" },
        { &wsd, 10, 2, "stable" },
        { &wsd, 75, 2, "stable until the last quarter" },
        { &wsd, 76, 0.2 + 1.8 * (1 - 0.2), "first step down: 1 - sqrt(1/25)" },
        { &wsd, 84, 0.2 + 1.8 * (1 - 0.6), "1 - sqrt(9/25)" },
        { &wsd, 100, 0.2, "after the end" },
        { &constant, 0, 0.2, "warms up as well" },
        { &constant, 50, 2, "" },
        { &constant, 1000, 2, "" },
        { &no_warmup, 0, 2, "no warm-up: at the peak at once" },
        { &no_warmup, 2, 1, "" },
        { &no_warmup, 4, 0, "" },
        { &all_warmup, 9, 2, "no steps left to fall" },
        { &all_warmup, 10, 2, "" },
        { &longer_warmup, 3, 0.8, "stopped within its warm-up" },
        { &longer_warmup, 8, 1, "stays after the end" },
        { &all_decay, 10, 2, "never into the warm-up" },
        { &all_decay, 35, 0.2 + 1.8 * 0.5, "1 - sqrt(1/4)" },
        { &one_step, 0, 2, "a single step learns at the peak" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double lr = dlc_schedule_lr(rows[i].s, rows[i].step);

        if (!(fabs(lr - rows[i].lr) <= 1e-12))
            fail_msg("row %zu (%s), step %lld: %.15g instead of %.15g", i, rows[i].why, (long long)rows[i].step, lr,
                     rows[i].lr);
    }
}

static void rates_never_rise_after_the_warmup(void **state)
{
    (void)state;
    for (int kind = DLC_SCHEDULE_COSINE; kind <= DLC_SCHEDULE_CONSTANT; kind++) {
        struct dlc_schedule s = { (dlc_schedule_kind)kind, 1e-3, 0.1, 0.2, 7, 101 };

        for (int64_t step = 0; step < 120; step++) {
            double now = dlc_schedule_lr(&s, step), after = dlc_schedule_lr(&s, step + 1);

            assert_true(step + 1 < s.warmup_steps ? after > now : after <= now);
            assert_true(after >= 1e-4 && after <= 1e-3);
        }
    }
}

/* A matrix, a norm, a matrix: neighbours with different decay. */
static const struct dlc_param three[] = {
    { .name = "a", .n_dims = 2, .dims = { 2, 2 }, .offset = 0, .n_values = 4, .decay = true },
    { .name = "b", .n_dims = 1, .dims = { 3 }, .offset = 4, .n_values = 3, .decay = false },
    { .name = "c", .n_dims = 2, .dims = { 2, 1 }, .offset = 7, .n_values = 2, .decay = true },
};

static dlc_backend *backend(void)
{
    dlc_backend *be;

    assert_int_equal(dlc_backend_create(&be, "auto", 1), DLC_OK);
    return be;
}

static void close_to(const char *what, const float *x, const double *expected, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(x[i] - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
            fail_msg("%s[%zu]: %.9g instead of %.9g", what, i, (double)x[i], expected[i]);
}

/* p = 1, g = 2, lr 0.1, decay 0.5: p - 0.05 - 0.1 * (0.2 / 0.1) / sqrt(0.2 / 0.05). */
static void adamw_of_one_value_by_hand(void **state)
{
    static const struct dlc_param one = { .n_dims = 2, .dims = { 1, 1 }, .n_values = 1, .decay = true },
                                  plain = { .n_dims = 1, .dims = { 1 }, .n_values = 1, .decay = false };
    struct dlc_adamw_config config = { 0.9, 0.95, 1e-12, 0.5, 0 };
    dlc_backend *be = backend();
    float p = 1, m = 0, v = 0, g = 2;

    (void)state;
    assert_true(dlc_adamw_step(be, &p, &m, &v, &g, &one, 1, &config, 0.1, 1) == 2);
    close_to("p", &p, &(double){ 0.85 }, 1, 1e-6);
    close_to("m", &m, &(double){ 0.2 }, 1, 1e-6);
    close_to("v", &v, &(double){ 0.2 }, 1, 1e-6);
    assert_true(g == 2);
    p = 1, m = 0, v = 0;
    dlc_adamw_step(be, &p, &m, &v, &g, &plain, 1, &config, 0.1, 1);
    close_to("p without decay", &p, &(double){ 0.9 }, 1, 1e-6);
    dlc_backend_destroy(be);
}

/* Numbers of torch 2.13 in float64: torch.optim.AdamW (betas 0.9, 0.95; eps 1e-3; decay 0.1 on the two matrices) after
 * torch.nn.utils.clip_grad_norm_(1.0), learning rate 0.01 * step. Parameters sin(1 + i); gradient of step s
 * cos(0.7 i + s), times 4 in step 1 and 0.05 later, so that only the first is clipped. */
static void adamw_matches_torch(void **state)
{
    static const double norms[] = { 8.488372193177064, 0.10591446976131123, 0.10615338077244164 };
    static const double expected[3][9] = {
        { 0.830668636, 0.918226096, 0.150950192, -0.746066887, -0.948951032, -0.269515165, 0.647031688, 0.978391716,
          0.401728649 },
        { 0.816778535, 0.935735827, 0.166098948, -0.730153326, -0.935607350, -0.261923710, 0.630596628, 0.961571310,
          0.386979517 },
        { 0.803982786, 0.961767775, 0.184566876, -0.711837048, -0.922378768, -0.261966418, 0.608915502, 0.941345936,
          0.370983938 },
    };
    static const double m_after[] = { 0.0138006391,   -0.0132268009, -0.0340334697, -0.0388336659, -0.0253697823,
                                      2.59063676e-05, 0.0254094109,  0.0388424724,  0.0340073122 };
    static const double v_after[] = { 0.00306831829,  0.000353318022, 0.00557142983, 0.0100602452, 0.00636803565,
                                      0.000624111652, 0.00236376451,  0.00869905615, 0.00911298614 };
    struct dlc_adamw_config config = { 0.9, 0.95, 1e-3, 0.1, 1 };
    dlc_backend *be = backend();
    float p[9], m[9] = { 0 }, v[9] = { 0 }, g[9];

    (void)state;
    for (int i = 0; i < 9; i++)
        p[i] = (float)sin(1.0 + i);
    for (int s = 1; s <= 3; s++) {
        double norm;

        for (int i = 0; i < 9; i++)
            g[i] = (float)(cos(0.7 * i + s) * (s == 1 ? 4 : 0.05));
        norm = dlc_adamw_step(be, p, m, v, g, three, 3, &config, 0.01 * s, s);
        assert_true(fabs(norm / norms[s - 1] - 1) < 1e-6);
        close_to("p", p, expected[s - 1], 9, 5e-7);
    }
    close_to("m", m, m_after, 9, 1e-8);
    close_to("v", v, v_after, 9, 1e-8);
    dlc_backend_destroy(be);
}

static void a_bad_gradient_changes_nothing(void **state)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY, 3e38f };
    struct dlc_adamw_config config = { 0.9, 0.95, 1e-8, 0.1, 1 };
    dlc_backend *be = backend();

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        float p[9], m[9], v[9], g[9], expected[9];
        double norm;

        for (int k = 0; k < 9; k++)
            p[k] = m[k] = v[k] = expected[k] = g[k] = (float)k + 1;
        g[5] = bad[i];
        norm = dlc_adamw_step(be, p, m, v, g, three, 3, &config, 0.1, 3);
        if (isfinite(bad[i])) { /* its square fits in double: a norm like any other */
            assert_true(isfinite(norm) && p[0] != expected[0]);
            for (int k = 0; k < 9; k++)
                assert_true(isfinite(p[k]) && isfinite(m[k]) && isfinite(v[k]));
            continue;
        }
        assert_false(isfinite(norm));
        assert_memory_equal(p, expected, sizeof p);
        assert_memory_equal(m, expected, sizeof m);
        assert_memory_equal(v, expected, sizeof v);
    }
    dlc_backend_destroy(be);
}

enum { BATCH = 2, SEQ = 8, STEPS = 200, STEPS_AGAIN = 30 };

/* Learns two sequences by heart; gives the loss per token of each of n_steps, and the parameters after STEPS_AGAIN. */
static void train(double *losses, float *params, int n_steps, const struct dlc_model_config *c, dlc_precision precision)
{
    struct dlc_model_options options = { .max_batch = BATCH, .max_seq = SEQ, .training = true, .precision = precision };
    struct dlc_adamw_config adamw = { 0.9, 0.95, 1e-8, 0.1, 1 };
    struct dlc_schedule schedule = { DLC_SCHEDULE_COSINE, 1e-2, 0.1, 0, 10, STEPS };
    size_t N = dlc_model_n_params(c), n_table;
    float *m = dlc_calloc(N, sizeof *m), *v = dlc_calloc(N, sizeof *v);
    int32_t text[BATCH * SEQ + 1];
    struct dlc_param *table;
    dlc_backend *be = backend();
    dlc_model *model;
    uint64_t allocs;

    assert_true(m && v);
    for (int i = 0; i <= BATCH * SEQ; i++)
        text[i] = (7 * i + i * i / 5) % c->vocab_size; /* the two sequences begin differently */
    assert_int_equal(dlc_model_params_table(&table, &n_table, c), DLC_OK);
    assert_int_equal(dlc_model_create(&model, c, &options, be), DLC_OK);
    dlc_model_init_params(dlc_model_params(model), c, 1);
    dlc_model_params_changed(model);
    allocs = dlc_mem_n_allocs();
    for (int s = 0; s < n_steps; s++) {
        dlc_model_zero_grads(model);
        losses[s] = dlc_model_loss_grad(model, text, text + 1, BATCH, SEQ, 1.0f / (BATCH * SEQ)) / (BATCH * SEQ);
        dlc_adamw_step(be, dlc_model_params(model), m, v, dlc_model_grads(model), table, n_table, &adamw,
                       dlc_schedule_lr(&schedule, s), s + 1);
        dlc_model_params_changed(model);
        if (s + 1 == STEPS_AGAIN)
            memcpy(params, dlc_model_params(model), N * sizeof *params);
    }
    assert_int_equal(dlc_mem_n_allocs(), allocs);
    dlc_model_destroy(model);
    dlc_backend_destroy(be);
    dlc_free(table);
    dlc_free(m);
    dlc_free(v);
}

static void a_model_learns_two_sequences_by_heart(void **state)
{
    struct dlc_model_config c = { .vocab_size = 29, .n_layers = 2, .d_model = 24, .n_heads = 2, .n_kv_heads = 1,
                                  .head_dim = 16, .d_ffn = 40, .context = SEQ, .rope_theta = 1e4, .norm_eps = 1e-5,
                                  .tie_embeddings = true, .init_std = 0.02 };
    size_t bytes = dlc_model_n_params(&c) * sizeof(float);
    float *a = dlc_alloc(bytes), *b = dlc_alloc(bytes);

    (void)state;
    assert_true(a && b);
    for (int precision = 0; precision < 2; precision++) {
        double losses[STEPS], again[STEPS_AGAIN];

        train(losses, a, STEPS, &c, (dlc_precision)precision);
        print_message("%s: loss %.4f, after 50 steps %.4f, at the end %.5f\n", precision ? "bf16" : "f32", losses[0],
                      losses[50], losses[STEPS - 1]);
        assert_true(fabs(losses[0] - log(29)) < 0.1); /* knows nothing yet */
        assert_true(losses[STEPS - 1] < 0.02);
        train(again, b, STEPS_AGAIN, &c, (dlc_precision)precision);
        assert_memory_equal(losses, again, sizeof again);
        assert_memory_equal(a, b, bytes);
    }
    dlc_free(a);
    dlc_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_at_the_edges),
        cmocka_unit_test(rates_never_rise_after_the_warmup),
        cmocka_unit_test(adamw_of_one_value_by_hand),
        cmocka_unit_test(adamw_matches_torch),
        cmocka_unit_test(a_bad_gradient_changes_nothing),
        cmocka_unit_test(a_model_learns_two_sequences_by_heart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
