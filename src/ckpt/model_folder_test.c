#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_test_util.h"
#include "ckpt/model_folder.h"
#include "ckpt/safetensors.h"

static char folder[64];
static char here[DLC_PATH_MAX]; /* a new folder for each test */

static const struct dlc_model_config llama = {
    .vocab_size = 11,
    .n_layers = 2,
    .d_model = 8,
    .n_heads = 2,
    .n_kv_heads = 1,
    .head_dim = 4,
    .d_ffn = 12,
    .context = 32,
    .rope_theta = 10000,
    .norm_eps = 0.125,
    .init_std = 0.5,
};

static const char tokenizer[] = "{\"added_tokens\":[{\"id\":10,\"content\":\"<|endoftext|>\"}],"
                                "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"</s>\":2},\"merges\":[]}}\n";

static int make_folder(void **state)
{
    (void)state;
    dlc_log_set_level(DLC_LOG_ERROR);
    return test_make_folder(folder, sizeof folder, "model-folder");
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static int make_here(void **state)
{
    static int n;

    (void)state;
    snprintf(here, sizeof here, "%.64s/model%d", folder, n++);
    return mkdir(here, 0755);
}

static const char *in_here(const char *name)
{
    static char path[DLC_PATH_MAX];

    assert_int_equal(dlc_path_join(path, here, name), DLC_OK);
    return path;
}

static float *make_params(const struct dlc_model_config *c)
{
    size_t n = dlc_model_n_params(c);
    float *p = dlc_alloc(n * sizeof *p);

    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)dlc_rng_normal(1, 2, i);
    return p;
}

static void expect_text(const char *name, const char *expected)
{
    struct dlc_buf b = { 0 };

    assert_int_equal(dlc_file_read(&b, in_here(name), 1 << 20), DLC_OK);
    if (strcmp(b.data, expected) != 0)
        fail_msg("%s:\n%s", name, b.data);
    dlc_buf_fini(&b);
}

#define ROPE                                                                                                           \
    "  \"rope_theta\": 10000.0,\n  \"rope_parameters\": {\n    \"rope_type\": \"default\",\n    \"rope_theta\": "      \
    "10000.0\n  },\n"
#define SHAPE                                                                                                          \
    "  \"vocab_size\": 11,\n  \"hidden_size\": 8,\n  \"intermediate_size\": 12,\n  \"num_hidden_layers\": 2,\n"        \
    "  \"num_attention_heads\": 2,\n  \"num_key_value_heads\": 1,\n  \"head_dim\": 4,\n  \"hidden_act\": \"silu\",\n"  \
    "  \"max_position_embeddings\": 32,\n  \"initializer_range\": 0.5,\n  \"rms_norm_eps\": 0.125,\n" ROPE

static void files_are_as_other_tools_want_them(void **state)
{
    struct dlc_model_config c = llama;
    float *p = make_params(&llama);

    (void)state;
    assert_int_equal(dlc_model_folder_write(here, &c, p, DLC_F32, tokenizer, sizeof tokenizer - 1, 10), DLC_OK);
    expect_text(
        "config.json",
        "{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n  \"model_type\": \"llama\",\n" SHAPE
        "  \"tie_word_embeddings\": false,\n  \"attention_bias\": false,\n  \"attention_dropout\": 0.0,\n"
        "  \"use_cache\": true,\n  \"torch_dtype\": \"float32\",\n  \"dtype\": \"float32\",\n"
        "  \"bos_token_id\": 10,\n  \"eos_token_id\": 10,\n  \"pad_token_id\": null,\n  \"mlp_bias\": false\n}\n");
    expect_text("tokenizer.json", tokenizer);
    expect_text(
        "tokenizer_config.json",
        "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n  \"bos_token\": \"<|endoftext|>\",\n"
        "  \"eos_token\": \"<|endoftext|>\",\n  \"pad_token\": \"<|endoftext|>\",\n  \"add_bos_token\": false,\n"
        "  \"model_max_length\": 32,\n  \"clean_up_tokenization_spaces\": false\n}\n");
    expect_text("generation_config.json",
                "{\n  \"bos_token_id\": 10,\n  \"eos_token_id\": 10,\n  \"pad_token_id\": 10\n}\n");
    c.qk_norm = c.tie_embeddings = true;
    dlc_free(p);
    p = make_params(&c);
    assert_int_equal(dlc_model_folder_write(here, &c, p, DLC_BF16, NULL, 0, -1), DLC_OK);
    expect_text("config.json",
                "{\n  \"architectures\": [\n    \"Qwen3ForCausalLM\"\n  ],\n  \"model_type\": \"qwen3\",\n" SHAPE
                "  \"tie_word_embeddings\": true,\n  \"attention_bias\": false,\n  \"attention_dropout\": 0.0,\n"
                "  \"use_cache\": true,\n  \"torch_dtype\": \"bfloat16\",\n  \"dtype\": \"bfloat16\",\n"
                "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n  \"pad_token_id\": null,\n"
                "  \"use_sliding_window\": false,\n  \"sliding_window\": null,\n  \"max_window_layers\": 2,\n"
                "  \"layer_types\": [\n    \"full_attention\",\n    \"full_attention\"\n  ]\n}\n");
    dlc_free(p);
}

static void end_of_text_is_looked_up_in_the_tokenizer(void **state)
{
    static const char bad[] = "{\"model\":";
    struct dlc_buf b = { 0 };
    float *p = make_params(&llama);

    (void)state;
    assert_int_equal(dlc_model_folder_write(here, &llama, p, DLC_F32, tokenizer, sizeof tokenizer - 1, 2), DLC_OK);
    assert_int_equal(dlc_file_read(&b, in_here("tokenizer_config.json"), 10000), DLC_OK);
    assert_non_null(strstr(b.data, "\"eos_token\": \"</s>\""));
    dlc_buf_fini(&b);
    assert_int_equal(dlc_model_folder_write(here, &llama, p, DLC_F32, tokenizer, sizeof tokenizer - 1, 7), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "no token has the id 7"));
    assert_int_equal(dlc_model_folder_write(here, &llama, p, DLC_F32, bad, sizeof bad - 1, 10), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "tokenizer.json: not valid JSON"));
    dlc_free(p);
}

static void expect_same_config(const struct dlc_model_config *a, const struct dlc_model_config *b)
{
    assert_int_equal(a->vocab_size, b->vocab_size);
    assert_int_equal(a->n_layers, b->n_layers);
    assert_int_equal(a->d_model, b->d_model);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_kv_heads, b->n_kv_heads);
    assert_int_equal(a->head_dim, b->head_dim);
    assert_int_equal(a->d_ffn, b->d_ffn);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->tie_embeddings, b->tie_embeddings);
    assert_int_equal(a->qk_norm, b->qk_norm);
    assert_true(a->rope_theta == b->rope_theta && a->norm_eps == b->norm_eps && a->init_std == b->init_std);
}

static void what_was_written_is_read(void **state)
{
    for (int i = 0; i < 12; i++) {
        static const dlc_dtype dtypes[] = { DLC_F32, DLC_BF16, DLC_F16 };
        struct dlc_model_config c = llama, back;
        dlc_dtype dtype = dtypes[i / 4];
        float *p, *q;

        c.tie_embeddings = i & 1;
        c.qk_norm = i & 2;
        c.norm_eps = 1e-5;
        c.rope_theta = 12345.678;
        c.init_std = 0.02;
        c.head_dim = 6; /* need not be d_model / heads */
        assert_int_equal(make_here(state), 0);
        p = make_params(&c);
        q = dlc_alloc(dlc_model_n_params(&c) * sizeof *q);
        assert_int_equal(dlc_model_folder_write(here, &c, p, dtype, NULL, 0, 10), DLC_OK);
        assert_int_equal(dlc_model_folder_config(&back, here), DLC_OK);
        expect_same_config(&back, &c);
        if (dlc_model_folder_params(q, &back, here) != DLC_OK)
            fail_msg("%s", dlc_err_text());
        for (size_t k = 0; k < dlc_model_n_params(&c); k++)
            assert_true(q[k] == (dtype == DLC_F32    ? p[k]
                                 : dtype == DLC_BF16 ? dlc_bf16_to_f32(dlc_f32_to_bf16(p[k]))
                                                     : dlc_f16_to_f32(dlc_f32_to_f16(p[k]))));
        dlc_free(p);
        dlc_free(q);
    }
}

#define LLAMA                                                                                                          \
    "\"model_type\":\"llama\",\"vocab_size\":11,\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"   \
    "\"num_attention_heads\":2"
#define QWEN                                                                                                           \
    "\"model_type\":\"qwen3\",\"vocab_size\":11,\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"   \
    "\"num_attention_heads\":2"

static void matrices_stored_in_bf16_are_recognised(void **state)
{
    static const dlc_dtype dtypes[] = { DLC_F32, DLC_BF16, DLC_F16 };
    float *p = make_params(&llama);

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        dlc_model_tensors *t;

        assert_int_equal(dlc_model_folder_write(here, &llama, p, dtypes[i], NULL, 0, -1), DLC_OK);
        assert_int_equal(dlc_model_tensors_open(&t, &llama, here), DLC_OK);
        assert_int_equal(dlc_model_tensors_dtype(t), dtypes[i] == DLC_BF16 ? DLC_BF16 : DLC_F32);
        dlc_model_tensors_close(t);
    }
    dlc_free(p);
}

static void configurations_that_differ_are_refused(void **state)
{
    static const struct {
        const char *why, *json, *text;
    } rows[] = {
        { "array", "[]", "not a JSON object" },
        { "nothing", "{}", "\"model_type\" should be a string, found nothing" },
        { "another model", "{\"model_type\":\"gpt2\"}", "\"model_type\" is \"gpt2\", only \"llama\" and \"qwen3\"" },
        { "another head", "{" LLAMA ",\"architectures\":[\"LlamaForSequenceClassification\"]}",
          "\"architectures\" is" },
        { "of the other family", "{" LLAMA ",\"architectures\":[\"Qwen3ForCausalLM\"]}", "only LlamaForCausalLM" },
        { "architectures not a list", "{" LLAMA ",\"architectures\":7}", "\"architectures\" is 7" },
        { "no layers", "{\"model_type\":\"llama\",\"vocab_size\":1,\"hidden_size\":8,\"intermediate_size\":1}",
          "\"num_hidden" },
        { "zero layers", "{" LLAMA ",\"max_position_embeddings\":0}", "\"max_position_embeddings\" is 0" },
        { "integer as real", "{" LLAMA ",\"num_key_value_heads\":2.0}",
          "\"num_key_value_heads\" should be an integer" },
        { "beyond int", "{" LLAMA ",\"head_dim\":4294967300}", "\"head_dim\" is 4294967300" },
        { "heads do not divide", "{" LLAMA ",\"num_key_value_heads\":3}", "config.json: model: kv_heads 3" },
        { "odd head", "{" LLAMA ",\"head_dim\":3}", "head_dim 3" },
        { "bias in attention", "{" LLAMA ",\"attention_bias\":true}", "\"attention_bias\" is true, only false" },
        { "bias in the MLP", "{" LLAMA ",\"mlp_bias\":true}", "\"mlp_bias\" is true" },
        { "switch not a boolean", "{" LLAMA ",\"mlp_bias\":1}", "\"mlp_bias\" is 1" },
        { "another activation", "{" LLAMA ",\"hidden_act\":\"gelu\"}", "\"hidden_act\" is \"gelu\", only \"silu\"" },
        { "scaled rope, v4", "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}",
          "\"rope_scaling\" is" },
        { "scaled rope, v4 late", "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}}", "llama3" },
        { "scaled rope, v5", "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":1e4}}", "yarn" },
        { "rope by kind of layer", "{" LLAMA ",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e4}}}",
          "unscaled" },
        { "two bases", "{" LLAMA ",\"rope_theta\":1e4,\"rope_parameters\":{\"rope_theta\":1e6}}", "10000, but" },
        { "part of the head", "{" LLAMA ",\"partial_rotary_factor\":0.5}", "\"partial_rotary_factor\" is 0.5" },
        { "part of the head, v5", "{" LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", "whole head" },
        { "rope not an object", "{" LLAMA ",\"rope_parameters\":3}", "\"rope_parameters\" should be an object" },
        { "base not a number", "{" LLAMA ",\"rope_theta\":\"1e4\"}", "\"rope_theta\" should be a number" },
        { "negative base", "{" LLAMA ",\"rope_theta\":-1}", "rope_theta" },
        { "quantized", "{" LLAMA ",\"quantization_config\":{\"bits\":4}}", "\"quantization_config\" is {\"bits\":4}" },
        { "sliding window", "{" QWEN ",\"head_dim\":4,\"num_key_value_heads\":1,\"use_sliding_window\":true}",
          "use_sliding" },
        { "sliding layers", "{" LLAMA ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
          "\"layer_types\" is" },
        { "layer types not a list", "{" LLAMA ",\"layer_types\":\"full_attention\"}", "\"layer_types\" is" },
        { "Qwen3 without head_dim", "{" QWEN ",\"num_key_value_heads\":1}",
          "\"head_dim\" should be an integer, found nothing" },
        { "Qwen3 without kv heads", "{" QWEN ",\"head_dim\":4}", "\"num_key_value_heads\" should be an integer" },
        { "tie not a boolean", "{" LLAMA ",\"tie_word_embeddings\":1}",
          "\"tie_word_embeddings\" should be true or false" },
        { "doubled key", "{" LLAMA ",\"vocab_size\":11}", "duplicate" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_model_config c;
        dlc_err err = dlc_model_folder_config_parse(&c, rows[i].json, strlen(rows[i].json), "m/config.json");

        if (err != DLC_EINPUT || strncmp(dlc_err_text(), "m/config.json: ", 15) != 0 ||
            !strstr(dlc_err_text(), rows[i].text))
            fail_msg("%s: error %d, text: %s", rows[i].why, err, dlc_err_text());
    }
}

static void configurations_of_all_generations_are_read(void **state)
{
    static const struct {
        const char *why, *json;
        int n_kv_heads, head_dim, context;
        double rope_theta;
    } rows[] = {
        { "least", "{" LLAMA "}", 2, 4, 2048, 10000 },
        { "null is missing",
          "{" LLAMA ",\"num_key_value_heads\":null,\"head_dim\":null,\"rope_scaling\":null,\"rope_parameters\":null,"
          "\"quantization_config\":null,\"architectures\":null,\"layer_types\":null,\"rope_theta\":null}",
          2, 4, 2048, 10000 },
        { "v4", "{" LLAMA ",\"rope_theta\":500000,\"rope_scaling\":{\"type\":\"default\"},\"pretraining_tp\":1}", 2, 4,
          2048, 5e5 },
        { "v5",
          "{" LLAMA
          ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5,\"partial_rotary_factor\":1.0}}",
          2, 4, 2048, 5e5 },
        { "both", "{" LLAMA ",\"rope_theta\":5e5,\"rope_parameters\":{\"rope_theta\":500000}}", 2, 4, 2048, 5e5 },
        { "Qwen3 with its window off",
          "{" QWEN ",\"head_dim\":6,\"num_key_value_heads\":1,\"use_sliding_window\":false,\"sliding_window\":4096}", 1,
          6, 32768, 10000 },
        { "unknown keys are not read by anyone", "{" LLAMA ",\"color\":\"blue\",\"eos_token_id\":[1,2]}", 2, 4, 2048,
          10000 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_model_config c;

        if (dlc_model_folder_config_parse(&c, rows[i].json, strlen(rows[i].json), "config.json") != DLC_OK)
            fail_msg("%s: %s", rows[i].why, dlc_err_text());
        if (c.n_kv_heads != rows[i].n_kv_heads || c.head_dim != rows[i].head_dim || c.context != rows[i].context ||
            c.rope_theta != rows[i].rope_theta || c.norm_eps != 1e-6)
            fail_msg("%s: kv_heads %d, head_dim %d, context %d, theta %g", rows[i].why, c.n_kv_heads, c.head_dim,
                     c.context, c.rope_theta);
    }
    assert_int_equal(dlc_model_folder_config(&(struct dlc_model_config){ 0 }, here), DLC_ENOTFOUND);
}

/* Tensors [from, to) of the table as one file; `change` may alter or rename them. */
static void write_part(const char *name, const struct dlc_model_config *c, const float *p, size_t from, size_t to,
                       const struct dlc_st_write_tensor *extra)
{
    struct dlc_st_write_tensor t[64];
    struct dlc_param *table;
    size_t n, used = 0;

    assert_int_equal(dlc_model_params_table(&table, &n, c), DLC_OK);
    assert_in_range(n, 1, 62);
    for (size_t i = from; i < to && i < n; i++)
        t[used++] = (struct dlc_st_write_tensor){
            table[i].name, DLC_F32, table[i].n_dims, { table[i].dims[0], table[i].dims[1] }, p + table[i].offset
        };
    if (extra)
        t[used++] = *extra;
    assert_int_equal(dlc_st_write(in_here(name), t, used, NULL, 0), DLC_OK);
    dlc_free(table);
}

static void expect_refused(const struct dlc_model_config *c, const char *why, const char *text)
{
    float *q = dlc_alloc(dlc_model_n_params(c) * sizeof *q);
    dlc_err err = dlc_model_folder_params(q, c, here);

    if ((err != DLC_EINPUT && err != DLC_ENOTFOUND) || !strstr(dlc_err_text(), text))
        fail_msg("%s: error %d, text: %s", why, err, dlc_err_text());
    dlc_free(q);
}

static void parameters_that_do_not_fit_are_refused(void **state)
{
    static const float zeros[1000];
    struct dlc_st_write_tensor extra = { "model.layers.0.self_attn.q_proj.bias", DLC_F32, 1, { 8 }, zeros };
    struct dlc_model_config tied = llama;
    float *p = make_params(&llama), *q = dlc_alloc(dlc_model_n_params(&llama) * sizeof *q);

    (void)state;
    expect_refused(&llama, "no file", "neither model.safetensors nor");
    write_part("model.safetensors", &llama, p, 0, 64, &extra);
    expect_refused(&llama, "unknown tensor",
                   "model.safetensors: tensor \"model.layers.0.self_attn.q_proj.bias\" is not part");
    write_part("model.safetensors", &llama, p, 0, 5, NULL);
    expect_refused(&llama, "one is missing", "is missing");
    extra = (struct dlc_st_write_tensor){ "model.embed_tokens.weight", DLC_F32, 2, { 8, 11 }, zeros };
    write_part("model.safetensors", &llama, p, 1, 64, &extra);
    expect_refused(&llama, "turned",
                   "tensor \"model.embed_tokens.weight\" has the shape [8, 11], config.json makes it [11, 8]");
    extra = (struct dlc_st_write_tensor){ "model.embed_tokens.weight", DLC_F32, 1, { 88 }, zeros };
    write_part("model.safetensors", &llama, p, 1, 64, &extra);
    expect_refused(&llama, "flat", "has the shape [88], config.json makes it [11, 8]");
    tied.tie_embeddings = true;
    extra = (struct dlc_st_write_tensor){ "lm_head.weight", DLC_F32, 2, { 11, 8 }, zeros };
    write_part("model.safetensors", &tied, p, 0, 64, &extra);
    expect_refused(&tied, "a tied head that is another matrix", "ties the embeddings, but lm_head.weight differs");
    extra.data = p; /* the embedding is first */
    write_part("model.safetensors", &tied, p, 0, 64, &extra);
    if (dlc_model_folder_params(q, &tied, here) != DLC_OK)
        fail_msg("a tied head stored twice: %s", dlc_err_text());
    assert_int_equal(truncate(in_here("model.safetensors"), 1000), 0);
    expect_refused(&tied, "cut", "cut off");
    dlc_free(p);
    dlc_free(q);
}

static void write_index(const struct dlc_model_config *c, const char *last_shard, const char *extra_name)
{
    json_t *map = json_object(), *root = json_pack("{s:{}, s:o}", "metadata", "weight_map", map);
    struct dlc_param *table;
    size_t n;

    assert_int_equal(dlc_model_params_table(&table, &n, c), DLC_OK);
    for (size_t i = 0; i < n; i++)
        json_object_set_new(map, table[i].name,
                            json_string(i < 5       ? "a.safetensors"
                                        : i < n - 1 ? "b.safetensors"
                                                    : last_shard));
    if (extra_name)
        json_object_set_new(map, extra_name, json_string("a.safetensors"));
    assert_int_equal(dlc_json_write_file(in_here("model.safetensors.index.json"), root), DLC_OK);
    json_decref(root);
    dlc_free(table);
}

static void shards_are_read_and_checked(void **state)
{
    float *p = make_params(&llama), *q = dlc_calloc(dlc_model_n_params(&llama), sizeof *q);

    (void)state;
    write_part("a.safetensors", &llama, p, 0, 5, NULL);
    write_part("b.safetensors", &llama, p, 5, 64, NULL);
    write_index(&llama, "b.safetensors", NULL);
    if (dlc_model_folder_params(q, &llama, here) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_memory_equal(q, p, dlc_model_n_params(&llama) * sizeof *q);

    write_index(&llama, "../b.safetensors", NULL);
    expect_refused(&llama, "leads outside", "is not a file name in this folder");
    write_index(&llama, "c.safetensors", NULL);
    expect_refused(&llama, "no such shard", "c.safetensors");
    write_index(&llama, "b.safetensors", "model.norm.bias");
    expect_refused(&llama, "unknown", "tensor \"model.norm.bias\" is not part of this kind of model");
    write_index(&llama, "b.safetensors", NULL);
    write_part("b.safetensors", &llama, p, 4, 64, NULL);
    expect_refused(&llama, "in two shards", "is in another shard as well");
    write_part("b.safetensors", &llama, p, 6, 64, NULL);
    expect_refused(&llama, "in none", "is missing");
    assert_int_equal(dlc_file_write_atomic(in_here("model.safetensors.index.json"), "{\"weight_map\":[]}", 17), DLC_OK);
    expect_refused(&llama, "not a map", "\"weight_map\" should be an object");
    dlc_free(p);
    dlc_free(q);
}

static void a_path_stands_for_a_model_folder(void **state)
{
    char out[DLC_PATH_MAX], partial[DLC_PATH_MAX];
    float *p = make_params(&llama);

    (void)state;
    assert_int_equal(dlc_model_folder_resolve(out, in_here("none")), DLC_ENOTFOUND);
    assert_int_equal(dlc_model_folder_resolve(out, here), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "neither a model folder (no config.json) nor a run folder"));
    assert_int_equal(dlc_ckpt_begin(partial, here, 3), DLC_OK);
    assert_int_equal(dlc_model_folder_resolve(out, here), DLC_ENOTFOUND);
    assert_int_equal(dlc_model_folder_write(partial, &llama, p, DLC_F32, tokenizer, sizeof tokenizer - 1, 10), DLC_OK);
    assert_int_equal(dlc_ckpt_commit(here, 3, NULL), DLC_OK);
    assert_int_equal(dlc_model_folder_resolve(out, here), DLC_OK);
    assert_string_equal(out, in_here("checkpoints/outer-000003"));
    assert_int_equal(dlc_model_folder_resolve(out, in_here("checkpoints/outer-000003")), DLC_OK);
    assert_string_equal(out, in_here("checkpoints/outer-000003"));
    assert_int_equal(dlc_model_folder_resolve(out, in_here("checkpoints/outer-000003/config.json")), DLC_EINPUT);
    dlc_free(p);
}

static dlc_err write_one(void *arg)
{
    return dlc_model_folder_write(here, &llama, arg, DLC_BF16, tokenizer, sizeof tokenizer - 1, 10);
}

static dlc_err read_one(void *arg)
{
    struct dlc_model_config c;

    DLC_TRY(dlc_model_folder_config(&c, here));
    return dlc_model_folder_params(arg, &c, here);
}

static void any_allocation_may_fail(void **state)
{
    float *p = make_params(&llama), *q = dlc_alloc(dlc_model_n_params(&llama) * sizeof *q);

    (void)state;
    assert_true(test_walk_allocations(write_one, p) > 20);
    assert_true(test_walk_allocations(read_one, q) > 5);
    for (size_t i = 0; i < dlc_model_n_params(&llama); i++)
        assert_true(q[i] == dlc_bf16_to_f32(dlc_f32_to_bf16(p[i])));
    write_part("a.safetensors", &llama, p, 0, 5, NULL);
    write_part("b.safetensors", &llama, p, 5, 64, NULL);
    write_index(&llama, "b.safetensors", NULL);
    assert_int_equal(unlink(in_here("model.safetensors")), 0);
    assert_true(test_walk_allocations(read_one, q) > 5);
    assert_memory_equal(q, p, dlc_model_n_params(&llama) * sizeof *q);
    dlc_free(p);
    dlc_free(q);
}

static void a_full_disk_is_reported_with_the_file(void **state)
{
    float *p = make_params(&llama);
    struct test_full_disk disk;

    (void)state;
    test_full_disk_begin(&disk, in_here("full"));
    test_full_disk_fill(&disk);
    assert_int_equal(dlc_model_folder_write(disk.folder, &llama, p, DLC_F32, NULL, 0, 10), DLC_EIO);
    if (!strstr(dlc_err_text(), "generation_config.json") || !strstr(dlc_err_text(), disk.reason))
        fail_msg("%s", dlc_err_text());
    test_full_disk_end(&disk);
    dlc_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(files_are_as_other_tools_want_them, make_here),
        cmocka_unit_test_setup(end_of_text_is_looked_up_in_the_tokenizer, make_here),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(matrices_stored_in_bf16_are_recognised),
        cmocka_unit_test(configurations_that_differ_are_refused),
        cmocka_unit_test_setup(configurations_of_all_generations_are_read, make_here),
        cmocka_unit_test_setup(parameters_that_do_not_fit_are_refused, make_here),
        cmocka_unit_test_setup(shards_are_read_and_checked, make_here),
        cmocka_unit_test_setup(a_path_stands_for_a_model_folder, make_here),
        cmocka_unit_test_setup(any_allocation_may_fail, make_here),
        cmocka_unit_test_setup(a_full_disk_is_reported_with_the_file, make_here),
    };

    return cmocka_run_group_tests_name("model_folder", tests, make_folder, remove_folder);
}
