#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/timed.h"
#include "optim/optim.h"

enum { B = 2, T = 12, N_ROWS = B * T, N_POSITIONS = 5 };

static dlc_backend *be;

static int make_backend(void **state)
{
    (void)state;
    return dlc_backend_create(&be, "auto", 2) == DLC_OK ? 0 : -1;
}

static int destroy_backend(void **state)
{
    (void)state;
    dlc_backend_destroy(be);
    return 0;
}

typedef void any_fn(void);

/* The table is a number and pointers to functions. */
static void every_operation_is_wrapped(void **state)
{
    struct dlc_timed t = { .n_rows = 0 };
    const struct dlc_ops *inner = be->ops;
    size_t n = 0;

    (void)state;
    dlc_timed_begin(&t, be);
    assert_ptr_equal(be->ops, &t.ops);
    for (size_t at = sizeof(any_fn *); at < sizeof t.ops; at += sizeof(any_fn *), n++) {
        any_fn *timed, *real;

        memcpy(&timed, (const char *)&t.ops + at, sizeof timed);
        memcpy(&real, (const char *)inner + at, sizeof real);
        if (timed == NULL || timed == real)
            fail_msg("entry %zu of dlc_ops is not timed: it has no row in bench/ops_list.h", n);
    }
    dlc_timed_end(&t);
    assert_ptr_equal(be->ops, inner);
    assert_int_equal(t.ops.abi, inner->abi);
    assert_true(n >= 17);
}

static const struct dlc_model_config shape = {
    .vocab_size = 48,
    .n_layers = 2,
    .d_model = 32,
    .n_heads = 4,
    .n_kv_heads = 2,
    .head_dim = 8,
    .d_ffn = 40,
    .context = T,
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .qk_norm = true,
    .init_std = 0.3,
};

struct trace {
    double losses[3], norms[3];
    float *params; /* [N] after the last step */
    float logits[N_POSITIONS][48];
    size_t n_params, n_allocs;
};

static void decode(struct trace *out, dlc_model *model)
{
    dlc_decoder *decoder;

    assert_int_equal(dlc_decoder_create(&decoder, model, N_POSITIONS), DLC_OK);
    for (int i = 0; i < N_POSITIONS; i++)
        memcpy(out->logits[i], dlc_decoder_step(decoder, i + 1), sizeof out->logits[i]);
    dlc_decoder_destroy(decoder);
}

/* Only a decoder with weights of its own looks embeddings up in bf16. Its weights are zero. */
static void decode_alone(dlc_precision precision)
{
    dlc_decoder *decoder;

    assert_int_equal(dlc_decoder_create_alone(&decoder, &shape, precision, be, N_POSITIONS), DLC_OK);
    assert_true(dlc_decoder_step(decoder, 1)[0] == 0);
    dlc_decoder_destroy(decoder);
}

/* Some steps and some generated tokens, timed when `t` is given. */
static void train(struct trace *out, dlc_precision precision, struct dlc_timed *t)
{
    struct dlc_model_options options = { .max_batch = B, .max_seq = T, .training = true, .precision = precision };
    struct dlc_adamw_config adamw = { 0.9, 0.99, 1e-8, 0.1, 1 };
    int32_t tokens[N_ROWS + 1];
    struct dlc_param *table;
    dlc_model *model;
    size_t n_table;
    uint64_t n_allocs;
    float *moments;

    for (int i = 0; i <= N_ROWS; i++)
        tokens[i] = (int32_t)(dlc_rng_u64(1, 2, (uint64_t)i) % 48);
    assert_int_equal(dlc_model_create(&model, &shape, &options, be), DLC_OK);
    assert_int_equal(dlc_model_params_table(&table, &n_table, &shape), DLC_OK);
    out->n_params = dlc_model_size(model);
    moments = dlc_calloc(2 * out->n_params, sizeof *moments);
    out->params = dlc_calloc(out->n_params, sizeof *out->params);
    assert_true(moments && out->params);
    dlc_model_init_params(dlc_model_params(model), &shape, 3);
    dlc_model_params_changed(model);
    n_allocs = dlc_mem_n_allocs();
    if (t)
        dlc_timed_begin(t, be);
    for (int s = 0; s < 3; s++) {
        dlc_model_zero_grads(model);
        out->losses[s] = dlc_model_loss_grad(model, tokens, tokens + 1, B, T, 1.0f / N_ROWS);
        out->norms[s] = dlc_adamw_step(be, dlc_model_params(model), moments, moments + out->n_params,
                                       dlc_model_grads(model), table, n_table, &adamw, 1e-2, s + 1);
        dlc_model_params_changed(model);
    }
    out->n_allocs = (size_t)(dlc_mem_n_allocs() - n_allocs);
    decode(out, model);
    decode_alone(precision);
    if (t)
        dlc_timed_end(t);
    memcpy(out->params, dlc_model_params(model), out->n_params * sizeof *out->params);
    dlc_model_destroy(model);
    dlc_free(table);
    dlc_free(moments);
}

static const struct {
    dlc_precision precision;
    const char *why;
} precisions[] = { { DLC_PRECISION_F32, "f32" }, { DLC_PRECISION_BF16, "bf16" } };

static void results_have_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct dlc_timed t = { .n_rows = 0 };
        struct trace plain, timed;

        train(&plain, precisions[i].precision, NULL);
        train(&timed, precisions[i].precision, &t);
        for (int s = 0; s < 3; s++)
            if (plain.losses[s] != timed.losses[s] || plain.norms[s] != timed.norms[s])
                fail_msg("%s, step %d: loss %.17g and timed %.17g, norm %.17g and %.17g", precisions[i].why, s,
                         plain.losses[s], timed.losses[s], plain.norms[s], timed.norms[s]);
        assert_memory_equal(plain.params, timed.params, plain.n_params * sizeof(float));
        assert_memory_equal(plain.logits, timed.logits, sizeof plain.logits);
        assert_true(plain.losses[0] != plain.losses[2]); /* it trained */
        assert_int_equal(timed.n_allocs, 0);
        dlc_free(plain.params);
        dlc_free(timed.params);
    }
}

static const struct dlc_timed_row *find_row(const struct dlc_timed *t, const char *op, const char *shape_text)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        char text[160];

        dlc_timed_shape(text, sizeof text, &t->rows[i]);
        if (strcmp(dlc_timed_op_name(t->rows[i].op), op) == 0 && strcmp(text, shape_text) == 0)
            return &t->rows[i];
    }
    fail_msg("%s with %s is not booked", op, shape_text);
    return NULL;
}

/* A forwarding function that no training step and no decoder reaches would be tested by nothing here. */
static void every_operation_is_reached(void **state)
{
    struct dlc_timed t = { .n_rows = 0 };
    struct trace trace;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        train(&trace, precisions[i].precision, &t);
        dlc_free(trace.params);
    }
    for (int op = 0; op < (int)((sizeof t.ops - sizeof(any_fn *)) / sizeof(any_fn *)); op++) {
        size_t i = 0;

        while (i < t.n_rows && t.rows[i].op != op)
            i++;
        if (i == t.n_rows)
            fail_msg("%s was never called", dlc_timed_op_name(op));
    }
}

static void what_was_called_is_booked(void **state)
{
    static float x[4096], y[4096];
    struct dlc_timed t = { .n_rows = 0 };
    const struct dlc_timed_row *row;
    double begin = dlc_now_s(), wall;

    (void)state;
    dlc_timed_begin(&t, be);
    for (int i = 0; i < 3; i++)
        be->ops->add(be, y, x, 4096);
    be->ops->add(be, y, x, 100);
    be->ops->matmul_nt(be, y, x, x, 8, 16, 32, DLC_F32, 0);
    be->ops->matmul_nt(be, y, x, x, 8, 16, 32, DLC_BF16, 0);
    assert_true(be->ops->sum_squares(be, x, 4096) == 0);
    dlc_timed_end(&t);
    wall = dlc_now_s() - begin;
    be->ops->add(be, y, x, 100); /* no longer booked */

    assert_int_equal(t.n_rows, 5);
    row = find_row(&t, "add", "n=4096");
    assert_int_equal(row->n_calls, 3);
    assert_int_equal(row->roof, DLC_ROOF_IN_PLACE);
    assert_true(row->amount == 3 * 4 * 4096);
    assert_true(row->best_s > 0 && 3 * row->best_s <= row->seconds && row->seconds <= wall);
    assert_int_equal(find_row(&t, "add", "n=100")->n_calls, 1);
    row = find_row(&t, "matmul_nt", "R=8 N=16 K=32");
    assert_int_equal(row->roof, DLC_ROOF_F32);
    assert_true(row->amount == 2 * 8 * 16 * 32);
    assert_int_equal(row[1].roof, DLC_ROOF_BF16); /* the same sizes in another format are another row */

    dlc_timed_clear(&t);
    assert_int_equal(t.n_rows, 5);
    row = find_row(&t, "add", "n=4096");
    assert_true(row->n_calls == 0 && row->seconds == 0 && row->best_s > 0);
}

static void too_many_shapes_are_left_out(void **state)
{
    static float x[2 * DLC_TIMED_MAX_ROWS], y[2 * DLC_TIMED_MAX_ROWS];
    struct dlc_timed t = { .n_rows = 0 };

    (void)state;
    dlc_timed_begin(&t, be);
    for (size_t n = 1; n <= 2 * DLC_TIMED_MAX_ROWS; n++)
        be->ops->add(be, y, x, n);
    dlc_timed_end(&t);
    assert_int_equal(t.n_rows, DLC_TIMED_MAX_ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_is_wrapped),   cmocka_unit_test(results_have_the_same_bits),
        cmocka_unit_test(every_operation_is_reached),   cmocka_unit_test(what_was_called_is_booked),
        cmocka_unit_test(too_many_shapes_are_left_out),
    };

    return cmocka_run_group_tests_name("timed", tests, make_backend, destroy_backend);
}
