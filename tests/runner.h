/* Runs the program from tests: children with their output in files, a deadline for each, and nobody left behind.
 *
 * Everything happens in one scratch folder, made by runner_begin and removed by runner_end; children run in it. The
 * test's process adopts orphans (Linux), so that an island which outlives its coordinator is seen. Needs cmocka.h
 * before it in the files that include it; every failure here fails the test with the child's last words. */
#ifndef DLC_TESTS_RUNNER_H
#define DLC_TESTS_RUNNER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/file.h"

#define RUNNER_PATIENCE_S 100.0 /* for one child, on a busy machine, under a sanitizer */

struct child {
    pid_t pid; /* 0: ended, and its status was taken */
    char command[600], out_path[DLC_PATH_MAX], err_path[DLC_PATH_MAX];
    double began_s;
    double file_limit_bytes; /* > 0: RLIMIT_FSIZE, for the next start */
};

/* The end of every main: DLC_TEST_ONLY is a pattern of test names. */
#define runner_main(name, tests, set_up) (runner_filter(), cmocka_run_group_tests_name(name, tests, set_up, runner_end))
void runner_filter(void);

/* Group set-up and tear-down for cmocka. */
int runner_begin(void **state);
int runner_end(void **state);
bool runner_is_slow(void);        /* under a sanitizer (DLC_TEST_SLOW): fewer repetitions */
extern const bool runner_is_long; /* more of them: tier_default.c or tier_long.c */

/* The scratch folder, and paths in it; a few results of in_scratch live at a time. */
const char *runner_scratch(void);
const char *in_scratch(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Starts `diloco ARGS` (split at blanks) in the scratch folder. */
void child_start(struct child *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* *status: the exit status; 128 + n when signal n ended it. Past RUNNER_PATIENCE_S it is killed and the test fails. */
bool child_has_ended(struct child *c, int *status);
int child_wait(struct child *c);
void child_signal(const struct child *c, int number);
/* What it wrote so far, as a C string. */
const char *child_text(struct dlc_buf *out, const char *path);
__attribute__((noreturn)) void child_fail(const struct child *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Start and wait; status, and in *err (NULL: not wanted) what came on standard error. */
int run_to_end(struct dlc_buf *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same, and fails unless it ends with `status`. */
void run_expecting(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Processes whose parent is `parent`; at most `max`. */
int runner_children_of(pid_t parent, pid_t *out, int max);
/* Fails when this process has children: waits a little for those that are ending. */
void runner_no_children(const char *when);

void sleep_ms(double ms);

#endif
