/* What cannot be done is refused: the right exit status, one line that has the values, nothing lost, nobody left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "history.h"
#include "runner.h"
#include "scene.h"
#include "tree.h"

#define WORDS_MAX 5

struct refusal {
    int status;
    const char *args;
    const char *words[WORDS_MAX]; /* each must be in the line */
};

static void must_refuse(const struct refusal *r)
{
    struct child c = { 0 };
    struct dlc_buf err = { 0 };
    const char *line;
    int status;

    child_start(&c, "%s --quiet", r->args);
    status = child_wait(&c);
    line = child_text(&err, c.err_path);
    if (status != r->status)
        child_fail(&c, "exit status %d, expected %d", status, r->status);
    if (strncmp(line, "error: ", 7) != 0 || strchr(line, '\n') != line + err.len - 1 || err.len < 2)
        child_fail(&c, "not one line of error");
    for (int i = 0; i < WORDS_MAX && r->words[i]; i++) {
        if (!strstr(line, r->words[i]))
            child_fail(&c, "the line has no '%s'", r->words[i]);
    }
    runner_no_children(r->args);
    dlc_buf_fini(&err);
}

/* A finished run, and one that was killed in the middle. */
static int set_up(void **state)
{
    if (runner_begin(state) != 0)
        return -1;
    scene_prepare();
    scene_write_text("other.jsonl", 2, 100000);
    run_expecting(0, "prepare other.jsonl --out other --vocab-size 400 --val-fraction 0.1 --threads 1");
    run_expecting(0, TINY " --out done");
    scene_half_a_run("half");
    return 0;
}

/* --- run folders with history ---------------------------------------------------------------------------- */

static const struct refusal history_rows[] = {
    { 2, TINY " --out done --fresh", { "done", "--fresh", "history" } },
    { 2, TINY " --out half --fresh", { "half", "--fresh", "history" } },
    { 2, "train --out half --batch 4", { "half", "train.batch", "2", "4" } },
    { 2, "train --out half --steps 50", { "train.steps", "40", "50" } },
    { 2, "train --out half --islands 2", { "train.islands", "3", "2" } },
    { 2, "train --out half --model.d_model 64", { "model.d_model", "32", "64" } },
    { 2, "train --out half --outer.drop 0.5", { "outer.drop", "0.5" } },
    { 2, "train --out half --method dp", { "train.method", "diloco", "dp" } },
    { 2, "train --out half --seed 2", { "train.seed", "1", "2" } },
    { 2, "train --out done --optim.lr 1", { "done", "optim.lr" } },
    { 4, "train --out half --data other", { "half", "other" } },
    { 4, "train --out half --data nowhere", { "nowhere" } },
};

static void history_is_not_changed(void **state)
{
    static struct tree half, done;

    (void)state;
    tree_read(&half, "half");
    tree_read(&done, "done");
    for (size_t i = 0; i < sizeof history_rows / sizeof *history_rows; i++) {
        must_refuse(&history_rows[i]);
        tree_nothing_lost(&half, "half", history_rows[i].args);
        tree_nothing_lost(&done, "done", history_rows[i].args);
    }
}

static void a_second_process_is_refused(void **state)
{
    struct refusal r = { 4, TINY " --out locked", { "locked" } };
    struct child c = { 0 };
    char pid[24];
    int status;

    (void)state;
    child_start(&c, TINY " --out locked --steps 4000");
    while (history_lines("locked") < 1)
        assert_false(child_has_ended(&c, &status));
    snprintf(pid, sizeof pid, "%d", (int)c.pid);
    r.words[1] = pid;
    {
        struct dlc_buf err = { 0 };

        assert_int_equal(run_to_end(&err, "%s --quiet", r.args), 4);
        if (!strstr(err.data, pid) || !strstr(err.data, "locked") || strchr(err.data, '\n') != err.data + err.len - 1)
            fail_msg("%s", err.data);
        dlc_buf_fini(&err);
    }
    assert_false(child_has_ended(&c, &status)); /* the first one goes on */
    child_signal(&c, SIGTERM);
    assert_int_equal(child_wait(&c), 3);
    runner_no_children("after the locked run");
}

/* --- what was typed -------------------------------------------------------------------------------------- */

static const struct refusal typed_rows[] = {
    { 2, TINY " --out new --outer.stepz 5", { "outer.stepz", "outer.steps" } },
    { 2, TINY " --out new --batsh 5", { "batsh", "batch" } },
    { 2, TINY " --out new --batch many", { "batch", "many" } },
    { 2, TINY " --out new --batch 0", { "batch", "0", "1" } },
    { 2, TINY " --out new --outer.drop 1.5", { "outer.drop", "1.5", "0.99" } },
    { 2, TINY " --out new --method magic", { "method", "magic", "diloco" } },
    { 2, TINY " --out new --preset giant", { "giant", "nano" } },
    { 2, TINY " --out new --batch", { "batch" } },
    { 2, TINY " --out new --model.heads 3 --model.kv_heads 2", { "3", "2" } },
    { 2, TINY " --out new --train.micro_batch 3 --batch 4", { "micro_batch", "3", "4" } },
    { 2, TINY " --out new stray", { "stray" } },
    { 2, TINY " --data data", { "--out" } },
    { 2, "train --out new", { "--data" } },
    { 2, "train --out begun", { "--data", "begun" } }, /* a start that was cut off left a run.ini */
    { 2, "trane --out new", { "trane", "train" } },
    { 2, TINY " --out new --config unknown.ini", { "unknown.ini", "2", "stepz", "steps" } },
    { 4, TINY " --out new --config missing.ini", { "missing.ini" } },
    { 4, TINY " --out new --islands 600 --batch 16", { "600", "9600", "windows" } },
    { 4, TINY " --out new --model.context 1000000", { "1000000" } },
    { 4, TINY " --out new --data nowhere", { "nowhere" } },
    { 4, TINY " --out new --data text.jsonl", { "text.jsonl" } },
    { 4, TINY " --out new --train.init_from nowhere", { "nowhere" } },
    { 4,
      TINY " --out new --train.init_from done --model.d_ffn 96",
      { "train.init_from", "done", "model.d_ffn", "96" } },
    { 1, TINY " --out text.jsonl/new", { "text.jsonl" } },
    { 1, TINY " --out new --preset 400m --model.layers 24 --model.d_model 1024 --system.memory_limit_mb 64", { "64" } },
    { 4, "eval nowhere --data data", { "nowhere" } },
    { 4, "eval data --data data", { "data" } },
    { 4, "eval done --data other", { "done", "other" } },
    { 4, "generate nowhere", { "nowhere" } },
};

static void what_was_typed_wrong_is_named(void **state)
{
    static const char ini[] = "[outer]\nstepz = 5\n";

    (void)state;
    file_write("unknown.ini", ini, sizeof ini - 1);
    assert_int_equal(mkdir(in_scratch("begun"), 0777), 0);
    file_write("begun/run.ini", "[train]\nsteps = 5\n", 18);
    for (size_t i = 0; i < sizeof typed_rows / sizeof *typed_rows; i++) {
        must_refuse(&typed_rows[i]);
        if (dlc_file_exists(in_scratch("new/run.json")))
            fail_msg("diloco %s: has history now", typed_rows[i].args);
    }
    run_expecting(0, TINY " --out new --fresh"); /* nothing that was refused is in the way */
}

/* --- texts ----------------------------------------------------------------------------------------------- */

static void write_truncated_gz(void)
{
    unsigned char out[4096];
    char text[3000];
    z_stream z = { 0 };

    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + (i * i + i / 7) % 26);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)text;
    z.avail_in = sizeof text;
    z.next_out = out;
    z.avail_out = sizeof out;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    file_write("whole.txt.gz", out, z.total_out);
    file_write("cut.txt.gz", out, z.total_out / 2);
}

static const struct refusal text_rows[] = {
    { 4, "prepare missing.txt --out p", { "missing.txt" } },
    { 4, "prepare empty.txt --out p", { "empty.txt" } },
    { 4, "prepare binary.txt --out p", { "binary.txt" } },
    { 4, "prepare cut.txt.gz --out p", { "cut.txt.gz" } },
    { 4, "prepare broken.jsonl --out p", { "broken.jsonl", "2" } },
    { 4, "prepare nokey.jsonl --out p", { "nokey.jsonl", "text" } },
    { 4, "prepare nothing --out p", { "nothing" } },
    { 4, "prepare text.jsonl missing.txt --out p", { "missing.txt" } },
    { 4, "prepare text.jsonl --out p --tokenizer broken.jsonl", { "broken.jsonl" } },
    { 4, "prepare text.jsonl --out p --tokenizer missing.json", { "missing.json" } },
    { 2, "prepare text.jsonl", { "--out" } },
    { 2, "prepare --out p", { "prepare" } },
    { 2, "prepare text.jsonl --out p --vocab-size 10", { "vocab-size", "10", "257" } },
    { 2, "prepare text.jsonl --out p --val-fraction 2", { "val-fraction", "2" } },
};

static void bad_texts_are_named(void **state)
{
    static struct tree before;

    (void)state;
    file_write("empty.txt", "", 0);
    file_write("binary.txt", "ELF\0\1\2\3\0\0more of that", 22);
    file_write("broken.jsonl", "{\"text\":\"one\"}\n{\"text\":\"two\n", 28);
    file_write("nokey.jsonl", "{\"content\":\"one\"}\n", 18);
    write_truncated_gz();
    assert_int_equal(mkdir(in_scratch("nothing"), 0777), 0);
    tree_read(&before, "data");
    for (size_t i = 0; i < sizeof text_rows / sizeof *text_rows; i++) {
        must_refuse(&text_rows[i]);
        if (dlc_file_exists(in_scratch("p/meta.json")))
            fail_msg("diloco %s: left a meta.json", text_rows[i].args);
    }
    run_expecting(0,
                  "prepare whole.txt.gz --out p --vocab-size 300 --quiet"); /* the same folder, now with good input */
    /* Prepared data survives a failed attempt on its folder. */
    must_refuse(&(struct refusal){ 4, "prepare missing.txt --out data", { "missing.txt" } });
    must_refuse(&(struct refusal){ 4, "prepare cut.txt.gz --out data", { "cut.txt.gz" } });
    tree_nothing_lost(&before, "data", "prepare with bad input");
}

/* Stray bytes (a byte-level tokenizer takes any) and links that lead back: said, and no reason to stop. */
static void what_can_be_left_out_is_said(void **state)
{
    struct dlc_buf err = { 0 };
    struct child c = { 0 };

    (void)state;
    file_write("latin1.txt", "caf\xe9 au lait, and more text after it\n", 37);
    assert_int_equal(run_to_end(&err, "prepare latin1.txt --out latin --vocab-size 260 --quiet"), 0);
    if (strncmp(err.data, "warning: ", 9) != 0 || !strstr(err.data, "1 bytes are not UTF-8"))
        fail_msg("%s", err.data);
    file_write("bytes.txt", "a\xe9\xe9\xe9 few words of text, a few words of text\n", 44);
    child_start(&c, "prepare bytes.txt --out latin --vocab-size 260");
    assert_int_equal(child_wait(&c), 0);
    if (!strstr(child_text(&err, c.out_path), "1 documents, 44 bytes") || strstr(err.data, "3 documents"))
        fail_msg("%s", err.data);
    assert_int_equal(mkdir(in_scratch("loop"), 0777), 0);
    assert_int_equal(symlink(".", in_scratch("loop/again")), 0);
    file_write("loop/good.txt", "some text in a folder that has itself inside\n", 45);
    assert_int_equal(run_to_end(&err, "prepare loop --out looped --vocab-size 260 --quiet"), 0);
    if (strncmp(err.data, "warning: loop/again: ", 21) != 0 || strchr(err.data, '\n') != err.data + err.len - 1)
        fail_msg("%s", err.data);
    dlc_buf_fini(&err);
}

/* --- prepared data that is damaged ----------------------------------------------------------------------- */

static char shard[300], val_shard[300];

static void find_shards(void)
{
    struct dlc_names names;

    assert_int_equal(dlc_list_folder(&names, in_scratch("data")), DLC_OK);
    for (size_t i = 0; i < names.n; i++) {
        size_t n = strlen(names.names[i]);

        if (n > 4 && strcmp(names.names[i] + n - 4, ".bin") == 0)
            snprintf(strstr(names.names[i], "val") ? val_shard : shard, sizeof shard, "bad/%s", names.names[i]);
    }
    dlc_names_free(&names);
    assert_true(shard[0] && val_shard[0]);
}

static void cut_shard(void)
{
    file_cut(shard, file_bytes(shard) - 100);
}
static void cut_header(void)
{
    file_cut(shard, 500);
}
static void empty_shard(void)
{
    file_cut(shard, 0);
}
static void lengthen_shard(void)
{
    file_cut(shard, file_bytes(shard) + 2);
}
static void no_shard(void)
{
    assert_int_equal(unlink(in_scratch("%s", shard)), 0);
}
static void flip_magic(void)
{
    file_flip(shard, 1);
}
static void lie_about_length(void)
{
    file_flip(shard, 10);
}
static void large_token(void)
{
    file_flip(shard, 1024 + 2 * 1001 + 1);
}
static void cut_val(void)
{
    file_cut(val_shard, file_bytes(val_shard) - 2);
}
static void no_meta(void)
{
    assert_int_equal(unlink(in_scratch("bad/meta.json")), 0);
}
static void cut_meta(void)
{
    file_cut("bad/meta.json", file_bytes("bad/meta.json") / 2);
}
static void other_tokenizer(void)
{
    assert_int_equal(dlc_copy_file(in_scratch("bad/tokenizer.json"), in_scratch("other/tokenizer.json")), DLC_OK);
}
static void cut_tokenizer(void)
{
    file_cut("bad/tokenizer.json", 1000);
}

static const struct {
    const char *name;
    void (*damage)(void);
    const char *word;
} data_rows[] = {
    { "a shard without its end", cut_shard, ".bin" },
    { "a shard without its header's end", cut_header, ".bin" },
    { "an empty shard", empty_shard, ".bin" },
    { "a shard with more than its header says", lengthen_shard, ".bin" },
    { "a missing shard", no_shard, ".bin" },
    { "a shard with another magic number", flip_magic, ".bin" },
    { "a header that lies", lie_about_length, ".bin" },
    { "a token beyond the vocabulary", large_token, ".bin" },
    { "a validation shard without its end", cut_val, ".bin" },
    { "no meta.json", no_meta, "meta.json" },
    { "half a meta.json", cut_meta, "meta.json" },
    { "another tokenizer", other_tokenizer, "tokenizer" },
    { "half a tokenizer", cut_tokenizer, "tokenizer" },
};

static void damaged_data_is_named(void **state)
{
    static struct tree half;

    (void)state;
    find_shards();
    tree_read(&half, "half");
    for (size_t i = 0; i < sizeof data_rows / sizeof *data_rows; i++) {
        struct refusal train = { 4, TINY " --data bad --out fresh", { "bad", data_rows[i].word } };
        struct refusal resume = { 4, "train --out half --data bad", { "bad", data_rows[i].word } };

        print_message("    %s\n", data_rows[i].name);
        tree_copy("bad", "data");
        data_rows[i].damage();
        must_refuse(&train);
        must_refuse(&resume);
        tree_nothing_lost(&half, "half", data_rows[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(history_is_not_changed),        cmocka_unit_test(a_second_process_is_refused),
        cmocka_unit_test(what_was_typed_wrong_is_named), cmocka_unit_test(bad_texts_are_named),
        cmocka_unit_test(what_can_be_left_out_is_said),  cmocka_unit_test(damaged_data_is_named),
    };

    return runner_main("e2e refuse", tests, set_up);
}
