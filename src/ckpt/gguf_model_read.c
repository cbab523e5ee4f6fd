/* A model from a GGUF file. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/gguf_model_internal.h"

#define KEY_BYTES 80
#define MIN_LAYER_TENSORS 9

struct dlc_gguf_model {
    dlc_gguf_file *file;
    const char *architecture;
    struct dlc_model_config config;
    struct dlc_param *table;
    size_t n_table;
    float *scratch; /* one head */
    int32_t bos, eos;
    bool add_bos;
};

/* ---- keys ---- */

static void make_key(char key[KEY_BYTES], const dlc_gguf_model *m, const char *name)
{
    snprintf(key, KEY_BYTES, "%s.%s", m->architecture, name);
}

static dlc_err get_int(int *out, const dlc_gguf_model *m, const char *name)
{
    char key[KEY_BYTES];
    int64_t v;

    make_key(key, m, name);
    DLC_TRY(dlc_gguf_get_int(&v, m->file, key, 1, INT_MAX));
    *out = (int)v;
    return DLC_OK;
}

/* Leaves *out as it is when the key is missing. */
static dlc_err maybe_int(int *out, const dlc_gguf_model *m, const char *name)
{
    char key[KEY_BYTES];

    make_key(key, m, name);
    return dlc_gguf_has(m->file, key) ? get_int(out, m, name) : DLC_OK;
}

/* Files hold these in f32, people wrote them in decimal: 1e-5 has to come back as 1e-5 and not as 9.9999997e-06. */
static double shortest_decimal(double v)
{
    char text[40];

    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if ((float)strtod(text, NULL) == (float)v)
            return strtod(text, NULL);
    }
    return v;
}

static dlc_err maybe_real(double *out, const dlc_gguf_model *m, const char *name)
{
    char key[KEY_BYTES];

    make_key(key, m, name);
    if (!dlc_gguf_has(m->file, key))
        return DLC_OK;
    DLC_TRY(dlc_gguf_get_real(out, m->file, key));
    *out = shortest_decimal(*out);
    return DLC_OK;
}

static dlc_err refuse(const dlc_gguf_model *m, const char *name)
{
    return dlc_fail(DLC_EINPUT, "%s: \"%s.%s\" asks for something that is not computed here", dlc_gguf_where(m->file),
                    m->architecture, name);
}

/* Keys that change the function, and the values with which they do not. */
static dlc_err check_switches(const dlc_gguf_model *m)
{
    static const struct {
        const char *name;
        double harmless, also;
    } numbers[] = {
        { "expert_count", 0, 0 },      { "attention.sliding_window", 0, 0 }, { "rope.scaling.factor", 1, 0 },
        { "rope.scale_linear", 1, 0 }, { "attention.scale", 0, 0 },          { "logit_scale", 0, 1 },
        { "residual_scale", 0, 1 },    { "embedding_scale", 0, 1 },
    };
    struct dlc_gguf_text scaling;
    char key[KEY_BYTES];
    bool causal;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double v = numbers[i].harmless;

        DLC_TRY(maybe_real(&v, m, numbers[i].name));
        if (v != numbers[i].harmless && v != numbers[i].also)
            return refuse(m, numbers[i].name);
    }
    make_key(key, m, "rope.scaling.type");
    if (dlc_gguf_has(m->file, key)) {
        DLC_TRY(dlc_gguf_get_text(&scaling, m->file, key));
        if (!dlc_gguf_text_is(scaling, "none"))
            return refuse(m, "rope.scaling.type");
    }
    make_key(key, m, "attention.causal");
    if (!dlc_gguf_has(m->file, key))
        return DLC_OK;
    DLC_TRY(dlc_gguf_get_bool(&causal, m->file, key));
    return causal ? DLC_OK : refuse(m, "attention.causal");
}

static dlc_err find_architecture(dlc_gguf_model *m)
{
    struct dlc_gguf_text name;

    DLC_TRY(dlc_gguf_get_text(&name, m->file, "general.architecture"));
    m->config.qk_norm = dlc_gguf_text_is(name, "qwen3");
    m->architecture = m->config.qk_norm ? "qwen3" : "llama";
    if (!dlc_gguf_text_is(name, m->architecture))
        return dlc_fail(DLC_EINPUT, "%s: its architecture is \"%.*s\"; llama and qwen3 can be read",
                        dlc_gguf_where(m->file), name.n > 60 ? 60 : (int)name.n, name.bytes);
    return DLC_OK;
}

static dlc_err read_heads(dlc_gguf_model *m)
{
    struct dlc_model_config *c = &m->config;
    int value_length, rotated;

    DLC_TRY(get_int(&c->n_heads, m, "attention.head_count"));
    c->n_kv_heads = c->n_heads;
    DLC_TRY(maybe_int(&c->n_kv_heads, m, "attention.head_count_kv"));
    c->head_dim = c->d_model / c->n_heads;
    DLC_TRY(maybe_int(&c->head_dim, m, "attention.key_length"));
    value_length = rotated = c->head_dim;
    DLC_TRY(maybe_int(&value_length, m, "attention.value_length"));
    DLC_TRY(maybe_int(&rotated, m, "rope.dimension_count"));
    if (value_length != c->head_dim || rotated != c->head_dim)
        return dlc_fail(DLC_EINPUT,
                        "%s: heads of %d values with %d of them rotated and %d in the values; all have to agree",
                        dlc_gguf_where(m->file), c->head_dim, rotated, value_length);
    return DLC_OK;
}

static dlc_err read_config(dlc_gguf_model *m)
{
    const struct dlc_gguf_tensor *embedding = dlc_gguf_find(m->file, "token_embd.weight");
    struct dlc_model_config *c = &m->config;

    *c = (struct dlc_model_config){ .rope_theta = 10000, .norm_eps = 1e-5, .init_std = 0.02 };
    DLC_TRY(find_architecture(m));
    DLC_TRY(check_switches(m));
    if (!embedding || embedding->n_dims != 2 || embedding->dims[0] > INT_MAX)
        return dlc_fail(DLC_EINPUT, "%s: token_embd.weight is missing or no matrix", dlc_gguf_where(m->file));
    c->vocab_size = (int)embedding->dims[0];
    c->tie_embeddings = !dlc_gguf_find(m->file, "output.weight");
    DLC_TRY(get_int(&c->context, m, "context_length"));
    DLC_TRY(get_int(&c->d_model, m, "embedding_length"));
    DLC_TRY(get_int(&c->n_layers, m, "block_count"));
    DLC_TRY(get_int(&c->d_ffn, m, "feed_forward_length"));
    DLC_TRY(read_heads(m));
    DLC_TRY(maybe_real(&c->norm_eps, m, "attention.layer_norm_rms_epsilon"));
    DLC_TRY(maybe_real(&c->rope_theta, m, "rope.freq_base"));
    if (dlc_model_config_check(c) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "%s", dlc_gguf_where(m->file));
    /* before memory is taken for so many */
    if ((size_t)c->n_layers > dlc_gguf_n_tensors(m->file) / MIN_LAYER_TENSORS)
        return dlc_fail(DLC_EINPUT, "%s: %d layers, but only %zu tensors", dlc_gguf_where(m->file), c->n_layers,
                        dlc_gguf_n_tensors(m->file));
    return DLC_OK;
}

static dlc_err maybe_token(int32_t *out, const dlc_gguf_model *m, const char *key)
{
    int64_t id;

    *out = -1;
    if (!dlc_gguf_has(m->file, key))
        return DLC_OK;
    DLC_TRY(dlc_gguf_get_int(&id, m->file, key, 0, m->config.vocab_size - 1));
    *out = (int32_t)id;
    return DLC_OK;
}

static dlc_err read_tokens(dlc_gguf_model *m)
{
    struct dlc_gguf_text pre;

    DLC_TRY(maybe_token(&m->bos, m, "tokenizer.ggml.bos_token_id"));
    DLC_TRY(maybe_token(&m->eos, m, "tokenizer.ggml.eos_token_id"));
    if (dlc_gguf_has(m->file, "tokenizer.ggml.add_bos_token"))
        return dlc_gguf_get_bool(&m->add_bos, m->file, "tokenizer.ggml.add_bos_token");
    m->add_bos = dlc_gguf_has(m->file, "tokenizer.ggml.pre") &&
                 dlc_gguf_get_text(&pre, m->file, "tokenizer.ggml.pre") == DLC_OK &&
                 dlc_gguf_text_is(pre, DLC__GGUF_PRE_LLAMA3);
    return DLC_OK;
}

/* ---- tensors ---- */

static dlc_err check_tensor(const dlc_gguf_model *m, const struct dlc_param *p)
{
    char name[DLC_GGUF_NAME_BYTES];
    const struct dlc_gguf_tensor *t;

    dlc__gguf_tensor_name(name, p);
    t = dlc_gguf_find(m->file, name);
    if (!t)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\" is missing", dlc_gguf_where(m->file), name);
    if (t->n_dims == p->n_dims && t->dims[0] == p->dims[0] && (p->n_dims == 1 || t->dims[1] == p->dims[1]))
        return DLC_OK;
    return dlc_fail(DLC_EINPUT,
                    "%s: tensor \"%s\" has %" PRIu64 " x %" PRIu64
                    " values in %d dimensions, its keys make it %zu x %zu "
                    "in %d",
                    dlc_gguf_where(m->file), name, t->dims[0], t->n_dims > 1 ? t->dims[1] : 1, t->n_dims, p->dims[0],
                    p->n_dims > 1 ? p->dims[1] : 1, p->n_dims);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* All of the table are there: when the counts agree nothing is left over, otherwise the first that is gets named. */
static dlc_err refuse_others(const dlc_gguf_model *m)
{
    char(*names)[DLC_GGUF_NAME_BYTES];
    dlc_err err = DLC_OK;

    if (dlc_gguf_n_tensors(m->file) == m->n_table)
        return DLC_OK;
    names = dlc_calloc(m->n_table, sizeof *names);
    if (!names)
        return DLC_ENOMEM;
    for (size_t i = 0; i < m->n_table; i++)
        dlc__gguf_tensor_name(names[i], &m->table[i]);
    qsort(names, m->n_table, sizeof *names, by_name);
    for (size_t i = 0; err == DLC_OK && i < dlc_gguf_n_tensors(m->file); i++) {
        const struct dlc_gguf_tensor *t = dlc_gguf_tensor_at(m->file, i);

        if (!bsearch(t->name, names, m->n_table, sizeof *names, by_name))
            err = dlc_fail(DLC_EINPUT, "%s: tensor \"%s\" is not part of this kind of model", dlc_gguf_where(m->file),
                           t->name);
    }
    dlc_free(names);
    return err;
}

static dlc_err check_tensors(dlc_gguf_model *m)
{
    DLC_TRY(dlc_model_params_table(&m->table, &m->n_table, &m->config));
    for (size_t i = 0; i < m->n_table; i++)
        DLC_TRY(check_tensor(m, &m->table[i]));
    DLC_TRY(refuse_others(m));
    m->scratch = dlc_calloc((size_t)m->config.head_dim * (size_t)m->config.d_model, sizeof *m->scratch);
    return m->scratch ? DLC_OK : DLC_ENOMEM;
}

static dlc_err read_tensor(float *out, void *arg, size_t index)
{
    const dlc_gguf_model *m = arg;
    char name[DLC_GGUF_NAME_BYTES];
    const struct dlc_gguf_tensor *t;
    int n_heads = dlc__gguf_heads(&m->config, &m->table[index]);

    dlc__gguf_tensor_name(name, &m->table[index]);
    t = dlc_gguf_find(m->file, name);
    dlc_stored_decode(out, t->type, t->data, t->n_values);
    if (n_heads > 0)
        dlc__gguf_deinterleave(out, m->scratch, &m->config, n_heads);
    return DLC_OK;
}

/* ---- the model ---- */

/* Takes over the file, also on failure. */
static dlc_err create(dlc_gguf_model **out, dlc_gguf_file *file)
{
    dlc_gguf_model *m = dlc_calloc(1, sizeof *m);
    dlc_err err;

    *out = NULL;
    if (!m) {
        dlc_gguf_close(file);
        return DLC_ENOMEM;
    }
    m->file = file;
    DLC_TRY_TO(fail, read_config(m));
    DLC_TRY_TO(fail, check_tensors(m));
    DLC_TRY_TO(fail, read_tokens(m));
    *out = m;
    return DLC_OK;
fail:
    dlc_gguf_model_close(m);
    return err;
}

dlc_err dlc_gguf_model_parse(dlc_gguf_model **out, const void *bytes, size_t size_bytes, const char *where)
{
    dlc_gguf_file *file;

    *out = NULL;
    DLC_TRY(dlc_gguf_parse(&file, bytes, size_bytes, where));
    return create(out, file);
}

dlc_err dlc_gguf_model_open(dlc_gguf_model **out, const char *path)
{
    dlc_gguf_file *file;

    *out = NULL;
    DLC_TRY(dlc_gguf_open(&file, path));
    return create(out, file);
}

void dlc_gguf_model_close(dlc_gguf_model *m)
{
    if (!m)
        return;
    dlc_gguf_close(m->file);
    dlc_free(m->table);
    dlc_free(m->scratch);
    dlc_free(m);
}

struct dlc_model_content dlc_gguf_model_content(dlc_gguf_model *m)
{
    return (struct dlc_model_content){
        .config = m->config, .tensors = { read_tensor, m }, .bos = m->bos, .eos = m->eos, .add_bos = m->add_bos
    };
}

dlc_err dlc_gguf_model_tokenizer(struct dlc_buf *out, const dlc_gguf_model *m)
{
    return dlc__gguf_tokenizer_json(out, m->file, m->bos, m->add_bos);
}
