/* What is particular to the nats exchange: everything here goes over a real server. */
#include "exchange/nats_test_util.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/log.h"
#include "exchange/nats_subjects.h"

#define SMALL 1000
#define MIB (1 << 20)

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static struct dlc_message assign(const struct nats_world *w, uint64_t t)
{
    return (struct dlc_message){ .kind = DLC_MSG_ASSIGN, .t = t, .attempt = 1, .n_steps = 1, .digest = w->theta };
}

static struct dlc_message island_expects(struct nats_world *w, int i, dlc_message_kind kind)
{
    int64_t until_ns = dlc_now_ns() + (int64_t)(PATIENCE_S * 1e9);
    struct dlc_message m = { 0 };
    bool got = false, hub_got, lost;
    char text[160];
    int island;

    while (!got && dlc_now_ns() < until_ns) {
        nats_must(dlc_nats_endpoint_recv(w->isles[i].ep, &m, &got, dlc_now_ns() + 10 * DLC_MS_NS));
        if (got)
            break;
        nats_must(w->hub->ops->recv(w->hub, &island, &m, &lost, &hub_got, dlc_now_ns() + 5 * DLC_MS_NS));
        if (hub_got)
            fail_msg("the hub hears %d of island %d", lost ? -1 : (int)m.kind, island);
    }
    dlc_nats_endpoint_state(w->isles[i].ep, text);
    if (!got || m.kind != kind)
        fail_msg("island %d hears %d, expected %d; %s", i, got ? (int)m.kind : -2, (int)kind, text);
    return m;
}

/* Assignments, contributions, updates: everybody takes the same outer steps. One comes later, all are away for some
 * rounds, and a round in which nothing was summed changes nothing. */
static void a_run(void **state)
{
    struct nats_world w = { 0 };
    struct dlc_message m;

    (void)state;
    nats_world_open(&w, 70000); /* two chunks, the second one cut */
    for (int i = 0; i < 2; i++) {
        nats_start(&w, i);
        nats_until_holds(&w, i, 0);
        nats_say(&w, i, (struct dlc_message){ .kind = DLC_MSG_HELLO });
        nats_hub_expects(&w, DLC_MSG_HELLO, i, NULL);
    }
    for (uint64_t t = 1; t <= 4; t++) {
        for (int i = 0; i < 2; i++) {
            nats_hub_say(&w, i, assign(&w, t));
            m = island_expects(&w, i, DLC_MSG_ASSIGN);
            assert_int_equal(m.t, t);
            nats_say(&w, i, nats_fill_slot(&w, i, t, (int)t + 10 * i));
            nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, i, NULL);
            nats_check_slot(&w, i, (int)t + 10 * i);
        }
        nats_commit(&w, t == 3 ? 0 : 2);
    }
    for (int i = 0; i < 2; i++)
        nats_until_holds(&w, i, 4);
    nats_start(&w, 2); /* with outer state, by a snapshot */
    nats_until_holds(&w, 2, 4);
    nats_commit(&w, 1);
    for (int i = 0; i < 3; i++)
        nats_until_holds(&w, i, 5);
    for (int t = 0; t < 20; t++) /* the updates of most of them are gone when somebody asks */
        nats_commit(&w, 1);
    nats_until_holds(&w, 1, 25);
    nats_until_holds(&w, 2, 25);
    nats_world_close(&w);
}

/* An assignment waits for theta; another digest than was assigned is fetched anew and said, and once more is an error. */
static void wrong_parameters_are_fetched_anew(void **state)
{
    struct nats_world w = { 0 };
    struct dlc_message m, wrong;
    bool got;
    dlc_err err;

    (void)state;
    nats_world_open(&w, SMALL);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    nats_commit(&w, 1);
    wrong = assign(&w, 2);
    wrong.digest.bytes[3] ^= 1;
    nats_hub_say(&w, 0, wrong);
    do { /* what comes out of the island's recv is an error, after the second look */
        err = dlc_nats_endpoint_recv(w.isles[0].ep, &m, &got, dlc_now_ns() + 10 * DLC_MS_NS);
        assert_false(got);
        if (err == DLC_OK && nats_hub_hears_within(&w, &(int){ 0 }, &m, 0.02) == DLC_MSG_RESUPPLY)
            assert_int_equal(m.t, 2);
    } while (err == DLC_OK);
    assert_int_equal(err, DLC_EPEER);
    nats_world_close(&w);
}

/* While an island works on round t it keeps theta(t-1), whatever is committed meanwhile. */
static void theta_stays_while_it_is_worked_on(void **state)
{
    struct nats_world w = { 0 };
    struct dlc_message m;
    float before[4];
    bool got;

    (void)state;
    nats_world_open(&w, SMALL);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    nats_hub_say(&w, 0, assign(&w, 1));
    (void)island_expects(&w, 0, DLC_MSG_ASSIGN);
    memcpy(before, nats_end(&w, 0)->ops->theta(nats_end(&w, 0), 0), sizeof before);
    for (int t = 1; t <= 3; t++)
        nats_commit(&w, 1);
    for (int k = 0; k < 40; k++) {
        nats_must(dlc_nats_endpoint_recv(w.isles[0].ep, &m, &got, dlc_now_ns() + 10 * DLC_MS_NS));
        assert_false(got);
    }
    assert_memory_equal(before, nats_end(&w, 0)->ops->theta(nats_end(&w, 0), 0), sizeof before);
    nats_hub_say(&w, 0, assign(&w, 4)); /* takes the place of the first one */
    m = island_expects(&w, 0, DLC_MSG_ASSIGN);
    assert_int_equal(m.t, 4);
    assert_memory_equal(w.hub->ops->theta(w.hub, 1), nats_end(&w, 0)->ops->theta(nats_end(&w, 0), 3), 4 * w.n);
    nats_world_close(&w);
}

/* --- contributions ------------------------------------------------------------------------------------------------ */

static void contributions_that_cannot_be_right_are_not_fetched(void **state)
{
    static const struct {
        uint64_t t, size_bytes;
        const char *why;
    } rows[] = {
        { 2, 4 * SMALL + 1, "one byte too many" },
        { 2, (uint64_t)1 << 50, "far beyond every memory" },
        { 2, 0, "nothing" },
        { 1, 4 * SMALL, "its round is closed, and so is the next" },
    };
    struct nats_world w = { 0 };
    struct dlc_message m, back;
    uint64_t before;

    (void)state;
    nats_world_open(&w, SMALL);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    nats_commit(&w, 1);
    nats_commit(&w, 1);
    nats_until_holds(&w, 0, 2);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        before = w.hub->traffic[0].bytes_up;
        m = nats_fill_slot(&w, 0, rows[k].t, 3);
        m.size_bytes = rows[k].size_bytes;
        nats_say(&w, 0, m);
        nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 0, &back);
        assert_int_equal(back.size_bytes, rows[k].size_bytes);
        if (w.hub->traffic[0].bytes_up - before > 3000 || w.hub->ops->slot(w.hub, 0))
            fail_msg("%s: it was fetched", rows[k].why);
    }
    nats_world_close(&w);
}

/* The same one again costs nothing and says the same; another one in its place is not taken. */
static void a_contribution_is_taken_once(void **state)
{
    struct nats_world w = { 0 };
    struct dlc_message m, back;
    uint64_t before;
    int island;

    (void)state;
    nats_world_open(&w, 100000);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    m = nats_fill_slot(&w, 0, 1, 7);
    nats_say(&w, 0, m);
    nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 0, NULL);
    before = w.hub->traffic[0].bytes_up;
    assert_true(before > 400000);
    nats_say(&w, 0, m);
    nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 0, &back);
    assert_true(dlc_sha256_equal(&back.digest, &m.digest));
    nats_say(&w, 0, nats_fill_slot(&w, 0, 1, 8));
    assert_int_equal(nats_hub_hears_within(&w, &island, &back, 0.3), HEARS_NOTHING);
    assert_true(w.hub->traffic[0].bytes_up - before < 5000);
    nats_check_slot(&w, 0, 7);
    nats_world_close(&w);
}

/* --- lives -------------------------------------------------------------------------------------------------------- */

/* A joiner that is gone in mid-snapshot leaves only its own half of a file, and goes on with it in its next life. */
static void a_joiner_dies_early(void **state)
{
    struct nats_world w = { 0 };
    struct relay r;
    struct dlc_names names;
    char folder[DLC_PATH_MAX];
    uint64_t at_death;

    (void)state;
    nats_world_open(&w, MIB / 2);
    relay_open(&r);
    w.isles[0].port = r.port;
    nats_commit(&w, 1);
    atomic_store(&r.bytes_per_s, 2 * MIB);
    nats_start(&w, 0);
    for (char text[160] = ""; !strstr(text, "2 of 4 MB");) {
        struct dlc_message m;
        int island;

        (void)nats_hub_hears_within(&w, &island, &m, 0.01);
        dlc_nats_endpoint_state(w.isles[0].ep, text);
    }
    nats_die(&w, 0);
    at_death = atomic_load(&r.n_bytes);
    snprintf(folder, sizeof folder, "%s/isle-0", w.folder);
    nats_must(dlc_list_folder(&names, folder));
    for (size_t k = 0; k < names.n; k++) {
        if (strncmp(names.names[k], "snapshot.bin.", 13) != 0)
            fail_msg("it left %s behind", names.names[k]);
    }
    dlc_names_free(&names);
    nats_hub_expects(&w, HEARS_LOST, 0, NULL);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 1);
    if (atomic_load(&r.n_bytes) - at_death > 4 * MIB - MIB)
        fail_msg("the whole snapshot was fetched again: %llu bytes",
                 (unsigned long long)(atomic_load(&r.n_bytes) - at_death));
    nats_must(dlc_list_folder(&names, folder));
    assert_int_equal(names.n, 0);
    dlc_names_free(&names);
    nats_world_close(&w);
    relay_close(&r);
}

/* The coordinator ends and another one leads, with a higher fence and the same folder: HELLO and the contribution that no
 * record holds come again, and its bytes are there already. */
static void a_new_leader_is_told_again(void **state)
{
    struct nats_world w = { 0 };
    struct dlc_message m, hello = { .kind = DLC_MSG_HELLO, .states_known = true };
    struct dlc_message given;

    (void)state;
    nats_world_open(&w, 100000);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    nats_say(&w, 0, hello);
    nats_hub_expects(&w, DLC_MSG_HELLO, 0, NULL);
    nats_commit(&w, 1);
    nats_until_holds(&w, 0, 1);
    nats_hub_say(&w, 0, assign(&w, 2));
    (void)island_expects(&w, 0, DLC_MSG_ASSIGN);
    given = nats_fill_slot(&w, 0, 2, 9);
    nats_say(&w, 0, given);
    nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 0, NULL);
    for (int k = 0; k < 2; k++) {
        nats_stop_leading(&w, k == 0);
        nats_lead(&w, place.fence + 1);
        nats_hub_expects(&w, DLC_MSG_HELLO, 0, &m);
        assert_true(m.states_known && m.states[0] == 2);
        nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 0, &m);
        assert_true(dlc_sha256_equal(&m.digest, &given.digest) && m.t == 2);
        nats_check_slot(&w, 0, 9);
        if (w.hub->traffic[0].bytes_up > 100000)
            fail_msg("it was fetched again: %llu bytes", (unsigned long long)w.hub->traffic[0].bytes_up);
    }
    nats_commit(&w, 1); /* holds it: now it is old */
    nats_until_holds(&w, 0, 2);
    nats_stop_leading(&w, true);
    nats_lead(&w, place.fence + 1);
    nats_hub_expects(&w, DLC_MSG_HELLO, 0, NULL);
    assert_int_equal(nats_hub_hears_within(&w, &(int){ 0 }, &m, 0.3), HEARS_NOTHING);
    nats_world_close(&w);
}

/* An older leader wakes up beside the new one: islands do not listen to it, and it learns that its time is over. */
static void a_lower_fence_is_ignored(void **state)
{
    struct nats_world w = { 0 };
    struct dlc_sha256 other = { { 1 } };
    dlc_nats_hub *old;
    dlc_hub *old_hub;
    struct dlc_message m;
    bool lost, got;
    int island;
    dlc_err err = DLC_OK;

    (void)state;
    place.fence += 5;
    nats_world_open(&w, SMALL);
    nats_commit(&w, 1);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 1);
    nats_hub_open(&w, &old, place.fence - 1);
    old_hub = dlc_nats_hub_base(old);
    nats_must(old_hub->ops->publish(old_hub, NULL, &other));
    for (int k = 0; k < 100; k++) {
        err = old_hub->ops->recv(old_hub, &island, &m, &lost, &got, dlc_now_ns() + 10 * DLC_MS_NS);
        assert_true(err == DLC_OK || err == DLC_EPEER);
        nats_must(dlc_nats_endpoint_recv(w.isles[0].ep, &m, &got, 0));
        assert_false(got);
    }
    dlc_nats_hub_destroy(old, false);
    nats_commit(&w, 1);
    nats_until_holds(&w, 0, 2);
    nats_world_close(&w);
}

/* A leader whose history ends before what the island holds, or goes another way, is not followed and is told. */
static void another_history_is_not_followed(void **state)
{
    static const struct {
        uint64_t keep_t;
        const char *why;
    } rows[] = { { 1, "a history that ends early" }, { 2, "another record of the same step" } };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct nats_world w = { 0 };
        struct dlc_message m = { 0 };
        dlc_err err = DLC_OK;
        bool got, told = false;
        int island;

        nats_world_open(&w, SMALL);
        nats_start(&w, 0);
        nats_commit(&w, 1);
        nats_commit(&w, 1);
        nats_until_holds(&w, 0, 2);
        nats_stop_leading(&w, true);
        w.t = w.record.t = rows[k].keep_t;
        w.record.n_alive = 77;
        nats_must(dlc_record_seal(&w.record));
        nats_lead(&w, place.fence + 1);
        while (err == DLC_OK) {
            err = dlc_nats_endpoint_recv(w.isles[0].ep, &m, &got, dlc_now_ns() + 10 * DLC_MS_NS);
            if (nats_hub_hears_within(&w, &island, &m, 0.01) == DLC_MSG_FAILED)
                told = true;
        }
        if (err != DLC_EPEER || !strstr(dlc_err_text(), "two histories"))
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        if (!told)
            nats_hub_expects(&w, DLC_MSG_FAILED, 0, &m);
        assert_int_equal(m.kind, DLC_MSG_FAILED);
        nats_world_close(&w);
    }
}

/* A server that was not made by us and forbids nothing. */
static pid_t open_server(int *port)
{
    char number[16];
    pid_t pid;

    close(relay_listen(port));
    snprintf(number, sizeof number, "%d", *port);
    pid = fork();
    if (pid == 0) {
        (void)setenv("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin", 1);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("nats-server", "nats-server", "-a", "127.0.0.1", "-p", number, "-l", "/dev/null", (char *)NULL);
        _exit(127);
    }
    for (int k = 0; k < 500; k++) {
        int fd = relay_connect(*port);

        if (fd >= 0) {
            close(fd);
            return pid;
        }
        (void)usleep(10000);
    }
    fail_msg("no server at port %d", *port);
    return pid;
}

static void two_runs_on_one_server_never_mix(void **state)
{
    struct nats_world a = { 0 }, b = { .run = "fedcba9876543210fedcba9876543210" };
    pid_t server = open_server(&a.open_port);
    struct dlc_message m;
    int island;

    (void)state;
    b.open_port = a.open_port;
    nats_world_open(&a, SMALL);
    nats_world_open(&b, SMALL);
    b.number = a.number; /* the same identities */
    nats_start(&a, 0);
    nats_start(&b, 0);
    nats_until_holds(&a, 0, 0);
    nats_until_holds(&b, 0, 0);
    nats_say(&a, 0, nats_fill_slot(&a, 0, 1, 1));
    nats_say(&b, 0, nats_fill_slot(&b, 0, 1, 2));
    nats_hub_expects(&a, DLC_MSG_CONTRIBUTION, 0, NULL);
    nats_hub_expects(&b, DLC_MSG_CONTRIBUTION, 0, NULL);
    nats_check_slot(&a, 0, 1);
    nats_check_slot(&b, 0, 2);
    nats_commit(&a, 1);
    nats_until_holds(&a, 0, 1);
    assert_int_equal(nats_hub_hears_within(&b, &island, &m, 0.2), HEARS_NOTHING);
    nats_until_holds(&b, 0, 0);
    nats_world_close(&b);
    nats_world_close(&a);
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(waitpid(server, NULL, 0), server);
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

struct asker {
    char answer[200];
    _Atomic bool done;
};

static void *ask_status(void *arg)
{
    const struct dlc_join_url *url = dlc_nats_server_island_url(place.server);
    struct dlc_wire_options o = { .host = "127.0.0.1",
                                  .port = url->port,
                                  .run = url->run,
                                  .user = url->user,
                                  .secret = url->secret,
                                  .ca_pem = dlc_nats_server_ca_pem(place.server),
                                  .name = "somebody" };
    struct dlc_subject subject = dlc_subject_question(url->run, "status");
    struct asker *a = arg;
    struct dlc_wire_msg msg;
    dlc_wire *wire = NULL;
    bool got = false;

    if (dlc_wire_connect(&wire, &o) == DLC_OK) {
        for (int k = 0; k < 20 && !got; k++)
            (void)dlc_wire_request(wire, subject.text, "{}", 2, &msg, &got, 500);
        if (got && !msg.no_responders)
            snprintf(a->answer, sizeof a->answer, "%.*s", (int)msg.size_bytes, (const char *)msg.bytes);
        if (got)
            dlc_wire_msg_free(&msg);
    }
    dlc_wire_close(wire);
    atomic_store(&a->done, true);
    return NULL;
}

static void status_is_answered(void **state)
{
    struct nats_world w = { 0 };
    struct asker a = { 0 };
    pthread_t thread;

    (void)state;
    nats_world_open(&w, SMALL);
    assert_int_equal(pthread_create(&thread, NULL, ask_status, &a), 0);
    while (!atomic_load(&a.done)) {
        struct dlc_message m;
        int island;

        (void)nats_hub_hears_within(&w, &island, &m, 0.01);
    }
    pthread_join(thread, NULL);
    if (!strstr(a.answer, "\"ok\":{\"t\":0}"))
        fail_msg("status answers '%s'", a.answer);
    nats_world_close(&w);
}

static void who_is_not_wanted_is_told_why(void **state)
{
    struct nats_world w = { 0 };

    (void)state;
    nats_world_open(&w, SMALL);
    w.isles[1].unwelcome = true;
    w.isles[1].incarnation = 1;
    nats_try_start(&w, 1);
    assert_int_equal(w.isles[1].err, DLC_EINPUT);
    assert_string_equal(w.isles[1].err_text, "not with this data");
    assert_null(w.isles[1].ep);

    w.isles[1].patience_s = 1.2;
    nats_stop_leading(&w, true); /* nobody there: told in time all the same */
    nats_join_thread(&w.isles[1]);
    assert_int_equal(w.isles[1].err, DLC_EPEER);
    if (!strstr(w.isles[1].err_text, "no coordinator of run " NATS_RUN))
        fail_msg("%s", w.isles[1].err_text);
    nats_lead(&w, place.fence + 1);
    nats_world_close(&w);
}

/* A folder that was copied: two processes with one identity. The older one is refused, and a newer one takes the place of
 * one that lives. */
static void one_identity_is_one_island(void **state)
{
    struct nats_world w = { 0 };
    dlc_nats_endpoint *first;

    (void)state;
    nats_world_open(&w, SMALL);
    w.isles[0].incarnation = 6;
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    first = w.isles[0].ep;
    for (uint32_t incarnation = 6; incarnation <= 7; incarnation++) {
        w.isles[0].incarnation = incarnation;
        nats_try_start(&w, 0);
        assert_int_equal(w.isles[0].err, DLC_EUSAGE);
    }
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    nats_say(&w, 0, (struct dlc_message){ .kind = DLC_MSG_PROGRESS, .step = 5 });
    nats_hub_expects(&w, DLC_MSG_PROGRESS, 0, NULL);
    dlc_nats_endpoint_destroy(first);
    nats_say(&w, 0, (struct dlc_message){ .kind = DLC_MSG_PROGRESS, .step = 6 });
    nats_hub_expects(&w, DLC_MSG_PROGRESS, 0, NULL);
    nats_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run),
        cmocka_unit_test(wrong_parameters_are_fetched_anew),
        cmocka_unit_test(theta_stays_while_it_is_worked_on),
        cmocka_unit_test(contributions_that_cannot_be_right_are_not_fetched),
        cmocka_unit_test(a_contribution_is_taken_once),
        cmocka_unit_test(a_joiner_dies_early),
        cmocka_unit_test(a_new_leader_is_told_again),
        cmocka_unit_test(a_lower_fence_is_ignored),
        cmocka_unit_test(another_history_is_not_followed),
        cmocka_unit_test(two_runs_on_one_server_never_mix),
        cmocka_unit_test(status_is_answered),
        cmocka_unit_test(who_is_not_wanted_is_told_why),
        cmocka_unit_test(one_identity_is_one_island),
    };
    int failed;

    dlc_log_set_level(getenv("DLC_TEST_DEBUG") ? DLC_LOG_DEBUG : DLC_LOG_ERROR);
    if (!nats_place_open()) {
        nats_place_close();
        return 77; /* skipped */
    }
    cmocka_set_test_filter(getenv("DLC_TEST_ONLY"));
    failed = cmocka_run_group_tests_name("nats", tests, NULL, NULL);
    nats_place_close();
    return failed;
}
