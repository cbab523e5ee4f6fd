/* Who an island is, over its lives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "island/identity.h"

static char folder[] = "/tmp/diloco-identity-XXXXXX";

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

static void the_same_over_its_lives(void **state)
{
    struct dlc_identity first, second, other;

    (void)state;
    assert_int_equal(dlc_identity_begin(&first, folder, "run-one"), DLC_OK);
    assert_int_equal(first.incarnation, 1);
    assert_int_equal(strlen(first.identity), 32);
    snprintf(first.name, sizeof first.name, "box");
    assert_int_equal(dlc_identity_write(&first, folder), DLC_OK);
    assert_int_equal(dlc_identity_begin(&second, folder, "run-one"), DLC_OK);
    assert_string_equal(second.identity, first.identity);
    assert_string_equal(second.name, "box");
    assert_int_equal(second.incarnation, 2);
    assert_int_equal(dlc_identity_begin(&other, folder, "run-two"), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "run-one"));
}

static void a_damaged_identity_is_named_and_kept(void **state)
{
    static const char *const texts[] = { "", "{}", "{\"identity\": 3}",
                                         "{\"identity\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"run\":\"r\","
                                         "\"name\":\"\",\"incarnation\":1}" };
    char path[DLC_PATH_MAX];

    (void)state;
    assert_int_equal(dlc_path_join(path, folder, "island.json"), DLC_OK);
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        struct dlc_identity i;
        struct dlc_buf after = { 0 };

        assert_int_equal(dlc_file_write_atomic(path, texts[k], strlen(texts[k])), DLC_OK);
        if (dlc_identity_begin(&i, folder, "r") != DLC_EINPUT || !strstr(dlc_err_text(), "island.json"))
            fail_msg("%s: %s", texts[k], dlc_err_text());
        assert_int_equal(dlc_file_read(&after, path, 1 << 20), DLC_OK); /* never replaced by a new one */
        assert_int_equal(after.len, strlen(texts[k]));
        dlc_buf_fini(&after);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_over_its_lives),
        cmocka_unit_test(a_damaged_identity_is_named_and_kept),
    };

    return cmocka_run_group_tests_name("identity", tests, make_folder, remove_folder);
}
