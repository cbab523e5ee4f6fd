/* Models as GGUF files; their tokenizers are in gguf_tokenizer_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/rng.h"
#include "ckpt/ckpt_test_util.h"
#include "ckpt/gguf_model_internal.h"

static char folder[64];
static char path[DLC_PATH_MAX]; /* of the file under test */

/* Rows of all lengths: 64 and 32 are whole blocks of q8_0, 48 (down) is not. */
static const struct dlc_model_config shape = {
    .vocab_size = 11,
    .n_layers = 2,
    .d_model = 64,
    .n_heads = 4,
    .n_kv_heads = 2,
    .head_dim = 8,
    .d_ffn = 48,
    .context = 32,
    .rope_theta = 500000,
    .norm_eps = 1e-5,
    .init_std = 0.02,
};

static int make_folder(void **state)
{
    (void)state;
    dlc_log_set_level(DLC_LOG_ERROR);
    if (test_make_folder(folder, sizeof folder, "gguf-model") != 0)
        return -1;
    return dlc_path_join(path, folder, "m.gguf");
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

/* A model in memory. */
struct memory {
    float *params;
    struct dlc_param *table;
    size_t n;
};

static dlc_err read_memory(float *out, void *arg, size_t index)
{
    const struct memory *m = arg;

    memcpy(out, m->params + m->table[index].offset, m->table[index].n_values * sizeof *out);
    return DLC_OK;
}

static struct dlc_model_content make_memory(struct memory *m, const struct dlc_model_config *c)
{
    size_t n = dlc_model_n_params(c);

    m->params = dlc_alloc(n * sizeof *m->params);
    assert_non_null(m->params);
    assert_int_equal(dlc_model_params_table(&m->table, &m->n, c), DLC_OK);
    for (size_t i = 0; i < n; i++)
        m->params[i] = (float)dlc_rng_normal(1, 2, i);
    return (struct dlc_model_content){ .config = *c, .tensors = { read_memory, m }, .bos = -1, .eos = -1 };
}

static void free_memory(struct memory *m)
{
    dlc_free(m->params);
    dlc_free(m->table);
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
    assert_true(a->rope_theta == b->rope_theta && a->norm_eps == b->norm_eps);
}

static void expect_tensor(const struct dlc_model_content *back, const struct memory *m, size_t i, dlc_stored type)
{
    static float expected[4096], values[4096];
    static unsigned char bytes[4 * 4096];
    const struct dlc_param *p = &m->table[i];

    assert_true(p->n_values <= 4096);
    type = p->n_dims == 1 ? DLC_STORED_F32 : p->dims[1] % dlc_stored_block_values(type) ? DLC_STORED_F16 : type;
    assert_int_equal(dlc_stored_encode(bytes, type, m->params + p->offset, p->n_values, "t"), DLC_OK);
    dlc_stored_decode(expected, type, bytes, p->n_values);
    assert_int_equal(back->tensors.read(values, back->tensors.arg, i), DLC_OK);
    for (size_t k = 0; k < p->n_values; k++)
        if (values[k] != expected[k])
            fail_msg("%s as %s: value %zu is %g, not %g", p->name, dlc_stored_name(type), k, (double)values[k],
                     (double)expected[k]);
}

static void every_kind_comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct dlc_model_config c = shape;
        struct dlc_model_content content, back;
        dlc_stored type = (dlc_stored)(i / 4);
        struct memory m;
        dlc_gguf_model *g;

        c.tie_embeddings = i & 1;
        c.qk_norm = i & 2;
        content = make_memory(&m, &c);
        content.bos = 3;
        content.eos = 4;
        if (dlc_gguf_model_write(path, &content, type, "n") != DLC_OK || dlc_gguf_model_open(&g, path) != DLC_OK)
            fail_msg("%s: %s", dlc_stored_name(type), dlc_err_text());
        back = dlc_gguf_model_content(g);
        expect_same_config(&back.config, &c);
        for (size_t k = 0; k < m.n; k++)
            expect_tensor(&back, &m, k, type);
        dlc_gguf_model_close(g);
        free_memory(&m);
    }
}

static void expect_int(const dlc_gguf_file *f, const char *key, int64_t expected)
{
    int64_t v;

    if (dlc_gguf_get_int(&v, f, key, 0, INT64_MAX) != DLC_OK || v != expected)
        fail_msg("%s: %s", key, dlc_err_text());
}

static void keys_and_names_are_those_of_llama(void **state)
{
    static const char *const names[] = { "token_embd",   "blk.0.attn_norm",   "blk.0.attn_q",    "blk.0.attn_k",
                                         "blk.0.attn_v", "blk.0.attn_output", "blk.0.ffn_norm",  "blk.0.ffn_gate",
                                         "blk.0.ffn_up", "blk.0.ffn_down",    "blk.1.attn_norm", "output_norm",
                                         "output" };
    struct dlc_gguf_text text;
    struct dlc_model_content content;
    struct memory m;
    dlc_gguf_file *f;
    double real;

    (void)state;
    content = make_memory(&m, &shape);
    assert_int_equal(dlc_gguf_model_write(path, &content, DLC_STORED_Q8_0, "name of it"), DLC_OK);
    assert_int_equal(dlc_gguf_open(&f, path), DLC_OK);
    assert_int_equal(dlc_gguf_get_text(&text, f, "general.architecture"), DLC_OK);
    assert_true(dlc_gguf_text_is(text, "llama"));
    assert_int_equal(dlc_gguf_get_text(&text, f, "general.name"), DLC_OK);
    assert_true(dlc_gguf_text_is(text, "name of it"));
    assert_int_equal(dlc_gguf_get_text(&text, f, "tokenizer.ggml.model"), DLC_OK);
    assert_true(dlc_gguf_text_is(text, "no_vocab"));
    expect_int(f, "general.file_type", 7);
    expect_int(f, "general.quantization_version", 2);
    expect_int(f, "llama.vocab_size", 11);
    expect_int(f, "llama.context_length", 32);
    expect_int(f, "llama.embedding_length", 64);
    expect_int(f, "llama.block_count", 2);
    expect_int(f, "llama.feed_forward_length", 48);
    expect_int(f, "llama.attention.head_count", 4);
    expect_int(f, "llama.attention.head_count_kv", 2);
    expect_int(f, "llama.attention.key_length", 8);
    expect_int(f, "llama.attention.value_length", 8);
    expect_int(f, "llama.rope.dimension_count", 8);
    assert_int_equal(dlc_gguf_get_real(&real, f, "llama.rope.freq_base"), DLC_OK);
    assert_true(real == 500000);
    assert_int_equal(dlc_gguf_get_real(&real, f, "llama.attention.layer_norm_rms_epsilon"), DLC_OK);
    assert_true(real == (double)1e-5f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[DLC_GGUF_NAME_BYTES];
        const struct dlc_gguf_tensor *t;
        bool norm = strstr(names[i], "norm") != NULL, short_rows = strstr(names[i], "down") != NULL;

        snprintf(name, sizeof name, "%s.weight", names[i]);
        t = dlc_gguf_find(f, name);
        if (!t || t->type != (norm ? DLC_STORED_F32 : short_rows ? DLC_STORED_F16 : DLC_STORED_Q8_0))
            fail_msg("%s: %s", name, t ? dlc_stored_name(t->type) : "missing");
    }
    dlc_gguf_close(f);
    free_memory(&m);
}

/* Of each head, GGUF has the rows 0, D/2, 1, D/2 + 1, ... for llama; qwen3 keeps them. */
static void rows_of_queries_and_keys_are_interleaved(void **state)
{
    (void)state;
    for (int qk_norm = 0; qk_norm < 2; qk_norm++) {
        static const int llama_rows[] = { 0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15 };
        static const char *const reordered[] = { "blk.1.attn_q.weight", "blk.1.attn_k.weight" };
        struct dlc_model_config c = shape;
        struct dlc_model_content content;
        struct memory m;
        dlc_gguf_file *f;

        c.qk_norm = qk_norm;
        content = make_memory(&m, &c);
        for (size_t i = 0; i < m.n; i++)
            for (size_t k = 0; k < m.table[i].n_values; k++)
                m.params[m.table[i].offset + k] = (float)(k / 64); /* its row */
        assert_int_equal(dlc_gguf_model_write(path, &content, DLC_STORED_F32, "n"), DLC_OK);
        assert_int_equal(dlc_gguf_open(&f, path), DLC_OK);
        for (size_t k = 0; k < 2; k++)
            for (int row = 0; row < 16; row++) {
                const float *data = dlc_gguf_find(f, reordered[k])->data;

                assert_true(data[row * 64] == (float)(qk_norm ? row : llama_rows[row]) &&
                            data[row * 64 + 63] == data[row * 64]);
            }
        for (int row = 0; row < 16; row++)
            assert_true(((const float *)dlc_gguf_find(f, "blk.1.attn_v.weight")->data)[row * 64] == (float)row);
        dlc_gguf_close(f);
        free_memory(&m);
    }
}

/* ---- files of others ---- */

enum kind { NOTHING, U32, F32, TEXT, BOOL };

/* A file put together by hand: a pair more, or another value for one that is there. */
struct odd {
    const char *why, *key;
    enum kind kind;
    double number;
    const char *word;
    const char *text; /* of the error; NULL: it is read */
};

static void put_pair(struct dlc_gguf_pairs *p, const struct odd *o)
{
    if (o->kind == U32)
        dlc_gguf_put_u32(p, o->key, (uint32_t)o->number);
    else if (o->kind == F32)
        dlc_gguf_put_f32(p, o->key, (float)o->number);
    else if (o->kind == TEXT)
        dlc_gguf_put_text(p, o->key, o->word);
    else if (o->kind == BOOL)
        dlc_gguf_put_bool(p, o->key, o->number != 0);
}

static void put_least(struct dlc_gguf_pairs *p, const struct odd *o)
{
    static const struct odd least[] = {
        { NULL, "general.architecture", TEXT, 0, "llama", NULL },
        { NULL, "llama.context_length", U32, 32, NULL, NULL },
        { NULL, "llama.embedding_length", U32, 64, NULL, NULL },
        { NULL, "llama.block_count", U32, 2, NULL, NULL },
        { NULL, "llama.feed_forward_length", U32, 48, NULL, NULL },
        { NULL, "llama.attention.head_count", U32, 8, NULL, NULL },
    };

    for (size_t i = 0; i < sizeof least / sizeof *least; i++)
        if (strcmp(least[i].key, o->key) != 0)
            put_pair(p, &least[i]);
    put_pair(p, o);
}

static dlc_err read_zeros(float *out, void *arg, size_t index)
{
    (void)out;
    (void)arg;
    (void)index;
    return DLC_OK;
}

/* With only the keys that are needed: 8 heads of 8, as many for keys and values. `change` may alter tensors. */
static dlc_err open_by_hand(const struct odd *o, void (*change)(struct dlc_gguf_write_tensor *t, size_t *n))
{
    const struct dlc_tensor_source source = { read_zeros, NULL };
    struct dlc_gguf_write_tensor tensors[32] = { 0 };
    struct dlc_gguf_pairs pairs = { 0 };
    struct dlc_model_config c = shape;
    struct dlc_param *table;
    dlc_gguf_model *g;
    dlc_err err;
    size_t n;

    c.n_heads = c.n_kv_heads = 8;
    assert_int_equal(dlc_model_params_table(&table, &n, &c), DLC_OK);
    for (size_t i = 0; i < n; i++) {
        dlc__gguf_tensor_name(tensors[i].name, &table[i]);
        tensors[i].n_dims = table[i].n_dims;
        tensors[i].dims[0] = table[i].dims[0];
        tensors[i].dims[1] = table[i].dims[1];
    }
    if (change)
        change(tensors, &n);
    put_least(&pairs, o);
    assert_int_equal(dlc_gguf_write(path, &pairs, tensors, n, &source), DLC_OK);
    err = dlc_gguf_model_open(&g, path);
    dlc_gguf_model_close(g);
    dlc_gguf_pairs_fini(&pairs);
    dlc_free(table);
    return err;
}

static void what_would_compute_something_else_is_refused(void **state)
{
    static const struct odd rows[] = {
        { "the least", "x", NOTHING, 0, NULL, NULL },
        { "no scaling", "llama.rope.scaling.type", TEXT, 0, "none", NULL },
        { "scaled by 1", "llama.rope.scaling.factor", F32, 1, NULL, NULL },
        { "no experts", "llama.expert_count", U32, 0, NULL, NULL },
        { "causal", "llama.attention.causal", BOOL, 1, NULL, NULL },
        { "keys of no interest", "llama.color", TEXT, 0, "blue", NULL },
        { "no architecture", "general.architecture", NOTHING, 0, NULL, "\"general.architecture\" is missing" },
        { "another architecture", "general.architecture", TEXT, 0, "gpt2",
          "its architecture is \"gpt2\"; llama and qwen3 can be read" },
        { "architecture of another kind", "general.architecture", U32, 1, NULL, "of another kind, a text" },
        { "no context", "llama.context_length", NOTHING, 0, NULL, "\"llama.context_length\" is missing" },
        { "context 0", "llama.context_length", U32, 0, NULL, "\"llama.context_length\" is 0" },
        { "real layers", "llama.block_count", F32, 2, NULL, "of another kind, an integer" },
        { "many layers", "llama.block_count", U32, 1000, NULL, "1000 layers, but only 21 tensors" },
        { "layers beyond int", "llama.block_count", U32, 4294967295.0, NULL, "is 4294967295, it must lie in" },
        { "a layer less", "llama.block_count", U32, 1, NULL, "tensor \"blk.1.attn_norm.weight\" is not part of" },
        { "other width", "llama.embedding_length", U32, 32, NULL,
          "tensor \"token_embd.weight\" has 11 x 64 values in 2 dimensions, its keys make it 11 x 32 in 2" },
        { "kv heads do not divide", "llama.attention.head_count_kv", U32, 3, NULL, "kv_heads 3" },
        { "fewer kv heads", "llama.attention.head_count_kv", U32, 4, NULL, "\"blk.0.attn_k.weight\" has 64 x 64" },
        { "heads of other values", "llama.attention.value_length", U32, 16, NULL, "heads of 8 values with 8 of them" },
        { "half a head rotated", "llama.rope.dimension_count", U32, 4, NULL, "with 4 of them rotated" },
        { "scaled positions", "llama.rope.scaling.type", TEXT, 0, "yarn", "\"llama.rope.scaling.type\" asks for" },
        { "scaled by 8", "llama.rope.scaling.factor", F32, 8, NULL, "\"llama.rope.scaling.factor\" asks for" },
        { "scaled the old way", "llama.rope.scale_linear", F32, 2, NULL, "\"llama.rope.scale_linear\" asks for" },
        { "experts", "llama.expert_count", U32, 8, NULL, "\"llama.expert_count\" asks for" },
        { "window", "llama.attention.sliding_window", U32, 4096, NULL, "\"llama.attention.sliding_window\" asks" },
        { "both ways", "llama.attention.causal", BOOL, 0, NULL, "\"llama.attention.causal\" asks for" },
        { "scaled logits", "llama.logit_scale", F32, 0.5, NULL, "\"llama.logit_scale\" asks for" },
        { "negative base", "llama.rope.freq_base", F32, -1, NULL, "rope_theta" },
        { "token outside", "tokenizer.ggml.eos_token_id", U32, 11, NULL, "is 11, it must lie in 0..10" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlc_err err = open_by_hand(&rows[i], NULL);

        if (err != (rows[i].text ? DLC_EINPUT : DLC_OK) || (rows[i].text && !strstr(dlc_err_text(), rows[i].text)))
            fail_msg("%s: error %d, text: %s", rows[i].why, err, err ? dlc_err_text() : "");
        if (rows[i].text && strncmp(dlc_err_text(), path, strlen(path)) != 0)
            fail_msg("%s: the file is not named: %s", rows[i].why, dlc_err_text());
    }
}

static void drop_last(struct dlc_gguf_write_tensor *t, size_t *n)
{
    (void)t;
    (*n)--;
}

static void drop_norm(struct dlc_gguf_write_tensor *t, size_t *n)
{
    (*n)--;
    memmove(t + 1, t + 2, (*n - 1) * sizeof *t);
}

static void add_frequencies(struct dlc_gguf_write_tensor *t, size_t *n)
{
    t[(*n)++] = (struct dlc_gguf_write_tensor){ "rope_freqs.weight", DLC_STORED_F32, 1, { 4 } };
}

static void turn_gate(struct dlc_gguf_write_tensor *t, size_t *n)
{
    for (size_t i = 0; i < *n; i++) {
        if (strcmp(t[i].name, "blk.0.ffn_gate.weight") == 0) {
            t[i].dims[0] = 64;
            t[i].dims[1] = 48;
        }
    }
}

static void flatten_embedding(struct dlc_gguf_write_tensor *t, size_t *n)
{
    (void)n;
    t[0].n_dims = 1;
}

static void tensors_that_do_not_fit_are_refused(void **state)
{
    static const struct odd least = { "", "x", NOTHING, 0, NULL, NULL };
    static const struct {
        void (*change)(struct dlc_gguf_write_tensor *t, size_t *n);
        const char *text; /* NULL: it is read */
    } rows[] = {
        { drop_last, NULL }, /* the head: it is tied then */
        { drop_norm, "tensor \"blk.0.attn_norm.weight\" is missing" },
        { add_frequencies, "tensor \"rope_freqs.weight\" is not part of this kind of model" },
        { turn_gate, "\"blk.0.ffn_gate.weight\" has 64 x 48 values in 2 dimensions, its keys make it 48 x 64 in 2" },
        { flatten_embedding, "token_embd.weight is missing or no matrix" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlc_err err = open_by_hand(&least, rows[i].change);

        if (err != (rows[i].text ? DLC_EINPUT : DLC_OK) || (rows[i].text && !strstr(dlc_err_text(), rows[i].text)))
            fail_msg("row %zu: error %d, text: %s", i, err, err ? dlc_err_text() : "");
    }
}

/* ---- memory ---- */

static dlc_err write_it(void *arg)
{
    return dlc_gguf_model_write(path, arg, DLC_STORED_F16, "n");
}

static dlc_err read_it(void *arg)
{
    dlc_gguf_model *g;

    (void)arg;
    DLC_TRY(dlc_gguf_model_open(&g, path));
    dlc_gguf_model_close(g);
    return DLC_OK;
}

static void any_allocation_may_fail(void **state)
{
    struct dlc_model_content content;
    struct memory m;

    (void)state;
    content = make_memory(&m, &shape);
    assert_true(test_walk_allocations(write_it, &content) > 5);
    assert_true(test_walk_allocations(read_it, NULL) > 5);
    free_memory(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back),
        cmocka_unit_test(keys_and_names_are_those_of_llama),
        cmocka_unit_test(rows_of_queries_and_keys_are_interleaved),
        cmocka_unit_test(what_would_compute_something_else_is_refused),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(any_allocation_may_fail),
    };

    return cmocka_run_group_tests_name("gguf_model", tests, make_folder, remove_folder);
}
