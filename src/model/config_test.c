/* Shapes, the list of tensors, initial values and the announced memory: what needs no training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/model_internal.h"

static struct dlc_model_config preset(const char *name, int vocab_size)
{
    struct dlc_model_config c = { .vocab_size = vocab_size };

    assert_int_equal(dlc_model_preset(&c, name), DLC_OK);
    return c;
}

static void presets_are_known_shapes(void **state)
{
    static const struct {
        const char *name;
        int vocab_size;
        size_t n_params;
        const char *why;
    } rows[] = {
        { "nano", 2048, 529056, "half a million" },
        { "micro", 2048, 1115264, "" },
        { "mini", 4096, 2557632, "" },
        { "small", 4096, 4262144, "the shape that peers were measured with" },
        { "60m", 32000, 59299968, "the paper's name fits with tied embeddings" },
        { "124m", 50257, 123551232, "GPT-2's shape, less its biases and positions" },
        { "150m", 32000, 151181184, "as 60m" },
        { "400m", 32000, 388929024, "as 60m" },
    };
    size_t n = 0;

    (void)state;
    for (const char *const *name = dlc_model_preset_names(); *name; name++, n++) {
        struct dlc_model_config c = preset(*name, rows[n].vocab_size);
        size_t n_params = dlc_model_n_params(&c);

        assert_string_equal(*name, rows[n].name);
        print_message("%-6s %9zu parameters with a vocabulary of %d\n", *name, n_params, c.vocab_size);
        assert_int_equal(dlc_model_config_check(&c), DLC_OK);
        assert_int_equal(n_params, rows[n].n_params);
        assert_int_equal(c.vocab_size, rows[n].vocab_size);
        assert_true(c.head_dim >= 32 && c.d_model % 16 == 0 && c.d_ffn % 64 == 0);
    }
    assert_int_equal(n, sizeof rows / sizeof *rows);
}

static void unknown_preset_names_the_known(void **state)
{
    struct dlc_model_config c = { 0 };

    (void)state;
    assert_int_equal(dlc_model_preset(&c, "giant"), DLC_EUSAGE);
    assert_non_null(strstr(dlc_err_text(), "giant"));
    assert_non_null(strstr(dlc_err_text(), "124m"));
}

static void impossible_shapes_are_refused(void **state)
{
    static const struct {
        size_t offset; /* of the int field */
        int value;
        const char *text;
    } ints[] = {
        { offsetof(struct dlc_model_config, vocab_size), 0, "vocab_size is 0" },
        { offsetof(struct dlc_model_config, n_layers), -1, "layers is -1" },
        { offsetof(struct dlc_model_config, n_layers), INT32_MAX, "layers is 2147483647" },
        { offsetof(struct dlc_model_config, d_model), 0, "d_model is 0" },
        { offsetof(struct dlc_model_config, n_heads), 0, "heads is 0" },
        { offsetof(struct dlc_model_config, n_kv_heads), 0, "kv_heads is 0" },
        { offsetof(struct dlc_model_config, n_kv_heads), 2, "kv_heads 2 does not divide heads 3" },
        { offsetof(struct dlc_model_config, n_kv_heads), 6, "kv_heads 6 does not divide heads 3" },
        { offsetof(struct dlc_model_config, head_dim), 33, "head_dim 33 is odd" },
        { offsetof(struct dlc_model_config, d_ffn), 0, "d_ffn is 0" },
        { offsetof(struct dlc_model_config, context), 0, "context is 0" },
    };
    static const struct {
        size_t offset; /* of the double field */
        double value;
        const char *text;
    } doubles[] = {
        { offsetof(struct dlc_model_config, rope_theta), 0, "rope_theta is 0" },
        { offsetof(struct dlc_model_config, rope_theta), INFINITY, "rope_theta is inf" },
        { offsetof(struct dlc_model_config, norm_eps), 0, "norm_eps is 0" },
        { offsetof(struct dlc_model_config, norm_eps), NAN, "norm_eps is nan" },
        { offsetof(struct dlc_model_config, init_std), -0.02, "init_std is -0.02" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        struct dlc_model_config c = preset("nano", 2048);

        memcpy((char *)&c + ints[i].offset, &ints[i].value, sizeof ints[i].value);
        assert_int_equal(dlc_model_config_check(&c), DLC_EUSAGE);
        if (!strstr(dlc_err_text(), ints[i].text))
            fail_msg("\"%s\" is not in \"%s\"", ints[i].text, dlc_err_text());
    }
    for (size_t i = 0; i < sizeof doubles / sizeof *doubles; i++) {
        struct dlc_model_config c = preset("nano", 2048);

        memcpy((char *)&c + doubles[i].offset, &doubles[i].value, sizeof doubles[i].value);
        assert_int_equal(dlc_model_config_check(&c), DLC_EUSAGE);
        if (!strstr(dlc_err_text(), doubles[i].text))
            fail_msg("\"%s\" is not in \"%s\"", doubles[i].text, dlc_err_text());
    }
}

static void table_lists_every_value_once(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        struct dlc_model_config c = preset("nano", 2048);
        struct dlc_param *table;
        size_t n, offset = 0;

        c.tie_embeddings = variant & 1;
        c.qk_norm = variant & 2;
        assert_int_equal(dlc_model_params_table(&table, &n, &c), DLC_OK);
        assert_int_equal(n, 2 + (c.tie_embeddings ? 0 : 1) + c.n_layers * (c.qk_norm ? 11 : 9));
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(table[i].offset, offset);
            assert_int_equal(table[i].n_values, table[i].dims[0] * (table[i].n_dims == 2 ? table[i].dims[1] : 1));
            assert_int_equal(table[i].decay, table[i].n_dims == 2);
            offset += table[i].n_values;
        }
        assert_int_equal(offset, dlc_model_n_params(&c));
        dlc_free(table);
    }
}

static void names_are_those_of_hugging_face(void **state)
{
    static const struct {
        const char *name;
        size_t dims[2];
        int layer;
    } expected[] = {
        { "model.embed_tokens.weight", { 50, 12 }, -1 },
        { "model.layers.0.input_layernorm.weight", { 12 }, 0 },
        { "model.layers.0.self_attn.q_proj.weight", { 32, 12 }, 0 },
        { "model.layers.0.self_attn.k_proj.weight", { 16, 12 }, 0 },
        { "model.layers.0.self_attn.v_proj.weight", { 16, 12 }, 0 },
        { "model.layers.0.self_attn.o_proj.weight", { 12, 32 }, 0 },
        { "model.layers.0.self_attn.q_norm.weight", { 8 }, 0 },
        { "model.layers.0.self_attn.k_norm.weight", { 8 }, 0 },
        { "model.layers.0.post_attention_layernorm.weight", { 12 }, 0 },
        { "model.layers.0.mlp.gate_proj.weight", { 20, 12 }, 0 },
        { "model.layers.0.mlp.up_proj.weight", { 20, 12 }, 0 },
        { "model.layers.0.mlp.down_proj.weight", { 12, 20 }, 0 },
        { "model.norm.weight", { 12 }, 1 },
        { "lm_head.weight", { 50, 12 }, 1 },
    };
    struct dlc_model_config c = { .vocab_size = 50, .n_layers = 1, .d_model = 12, .n_heads = 4, .n_kv_heads = 2,
                                  .head_dim = 8, .d_ffn = 20, .context = 8, .rope_theta = 1e4, .norm_eps = 1e-5,
                                  .qk_norm = true, .init_std = 0.02 };
    struct dlc_param *table;
    size_t n;

    (void)state;
    assert_int_equal(dlc_model_params_table(&table, &n, &c), DLC_OK);
    assert_int_equal(n, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(table[i].name, expected[i].name);
        assert_int_equal(table[i].dims[0], expected[i].dims[0]);
        assert_int_equal(table[i].dims[1], expected[i].dims[1]);
        assert_int_equal(table[i].layer, expected[i].layer);
    }
    dlc_free(table);
    dlc_mem_fail_at(1);
    assert_int_equal(dlc_model_params_table(&table, &n, &c), DLC_ENOMEM);
    assert_null(table);
}

static void check_normal(const char *name, const float *x, size_t n, double std)
{
    double mean = 0, square = 0, fourth = 0, neighbours = 0;

    for (size_t i = 0; i < n; i++) {
        mean += x[i] / (double)n;
        square += (double)x[i] * x[i] / (double)n;
        fourth += (double)x[i] * x[i] * x[i] * x[i] / (double)n;
        neighbours += i ? (double)x[i] * x[i - 1] / (double)n : 0;
    }
    if (fabs(mean) > 5 * std / sqrt((double)n) || fabs(sqrt(square) / std - 1) > 4 / sqrt((double)n) ||
        fabs(fourth / (square * square) - 3) > 25 / sqrt((double)n) ||
        fabs(neighbours) > 5 * std * std / sqrt((double)n))
        fail_msg("%s: mean %g, standard deviation %g instead of %g, kurtosis %g, neighbours %g", name, mean,
                 sqrt(square), std, fourth / (square * square), neighbours);
}

static void initial_values_are_normal(void **state)
{
    struct dlc_model_config c = preset("nano", 2048);
    size_t n, N = dlc_model_n_params(&c);
    float *a = dlc_alloc(N * sizeof *a), *b = dlc_alloc(N * sizeof *b);
    struct dlc_param *table;

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(dlc_model_params_table(&table, &n, &c), DLC_OK);
    dlc_model_init_params(a, &c, 7);
    for (size_t i = 0; i < n; i++) {
        const float *x = a + table[i].offset;
        bool residual = strstr(table[i].name, "o_proj") || strstr(table[i].name, "down_proj");

        if (table[i].n_dims == 2)
            check_normal(table[i].name, x, table[i].n_values, residual ? 0.02 / sqrt(6) : 0.02);
        else
            for (size_t j = 0; j < table[i].n_values; j++)
                assert_true(x[j] == 1);
    }
    dlc_model_init_params(b, &c, 7);
    assert_memory_equal(a, b, N * sizeof *a); /* a function of the seed */
    dlc_model_init_params(b, &c, 8);
    assert_true(b[0] != a[0]);
    /* No two tensors share their numbers. */
    assert_true(a[table[2].offset] != a[table[3].offset]);
    dlc_free(table);
    dlc_free(a);
    dlc_free(b);
}

/* The formula with the C library's functions, value by value. */
static float formula(size_t i, double std, uint64_t seed, uint64_t tensor)
{
    uint64_t stream = 0x696e697400000000u + tensor;
    double u = 1.0 - dlc_rng_uniform(seed, stream, i & ~(size_t)1);
    double angle = 6.283185307179586476925 * dlc_rng_uniform(seed, stream, i | 1);
    double radius = std * sqrt(-2.0 * log(u));

    return (float)(radius * (i % 2 ? sin(angle) : cos(angle)));
}

/* Same bits as the formula's for every number of threads: runs begun elsewhere and golden files depend on them. */
static void initial_values_are_the_formula_to_the_bit(void **state)
{
    static const int threads[] = { 0, 1, 2, 3, 7 };
    struct dlc_model_config c = preset("mini", 4099); /* tensors of odd sizes and many parts */
    size_t n, N;
    struct dlc_param *table;
    float *a;

    (void)state;
    c.d_model = 33;
    c.n_heads = c.n_kv_heads = 3;
    c.d_ffn = 77;
    N = dlc_model_n_params(&c);
    a = dlc_alloc(N * sizeof *a);
    assert_non_null(a);
    assert_int_equal(dlc_model_params_table(&table, &n, &c), DLC_OK);
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        dlc_pool *pool = NULL;

        if (threads[k])
            assert_int_equal(dlc_pool_create(&pool, threads[k]), DLC_OK);
        memset(a, 0xff, N * sizeof *a);
        dlc_model_init_params_by(a, &c, 11, pool);
        dlc_pool_destroy(pool);
        for (size_t i = 0; i < n; i++) {
            bool residual = strstr(table[i].name, "o_proj") || strstr(table[i].name, "down_proj");

            for (size_t j = 0; table[i].n_dims == 2 && j < table[i].n_values; j++) {
                float expected = formula(j, residual ? 0.02 / sqrt(8) : 0.02, 11, i), got = a[table[i].offset + j];

                if (memcmp(&got, &expected, sizeof got) != 0)
                    fail_msg("%d threads, %s: value %zu is %a instead of %a", threads[k], table[i].name, j,
                             (double)got, (double)expected);
            }
        }
    }
    dlc_free(table);
    dlc_free(a);
}

static void flops_follow_the_formula(void **state)
{
    struct dlc_model_config c = preset("nano", 2048);
    double tied = dlc_model_flops_per_token(&c, 128);

    (void)state;
    assert_true(tied == 6.0 * 529056 + 12.0 * 3 * 96 * 128 / 2);
    c.tie_embeddings = false; /* a second matrix, of which one is only looked up */
    assert_true(dlc_model_flops_per_token(&c, 128) == tied);
}

/* Address space of this process in bytes; 0 where the system does not say. */
static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f)
        return 0;
    if (fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void announced_memory_is_what_is_allocated(void **state)
{
    static const struct {
        struct dlc_model_options options;
        const char *why;
    } rows[] = {
        { { .max_batch = 16, .max_seq = 256, .training = true }, "training" },
        { { .max_batch = 16, .max_seq = 256, .training = true, .precision = DLC_PRECISION_BF16 }, "copies in bf16" },
        { { .max_batch = 4, .max_seq = 256 }, "evaluation" },
        { { .max_batch = 4, .max_seq = 256, .precision = DLC_PRECISION_BF16 }, "evaluation, bf16" },
    };
    struct dlc_model_config c = preset("small", 4096);
    dlc_backend *be;

    (void)state;
    c.qk_norm = true;
    assert_int_equal(dlc_backend_create(&be, "auto", 1), DLC_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_model_memory plan;
        size_t before = address_space(), planned, grown;
        dlc_model *m;

        dlc_model_memory_plan(&plan, &c, &rows[i].options, be);
        planned = plan.params + plan.grads + plan.activations + plan.scratch;
        assert_int_equal(dlc_model_create(&m, &c, &rows[i].options, be), DLC_OK);
        grown = address_space() - before;
        dlc_model_destroy(m);
        print_message("%s: %zu parameters, %zu gradients, %zu activations, %zu scratch; grown by %zu\n", rows[i].why,
                      plan.params, plan.grads, plan.activations, plan.scratch, grown);
        if (before && (grown < planned || grown > planned + ((size_t)1 << 20)))
            fail_msg("%s: planned %zu bytes, address space grew by %zu", rows[i].why, planned, grown);
        assert_true(plan.grads == (rows[i].options.training ? dlc_model_n_params(&c) * 4 : 0));
    }
    dlc_backend_destroy(be);
}

static void absurd_batches_are_refused(void **state)
{
    struct dlc_model_config c = preset("nano", 2048);
    struct dlc_model_options options = { .max_batch = 1 << 20, .max_seq = 1 << 20 };
    dlc_model *m;

    (void)state;
    assert_int_equal(dlc_model_create(&m, &c, &options, NULL), DLC_EUSAGE);
    assert_null(m);
    options.max_batch = 0;
    assert_int_equal(dlc_model_create(&m, &c, &options, NULL), DLC_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_known_shapes),
        cmocka_unit_test(unknown_preset_names_the_known),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(table_lists_every_value_once),
        cmocka_unit_test(names_are_those_of_hugging_face),
        cmocka_unit_test(initial_values_are_normal),
        cmocka_unit_test(initial_values_are_the_formula_to_the_bit),
        cmocka_unit_test(flops_follow_the_formula),
        cmocka_unit_test(announced_memory_is_what_is_allocated),
        cmocka_unit_test(absurd_batches_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
