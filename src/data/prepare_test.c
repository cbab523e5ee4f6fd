#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/prepare.h"
#include "data/tokenizer.h"

#define FIXTURES "tests/fixtures/tokenizer/"

#define must(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != DLC_OK)                                                                                          \
            fail_msg("%s", dlc_err_text());                                                                            \
    } while (0)

static char folder[] = "/tmp/dlc-prepare-XXXXXX";

/* A path in the folder; several are valid at a time. */
static const char *at(const char *name)
{
    static char paths[64][DLC_PATH_MAX];
    static int next;
    char *path = paths[next++ % 64];

    must(dlc_path_join(path, folder, name));
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    dlc_log_set_level(DLC_LOG_ERROR);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    must(dlc_remove_tree(folder));
    must(dlc_mkdir_p(folder));
    return 0;
}

static void put(const char *name, const void *bytes, size_t n)
{
    char parent[DLC_PATH_MAX];

    snprintf(parent, sizeof parent, "%s", at(name));
    *strrchr(parent, '/') = '\0';
    must(dlc_mkdir_p(parent));
    must(dlc_file_write_atomic(at(name), bytes, n));
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* English-like text of n bytes, the same for the same seed. */
static char *make_text(size_t n, uint64_t seed)
{
    static const char *const words[] = { "the", "sea", "and", "a", "ship", "of", "stars", "went", "slowly", "over",
                                         "night", "na\xc3\xafve", "said", "1851", "whale,", "it's", "\xe4\xbd\xa0", "end.\n" };
    char *text = dlc_alloc(n + 32);
    size_t len = 0;

    for (uint64_t i = 0; len < n; i++) {
        uint64_t r = dlc_rng_u64(seed, 0, i);
        const char *word = words[(r & 0xff) * (r >> 8 & 0xff) * (sizeof words / sizeof *words) >> 16];

        len += (size_t)snprintf(text + len, n + 32 - len, "%s%s", len ? " " : "", word);
    }
    text[n] = '\0';
    for (size_t i = n; i-- > 0 && (text[i] & 0x80);) /* no half character at the end */
        text[i] = '.';
    return text;
}

static struct dlc_prepare_config config_for(const char *const *inputs, size_t n, const char *out)
{
    return (struct dlc_prepare_config){ .inputs = inputs, .n_inputs = n, .out = out, .json_key = "text", .regex = "gpt2",
                                        .vocab_size = 400, .val_fraction = 0.1, .shard_tokens = 100000000,
                                        .bpe_train_bytes = 10 << 20, .n_threads = 1 };
}

static struct dlc_prepare_result prepare_one(const char *input, const char *out)
{
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_prepare_result r;

    must(dlc_prepare(&r, &c));
    return r;
}

/* All ids of one split, in the order of the shards in meta.json. */
static void read_ids(struct dlc_buf *ids, const char *out, const char *split)
{
    char path[DLC_PATH_MAX];
    struct dlc_buf file = { 0 };
    json_t *meta, *shard;
    size_t i;

    must(dlc_path_join(path, out, "meta.json"));
    must(dlc_json_read_file(&meta, path, 1 << 20));
    json_array_foreach(json_object_get(meta, "shards"), i, shard) {
        if (strcmp(json_string_value(json_object_get(shard, "split")), split) != 0)
            continue;
        must(dlc_path_join(path, out, json_string_value(json_object_get(shard, "name"))));
        must(dlc_file_read(&file, path, 100 << 20));
        for (size_t k = 1024; k < file.len; k += 2) {
            int32_t id = (unsigned char)file.data[k] | (unsigned char)file.data[k + 1] << 8;

            must(dlc_buf_append(ids, &id, sizeof id));
        }
    }
    json_decref(meta);
    dlc_buf_fini(&file);
}

static dlc_tokenizer *tokenizer_of(const char *out)
{
    char path[DLC_PATH_MAX];
    dlc_tokenizer *t;

    must(dlc_path_join(path, out, "tokenizer.json"));
    must(dlc_tokenizer_load(&t, path));
    return t;
}

/* The text of a split; '|' stands for the document mark when `marks`. */
static void read_text(struct dlc_buf *text, const char *out, const char *split, bool marks)
{
    dlc_tokenizer *t = tokenizer_of(out);
    struct dlc_buf ids = { 0 };

    read_ids(&ids, out, split);
    for (size_t i = 0; i < ids.len / 4; i++) {
        int32_t id = ((int32_t *)(void *)ids.data)[i];

        if (marks && id == dlc_tokenizer_eot(t))
            must(dlc_buf_append(text, "|", 1));
        must(dlc_tokenizer_decode(text, t, &id, 1));
    }
    must(dlc_buf_append(text, "", 0));
    dlc_buf_fini(&ids);
    dlc_tokenizer_destroy(t);
}

static json_t *meta_of(const char *out)
{
    char path[DLC_PATH_MAX];
    json_t *meta;

    must(dlc_path_join(path, out, "meta.json"));
    must(dlc_json_read_file(&meta, path, 1 << 20));
    return meta;
}

static int64_t meta_int(const char *out, const char *key)
{
    json_t *meta = meta_of(out);
    int64_t n = json_integer_value(json_object_get(meta, key));

    json_decref(meta);
    return n;
}

/* Runs it with standard error in a file, and appends that to `said`. */
static void prepare_listening(struct dlc_buf *said, struct dlc_prepare_result *r, const struct dlc_prepare_config *c)
{
    int old = dup(STDERR_FILENO), fd = open(at("said"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dlc_err err;

    dlc_log_set_level(DLC_LOG_INFO);
    dup2(fd, STDERR_FILENO);
    err = dlc_prepare(r, c);
    dup2(old, STDERR_FILENO);
    dlc_log_set_level(DLC_LOG_ERROR);
    close(old);
    close(fd);
    must(err);
    must(dlc_file_read(said, at("said"), 1 << 20));
}

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
        { "a", DLC_EINPUT }, { "ab", DLC_EINPUT }, { "abc", DLC_OK }, { "a b c d", DLC_OK }, { "\n\n\n\n\n\n\n\n", DLC_OK },
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
    memcpy(text + 40, "\n \n", 3); /* not inside white space: the split looks back over it */
    assert_int_equal(dlc_document_cut(text, 64), 64);
}

static void put_gz(const char *name, const char *text, size_t n, int members)
{
    gzFile f;

    put_text(name, "");
    for (int i = 0; i < members; i++) {
        size_t from = n * (size_t)i / (size_t)members, to = n * (size_t)(i + 1) / (size_t)members;

        f = gzopen(at(name), "ab");
        assert_int_equal(gzwrite(f, text + from, (unsigned)(to - from)), to - from);
        assert_int_equal(gzclose(f), Z_OK);
    }
}

static void put_zst(const char *name, const char *text, size_t n)
{
    size_t cap = ZSTD_compressBound(n), size;
    char *packed = dlc_alloc(cap);

    size = ZSTD_compress(packed, cap, text, n, 3);
    assert_false(ZSTD_isError(size));
    put(name, packed, size);
    dlc_free(packed);
}

static void put_jsonl(const char *name, int n_documents, uint64_t seed)
{
    struct dlc_buf lines = { 0 };

    for (int i = 0; i < n_documents; i++) {
        char *text = make_text(100 + dlc_rng_u64(seed, 1, (uint64_t)i) % 400, seed + (uint64_t)i);
        json_t *line = json_pack("{s:s, s:i}", "text", text, "id", i);
        char *s;

        if (i % 3)
            json_object_set_new(line, "source", json_string(i % 3 == 1 ? "web" : "books"));
        s = dlc_json_dump(line);
        must(dlc_buf_printf(&lines, "%s\n", s));
        dlc_free(s);
        dlc_free(text);
        json_decref(line);
    }
    put(name, lines.data, lines.len);
    dlc_buf_fini(&lines);
}

/* Every kind of input, several sources; a few hundred documents. */
static void put_corpus(void)
{
    char *text = make_text(150000, 5);

    put("corpus/top.txt", text, 3000);
    put("corpus/law/b.txt", text + 3000, 5000);
    put("corpus/law/deep/er/a.txt", text + 8000, 9000);
    put_gz("corpus/news/x.txt.gz", text + 17000, 100000, 3);
    put_zst("corpus/news/y.txt.zst", text + 50000, 30000);
    put_jsonl("corpus/mixed/m.jsonl", 300, 9);
    dlc_free(text);
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
    put_text("l.jsonl", "\xef\xbb\xbf{\"story\":\"one\"}\r\n\n  \t\r\n{\"story\":\"t\\u0077o\\n\",\"text\":7}\n{\"story\":\"\"}\n"
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

static void folders_with_loops_and_other_things(void **state)
{
    const char *input = at("f"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_buf said = { 0 };
    struct dlc_prepare_result r;

    (void)state;
    put_text("f/a/text.txt", "a text in a folder that has more in it than text");
    put_text("f/a/.hidden.txt", "hidden");
    put_text("f/b/empty.txt", "");
    put_text("f/b/picture.png", "PNG");
    put("f/b/binary.txt", "with\0zero", 9);
    put("f/b/binary.jsonl", "{\"text\0\":1}", 11);
    put_text("f/b/latin.txt", "caf\xe9 au lait, cr\xe8me");
    assert_int_equal(symlink("..", at("f/a/up")), 0);
    assert_int_equal(symlink(".", at("f/self")), 0);
    assert_int_equal(symlink("nowhere", at("f/dangling.txt")), 0);
    assert_int_equal(symlink("round.txt", at("f/round.txt")), 0);
    assert_int_equal(symlink("../a/text.txt", at("f/b/again.txt")), 0);
    prepare_listening(&said, &r, &c);
    assert_int_equal(r.n_documents, 2);
    assert_int_equal(r.n_skipped, 3 + 1 + 2); /* png and two links, empty, two binaries */
    assert_int_equal(r.n_invalid_utf8, 2);
    assert_non_null(strstr(said.data, "f/a/up: leads back to a folder that was read already"));
    assert_non_null(strstr(said.data, "f/self: leads back"));
    assert_non_null(strstr(said.data, "f/round.txt: a link that leads nowhere"));
    assert_non_null(strstr(said.data, "2 binary files left out"));
    assert_non_null(strstr(said.data, "1 empty files left out"));
    assert_non_null(strstr(said.data, "3 files or folders reached a second time"));
    assert_non_null(strstr(said.data, "2 bytes are not UTF-8"));
    dlc_buf_fini(&said);
}

static void standard_input(void **state)
{
    static const struct {
        const char *bytes, *train;
    } rows[] = {
        { "plain { text } from a pipe", "|plain { text } from a pipe" },
        { "{\"text\": \"one\"}\n{\"text\": \"two\"}\n", "|one|two" },
    };
    const char *input = "-", *out = at("out");
    int old = dup(STDIN_FILENO);

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_prepare_config c = config_for(&input, 1, out);
        struct dlc_prepare_result r;
        struct dlc_buf train = { 0 };
        json_t *meta;
        int fd;

        put_text("in", rows[i].bytes);
        fd = open(at("in"), O_RDONLY);
        dup2(fd, STDIN_FILENO);
        c.val_fraction = 0;
        must(dlc_prepare(&r, &c));
        close(fd);
        read_text(&train, out, "train", true);
        assert_string_equal(train.data, rows[i].train);
        meta = meta_of(out);
        assert_string_equal(json_string_value(json_array_get(json_object_get(meta, "sources"), 0)), "stdin");
        json_decref(meta);
        assert_false(dlc_file_exists(at("out/.stdin.tmp")));
        dlc_buf_fini(&train);
    }
    dup2(old, STDIN_FILENO);
    close(old);
}

static void more_sources_than_pools(void **state)
{
    const char *input = at("s.jsonl"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_buf lines = { 0 }, said = { 0 };
    struct dlc_prepare_result r;
    json_t *meta;

    (void)state;
    for (int i = 0; i < 300; i++)
        must(dlc_buf_printf(&lines, "{\"text\":\"text of %d\",\"source\":\"s%d\"}\n", i, i));
    put("s.jsonl", lines.data, lines.len);
    prepare_listening(&said, &r, &c);
    meta = meta_of(out);
    assert_int_equal(json_array_size(json_object_get(meta, "sources")), 256);
    assert_string_equal(json_string_value(json_array_get(json_object_get(meta, "sources"), 255)), "other");
    assert_non_null(strstr(said.data, "45 documents of further sources are labelled \"other\""));
    json_decref(meta);
    dlc_buf_fini(&lines);
    dlc_buf_fini(&said);
}

static void put_bad_inputs(void)
{
    char *text = make_text(300000, 8);
    struct dlc_buf packed = { 0 };

    put_text("empty.txt", "");
    put("binary.bin", "ELF\0\1\2", 6);
    memset(text + 200000, 0, 1);
    put("late.txt", text, 300000);
    text[200000] = ' ';
    put_gz("good.gz", text, 300000, 1);
    must(dlc_file_read(&packed, at("good.gz"), 1 << 20));
    put("cut.gz", packed.data, packed.len / 2);
    put("cut_trailer.gz", packed.data, packed.len - 3);
    put("cut_head.gz", packed.data, 5);
    packed.data[packed.len / 2] = (char)~packed.data[packed.len / 2];
    put("damaged.gz", packed.data, packed.len);
    packed.data[packed.len / 2] = (char)~packed.data[packed.len / 2];
    must(dlc_buf_append(&packed, "garbage", 7));
    put("tail.gz", packed.data, packed.len);
    put_zst("good.zst", text, 300000);
    must(dlc_file_read(&packed, at("good.zst"), 1 << 20));
    put("cut.jsonl.zst", packed.data, packed.len / 2);
    packed.data[packed.len / 2] = (char)~packed.data[packed.len / 2];
    put("damaged.zst", packed.data, packed.len);
    put_text("nokey.jsonl", "{\"text\":\"fine\"}\n\n{\"txet\":\"typo\"}\n");
    put_text("number.jsonl", "{\"text\":\"fine\"}\n{\"text\":5}\n");
    put_text("array.jsonl", "[1,2]\n");
    put_text("broken.jsonl", "{\"text\":\"fine\"}\n{\"text\":\"fi\n");
    put_text("blank.jsonl", "\n\n\n");
    put_text("nothing.jsonl", "{\"text\":\"\"}\n");
    put_text("pictures/a.png", "PNG");
    put("binaries/a.txt", "\0\0\0", 3);
    must(dlc_mkdir_p(at("hollow")));
    dlc_free(text);
    dlc_buf_fini(&packed);
}

static void bad_input_gets_one_clear_line(void **state)
{
    static const struct {
        const char *input;
        dlc_err err;
        const char *says;
    } rows[] = {
        { "empty.txt", DLC_EINPUT, "empty.txt: empty" },
        { "none.txt", DLC_ENOTFOUND, "none.txt: No such file" },
        { "none*.txt", DLC_ENOTFOUND, "none*.txt: no file matches" },
        { "binary.bin", DLC_EINPUT, "binary.bin: binary, not text: a zero byte at offset 3" },
        { "late.txt", DLC_EINPUT, "late.txt: binary, not text: a zero byte at offset 200000" },
        { "cut.gz", DLC_EINPUT, "cut.gz: truncated: the gzip data stop in the middle, at byte " },
        { "cut_trailer.gz", DLC_EINPUT, "(after 300000 bytes of text)" },
        { "cut_head.gz", DLC_EINPUT, "cut_head.gz: truncated: the gzip data stop in the middle, at byte 5 of the file" },
        { "damaged.gz", DLC_EINPUT, "damaged.gz: damaged gzip data before byte " },
        { "tail.gz", DLC_EINPUT, "something else follows the compressed text" },
        { "cut.jsonl.zst", DLC_EINPUT, NULL }, /* text, not JSON: whichever is noticed first */
        { "damaged.zst", DLC_EINPUT, "damaged.zst: damaged zstd data before byte " },
        { "nokey.jsonl", DLC_EINPUT, "nokey.jsonl, line 3: no key \"text\"" },
        { "number.jsonl", DLC_EINPUT, "number.jsonl, line 2: no string at key \"text\"" },
        { "array.jsonl", DLC_EINPUT, "array.jsonl, line 1: not a JSON object" },
        { "broken.jsonl", DLC_EINPUT, "broken.jsonl, line 2: not JSON" },
        { "blank.jsonl", DLC_EINPUT, "blank.jsonl: no text in it" },
        { "nothing.jsonl", DLC_EINPUT, "nothing.jsonl: no text in it" },
        { "pictures", DLC_EINPUT, "pictures: no text in this folder" },
        { "hollow", DLC_EINPUT, "hollow: no text in this folder" },
        { "binaries", DLC_EINPUT, "no document with text in the input (1 files: 1 binary" },
        { "/dev/null", DLC_EINPUT, "/dev/null: not a file or a folder" },
    };

    (void)state;
    put_bad_inputs();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *input = rows[i].input[0] == '/' ? rows[i].input : at(rows[i].input), *out = at("out");
        struct dlc_prepare_config c = config_for(&input, 1, out);
        struct dlc_prepare_result r;
        dlc_err err = dlc_prepare(&r, &c);

        if (err != rows[i].err || (rows[i].says && !strstr(dlc_err_text(), rows[i].says)))
            fail_msg("%s: code %d, '%s'; expected '%s'", rows[i].input, err, err ? dlc_err_text() : "", rows[i].says);
        assert_false(dlc_file_exists(at("out/meta.json")));
        assert_false(dlc_file_exists(at("out/part-000000.tmp")));
    }
    prepare_one(at("good.gz"), at("out"));
    prepare_one(at("good.zst"), at("out"));
}

static void truncated_zstd_says_where(void **state)
{
    char *text = make_text(300000, 8);
    const char *input = at("cut.txt.zst"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_buf packed = { 0 };
    struct dlc_prepare_result r;

    (void)state;
    put_zst("cut.txt.zst", text, 300000);
    must(dlc_file_read(&packed, at("cut.txt.zst"), 1 << 20));
    put("cut.txt.zst", packed.data, packed.len / 2);
    assert_int_equal(dlc_prepare(&r, &c), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "cut.txt.zst: truncated: the zstd data stop in the middle, at byte "));
    dlc_buf_fini(&packed);
    dlc_free(text);
}

static void wrong_settings(void **state)
{
    const char *input = at("a.txt"), *out = at("out");
    struct dlc_prepare_result r;
    struct dlc_prepare_config c = config_for(&input, 1, out);

    (void)state;
    put_text("a.txt", "a text");
    c.vocab_size = 256;
    assert_int_equal(dlc_prepare(&r, &c), DLC_EUSAGE);
    assert_non_null(strstr(dlc_err_text(), "vocabulary size 256: must be 257"));
    c = config_for(&input, 1, out);
    c.regex = "gpt4";
    assert_int_equal(dlc_prepare(&r, &c), DLC_EUSAGE);
    c = config_for(&input, 1, out);
    c.val_fraction = 1;
    assert_int_equal(dlc_prepare(&r, &c), DLC_EUSAGE);
    c = config_for(&input, 1, out);
    c.shard_tokens = 0;
    assert_int_equal(dlc_prepare(&r, &c), DLC_EUSAGE);
    c = config_for(&input, 0, out);
    assert_int_equal(dlc_prepare(&r, &c), DLC_EUSAGE);
}

static void a_failed_run_leaves_the_finished_folder_usable(void **state)
{
    const char *out = at("out"), *bad = at("bad.jsonl");
    struct dlc_prepare_config c = config_for(&bad, 1, out);
    struct dlc_prepare_result r;
    dlc_dataset *d;
    int fd;

    (void)state;
    put_corpus();
    prepare_one(at("corpus"), out);
    put_text("bad.jsonl", "{\"text\":\"fine\"}\n{}\n");
    assert_int_equal(dlc_prepare(&r, &c), DLC_EINPUT);
    must(dlc_dataset_open(&d, out, 16, DLC_DEAL_IID, 1));
    dlc_dataset_close(d);

    put_text("out/part-000007.tmp", "of a run that was killed");
    prepare_one(at("corpus/law/b.txt"), out);
    assert_false(dlc_file_exists(at("out/part-000007.tmp")));

    must(dlc_lock_take(&fd, at("out/.prepare.lock"))); /* somebody else is at it */
    assert_int_equal(dlc_prepare(&r, &c), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "in use by process"));
    dlc_lock_release(fd);
}

/* In a child, as limits and user ids are the process's. Returns its exit status. */
static int in_child(int (*what)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(what());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A limit on file sizes fails writes as a full disk does. */
static int with_a_full_disk(void)
{
    const char *input = at("big.txt"), *out = at("out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct rlimit limit = { 100000, 100000 };
    struct dlc_prepare_result r;

    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    return dlc_prepare(&r, &c) == DLC_EIO && strstr(dlc_err_text(), "cannot be written: File too large") != NULL &&
           !dlc_file_exists(at("out/part-000000.tmp"));
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
    char *text = make_text(600000, 2);
    dlc_dataset *d;

    (void)state;
    put_text("small.txt", "some text that was prepared before the disk was full");
    prepare_one(at("small.txt"), at("out"));
    put("big.txt", text, 600000);
    assert_int_equal(in_child(with_a_full_disk), 1);
    must(dlc_dataset_open(&d, at("out"), 4, DLC_DEAL_IID, 1));
    dlc_dataset_close(d);
    dlc_free(text);
}

static int as_somebody_else(void)
{
    const char *input = at("secret.txt"), *out = at("open/out");
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_prepare_result r;

    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 77;
    return dlc_prepare(&r, &c) == DLC_EINPUT && strstr(dlc_err_text(), "secret.txt: Permission denied") != NULL;
}

static void unreadable_file(void **state)
{
    int rc;

    (void)state;
    put_text("secret.txt", "a secret");
    must(dlc_mkdir_p(at("open")));
    assert_int_equal(chmod(at("secret.txt"), 0), 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(at("open"), 0777), 0);
    rc = in_child(as_somebody_else);
    if (rc == 77)
        skip();
    assert_int_equal(rc, 1);
}

static void failed_allocations_are_survived(void **state)
{
    const char *input = at("corpus"), *out = at("out");

    (void)state;
    put_text("corpus/a.txt", "a few words, a few more words");
    put_text("corpus/b.jsonl", "{\"text\":\"one more\"}\n");
    for (uint64_t n = 1;; n += 1 + n / 4) {
        struct dlc_prepare_config c = config_for(&input, 1, out);
        struct dlc_prepare_result r;
        dlc_err err;

        dlc_mem_fail_at(n);
        err = dlc_prepare(&r, &c);
        dlc_mem_fail_at(0);
        if (err == DLC_OK)
            break;
        if (err != DLC_ENOMEM)
            fail_msg("allocation %llu: code %d (%s)", (unsigned long long)n, err, dlc_err_text());
        assert_true(n < 100000);
    }
}

#define test(f) cmocka_unit_test_setup(f, clean)

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
        test(folders_with_loops_and_other_things),
        test(standard_input),
        test(more_sources_than_pools),
        test(bad_input_gets_one_clear_line),
        test(truncated_zstd_says_where),
        test(wrong_settings),
        test(a_failed_run_leaves_the_finished_folder_usable),
        test(a_full_disk_leaves_nothing_behind),
        test(unreadable_file),
        test(failed_allocations_are_survived),
    };

    return cmocka_run_group_tests_name("prepare", tests, make_folder, remove_folder);
}
