/* Run folders that were damaged, and disks that are full: clear words, the newest whole state, the same end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

#include "base/rng.h"
#include "history.h"
#include "runner.h"
#include "scene.h"
#include "tree.h"

static struct history calm; /* the undisturbed run */
static int newest;          /* checkpoint of `half` */

/* `half` is a run that was killed after its fourth record; checkpoints: the newest three. */
static int set_up(void **state)
{
    if (runner_begin(state) != 0)
        return -1;
    scene_prepare();
    run_expecting(0, TINY " --out calm");
    history_read(&calm, "calm");
    scene_half_a_run("half");
    for (newest = TINY_STEPS / TINY_H; newest > 0; newest--) {
        if (dlc_file_exists(in_scratch("half/checkpoints/outer-%06d/manifest.json", newest)))
            break;
    }
    return newest >= 4 && newest < TINY_STEPS / TINY_H ? 0 : -1;
}

static const char *in_newest(const char *run, const char *file)
{
    static char path[400];

    snprintf(path, sizeof path, "%s/checkpoints/outer-%06d/%s", run, newest, file);
    return path;
}

static void must_end_calm(const char *run, const char *what)
{
    static struct history h;

    history_read(&h, run);
    history_same(&calm, &h, what);
    history_is_complete(run, TINY_STEPS * TINY_ISLANDS * TINY_BATCH);
    runner_no_children(what);
}

/* --- checkpoints ----------------------------------------------------------------------------------------- */

static void a_damaged_checkpoint_gives_way_to_the_one_before(void **state)
{
    static const char *const files[] = { "model.safetensors",     "outer.safetensors", "island-00.safetensors",
                                         "island-02.safetensors", "manifest.json",     "config.json",
                                         "tokenizer.json" };
    struct dlc_rng rng = { .seed = 9 };
    struct dlc_buf err = { 0 };
    int n = runner_is_slow() ? 1 : 3;
    char what[200];

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        for (int k = 0; k < n; k++) {
            uint64_t size, at;

            tree_copy("run", "half");
            size = file_bytes(in_newest("run", files[i]));
            at = k == 0 ? size - 1 : dlc_rng_below(&rng, size);
            snprintf(what, sizeof what, "%s, %s at byte %llu of %llu", files[i], k == 2 ? "changed" : "cut off",
                     (unsigned long long)at, (unsigned long long)size);
            if (k == 2)
                file_flip(in_newest("run", files[i]), at);
            else
                file_cut(in_newest("run", files[i]), at);
            if (run_to_end(&err, "train --out run --quiet") != 0)
                fail_msg("%s: %s", what, err.data);
            snprintf(what + strlen(what), sizeof what - strlen(what), " ");
            if (strncmp(err.data, "warning: ", 9) != 0 || !strstr(err.data, in_newest("run", "") + 16))
                fail_msg("%s: no warning that names the checkpoint: %s", what, err.data);
            must_end_calm("run", what);
        }
    }
    dlc_buf_fini(&err);
}

static void must_fail(int status, const char *what, const char *word, const char *other_word)
{
    static struct tree before;
    struct dlc_buf err = { 0 };
    const char *line;
    int got;

    tree_read(&before, "run");
    got = run_to_end(&err, "train --out run --data data --quiet");
    line = strstr(err.data, "error: "); /* warnings may come before */
    if (got != status || !line || strchr(line, '\n') != err.data + err.len - 1 || !strstr(line, word) ||
        !strstr(line, other_word))
        fail_msg("%s: exit status %d, expected %d; words '%s', '%s'; got: %s", what, got, status, word, other_word,
                 err.data);
    tree_nothing_lost(&before, "run", what);
    runner_no_children(what);
    dlc_buf_fini(&err);
}

static void without_any_whole_checkpoint_it_stops(void **state)
{
    char name[400];

    (void)state;
    tree_copy("run", "half");
    for (int t = newest; t > 0; t--) {
        snprintf(name, sizeof name, "run/checkpoints/outer-%06d/model.safetensors", t);
        if (dlc_file_exists(in_scratch("%s", name)))
            file_cut(name, 1000);
    }
    must_fail(4, "all checkpoints damaged", "none is whole", "model.safetensors");
    tree_copy("run", "half");
    assert_int_equal(dlc_remove_tree(in_scratch("run/checkpoints")), DLC_OK);
    must_fail(4, "checkpoints removed", "no complete checkpoint", "run");
}

static void a_wrong_latest_is_no_obstacle(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        tree_copy("run", "half");
        if (k == 0)
            assert_int_equal(unlink(in_scratch("run/latest")), 0);
        else
            file_write("run/latest", k == 1 ? "outer-000999\n" : "\xff\xfe", k == 1 ? 13 : 2);
        run_expecting(0, "train --out run");
        must_end_calm("run", "another latest");
    }
}

/* --- records, identity, configuration -------------------------------------------------------------------- */

/* Puts `text` in place of the n-th line (from 1) of the file. */
static void replace_line(const char *name, int n, const char *text)
{
    struct dlc_buf from = { 0 }, to = { 0 };
    int number = 0;

    child_text(&from, in_scratch("%s", name));
    for (char *line = from.data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        if (++number == n)
            assert_int_equal(dlc_buf_append(&to, text, strlen(text)), DLC_OK);
        else
            assert_int_equal(dlc_buf_append(&to, line, (size_t)(end - line) + 1), DLC_OK);
    }
    file_write(name, to.data, to.len);
    dlc_buf_fini(&from);
    dlc_buf_fini(&to);
}

static void flip_record(void)
{
    file_flip("run/records.jsonl", 200);
}
static void no_second_record(void)
{
    replace_line("run/records.jsonl", 2, "");
}
static void garbage_record(void)
{
    replace_line("run/records.jsonl", 3, "garbage\n");
}
static void no_records(void)
{
    assert_int_equal(unlink(in_scratch("run/records.jsonl")), 0);
}
static void foreign_records(void)
{
    assert_int_equal(dlc_copy_file(in_scratch("run/records.jsonl"), in_scratch("calm/records.jsonl")), DLC_OK);
}
static void foreign_identity(void)
{
    assert_int_equal(dlc_copy_file(in_scratch("run/run.json"), in_scratch("calm/run.json")), DLC_OK);
}
static void no_identity(void)
{
    assert_int_equal(unlink(in_scratch("run/run.json")), 0);
}
static void no_identity_or_records(void)
{
    no_identity();
    no_records();
}
static void half_an_identity(void)
{
    file_cut("run/run.json", 40);
}
static void no_configuration(void)
{
    assert_int_equal(unlink(in_scratch("run/run.ini")), 0);
}
static void odd_configuration(void)
{
    replace_line("run/run.ini", 2, "presett = nano\n");
}

static void edited_configuration(void)
{
    struct dlc_buf text = { 0 };
    char *digit;

    child_text(&text, in_scratch("run/run.ini"));
    digit = strstr(text.data, "weight_decay = 0.1");
    assert_non_null(digit);
    digit[strlen("weight_decay = 0.")] = '2';
    file_write("run/run.ini", text.data, text.len);
    dlc_buf_fini(&text);
}

static const struct {
    const char *what;
    void (*damage)(void);
    int status;
    const char *word, *other_word;
} rows[] = {
    { "a changed record", flip_record, 4, "records.jsonl line 1", "" },
    { "a missing record", no_second_record, 4, "records.jsonl line 2", "" },
    { "a record that is none", garbage_record, 4, "records.jsonl line 3", "" },
    { "no records", no_records, 4, "records.jsonl", "outer step" },
    { "records of another run", foreign_records, 4, "records.jsonl line 1", "run" },
    { "the identity of another run", foreign_identity, 4, "run", "" },
    { "no identity", no_identity, 4, "records.jsonl", "no run.json" },
    { "no identity and no records", no_identity_or_records, 4, "latest", "no run.json" },
    { "half an identity", half_an_identity, 4, "run.json", "" },
    { "no configuration", no_configuration, 4, "run.ini", "" },
    { "an odd configuration", odd_configuration, 2, "run.ini", "presett" },
    { "an edited configuration", edited_configuration, 4, "run.ini", "by hand" },
};

static void a_damaged_history_is_named_and_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tree_copy("run", "half");
        rows[i].damage();
        must_fail(rows[i].status, rows[i].what, rows[i].word, rows[i].other_word);
    }
}

/* An island that starts again must not go on with other text than the rest of the run. */
static void data_prepared_anew_stops_a_restarted_island(void **state)
{
    struct dlc_buf err = { 0 };
    struct child c = { 0 };
    pid_t islands[TINY_ISLANDS];

    (void)state;
    tree_copy("own-data", "data");
    scene_write_text("other.jsonl", 99, 60000);
    child_start(&c, TINY " --data own-data --out anew --steps 4000 --outer.steps 50");
    while (!dlc_file_exists(in_scratch("anew/records.jsonl")))
        sleep_ms(20);
    run_expecting(0, "prepare other.jsonl --out own-data --tokenizer data/tokenizer.json");
    assert_true(runner_children_of(c.pid, islands, TINY_ISLANDS) > 0);
    assert_int_equal(kill(islands[0], SIGKILL), 0);
    assert_int_equal(child_wait(&c), 4);
    assert_non_null(strstr(child_text(&err, c.err_path), "prepared anew"));
    dlc_buf_fini(&err);
    runner_no_children("after a run whose data was prepared anew");
}

/* What a crash can leave: the end of a line that was being written. */
static void torn_ends_are_cut_off(void **state)
{
    FILE *f;

    (void)state;
    tree_copy("run", "half");
    f = fopen(in_scratch("run/metrics.jsonl"), "a");
    assert_non_null(f);
    fputs("{\"step\":20,\"train/lo", f);
    fclose(f);
    file_cut("run/records.jsonl", file_bytes("run/records.jsonl") - 30);
    run_expecting(0, "train --out run");
    must_end_calm("run", "torn ends");
}

/* --- the disk -------------------------------------------------------------------------------------------- */

#define LARGE                                                                                                          \
    "train --data data --model.layers 2 --model.d_model 192 --model.context 32 --islands 2 --outer.steps 1 --steps "   \
    "12 "                                                                                                              \
    "--batch 1 --train.log_every 1 --system.threads 1 --data.val_tokens 100 --outer.momentum 0.9"

static void expect_disk_error(struct child *c, const char *reason)
{
    struct dlc_buf err = { 0 };
    const char *line;
    int status = child_wait(c);

    child_text(&err, c->err_path);
    line = strstr(err.data, "error: ");
    if (status != 1 || !line || strchr(line, '\n') != err.data + err.len - 1 || !strstr(line, reason))
        child_fail(c, "exit status %d, expected 1 and one line with '%s'", status, reason);
    runner_no_children("after a full disk");
    dlc_buf_fini(&err);
}

/* A limit on the size of files stands for a disk that takes no more. */
static void a_file_too_large_stops_the_run_and_no_more(void **state)
{
    static struct history expected, got;
    struct child c = { .file_limit_bytes = 1 << 20 };

    (void)state;
    run_expecting(0, LARGE " --out large");
    child_start(&c, LARGE " --out limited --quiet");
    expect_disk_error(&c, "File too large");
    run_expecting(0, LARGE " --out limited");
    history_read(&expected, "large");
    history_read(&got, "limited");
    history_same(&expected, &got, "after the limit was lifted");
}

#ifdef __linux__
static void fill_disk(const char *path, size_t leave_bytes)
{
    static char block[65536];
    FILE *f = fopen(path, "w");
    size_t n = 0;

    assert_non_null(f);
    setvbuf(f, NULL, _IONBF, 0);
    memset(block, 'x', sizeof block);
    while (fwrite(block, 1, sizeof block, f) == sizeof block)
        n += sizeof block;
    fclose(f);
    assert_int_equal(truncate(path, (off_t)(n > leave_bytes ? n - leave_bytes : 0)), 0);
}

/* A checkpoint that does not fit: the one before stays whole, and with more room the run ends as it would have. */
static void a_full_disk_stops_the_run_and_no_more(void **state)
{
    static const size_t leave[] = { 0, 100000, 1500000, 5000000 };
    static struct history expected, got;
    struct child c = { 0 };
    int status;

    (void)state;
    assert_int_equal(mkdir(in_scratch("disk"), 0777), 0);
    if (mount("tmpfs", in_scratch("disk"), "tmpfs", 0, "size=96m") != 0)
        skip(); /* only as root */
    if (!dlc_file_exists(in_scratch("large/run.json")))
        run_expecting(0, LARGE " --out large");
    history_read(&expected, "large");
    child_start(&c, LARGE " --out disk/run");
    while (history_lines("disk/run") < 2)
        assert_false(child_has_ended(&c, &status));
    child_signal(&c, SIGKILL);
    child_wait(&c);
    for (size_t i = 0; i < sizeof leave / sizeof *leave; i++) {
        int before = history_lines("disk/run");

        fill_disk(in_scratch("disk/ballast"), leave[i]);
        child_start(&c, LARGE " --out disk/run --quiet");
        expect_disk_error(&c, "No space left on device");
        run_expecting(0, "eval disk/run --data data"); /* the checkpoint before is whole */
        assert_int_equal(unlink(in_scratch("disk/ballast")), 0);
        assert_true(history_lines("disk/run") >= before);
    }
    run_expecting(0, LARGE " --out disk/run");
    history_read(&got, "disk/run");
    history_same(&expected, &got, "after there was room again");
    assert_int_equal(umount(in_scratch("disk")), 0);
}

static void a_read_only_disk_is_named(void **state)
{
    struct child c = { 0 };

    (void)state;
    assert_int_equal(mkdir(in_scratch("fixed"), 0777), 0);
    if (mount("tmpfs", in_scratch("fixed"), "tmpfs", 0, "size=32m") != 0)
        skip();
    tree_copy("fixed/run", "half");
    assert_int_equal(mount(NULL, in_scratch("fixed"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    child_start(&c, "train --out fixed/run --quiet");
    expect_disk_error(&c, "Read-only file system");
    child_start(&c, TINY " --out fixed/new --quiet");
    expect_disk_error(&c, "Read-only file system");
    child_start(&c, "prepare text.jsonl --out fixed/data --quiet");
    expect_disk_error(&c, "Read-only file system");
    run_expecting(0, "eval fixed/run --data data"); /* reading is all it needs */
    assert_int_equal(umount(in_scratch("fixed")), 0);
}
#endif

static int tear_down(void **state)
{
#ifdef __linux__
    (void)umount(in_scratch("disk")); /* should a test have failed in there */
    (void)umount(in_scratch("fixed"));
#endif
    return runner_end(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_checkpoint_gives_way_to_the_one_before),
        cmocka_unit_test(without_any_whole_checkpoint_it_stops),
        cmocka_unit_test(a_wrong_latest_is_no_obstacle),
        cmocka_unit_test(a_damaged_history_is_named_and_kept),
        cmocka_unit_test(data_prepared_anew_stops_a_restarted_island),
        cmocka_unit_test(torn_ends_are_cut_off),
        cmocka_unit_test(a_file_too_large_stops_the_run_and_no_more),
#ifdef __linux__
        cmocka_unit_test(a_full_disk_stops_the_run_and_no_more),
        cmocka_unit_test(a_read_only_disk_is_named),
#endif
    };

    runner_filter();
    return cmocka_run_group_tests_name("e2e damage", tests, set_up, tear_down);
}
