/* A model as a GGUF file. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "ckpt/gguf_model_internal.h"

/* general.file_type: what the matrices are. */
static uint32_t file_type(dlc_stored type)
{
    static const uint32_t numbers[] = {
        [DLC_STORED_F32] = 0, [DLC_STORED_F16] = 1, [DLC_STORED_Q8_0] = 7, [DLC_STORED_BF16] = 32
    };

    return numbers[type];
}

static void put_general(struct dlc_gguf_pairs *p, const char *architecture, dlc_stored type, const char *name)
{
    dlc_gguf_put_text(p, "general.architecture", architecture);
    dlc_gguf_put_text(p, "general.name", name);
    dlc_gguf_put_u32(p, "general.file_type", file_type(type));
    if (type == DLC_STORED_Q8_0)
        dlc_gguf_put_u32(p, "general.quantization_version", 2);
}

static void put_config(struct dlc_gguf_pairs *p, const struct dlc_model_config *c, const char *architecture)
{
    const struct {
        const char *key;
        int value;
    } integers[] = {
        { "vocab_size", c->vocab_size },
        { "context_length", c->context },
        { "embedding_length", c->d_model },
        { "block_count", c->n_layers },
        { "feed_forward_length", c->d_ffn },
        { "attention.head_count", c->n_heads },
        { "attention.head_count_kv", c->n_kv_heads },
        { "attention.key_length", c->head_dim },
        { "attention.value_length", c->head_dim },
        { "rope.dimension_count", c->head_dim },
    };
    char key[64];

    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, integers[i].key);
        dlc_gguf_put_u32(p, key, (uint32_t)integers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    dlc_gguf_put_f32(p, key, (float)c->norm_eps);
    snprintf(key, sizeof key, "%s.rope.freq_base", architecture);
    dlc_gguf_put_f32(p, key, (float)c->rope_theta);
}

/* The source of the file's tensors over that of the model's. */
struct reordering {
    const struct dlc_model_content *content;
    struct dlc_param *table;
    size_t n;
    float *scratch; /* one head */
};

static dlc_err read_tensor(float *out, void *arg, size_t index)
{
    const struct reordering *r = arg;
    const struct dlc_tensor_source *source = &r->content->tensors;
    int n_heads = dlc__gguf_heads(&r->content->config, &r->table[index]);

    DLC_TRY(source->read(out, source->arg, index));
    if (n_heads > 0)
        dlc__gguf_interleave(out, r->scratch, &r->content->config, n_heads);
    return DLC_OK;
}

/* Norms are few values and many programs add them to f32: they stay f32 whatever the file's type. */
static dlc_stored choose_type(const struct dlc_param *p, dlc_stored type)
{
    if (p->n_dims < 2)
        return DLC_STORED_F32;
    return p->dims[1] % dlc_stored_block_values(type) == 0 ? type : DLC_STORED_F16;
}

static void describe(struct dlc_gguf_write_tensor *out, const struct reordering *r, dlc_stored type, const char *path)
{
    size_t n_others = 0, other = 0;

    for (size_t i = 0; i < r->n; i++) {
        const struct dlc_param *p = &r->table[i];

        dlc__gguf_tensor_name(out[i].name, p);
        out[i].type = choose_type(p, type);
        out[i].n_dims = p->n_dims;
        for (int k = 0; k < p->n_dims; k++)
            out[i].dims[k] = p->dims[k];
        if (p->n_dims > 1 && out[i].type != type && n_others++ == 0)
            other = i;
    }
    if (n_others > 0)
        dlc_warn("%s: %zu matrices are stored in f16: %s works in blocks of %zu, and the rows of %s have %zu values",
                 path, n_others, dlc_stored_name(type), dlc_stored_block_values(type), out[other].name,
                 r->table[other].dims[1]);
}

static dlc_err write_tensors(const char *path, const struct dlc_gguf_pairs *pairs,
                             const struct dlc_model_content *content, dlc_stored type)
{
    struct reordering r = { .content = content };
    const struct dlc_tensor_source source = { read_tensor, &r };
    struct dlc_gguf_write_tensor *tensors = NULL;
    dlc_err err;

    DLC_TRY(dlc_model_params_table(&r.table, &r.n, &content->config));
    tensors = dlc_calloc(r.n, sizeof *tensors);
    r.scratch = dlc_calloc((size_t)content->config.head_dim * (size_t)content->config.d_model, sizeof *r.scratch);
    err = tensors && r.scratch ? DLC_OK : DLC_ENOMEM;
    if (err == DLC_OK) {
        describe(tensors, &r, type, path);
        err = dlc_gguf_write(path, pairs, tensors, r.n, &source);
    }
    dlc_free(tensors);
    dlc_free(r.scratch);
    dlc_free(r.table);
    return err;
}

dlc_err dlc_gguf_model_write(const char *path, const struct dlc_model_content *content, dlc_stored type,
                             const char *name)
{
    const char *architecture = content->config.qk_norm ? "qwen3" : "llama";
    struct dlc_gguf_pairs pairs = { 0 };
    dlc_err err = DLC_OK;

    DLC_TRY(dlc_model_config_check(&content->config));
    put_general(&pairs, architecture, type, name);
    put_config(&pairs, &content->config, architecture);
    if (content->tokenizer_json)
        err = dlc__gguf_put_tokenizer(&pairs, content);
    else
        dlc_gguf_put_text(&pairs, "tokenizer.ggml.model", "no_vocab");
    if (err == DLC_OK)
        err = write_tensors(path, &pairs, content, type);
    dlc_gguf_pairs_fini(&pairs);
    return err;
}
