/* The coordinator on a hub that is a list: messages are there when the test says so, time is a number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "train/coordinator.h"

#define N 4
#define K 2
#define SECOND ((int64_t)1000000000)

struct bench {
    dlc_hub hub; /* first: the functions below are given it */
    struct dlc_traffic traffic[K];
    struct dlc_message waiting[8];
    int from[8], n_waiting, n_taken;
    int64_t now_ns;
    float theta_values[2][N], *theta[2], *state[2];
    dlc_coord *core;
    dlc_coordinator *coordinator;
    int n_suspects[K];
};

static dlc_err take(dlc_hub *hub, int *island, struct dlc_message *out, bool *lost, bool *got, int64_t deadline_ns)
{
    struct bench *b = (struct bench *)hub;

    *lost = false;
    *got = b->n_taken < b->n_waiting;
    if (*got) {
        *island = b->from[b->n_taken];
        *out = b->waiting[b->n_taken++];
    } else if (deadline_ns > b->now_ns) {
        b->now_ns = deadline_ns;
    }
    return DLC_OK;
}

static dlc_err put_nowhere(dlc_hub *hub, int island, const struct dlc_message *m)
{
    (void)hub;
    (void)island;
    (void)m;
    return DLC_OK;
}

static int64_t now_ns(dlc_hub *hub)
{
    return ((struct bench *)hub)->now_ns;
}

static void count_suspect(void *self, int island, double waited_s)
{
    (void)waited_s;
    ((struct bench *)self)->n_suspects[island]++;
}

static void open_bench(struct bench *b)
{
    static const struct dlc_hub_ops ops = { .recv = take, .send = put_nowhere, .now_ns = now_ns };
    struct dlc_coord_config cfg = { .run = "0123456789abcdef0123456789abcdef",
                                    .n_islands = K,
                                    .n_params = N,
                                    .total_steps = 1000,
                                    .H = 1000,
                                    .batch = 1,
                                    .tokens_per_sample = 1,
                                    .n_pools = 1,
                                    .opt = { .kind = DLC_OUTER_SGD, .lr = 1 },
                                    .codec = &dlc_codec_f32,
                                    .wait_for_all = true,
                                    .min_islands = K,
                                    .quorum = K,
                                    .publish_before_commit = true };
    struct dlc_coordinator_callbacks callbacks = { .self = b, .suspect = count_suspect };

    *b = (struct bench){ .hub = { .ops = &ops, .n_islands = K } };
    b->hub.traffic = b->traffic;
    for (int i = 0; i < 2; i++)
        b->theta[i] = b->theta_values[i];
    assert_int_equal(dlc_coord_create(&b->core, &cfg, b->theta, b->state, NULL), DLC_OK);
    assert_int_equal(dlc_coordinator_create(&b->coordinator, b->core, &cfg, &b->hub, NULL, &callbacks), DLC_OK);
    for (int i = 0; i < K; i++)
        dlc_coordinator_set_incarnation(b->coordinator, i, 1);
}

static void close_bench(struct bench *b)
{
    dlc_coordinator_destroy(b->coordinator);
    dlc_coord_destroy(b->core);
}

static void arrive(struct bench *b, dlc_message_kind kind, int64_t step)
{
    b->n_waiting = b->n_taken = 0;
    for (int i = 0; i < K; i++) {
        b->from[b->n_waiting] = i;
        b->waiting[b->n_waiting++] =
            (struct dlc_message){ .kind = kind, .incarnation = 1, .t = 1, .attempt = 1, .step = step };
    }
}

/* Until nothing is left to read. */
static void poll_all(struct bench *b)
{
    bool idle = false;

    while (!idle)
        assert_int_equal(dlc_coordinator_poll(b->coordinator, &idle, 0), DLC_OK);
}

static void after_a_pause_what_waited_is_read_before_anyone_is_silent(void **state)
{
    struct bench b;

    (void)state;
    open_bench(&b);
    arrive(&b, DLC_MSG_HELLO, 0);
    poll_all(&b);
    b.now_ns = SECOND;
    arrive(&b, DLC_MSG_PROGRESS, 0);
    poll_all(&b);
    b.now_ns = 1000 * SECOND; /* this process was stopped meanwhile; both islands went on and said so */
    arrive(&b, DLC_MSG_PROGRESS, 1);
    poll_all(&b);
    for (int i = 0; i < K; i++) {
        if (b.n_suspects[i] != 0)
            fail_msg("island %d is suspected %d times; its message had come", i, b.n_suspects[i]);
    }
    close_bench(&b);
}

static void who_says_nothing_is_suspected_and_the_other_is_not(void **state)
{
    struct bench b;

    (void)state;
    open_bench(&b);
    arrive(&b, DLC_MSG_HELLO, 0);
    poll_all(&b);
    for (int64_t second = 1; second <= 30; second++) {
        b.now_ns = second * SECOND;
        arrive(&b, DLC_MSG_PROGRESS, second);
        if (second > 1)
            b.n_waiting = 1; /* of island 0 only */
        poll_all(&b);
    }
    assert_int_equal(b.n_suspects[0], 0);
    assert_int_equal(b.n_suspects[1], 1);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_pause_what_waited_is_read_before_anyone_is_silent),
        cmocka_unit_test(who_says_nothing_is_suspected_and_the_other_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
