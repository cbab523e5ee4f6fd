#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"

static char folder[] = "/tmp/dlc-base-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[DLC_PATH_MAX];

    assert_int_equal(dlc_path_join(path, folder, name), DLC_OK);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static void error_text_keeps_values_and_context(void **state)
{
    (void)state;
    assert_int_equal(dlc_fail(DLC_EINPUT, "%d tokens, %d fit", 5, 4), DLC_EINPUT);
    assert_int_equal(dlc_fail_context(DLC_EINPUT, "%s", "a.bin"), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "a.bin: 5 tokens, 4 fit");
    dlc_fail(DLC_EFAIL, "again: %s", dlc_err_text()); /* may use its own text */
    assert_string_equal(dlc_err_text(), "again: a.bin: 5 tokens, 4 fit");
    dlc_fail(DLC_EINPUT, "tensor \"%s\"", "a\nb\x1b[2J\xc3\xa9"); /* UTF-8 stays, control characters do not */
    assert_string_equal(dlc_err_text(), "tensor \"a?b?[2J\xc3\xa9\"");
    assert_int_equal(dlc_err_exit_status(DLC_EIO), 1);
    assert_int_equal(dlc_err_exit_status(DLC_ENOTFOUND), 4);
}

static void failed_allocation_is_reported(void **state)
{
    struct dlc_buf b = { 0 };

    (void)state;
    assert_int_equal(dlc_buf_printf(&b, "%s", "kept"), DLC_OK);
    dlc_mem_fail_at(1);
    assert_int_equal(dlc_buf_reserve(&b, 100000), DLC_ENOMEM);
    assert_string_equal(b.data, "kept");
    assert_null(dlc_calloc(SIZE_MAX, 2)); /* product overflows */
    dlc_buf_fini(&b);
}

static void cursor_stays_failed_past_its_end(void **state)
{
    unsigned char bytes[12];
    struct dlc_cursor w = dlc_cursor(bytes, sizeof bytes), r = dlc_cursor(bytes, sizeof bytes);

    (void)state;
    dlc_put_u32(&w, 0x01020304);
    dlc_put_u64(&w, UINT64_MAX - 1);
    assert_true(dlc_cursor_ok(&w));
    assert_int_equal(bytes[0], 4); /* little-endian */
    dlc_put_u8(&w, 1);
    assert_false(dlc_cursor_ok(&w));
    assert_int_equal(dlc_get_u32(&r), 0x01020304);
    assert_true(dlc_get_u64(&r) == UINT64_MAX - 1);
    assert_int_equal(dlc_get_u32(&r), 0);
    assert_false(dlc_cursor_ok(&r));
}

static void sha256_known_answer(void **state)
{
    char hex[DLC_SHA256_HEX];
    struct dlc_sha256 d = dlc_sha256("abc", 3), back;

    (void)state;
    dlc_sha256_to_hex(hex, &d);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); /* FIPS 180-4 */
    assert_int_equal(dlc_sha256_from_hex(&back, hex), DLC_OK);
    assert_true(dlc_sha256_equal(&d, &back));
    assert_int_equal(dlc_sha256_from_hex(&back, "zz"), DLC_EINPUT);
}

static void write_is_all_or_nothing(void **state)
{
    struct dlc_buf b = { 0 };
    struct dlc_names names;
    struct dlc_file_writer w;
    const char *path = in_folder("file");

    (void)state;
    assert_int_equal(dlc_file_write_atomic(path, "old", 3), DLC_OK);
    assert_int_equal(dlc_file_writer_open(&w, path), DLC_OK);
    dlc_file_writer_write(&w, "new and never committed", 23);
    dlc_file_writer_abort(&w);
    assert_int_equal(dlc_file_read(&b, path, 100), DLC_OK);
    assert_string_equal(b.data, "old");
    assert_int_equal(dlc_list_folder(&names, folder), DLC_OK);
    assert_int_equal(names.n, 1); /* no temporary left */
    dlc_names_free(&names);
    assert_int_equal(dlc_file_read(&b, path, 2), DLC_EINPUT);
    assert_int_equal(dlc_file_read(&b, in_folder("none"), 2), DLC_ENOTFOUND);
    dlc_buf_fini(&b);
}

static void a_rename_replaces_durably(void **state)
{
    struct dlc_buf b = { 0 };
    char from[DLC_PATH_MAX], to[DLC_PATH_MAX], none[DLC_PATH_MAX];

    (void)state;
    assert_int_equal(dlc_path_join(from, folder, "renamed.part"), DLC_OK);
    assert_int_equal(dlc_path_join(to, folder, "renamed"), DLC_OK);
    assert_int_equal(dlc_path_join(none, folder, "no-folder/renamed"), DLC_OK);
    assert_int_equal(dlc_file_rename_durable(to, from), DLC_ENOTFOUND);
    assert_int_equal(dlc_file_write_atomic(to, "old", 3), DLC_OK);
    assert_int_equal(dlc_file_write_atomic(from, "new", 3), DLC_OK);
    assert_int_equal(dlc_file_rename_durable(none, from), DLC_EIO);
    assert_true(dlc_file_exists(from));
    assert_int_equal(dlc_file_rename_durable(to, from), DLC_OK);
    assert_false(dlc_file_exists(from));
    assert_int_equal(dlc_file_read(&b, to, 10), DLC_OK);
    assert_string_equal(b.data, "new");
    dlc_buf_fini(&b);
}

static void a_file_is_mapped_whole(void **state)
{
    struct dlc_file_map map;
    char path[DLC_PATH_MAX];

    (void)state;
    assert_int_equal(dlc_path_join(path, folder, "mapped"), DLC_OK);
    assert_int_equal(dlc_file_map_open(&map, path), DLC_ENOTFOUND);
    assert_int_equal(map.size_bytes, 0);
    assert_int_equal(dlc_file_write_atomic(path, "", 0), DLC_OK);
    assert_int_equal(dlc_file_map_open(&map, path), DLC_OK);
    assert_int_equal(map.size_bytes, 0);
    dlc_file_map_close(&map);
    assert_int_equal(dlc_file_write_atomic(path, "old", 3), DLC_OK);
    assert_int_equal(dlc_file_map_open(&map, path), DLC_OK);
    assert_int_equal(dlc_file_write_atomic(path, "newer", 5), DLC_OK); /* another file under this name */
    assert_int_equal(map.size_bytes, 3);
    assert_memory_equal(map.data, "old", 3);
    dlc_file_map_close(&map);
    dlc_file_map_close(&map);
    assert_int_equal(dlc_file_map_open(&map, folder), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "a folder, expected a file"));
}

static void lock_names_its_holder(void **state)
{
    int fd, other;
    char pid[32];

    (void)state;
    assert_int_equal(dlc_lock_take(&fd, in_folder("lock")), DLC_OK);
    assert_int_equal(dlc_lock_take(&other, in_folder("lock")), DLC_EINPUT);
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    assert_non_null(strstr(dlc_err_text(), pid));
    dlc_lock_release(fd);
    assert_int_equal(dlc_lock_take(&fd, in_folder("lock")), DLC_OK);
    dlc_lock_release(fd);
}

static void json_text_is_whole_or_not_made(void **state)
{
    static const char whole[] = "{\"a\":[1,\"b\"]}";
    json_t *v;
    char *text = NULL;

    (void)state;
    assert_int_equal(dlc_json_parse(&v, whole, sizeof whole - 1, "m.json"), DLC_OK);
    for (uint64_t n = 1; !text; n++) { /* jansson itself would give text with keys missing at some n */
        dlc_mem_fail_at(n);
        text = dlc_json_dump(v);
        dlc_mem_fail_at(0);
        assert_true(n < 100);
        assert_true(n > 1 || !text);
    }
    assert_string_equal(text, whole);
    dlc_free(text);
    json_decref(v);
}

static void dumps_whole_or_not_at_all(const char *text)
{
    char *dumped = NULL;
    json_t *v;

    assert_int_equal(dlc_json_parse(&v, text, strlen(text), "m.json"), DLC_OK);
    for (uint64_t n = 1; !dumped; n++) {
        dlc_mem_fail_at(n);
        dumped = dlc_json_dump(v);
        dlc_mem_fail_at(0);
    }
    assert_string_equal(dumped, text);
    dlc_free(dumped);
    json_decref(v);
}

/* jansson's growing string buffer can lose a character to a failed allocation and go on. */
static void json_without_memory_is_not_a_shorter_text(void **state)
{
    static const char text[] = "{\"key\":\"0123456789abcdef0123456789abcdef0123456789abcdef\"}";
    dlc_err err = DLC_ENOMEM;

    (void)state;
    for (uint64_t n = 1; err != DLC_OK; n++) {
        json_t *v;

        dlc_mem_fail_at(n);
        err = dlc_json_parse(&v, text, strlen(text), "m.json");
        dlc_mem_fail_at(0);
        if (err == DLC_OK)
            assert_int_equal(json_string_length(json_object_get(v, "key")), 48);
        else
            assert_null(v);
        json_decref(v);
    }
    dumps_whole_or_not_at_all(text);
}

static void json_errors_name_file_key_and_type(void **state)
{
    json_t *v;
    int64_t n;
    const char text[] = "{\"a\": 7, \"s\": \"x\"}";

    (void)state;
    assert_int_equal(dlc_json_parse(&v, "{\"a\":1,\"a\":2}", 13, "m.json"), DLC_EINPUT); /* duplicate key */
    assert_int_equal(dlc_json_parse(&v, text, strlen(text), "m.json"), DLC_OK);
    assert_int_equal(dlc_json_get_int(&n, v, "a", 0, 5, "m.json"), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "m.json: \"a\" is 7, must lie in 0..5");
    assert_int_equal(dlc_json_get_int(&n, v, "s", 0, 5, "m.json"), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "m.json: \"s\" should be an integer, found a string");
    json_decref(v);
}

struct sums {
    _Atomic long total;
    size_t n;
};

static void add_part(void *arg, int worker, int n_workers)
{
    struct sums *s = arg;
    size_t begin, end;

    dlc_pool_part(&begin, &end, s->n, 16, worker, n_workers);
    for (size_t i = begin; i < end; i++)
        atomic_fetch_add(&s->total, (long)i);
}

static void pool_does_every_item_once(void **state)
{
    static const size_t sizes[] = { 0, 1, 15, 16, 17, 1000 };

    (void)state;
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        dlc_pool *pool;

        assert_int_equal(dlc_pool_create(&pool, n_threads), DLC_OK);
        for (int repeat = 0; repeat < 50; repeat++) {
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                struct sums s = { .n = sizes[i] };

                dlc_pool_run(pool, add_part, &s);
                assert_int_equal(s.total, sizes[i] ? (long)(sizes[i] * (sizes[i] - 1) / 2) : 0);
            }
        }
        dlc_pool_destroy(pool);
    }
    assert_true(dlc_n_cores() >= 1);
}

static void random_numbers_are_a_function_of_position(void **state)
{
    double sum = 0, squares = 0;

    (void)state;
    assert_true(dlc_rng_u64(1, 2, 3) == dlc_rng_u64(1, 2, 3));
    assert_true(dlc_rng_u64(1, 2, 3) != dlc_rng_u64(1, 3, 2));
    for (uint64_t i = 0; i < 20000; i++) {
        double x = dlc_rng_normal(7, 1, i);

        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / 20000) < 0.03);
    assert_true(fabs(squares / 20000 - 1) < 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_text_keeps_values_and_context),
        cmocka_unit_test(failed_allocation_is_reported),
        cmocka_unit_test(cursor_stays_failed_past_its_end),
        cmocka_unit_test(sha256_known_answer),
        cmocka_unit_test(write_is_all_or_nothing),
        cmocka_unit_test(a_rename_replaces_durably),
        cmocka_unit_test(a_file_is_mapped_whole),
        cmocka_unit_test(lock_names_its_holder),
        cmocka_unit_test(json_text_is_whole_or_not_made),
        cmocka_unit_test(json_without_memory_is_not_a_shorter_text),
        cmocka_unit_test(json_errors_name_file_key_and_type),
        cmocka_unit_test(pool_does_every_item_once),
        cmocka_unit_test(random_numbers_are_a_function_of_position),
    };

    return cmocka_run_group_tests_name("base", tests, make_folder, remove_folder);
}
