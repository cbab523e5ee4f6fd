#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "data/prepare_test.h"

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
        { "cut_head.gz", DLC_EINPUT,
          "cut_head.gz: truncated: the gzip data stop in the middle, at byte 5 of the file" },
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
    json_set_alloc_funcs(malloc, free); /* not jansson's: it asserts when its own buffer cannot grow */
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
    json_set_alloc_funcs(dlc_alloc, dlc_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
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

    return cmocka_run_group_tests_name("prepare input", tests, make_folder, remove_folder);
}
