#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/documents.h"
#include "data/prepare_test.h"

static void two_kilobytes_work_end_to_end(void **state)
{
    char *text = make_text(2000, 1);
    const char *input = at("tiny.txt"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_buf said = { 0 }, train = { 0 }, val = { 0 };
    struct dlc_prepare_result r;
    struct dlc_val_set v;
    dlc_dataset *d;

    (void)state;
    put_text("tiny.txt", text);
    c.vocab_size = 4096;
    c.val_fraction = 0.0005;
    prepare_listening(&said, &r, &c);
    assert_non_null(strstr(said.data, "tokenizer: vocabulary of "));
    assert_non_null(strstr(said.data, " instead of 4096"));
    assert_non_null(strstr(said.data, "validation: a share of 0.0005 of 1 documents is none; the last "));
    assert_non_null(strstr(said.data, "its loss will be a rough figure"));
    assert_in_range(r.vocab_size, 258, 700);
    assert_int_equal(r.n_documents, 1);
    assert_int_equal(r.n_bytes, 2000);

    read_text(&train, out, "train", true);
    read_text(&val, out, "val", true);
    assert_int_equal(train.data[0], '|'); /* the mark stands before a document, and before the tail */
    assert_int_equal(val.data[0], '|');
    assert_memory_equal(train.data + 1, text, train.len - 1);
    assert_string_equal(val.data + 1, text + train.len - 1);
    assert_int_equal(meta_int(out, "val_bytes"), val.len - 1);
    assert_int_equal(meta_int(out, "train_bytes"), train.len - 1);

    must(dlc_dataset_open(&d, out, 16, DLC_DEAL_IID, 1));
    assert_int_equal(dlc_dataset_info(d)->vocab_size, r.vocab_size);
    assert_int_equal(dlc_dataset_info(d)->n_train_tokens, r.n_train_tokens);
    assert_int_equal(dlc_dataset_info(d)->n_val_tokens, r.n_val_tokens);
    must(dlc_dataset_val_set(&v, d, 0));
    dlc_dataset_close(d);
    dlc_buf_fini(&said);
    dlc_buf_fini(&train);
    dlc_buf_fini(&val);
    dlc_free(text);
}

static void shortest_texts(void **state)
{
    static const struct {
        const char *text;
        dlc_err err;
    } rows[] = {
        { "a", DLC_EINPUT },   { "ab", DLC_EINPUT },           { "abc", DLC_OK },
        { "a b c d", DLC_OK }, { "\n\n\n\n\n\n\n\n", DLC_OK },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *input = at("x.txt"), *out = at("out");
        struct dlc_prepare_config c = config_for(&input, 1, out);
        struct dlc_prepare_result r;
        dlc_err err;

        put_text("x.txt", rows[i].text);
        c.vocab_size = 257;
        err = dlc_prepare(&r, &c);
        if (err != rows[i].err)
            fail_msg("'%s': code %d (%s)", rows[i].text, err, dlc_err_text());
        if (err == DLC_OK)
            assert_true(r.n_train_tokens >= 2 && r.n_val_tokens >= 2);
    }
}

/* Longer than the pieces in which text is handled: the ids must be those of the whole. */
static void pieces_of_a_long_text_give_the_ids_of_the_whole(void **state)
{
    static const char *const regexes[] = { "gpt2", "llama3" };
    size_t n = 2 * DLC_PIECE_BYTES + 12345;
    char *text = make_text(n, 3);
    const char *input = at("long.txt"), *out = at("out");

    (void)state;
    put("long.txt", text, n);
    for (int i = 0; i < 2; i++) {
        struct dlc_prepare_config c = config_for(&input, 1, out);
        struct dlc_buf ids = { 0 }, whole = { 0 };
        struct dlc_prepare_result r;
        dlc_tokenizer *t;

        c.regex = regexes[i];
        c.val_fraction = 0;
        c.bpe_train_bytes = 100000;
        must(dlc_prepare(&r, &c));
        assert_int_equal(r.n_val_tokens, 0);
        assert_int_equal(r.n_bytes, n);
        t = tokenizer_of(out);
        must(dlc_tokenizer_encode(&whole, t, text, n));
        read_ids(&ids, out, "train");
        assert_int_equal(ids.len, whole.len + 4);
        assert_memory_equal(ids.data + 4, whole.data, whole.len);
        dlc_tokenizer_destroy(t);
        dlc_buf_fini(&ids);
        dlc_buf_fini(&whole);
    }
    dlc_free(text);
}

static void cuts_keep_characters_whole(void **state)
{
    static const char *const characters[] = { "x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x99\x82", "\x80", "\xff" };
    char text[64];

    (void)state;
    for (size_t c = 0; c < sizeof characters / sizeof *characters; c++) {
        size_t len = strlen(characters[c]);

        for (size_t n = 20; n < 60; n++) {
            size_t cut;

            for (size_t i = 0; i < n; i++)
                text[i] = characters[c][i % len];
            cut = dlc_document_cut(text, n);
            assert_true(cut > n / 2 && cut <= n);
            assert_int_equal(cut % len, 0);
        }
    }
    memset(text, 'x', sizeof text);
    memcpy(text + 40, "a b", 3);
    assert_int_equal(dlc_document_cut(text, 64), 41); /* before the space */
    memcpy(text + 40, "\n \n", 3);                    /* not inside white space: the split looks back over it */
    assert_int_equal(dlc_document_cut(text, 64), 64);
}

static void assert_same_files(const char *a, const char *b)
{
    struct dlc_names in_a, in_b;
    struct dlc_buf x = { 0 }, y = { 0 };
    char path[DLC_PATH_MAX];

    must(dlc_list_folder(&in_a, a));
    must(dlc_list_folder(&in_b, b));
    assert_int_equal(in_a.n, in_b.n);
    for (size_t i = 0; i < in_a.n; i++) {
        assert_string_equal(in_a.names[i], in_b.names[i]);
        if (in_a.names[i][0] == '.')
            continue;
        must(dlc_path_join(path, a, in_a.names[i]));
        must(dlc_file_read(&x, path, 100 << 20));
        must(dlc_path_join(path, b, in_b.names[i]));
        must(dlc_file_read(&y, path, 100 << 20));
        if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0)
            fail_msg("%s differs", in_a.names[i]);
    }
    dlc_names_free(&in_a);
    dlc_names_free(&in_b);
    dlc_buf_fini(&x);
    dlc_buf_fini(&y);
}

static void same_bytes_whatever_the_threads(void **state)
{
    const char *input = at("corpus");
    static const char *const outs[] = { "one/data", "three/data", "again/data" };
    char paths[3][DLC_PATH_MAX];

    (void)state;
    put_corpus();
    for (int i = 0; i < 3; i++) {
        struct dlc_prepare_config c;
        struct dlc_prepare_result r;

        snprintf(paths[i], sizeof paths[i], "%s", at(outs[i]));
        c = config_for(&input, 1, paths[i]);
        c.n_threads = i == 1 ? 3 : 1;
        c.shard_tokens = i == 2 ? 3000 : 8000;
        must(dlc_prepare(&r, &c));
        if (i == 2) { /* over a finished folder with other shards: nothing of it is left */
            c.shard_tokens = 8000;
            must(dlc_prepare(&r, &c));
        }
        assert_int_equal(r.n_documents, 300 + 5);
        assert_int_equal(r.n_skipped, 0);
    }
    assert_same_files(paths[0], paths[1]);
    assert_same_files(paths[0], paths[2]);
}

static void sources_are_labelled(void **state)
{
    static const char *const expected[] = { "corpus", "law", "mixed", "web", "books", "news" };
    const char *input = at("corpus"), *out = at("out");
    json_t *meta, *sources, *shard;
    size_t i;

    (void)state;
    put_corpus();
    prepare_one(input, out);
    meta = meta_of(out);
    sources = json_object_get(meta, "sources");
    for (i = 0; i < sizeof expected / sizeof *expected; i++) {
        bool found = false;

        for (size_t k = 0; k < json_array_size(sources); k++)
            found |= strcmp(json_string_value(json_array_get(sources, k)), expected[i]) == 0;
        if (!found)
            fail_msg("no source %s", expected[i]);
    }
    assert_int_equal(json_array_size(sources), sizeof expected / sizeof *expected);
    json_array_foreach(json_object_get(meta, "shards"), i, shard)
        assert_true(json_integer_value(json_object_get(shard, "tokens")) > 0);
    json_decref(meta);
}

static void labels_of_files_and_globs(void **state)
{
    const char *inputs[] = { at("a.book.txt"), at("g/*.txt.gz") }, *out = at("out");
    struct dlc_prepare_config c = config_for(inputs, 2, out);
    struct dlc_prepare_result r;
    json_t *meta;

    (void)state;
    put_text("a.book.txt", "some text of the first book");
    put_gz("g/two.txt.gz", "some text of the second", 23, 1);
    put_gz("g/one.txt.gz", "and of the third", 16, 1);
    put_text("g/three.txt", "not matched");
    must(dlc_prepare(&r, &c));
    assert_int_equal(r.n_documents, 3);
    meta = meta_of(out);
    assert_string_equal(json_string_value(json_array_get(json_object_get(meta, "sources"), 0)), "a.book");
    assert_string_equal(json_string_value(json_array_get(json_object_get(meta, "sources"), 1)), "one");
    assert_string_equal(json_string_value(json_array_get(json_object_get(meta, "sources"), 2)), "two");
    json_decref(meta);
}

static bool holds_document(const char *all, const char *document)
{
    struct dlc_buf needle = { 0 };
    bool found;

    must(dlc_buf_printf(&needle, "|%s|", document));
    found = strstr(all, needle.data) != NULL;
    dlc_buf_fini(&needle);
    return found;
}

static void validation_documents_stay_the_same(void **state)
{
    const char *input = at("docs"), *out = at("out"), *more = at("more");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_buf first = { 0 }, second = { 0 };
    struct dlc_prepare_result r;
    char *document, *rest;
    int n = 0;

    (void)state;
    put_jsonl("docs/m.jsonl", 200, 21);
    must(dlc_prepare(&r, &c));
    assert_in_range(r.n_val_tokens, 1, r.n_train_tokens / 2);
    read_text(&first, out, "val", true);

    c.out = more;
    c.shard_tokens = 500;
    put_jsonl("docs/a.jsonl", 100, 4000); /* more text before it, another tokenizer, smaller shards */
    must(dlc_prepare(&r, &c));
    read_text(&second, more, "val", true);
    must(dlc_buf_append(&second, "|", 1));
    for (document = strtok_r(first.data, "|", &rest); document; document = strtok_r(NULL, "|", &rest)) {
        if (!holds_document(second.data, document))
            fail_msg("not in validation any more: %s", document);
        n++;
    }
    assert_in_range(n, 8, 40); /* a tenth of 200 */
    dlc_buf_fini(&first);
    dlc_buf_fini(&second);
}

static void json_lines(void **state)
{
    const char *input = at("l.jsonl"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_buf train = { 0 };
    struct dlc_prepare_result r;

    (void)state;
    put_text("l.jsonl",
             "\xef\xbb\xbf{\"story\":\"one\"}\r\n\n  \t\r\n{\"story\":\"t\\u0077o\\n\",\"text\":7}\n{\"story\":\"\"}\n"
             "{\"story\":\"a\xff\"}\n{\"story\":\"b\\ud83d!\"}\n{\"story\":\"\\ud83d\\ude42\\\\ud83d\"}\n"
             "{\"story\":\"last\"}");
    c.json_key = "story";
    c.val_fraction = 0;
    must(dlc_prepare(&r, &c));
    read_text(&train, out, "train", true);
    assert_string_equal(train.data, "|one|two\n|a\xef\xbf\xbd|b\xef\xbf\xbd!|\xf0\x9f\x99\x82\\ud83d|last");
    assert_int_equal(r.n_documents, 6);
    assert_int_equal(r.n_skipped, 1);
    assert_int_equal(r.n_invalid_utf8, 2);
    dlc_buf_fini(&train);
}

static void a_given_tokenizer_is_used_and_kept(void **state)
{
    const char *input = at("a.txt"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_buf a = { 0 }, b = { 0 };
    struct dlc_prepare_result r;

    (void)state;
    put_text("a.txt", "Teandfan gind lasgearlound, thondtea tro. <|endoftext|> is text here.");
    c.tokenizer = FIXTURES "llama3.json";
    must(dlc_prepare(&r, &c));
    assert_int_equal(r.vocab_size, 640);
    must(dlc_file_read(&a, FIXTURES "llama3.json", 1 << 20));
    must(dlc_file_read(&b, at("out/tokenizer.json"), 1 << 20));
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    c.tokenizer = at("none.json");
    assert_int_equal(dlc_prepare(&r, &c), DLC_ENOTFOUND);
    dlc_buf_fini(&a);
    dlc_buf_fini(&b);
}

static void a_large_vocabulary_is_written_in_32_bits(void **state)
{
    const char *input = at("a.txt"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_prepare_result r;
    dlc_dataset *d;
    json_t *root;
    char *json;

    (void)state;
    must(dlc_json_read_file(&root, FIXTURES "gpt2.json", 1 << 20));
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "zzz", json_integer(65535));
    json = dlc_json_dump(root);
    put_text("t.json", json);
    put_text("a.txt", "enough words for a few tokens, and then some more of them");
    c.tokenizer = at("t.json");
    must(dlc_prepare(&r, &c));
    assert_int_equal(r.vocab_size, 65536);
    must(dlc_dataset_open(&d, out, 4, DLC_DEAL_IID, 1));
    dlc_dataset_close(d);
    root = (json_decref(root), meta_of(out));
    assert_string_equal(json_string_value(json_object_get(root, "dtype")), "uint32");
    json_decref(root);
    dlc_free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(two_kilobytes_work_end_to_end),
        test(shortest_texts),
        test(pieces_of_a_long_text_give_the_ids_of_the_whole),
        test(cuts_keep_characters_whole),
        test(same_bytes_whatever_the_threads),
        test(sources_are_labelled),
        test(labels_of_files_and_globs),
        test(validation_documents_stay_the_same),
        test(json_lines),
        test(a_given_tokenizer_is_used_and_kept),
        test(a_large_vocabulary_is_written_in_32_bits),
    };

    return cmocka_run_group_tests_name("prepare", tests, make_folder, remove_folder);
}
