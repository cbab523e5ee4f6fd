/* Who may join a served run, as whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "train/roster.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccccccccccc"

static char folder[] = "/tmp/diloco-roster-XXXXXX";

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

static int clear(void **state)
{
    char path[DLC_PATH_MAX];

    (void)state;
    return dlc_path_join(path, folder, "islands.json") == DLC_OK && dlc_remove_tree(path) == DLC_OK ? 0 : -1;
}

static dlc_err ask(struct dlc_roster *r, int *index, const char *identity, const char *name, bool chosen,
                   int incarnation, const char *session)
{
    json_t *q = json_pack("{s:s, s:s, s:b, s:s, s:i, s:s}", "identity", identity, "name", name, "name_given", (int)chosen,
                          "about", "host\x1b[2J, avx2", "incarnation", incarnation,
                          "session", session);
    dlc_err err = dlc_roster_admit(r, q, index);

    json_decref(q);
    return err;
}

/* One run with room for three, question by question. */
static void who_gets_in(void **state)
{
    static const struct {
        const char *identity, *name;
        bool chosen;
        int incarnation, index; /* -1: refused */
        const char *text, *why, *session;
    } rows[] = {
        { A, "box", false, 1, 0, "box", "the first", "s1" },
        { B, "box", false, 1, 1, "box-2", "the same machine's name, not chosen by anybody", "s1" },
        { C, "box", true, 1, -1, "belongs to another island", "a fresh island cannot take over a name", "s1" },
        { A, "box", true, 1, -1, "life 1 already", "a copied folder", "s2" },
        { A, "box", false, 1, 0, "box", "the answer was lost: the same process asks again", "s1" },
        { A, "box", true, 5, 0, "box", "back in a later life", "s1" },
        { A, "box", true, 4, -1, "set back", "a folder from before", "s1" },
        { C, "third", true, 1, 2, "third", "the last place", "s1" },
        { "dddddddddddddddddddddddddddddddd", "late", true, 1, -1, "no more", "no room", "s1" },
        { B, "anything", true, 2, 1, "box-2", "its name stays, whatever it says", "s1" },
        { "short", "x", true, 1, -1, "32 hexadecimal", "no identity", "s1" },
        { "../../../../../../../../../../etc", "x", true, 1, -1, "32 hexadecimal", "a path as identity", "s1" },
        { C, "a b", true, 9, -1, "should be of letters", "a name that cannot be shown", "s1" },
        { C, "", true, 9, -1, "should be of letters", "no name", "s1" },
        { C, "third", true, 0, -1, "incarnation", "never started", "s1" },
    };
    struct dlc_roster r;

    (void)state;
    assert_int_equal(dlc_roster_open(&r, folder, 3), DLC_OK);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int index = -1;
        dlc_err err = ask(&r, &index, rows[k].identity, rows[k].name, rows[k].chosen, rows[k].incarnation,
                          rows[k].session);

        if (rows[k].index >= 0 && (err != DLC_OK || index != rows[k].index ||
                                   strcmp(r.islands[index].name, rows[k].text) != 0))
            fail_msg("%s: error %d, index %d: %s", rows[k].why, (int)err, index, dlc_err_text());
        if (rows[k].index < 0 && (err != DLC_EINPUT || !strstr(dlc_err_text(), rows[k].text)))
            fail_msg("%s: error %d, %s", rows[k].why, (int)err, dlc_err_text());
    }
    assert_string_equal(r.islands[0].about, "host?[2J, avx2");
    dlc_roster_close(&r);

    assert_int_equal(dlc_roster_open(&r, folder, 3), DLC_OK); /* the next life of the coordinator */
    assert_int_equal(r.n, 3);
    assert_int_equal(dlc_roster_find(&r, B), 1);
    assert_int_equal(r.islands[0].incarnation, 5);
    assert_string_equal(r.islands[1].name, "box-2");
    dlc_roster_close(&r);
}

/* An island that was let in and not written down could come back as somebody else. */
static void who_cannot_be_written_down_is_not_in(void **state)
{
    struct dlc_roster r;
    int index;

    (void)state;
    if (getuid() == 0) { /* root writes anywhere: let memory be short instead */
        assert_int_equal(dlc_roster_open(&r, folder, 3), DLC_OK);
        dlc_mem_fail_at(1);
        assert_int_not_equal(ask(&r, &index, A, "box", false, 1, "s"), DLC_OK);
        dlc_mem_fail_at(0);
    } else {
        assert_int_equal(dlc_roster_open(&r, folder, 3), DLC_OK);
        chmod(folder, 0500);
        assert_int_not_equal(ask(&r, &index, A, "box", false, 1, "s"), DLC_OK);
        chmod(folder, 0700);
    }
    assert_int_equal(r.n, 0);
    assert_int_equal(ask(&r, &index, A, "box", false, 1, "s"), DLC_OK);
    assert_int_equal(index, 0);
    dlc_roster_close(&r);
}

static void a_damaged_roster_is_named(void **state)
{
    static const char *const texts[] = { "", "{", "[]", "{\"islands\": 3}", "{\"islands\": [{}]}",
                                         "{\"islands\": [{\"identity\": \"x\", \"name\": \"a\", \"about\": \"\", \"session\": \"\", "
                                         "\"incarnation\": 1}]}" };
    char path[DLC_PATH_MAX];

    (void)state;
    assert_int_equal(dlc_path_join(path, folder, "islands.json"), DLC_OK);
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        struct dlc_roster r;

        assert_int_equal(dlc_file_write_atomic(path, texts[k], strlen(texts[k])), DLC_OK);
        if (dlc_roster_open(&r, folder, 3) != DLC_EINPUT || !strstr(dlc_err_text(), "islands.json"))
            fail_msg("%s: %s", texts[k], dlc_err_text());
        dlc_roster_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(who_gets_in, clear),
        cmocka_unit_test_setup(who_cannot_be_written_down_is_not_in, clear),
        cmocka_unit_test_setup(a_damaged_roster_is_named, clear),
    };

    return cmocka_run_group_tests_name("roster", tests, make_folder, remove_folder);
}
