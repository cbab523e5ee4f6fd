/* The coordinator's core, one cell of its tables at a time. */
#include "outer/coord_test_util.h"

/* --- states and events -------------------------------------------------------------------------------------------- */

/* Two islands; number 1 is brought into the state. */
static void bring_into(struct bench *b, dlc_island_state state)
{
    struct dlc_coord_config cfg = bench_config(2);

    bench_open(b, &cfg);
    if (state != DLC_ISLAND_AWAY && state != DLC_ISLAND_READY)
        hello(b, 0);
    hello(b, 1);
    if (state == DLC_ISLAND_AWAY || state == DLC_ISLAND_LOST)
        tell(b, DLC_EVENT_LOST, 1);
    if (state == DLC_ISLAND_DONE)
        contribute(b, 1, 0.5f);
    assert_int_equal(b->c->islands[1].state, state);
    forget(b);
}

enum change { PLAIN, NEWER, OLDER, OLD_ATTEMPT, OLD_T, NEXT_T, WITH_NAN, TOO_LONG, TOO_SHORT };

static void island_states(void **state)
{
    static const struct {
        dlc_island_state from;
        dlc_event_kind event;
        enum change change;
        dlc_island_state to;
        size_t n_assigned, n_refused;
        const char *why;
    } rows[] = {
        { DLC_ISLAND_AWAY, DLC_EVENT_HELLO, NEWER, DLC_ISLAND_READY, 0, 0, "it is back; the other one is awaited" },
        { DLC_ISLAND_AWAY, DLC_EVENT_HELLO, PLAIN, DLC_ISLAND_READY, 0, 0, "the same life, connected again" },
        { DLC_ISLAND_AWAY, DLC_EVENT_HELLO, OLDER, DLC_ISLAND_AWAY, 0, 0, "an earlier life" },
        { DLC_ISLAND_AWAY, DLC_EVENT_CONTRIBUTION, PLAIN, DLC_ISLAND_AWAY, 0, 1, "no round is open" },
        { DLC_ISLAND_AWAY, DLC_EVENT_LOST, PLAIN, DLC_ISLAND_AWAY, 0, 0, "known" },
        { DLC_ISLAND_READY, DLC_EVENT_HELLO, NEWER, DLC_ISLAND_READY, 0, 0, "started again while waiting" },
        { DLC_ISLAND_READY, DLC_EVENT_HELLO, PLAIN, DLC_ISLAND_READY, 0, 0, "twice" },
        { DLC_ISLAND_READY, DLC_EVENT_CONTRIBUTION, PLAIN, DLC_ISLAND_READY, 0, 1, "to nothing" },
        { DLC_ISLAND_READY, DLC_EVENT_LOST, PLAIN, DLC_ISLAND_AWAY, 0, 0, "gone before the round" },
        { DLC_ISLAND_READY, DLC_EVENT_LOST, OLDER, DLC_ISLAND_READY, 0, 0, "an earlier life was lost" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_HELLO, PLAIN, DLC_ISLAND_TRAINING, 0, 0, "said twice" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_HELLO, OLDER, DLC_ISLAND_TRAINING, 0, 0, "an earlier life" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_HELLO, NEWER, DLC_ISLAND_TRAINING, 1, 0, "died unnoticed: the same again" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, PLAIN, DLC_ISLAND_DONE, 0, 0, "in" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, OLDER, DLC_ISLAND_TRAINING, 0, 0, "of an earlier life" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, OLD_ATTEMPT, DLC_ISLAND_TRAINING, 0, 0, "of another attempt" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, OLD_T, DLC_ISLAND_TRAINING, 0, 1, "of an earlier step" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, NEXT_T, DLC_ISLAND_TRAINING, 0, 1, "of a step to come" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, WITH_NAN, DLC_ISLAND_TRAINING, 0, 1, "not finite" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, TOO_LONG, DLC_ISLAND_TRAINING, 0, 1, "longer than the model" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_CONTRIBUTION, TOO_SHORT, DLC_ISLAND_TRAINING, 0, 1, "shorter" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_PROGRESS, PLAIN, DLC_ISLAND_TRAINING, 0, 0, "alive" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_RESUPPLY, PLAIN, DLC_ISLAND_TRAINING, 1, 1,
          "theta came damaged: again, and said" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_RESUPPLY, OLD_T, DLC_ISLAND_TRAINING, 0, 0, "of an assignment that is stale" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_NONFINITE, OLD_ATTEMPT, DLC_ISLAND_TRAINING, 0, 0, "of an attempt given up" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_LOST, PLAIN, DLC_ISLAND_LOST, 0, 0, "lost in the round" },
        { DLC_ISLAND_TRAINING, DLC_EVENT_LOST, OLDER, DLC_ISLAND_TRAINING, 0, 0, "only its earlier life is lost" },
        { DLC_ISLAND_DONE, DLC_EVENT_HELLO, NEWER, DLC_ISLAND_DONE, 0, 0, "its work is in: it waits" },
        { DLC_ISLAND_DONE, DLC_EVENT_CONTRIBUTION, PLAIN, DLC_ISLAND_DONE, 0, 0, "the same once more" },
        { DLC_ISLAND_DONE, DLC_EVENT_CONTRIBUTION, WITH_NAN, DLC_ISLAND_DONE, 0, 0, "another one: the first counts" },
        { DLC_ISLAND_DONE, DLC_EVENT_RESUPPLY, PLAIN, DLC_ISLAND_DONE, 0, 0, "too late to matter" },
        { DLC_ISLAND_DONE, DLC_EVENT_NONFINITE, PLAIN, DLC_ISLAND_DONE, 0, 0, "too late to matter" },
        { DLC_ISLAND_DONE, DLC_EVENT_LOST, PLAIN, DLC_ISLAND_DONE, 0, 0, "its work stays" },
        { DLC_ISLAND_LOST, DLC_EVENT_HELLO, NEWER, DLC_ISLAND_TRAINING, 1, 0, "back: the same again" },
        { DLC_ISLAND_LOST, DLC_EVENT_HELLO, OLDER, DLC_ISLAND_LOST, 0, 0, "an earlier life" },
        { DLC_ISLAND_LOST, DLC_EVENT_CONTRIBUTION, PLAIN, DLC_ISLAND_LOST, 0, 0, "nobody stands behind it" },
        { DLC_ISLAND_LOST, DLC_EVENT_LOST, PLAIN, DLC_ISLAND_LOST, 0, 0, "known" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct bench b;
        struct dlc_event ev;

        bring_into(&b, rows[k].from);
        ev = rows[k].event == DLC_EVENT_CONTRIBUTION ? contribution_of(&b, 1, 0.5f) : event_of(&b, rows[k].event, 1);
        switch (rows[k].change) {
        case PLAIN: break;
        case NEWER: ev.incarnation++; break;
        case OLDER: ev.incarnation--; break;
        case OLD_ATTEMPT: ev.attempt--; break;
        case OLD_T: ev.t--; break;
        case NEXT_T: ev.t++; break;
        case WITH_NAN: b.slots[1][2] = NAN; break;
        case TOO_LONG: ev.payload_bytes += 4; break;
        case TOO_SHORT: ev.payload_bytes = 0; break;
        }
        if (give(&b, &ev) != DLC_OK || b.c->islands[1].state != rows[k].to ||
            count(&b, DLC_ACTION_ASSIGN, 1) != rows[k].n_assigned ||
            count(&b, DLC_ACTION_REFUSED, 1) != rows[k].n_refused ||
            b.n_actions != rows[k].n_assigned + rows[k].n_refused)
            fail_msg("row %zu (%s): state %d instead of %d, %zu assigned, %zu refused, %zu actions", k, rows[k].why,
                     (int)b.c->islands[1].state, (int)rows[k].to, count(&b, DLC_ACTION_ASSIGN, 1),
                     count(&b, DLC_ACTION_REFUSED, 1), b.n_actions);
        bench_close(&b);
    }
}

static void events_of_nobody_are_refused(void **state)
{
    static const int nobody[] = { -1, 2, 1000000 };
    struct bench b;

    (void)state;
    bring_into(&b, DLC_ISLAND_TRAINING);
    for (size_t k = 0; k < sizeof nobody / sizeof *nobody; k++)
        assert_int_equal(give(&b, &(struct dlc_event){ .kind = DLC_EVENT_HELLO, .island = nobody[k] }), DLC_EFAIL);
    bench_close(&b);
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static void a_round_opens_when_the_wanted_are_here(void **state)
{
    struct dlc_coord_config cfg = bench_config(3);
    struct bench b;
    int who[3];

    (void)state;
    bench_open(&b, &cfg);
    hello(&b, 2);
    hello(&b, 0);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 0);
    hello(&b, 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 3);
    for (int i = 0; i < 3; i++) { /* in island order, whoever came first */
        const struct dlc_assignment *a = &b.actions[i].assignment;

        assert_int_equal(b.actions[i].island, i);
        assert_int_equal(a->t, 1);
        assert_int_equal(a->n_steps, 5);
        assert_int_equal(a->lease->items[0].start, 10 * i);
        assert_int_equal(a->lease->items[0].count, 10);
        assert_int_equal(a->state_step, 0);
        assert_false(a->own_params);
        assert_true(dlc_sha256_equal(&a->theta, dlc_coord_theta_digest(b.c)));
    }
    contribute(&b, 1, 0.5f);
    assert_int_equal(dlc_coord_waiting_for(b.c, who, 3), 2);
    assert_true(who[0] == 0 && who[1] == 2);
    bench_close(&b);
}

static void rounds_follow_to_the_end(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    cfg.total_steps = 12; /* 5 + 5 + 2 */
    assert_int_equal(dlc_coord_n_rounds(&cfg), 3);
    bench_open(&b, &cfg);
    hello_all(&b);
    whole_round(&b);
    whole_round(&b);
    assert_int_equal(last_action(&b, DLC_ACTION_ASSIGN)->assignment.n_steps, 2);
    assert_int_equal(last_action(&b, DLC_ACTION_ASSIGN)->assignment.first_step, 10);
    assert_int_equal(last_action(&b, DLC_ACTION_ASSIGN)->assignment.state_step, 2);
    whole_round(&b);
    assert_int_equal(count(&b, DLC_ACTION_CLOSED, -1), 3);
    assert_int_equal(count(&b, DLC_ACTION_FINISHED, -1), 1);
    assert_int_equal(last_action(&b, DLC_ACTION_FINISHED)->t, 3);
    assert_true(dlc_coord_is_finished(b.c));
    assert_non_null(strstr(b.line, "\"step\":12"));
    assert_int_equal(totals_of(&b).consumed, 2 * 12 * 2);
    assert_int_equal(totals_of(&b).leased, 0);
    hello(&b, 0); /* a straggler after the end starts nothing */
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 6);
    bench_close(&b);
}

static void nobody_goes_on_before_the_record_is_durable(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    cfg.publish_before_commit = false;
    bench_open(&b, &cfg);
    b.auto_commit = false;
    hello_all(&b);
    whole_round(&b);
    tick(&b);
    hello(&b, 0);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 2);
    assert_int_equal(give(&b, &(struct dlc_event){ .kind = DLC_EVENT_COMMITTED, .t = 7 }), DLC_OK);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 2); /* of another step */
    assert_int_equal(give(&b, &(struct dlc_event){ .kind = DLC_EVENT_COMMITTED, .t = 1 }), DLC_OK);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 4);
    bench_close(&b);
}

/* With publish_before_commit the next round runs, but does not close, while the record is made durable. */
static void a_round_waits_for_the_record_before_it(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    b.auto_commit = false;
    hello_all(&b);
    whole_round(&b);
    contribute(&b, 0, 1);
    contribute(&b, 1, 1);
    assert_int_equal(dlc_coord_t(b.c), 1);
    assert_true(dlc_coord_deadline_ns(b.c) == INT64_MAX);
    assert_int_equal(give(&b, &(struct dlc_event){ .kind = DLC_EVENT_COMMITTED, .t = 1 }), DLC_OK);
    assert_int_equal(dlc_coord_t(b.c), 2);
    bench_close(&b);
}

static void a_contribution_counts_once(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench calm, noisy;
    struct dlc_event first, last;

    (void)state;
    bench_open(&calm, &cfg);
    bench_open(&noisy, &cfg);
    hello_all(&calm);
    hello_all(&noisy);
    whole_round(&calm);
    first = contribution_of(&noisy, 0, 0.125f);
    last = contribution_of(&noisy, 1, 0.25f);
    for (int k = 0; k < 3; k++)
        assert_int_equal(give(&noisy, &first), DLC_OK);
    for (int k = 0; k < 3; k++)
        assert_int_equal(give(&noisy, &last), DLC_OK); /* twice after the round is closed */
    assert_int_equal(give(&noisy, &first), DLC_OK);
    assert_string_equal(calm.line, noisy.line);
    assert_int_equal(noisy.n_actions, calm.n_actions); /* and nobody is told of anything */
    assert_true(json_equal(calm.c->saved, noisy.c->saved));
    bench_close(&calm);
    bench_close(&noisy);
}

static void lost_and_back_gets_the_same_again(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    whole_round(&b);
    tell(&b, DLC_EVENT_LOST, 1);
    forget(&b);
    contribute(&b, 0, 1);
    assert_int_equal(dlc_coord_t(b.c), 1); /* it is waited for */
    hello(&b, 1);
    assert_int_equal(b.n_actions, 1);
    assert_int_equal(b.actions[0].assignment.t, 2);
    assert_int_equal(b.actions[0].assignment.attempt, 1);
    assert_int_equal(b.actions[0].assignment.state_step, 1);
    assert_int_equal(b.actions[0].assignment.lease->items[0].start, 30);
    contribute(&b, 1, 1);
    assert_int_equal(dlc_coord_t(b.c), 2);
    bench_close(&b);
}

static void gone_after_its_work_is_in(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    contribute(&b, 0, 1);
    tell(&b, DLC_EVENT_LOST, 0);
    contribute(&b, 1, 1);
    assert_int_equal(dlc_coord_t(b.c), 1);                 /* it counted */
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 2); /* and is awaited for the next */
    hello(&b, 0);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 4);
    bench_close(&b);
}

/* --- what is not let in ------------------------------------------------------------------------------------------- */

static void a_refused_one_is_left_out_of_the_mean(void **state)
{
    struct dlc_coord_config cfg = bench_config(3);
    struct dlc_event bad;
    struct bench b;

    (void)state;
    cfg.opt = (struct dlc_outer_opt){ .kind = DLC_OUTER_SGD, .lr = 1 };
    bench_open(&b, &cfg);
    hello_all(&b);
    bad = contribution_of(&b, 1, 1);
    b.slots[1][0] = INFINITY;
    assert_int_equal(give(&b, &bad), DLC_OK);
    assert_non_null(strstr(last_action(&b, DLC_ACTION_REFUSED)->text, "non-finite"));
    contribute(&b, 0, 1);
    contribute(&b, 2, 3);
    assert_int_equal(dlc_coord_t(b.c), 1);
    assert_true(dlc_coord_theta(b.c)[0] == 1 - 2); /* the mean of 1 and 3 */
    assert_non_null(strstr(b.line, "\"fate\":\"refused\",\"island\":1"));
    assert_int_equal(totals_of(&b).consumed, 20);
    /* Its samples went back and are the first to be handed out again, and it starts from its last committed state. */
    assert_int_equal(b.c->islands[0].lease.items[0].start, 10);
    assert_int_equal(b.c->islands[1].state_step, 0);
    assert_int_equal(b.c->islands[0].state_step, 1);
    bench_close(&b);
}

static void wildly_large_is_refused_once_something_is_known(void **state)
{
    static const struct {
        int n_rounds;
        float by;
        bool refused;
        const char *why;
    } rows[] = {
        { 0, 1e6f, false, "nothing is known yet" },    { 3, 1e6f, false, "six norms are too few to judge" },
        { 4, 1e6f, true, "the usual is about 0.2" },   { 4, 15, false, "eighty times the usual is a bad day" },
        { 4, 50, true, "three hundred times is not" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_coord_config cfg = bench_config(2);
        struct bench b;

        bench_open(&b, &cfg);
        hello_all(&b);
        for (int r = 0; r < rows[k].n_rounds; r++)
            whole_round(&b);
        forget(&b);
        contribute(&b, 0, rows[k].by);
        if (count(&b, DLC_ACTION_REFUSED, 0) != rows[k].refused)
            fail_msg("%s: %zu refused", rows[k].why, count(&b, DLC_ACTION_REFUSED, 0));
        bench_close(&b);
    }
}

static void all_refused_ends_the_run(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct dlc_event ev;
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    for (int i = 0; i < 2; i++) {
        ev = contribution_of(&b, i, 1);
        b.slots[i][3] = NAN;
        assert_int_equal(give(&b, &ev), DLC_OK);
    }
    assert_int_equal(count(&b, DLC_ACTION_FAILED, -1), 1);
    assert_int_equal(last_action(&b, DLC_ACTION_FAILED)->code, DLC_EFAIL);
    assert_non_null(strstr(last_action(&b, DLC_ACTION_FAILED)->text, "none of 2"));
    assert_int_equal(dlc_coord_t(b.c), 0);
    forget(&b);
    hello(&b, 0);
    tick(&b);
    assert_int_equal(b.n_actions, 0); /* it stays so */
    assert_true(dlc_coord_deadline_ns(b.c) == INT64_MAX);
    bench_close(&b);
}

/* Each contribution is finite, the step they give is not: theta(1) would be infinite. */
static void a_step_that_is_not_finite_is_not_committed(void **state)
{
    struct dlc_coord_config cfg = bench_config(1);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    contribute(&b, 0, 3e38f);
    assert_int_equal(count(&b, DLC_ACTION_FAILED, -1), 1);
    assert_int_equal(count(&b, DLC_ACTION_CLOSED, -1), 0);
    assert_int_equal(dlc_coord_t(b.c), 0);
    bench_close(&b);
}

static void damaged_theta_is_sent_again_three_times(void **state)
{
    struct bench b;

    (void)state;
    bring_into(&b, DLC_ISLAND_TRAINING);
    for (int k = 0; k < 3; k++)
        tell(&b, DLC_EVENT_RESUPPLY, 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 1), 3);
    tell(&b, DLC_EVENT_RESUPPLY, 1);
    assert_int_equal(last_action(&b, DLC_ACTION_FAILED)->code, DLC_EPEER);
    bench_close(&b);
}

/* The order of arrival decides nothing, not even what is remembered of many rounds. */
static void any_order_of_arrival_gives_the_same(void **state)
{
    struct dlc_coord_config cfg = bench_config(5);
    struct bench a, b;

    (void)state;
    cfg.total_steps = 200;
    bench_open(&a, &cfg);
    bench_open(&b, &cfg);
    hello_all(&a);
    for (int i = 4; i >= 0; i--)
        hello(&b, i);
    for (int r = 0; r < 30; r++) {
        whole_round(&a);
        for (int i = 0; i < 5; i++) {
            int who = (3 * i + r) % 5;

            contribute(&b, who, 0.125f * (float)(who + 1));
        }
        assert_string_equal(a.line, b.line);
        assert_true(json_equal(a.c->saved, b.c->saved));
    }
    bench_close(&a);
    bench_close(&b);
}

/* --- lockstep ----------------------------------------------------------------------------------------------------- */

static struct dlc_coord_config lockstep_config(void)
{
    struct dlc_coord_config cfg = bench_config(2);

    cfg.lockstep = true;
    return cfg;
}

static void in_lockstep_the_contribution_is_theta(void **state)
{
    struct dlc_coord_config cfg = lockstep_config();
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    contribute(&b, 0, 0.3f);
    contribute(&b, 1, 0.3f);
    assert_memory_equal(dlc_coord_theta(b.c), b.slots[0], sizeof b.slots[0]);
    contribute(&b, 0, 0.3f);
    {
        struct dlc_event fork = contribution_of(&b, 1, 0.30001f);

        assert_int_equal(give(&b, &fork), DLC_EFAIL);
        assert_non_null(strstr(dlc_err_text(), "differ"));
    }
    bench_close(&b);
}

static void in_lockstep_all_start_again_with_the_lost_one(void **state)
{
    struct dlc_coord_config cfg = lockstep_config();
    struct dlc_event ev;
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    contribute(&b, 0, 0.3f);
    tell(&b, DLC_EVENT_LOST, 1);
    forget(&b);
    hello(&b, 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 2);
    assert_int_equal(b.actions[0].assignment.attempt, 2);
    ev = contribution_of(&b, 1, 0.3f);
    ev.attempt = 1;
    assert_int_equal(give(&b, &ev), DLC_OK);
    assert_int_equal(b.c->islands[1].state, DLC_ISLAND_TRAINING); /* of the attempt that was given up */

    forget(&b);
    ev = event_of(&b, DLC_EVENT_OUT_OF_STEP, 0);
    assert_int_equal(give(&b, &ev), DLC_OK);
    assert_int_equal(give(&b, &ev), DLC_OK); /* said twice, done once */
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 2);
    assert_int_equal(b.actions[0].assignment.attempt, 3);
    bench_close(&b);
}

static void out_of_step_means_nothing_outside_lockstep(void **state)
{
    struct bench b;

    (void)state;
    bring_into(&b, DLC_ISLAND_TRAINING);
    tell(&b, DLC_EVENT_OUT_OF_STEP, 1);
    assert_int_equal(b.n_actions, 0);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(island_states),
        cmocka_unit_test(events_of_nobody_are_refused),
        cmocka_unit_test(a_round_opens_when_the_wanted_are_here),
        cmocka_unit_test(rounds_follow_to_the_end),
        cmocka_unit_test(nobody_goes_on_before_the_record_is_durable),
        cmocka_unit_test(a_round_waits_for_the_record_before_it),
        cmocka_unit_test(a_contribution_counts_once),
        cmocka_unit_test(lost_and_back_gets_the_same_again),
        cmocka_unit_test(gone_after_its_work_is_in),
        cmocka_unit_test(a_refused_one_is_left_out_of_the_mean),
        cmocka_unit_test(wildly_large_is_refused_once_something_is_known),
        cmocka_unit_test(all_refused_ends_the_run),
        cmocka_unit_test(a_step_that_is_not_finite_is_not_committed),
        cmocka_unit_test(damaged_theta_is_sent_again_three_times),
        cmocka_unit_test(any_order_of_arrival_gives_the_same),
        cmocka_unit_test(in_lockstep_the_contribution_is_theta),
        cmocka_unit_test(in_lockstep_all_start_again_with_the_lost_one),
        cmocka_unit_test(out_of_step_means_nothing_outside_lockstep),
    };

    return cmocka_run_group_tests_name("coord", tests, NULL, NULL);
}
