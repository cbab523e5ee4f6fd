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
    int n_sent[K], n_refused[K], n_lost, n_opened, n_published;
    struct dlc_message sent[K]; /* the last one to each */
    uint64_t published_t;
    float update[N];
    int n_updates;
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
    struct bench *b = (struct bench *)hub;

    b->n_sent[island]++;
    b->sent[island] = *m;
    return DLC_OK;
}

static const void *slot(dlc_hub *hub, int island)
{
    (void)island;
    return ((struct bench *)hub)->theta_values[0]; /* theta(0): an island that did not move */
}

static void *update(dlc_hub *hub, uint64_t t)
{
    (void)t;
    ((struct bench *)hub)->n_updates++;
    return ((struct bench *)hub)->update;
}

static dlc_err publish(dlc_hub *hub, const struct dlc_record *record, const struct dlc_sha256 *theta)
{
    struct bench *b = (struct bench *)hub;

    b->n_published++;
    b->published_t = record->t;
    assert_true(record->t == 0 || dlc_sha256_equal(theta, &record->theta));
    return DLC_OK;
}

static dlc_err commit(void *self, const struct dlc_record *record, const json_t *saved, const float *theta)
{
    (void)saved, (void)theta;
    assert_true(((struct bench *)self)->n_published == (int)record->t); /* published after, never before */
    return DLC_OK;
}

static dlc_err opened(void *self, const json_t *round)
{
    struct bench *b = self;

    assert_true(json_is_object(round));
    assert_int_equal(b->n_sent[0], b->n_opened); /* before its assignment */
    b->n_opened++;
    return DLC_OK;
}

static void count_refused(void *self, int island, uint64_t t, const char *reason)
{
    (void)t, (void)reason;
    ((struct bench *)self)->n_refused[island]++;
}

static dlc_err count_lost(void *self, int island)
{
    (void)island;
    ((struct bench *)self)->n_lost++;
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

static void open_with(struct bench *b, bool wait_for_all)
{
    static const struct dlc_hub_ops ops = { .recv = take, .send = put_nowhere, .now_ns = now_ns, .slot = slot,
                                            .update = update, .publish = publish };
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
    struct dlc_coordinator_callbacks callbacks = { .self = b, .suspect = count_suspect, .commit = commit,
                                                   .opened = opened, .refused = count_refused, .lost = count_lost };

    if (!wait_for_all) {
        cfg.wait_for_all = cfg.publish_before_commit = false;
        cfg.total_steps = 2000;
        cfg.min_islands = cfg.quorum = cfg.refusals_max = 1;
    }

    *b = (struct bench){ .hub = { .ops = &ops, .n_islands = K } };
    b->hub.traffic = b->traffic;
    for (int i = 0; i < 2; i++)
        b->theta[i] = b->theta_values[i];
    assert_int_equal(dlc_coord_create(&b->core, &cfg, b->theta, b->state, NULL), DLC_OK);
    assert_int_equal(dlc_coordinator_create(&b->coordinator, b->core, &cfg, &b->hub, NULL, &callbacks), DLC_OK);
    for (int i = 0; i < K; i++)
        dlc_coordinator_set_incarnation(b->coordinator, i, 1);
}

static void open_bench(struct bench *b)
{
    open_with(b, true);
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

static void hear(struct bench *b, int island, struct dlc_message m)
{
    m.incarnation = 1;
    b->n_waiting = 1;
    b->n_taken = 0;
    b->from[0] = island;
    b->waiting[0] = m;
    poll_all(b);
}

static struct dlc_message contribution(const struct bench *b, uint64_t t)
{
    return (struct dlc_message){ .kind = DLC_MSG_CONTRIBUTION, .t = t, .attempt = 1, .size_bytes = sizeof b->update };
}

static void steps_are_published_and_rounds_made_durable(void **state)
{
    struct bench b;

    (void)state;
    open_with(&b, false);
    assert_true(b.n_published == 1 && b.published_t == 0); /* theta(0) */
    hear(&b, 0, (struct dlc_message){ .kind = DLC_MSG_HELLO });
    assert_int_equal(b.n_opened, 1);
    hear(&b, 0, contribution(&b, 1));
    assert_true(b.n_published == 2 && b.published_t == 1);
    assert_int_equal(b.n_updates, 1);
    assert_int_equal(b.n_opened, 2);
    assert_true(b.sent[0].kind == DLC_MSG_ASSIGN && b.sent[0].t == 2);
    close_bench(&b);
}

static void in_policy_mode_no_message_ends_the_run(void **state)
{
    static const struct {
        dlc_message_kind kind, answer; /* 0: none */
        int n_refused;
        const char *why;
    } rows[] = {
        { DLC_MSG_FAILED, 0, 1, "it cannot go on" },
        { DLC_MSG_GRADIENT, DLC_MSG_DISMISS, 1, "a gradient in a run without" },
        { DLC_MSG_ASSIGN, DLC_MSG_DISMISS, 1, "what only the coordinator says" },
        { DLC_MSG_LEAVE, 0, 0, "it leaves" },
        { DLC_MSG_BACK, 0, 0, "it was never away" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct bench b;

        open_with(&b, false);
        hear(&b, 0, (struct dlc_message){ .kind = DLC_MSG_HELLO });
        hear(&b, 1, (struct dlc_message){ .kind = DLC_MSG_HELLO }); /* enters with round 2 */
        hear(&b, 1, (struct dlc_message){ .kind = rows[k].kind, .text = "so it is" });
        if (b.n_refused[1] != rows[k].n_refused || b.sent[1].kind != rows[k].answer)
            fail_msg("%s: %d refused, answer %d", rows[k].why, b.n_refused[1], (int)b.sent[1].kind);
        hear(&b, 0, contribution(&b, 1));
        assert_int_equal(dlc_coord_t(b.core), 1);
        assert_int_equal(b.sent[1].kind == DLC_MSG_ASSIGN, rows[k].kind == DLC_MSG_BACK);
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_pause_what_waited_is_read_before_anyone_is_silent),
        cmocka_unit_test(who_says_nothing_is_suspected_and_the_other_is_not),
        cmocka_unit_test(steps_are_published_and_rounds_made_durable),
        cmocka_unit_test(in_policy_mode_no_message_ends_the_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
