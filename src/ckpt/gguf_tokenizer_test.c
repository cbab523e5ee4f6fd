/* Tokenizers in GGUF files. Reads tests/fixtures/tokenizer: tests run in the root of the tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "ckpt/ckpt_test_util.h"
#include "ckpt/gguf_model_internal.h"
#include "data/bytemap.h"
#include "data/tokenizer.h"

#define FIXTURES "tests/fixtures/tokenizer/"

static char folder[64];
static char path[DLC_PATH_MAX];

static int make_folder(void **state)
{
    (void)state;
    if (test_make_folder(folder, sizeof folder, "gguf-tokenizer") != 0)
        return -1;
    return dlc_path_join(path, folder, "m.gguf");
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static const struct dlc_tensor_source no_tensors = { NULL, NULL };

static dlc_err write_pairs(struct dlc_gguf_pairs *pairs)
{
    dlc_err err = dlc_gguf_write(path, pairs, NULL, 0, &no_tensors);

    dlc_gguf_pairs_fini(pairs);
    return err;
}

/* Only the tokenizer's keys. */
static dlc_err write_tokenizer(const struct dlc_model_content *content)
{
    struct dlc_gguf_pairs pairs = { 0 };
    dlc_err err = dlc__gguf_put_tokenizer(&pairs, content);

    if (err == DLC_OK)
        return write_pairs(&pairs);
    dlc_gguf_pairs_fini(&pairs);
    return err;
}

static dlc_err read_tokenizer(struct dlc_buf *json, bool add_bos)
{
    dlc_gguf_file *f;
    dlc_err err;

    dlc_buf_clear(json);
    DLC_TRY(dlc_gguf_open(&f, path));
    err = dlc__gguf_tokenizer_json(json, f, 0, add_bos);
    dlc_gguf_close(f);
    return err;
}

static void expect_same_ids(dlc_tokenizer *a, dlc_tokenizer *b, const char *text, size_t n)
{
    struct dlc_buf ids_a = { 0 }, ids_b = { 0 };

    assert_int_equal(dlc_tokenizer_encode(&ids_a, a, text, n), DLC_OK);
    assert_int_equal(dlc_tokenizer_encode(&ids_b, b, text, n), DLC_OK);
    if (ids_a.len != ids_b.len || (ids_a.len && memcmp(ids_a.data, ids_b.data, ids_a.len) != 0))
        fail_msg("other ids for: %.60s", text);
    dlc_buf_fini(&ids_a);
    dlc_buf_fini(&ids_b);
}

static void expect_same_tokenizer(const char *json, size_t n_json, const struct dlc_buf *again)
{
    struct dlc_buf raw = { 0 };
    dlc_tokenizer *a, *b;
    json_t *cases, *row;
    size_t i;

    if (dlc_tokenizer_parse(&a, json, n_json, "a") != DLC_OK ||
        dlc_tokenizer_parse(&b, again->data, again->len, "b") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_int_equal(dlc_tokenizer_eot(a), dlc_tokenizer_eot(b));
    assert_int_equal(dlc_tokenizer_vocab_size(a), dlc_tokenizer_vocab_size(b));
    assert_int_equal(dlc_file_read(&raw, FIXTURES "cases.json", 1 << 20), DLC_OK);
    cases = json_loadb(raw.data, raw.len, JSON_ALLOW_NUL, NULL);
    assert_true(json_array_size(cases) > 50);
    json_array_foreach(cases, i, row)
    {
        const json_t *text = json_object_get(row, "text");

        expect_same_ids(a, b, json_string_value(text), json_string_length(text));
    }
    json_decref(cases);
    assert_int_equal(dlc_file_read(&raw, FIXTURES "train.txt", 1 << 20), DLC_OK);
    expect_same_ids(a, b, raw.data, raw.len);
    dlc_tokenizer_destroy(a);
    dlc_tokenizer_destroy(b);
    dlc_buf_fini(&raw);
}

static void expect_unused(int n_tokens, int n_used)
{
    struct dlc_gguf_array tokens, types;
    dlc_gguf_file *f;

    assert_int_equal(dlc_gguf_open(&f, path), DLC_OK);
    assert_int_equal(dlc_gguf_get_texts(&tokens, f, "tokenizer.ggml.tokens"), DLC_OK);
    assert_int_equal(dlc_gguf_get_ints(&types, f, "tokenizer.ggml.token_type"), DLC_OK);
    assert_int_equal(tokens.n, n_tokens);
    assert_int_equal(types.n, n_tokens);
    for (int id = 0; id < n_tokens; id++) {
        struct dlc_gguf_text text = dlc_gguf_next_text(&tokens);
        char unused[32];

        snprintf(unused, sizeof unused, "[PAD%d]", id);
        if (id == 0)
            assert_true(dlc_gguf_text_is(text, "<|endoftext|>"));
        assert_int_equal(dlc_gguf_text_is(text, unused), id >= n_used);
        assert_int_equal(dlc_gguf_next_int(&types), id == 0 ? 3 : id < n_used ? 1 : 5);
    }
    dlc_gguf_close(f);
}

static void both_kinds_come_back(void **state)
{
    static const struct {
        const char *file, *pre;
        int n;
    } rows[] = { { FIXTURES "gpt2.json", "gpt-2", 700 }, { FIXTURES "llama3.json", "llama-bpe", 640 } };
    struct dlc_buf json = { 0 }, again = { 0 };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct dlc_model_content content = { .config.vocab_size = rows[i].n + 3, .bos = 0, .eos = 0 };
        struct dlc_gguf_text pre;
        dlc_gguf_file *f;
        bool add_bos;

        assert_int_equal(dlc_file_read(&json, rows[i].file, 1 << 20), DLC_OK);
        content.tokenizer_json = json.data;
        content.tokenizer_json_bytes = json.len;
        if (write_tokenizer(&content) != DLC_OK || read_tokenizer(&again, false) != DLC_OK)
            fail_msg("%s: %s", rows[i].file, dlc_err_text());
        expect_same_tokenizer(json.data, json.len, &again);
        expect_unused(rows[i].n + 3, rows[i].n);
        assert_int_equal(dlc_gguf_open(&f, path), DLC_OK);
        assert_int_equal(dlc_gguf_get_text(&pre, f, "tokenizer.ggml.pre"), DLC_OK);
        assert_true(dlc_gguf_text_is(pre, rows[i].pre));
        assert_int_equal(dlc_gguf_get_bool(&add_bos, f, "tokenizer.ggml.add_bos_token"), DLC_OK);
        assert_false(add_bos);
        dlc_gguf_close(f);
    }
    dlc_buf_fini(&json);
    dlc_buf_fini(&again);
}

static void a_begin_token_becomes_a_template(void **state)
{
    struct dlc_model_content content = { .config.vocab_size = 700, .bos = 0, .eos = 0, .add_bos = true };
    struct dlc_buf json = { 0 }, again = { 0 };
    const char *type, *id;
    json_t *root;

    (void)state;
    assert_int_equal(dlc_file_read(&json, FIXTURES "gpt2.json", 1 << 20), DLC_OK);
    content.tokenizer_json = json.data;
    content.tokenizer_json_bytes = json.len;
    assert_int_equal(write_tokenizer(&content), DLC_OK);
    assert_int_equal(read_tokenizer(&again, true), DLC_OK);
    assert_int_equal(dlc_json_parse(&root, again.data, again.len, "again"), DLC_OK);
    assert_int_equal(json_unpack(root, "{s:{s:s, s:[{s:{s:s}}]}}", "post_processor", "type", &type, "single",
                                 "SpecialToken", "id", &id),
                     0);
    assert_string_equal(type, "TemplateProcessing");
    assert_string_equal(id, "<|endoftext|>");
    json_decref(root);
    dlc_buf_fini(&json);
    dlc_buf_fini(&again);
}

static void what_does_not_fit_is_not_written(void **state)
{
    static const struct {
        int vocab_size, bos, eos;
        const char *text;
    } rows[] = {
        { 699, 0, 0, "has the id 699, but the model knows 699 tokens" },
        { 700, -1, 0, "they are -1 and 0 of 700" },
        { 700, 0, 700, "they are 0 and 700 of 700" },
    };
    struct dlc_buf json = { 0 };

    (void)state;
    assert_int_equal(dlc_file_read(&json, FIXTURES "gpt2.json", 1 << 20), DLC_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_model_content content = { .config.vocab_size = rows[i].vocab_size,
                                             .bos = rows[i].bos,
                                             .eos = rows[i].eos,
                                             .tokenizer_json = json.data,
                                             .tokenizer_json_bytes = json.len };

        if (write_tokenizer(&content) != DLC_EINPUT || !strstr(dlc_err_text(), rows[i].text))
            fail_msg("row %zu: %s", i, dlc_err_text());
    }
    dlc_buf_fini(&json);
}

/* ---- files of others ---- */

/* The 256 bytes, one special token, a merge; what a row changes. */
struct odd {
    const char *why, *model, *pre;
    int n_types;
    int32_t type_of_last;
    const char *last, *merge; /* NULL: the ordinary one */
    const char *text;         /* of the error; NULL: it is read */
};

static void put_byte(struct dlc_gguf_pairs *p, unsigned char byte)
{
    struct dlc_buf text = { 0 };

    assert_int_equal(dlc_bytemap_append(&text, (const char *)&byte, 1), DLC_OK);
    dlc_gguf_put_element(p, text.data, text.len);
    dlc_buf_fini(&text);
}

static void write_odd(const struct odd *o)
{
    const char *last = o->last ? o->last : "ab", *merge = o->merge ? o->merge : "a b";
    struct dlc_gguf_pairs p = { 0 };
    int32_t types[258];

    for (int i = 0; i < 258; i++)
        types[i] = i == 256 ? 3 : 1;
    types[257] = o->type_of_last ? o->type_of_last : 1;
    if (o->model)
        dlc_gguf_put_text(&p, "tokenizer.ggml.model", o->model);
    if (o->pre)
        dlc_gguf_put_text(&p, "tokenizer.ggml.pre", o->pre);
    dlc_gguf_put_texts(&p, "tokenizer.ggml.tokens", 258);
    for (unsigned byte = 0; byte < 256; byte++)
        put_byte(&p, (unsigned char)byte);
    dlc_gguf_put_element(&p, "<s>", 3);
    dlc_gguf_put_element(&p, last, strlen(last));
    dlc_gguf_put_i32s(&p, "tokenizer.ggml.token_type", types, (size_t)o->n_types);
    dlc_gguf_put_texts(&p, "tokenizer.ggml.merges", 1);
    dlc_gguf_put_element(&p, merge, strlen(merge));
    assert_int_equal(write_pairs(&p), DLC_OK);
}

static void tokenizers_that_cannot_be_run_are_refused(void **state)
{
    static const struct odd rows[] = {
        { "ordinary", "gpt2", "gpt-2", 258, 0, NULL, NULL, NULL },
        { "another name of Llama 3's", "gpt2", "llama-v3", 258, 0, NULL, NULL, NULL },
        { "SentencePiece", "llama", "default", 258, 0, NULL, NULL, "its tokenizer is \"llama\"; only byte-level BPE" },
        { "no model", NULL, "gpt-2", 258, 0, NULL, NULL, "\"tokenizer.ggml.model\" is missing" },
        { "another split", "gpt2", "qwen2", 258, 0, NULL, NULL, "its pre-tokenizer is \"qwen2\"; only gpt-2 and" },
        { "no split", "gpt2", NULL, 258, 0, NULL, NULL, "\"tokenizer.ggml.pre\" is missing" },
        { "types are fewer", "gpt2", "gpt-2", 257, 0, NULL, NULL, "258 tokens, but types of 257" },
        { "cut out of text", "gpt2", "gpt-2", 258, 4, NULL, NULL, "token 257 is of type 4" },
        { "a byte of SentencePiece", "gpt2", "gpt-2", 258, 6, NULL, NULL, "token 257 is of type 6" },
        { "needed by a merge", "gpt2", "gpt-2", 258, 5, NULL, NULL, "needs a token that the vocabulary lacks" },
        { "not UTF-8", "gpt2", "gpt-2", 258, 0, "\xff\xfe", NULL, "unable to decode byte 0xff" },
        { "twice", "gpt2", "gpt-2", 258, 0, "a", NULL, "duplicate" },
        { "no stand-in of a byte", "gpt2", "gpt-2", 258, 0, "a b", NULL, "not in the byte-level alphabet" },
        { "empty", "gpt2", "gpt-2", 258, 0, "", NULL, "not in the byte-level alphabet" },
        { "quoted", "gpt2", "gpt-2", 258, 0, "\"\\", "\" \\", NULL },
        { "control character", "gpt2", "gpt-2", 258, 0, "a\nb", NULL, "not in the byte-level alphabet" },
        { "merge of one", "gpt2", "gpt-2", 258, 0, NULL, "ab", "merge 0 is not a pair" },
        { "merge with nothing", "gpt2", "gpt-2", 258, 0, NULL, " b", "merge 0 is not a pair" },
        { "merge into nothing", "gpt2", "gpt-2", 258, 0, NULL, "a c", "needs a token" },
    };
    struct dlc_buf json = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlc_err err;

        write_odd(&rows[i]);
        err = read_tokenizer(&json, false);
        if (err != (rows[i].text ? DLC_EINPUT : DLC_OK) || (rows[i].text && !strstr(dlc_err_text(), rows[i].text)))
            fail_msg("%s: error %d, text: %s", rows[i].why, err, err ? dlc_err_text() : "");
    }
    write_odd(&(struct odd){ .model = "no_vocab", .n_types = 258 });
    assert_int_equal(read_tokenizer(&json, false), DLC_ENOTFOUND);
    dlc_buf_fini(&json);
}

static dlc_err write_it(void *arg)
{
    return write_tokenizer(arg);
}

static dlc_err read_it(void *arg)
{
    struct dlc_buf json = { 0 };
    dlc_err err = read_tokenizer(&json, true);

    (void)arg;
    dlc_buf_fini(&json);
    return err;
}

/* A splitter does without its fast path when there is no memory for that: such a failure may be passed over. */
static void walk(dlc_err (*fn)(void *arg), void *arg)
{
    uint64_t before = dlc_mem_n_allocs(), n;
    int n_failed = 0;

    assert_int_equal(fn(arg), DLC_OK);
    n = dlc_mem_n_allocs() - before;
    for (uint64_t i = 1; i <= n; i++) {
        dlc_err err;

        dlc_mem_fail_at(i);
        err = fn(arg);
        dlc_mem_fail_at(0);
        if (err != DLC_OK && err != DLC_ENOMEM)
            fail_msg("allocation %d of %d failed: error %d, %s", (int)i, (int)n, err, dlc_err_text());
        n_failed += err != DLC_OK;
    }
    assert_in_range(n_failed, n - 4, n);
}

/* A handful of tokens, so that the walk is short. The rules differ from what the file's name says (ignore_merges). */
static void any_allocation_may_fail(void **state)
{
    struct dlc_model_content content = { .config.vocab_size = 258, .bos = 256, .eos = 256 };
    struct dlc_buf json = { 0 };
    json_t *root;
    char *text;

    (void)state;
    write_odd(&(struct odd){ .model = "gpt2", .pre = "gpt-2", .n_types = 258 });
    walk(read_it, NULL);
    assert_int_equal(read_tokenizer(&json, true), DLC_OK);
    assert_int_equal(dlc_json_parse(&root, json.data, json.len, "x"), DLC_OK);
    assert_int_equal(json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_true()), 0);
    text = dlc_json_dump(root);
    json_decref(root);
    content.tokenizer_json = text;
    content.tokenizer_json_bytes = strlen(text);
    walk(write_it, &content);
    dlc_free(text);
    dlc_buf_fini(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_kinds_come_back),
        cmocka_unit_test(a_begin_token_becomes_a_template),
        cmocka_unit_test(what_does_not_fit_is_not_written),
        cmocka_unit_test(tokenizers_that_cannot_be_run_are_refused),
        cmocka_unit_test(any_allocation_may_fail),
    };

    return cmocka_run_group_tests_name("gguf_tokenizer", tests, make_folder, remove_folder);
}
