/* Tests that run the program: DILOCO names the binary. Needs cmocka.h before. */
#ifndef DLC_CLI_RUN_DILOCO_TEST_H
#define DLC_CLI_RUN_DILOCO_TEST_H

#include <stdio.h>
#include <sys/wait.h>

#include "base/buf.h"

#define BOTH "2>&1"
#define ERRORS "2>&1 >/dev/null"
#define RESULTS "2>/dev/null"

/* Runs `diloco ARGS` under the shell, in `folder`; *text gets what `redirect` leaves on its output. The exit status,
 * 128 + n for signal n. `before` is put in front of the program ("echo x | "). */
static inline int run_diloco(struct dlc_buf *text, const char *folder, const char *before, const char *args,
                             const char *redirect)
{
    char command[2048], chunk[4096];
    size_t n;
    int status;
    FILE *f;

    snprintf(command, sizeof command, "cd %s && %s $DILOCO %s %s", folder, before, args, redirect);
    dlc_buf_clear(text);
    f = popen(command, "r");
    assert_non_null(f);
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        assert_int_equal(dlc_buf_append(text, chunk, n), DLC_OK);
    status = pclose(f);
    assert_int_equal(dlc_buf_append(text, "", 0), DLC_OK);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
