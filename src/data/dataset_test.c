#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/meta.h"
#include "data/permute.h"
#include "data/shard.h"

#define VOCAB 1000

#define must(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != DLC_OK)                                                                                          \
            fail_msg("%s", dlc_err_text());                                                                            \
    } while (0)

static char folder[] = "/tmp/dlc-dataset-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[DLC_PATH_MAX];

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

/* Shard number `shard` of a set: its token i is (100 * shard + i) mod VOCAB, so that every place can be recognised. */
static const struct {
    const char *name;
    bool val;
    int source;
    uint64_t n_tokens;
} set[] = {
    { "d_train_000000.bin", false, 0, 101 }, { "d_train_000001.bin", false, 0, 37 },
    { "d_train_000002.bin", false, 1, 64 },  { "d_train_000003.bin", false, 2, 5 },
    { "d_val_000000.bin", true, 0, 45 },     { "d_val_000001.bin", true, 1, 20 },
};
#define N_SHARDS (sizeof set / sizeof *set)

static uint64_t write_shard(const char *path, int width, uint64_t n_tokens, uint64_t first)
{
    size_t size = DLC_SHARD_HEADER_BYTES + n_tokens * (size_t)width;
    unsigned char *bytes = dlc_calloc(1, size);
    uint64_t xxh3;

    assert_non_null(bytes);
    dlc_shard_header_write(bytes, (struct dlc_shard_header){ .width = width, .n_tokens = n_tokens });
    for (uint64_t i = 0; i < n_tokens; i++) {
        uint32_t token = (uint32_t)((first + i) % VOCAB);

        memcpy(bytes + DLC_SHARD_HEADER_BYTES + i * (uint64_t)width, &token, (size_t)width);
    }
    xxh3 = dlc_xxh64(bytes + DLC_SHARD_HEADER_BYTES, size - DLC_SHARD_HEADER_BYTES);
    must(dlc_file_write_atomic(path, bytes, size));
    dlc_free(bytes);
    return xxh3;
}

static void make_set(void)
{
    char sources[3][DLC_LABEL_BYTES] = { "novels", "law", "short" };
    struct dlc_shard_info shards[N_SHARDS];
    struct dlc_data_meta meta = { .vocab_size = VOCAB,
                                  .eot = 0,
                                  .width = 2,
                                  .val_split = "hash",
                                  .val_fraction = 0.1,
                                  .n_documents = 3,
                                  .n_bytes = 1000,
                                  .sources = sources,
                                  .n_sources = 3,
                                  .shards = shards,
                                  .n_shards = N_SHARDS };

    must(dlc_remove_tree(folder));
    must(dlc_mkdir_p(folder));
    must(dlc_file_write_atomic(in_folder("tokenizer.json"), "{}", 2));
    meta.tokenizer_digest = dlc_sha256("{}", 2);
    for (size_t i = 0; i < N_SHARDS; i++) {
        shards[i] = (struct dlc_shard_info){
            .val = set[i].val, .source = set[i].source, .n_tokens = set[i].n_tokens, .n_bytes = 4 * set[i].n_tokens
        };
        snprintf(shards[i].name, sizeof shards[i].name, "%s", set[i].name);
        shards[i].xxh3 = write_shard(in_folder(set[i].name), 2, set[i].n_tokens, 100 * i);
    }
    must(dlc_data_meta_write(in_folder("meta.json"), &meta));
}

static dlc_dataset *open_set(int context, dlc_deal deal, uint64_t seed)
{
    dlc_dataset *d = NULL;

    must(dlc_dataset_open(&d, folder, context, deal, seed));
    return d;
}

static void permutation_of_any_length(void **state)
{
    static const uint64_t lengths[] = { 1,  2,  3,   4,    5,    7,    15,   16,   17,   63,
                                        64, 65, 255, 1000, 1023, 1024, 1025, 4097, 65537 };

    (void)state;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        uint64_t n = lengths[k], n_fixed = 0;
        unsigned char *seen = dlc_calloc(n, 1);

        for (uint64_t i = 0; i < n; i++) {
            uint64_t j = dlc_permute(i, n, 77);

            if (j >= n || seen[j])
                fail_msg("n = %llu: %llu -> %llu, %s", (unsigned long long)n, (unsigned long long)i,
                         (unsigned long long)j, j >= n ? "outside" : "a second time");
            seen[j] = 1;
            n_fixed += j == i;
        }
        if (n >= 255)
            assert_true(n_fixed < 12); /* a random permutation has one on average */
        dlc_free(seen);
    }
    for (uint64_t i = 0; i < 1000; i++) /* large ones: stays inside, and back is not needed */
        assert_true(dlc_permute(i, UINT64_C(0x1000000000001), 3) < UINT64_C(0x1000000000001));
}

/* Which window of which shard the sample is, checked token by token. */
static uint64_t locate(const int32_t *tokens, const int32_t *targets, int context)
{
    uint64_t first = (uint64_t)tokens[0];

    for (int i = 0; i < context; i++) {
        assert_int_equal(tokens[i], (first + (uint64_t)i) % VOCAB);
        assert_int_equal(targets[i], (first + (uint64_t)i + 1) % VOCAB);
    }
    return first;
}

static void an_epoch_has_every_window_once(void **state)
{
    enum { T = 9 };
    int32_t tokens[T], targets[T];
    dlc_dataset *d;
    uint64_t n;

    (void)state;
    make_set();
    d = open_set(T, DLC_DEAL_IID, 1);
    n = dlc_dataset_pool_windows(d, 0);
    assert_int_equal(dlc_dataset_n_pools(d), 1);
    assert_string_equal(dlc_dataset_pool_name(d, 0), "all");
    assert_int_equal(n, 100 / T + 36 / T + 63 / T + 4 / T);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[VOCAB] = { false };

        for (uint64_t k = 0; k < n; k++) {
            uint64_t first;

            dlc_dataset_sample(d, 0, epoch * n + k, tokens, targets);
            first = locate(tokens, targets, T);
            assert_int_equal(first % 100 % T, 0);
            assert_false(seen[first]);
            seen[first] = true;
        }
    }
    dlc_dataset_close(d);
}

static void order_depends_on_the_seed_alone(void **state)
{
    enum { T = 4, N = 120 };
    int32_t a[T], b[T], targets[T];
    dlc_dataset *first, *again, *other;
    int n_same_seed = 0, n_other_seed = 0, n_next_epoch = 0;
    uint64_t n;

    (void)state;
    make_set();
    first = open_set(T, DLC_DEAL_IID, 5);
    again = open_set(T, DLC_DEAL_IID, 5);
    other = open_set(T, DLC_DEAL_IID, 6);
    n = dlc_dataset_pool_windows(first, 0);
    for (uint64_t k = N; k-- > 0;) { /* backwards: no state */
        dlc_dataset_sample(first, 0, k, a, targets);
        dlc_dataset_sample(again, 0, k, b, targets);
        n_same_seed += memcmp(a, b, sizeof a) == 0;
        dlc_dataset_sample(other, 0, k, b, targets);
        n_other_seed += memcmp(a, b, sizeof a) == 0;
        dlc_dataset_sample(first, 0, k + n, b, targets);
        n_next_epoch += memcmp(a, b, sizeof a) == 0;
    }
    assert_int_equal(n_same_seed, N);
    assert_true(n_other_seed < 15);
    assert_true(n_next_epoch < 15);
    dlc_dataset_close(first);
    dlc_dataset_close(again);
    dlc_dataset_close(other);
}

static void pools_by_source(void **state)
{
    enum { T = 9 };
    int32_t tokens[T], targets[T];
    dlc_dataset *d;

    (void)state;
    make_set();
    d = open_set(T, DLC_DEAL_SOURCE, 1);
    assert_int_equal(dlc_dataset_n_pools(d), 2); /* "short" has no window of 10 */
    assert_string_equal(dlc_dataset_pool_name(d, 0), "novels");
    assert_string_equal(dlc_dataset_pool_name(d, 1), "law");
    assert_int_equal(dlc_dataset_pool_windows(d, 1), 7);
    for (uint64_t k = 0; k < 30; k++) {
        dlc_dataset_sample(d, 1, k, tokens, targets);
        assert_in_range(locate(tokens, targets, T), 200, 263);
        dlc_dataset_sample(d, 0, k, tokens, targets);
        assert_in_range(locate(tokens, targets, T), 0, 136);
    }
    dlc_dataset_close(d);
}

static void context_longer_than_the_text(void **state)
{
    dlc_dataset *d;

    (void)state;
    make_set();
    assert_int_equal(dlc_dataset_open(&d, folder, 101, DLC_DEAL_IID, 1), DLC_EINPUT);
    assert_non_null(
        strstr(dlc_err_text(), "a context of 101 needs 102 tokens in a row; there are 101, and 207 in all"));
    assert_non_null(strstr(dlc_err_text(), "largest context that works is 100"));
    assert_null(d);
    d = open_set(100, DLC_DEAL_SOURCE, 1); /* it does work */
    assert_int_equal(dlc_dataset_n_pools(d), 1);
    dlc_dataset_close(d);
    assert_int_equal(dlc_dataset_open(&d, folder, 0, DLC_DEAL_IID, 1), DLC_EUSAGE);
}

static void validation_windows(void **state)
{
    static const struct {
        int context;
        uint64_t max_tokens, n_windows;
        int seq_len;
        const char *why;
    } rows[] = {
        { 10, 0, 6, 10, "64 targets: 6 windows, across the border of two shards" },
        { 32, 0, 2, 32, "exactly all" },
        { 10, 25, 2, 10, "a part" },
        { 10, 5, 1, 10, "one window at least" },
        { 64, 0, 1, 64, "one window, all of it" },
        { 100, 0, 1, 64, "shortened" },
    };

    (void)state;
    make_set();
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        dlc_dataset *d = open_set(rows[r].context, DLC_DEAL_IID, 1);
        struct dlc_val_set v;
        int32_t tokens[100], targets[100];
        uint64_t before = 0;

        must(dlc_dataset_val_set(&v, d, rows[r].max_tokens));
        if (v.n_windows != rows[r].n_windows || v.seq_len != rows[r].seq_len)
            fail_msg("%s: %llu windows of %d", rows[r].why, (unsigned long long)v.n_windows, v.seq_len);
        assert_true(v.n_bytes > 0 && v.n_bytes <= 4 * 65);
        if (v.n_windows * (uint64_t)v.seq_len == 64)
            assert_true(v.n_bytes == 4 * 65); /* all targets, all text */
        for (uint64_t w = 0; w < v.n_windows; w++) {
            uint64_t start = w * 6 / v.n_windows * 10; /* for T = 10 */

            dlc_dataset_val_window(d, &v, w, tokens, targets);
            if (rows[r].context == 10)
                assert_int_equal(tokens[0], start < 45 ? 400 + start : 500 + start - 45);
            for (int i = 0; i + 1 < v.seq_len; i++)
                assert_int_equal(targets[i], tokens[i + 1]);
            assert_true(w == 0 || (uint64_t)tokens[0] > before);
            before = (uint64_t)tokens[0];
        }
        dlc_dataset_close(d);
    }
}

static void overwrite(const char *name, long at, const void *bytes, size_t n)
{
    FILE *f = fopen(in_folder(name), "r+b");

    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void cut(const char *name, size_t keep)
{
    struct dlc_buf b = { 0 };

    must(dlc_file_read(&b, in_folder(name), 1 << 20));
    must(dlc_file_write_atomic(in_folder(name), b.data, keep));
    dlc_buf_fini(&b);
}

static void append(const char *name, const char *bytes, size_t n)
{
    struct dlc_buf b = { 0 };

    must(dlc_file_read(&b, in_folder(name), 1 << 20));
    must(dlc_buf_append(&b, bytes, n));
    must(dlc_file_write_atomic(in_folder(name), b.data, b.len));
    dlc_buf_fini(&b);
}

static void change_meta(const char *key, const char *value)
{
    json_t *root;

    must(dlc_json_read_file(&root, in_folder("meta.json"), 1 << 20));
    if (value)
        json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(root, key);
    must(dlc_json_write_file(in_folder("meta.json"), root));
    json_decref(root);
}

static void change_shard(const char *key, const char *value)
{
    json_t *root;

    must(dlc_json_read_file(&root, in_folder("meta.json"), 1 << 20));
    json_object_set_new(json_array_get(json_object_get(root, "shards"), 1), key,
                        json_loads(value, JSON_DECODE_ANY, NULL));
    must(dlc_json_write_file(in_folder("meta.json"), root));
    json_decref(root);
}

static void damage(int which)
{
    static const char shard[] = "d_train_000001.bin";
    const uint16_t id = VOCAB + 7, other_id = 3;
    const uint32_t many = 38, few = 36, huge = 0xffffffff, one = 1;

    switch (which) {
    case 0: overwrite(shard, 0, "NOPE", 4); break;
    case 1: overwrite(shard, 4, &many, 4); break;
    case 2: overwrite(shard, 8, &many, 4); break;
    case 3: overwrite(shard, 8, &few, 4); break;
    case 4: overwrite(shard, 8, &huge, 4); break;
    case 5: cut(shard, 1024 + 73); break;
    case 6: cut(shard, 1000); break;
    case 7: cut(shard, 0); break;
    case 8: append(shard, "ab", 2); break;
    case 9: overwrite(shard, 1024 + 2 * 30, &id, 2); break;
    case 10: overwrite(shard, 1024 + 2 * 30, &other_id, 2); break;
    case 11: must(dlc_remove_tree(in_folder(shard))); break;
    case 12: append("tokenizer.json", "\n", 1); break;
    case 13: must(dlc_remove_tree(in_folder("tokenizer.json"))); break;
    case 14: cut("meta.json", 500); break;
    case 15: change_meta("vocab_size", "true"); break;
    case 16: change_meta("vocab_size", "0"); break;
    case 17: change_meta("vocab_size", "120"); break;
    case 18: change_meta("shards", NULL); break;
    case 19: change_meta("version", "2"); break;
    case 20: change_meta("dtype", "\"float16\""); break;
    case 21: change_meta("eot_id", "1000"); break;
    case 22: change_meta("tokenizer_sha256", "\"12\""); break;
    case 23: change_shard("name", "\"../d_train_000001.bin\""); break;
    case 24: change_shard("split", "\"test\""); break;
    case 25: change_shard("source", "\"unheard\""); break;
    case 26: change_shard("tokens", "36"); break;
    case 27: change_shard("xxh3", "\"0123\""); break;
    case 28: change_meta("sources", "[]"); break;
    case 29: change_meta("shards", "[]"); break;
    case 30:
        must(dlc_remove_tree(in_folder("meta.json")));
        overwrite(shard, 4, &one, 1);
        cut(shard, 1030);
        break;
    }
}

static void damage_is_found_and_named(void **state)
{
    static const char *const says[] = {
        "d_train_000001.bin: not a token shard (begins with 1162891086",
        "d_train_000001.bin: not a token shard",
        "d_train_000001.bin: the header says 38 tokens of 2 bytes, the file has 74 bytes of them (truncated)",
        "d_train_000001.bin: the header says 36 tokens of 2 bytes, the file has 74 bytes of them (something was "
        "appended)",
        "more than a shard can have",
        "the header says 37 tokens of 2 bytes, the file has 73 bytes of them (truncated)",
        "d_train_000001.bin: 1000 bytes; a shard has a header of 1024",
        "d_train_000001.bin: not a token shard (empty)",
        "something was appended",
        "d_train_000001.bin: token 30 is 1007, the vocabulary ends at 999",
        "d_train_000001.bin: damaged: XXH3 is",
        "d_train_000001.bin: No such file",
        "tokenizer.json: not the tokenizer that made the shards",
        "tokenizer.json: No such file",
        "meta.json: not valid JSON",
        "meta.json: \"vocab_size\" should be an integer",
        "meta.json: \"vocab_size\" is 0",
        "the vocabulary ends at 119",
        "meta.json: \"shards\" should be an array",
        "version 2, this program reads 'diloco-shards' version 1",
        "dtype 'float16'",
        "\"eot_id\" is 1000",
        "tokenizer_sha256: a SHA-256 has 64",
        "is not a plain file name",
        "split 'test'",
        "source 'unheard'",
        "37 tokens of 2 bytes, meta.json says 36 of 2",
        "\"xxh3\" is not 16",
        "0 sources",
        "no training text",
        "the file has 6 bytes",
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof says / sizeof *says); i++) {
        dlc_dataset *d;
        dlc_err err;

        make_set();
        damage(i);
        err = dlc_dataset_open(&d, folder, 8, DLC_DEAL_IID, 1);
        if ((err != DLC_EINPUT && !(i == 11 && err == DLC_ENOTFOUND)) || !strstr(dlc_err_text(), says[i]))
            fail_msg("row %d: code %d, '%s'; expected '%s'", i, err, err ? dlc_err_text() : "", says[i]);
        assert_null(d);
    }
}

static void what_is_no_folder_of_shards(void **state)
{
    dlc_dataset *d;

    (void)state;
    make_set();
    assert_int_equal(dlc_dataset_open(&d, in_folder("none"), 8, DLC_DEAL_IID, 1), DLC_ENOTFOUND);
    assert_int_equal(dlc_dataset_open(&d, in_folder("meta.json"), 8, DLC_DEAL_IID, 1), DLC_EINPUT);
    must(dlc_mkdir_p(in_folder("empty")));
    assert_int_equal(dlc_dataset_open(&d, in_folder("empty"), 8, DLC_DEAL_IID, 1), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "not a prepared folder"));
    must(dlc_remove_tree(in_folder("meta.json")));
    must(dlc_file_write_atomic(in_folder(".prepare.lock"), "1\n", 2));
    assert_int_equal(dlc_dataset_open(&d, folder, 8, DLC_DEAL_IID, 1), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "prepare did not finish here"));
}

static void shards_of_other_programs(void **state)
{
    int32_t tokens[8], targets[8];
    struct dlc_val_set v;
    dlc_dataset *d;

    (void)state;
    must(dlc_remove_tree(folder));
    must(dlc_mkdir_p(folder));
    write_shard(in_folder("fineweb_train_000001.bin"), 2, 50, 0);
    write_shard(in_folder("fineweb_train_000002.bin"), 4, 50, 100); /* the newer layout */
    write_shard(in_folder("fineweb_val_000000.bin"), 4, 30, 300);
    d = open_set(8, DLC_DEAL_SOURCE, 1);
    assert_int_equal(dlc_dataset_info(d)->vocab_size, 330);
    assert_int_equal(dlc_dataset_info(d)->eot, -1);
    assert_int_equal(dlc_dataset_info(d)->n_train_tokens, 100);
    assert_int_equal(dlc_dataset_info(d)->n_val_bytes, 0);
    assert_string_equal(dlc_dataset_pool_name(d, 0), "fineweb");
    assert_int_equal(dlc_dataset_pool_windows(d, 0), 12);
    for (uint64_t k = 0; k < 12; k++) {
        dlc_dataset_sample(d, 0, k, tokens, targets);
        locate(tokens, targets, 8);
    }
    must(dlc_dataset_val_set(&v, d, 0));
    assert_int_equal(v.n_windows, 3);
    dlc_dataset_val_window(d, &v, 2, tokens, targets);
    assert_int_equal(locate(tokens, targets, 8), 316);
    dlc_dataset_close(d);
}

static void the_digest_names_the_data(void **state)
{
    struct dlc_sha256 first;
    dlc_dataset *d;

    (void)state;
    make_set();
    d = open_set(8, DLC_DEAL_IID, 1);
    first = dlc_dataset_info(d)->digest;
    assert_int_equal(dlc_dataset_info(d)->n_train_tokens, 207);
    assert_int_equal(dlc_dataset_info(d)->n_val_tokens, 65);
    assert_int_equal(dlc_dataset_info(d)->n_val_bytes, 260);
    dlc_dataset_close(d);
    d = open_set(20, DLC_DEAL_SOURCE, 9); /* how it is used does not matter */
    assert_true(dlc_sha256_equal(&first, &dlc_dataset_info(d)->digest));
    dlc_dataset_close(d);
    change_shard("source", "\"law\"");
    d = open_set(8, DLC_DEAL_IID, 1);
    assert_false(dlc_sha256_equal(&first, &dlc_dataset_info(d)->digest));
    dlc_dataset_close(d);
}

static void failed_allocations_are_survived(void **state)
{
    (void)state;
    json_set_alloc_funcs(malloc, free); /* not jansson's: it asserts when its own buffer cannot grow */
    make_set();
    for (uint64_t n = 1;; n++) {
        dlc_dataset *d;
        dlc_err err;

        dlc_mem_fail_at(n);
        err = dlc_dataset_open(&d, folder, 8, DLC_DEAL_SOURCE, 1);
        dlc_mem_fail_at(0);
        dlc_dataset_close(d);
        if (err == DLC_OK)
            break;
        assert_true(n < 200);
    }
    json_set_alloc_funcs(dlc_alloc, dlc_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutation_of_any_length),       cmocka_unit_test(an_epoch_has_every_window_once),
        cmocka_unit_test(order_depends_on_the_seed_alone), cmocka_unit_test(pools_by_source),
        cmocka_unit_test(context_longer_than_the_text),    cmocka_unit_test(validation_windows),
        cmocka_unit_test(damage_is_found_and_named),       cmocka_unit_test(what_is_no_folder_of_shards),
        cmocka_unit_test(shards_of_other_programs),        cmocka_unit_test(the_digest_names_the_data),
        cmocka_unit_test(failed_allocations_are_survived),
    };

    return cmocka_run_group_tests_name("dataset", tests, make_folder, remove_folder);
}
