#include "net/nats_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/clock.h"

#define LOG_MAX_BYTES ((size_t)64 << 20)

/* --- finding ---------------------------------------------------------------------------------------------------------
 */

static bool is_program(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool find_in(char out[DLC_PATH_MAX], const char *folders, const char *name)
{
    for (const char *at = folders; at && *at;) {
        size_t n = strcspn(at, ":");

        if (n > 0 && snprintf(out, DLC_PATH_MAX, "%.*s/%s", (int)n, at, name) < DLC_PATH_MAX && is_program(out))
            return true;
        at += n;
        at += *at == ':';
    }
    return false;
}

dlc_err dlc__nats_find(char out[DLC_PATH_MAX], const char *wanted)
{
    const char *name = wanted ? wanted : "nats-server";

    if (strchr(name, '/')) {
        snprintf(out, DLC_PATH_MAX, "%s", name);
        if (is_program(out))
            return DLC_OK;
    } else if (find_in(out, getenv("PATH"), name) || find_in(out, "/usr/local/bin:/usr/sbin:/usr/bin", name)) {
        return DLC_OK;
    }
    return dlc_fail(DLC_EUSAGE,
                    "%s: there is no such program; install the package nats-server (Debian, Ubuntu), or use a NATS "
                    "server that runs elsewhere",
                    name);
}

/* --- starting --------------------------------------------------------------------------------------------------------
 */

/* Of the parent's environment nothing but PATH is handed on. The limit makes its garbage collector tidy. */
static char memory_limit[] = "GOMEMLIMIT=256MiB";
static char path_is[] = "PATH=/usr/local/bin:/usr/bin:/bin";
static char *const environment[] = { memory_limit, path_is, NULL };

/* Everything from here to exec is safe after a fork of a process with threads. */
static void be_default(void)
{
    sigset_t none;
    struct sigaction action = { .sa_handler = SIG_DFL };

    for (int number = 1; number < 32; number++)
        sigaction(number, &action, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(077);
    setpgid(0, 0); /* Ctrl-C is for us; the server ends when we have left in order */
}

static void die_with_parent(pid_t parent)
{
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent)
        _exit(1);
}

/* `keep` becomes descriptor 3, and nothing else is handed on: a server that holds our own connections would keep them
 * open when we die. */
static void hand_on(int out, int keep)
{
    int null = open("/dev/null", O_RDWR), first = 3;

    dup2(null, 0);
    dup2(out, 1);
    dup2(out, 2);
    if (keep >= 0) {
        if (keep == 3)
            fcntl(3, F_SETFD, 0);
        else
            dup2(keep, 3);
        first = 4;
    }
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, ~0U, 0) == 0)
        return;
#endif
    for (int fd = first; fd < 4096; fd++)
        close(fd);
}

static dlc_err spawn(pid_t *out, char *const argv[], int output, int keep)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        return dlc_fail_errno(DLC_EFAIL, "%s: cannot be started", argv[0]);
    if (pid == 0) {
        die_with_parent(parent);
        be_default();
        hand_on(output, keep);
        execve(argv[0], argv, environment);
        _exit(127);
    }
    *out = pid;
    return DLC_OK;
}

dlc_err dlc__nats_spawn(pid_t *out, const char *program, const char *folder, int lock_fd)
{
    char path[DLC_PATH_MAX], config[DLC_PATH_MAX], name[DLC_PATH_MAX];
    char option[] = "-c";
    char *const argv[] = { name, option, config, NULL };
    dlc_err err;
    int fd;

    snprintf(name, sizeof name, "%s", program);
    DLC_TRY(dlc_path_join(config, folder, "nats.conf"));
    DLC_TRY(dlc_path_join(path, folder, "nats.out"));
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be made", path);
    err = spawn(out, argv, fd, lock_fd);
    close(fd);
    return err;
}

/* --- version ---------------------------------------------------------------------------------------------------------
 */

static void read_until_closed(char *out, size_t size, int fd, double patience_s)
{
    double deadline_s = dlc_now_s() + patience_s;
    size_t n = 0;

    while (n + 1 < size && dlc_now_s() < deadline_s) {
        struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
        ssize_t got;

        if (poll(&poll_fd, 1, 100) <= 0)
            continue;
        got = read(fd, out + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    out[n] = '\0';
}

dlc_err dlc__nats_version(int *major, int *minor, const char *program)
{
    char text[256], name[DLC_PATH_MAX], option[] = "--version", *end;
    char *const argv[] = { name, option, NULL };
    const char *at;
    int ends[2];
    pid_t pid = 0;
    dlc_err err;

    snprintf(name, sizeof name, "%s", program);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return dlc_fail_errno(DLC_EFAIL, "pipe");
    err = spawn(&pid, argv, ends[1], -1);
    close(ends[1]);
    if (err == DLC_OK) {
        read_until_closed(text, sizeof text, ends[0], 10.0);
        dlc__nats_end(pid, 0);
    }
    close(ends[0]);
    DLC_TRY(err);
    at = strncmp(text, "nats-server: v", 14) == 0 ? text + 14 : NULL;
    *major = at ? (int)strtol(at, &end, 10) : 0;
    if (!at || *end != '.' || *major < 2)
        return dlc_fail(DLC_EUSAGE, "%s: is not a nats-server of version 2 or later", program);
    *minor = (int)strtol(end + 1, NULL, 10);
    return DLC_OK;
}

/* --- ending ----------------------------------------------------------------------------------------------------------
 */

bool dlc__nats_has_ended(pid_t pid)
{
    pid_t got = waitpid(pid, NULL, WNOHANG);

    return got == pid || (got < 0 && errno == ECHILD);
}

void dlc__nats_end(pid_t pid, double patience_s)
{
    double deadline_s = dlc_now_s() + patience_s;

    if (patience_s > 0)
        kill(pid, SIGTERM);
    while (dlc_now_s() < deadline_s) {
        struct timespec moment = { .tv_nsec = 10000000 };

        if (dlc__nats_has_ended(pid))
            return;
        nanosleep(&moment, NULL);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* --- logs ------------------------------------------------------------------------------------------------------------
 */

static bool last_line(char *out, size_t size, const char *folder, const char *name, uint64_t from)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX], *end, *begin;
    bool found = false;

    if (dlc_path_join(path, folder, name) == DLC_OK && dlc_file_read(&text, path, LOG_MAX_BYTES) == DLC_OK &&
        text.len > from) {
        for (end = text.data + text.len; end > text.data + from && end[-1] == '\n';)
            *--end = '\0';
        for (begin = end; begin > text.data + from && begin[-1] != '\n';)
            begin--;
        snprintf(out, size, "%s", begin);
        found = *out != '\0';
    }
    dlc_buf_fini(&text);
    return found;
}

void dlc__nats_last_words(char *out, size_t size, const char *folder, uint64_t from)
{
    if (!last_line(out, size, folder, "nats.log", from) && !last_line(out, size, folder, "nats.out", 0))
        *out = '\0';
}

/* Their names end with the time, so that they sort by age. */
void dlc__nats_prune_logs(const char *folder)
{
    struct dlc_names names = { 0 };
    char path[DLC_PATH_MAX];
    int n_kept = 0;

    if (dlc_list_folder(&names, folder) != DLC_OK)
        return;
    for (size_t i = names.n; i-- > 0;)
        if (strncmp(names.names[i], "nats.log.", 9) == 0 && ++n_kept > 2 &&
            dlc_path_join(path, folder, names.names[i]) == DLC_OK)
            unlink(path);
    dlc_names_free(&names);
}
