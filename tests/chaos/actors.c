#include "actors.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "watch.h"

#define OUTPUT_MAX_BYTES ((size_t)64 << 20)

void actors_adopt(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* a nats-server whose coordinator was killed is seen, and taken down */
}

static void append_to(const char *path, int fd)
{
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);

    if (file < 0 || dup2(file, fd) < 0)
        _exit(126);
    close(file);
}

__attribute__((noreturn)) static void become(const struct actor *a, char **argv)
{
    int null = open("/dev/null", O_RDONLY);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0)
        _exit(126);
    append_to(a->out_path, STDOUT_FILENO);
    append_to(a->err_path, STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

dlc_err actor_start(struct actor *a, const char *folder, const char *program, const char *args)
{
    char words[4096], *argv[ACTOR_ARGS_MAX + 2] = { (char *)(uintptr_t)program }, *rest = words;
    int n = 1;

    if (snprintf(words, sizeof words, "%s", args) >= (int)sizeof words ||
        snprintf(a->out_path, sizeof a->out_path, "%s/%s.out", folder, a->who) >= (int)sizeof a->out_path ||
        snprintf(a->err_path, sizeof a->err_path, "%s/%s.err", folder, a->who) >= (int)sizeof a->err_path)
        return dlc_fail(DLC_EUSAGE, "%s: a command or a path is too long", a->who);
    for (char *word; n <= ACTOR_ARGS_MAX && (word = strtok_r(rest, " ", &rest)) != NULL;)
        argv[n++] = word;
    a->stopped = a->must_end = false;
    a->pid = fork();
    if (a->pid == 0)
        become(a, argv);
    if (a->pid < 0)
        return dlc_fail_errno(DLC_EFAIL, "fork for %s", a->who);
    a->n_starts++;
    return DLC_OK;
}

bool actor_has_ended(struct actor *a)
{
    int raw = 0;

    if (!a->pid || waitpid(a->pid, &raw, WNOHANG) != a->pid)
        return false;
    a->pid = 0;
    a->status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return true;
}

void actor_signal(struct actor *a, int number)
{
    if (!a->pid)
        return;
    if (number == SIGKILL || number == SIGTERM)
        a->must_end = true;
    if (number == SIGSTOP || number == SIGCONT)
        a->stopped = number == SIGSTOP;
    (void)kill(a->pid, number);
}

static void sleep_ms(int ms)
{
    struct timespec ts = { .tv_nsec = (long)ms * 1000000 };

    (void)nanosleep(&ts, NULL);
}

bool actor_wait(struct actor *a, double seconds)
{
    double give_up_s = dlc_now_s() + seconds;
    bool in_time = true;

    while (a->pid && !actor_has_ended(a)) {
        if (in_time && dlc_now_s() > give_up_s) {
            in_time = false;
            actor_signal(a, SIGKILL);
        }
        sleep_ms(5);
    }
    return in_time;
}

int actors_kill_rest(void)
{
    double give_up_s = dlc_now_s() + 10;
    pid_t left[64];
    int n_killed = 0, n;

    do {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        n = chaos_children(getpid(), NULL, left, 64);
        for (int i = 0; i < n; i++)
            n_killed += kill(left[i], SIGKILL) == 0;
        if (n)
            sleep_ms(20);
    } while (n > 0 && dlc_now_s() < give_up_s);
    return n_killed;
}

dlc_err actor_run(const char *folder, const char *who, const char *program, const char *args)
{
    struct actor a = { .pid = 0 };
    struct dlc_buf said = { 0 };
    size_t from;

    snprintf(a.who, sizeof a.who, "%s", who);
    DLC_TRY(actor_start(&a, folder, program, args));
    actor_wait(&a, 300);
    if (a.status == 0)
        return DLC_OK;
    (void)dlc_file_read(&said, a.err_path, OUTPUT_MAX_BYTES);
    from = said.len > 500 ? said.len - 500 : 0;
    (void)dlc_fail(DLC_EFAIL, "%s %s ended with %d: %s", program, args, a.status, said.len ? said.data + from : "");
    dlc_buf_fini(&said);
    return DLC_EFAIL;
}

bool actor_last_json(char *line, size_t size, const char *path, const char *key)
{
    struct dlc_buf text = { 0 };
    bool found = false;

    if (!dlc_file_exists(path) || dlc_file_read(&text, path, OUTPUT_MAX_BYTES) != DLC_OK || text.len == 0)
        return false;
    for (char *at = text.data, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_t *v = NULL;

        if (*at == '{' && dlc_json_parse(&v, at, (size_t)(end - at), path) == DLC_OK && json_object_get(v, key) &&
            (size_t)(end - at) < size) {
            snprintf(line, size, "%.*s", (int)(end - at), at);
            found = true;
        }
        json_decref(v);
    }
    dlc_buf_fini(&text);
    return found;
}
