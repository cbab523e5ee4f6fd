#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_test_util.h"
#include "ckpt/manifest.h"

static char folder[64];
static char run[DLC_PATH_MAX]; /* a new run folder for each test */

static int make_folder(void **state)
{
    (void)state;
    dlc_log_set_level(DLC_LOG_ERROR);
    return test_make_folder(folder, sizeof folder, "ckpt");
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static int make_run(void **state)
{
    static int n;

    (void)state;
    snprintf(run, sizeof run, "%.64s/run%d", folder, n++);
    return mkdir(run, 0755);
}

static const char *in_run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static const char *in_run(const char *fmt, ...)
{
    static char path[2][DLC_PATH_MAX];
    static int turn;
    char name[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    turn ^= 1;
    assert_int_equal(dlc_path_join(path[turn], run, name), DLC_OK);
    return path[turn];
}

static void put(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void begin(uint64_t step)
{
    char partial[DLC_PATH_MAX], path[DLC_PATH_MAX], text[64];

    assert_int_equal(dlc_ckpt_begin(partial, run, step), DLC_OK);
    assert_int_equal(dlc_path_join(path, partial, "model.safetensors"), DLC_OK);
    snprintf(text, sizeof text, "parameters after outer step %llu", (unsigned long long)step);
    put(path, text, strlen(text));
    assert_int_equal(dlc_path_join(path, partial, "island-00.safetensors"), DLC_OK);
    put(path, "", 0);
}

static void commit(uint64_t step)
{
    json_t *info = json_pack("{s:I, s:f}", "tokens", (json_int_t)(step * 1000), "lr", 0.1);

    begin(step);
    if (dlc_ckpt_commit(run, step, info) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    json_decref(info);
}

static void expect_found(uint64_t step)
{
    char found[DLC_PATH_MAX];
    uint64_t outer_step;

    if (dlc_ckpt_find(found, &outer_step, run) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_int_equal(outer_step, step);
    assert_string_equal(found, in_run("checkpoints/outer-%06llu", (unsigned long long)step));
}

static void a_checkpoint_comes_back(void **state)
{
    char partial[DLC_PATH_MAX], path[DLC_PATH_MAX];
    struct dlc_buf b = { 0 };
    struct stat before, after;
    json_t *info;

    (void)state;
    put(in_run("tokenizer.json"), "{}", 2);
    assert_int_equal(dlc_ckpt_begin(partial, run, 40), DLC_OK);
    assert_string_equal(partial, in_run("checkpoints/.partial-outer-000040"));
    assert_int_equal(dlc_path_join(path, partial, "tokenizer.json"), DLC_OK);
    assert_int_equal(dlc_link_or_copy(path, in_run("tokenizer.json")), DLC_OK);
    info = json_pack("{s:i, s:[f]}", "round", 3, "x", 0.1);
    assert_int_equal(dlc_ckpt_commit(run, 40, info), DLC_OK);
    json_decref(info);
    assert_false(dlc_file_exists(partial));
    assert_int_equal(stat(in_run("tokenizer.json"), &before), 0);
    assert_int_equal(stat(in_run("checkpoints/outer-000040/tokenizer.json"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);

    assert_int_equal(dlc_ckpt_set_latest(run, 40), DLC_OK);
    assert_int_equal(dlc_file_read(&b, in_run("latest"), 100), DLC_OK);
    assert_string_equal(b.data, "outer-000040\n");
    dlc_buf_fini(&b);
    expect_found(40);
    assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000040/"), &info), DLC_OK);
    assert_int_equal(json_integer_value(json_object_get(info, "round")), 3);
    assert_true(json_real_value(json_array_get(json_object_get(info, "x"), 0)) == 0.1);
    json_decref(info);
}

static void info_may_be_missing(void **state)
{
    json_t *info = (json_t *)1;

    (void)state;
    begin(1);
    assert_int_equal(dlc_ckpt_commit(run, 1, NULL), DLC_OK);
    assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000001"), &info), DLC_OK);
    assert_null(info);
}

/* Every cut and every changed byte of every file is noticed, the file is named, and the older checkpoint is used. */
static void damage_one_file(const char *name)
{
    char path[DLC_PATH_MAX];
    struct dlc_buf b = { 0 };

    snprintf(path, sizeof path, "%s", in_run("checkpoints/outer-000040/%s", name));
    assert_int_equal(dlc_file_read(&b, path, 10000), DLC_OK);
    for (size_t at = 0; at < 2 * b.len; at++) {
        bool cut = at >= b.len;

        if (cut) {
            put(path, b.data, at - b.len);
        } else {
            b.data[at] ^= 1;
            put(path, b.data, b.len);
            b.data[at] ^= 1;
        }
        if (dlc_ckpt_verify(in_run("checkpoints/outer-000040"), NULL) != DLC_EINPUT || !strstr(dlc_err_text(), path))
            fail_msg("%s %s at %zu: %s", name, cut ? "cut" : "changed", cut ? at - b.len : at, dlc_err_text());
        if (at % 16 == 0)
            expect_found(20);
    }
    put(path, "", 0); /* longer than it should be is damage too */
    put(path, b.data, b.len + 1);
    assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000040"), NULL), DLC_EINPUT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000040"), NULL), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), path));
    expect_found(20);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000040"), NULL), DLC_EINPUT);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0644), 0);
    if (strcmp(name, "manifest.json") != 0) /* its writer would be waited for */
        assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000040"), NULL), DLC_EINPUT);
    assert_int_equal(unlink(path), 0);
    put(path, b.data, b.len);
    dlc_buf_fini(&b);
    expect_found(40);
}

static void damage_is_noticed_and_the_older_one_is_used(void **state)
{
    (void)state;
    commit(20);
    commit(40);
    assert_int_equal(dlc_ckpt_set_latest(run, 40), DLC_OK);
    damage_one_file("model.safetensors");
    damage_one_file("manifest.json");
    put(in_run("checkpoints/outer-000040/notes.txt"), "mine",
        4); /* a file that is not in the manifest does not matter */
    expect_found(40);
    assert_int_equal(rename(in_run("checkpoints/outer-000040"), in_run("checkpoints/outer-000041")), 0);
    assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000041"), NULL), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "of outer step 40"));
    expect_found(20);
    assert_int_equal(dlc_ckpt_verify(in_run("checkpoints/outer-000099"), NULL), DLC_ENOTFOUND);
}

/* A crash between any two steps of making a checkpoint. */
static void cut_off_anywhere_a_whole_checkpoint_is_found(void **state)
{
    char found[DLC_PATH_MAX];
    uint64_t step;

    (void)state;
    assert_int_equal(dlc_ckpt_find(found, &step, run), DLC_ENOTFOUND);
    begin(20);
    assert_int_equal(dlc_ckpt_find(found, &step, run), DLC_ENOTFOUND);
    commit(20);       /* begins anew over the leftover */
    expect_found(20); /* no `latest` yet */
    assert_int_equal(dlc_ckpt_set_latest(run, 20), DLC_OK);
    begin(40);
    expect_found(20);
    assert_int_equal(dlc__manifest_write(in_run("checkpoints/.partial-outer-000040"), 40, NULL), DLC_OK);
    expect_found(20); /* all but the rename */
    commit(40);
    expect_found(40); /* all but `latest` */
    assert_int_equal(dlc_ckpt_set_latest(run, 40), DLC_OK);
    expect_found(40);
    put(in_run("latest"), "nonsense", 8);
    expect_found(40);
    put(in_run("latest"), "outer-000099\n", 13);
    expect_found(40);
    put(in_run("checkpoints/outer-000020/manifest.json"), "{", 1);
    put(in_run("checkpoints/outer-000040/manifest.json"), "{", 1);
    assert_int_equal(dlc_ckpt_find(found, &step, run), DLC_EINPUT); /* a run with history is not an empty one */
    assert_non_null(strstr(dlc_err_text(), "2 checkpoints and none is whole"));
}

static void a_complete_one_is_not_replaced_and_a_damaged_one_is(void **state)
{
    (void)state;
    commit(20);
    begin(20);
    assert_int_equal(dlc_ckpt_commit(run, 20, NULL), DLC_EFAIL);
    assert_non_null(strstr(dlc_err_text(), "complete already"));
    assert_false(dlc_file_exists(in_run("checkpoints/.partial-outer-000020")));
    expect_found(20);
    put(in_run("checkpoints/outer-000020/model.safetensors"), "damaged", 7);
    commit(20);
    expect_found(20);
    assert_int_equal(dlc_ckpt_commit(run, 30, NULL), DLC_EFAIL); /* never begun */
    begin(30);
    assert_int_equal(mkdir(in_run("checkpoints/.partial-outer-000030/folder"), 0755), 0);
    assert_int_equal(dlc_ckpt_commit(run, 30, NULL), DLC_EFAIL);
    assert_non_null(strstr(dlc_err_text(), "a folder, a checkpoint has only plain files"));
    begin(50);
    dlc_ckpt_abort(run, 50);
    dlc_ckpt_abort(run, 50); /* nothing left to remove */
    assert_int_equal(test_count_files(in_run("checkpoints")), 1);
    assert_int_equal(dlc_ckpt_set_latest(run, 50), DLC_EFAIL);
}

static void retain_keeps_the_newest_and_the_named(void **state)
{
    static const struct {
        const char *why;
        int keep, latest, damaged; /* steps; 0 none */
        const char *left;
    } rows[] = {
        { "two newest", 2, 50, 0, "outer-000040 outer-000050 " },
        { "more than there are", 9, 50, 0, "outer-000010 outer-000020 outer-000030 outer-000040 outer-000050 " },
        { "named one is old", 1, 20, 0, "outer-000020 outer-000050 " },
        { "damaged ones do not count", 2, 50, 40, "outer-000030 outer-000050 " },
        { "newest damaged: the next ones count", 1, 0, 50, "outer-000040 outer-000050 " },
        { "named and damaged", 1, 40, 40, "outer-000040 outer-000050 " },
        { "no latest", 1, 0, 0, "outer-000050 " },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_buf left = { 0 };
        struct dlc_names names;

        assert_int_equal(make_run(state), 0);
        for (uint64_t step = 10; step <= 50; step += 10)
            commit(step);
        begin(60);
        if (rows[i].latest)
            assert_int_equal(dlc_ckpt_set_latest(run, (uint64_t)rows[i].latest), DLC_OK);
        if (rows[i].damaged)
            assert_int_equal(unlink(in_run("checkpoints/outer-%06d/model.safetensors", rows[i].damaged)), 0);
        assert_int_equal(dlc_ckpt_retain(run, rows[i].keep), DLC_OK);
        assert_int_equal(dlc_list_folder(&names, in_run("checkpoints")), DLC_OK);
        for (size_t k = 0; k < names.n; k++)
            assert_int_equal(dlc_buf_printf(&left, "%s ", names.names[k]), DLC_OK);
        if (strcmp(left.data, rows[i].left) != 0)
            fail_msg("%s: left are %s", rows[i].why, left.data);
        dlc_names_free(&names);
        dlc_buf_fini(&left);
    }
    assert_int_equal(dlc_ckpt_retain(run, 0), DLC_EUSAGE);
    assert_int_equal(make_run(state), 0);
    assert_int_equal(dlc_ckpt_retain(run, 1), DLC_OK); /* no checkpoints at all */
}

static void numbers_are_ordered_as_numbers_and_other_names_are_left_alone(void **state)
{
    (void)state;
    commit(999999);
    commit(1000000); /* sorts before it as text */
    assert_int_equal(mkdir(in_run("checkpoints/outer-7"), 0755), 0);
    assert_int_equal(mkdir(in_run("checkpoints/outer-0000007"), 0755), 0);
    assert_int_equal(mkdir(in_run("checkpoints/outer-99999999999999999999"), 0755), 0);
    expect_found(1000000);
    assert_int_equal(dlc_ckpt_retain(run, 1), DLC_OK);
    assert_int_equal(test_count_files(in_run("checkpoints")), 4);
}

static void a_full_disk_leaves_the_previous_checkpoint(void **state)
{
    char partial[DLC_PATH_MAX];
    struct test_full_disk disk;

    (void)state;
    test_full_disk_begin(&disk, in_run("full"));
    snprintf(run, sizeof run, "%s", disk.folder);
    commit(20);
    assert_int_equal(dlc_ckpt_set_latest(run, 20), DLC_OK);
    assert_int_equal(dlc_ckpt_begin(partial, run, 40), DLC_OK);
    test_full_disk_fill(&disk);
    assert_int_equal(dlc_ckpt_commit(run, 40, NULL), DLC_EIO);
    if (!strstr(dlc_err_text(), "outer-000040/manifest.json") || !strstr(dlc_err_text(), disk.reason))
        fail_msg("%s", dlc_err_text());
    assert_int_equal(test_count_files(in_run("checkpoints")), 1); /* the partial one is gone */
    expect_found(20);
    assert_int_equal(dlc_ckpt_set_latest(run, 20), DLC_EIO);
    if (!strstr(dlc_err_text(), disk.reason))
        fail_msg("%s", dlc_err_text());
    expect_found(20);
    test_full_disk_end(&disk);
}

static dlc_err make_one(void *arg)
{
    uint64_t *step = arg; /* another one each time: a failure may come when it is in place already */
    char partial[DLC_PATH_MAX];
    json_t *info;
    dlc_err err;

    ++*step;
    DLC_TRY(dlc_ckpt_begin(partial, run, *step));
    info = json_pack("{s:i}", "a", 1);
    err = info ? dlc_ckpt_commit(run, *step, info) : dlc_fail(DLC_ENOMEM, "test");
    json_decref(info);
    DLC_TRY(err);
    DLC_TRY(dlc_ckpt_set_latest(run, *step));
    return dlc_ckpt_verify(in_run("checkpoints/outer-%06llu", (unsigned long long)*step), NULL);
}

static dlc_err find_and_retain(void *arg)
{
    char found[DLC_PATH_MAX];
    uint64_t step;

    DLC_TRY(dlc_ckpt_find(found, &step, run));
    assert_int_equal(step, *(uint64_t *)arg); /* short of memory, but never an older one */
    return dlc_ckpt_retain(run, 2);
}

static void any_allocation_may_fail(void **state)
{
    uint64_t step = 0;

    (void)state;
    assert_int_equal(mkdir(in_run("checkpoints"), 0755), 0);
    assert_true(test_walk_allocations(make_one, &step) > 20);
    assert_int_equal(dlc_ckpt_retain(run, 2), DLC_OK);
    assert_true(test_walk_allocations(find_and_retain, &step) > 10);
    assert_int_equal(test_count_files(in_run("checkpoints")), 2);
}

static void hostile_manifests_are_refused(void **state)
{
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const struct {
        const char *why, *json, *text;
    } rows[] = {
        { "array", "[]", "not a JSON object" },
        { "no step", "{\"files\":{}}", "\"outer_step\" should be an integer, found nothing" },
        { "negative step", "{\"outer_step\":-1,\"files\":{}}", "\"outer_step\" is -1" },
        { "no files", "{\"outer_step\":1}", "\"files\" should be an object" },
        { "name leads outside", "{\"outer_step\":1,\"files\":{\"../x\":{\"bytes\":1,\"sha256\":\"" HEX "\"}}}",
          "\"../x\"" },
        { "name is a path", "{\"outer_step\":1,\"files\":{\"/etc/passwd\":{\"bytes\":1,\"sha256\":\"" HEX "\"}}}",
          "passwd" },
        { "name is a folder", "{\"outer_step\":1,\"files\":{\"..\":{\"bytes\":1,\"sha256\":\"" HEX "\"}}}", "\"..\"" },
        { "empty name", "{\"outer_step\":1,\"files\":{\"\":{\"bytes\":1,\"sha256\":\"" HEX "\"}}}", "\"\" cannot be" },
        { "names itself", "{\"outer_step\":1,\"files\":{\"manifest.json\":{\"bytes\":1,\"sha256\":\"" HEX "\"}}}",
          "manifest" },
        { "entry not an object", "{\"outer_step\":1,\"files\":{\"a\":1}}", "\"a\" is not an object" },
        { "no size", "{\"outer_step\":1,\"files\":{\"a\":{\"sha256\":\"" HEX "\"}}}", "m.json: a: \"bytes\"" },
        { "negative size", "{\"outer_step\":1,\"files\":{\"a\":{\"bytes\":-1,\"sha256\":\"" HEX "\"}}}", "is -1" },
        { "no digest", "{\"outer_step\":1,\"files\":{\"a\":{\"bytes\":1}}}", "m.json: a: \"sha256\"" },
        { "short digest", "{\"outer_step\":1,\"files\":{\"a\":{\"bytes\":1,\"sha256\":\"00\"}}}", "64 hexadecimal" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *m, *parsed;

        assert_int_equal(dlc_json_parse(&m, rows[i].json, strlen(rows[i].json), "m.json"), DLC_OK);
        if (dlc__manifest_check(m, "m.json") != DLC_EINPUT || !strstr(dlc_err_text(), rows[i].text))
            fail_msg("%s: %s", rows[i].why, dlc_err_text());
        json_decref(m);
        assert_int_equal(dlc__manifest_parse(&parsed, rows[i].json, strlen(rows[i].json), "m.json"), DLC_EINPUT);
        assert_non_null(strstr(dlc_err_text(), "does not begin with its own digest"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_checkpoint_comes_back, make_run),
        cmocka_unit_test_setup(info_may_be_missing, make_run),
        cmocka_unit_test_setup(damage_is_noticed_and_the_older_one_is_used, make_run),
        cmocka_unit_test_setup(cut_off_anywhere_a_whole_checkpoint_is_found, make_run),
        cmocka_unit_test_setup(a_complete_one_is_not_replaced_and_a_damaged_one_is, make_run),
        cmocka_unit_test(retain_keeps_the_newest_and_the_named),
        cmocka_unit_test_setup(numbers_are_ordered_as_numbers_and_other_names_are_left_alone, make_run),
        cmocka_unit_test_setup(a_full_disk_leaves_the_previous_checkpoint, make_run),
        cmocka_unit_test_setup(any_allocation_may_fail, make_run),
        cmocka_unit_test(hostile_manifests_are_refused),
    };

    return cmocka_run_group_tests_name("ckpt", tests, make_folder, remove_folder);
}
