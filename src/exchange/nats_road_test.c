/* The nats exchange on bad roads: slow, cut, silent; a server that dies, a coordinator that is stopped. */
#include "exchange/nats_test_util.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/log.h"

#define SMALL 1000
#define MIB (1 << 20)

static void wait_for_fetch(struct nats_world *w, int i, uint64_t least)
{
    int64_t until_ns = dlc_now_ns() + (int64_t)(PATIENCE_S * 1e9);

    while (dlc_nats_hub_island(w->h, i).fetched < least) {
        if (dlc_now_ns() > until_ns)
            fail_msg("only %llu bytes of the contribution come", (unsigned long long)dlc_nats_hub_island(w->h, i).fetched);
        (void)usleep(5000);
    }
}

/* 2 MiB at 1 MiB/s for one island: another one's is there at once. */
static void a_slow_island_delays_nobody(void **state)
{
    struct nats_world w = { 0 };
    struct relay r;
    int64_t began_ns;

    (void)state;
    nats_world_open(&w, MIB / 2);
    relay_open(&r);
    w.isles[0].port = r.port;
    for (int i = 0; i < 2; i++) {
        nats_start(&w, i);
        nats_until_holds(&w, i, 0);
    }
    atomic_store(&r.bytes_per_s, MIB);
    nats_say(&w, 0, nats_fill_slot(&w, 0, 1, 1));
    wait_for_fetch(&w, 0, 1);
    began_ns = dlc_now_ns();
    nats_say(&w, 1, nats_fill_slot(&w, 1, 1, 2));
    nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 1, NULL);
    nats_check_slot(&w, 1, 2);
    if (dlc_now_ns() - began_ns > DLC_S_NS)
        fail_msg("the fast island's contribution took %.2f s", 1e-9 * (double)(dlc_now_ns() - began_ns));
    assert_true(dlc_nats_hub_island(w.h, 0).fetched < 2 * MIB);
    nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 0, NULL);
    nats_check_slot(&w, 0, 1);
    nats_world_close(&w);
    relay_close(&r);
}

/* All its connections end in mid-transfer, and it finds its way back: the same life goes on, the transfer too. */
static void a_cut_is_survived(void **state)
{
    struct nats_world w = { 0 };
    struct relay r;
    struct dlc_message m;
    int island, heard;

    (void)state;
    nats_world_open(&w, MIB / 2);
    relay_open(&r);
    w.isles[0].port = r.port;
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    atomic_store(&r.bytes_per_s, MIB);
    nats_say(&w, 0, nats_fill_slot(&w, 0, 1, 1));
    wait_for_fetch(&w, 0, MIB / 2);
    atomic_store(&r.cut, true);
    heard = nats_hub_hears_within(&w, &island, &m, PATIENCE_S);
    if (heard == HEARS_LOST) { /* the server told; then it came back, unless it was faster */
        nats_hub_expects(&w, DLC_MSG_BACK, 0, &m);
        assert_int_equal(m.incarnation, w.isles[0].incarnation);
        heard = nats_hub_hears_within(&w, &island, &m, PATIENCE_S);
    }
    assert_int_equal(heard, DLC_MSG_CONTRIBUTION);
    nats_check_slot(&w, 0, 1);
    assert_true(w.hub->traffic[0].bytes_up < 2 * MIB + MIB); /* what had come was not fetched again */
    nats_world_close(&w);
    relay_close(&r);
}

static void the_server_is_killed(void **state)
{
    struct nats_world w = { 0 };
    struct relay r;
    bool restarted = false;

    (void)state;
    nats_world_open(&w, MIB / 2);
    relay_open(&r);
    w.isles[0].port = r.port;
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    atomic_store(&r.bytes_per_s, MIB);
    nats_say(&w, 0, nats_fill_slot(&w, 0, 1, 1));
    wait_for_fetch(&w, 0, MIB / 2);
    assert_int_equal(kill((pid_t)dlc_nats_server_pid(place.server), SIGKILL), 0);
    while (!restarted) {
        nats_must(dlc_nats_server_watch(place.server, &restarted));
        (void)usleep(20000);
    }
    nats_hub_expects(&w, DLC_MSG_CONTRIBUTION, 0, NULL); /* and nobody was lost: nothing could be heard of anyone */
    nats_check_slot(&w, 0, 1);
    assert_true(w.hub->traffic[0].bytes_up < 3 * MIB);
    nats_commit(&w, 1);
    nats_until_holds(&w, 0, 1);
    nats_world_close(&w);
    relay_close(&r);
}

/* The server tells at once; silence is noticed within seconds; who goes on is BACK. */
static void loss_and_return(void **state)
{
    struct nats_world w = { 0 };
    struct relay r;
    int64_t began_ns;
    double took_s;

    (void)state;
    nats_world_open(&w, SMALL);
    relay_open(&r);
    w.isles[0].port = r.port;
    nats_start(&w, 0);
    nats_start(&w, 1);
    nats_until_holds(&w, 0, 0);
    nats_until_holds(&w, 1, 0);

    began_ns = dlc_now_ns();
    atomic_store(&r.closed, true);
    atomic_store(&r.cut, true);
    nats_hub_expects(&w, HEARS_LOST, 0, NULL);
    took_s = 1e-9 * (double)(dlc_now_ns() - began_ns);
    if (dlc_nats_server_sys_secret(place.server) && took_s > 2)
        fail_msg("a closed connection was noticed after %.2f s", took_s);
    atomic_store(&r.closed, false);
    nats_hub_expects(&w, DLC_MSG_BACK, 0, NULL);

    began_ns = dlc_now_ns();
    atomic_store(&r.frozen, true);
    nats_hub_expects(&w, HEARS_LOST, 0, NULL);
    took_s = 1e-9 * (double)(dlc_now_ns() - began_ns);
    if (took_s > 15)
        fail_msg("silence was noticed after %.2f s", took_s);
    atomic_store(&r.frozen, false);
    nats_hub_expects(&w, DLC_MSG_BACK, 0, NULL);
    nats_world_close(&w);
    relay_close(&r);
}

/* This process stops for longer than any silence: afterwards nobody was silent. */
static void a_stopped_coordinator_counts_nobody_silent(void **state)
{
    struct nats_world w = { 0 };
    struct dlc_message m;
    int island;
    pid_t waker;

    (void)state;
    nats_world_open(&w, SMALL);
    nats_start(&w, 0);
    nats_until_holds(&w, 0, 0);
    waker = fork();
    if (waker == 0) {
        (void)usleep(7000000);
        (void)kill(getppid(), SIGCONT);
        _exit(0);
    }
    assert_int_equal(raise(SIGSTOP), 0);
    assert_int_equal(waitpid(waker, NULL, 0), waker);
    assert_int_equal(nats_hub_hears_within(&w, &island, &m, 2), HEARS_NOTHING);
    assert_true(dlc_nats_hub_island(w.h, 0).connected);
    nats_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_island_delays_nobody),
        cmocka_unit_test(a_cut_is_survived),
        cmocka_unit_test(the_server_is_killed),
        cmocka_unit_test(loss_and_return),
        cmocka_unit_test(a_stopped_coordinator_counts_nobody_silent),
    };
    int failed;

    dlc_log_set_level(getenv("DLC_TEST_DEBUG") ? DLC_LOG_DEBUG : DLC_LOG_ERROR);
    if (!nats_place_open()) {
        nats_place_close();
        return 77; /* skipped */
    }
    cmocka_set_test_filter(getenv("DLC_TEST_ONLY"));
    failed = cmocka_run_group_tests_name("nats road", tests, NULL, NULL);
    nats_place_close();
    return failed;
}
