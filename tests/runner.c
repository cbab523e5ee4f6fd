#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/clock.h"

#define ARGS_MAX 96
#define TEXT_MAX_BYTES ((size_t)16 << 20)

static char scratch[DLC_PATH_MAX];
static int n_started;

void runner_filter(void)
{
    if (getenv("DLC_TEST_ONLY"))
        cmocka_set_test_filter(getenv("DLC_TEST_ONLY"));
}

/* --- the scratch folder ----------------------------------------------------------------------------------------------
 */

/* In memory where that is possible: these tests wait for fsync thousands of times, and kill processes, not machines. */
static bool make_scratch(const char *parent)
{
    if (!parent || access(parent, W_OK) != 0)
        return false;
    snprintf(scratch, sizeof scratch, "%s/diloco-e2e-XXXXXX", parent);
    return mkdtemp(scratch) != NULL;
}

int runner_begin(void **state)
{
    (void)state;
#ifdef __linux__
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
    if (!getenv("DILOCO")) {
        fprintf(stderr, "DILOCO, the program's path, is not set\n");
        return -1;
    }
    return make_scratch(getenv("DLC_TEST_FOLDER")) || make_scratch("/dev/shm") || make_scratch("/tmp") ? 0 : -1;
}

int runner_end(void **state)
{
    (void)state;
    return dlc_remove_tree(scratch) == DLC_OK ? 0 : -1;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value && strcmp(value, "0") != 0;
}

bool runner_is_slow(void)
{
    return is_set("DLC_TEST_SLOW");
}

const char *runner_scratch(void)
{
    return scratch;
}

const char *in_scratch(const char *fmt, ...)
{
    static char paths[16][2 * DLC_PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 16];
    int n = snprintf(path, sizeof paths[0], "%s/", scratch);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(path + n, sizeof paths[0] - (size_t)n, fmt, ap);
    va_end(ap);
    return path;
}

/* --- children -------------------------------------------------------------------------------------------- */

static void redirect(const char *path, int fd)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    if (file < 0 || dup2(file, fd) < 0)
        _exit(126);
    close(file);
}

__attribute__((noreturn)) static void become(const struct child *c, char **argv)
{
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test itself be killed */
#endif
    if (c->file_limit_bytes > 0) {
        struct rlimit limit = { .rlim_cur = (rlim_t)c->file_limit_bytes, .rlim_max = (rlim_t)c->file_limit_bytes };

        if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
            _exit(125);
        signal(SIGXFSZ, SIG_IGN);
    }
    if (chdir(scratch) != 0)
        _exit(124);
    redirect("/dev/null", STDIN_FILENO);
    redirect(c->out_path, STDOUT_FILENO);
    redirect(c->err_path, STDERR_FILENO);
    execv(argv[0], argv);
    _exit(127);
}

static void start(struct child *c, const char *fmt, va_list ap)
{
    char words[sizeof c->command], *argv[ARGS_MAX + 2] = { getenv("DILOCO") }, *rest = words;
    int n = 1;

    vsnprintf(c->command, sizeof c->command, fmt, ap);
    assert_true(strlen(c->command) < sizeof c->command - 1);
    snprintf(words, sizeof words, "%s", c->command);
    for (char *word; n <= ARGS_MAX && (word = strtok_r(rest, " ", &rest)) != NULL;)
        argv[n++] = word;
    snprintf(c->out_path, sizeof c->out_path, "%s", in_scratch("stdout-%d", n_started));
    snprintf(c->err_path, sizeof c->err_path, "%s", in_scratch("stderr-%d", n_started++));
    c->began_s = dlc_now_s();
    c->pid = fork();
    if (c->pid == 0)
        become(c, argv);
    assert_true(c->pid > 0);
}

void child_start(struct child *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    start(c, fmt, ap);
    va_end(ap);
}

bool child_has_ended(struct child *c, int *status)
{
    int raw = 0;
    pid_t got = waitpid(c->pid, &raw, WNOHANG);

    if (got == 0 && dlc_now_s() - c->began_s > RUNNER_PATIENCE_S) {
        child_signal(c, SIGKILL);
        (void)waitpid(c->pid, NULL, 0);
        child_fail(c, "did not end within %.0f s", RUNNER_PATIENCE_S);
    }
    if (got == 0 || (got < 0 && errno == EINTR))
        return false;
    assert_int_equal(got, c->pid);
    c->pid = 0;
    *status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return true;
}

int child_wait(struct child *c)
{
    int status = 0;

    while (!child_has_ended(c, &status))
        sleep_ms(1);
    return status;
}

void child_signal(const struct child *c, int number)
{
    assert_true(c->pid > 0);
    assert_int_equal(kill(c->pid, number), 0);
}

const char *child_text(struct dlc_buf *out, const char *path)
{
    if (dlc_file_read(out, path, TEXT_MAX_BYTES) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_int_equal(dlc_buf_append(out, "", 0), DLC_OK);
    return out->data;
}

void child_fail(const struct child *c, const char *fmt, ...)
{
    struct dlc_buf err = { 0 };
    char what[2000];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    child_text(&err, c->err_path);
    print_error("%s\ndiloco %s\n%s\n", what, c->command, err.len > 3000 ? err.data + err.len - 3000 : err.data);
    dlc_buf_fini(&err);
    fail();
    abort();
}

static int run(struct child *c, const char *fmt, va_list ap)
{
    start(c, fmt, ap);
    return child_wait(c);
}

int run_to_end(struct dlc_buf *err, const char *fmt, ...)
{
    struct child c = { 0 };
    va_list ap;
    int status;

    va_start(ap, fmt);
    status = run(&c, fmt, ap);
    va_end(ap);
    if (err)
        child_text(err, c.err_path);
    return status;
}

void run_expecting(int status, const char *fmt, ...)
{
    struct child c = { 0 };
    va_list ap;
    int got;

    va_start(ap, fmt);
    got = run(&c, fmt, ap);
    va_end(ap);
    if (got != status)
        child_fail(&c, "exit status %d, expected %d", got, status);
}

/* --- the process table ----------------------------------------------------------------------------------- */

/* Field 4 of /proc/PID/stat; the name before it is in brackets and may hold anything. */
static pid_t parent_of(const char *pid)
{
    char path[64], text[512], *after;
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return -1;
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    after = strrchr(text, ')');
    return after && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : -1;
}

int runner_children_of(pid_t parent, pid_t *out, int max)
{
    DIR *dir = opendir("/proc");
    int n = 0;

    assert_non_null(dir);
    for (struct dirent *e; n < max && (e = readdir(dir)) != NULL;) {
        if (isdigit((unsigned char)e->d_name[0]) && parent_of(e->d_name) == parent)
            out[n++] = (pid_t)strtol(e->d_name, NULL, 10);
    }
    closedir(dir);
    return n;
}

void runner_no_children(const char *when)
{
    double give_up_s = dlc_now_s() + 10;
    pid_t left[8];
    int n;

    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        n = runner_children_of(getpid(), left, 8);
        if (n == 0)
            return;
        if (dlc_now_s() > give_up_s)
            break;
        sleep_ms(5);
    }
    for (int i = 0; i < n; i++)
        kill(left[i], SIGKILL);
    fail_msg("%s: %d processes are still there after 10 s, the first is %d", when, n, (int)left[0]);
}

void sleep_ms(double ms)
{
    struct timespec ts = { .tv_sec = (time_t)(ms / 1000),
                           .tv_nsec = (long)((ms - 1000 * (double)(time_t)(ms / 1000)) * 1e6) };

    (void)nanosleep(&ts, NULL);
}
