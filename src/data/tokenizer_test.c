#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/bpe_merge.h"
#include "data/bpe_train.h"
#include "data/bytemap.h"
#include "data/tokenizer.h"
#include "data/tokenizer_internal.h"
#include "data/utf8.h"

#define FIXTURES "tests/fixtures/tokenizer/"

static const char *const files[DLC_N_SPLITS] = { FIXTURES "gpt2.json", FIXTURES "llama3.json" };

#define must(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != DLC_OK)                                                                                          \
            fail_msg("%s", dlc_err_text());                                                                            \
    } while (0)

static dlc_tokenizer *load(const char *path)
{
    dlc_tokenizer *t = NULL;

    must(dlc_tokenizer_load(&t, path));
    return t;
}

static void assert_round_trip(dlc_tokenizer *t, const char *text, size_t n)
{
    struct dlc_buf ids = { 0 }, back = { 0 };

    must(dlc_tokenizer_encode(&ids, t, text, n));
    must(dlc_tokenizer_decode(&back, t, (const int32_t *)(void *)ids.data, ids.len / sizeof(int32_t)));
    assert_int_equal(back.len, n);
    if (n)
        assert_memory_equal(back.data, text, n);
    dlc_buf_fini(&ids);
    dlc_buf_fini(&back);
}

static void stand_ins_are_one_to_one(void **state)
{
    bool used[0x200] = { false };

    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        struct dlc_buf text = { 0 }, back = { 0 };
        char one = (char)byte;
        int c = dlc_bytemap_code_point((unsigned char)byte);
        bool ok;

        assert_false(used[c]);
        used[c] = true;
        must(dlc_bytemap_append(&text, &one, 1));
        must(dlc_bytemap_decode(&back, &ok, text.data, text.len));
        assert_true(ok);
        assert_int_equal(back.len, 1);
        assert_int_equal((unsigned char)back.data[0], byte);
        dlc_buf_fini(&text);
        dlc_buf_fini(&back);
    }
    assert_int_equal(dlc_bytemap_code_point(' '), 0x120);
    assert_int_equal(dlc_bytemap_code_point('\n'), 0x10a);
    assert_int_equal(dlc_bytemap_code_point(0xad), 0x143);
}

static void utf8_is_checked_strictly(void **state)
{
    static const struct {
        const char *bytes;
        size_t valid;
        const char *why;
    } rows[] = {
        { "plain ASCII, long enough for a whole word", 41, "fast path" },
        { "\xc3\xa9", 2, "two bytes" },
        { "\xe2\x82\xac", 3, "three bytes" },
        { "\xf0\x9f\x99\x82", 4, "four bytes" },
        { "\xf4\x8f\xbf\xbf", 4, "the last code point" },
        { "ab\x80", 2, "lone continuation" },
        { "\xc0\xaf", 0, "overlong slash" },
        { "\xe0\x80\xaf", 0, "overlong, three bytes" },
        { "\xed\xa0\x80", 0, "surrogate" },
        { "\xf4\x90\x80\x80", 0, "above U+10FFFF" },
        { "a\xe2\x82", 1, "cut off" },
        { "\xff", 0, "no lead byte" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t valid = dlc_utf8_valid_prefix(rows[i].bytes, strlen(rows[i].bytes));

        if (valid != rows[i].valid)
            fail_msg("%s: %zu valid bytes, expected %zu", rows[i].why, valid, rows[i].valid);
    }
    assert_int_equal(dlc_utf8_count_invalid("a\xff\xfe\xc3\xa9\x80", 6), 3);
}

static void print_ids(const char *label, const int32_t *ids, size_t n)
{
    print_error("%s:", label);
    for (size_t i = 0; i < n; i++)
        print_error(" %d", ids[i]);
    print_error("\n");
}

static void assert_ids(dlc_tokenizer *t, const json_t *expected, const char *text, size_t n, size_t index)
{
    struct dlc_buf ids = { 0 }, want = { 0 };
    const json_t *id;
    size_t i;

    json_array_foreach(expected, i, id)
    {
        int32_t one = (int32_t)json_integer_value(id);

        must(dlc_buf_append(&want, &one, sizeof one));
    }
    must(dlc_tokenizer_encode(&ids, t, text, n));
    if (ids.len != want.len || (ids.len && memcmp(ids.data, want.data, ids.len) != 0)) {
        print_ids("expected", (const int32_t *)(void *)want.data, want.len / 4);
        print_ids("found   ", (const int32_t *)(void *)ids.data, ids.len / 4);
        fail_msg("case %zu: '%s'", index, text);
    }
    dlc_buf_fini(&ids);
    dlc_buf_fini(&want);
}

static void ids_are_those_of_hugging_face(void **state)
{
    json_t *cases = NULL, *row;
    struct dlc_buf raw = { 0 };
    size_t i;

    (void)state;
    must(dlc_file_read(&raw, FIXTURES "cases.json", 1 << 20));
    cases = json_loadb(raw.data, raw.len, JSON_ALLOW_NUL, NULL);
    assert_non_null(cases);
    assert_true(json_array_size(cases) > 50);
    for (int kind = 0; kind < DLC_N_SPLITS; kind++) {
        dlc_tokenizer *t = load(files[kind]);

        for (int pass = 0; pass < 2; pass++) { /* the second finds its words in the cache */
            json_array_foreach(cases, i, row)
            {
                const json_t *text = json_object_get(row, "text");

                assert_ids(t, json_object_get(row, dlc_split_name((dlc_split_kind)kind)), json_string_value(text),
                           json_string_length(text), i);
                assert_round_trip(t, json_string_value(text), json_string_length(text));
            }
        }
        dlc_tokenizer_destroy(t);
    }
    json_decref(cases);
    dlc_buf_fini(&raw);
}

static dlc_tokenizer *train_by_lines(dlc_split_kind split, int vocab_size, int64_t min_count)
{
    struct dlc_buf text = { 0 };
    dlc_bpe_trainer *trainer;
    dlc_tokenizer *t = NULL;
    size_t at = 0;

    must(dlc_file_read(&text, FIXTURES "train.txt", 1 << 20));
    must(dlc_bpe_trainer_create(&trainer, split));
    while (at < text.len) {
        size_t n = (size_t)((char *)memchr(text.data + at, '\n', text.len - at) - (text.data + at)) + 1;

        must(dlc_bpe_trainer_feed(trainer, text.data + at, n));
        at += n;
    }
    must(dlc_bpe_trainer_finish(&t, trainer, vocab_size, min_count));
    dlc_bpe_trainer_destroy(trainer);
    dlc_buf_fini(&text);
    return t;
}

static void assert_same_model(const json_t *ours, const json_t *theirs)
{
    json_t *a = json_object_get(json_object_get(ours, "model"), "merges");
    json_t *b = json_object_get(json_object_get(theirs, "model"), "merges");

    assert_int_equal(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); i++) {
        if (!json_equal(json_array_get(a, i), json_array_get(b, i)))
            fail_msg("merge %zu is \"%s\" + \"%s\", expected \"%s\" + \"%s\"", i,
                     json_string_value(json_array_get(json_array_get(a, i), 0)),
                     json_string_value(json_array_get(json_array_get(a, i), 1)),
                     json_string_value(json_array_get(json_array_get(b, i), 0)),
                     json_string_value(json_array_get(json_array_get(b, i), 1)));
    }
    assert_true(json_equal(ours, theirs)); /* ids and every other member: the file is the one that loads there */
}

static void trainer_makes_the_merges_of_hugging_face(void **state)
{
    static const int vocab[DLC_N_SPLITS] = { 700, 640 };

    (void)state;
    for (int kind = 0; kind < DLC_N_SPLITS; kind++) {
        dlc_tokenizer *t = train_by_lines((dlc_split_kind)kind, vocab[kind], 1);
        struct dlc_buf json = { 0 };
        json_t *ours, *theirs;

        must(dlc_tokenizer_to_json(&json, t));
        must(dlc_json_parse(&ours, json.data, json.len, "ours"));
        must(dlc_json_read_file(&theirs, files[kind], 1 << 20));
        assert_same_model(ours, theirs);
        assert_int_equal(dlc_tokenizer_vocab_size(t), vocab[kind]);
        assert_int_equal(dlc_tokenizer_eot(t), 0);
        json_decref(ours);
        json_decref(theirs);
        dlc_buf_fini(&json);
        dlc_tokenizer_destroy(t);
    }
}

static void vocabulary_follows_the_text(void **state)
{
    dlc_bpe_trainer *trainer;
    dlc_tokenizer *t;

    (void)state;
    must(dlc_bpe_trainer_create(&trainer, DLC_SPLIT_GPT2));
    must(dlc_bpe_trainer_feed(trainer, "abab abab xy", 12));
    must(dlc_bpe_trainer_finish(&t, trainer, 5000, 2)); /* ab, abab; " abab" once, xy once */
    assert_int_equal(dlc_tokenizer_vocab_size(t), 257 + 2);
    dlc_tokenizer_destroy(t);
    dlc_bpe_trainer_destroy(trainer);

    must(dlc_bpe_trainer_create(&trainer, DLC_SPLIT_GPT2));
    assert_int_equal(dlc_bpe_trainer_finish(&t, trainer, 256, 1), DLC_EUSAGE);
    assert_null(t);
    dlc_bpe_trainer_destroy(trainer);

    must(dlc_bpe_trainer_create(&trainer, DLC_SPLIT_LLAMA3)); /* nothing fed */
    must(dlc_bpe_trainer_finish(&t, trainer, 300, 1));
    assert_int_equal(dlc_tokenizer_vocab_size(t), 257);
    assert_round_trip(t, "bytes only", 10);
    dlc_tokenizer_destroy(t);
    dlc_bpe_trainer_destroy(trainer);
}

static void any_bytes_come_back(void **state)
{
    struct dlc_rng rng = { .seed = 5 };
    char bytes[600];

    (void)state;
    for (int kind = 0; kind < DLC_N_SPLITS; kind++) {
        dlc_tokenizer *t = load(files[kind]);

        for (int repeat = 0; repeat < 300; repeat++) {
            size_t n = (size_t)dlc_rng_below(&rng, sizeof bytes);
            uint64_t range = repeat % 3 == 0 ? 256 : repeat % 3 == 1 ? 0x80 : 4; /* noise, text, long runs */

            for (size_t i = 0; i < n; i++)
                bytes[i] = (char)(dlc_rng_below(&rng, range) + (range == 4 ? 0xdf : 0));
            assert_round_trip(t, bytes, n);
        }
        dlc_tokenizer_destroy(t);
    }
}

/* A quadratic merge would take hours here. */
static void a_word_of_a_million_letters(void **state)
{
    enum { N = 1000000 };
    char *text = dlc_alloc(N);
    dlc_tokenizer *t = load(files[0]);
    dlc_bpe_trainer *trainer;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < N; i++)
        text[i] = "thestandoufanea"[dlc_mix64(i) % 15];
    assert_round_trip(t, text, N);
    memset(text, 'a', N);
    assert_round_trip(t, text, N);
    memset(text, ' ', N);
    assert_round_trip(t, text, N);
    memset(text, 0xff, N);
    assert_round_trip(t, text, N);
    dlc_tokenizer_destroy(t);

    for (size_t i = 0; i < N; i++)
        text[i] = "thestandoufanea"[dlc_mix64(i) % 15];
    must(dlc_bpe_trainer_create(&trainer, DLC_SPLIT_GPT2));
    must(dlc_bpe_trainer_feed(trainer, text, N));
    must(dlc_bpe_trainer_finish(&t, trainer, 400, 2));
    assert_int_equal(dlc_tokenizer_vocab_size(t), 400);
    assert_round_trip(t, text, N);
    dlc_tokenizer_destroy(t);
    dlc_bpe_trainer_destroy(trainer);
    dlc_free(text);
}

/* The rule itself: the lowest-ranked merge, leftmost first, until none is left. */
static size_t merge_naively(int32_t *id, const struct dlc_bpe_model *m, const char *piece, size_t n)
{
    for (size_t i = 0; i < n; i++)
        id[i] = m->byte_id[(unsigned char)piece[i]];
    for (;;) {
        const struct dlc_bpe_merge *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            const struct dlc_bpe_merge *merge = dlc_bpe_model_merge(m, id[i], id[i + 1]);

            if (merge && (!best || merge->rank < best->rank)) {
                best = merge;
                at = i;
            }
        }
        if (!best)
            return n;
        id[at] = best->id;
        memmove(&id[at + 1], &id[at + 2], (n - at - 2) * sizeof *id);
        n--;
    }
}

static void short_and_long_merges_follow_the_rule(void **state)
{
    struct dlc_tokenizer_spec spec;
    struct dlc_bpe_scratch scratch = { 0 };
    struct dlc_buf json = { 0 }, ids = { 0 };
    struct dlc_rng rng = { .seed = 11 };

    (void)state;
    must(dlc_file_read(&json, files[0], 1 << 20));
    must(dlc_tokenizer_spec_parse(&spec, json.data, json.len, files[0]));
    for (int repeat = 0; repeat < 4000; repeat++) {
        size_t n = 1 + (size_t)dlc_rng_below(&rng, 90), n_naive; /* the method changes inside this range */
        int32_t naive[90];
        char piece[90];

        for (size_t i = 0; i < n; i++)
            piece[i] = repeat % 4 ? " theandfoursing-"[dlc_rng_below(&rng, 16)] : "ah"[dlc_rng_below(&rng, 2)];
        n_naive = merge_naively(naive, &spec.model, piece, n);
        dlc_buf_clear(&ids);
        must(dlc_bpe_merge_piece(&ids, &scratch, &spec.model, piece, n));
        if (ids.len != n_naive * 4 || memcmp(ids.data, naive, ids.len) != 0)
            fail_msg("'%.*s' (%zu bytes)", (int)n, piece, n);
    }
    dlc_tokenizer_spec_fini(&spec);
    dlc_bpe_scratch_fini(&scratch);
    dlc_buf_fini(&json);
    dlc_buf_fini(&ids);
}

static void special_tokens_are_text_and_decode_to_nothing(void **state)
{
    dlc_tokenizer *t = load(files[0]), *clone;
    struct dlc_buf ids = { 0 }, text = { 0 };
    const int32_t some[] = { 0, 1, 0 }, outside[] = { 1, 700 }, negative[] = { -1 };
    struct dlc_sha256 a, b;

    (void)state;
    must(dlc_tokenizer_encode(&ids, t, "<|endoftext|>", 13));
    for (size_t i = 0; i < ids.len / 4; i++)
        assert_int_not_equal(((int32_t *)(void *)ids.data)[i], dlc_tokenizer_eot(t));
    must(dlc_tokenizer_decode(&text, t, some, 3));
    assert_string_equal(text.data, "!");
    assert_int_equal(dlc_tokenizer_decode(&text, t, outside, 2), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "token id 700 at position 1 is not in the vocabulary (700 tokens)");
    assert_int_equal(dlc_tokenizer_decode(&text, t, negative, 1), DLC_EINPUT);

    must(dlc_tokenizer_digest(&a, t));
    must(dlc_tokenizer_clone(&clone, t));
    dlc_tokenizer_destroy(t); /* the clone keeps what it needs */
    must(dlc_tokenizer_digest(&b, clone));
    assert_true(dlc_sha256_equal(&a, &b));
    assert_round_trip(clone, "still works", 11);
    dlc_tokenizer_destroy(clone);
    dlc_buf_fini(&ids);
    dlc_buf_fini(&text);
}

/* The tokenizer file of the fixture with one member replaced; `path` is "model.dropout" and the like. */
static dlc_err parse_changed(dlc_tokenizer **out, const char *object, const char *key, const char *value)
{
    json_t *root = NULL, *parent;
    char *text;
    dlc_err err;

    must(dlc_json_read_file(&root, files[0], 1 << 20));
    parent = *object ? json_object_get(root, object) : root;
    if (strcmp(value, "delete") == 0) {
        json_object_del(parent, key);
    } else {
        json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);

        assert_non_null(v);
        json_object_set_new(parent, key, v);
    }
    text = dlc_json_dump(root);
    err = dlc_tokenizer_parse(out, text, strlen(text), "t.json");
    dlc_free(text);
    json_decref(root);
    return err;
}

static void what_cannot_be_run_exactly_is_refused(void **state)
{
    static const struct {
        const char *object, *key, *value, *says;
    } rows[] = {
        { "", "normalizer", "{\"type\":\"NFC\"}", "changes the text first" },
        { "", "truncation", "{\"max_length\":512}", "truncates" },
        { "", "decoder", "{\"type\":\"WordPiece\"}", "decoder" },
        { "", "pre_tokenizer", "{\"type\":\"Whitespace\"}", "ByteLevel" },
        { "", "pre_tokenizer", "null", "ByteLevel" },
        { "", "pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "adds a space" },
        { "", "pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}", "not split" },
        { "", "pre_tokenizer",
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,2}\"},"
          "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
          "\"use_regex\":false}]}",
          "split expression" },
        { "", "added_tokens", "[{\"id\":0,\"content\":\"<|endoftext|>\",\"special\":false}]", "not special" },
        { "", "added_tokens", "[{\"id\":700,\"content\":\"<|endoftext|>\",\"special\":true}]", "has id 700" },
        { "", "added_tokens", "[{\"id\":5,\"content\":\"<x>\",\"special\":true}]", "given to two tokens" },
        { "", "added_tokens", "[{\"id\":99999999,\"content\":\"<x>\",\"special\":true}]", "not an integer in" },
        { "", "added_tokens", "7", "not an array" },
        { "", "model", "delete", "\"model\" should be an object" },
        { "model", "type", "\"Unigram\"", "not BPE" },
        { "model", "dropout", "0.1", "dropout" },
        { "model", "end_of_word_suffix", "\"</w>\"", "marks words" },
        { "model", "vocab", "{\"<|endoftext|>\":0,\"a\":1}", "no token for byte 0x00" },
        { "model", "vocab", "{\"a b\":1}", "not in the byte-level alphabet" },
        { "model", "vocab", "{\"a\":1,\"b\":1}", "given to two tokens" },
        { "model", "vocab", "{\"\":1}", "alphabet" },
        { "model", "merges", "delete", "\"merges\" should be an array" },
        { "model", "merges", "[\"a\"]", "not a pair" },
        { "model", "merges", "[[\"a\",\"b\",\"c\"]]", "not a pair" },
        { "model", "merges", "[[\"q\",\"q\"]]", "needs a token that the vocabulary lacks" },
        { "model", "merges", "[\"t h\",[\"t\",\"h\"]]", "twice" },
        { "", "added_tokens", "[{\"id\":700,\"content\":\"<pad>\",\"special\":true}]", "no special token" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlc_tokenizer *t;
        dlc_err err = parse_changed(&t, rows[i].object, rows[i].key, rows[i].value);

        if (err != DLC_EINPUT || !strstr(dlc_err_text(), rows[i].says) || strncmp(dlc_err_text(), "t.json: ", 8) != 0)
            fail_msg("row %zu (%s): code %d, text '%s', expected '%s'", i, rows[i].key, err, err ? dlc_err_text() : "",
                     rows[i].says);
        assert_null(t);
    }
}

static void harmless_members_are_accepted(void **state)
{
    static const struct {
        const char *object, *key, *value;
    } rows[] = {
        { "", "normalizer", "{\"type\":\"Sequence\",\"normalizers\":[]}" },
        { "", "pre_tokenizer", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}" },
        { "", "post_processor", "{\"type\":\"ByteLevel\",\"trim_offsets\":false}" },
        { "model", "type", "delete" },
        { "model", "continuing_subword_prefix", "\"\"" },
        { "model", "dropout", "0.0" },
        { "model", "unk_token", "\"<|endoftext|>\"" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlc_tokenizer *t = NULL;

        if (parse_changed(&t, rows[i].object, rows[i].key, rows[i].value) != DLC_OK)
            fail_msg("%s: %s", rows[i].key, dlc_err_text());
        assert_round_trip(t, "some text\n", 10);
        dlc_tokenizer_destroy(t);
    }
}

static void old_merges_as_strings_give_the_same_ids(void **state)
{
    dlc_tokenizer *new_style = load(files[0]), *old_style = NULL;
    struct dlc_buf old = { 0 }, a = { 0 }, b = { 0 }, text = { 0 };
    json_t *root, *list, *merge;
    size_t i;

    (void)state;
    must(dlc_json_read_file(&root, files[0], 1 << 20));
    list = json_object_get(json_object_get(root, "model"), "merges");
    must(dlc_buf_printf(&old, "[\"#version: 0.2\""));
    json_array_foreach(list, i, merge)
    {
        json_t *s = json_sprintf("%s %s", json_string_value(json_array_get(merge, 0)),
                                 json_string_value(json_array_get(merge, 1)));
        char *quoted = json_dumps(s, JSON_ENCODE_ANY);

        must(dlc_buf_printf(&old, ",%s", quoted));
        free(quoted);
        json_decref(s);
    }
    must(dlc_buf_printf(&old, "]"));
    must(parse_changed(&old_style, "model", "merges", old.data));
    must(dlc_file_read(&text, FIXTURES "train.txt", 1 << 20));
    must(dlc_tokenizer_encode(&a, new_style, text.data, text.len));
    must(dlc_tokenizer_encode(&b, old_style, text.data, text.len));
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    json_decref(root);
    dlc_tokenizer_destroy(new_style);
    dlc_tokenizer_destroy(old_style);
    dlc_buf_fini(&old);
    dlc_buf_fini(&a);
    dlc_buf_fini(&b);
    dlc_buf_fini(&text);
}

static void whole_pieces_win_with_ignore_merges(void **state)
{
    dlc_tokenizer *t = NULL;
    struct dlc_buf ids = { 0 };
    json_t *root;
    char *text;

    (void)state;
    must(dlc_json_read_file(&root, files[0], 1 << 20));
    json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_true());
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "zzz", json_integer(700));
    text = dlc_json_dump(root);
    must(dlc_tokenizer_parse(&t, text, strlen(text), "t.json"));
    must(dlc_tokenizer_encode(&ids, t, "zzz", 3)); /* no merge makes it */
    assert_int_equal(ids.len, 4);
    assert_int_equal(*(int32_t *)(void *)ids.data, 700);
    dlc_free(text);
    json_decref(root);
    dlc_buf_fini(&ids);
    dlc_tokenizer_destroy(t);
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    json_set_alloc_funcs(malloc, free); /* not jansson's: it asserts when its own buffer cannot grow */
    for (uint64_t n = 1;; n++) {
        dlc_tokenizer *t = NULL;
        dlc_err err;

        dlc_mem_fail_at(n);
        err = dlc_tokenizer_load(&t, files[0]);
        dlc_mem_fail_at(0);
        dlc_tokenizer_destroy(t);
        if (err == DLC_OK)
            break;
        assert_int_equal(err, DLC_ENOMEM);
        assert_true(n < 5000);
    }
    json_set_alloc_funcs(dlc_alloc, dlc_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stand_ins_are_one_to_one),
        cmocka_unit_test(utf8_is_checked_strictly),
        cmocka_unit_test(ids_are_those_of_hugging_face),
        cmocka_unit_test(trainer_makes_the_merges_of_hugging_face),
        cmocka_unit_test(vocabulary_follows_the_text),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(a_word_of_a_million_letters),
        cmocka_unit_test(short_and_long_merges_follow_the_rule),
        cmocka_unit_test(special_tokens_are_text_and_decode_to_nothing),
        cmocka_unit_test(what_cannot_be_run_exactly_is_refused),
        cmocka_unit_test(harmless_members_are_accepted),
        cmocka_unit_test(old_merges_as_strings_give_the_same_ids),
        cmocka_unit_test(whole_pieces_win_with_ignore_merges),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };

    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
