#include "train/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rss.h"

extern char **environ;

#define CHILD_SOCKET_FD 3 /* where the child finds its descriptors */
#define CHILD_MEMORY_FD 4
#define LINGER_S 2.0 /* a process whose connection is closed has this long to end by itself */

struct process {
    pid_t pid; /* 0: none */
    uint32_t incarnation;
};

struct dlc_processes {
    int n;
    dlc_local *exchange;
    struct dlc_islands_start start;
    char program[DLC_PATH_MAX];
    char **environment; /* of islands; its last string is `tunables`, the others belong to the system */
    char *tunables;
    struct process *items;
};

static dlc_err find_program(char out[DLC_PATH_MAX])
{
#ifdef __APPLE__
    uint32_t size = DLC_PATH_MAX;

    return _NSGetExecutablePath(out, &size) == 0 ? DLC_OK : dlc_fail(DLC_EFAIL, "this program's path is too long");
#else
    ssize_t n = readlink("/proc/self/exe", out, DLC_PATH_MAX - 1);

    if (n < 0)
        return dlc_fail_errno(DLC_EFAIL, "/proc/self/exe");
    out[n] = '\0';
    if (access(out, X_OK) != 0) /* replaced while it runs: the running one can still be started this way */
        snprintf(out, DLC_PATH_MAX, "/proc/self/exe");
    return DLC_OK;
#endif
}

/* Matrix libraries allocate and free aligned blocks at every product. glibc cuts the alignment off and keeps the
 * cuttings for later, one by one, where they stand between free blocks: memory then grows by 10 MB and more a thread,
 * and by other amounts every time. Without that store of cuttings it does not. */
#define TUNABLES "GLIBC_TUNABLES"
#define NO_CUTTINGS "glibc.malloc.tcache_count=0"

static dlc_err make_environment(dlc_processes *p)
{
    const char *given = getenv(TUNABLES);
    size_t n = 0, n_bytes = sizeof TUNABLES "=:" NO_CUTTINGS + (given ? strlen(given) : 0), at = 0;

    while (environ[n])
        n++;
    p->environment = dlc_calloc(n + 2, sizeof *p->environment);
    p->tunables = dlc_alloc(n_bytes);
    if (!p->environment || !p->tunables)
        return DLC_ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], TUNABLES "=", sizeof TUNABLES) != 0)
            p->environment[at++] = environ[i];
    /* What the user wants comes later and counts. */
    snprintf(p->tunables, n_bytes, TUNABLES "=" NO_CUTTINGS "%s%s", given ? ":" : "", given ? given : "");
    p->environment[at] = p->tunables;
    return DLC_OK;
}

dlc_err dlc_processes_create(dlc_processes **out, int n_islands, dlc_local *exchange,
                             const struct dlc_islands_start *start)
{
    dlc_processes *p = dlc_calloc(1, sizeof *p);
    dlc_err err = DLC_ENOMEM;

    *out = NULL;
    if (!p)
        return DLC_ENOMEM;
    p->n = n_islands;
    p->exchange = exchange;
    p->start = *start;
    p->items = dlc_calloc((size_t)n_islands, sizeof *p->items);
    if (p->items)
        err = find_program(p->program);
    if (err == DLC_OK)
        err = make_environment(p);
    if (err != DLC_OK) {
        dlc_processes_destroy(p);
        return err;
    }
    *out = p;
    return DLC_OK;
}

static void sleep_s(double seconds)
{
    struct timespec ts = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };

    (void)nanosleep(&ts, NULL);
}

/* True when the process has ended; *status as waitpid gives it. */
static bool has_ended(struct process *p, int *status)
{
    pid_t got = waitpid(p->pid, status, WNOHANG);

    if (got == 0 || (got < 0 && errno == EINTR))
        return false;
    if (got < 0)
        *status = 0;
    p->pid = 0;
    return true;
}

static void wait_killed(struct process *p, int *status)
{
    kill(p->pid, SIGKILL);
    kill(p->pid, SIGCONT);
    while (waitpid(p->pid, status, 0) < 0 && errno == EINTR)
        ;
    p->pid = 0;
}

void dlc_processes_destroy(dlc_processes *p)
{
    int status;

    if (!p)
        return;
    for (int i = 0; p->items && i < p->n; i++) {
        if (p->items[i].pid)
            wait_killed(&p->items[i], &status);
    }
    dlc_free(p->environment);
    dlc_free(p->tunables);
    dlc_free(p->items);
    dlc_free(p);
}

uint32_t dlc_processes_incarnation(const dlc_processes *p, int island)
{
    return p->items[island].incarnation;
}

size_t dlc_processes_peak_bytes(const dlc_processes *p, int island)
{
    return p->items[island].pid ? dlc_rss_peak_bytes(p->items[island].pid) : 0;
}

void dlc_processes_kill(dlc_processes *p, int island)
{
    if (p->items[island].pid) {
        kill(p->items[island].pid, SIGKILL);
        kill(p->items[island].pid, SIGCONT); /* a stopped process dies only when it goes on, on some systems */
    }
}

static void describe(char how[64], int status)
{
    if (WIFSIGNALED(status))
        snprintf(how, 64, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(how, 64, "exit status %d", WEXITSTATUS(status));
}

void dlc_processes_reap(dlc_processes *p, int island, char how[64])
{
    struct process *item = &p->items[island];
    double give_up_s = dlc_now_s() + LINGER_S;
    int status = 0;

    snprintf(how, 64, "no process");
    if (!item->pid)
        return;
    while (!has_ended(item, &status)) {
        if (dlc_now_s() > give_up_s) {
            wait_killed(item, &status);
            break;
        }
        sleep_s(0.002);
    }
    describe(how, status);
}

void dlc_processes_wait_all(dlc_processes *p, double seconds)
{
    double give_up_s = dlc_now_s() + seconds;
    int status;

    for (int i = 0; i < p->n; i++) {
        while (p->items[i].pid && !has_ended(&p->items[i], &status)) {
            if (dlc_now_s() > give_up_s)
                wait_killed(&p->items[i], &status);
            else
                sleep_s(0.002);
        }
    }
}

/* Descriptors above those that the child expects, so that putting one in place never overwrites the other. */
static int raise_fd(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 10);
}

static dlc_err spawn(dlc_processes *p, int island, int socket_fd, int memory_fd)
{
    char index[16], incarnation[16], parent[24], vocab[16];
    const char *argv[] = { "diloco",  "island", "--run",         p->start.run_folder,  "--run-id", p->start.run_id,
                           "--index", index,    "--incarnation", incarnation,          "--parent", parent,
                           "--vocab", vocab,    "--data-sha256", p->start.data_sha256, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, usual;
    int rc;

    snprintf(index, sizeof index, "%d", island);
    snprintf(incarnation, sizeof incarnation, "%u", p->items[island].incarnation);
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    snprintf(vocab, sizeof vocab, "%d", p->start.vocab_size);
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, socket_fd, CHILD_SOCKET_FD);
    posix_spawn_file_actions_adddup2(&actions, memory_fd, CHILD_MEMORY_FD);
    posix_spawnattr_init(&attr);
    /* A group of its own: Ctrl-C on the terminal is for the coordinator, which stops the islands in order. */
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &usual);
    rc =
        posix_spawn(&p->items[island].pid, p->program, &actions, &attr, (char *const *)(uintptr_t)argv, p->environment);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (rc == 0)
        return DLC_OK;
    p->items[island].pid = 0;
    errno = rc;
    return dlc_fail_errno(DLC_EFAIL, "island %d: %s cannot be started", island, p->program);
}

dlc_err dlc_processes_start(dlc_processes *p, int island)
{
    int child_fd = -1, socket_fd, memory_fd;
    dlc_err err;

    DLC_TRY(dlc_local_connect(p->exchange, island, &child_fd));
    p->items[island].incarnation++;
    socket_fd = raise_fd(child_fd);
    memory_fd = raise_fd(dlc_local_memory_fd(p->exchange));
    close(child_fd);
    if (socket_fd < 0 || memory_fd < 0)
        err = dlc_fail_errno(DLC_EFAIL, "island %d: descriptors", island);
    else
        err = spawn(p, island, socket_fd, memory_fd);
    if (socket_fd >= 0)
        close(socket_fd);
    if (memory_fd >= 0)
        close(memory_fd);
    return err;
}
