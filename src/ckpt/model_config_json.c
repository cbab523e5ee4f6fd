/* config.json, both ways. Two generations of transformers are served: the rotary base stands at the top (v4) and in
 * rope_parameters (v5), the dtype as torch_dtype and dtype. v5 checks types strictly: integers are written as integers,
 * reals with a point. */
#include <limits.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "ckpt/model_folder_internal.h"

enum { MAX_CONFIG_BYTES = 1 << 20 };

static const struct family {
    const char *model_type, *architecture;
    bool qk_norm;
    int default_context; /* of transformers, when config.json does not say */
} families[] = {
    { "llama", "LlamaForCausalLM", false, 2048 },
    { "qwen3", "Qwen3ForCausalLM", true, 32768 },
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* ---- writing ---- */

static json_t *token_id(int32_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

/* What Qwen3 has and Llama has not; without them older readers assume sliding windows in the upper layers. */
static int add_qwen3(json_t *root, const struct dlc_model_config *c)
{
    json_t *types = json_array();
    int failed = 0;

    for (int i = 0; i < c->n_layers; i++)
        failed |= json_array_append_new(types, json_string("full_attention"));
    failed |= json_object_set_new(root, "use_sliding_window", json_false());
    failed |= json_object_set_new(root, "sliding_window", json_null());
    failed |= json_object_set_new(root, "max_window_layers", json_integer(c->n_layers));
    failed |= json_object_set_new(root, "layer_types", types);
    return failed;
}

static json_t *make_config(const struct dlc_model_config *c, const struct family *family, const char *dtype,
                           int32_t bos, int32_t eos)
{
    json_t *root =
        json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:f, s:f, s:f, s:{s:s, s:f},"
                  " s:b, s:b, s:f, s:b, s:s, s:s}",
                  "architectures", family->architecture, "model_type", family->model_type, "vocab_size", c->vocab_size,
                  "hidden_size", c->d_model, "intermediate_size", c->d_ffn, "num_hidden_layers", c->n_layers,
                  "num_attention_heads", c->n_heads, "num_key_value_heads", c->n_kv_heads, "head_dim", c->head_dim,
                  "hidden_act", "silu", "max_position_embeddings", c->context, "initializer_range", c->init_std,
                  "rms_norm_eps", c->norm_eps, "rope_theta", c->rope_theta, "rope_parameters", "rope_type", "default",
                  "rope_theta", c->rope_theta, "tie_word_embeddings", (int)c->tie_embeddings, "attention_bias", 0,
                  "attention_dropout", 0.0, "use_cache", 1, "torch_dtype", dtype, "dtype", dtype);
    int failed = 0;

    failed |= json_object_set_new(root, "bos_token_id", token_id(bos));
    failed |= json_object_set_new(root, "eos_token_id", token_id(eos));
    /* null: an id here would take the end-of-text row out of the embedding's gradient for whoever trains it further */
    failed |= json_object_set_new(root, "pad_token_id", json_null());
    failed |= family->qk_norm ? add_qwen3(root, c) : json_object_set_new(root, "mlp_bias", json_false());
    if (failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

dlc_err dlc__model_config_write(const char *folder, const struct dlc_model_config *config, dlc_dtype dtype, int32_t bos,
                                int32_t eos)
{
    static const char *const dtypes[] = { [DLC_F32] = "float32", [DLC_BF16] = "bfloat16", [DLC_F16] = "float16" };
    char path[DLC_PATH_MAX];
    json_t *root;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, folder, "config.json"));
    root = make_config(config, &families[config->qk_norm], dtypes[dtype], bos, eos);
    if (!root)
        return dlc_fail(DLC_ENOMEM, "out of memory: %s", path);
    if (!config->qk_norm && config->d_model % config->n_heads != 0)
        dlc_warn("%s: transformers does not load a Llama whose d_model %d is not a multiple of its %d heads", path,
                 config->d_model, config->n_heads);
    err = dlc_json_write_file(path, root);
    json_decref(root);
    return err;
}

/* ---- reading ---- */

static bool absent(const json_t *root, const char *key)
{
    const json_t *v = json_object_get(root, key);

    return !v || json_is_null(v);
}

static dlc_err get_int(int *out, const json_t *root, const char *key, const char *where)
{
    int64_t v;

    DLC_TRY(dlc_json_get_int(&v, root, key, 1, INT_MAX, where));
    *out = (int)v;
    return DLC_OK;
}

/* Leaves *out as it is when the key is missing or null. */
static dlc_err maybe_int(int *out, const json_t *root, const char *key, const char *where)
{
    return absent(root, key) ? DLC_OK : get_int(out, root, key, where);
}

static dlc_err maybe_real(double *out, const json_t *root, const char *key, const char *where)
{
    return absent(root, key) ? DLC_OK : dlc_json_get_real(out, root, key, where);
}

/* A key whose value cannot be computed here; the value goes into the text as JSON. */
static dlc_err refuse(const json_t *root, const char *key, const char *only, const char *where)
{
    char *value = dlc_json_dump(json_object_get(root, key));
    dlc_err err = DLC_ENOMEM;

    if (value)
        err = dlc_fail(DLC_EINPUT, "%s: \"%s\" is %.200s, only %s can be computed here", where, key, value, only);
    dlc_free(value);
    return err;
}

static dlc_err find_family(const struct family **out, const json_t *root, const char *where)
{
    const json_t *architectures = json_object_get(root, "architectures");
    const char *model_type;

    DLC_TRY(dlc_json_get_string(&model_type, root, "model_type", where));
    *out = NULL;
    for (int i = 0; i < N_FAMILIES; i++) {
        if (strcmp(families[i].model_type, model_type) == 0)
            *out = &families[i];
    }
    if (!*out)
        return refuse(root, "model_type", "\"llama\" and \"qwen3\"", where);
    if (absent(root, "architectures"))
        return DLC_OK;
    if (json_array_size(architectures) != 1 || !json_is_string(json_array_get(architectures, 0)) ||
        strcmp(json_string_value(json_array_get(architectures, 0)), (*out)->architecture) != 0)
        return refuse(root, "architectures", (*out)->architecture, where);
    return DLC_OK;
}

/* rope_parameters (v5) or rope_scaling (v4): plain rotation over the whole head, with the one base. */
static dlc_err check_rope(double *theta, bool *has_theta, const json_t *root, const char *key, const char *where)
{
    json_t *rope, *value;
    double found = *theta, partial = 1;
    const char *name;

    if (absent(root, key))
        return DLC_OK;
    DLC_TRY(dlc_json_get_object(&rope, root, key, where));
    json_object_foreach(rope, name, value)
    {
        bool is_type = strcmp(name, "rope_type") == 0 || strcmp(name, "type") == 0;

        if (is_type ? !json_is_string(value) || strcmp(json_string_value(value), "default") != 0
                    : json_is_object(value))
            return refuse(root, key, "unscaled rotary positions (rope_type \"default\")", where);
    }
    DLC_TRY(maybe_real(&partial, rope, "partial_rotary_factor", where));
    if (partial != 1)
        return refuse(root, key, "rotation of the whole head", where);
    DLC_TRY(maybe_real(&found, rope, "rope_theta", where));
    if (*has_theta && found != *theta)
        return dlc_fail(DLC_EINPUT, "%s: \"rope_theta\" is %g, but \"%s\" says %g", where, *theta, key, found);
    *has_theta = *has_theta || !absent(rope, "rope_theta");
    *theta = found;
    return DLC_OK;
}

static dlc_err read_rope(double *theta, const json_t *root, const char *where)
{
    bool has_theta = !absent(root, "rope_theta");
    double partial = 1;

    *theta = 10000;
    DLC_TRY(maybe_real(theta, root, "rope_theta", where));
    DLC_TRY(maybe_real(&partial, root, "partial_rotary_factor", where));
    if (partial != 1)
        return refuse(root, "partial_rotary_factor", "1", where);
    DLC_TRY(check_rope(theta, &has_theta, root, "rope_parameters", where));
    return check_rope(theta, &has_theta, root, "rope_scaling", where);
}

/* Switches that change the function and must be off. */
static dlc_err check_switches(const json_t *root, const char *where)
{
    static const char *const off[] = { "attention_bias", "mlp_bias", "use_sliding_window", "add_cross_attention" };
    const json_t *types = json_object_get(root, "layer_types");

    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        if (!absent(root, off[i]) && !json_is_false(json_object_get(root, off[i])))
            return refuse(root, off[i], "false", where);
    }
    if (!absent(root, "quantization_config"))
        return refuse(root, "quantization_config", "unquantized weights", where);
    if (!absent(root, "hidden_act") && (!json_is_string(json_object_get(root, "hidden_act")) ||
                                        strcmp(json_string_value(json_object_get(root, "hidden_act")), "silu") != 0))
        return refuse(root, "hidden_act", "\"silu\"", where);
    if (!absent(root, "layer_types") && !json_is_array(types))
        return refuse(root, "layer_types", "a list of \"full_attention\"", where);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));

        if (!type || strcmp(type, "full_attention") != 0)
            return refuse(root, "layer_types", "\"full_attention\"", where);
    }
    return DLC_OK;
}

/* What may be missing has transformers' default; Qwen3's defaults for heads belong to one model and are not guessed. */
static dlc_err read_shape(struct dlc_model_config *c, const json_t *root, const char *where)
{
    DLC_TRY(get_int(&c->vocab_size, root, "vocab_size", where));
    DLC_TRY(get_int(&c->d_model, root, "hidden_size", where));
    DLC_TRY(get_int(&c->d_ffn, root, "intermediate_size", where));
    DLC_TRY(get_int(&c->n_layers, root, "num_hidden_layers", where));
    DLC_TRY(get_int(&c->n_heads, root, "num_attention_heads", where));
    c->n_kv_heads = c->n_heads;
    c->head_dim = c->d_model / c->n_heads;
    if (c->qk_norm) {
        DLC_TRY(get_int(&c->n_kv_heads, root, "num_key_value_heads", where));
        return get_int(&c->head_dim, root, "head_dim", where);
    }
    DLC_TRY(maybe_int(&c->n_kv_heads, root, "num_key_value_heads", where));
    return maybe_int(&c->head_dim, root, "head_dim", where);
}

static dlc_err read_config(struct dlc_model_config *c, const json_t *root, const char *where)
{
    const struct family *family;
    int tie = 0;

    *c = (struct dlc_model_config){ .norm_eps = 1e-6, .init_std = 0.02 };
    if (!json_is_object(root))
        return dlc_fail(DLC_EINPUT, "%s: not a JSON object", where);
    DLC_TRY(find_family(&family, root, where));
    c->qk_norm = family->qk_norm;
    c->context = family->default_context;
    DLC_TRY(check_switches(root, where));
    DLC_TRY(read_shape(c, root, where));
    DLC_TRY(maybe_int(&c->context, root, "max_position_embeddings", where));
    DLC_TRY(maybe_real(&c->norm_eps, root, "rms_norm_eps", where));
    DLC_TRY(maybe_real(&c->init_std, root, "initializer_range", where));
    DLC_TRY(read_rope(&c->rope_theta, root, where));
    if (!absent(root, "tie_word_embeddings"))
        DLC_TRY(dlc_json_get_bool(&tie, root, "tie_word_embeddings", where));
    c->tie_embeddings = tie;
    if (dlc_model_config_check(c) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "%s", where);
    return DLC_OK;
}

dlc_err dlc_model_folder_config_parse(struct dlc_model_config *out, const char *text, size_t size_bytes,
                                      const char *where)
{
    json_t *root;
    dlc_err err;

    DLC_TRY(dlc_json_parse(&root, text, size_bytes, where));
    err = read_config(out, root, where);
    json_decref(root);
    return err;
}

/* An id, or the first of a list of ids. */
static dlc_err read_token(int32_t *out, const json_t *root, const char *key, const char *where)
{
    const json_t *value = json_object_get(root, key);
    int64_t id;

    *out = -1;
    if (absent(root, key))
        return DLC_OK;
    if (json_is_array(value) && json_array_size(value) > 0 && json_is_integer(json_array_get(value, 0))) {
        id = json_integer_value(json_array_get(value, 0));
        if (id < 0 || id > INT32_MAX)
            return dlc_fail(DLC_EINPUT, "%s: \"%s\" begins with %lld, not the id of a token", where, key,
                            (long long)id);
    } else {
        DLC_TRY(dlc_json_get_int(&id, root, key, 0, INT32_MAX, where));
    }
    *out = (int32_t)id;
    return DLC_OK;
}

dlc_err dlc_model_folder_tokens(int32_t *bos, int32_t *eos, const char *folder)
{
    char path[DLC_PATH_MAX];
    json_t *root;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, folder, "config.json"));
    DLC_TRY(dlc_json_read_file(&root, path, MAX_CONFIG_BYTES));
    err = read_token(bos, root, "bos_token_id", path);
    if (err == DLC_OK)
        err = read_token(eos, root, "eos_token_id", path);
    json_decref(root);
    return err;
}

dlc_err dlc_model_folder_config(struct dlc_model_config *out, const char *folder)
{
    char path[DLC_PATH_MAX];
    struct dlc_buf b = { 0 };
    dlc_err err;

    DLC_TRY(dlc_path_join(path, folder, "config.json"));
    err = dlc_file_read(&b, path, MAX_CONFIG_BYTES);
    if (err == DLC_OK)
        err = dlc_model_folder_config_parse(out, b.data, b.len, path);
    dlc_buf_fini(&b);
    return err;
}
