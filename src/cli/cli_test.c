/* The program from outside: exit statuses, what goes to which output, and docs/cli.md. DILOCO names the binary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "base/file.h"
#include "cli/run_diloco_test.h"

static char folder[] = "/tmp/dlc-cli-XXXXXX";

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

static int diloco(struct dlc_buf *text, const char *args, const char *redirect)
{
    return run_diloco(text, folder, "", args, redirect);
}

static void exit_statuses_and_texts(void **state)
{
    static const struct {
        const char *args, *redirect;
        int status;
        const char *text, *why;
    } rows[] = {
        { "", RESULTS, 0, "A tour:", "alone it shows a tour" },
        { "--help", RESULTS, 0, "A tour:", "asked for help" },
        { "--version", RESULTS, 0, "instruction set in use: ", "version" },
        { "--version", RESULTS, 0, "jansson 2", "what it was built with" },
        { "train --help", RESULTS, 0, "--outer.momentum", "all keys" },
        { "train --help", RESULTS, 0, "150m", "the presets" },
        { "train --steps 5 --help", RESULTS, 0, "--outer.momentum", "help anywhere" },
        { "eval --help", RESULTS, 0, "--split NAME", "help of a verb" },
        { "help generate", RESULTS, 0, "--temperature X", "help the other way" },
        { "trian", ERRORS, 2, "error: there is no verb 'trian'; did you mean train?", "verb mistyped" },
        { "xyzzyxyzzy", ERRORS, 2, "diloco alone lists them", "no such verb" },
        { "train --out r --data d --isands 4", ERRORS, 2, "did you mean --islands?", "flag mistyped" },
        { "train --data d", ERRORS, 2, "--out RUN, the run folder, is missing", "no run folder" },
        { "train --out r", ERRORS, 2, "--data FOLDER, made by diloco prepare, is missing", "no data" },
        { "train --out r --data d --islands 0", ERRORS, 2, "must lie in 1..1024", "out of range" },
        { "train --out r --data d word", ERRORS, 2, "one word too many", "a stray word" },
        { "train --config none.ini --out r", ERRORS, 4, "none.ini", "no such file" },
        { "prepare", ERRORS, 2, "something is missing", "no text" },
        { "prepare text", ERRORS, 2, "--out is missing", "nowhere to write" },
        { "prepare text --out d --tokenizer t.json --vocab-size 300", ERRORS, 2, "brings its own", "two tokenizers" },
        { "prepare text --out d --vocab-size 7", ERRORS, 2, "must lie in 257..", "a vocabulary below the bytes" },
        { "eval m", ERRORS, 2, "--data is missing", "no data" },
        { "eval none --data d", ERRORS, 4, "none", "no model" },
        { "generate none", ERRORS, 4, "none", "no model" },
        { "generate none --top-p 0", ERRORS, 2, "--top-p", "out of range" },
        { "eval none --data d --isa z80", ERRORS, 4, "none", "the first mistake is reported" },
    };
    struct dlc_buf text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = diloco(&text, rows[i].args, rows[i].redirect);

        if (status != rows[i].status || !strstr(text.data, rows[i].text))
            fail_msg("%s: diloco %s: status %d (expected %d), '%s' not in: %s", rows[i].why, rows[i].args, status,
                     rows[i].status, rows[i].text, text.data);
    }
    dlc_buf_fini(&text);
}

static void errors_are_one_line_and_leave_results_empty(void **state)
{
    struct dlc_buf text = { 0 };

    (void)state;
    assert_int_equal(diloco(&text, "eval none --data d --json", RESULTS), 4);
    assert_int_equal(text.len, 0);
    assert_int_equal(diloco(&text, "eval none --data d --json", ERRORS), 4);
    assert_ptr_equal(strchr(text.data, '\n'), text.data + text.len - 1);
    dlc_buf_fini(&text);
}

static void a_full_disk_under_the_output_is_an_error(void **state)
{
    struct dlc_buf text = { 0 };

    (void)state;
    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(diloco(&text, "train --help", "2>&1 >/dev/full"), 1);
    assert_non_null(strstr(text.data, "standard output"));
    dlc_buf_fini(&text);
}

/* Flags beat the file wherever --config stands. */
static void config_file_is_read_first(void **state)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX];

    (void)state;
    assert_int_equal(dlc_path_join(path, folder, "c.ini"), DLC_OK);
    assert_int_equal(dlc_file_write_atomic(path, "[train]\nislands = 2000\n", 23), DLC_OK);
    assert_int_equal(diloco(&text, "train --islands 3 --config c.ini --out r", ERRORS), 2);
    assert_non_null(strstr(text.data, "c.ini line 2: train.islands is '2000'"));
    dlc_buf_fini(&text);
}

static void the_page_is_up_to_date(void **state)
{
    struct dlc_buf made = { 0 }, page = { 0 };

    (void)state;
    assert_int_equal(diloco(&made, "help --markdown", RESULTS), 0);
    assert_int_equal(dlc_file_read(&page, "docs/cli.md", 1 << 20), DLC_OK);
    if (made.len != page.len || memcmp(made.data, page.data, page.len) != 0)
        fail_msg("docs/cli.md differs from diloco help --markdown; run ./do docs");
    dlc_buf_fini(&made);
    dlc_buf_fini(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_statuses_and_texts),
        cmocka_unit_test(errors_are_one_line_and_leave_results_empty),
        cmocka_unit_test(a_full_disk_under_the_output_is_an_error),
        cmocka_unit_test(config_file_is_read_first),
        cmocka_unit_test(the_page_is_up_to_date),
    };

    return cmocka_run_group_tests_name("cli", tests, make_folder, remove_folder);
}
