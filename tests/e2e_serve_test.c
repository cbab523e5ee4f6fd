/* A run served to islands that are processes of their own over a real NATS server, all on this machine: the same bits as
 * the run on one machine, whoever is killed; who may not join is told why. Needs nats-server; skipped without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "history.h"
#include "runner.h"
#include "scene.h"

#define SERVED                                                                                                         \
    "coordinate --loopback --data data" TINY_MODEL " --outer.steps 5 --steps 40 --batch 2 --data.val_tokens 500"       \
    " --train.log_every 1 --system.threads 1"
#define K 2
#define APPEARS_S 30.0
#define URL_MAX 500

static bool have_nats(void)
{
    return access("/usr/sbin/nats-server", X_OK) == 0 || access("/usr/bin/nats-server", X_OK) == 0 ||
           access("/usr/local/bin/nats-server", X_OK) == 0;
}

#define NEEDS_NATS()                                                                                                   \
    do {                                                                                                               \
        if (!have_nats()) {                                                                                            \
            print_message("skipped: there is no nats-server (Debian: nats-server)\n");                                 \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

static int set_up(void **state)
{
    int rc = runner_begin(state);

    if (rc == 0)
        scene_prepare();
    return rc;
}

/* --- coordinator and islands ------------------------------------------------------------------------------------------ */

struct scene {
    struct child coordinator, islands[8];
    char run[32], url[URL_MAX];
};

/* The join line on the coordinator's standard output. */
static void wait_for_url(struct scene *s)
{
    double until_s = dlc_now_s() + APPEARS_S;
    struct dlc_buf out = { 0 };
    int status;

    for (;;) {
        bool there = dlc_file_exists(s->coordinator.out_path); /* the child makes it */
        const char *text = there ? child_text(&out, s->coordinator.out_path) : "";
        const char *line = strstr(text, "diloco join '");
        const char *end = line ? strchr(line + 13, '\'') : NULL;

        if (end) {
            assert_true(end - (line + 13) < URL_MAX);
            snprintf(s->url, sizeof s->url, "%.*s", (int)(end - (line + 13)), line + 13);
            break;
        }
        if (child_has_ended(&s->coordinator, &status))
            child_fail(&s->coordinator, "ended with status %d before it said how to join", status);
        if (dlc_now_s() > until_s)
            child_fail(&s->coordinator, "did not say how to join within %.0f s", APPEARS_S);
        sleep_ms(5);
    }
    dlc_buf_fini(&out);
}

static void start_coordinator(struct scene *s, const char *flags)
{
    child_start(&s->coordinator, SERVED " --out %s %s", s->run, flags);
    wait_for_url(s);
}

static int n_in_roster(const struct scene *s)
{
    json_t *v = json_load_file(in_scratch("%s/islands.json", s->run), 0, NULL);
    int n = (int)json_array_size(json_object_get(v, "islands"));

    json_decref(v);
    return n;
}

static void start_island(struct scene *s, int i)
{
    child_start(&s->islands[i], "join %s --data data --out %s-island-%d --name i%d --system.threads 1 --exchange.patience 20",
                s->url, s->run, i, i);
}

/* In this order: the index in the records is the order in which they came. */
static void islands_join(struct scene *s, int n)
{
    for (int i = 0; i < n; i++) {
        double until_s = dlc_now_s() + APPEARS_S;

        start_island(s, i);
        while (n_in_roster(s) <= i) {
            if (dlc_now_s() > until_s)
                child_fail(&s->islands[i], "is not in the roster after %.0f s", APPEARS_S);
            sleep_ms(2);
        }
    }
}

static void expect_end(struct child *c, int status)
{
    int got = child_wait(c);

    if (got != status)
        child_fail(c, "ended with status %d, expected %d", got, status);
}

static void wait_for_records(struct scene *s, int n)
{
    int status;

    while (history_lines(s->run) < n) {
        if (child_has_ended(&s->coordinator, &status))
            child_fail(&s->coordinator, "ended with status %d after %d outer steps", status, history_lines(s->run));
        sleep_ms(1);
    }
}

static void same_bits(const char *expected, const char *got)
{
    static struct history a, b;

    history_read(&a, expected);
    history_read(&b, got);
    assert_int_equal(a.n_records, TINY_STEPS / TINY_H);
    assert_int_equal(b.n_records, a.n_records);
    for (int t = 0; t < a.n_records; t++)
        assert_string_equal(a.theta[t], b.theta[t]);
    history_is_complete(got, (uint64_t)(TINY_STEPS * TINY_BATCH * K));
}

/* --- tests ------------------------------------------------------------------------------------------------------------ */

static void a_served_run_is_the_run_on_one_machine(void **state)
{
    struct scene s = { .run = "served" };
    struct dlc_buf out = { 0 };
    struct child status = { 0 };

    (void)state;
    NEEDS_NATS();
    run_expecting(0, TINY " --islands 2 --out calm");
    start_coordinator(&s, "--min-islands 2 --quorum 2");
    islands_join(&s, K);
    wait_for_records(&s, 1);
    child_start(&status, "status %s --json", s.url);
    expect_end(&status, 0);
    if (!strstr(child_text(&out, status.out_path), "\"name\": \"i1\""))
        child_fail(&status, "status does not name the second island: %s", out.data);
    for (int i = 0; i < K; i++)
        expect_end(&s.islands[i], 0);
    expect_end(&s.coordinator, 0);
    same_bits("calm", "served");
    run_expecting(0, SERVED " --out served"); /* once more: it is finished */
    run_expecting(0, "eval served --data data --json");
    dlc_buf_fini(&out);
}

/* Coordinator and islands, at seeded moments: with the quorum at all members a round waits for who was killed. */
static void killed_at_any_moment_it_ends_the_same(void **state)
{
    int n = runner_is_long ? 20 : runner_is_slow() ? 2 : 5;
    int kills[2] = { 0, 0 };

    (void)state;
    NEEDS_NATS();
    run_expecting(0, TINY " --islands 2 --out calm2");
    for (int seed = 1; seed <= n; seed++) {
        struct dlc_rng rng = { .seed = (uint64_t)seed, .stream = 78 };
        struct scene s = { 0 };
        int status;

        snprintf(s.run, sizeof s.run, "kill-%d", seed);
        start_coordinator(&s, "--min-islands 2 --quorum 2");
        islands_join(&s, K);
        for (int left = 3; left > 0; left--) {
            int victim = (int)dlc_rng_below(&rng, K + 1), at = (int)dlc_rng_below(&rng, TINY_STEPS / TINY_H);

            while (history_lines(s.run) < at && !(s.coordinator.pid && child_has_ended(&s.coordinator, &status)))
                sleep_ms(1);
            sleep_ms((double)dlc_rng_below(&rng, 40000) / 1000);
            if (s.coordinator.pid == 0 || child_has_ended(&s.coordinator, &status))
                break;
            if (victim == K) {
                child_signal(&s.coordinator, SIGKILL);
                child_wait(&s.coordinator);
                child_start(&s.coordinator, SERVED " --out %s --min-islands 2 --quorum 2", s.run);
            } else if (!child_has_ended(&s.islands[victim], &status)) {
                child_signal(&s.islands[victim], SIGKILL);
                child_wait(&s.islands[victim]);
                start_island(&s, victim);
            } else {
                break;
            }
            kills[victim == K]++;
        }
        if (s.coordinator.pid)
            expect_end(&s.coordinator, 0);
        for (int i = 0; i < K; i++) {
            if (s.islands[i].pid)
                child_wait(&s.islands[i]); /* one that comes back when all is over is told so */
        }
        same_bits("calm2", s.run);
    }
    print_message("%d islands and %d coordinators were killed\n", kills[0], kills[1]);
}

/* With a quorum of one the others go on; who left comes back as himself. */
static void an_island_leaves_and_comes_back(void **state)
{
    struct scene s = { .run = "leave" };
    static struct history h;

    (void)state;
    NEEDS_NATS();
    start_coordinator(&s, "--min-islands 1 --quorum 1 --steps 4000");
    islands_join(&s, K);
    wait_for_records(&s, 3);
    child_signal(&s.islands[1], SIGTERM);
    expect_end(&s.islands[1], 3);
    wait_for_records(&s, history_lines(s.run) + 5);
    start_island(&s, 1);
    wait_for_records(&s, history_lines(s.run) + 20);
    assert_int_equal(n_in_roster(&s), 2);
    child_signal(&s.coordinator, SIGTERM); /* in order: the islands would wait for it */
    expect_end(&s.coordinator, 3);
    for (int i = 0; i < K; i++) {
        child_signal(&s.islands[i], SIGTERM);
        expect_end(&s.islands[i], 3);
    }
    history_read(&h, s.run); /* the chain, and no sample twice */
    assert_true(h.n_records >= 28);
}

/* Members of the newest record whose contribution is in the mean. */
static int n_contributing(const char *run)
{
    json_t *status = NULL;
    struct child c = { 0 };
    int n;

    child_start(&c, "status %s --json", run);
    expect_end(&c, 0);
    status = json_load_file(c.out_path, 0, NULL);
    n = (int)json_integer_value(json_object_get(status, "contributing"));
    json_decref(status);
    return n;
}

/* Islands come and leave until there are `wanted`; the rounds follow. */
static void bring_to(struct scene *s, bool *there, int wanted, const char *name)
{
    double until_s = dlc_now_s() + APPEARS_S;
    int n = 0;

    for (int i = 0; i < 8; i++)
        n += there[i];
    for (int i = 0; i < 8 && n < wanted; i++) {
        if (there[i])
            continue;
        start_island(s, i);
        there[i] = true;
        n++;
    }
    for (int i = 7; i >= 0 && n > wanted; i--) {
        if (!there[i])
            continue;
        child_signal(&s->islands[i], SIGTERM);
        expect_end(&s->islands[i], 3);
        there[i] = false;
        n--;
    }
    while (n_contributing(s->run) != wanted) {
        if (dlc_now_s() > until_s)
            child_fail(&s->coordinator, "%s: %d contribute, expected %d", name, n_contributing(s->run), wanted);
        wait_for_records(s, history_lines(s->run) + 1);
    }
}

/* The paper's schedules of compute, over the same six points of a run. */
static void compute_may_follow_any_schedule(void **state)
{
    static const struct {
        const char *name;
        int islands[6];
    } rows[] = {
        { "constant", { 3, 3, 3, 3, 3, 3 } },  { "doubling", { 2, 2, 2, 4, 4, 4 } },
        { "halving", { 4, 4, 4, 2, 2, 2 } },   { "ramp-up", { 1, 2, 3, 4, 5, 6 } },
        { "ramp-down", { 6, 5, 4, 3, 2, 1 } },
    };

    (void)state;
    NEEDS_NATS();
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct scene s = { 0 };
        bool there[8] = { false };
        static struct history h;

        snprintf(s.run, sizeof s.run, "%s", rows[k].name);
        start_coordinator(&s, "--outer.steps 100 --steps 1000000 --train.log_every 10000");
        for (int i = 0; i < 6; i++) {
            bring_to(&s, there, rows[k].islands[i], rows[k].name);
            wait_for_records(&s, history_lines(s.run) + 3);
        }
        child_signal(&s.coordinator, SIGTERM);
        expect_end(&s.coordinator, 3);
        for (int i = 0; i < 8; i++) {
            if (!there[i])
                continue;
            child_signal(&s.islands[i], SIGTERM);
            expect_end(&s.islands[i], 3);
        }
        history_read(&h, s.run); /* the chain, and no sample twice */
        assert_true(h.n_records >= 18);
    }
}

static void who_may_not_join_is_told_why(void **state)
{
    struct scene s = { .run = "refuse" };
    char url[URL_MAX + 8], *at;
    struct dlc_buf err = { 0 };
    static const struct {
        const char *flags;
        int status;
        const char *text;
    } rows[] = {
        { "--data other --out r1 --name x", 4, "copy the coordinator's data" },
        { "--data data --out r2 --name i0", 4, "belongs to another island" },
        { "--data data --out r3 --name x --optim.lr 0.1", 2, "belongs to the whole run" },
        { "--data nowhere --out r4 --name x", 4, "nowhere" },
        { "--data data --out refuse --name x", 2, "a run's folder" },
        { "--data data --out refuse-island-0 --name x", 4, "at work in" },
    };

    (void)state;
    NEEDS_NATS();
    scene_write_text("other.jsonl", 2, 100000);
    run_expecting(0, "prepare other.jsonl --out other --vocab-size 400 --val-fraction 0.1 --threads 1");
    start_coordinator(&s, "--min-islands 2 --quorum 2");
    islands_join(&s, 1);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        int got = run_to_end(&err, "join %s %s --quiet", s.url, rows[k].flags);

        if (got != rows[k].status || !strstr(err.data, rows[k].text))
            fail_msg("%s: status %d, %s", rows[k].flags, got, err.data);
    }
    snprintf(url, sizeof url, "%s", s.url); /* another secret */
    at = strchr(url, '@') - 1;
    *at = *at == 'a' ? 'b' : 'a';
    assert_int_equal(run_to_end(&err, "join %s --data data --out r5 --quiet", url), 5);
    if (!strstr(err.data, "secret"))
        fail_msg("a wrong secret: %s", err.data);
    snprintf(url, sizeof url, "%s", s.url); /* another certificate */
    at = strstr(url, "pin=") + 4;
    *at = *at == 'a' ? 'b' : 'a';
    assert_int_equal(run_to_end(&err, "join %s --data data --out r6 --quiet", url), 5);
    if (!strstr(err.data, "certificate"))
        fail_msg("a wrong pin: %s", err.data);
    run_expecting(0, "doctor %s", s.url);
    child_signal(&s.coordinator, SIGTERM);
    expect_end(&s.coordinator, 3);
    child_signal(&s.islands[0], SIGTERM);
    expect_end(&s.islands[0], 3);
    assert_int_equal(run_to_end(&err, TINY " --out refuse --quiet"), 2);
    if (!strstr(err.data, "diloco coordinate"))
        fail_msg("train on a served run: %s", err.data);
    dlc_buf_fini(&err);
}

/* --- who leads ---------------------------------------------------------------------------------------------------------*/

static pid_t spawn(const char *const argv[])
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* Somebody's server, that outlives every coordinator. */
static pid_t start_nats(char url[64])
{
    char port[12], folder[DLC_PATH_MAX];
    const char *const argv[] = { access("/usr/sbin/nats-server", X_OK) == 0 ? "/usr/sbin/nats-server" : "nats-server",
                                 "-a", "127.0.0.1", "-p", port, "-js", "-sd", folder, "--user", "lead", "--pass", "secret",
                                 "-l", in_scratch("foreign-nats.log"), NULL };

    snprintf(folder, sizeof folder, "%s", in_scratch("foreign-nats"));
    snprintf(port, sizeof port, "%d", free_port());
    snprintf(url, 64, "nats://lead:secret@127.0.0.1:%s/any", port);
    return spawn(argv);
}

static void copy_folder(const char *to, const char *from)
{
    char from_path[DLC_PATH_MAX], to_path[DLC_PATH_MAX];
    const char *const argv[] = { "cp", "-a", from_path, to_path, NULL };
    int status;

    snprintf(from_path, sizeof from_path, "%s", in_scratch("%s", from));
    snprintf(to_path, sizeof to_path, "%s", in_scratch("%s", to));
    assert_int_equal(waitpid(spawn(argv), &status, 0) > 0 ? status : -1, 0);
}

#define ON_SERVER                                                                                                      \
    "coordinate --data data" TINY_MODEL " --outer.steps 5 --steps 40 --batch 2 --data.val_tokens 500"                  \
    " --train.log_every 1 --system.threads 1 --min-islands 2 --quorum 2"

static void expect_words(struct child *c, int status, const char *words)
{
    struct dlc_buf err = { 0 };

    expect_end(c, status);
    if (!strstr(child_text(&err, c->err_path), words))
        child_fail(c, "does not say '%s'", words);
    dlc_buf_fini(&err);
}

/* A leader sleeps in mid-run; from a copy of its folder another one takes over when the lease has run out. The islands go on
 * with it to the same bits; what woke up cannot write any more, and its shorter history does not lead again. */
static void a_leader_that_slept_leads_no_more(void **state)
{
    struct scene s = { .run = "asleep" };
    struct child second = { 0 };
    char nats[64];
    pid_t server;
    double since_s;

    (void)state;
    NEEDS_NATS();
    run_expecting(0, TINY " --islands 2 --out calm3");
    server = start_nats(nats);
    sleep_ms(500);
    child_start(&s.coordinator, ON_SERVER " --nats %s --out asleep", nats);
    wait_for_url(&s);
    islands_join(&s, K);
    wait_for_records(&s, 1);
    child_signal(&s.coordinator, SIGSTOP);
    sleep_ms(50);
    copy_folder("awake", s.run);
    since_s = dlc_now_s();
    child_start(&second, ON_SERVER " --nats %s --out awake", nats);
    for (int i = 0; i < K; i++)
        expect_end(&s.islands[i], 0);
    expect_end(&second, 0);
    print_message("taken over and ended after %.1f s\n", dlc_now_s() - since_s);
    same_bits("calm3", "awake");
    child_signal(&s.coordinator, SIGCONT);
    expect_words(&s.coordinator, 5, "leads no more");
    child_start(&s.coordinator, ON_SERVER " --nats %s --out asleep", nats);
    expect_words(&s.coordinator, 5, "missing here are the steps from");
    end_child(server);
}

static void a_copy_of_the_folder_does_not_lead_beside_it(void **state)
{
    struct scene s = { .run = "first" };
    struct child second = { 0 };
    char nats[64];
    pid_t server;
    int n;

    (void)state;
    NEEDS_NATS();
    server = start_nats(nats);
    sleep_ms(500);
    child_start(&s.coordinator, ON_SERVER " --steps 40000 --nats %s --out first", nats);
    wait_for_url(&s);
    islands_join(&s, K);
    wait_for_records(&s, 2);
    child_signal(&s.coordinator, SIGSTOP); /* far shorter than a lease: its files stand still for the copy */
    sleep_ms(20);
    copy_folder("second", s.run);
    child_signal(&s.coordinator, SIGCONT);
    child_start(&second, ON_SERVER " --steps 40000 --nats %s --out second", nats);
    expect_words(&second, 5, "is led by a coordinator on");
    /* The folder itself comes back at once after a kill: nobody has to wait for its own lease. */
    child_signal(&s.coordinator, SIGKILL);
    child_wait(&s.coordinator);
    n = history_lines(s.run);
    child_start(&s.coordinator, ON_SERVER " --steps 40000 --nats %s --out first", nats);
    wait_for_records(&s, n + 3);
    child_signal(&s.coordinator, SIGTERM);
    expect_end(&s.coordinator, 3);
    for (int i = 0; i < K; i++) {
        child_signal(&s.islands[i], SIGTERM);
        expect_end(&s.islands[i], 3);
    }
    /* Given up in order: the copy need not wait, but its history is too short. */
    child_start(&second, ON_SERVER " --steps 40000 --nats %s --out second", nats);
    expect_words(&second, 5, "missing here are the steps from");
    end_child(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_served_run_is_the_run_on_one_machine),
        cmocka_unit_test(killed_at_any_moment_it_ends_the_same),
        cmocka_unit_test(an_island_leaves_and_comes_back),
        cmocka_unit_test(compute_may_follow_any_schedule),
        cmocka_unit_test(who_may_not_join_is_told_why),
        cmocka_unit_test(a_leader_that_slept_leads_no_more),
        cmocka_unit_test(a_copy_of_the_folder_does_not_lead_beside_it),
    };

    return runner_main("e2e serve", tests, set_up);
}
