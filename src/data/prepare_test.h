/* What the tests of prepare share: files to prepare, and looking at what came out. Include after cmocka.h. */
#ifndef DLC_DATA_PREPARE_TEST_H
#define DLC_DATA_PREPARE_TEST_H

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"
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
static inline const char *at(const char *name)
{
    static char paths[64][DLC_PATH_MAX];
    static int next;
    char *path = paths[next++ % 64];

    must(dlc_path_join(path, folder, name));
    return path;
}

static inline int make_folder(void **state)
{
    (void)state;
    dlc_log_set_level(DLC_LOG_ERROR);
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static inline int clean(void **state)
{
    (void)state;
    must(dlc_remove_tree(folder));
    must(dlc_mkdir_p(folder));
    return 0;
}

static inline void put(const char *name, const void *bytes, size_t n)
{
    char parent[DLC_PATH_MAX];

    snprintf(parent, sizeof parent, "%s", at(name));
    *strrchr(parent, '/') = '\0';
    must(dlc_mkdir_p(parent));
    must(dlc_file_write_atomic(at(name), bytes, n));
}

static inline void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* English-like text of n bytes, the same for the same seed. */
static inline char *make_text(size_t n, uint64_t seed)
{
    static const char *const words[] = { "the",   "sea",  "and",    "a",    "ship",         "of",
                                         "stars", "went", "slowly", "over", "night",        "na\xc3\xafve",
                                         "said",  "1851", "whale,", "it's", "\xe4\xbd\xa0", "end.\n" };
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

static inline struct dlc_prepare_config config_for(const char *const *inputs, size_t n, const char *out)
{
    return (struct dlc_prepare_config){ .inputs = inputs,
                                        .n_inputs = n,
                                        .out = out,
                                        .json_key = "text",
                                        .regex = "gpt2",
                                        .vocab_size = 400,
                                        .val_fraction = 0.1,
                                        .shard_tokens = 100000000,
                                        .bpe_train_bytes = 10 << 20,
                                        .n_threads = 1 };
}

static inline struct dlc_prepare_result prepare_one(const char *input, const char *out)
{
    struct dlc_prepare_config c = config_for(&input, 1, out);
    struct dlc_prepare_result r;

    must(dlc_prepare(&r, &c));
    return r;
}

/* All ids of one split, in the order of the shards in meta.json. */
static inline void read_ids(struct dlc_buf *ids, const char *out, const char *split)
{
    char path[DLC_PATH_MAX];
    struct dlc_buf file = { 0 };
    json_t *meta, *shard;
    size_t i;

    must(dlc_path_join(path, out, "meta.json"));
    must(dlc_json_read_file(&meta, path, 1 << 20));
    json_array_foreach(json_object_get(meta, "shards"), i, shard)
    {
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

static inline dlc_tokenizer *tokenizer_of(const char *out)
{
    char path[DLC_PATH_MAX];
    dlc_tokenizer *t;

    must(dlc_path_join(path, out, "tokenizer.json"));
    must(dlc_tokenizer_load(&t, path));
    return t;
}

/* The text of a split; '|' stands for the document mark when `marks`. */
static inline void read_text(struct dlc_buf *text, const char *out, const char *split, bool marks)
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

static inline json_t *meta_of(const char *out)
{
    char path[DLC_PATH_MAX];
    json_t *meta;

    must(dlc_path_join(path, out, "meta.json"));
    must(dlc_json_read_file(&meta, path, 1 << 20));
    return meta;
}

static inline int64_t meta_int(const char *out, const char *key)
{
    json_t *meta = meta_of(out);
    int64_t n = json_integer_value(json_object_get(meta, key));

    json_decref(meta);
    return n;
}

/* Runs it with standard error in a file, and appends that to `said`. */
static inline void prepare_listening(struct dlc_buf *said, struct dlc_prepare_result *r,
                                     const struct dlc_prepare_config *c)
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

static inline void put_gz(const char *name, const char *text, size_t n, int members)
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

static inline void put_zst(const char *name, const char *text, size_t n)
{
    size_t cap = ZSTD_compressBound(n), size;
    char *packed = dlc_alloc(cap);

    size = ZSTD_compress(packed, cap, text, n, 3);
    assert_false(ZSTD_isError(size));
    put(name, packed, size);
    dlc_free(packed);
}

static inline void put_jsonl(const char *name, int n_documents, uint64_t seed)
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
static inline void put_corpus(void)
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

#define test(f) cmocka_unit_test_setup(f, clean)

#endif
