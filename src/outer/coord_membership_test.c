/* The coordinator's core in policy mode: who comes, leaves, is refused, is late; and a round that outlives it. */
#include "outer/coord_test_util.h"

#include "base/json.h"

static struct dlc_coord_config policy(int n_islands, int quorum)
{
    struct dlc_coord_config cfg = bench_config(n_islands);

    cfg.wait_for_all = cfg.publish_before_commit = false;
    cfg.min_islands = cfg.quorum = quorum;
    cfg.late_weight = 0.5;
    return cfg;
}

static void hello_with(struct bench *b, int island, uint64_t newest, uint64_t older)
{
    struct dlc_event ev;

    b->incarnations[island]++;
    ev = event_of(b, DLC_EVENT_HELLO, island);
    ev.states_known = true;
    ev.states[0] = newest;
    ev.states[1] = older;
    assert_int_equal(give(b, &ev), DLC_OK);
}

static void nan_from(struct bench *b, int island)
{
    contribute(b, island, NAN);
}

static const struct dlc_assignment *assigned(const struct bench *b)
{
    return &last_action(b, DLC_ACTION_ASSIGN)->assignment;
}

/* --- leaving and coming back -------------------------------------------------------------------------------------- */

static void who_leaves_gives_back_its_lease_and_is_not_waited_for(void **state)
{
    struct dlc_coord_config cfg = policy(3, 3);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    assert_int_equal(totals_of(&b).leased, 30);
    tell(&b, DLC_EVENT_LEFT, 1);
    assert_int_equal(totals_of(&b).leased, 20);
    tell(&b, DLC_EVENT_LOST, 1); /* its connection closes: nothing more */
    assert_int_equal(dlc_coord_waiting_for(b.c, NULL, 0), 2);
    contribute(&b, 0, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 0);
    contribute(&b, 2, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 1);
    assert_non_null(strstr(b.line, "{\"fate\":\"late\",\"island\":1"));
    assert_int_equal(b.c->islands[1].state, DLC_ISLAND_AWAY);
    hello(&b, 1); /* the next round waits for three */
    assert_int_equal(assigned(&b)->t, 2);
    bench_close(&b);
}

static void the_last_one_leaves_and_another_begins(void **state)
{
    struct dlc_coord_config cfg = policy(2, 1);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello(&b, 0);
    tell(&b, DLC_EVENT_LEFT, 0);
    assert_int_equal(totals_of(&b).leased, 0);
    hello(&b, 1);
    assert_int_equal(assigned(&b)->lease->items[0].start, 0); /* the same samples */
    assert_int_equal(assigned(&b)->t, 1);
    assert_int_equal(assigned(&b)->attempt, 2); /* nobody mistakes it for the first */
    contribute(&b, 1, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 1);
    bench_close(&b);
}

static void who_was_only_silent_goes_on(void **state)
{
    static const struct {
        bool done, lost;
        dlc_island_state to;
        const char *why;
    } rows[] = {
        { false, true, DLC_ISLAND_TRAINING, "at work, without a new assignment" },
        { true, true, DLC_ISLAND_DONE, "it is in" },
        { false, false, DLC_ISLAND_TRAINING, "was not lost at all" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_coord_config cfg = policy(2, 2);
        struct bench b;

        bench_open(&b, &cfg);
        hello_all(&b);
        if (rows[k].done)
            contribute(&b, 1, 0.5f);
        if (rows[k].lost)
            tell(&b, DLC_EVENT_LOST, 1);
        forget(&b);
        tell(&b, DLC_EVENT_BACK, 1);
        if (b.c->islands[1].state != rows[k].to || b.c->islands[1].gone || b.n_actions != 0)
            fail_msg("%s: state %d, %zu actions", rows[k].why, (int)b.c->islands[1].state, b.n_actions);
        bench_close(&b);
    }
}

static void who_is_back_after_a_new_attempt_gets_it(void **state)
{
    struct dlc_coord_config cfg = policy(2, 2);
    struct bench b;

    (void)state;
    cfg.nonfinite_rollbacks_max = 1;
    bench_open(&b, &cfg);
    hello_all(&b);
    tell(&b, DLC_EVENT_LOST, 1);
    tell(&b, DLC_EVENT_NONFINITE, 0);
    forget(&b);
    tell(&b, DLC_EVENT_BACK, 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 1), 1);
    assert_int_equal(assigned(&b)->attempt, 2);
    bench_close(&b);
}

static void who_lost_its_state_begins_anew(void **state)
{
    static const struct {
        uint64_t newest, older, expected;
        const char *why;
    } rows[] = {
        { 1, 0, 1, "holds it" }, { 2, 1, 1, "holds it, and one that does not count" }, { 0, 0, 0, "holds none" },
        { 2, 0, 0, "holds another" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_coord_config cfg = policy(2, 1);
        struct bench b;
        int opened;

        bench_open(&b, &cfg);
        hello_all(&b);
        contribute(&b, 0, 0.5f);
        hello(&b, 1);
        contribute(&b, 1, 0.5f);
        whole_round(&b);
        cfg.drop = 0;
        opened = b.n_opened;
        tell(&b, DLC_EVENT_LOST, 0);
        b.c->islands[0].state_step = 1;
        hello_with(&b, 0, rows[k].newest, rows[k].older);
        if (assigned(&b)->state_step != rows[k].expected)
            fail_msg("%s: from state %d", rows[k].why, (int)assigned(&b)->state_step);
        assert_int_equal(b.n_opened - opened, rows[k].expected == 0); /* that is made durable */
        bench_close(&b);
    }
}

static void a_state_lost_after_contributing_is_not_asked_for(void **state)
{
    struct dlc_coord_config cfg = policy(2, 2);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    contribute(&b, 0, 0.5f);
    tell(&b, DLC_EVENT_LOST, 0);
    hello_with(&b, 0, 0, 0);
    contribute(&b, 1, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 1);
    assert_int_equal(b.c->islands[0].state_step, 0);
    assert_int_equal(b.c->islands[1].state_step, 1);
    bench_close(&b);
}

static void those_who_stand_by_join_a_round_that_cannot_end(void **state)
{
    struct dlc_coord_config cfg = policy(4, 2);
    int who[4];
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello(&b, 0);
    hello(&b, 1);
    hello(&b, 2);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 2), 0); /* enters with the next round */
    tell(&b, DLC_EVENT_LOST, 2);
    tell(&b, DLC_EVENT_LOST, 1);
    assert_int_equal(dlc_coord_waiting_for(b.c, who, 4), 2); /* nobody else is there: said for whom */
    contribute(&b, 0, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 0);
    hello(&b, 3);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 3), 1);
    contribute(&b, 3, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 1);
    bench_close(&b);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void nothing_let_in_is_a_new_attempt_and_not_the_end(void **state)
{
    struct dlc_coord_config cfg = policy(2, 1);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello(&b, 0);
    nan_from(&b, 0);
    assert_int_equal(count(&b, DLC_ACTION_FAILED, -1), 0);
    assert_int_equal(assigned(&b)->attempt, 2);
    assert_int_equal(totals_of(&b).leased, 10);
    contribute(&b, 0, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 1);
    bench_close(&b);
}

static void too_many_refusals_in_a_row_send_away(void **state)
{
    struct dlc_coord_config cfg = policy(2, 2);
    struct dlc_event again;
    struct bench b;

    (void)state;
    cfg.refusals_max = 2;
    bench_open(&b, &cfg);
    hello_all(&b);
    for (int round = 0; round < 4; round++) { /* one, let in, one, two */
        if (round == 1)
            contribute(&b, 1, 0.5f);
        else
            nan_from(&b, 1);
        assert_int_equal(count(&b, DLC_ACTION_DISMISS, 1), round == 3);
        contribute(&b, 0, 0.5f);
    }
    assert_int_equal(dlc_coord_t(b.c), 4);
    assert_non_null(strstr(last_action(&b, DLC_ACTION_DISMISS)->text, "2 contributions in a row were refused, the last "
                                                                      "one: has non-finite values"));
    assert_int_equal(b.c->islands[1].state, DLC_ISLAND_AWAY);
    forget(&b);
    again = event_of(&b, DLC_EVENT_HELLO, 1); /* the same life */
    assert_int_equal(give(&b, &again), DLC_OK);
    assert_int_equal(count(&b, DLC_ACTION_DISMISS, 1), 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 1), 0);
    hello(&b, 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 1), 1);
    bench_close(&b);
}

static void no_island_ends_the_run(void **state)
{
    struct dlc_coord_config cfg = policy(2, 2);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    tell(&b, DLC_EVENT_NONFINITE, 0);
    tell(&b, DLC_EVENT_REFUSED, 1);
    for (int k = 0; k < 10; k++)
        tell(&b, DLC_EVENT_RESUPPLY, k % 2);
    assert_int_equal(count(&b, DLC_ACTION_FAILED, -1), 0);
    contribute(&b, 0, 0.5f);
    contribute(&b, 1, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 1);
    bench_close(&b);
}

/* --- late = next -------------------------------------------------------------------------------------------------- */

/* Round 1 closes without island 1, which stays at work. */
static void late_in_round_1(struct bench *b, struct dlc_event *late, struct dlc_coord_config *cfg)
{
    *cfg = policy(2, 1);
    cfg->late = DLC_LATE_NEXT;
    cfg->min_islands = 2;
    bench_open(b, cfg);
    hello_all(b);
    *late = contribution_of(b, 1, 0.25f);
    b->now_ns += SECOND;
    contribute(b, 0, 0.5f);
    b->now_ns += SECOND;
    tick(b);
    assert_int_equal(dlc_coord_t(b->c), 1);
    assert_int_equal(b->c->islands[1].state, DLC_ISLAND_LATE);
    assert_int_equal(totals_of(b).leased, 20); /* its own and that of island 0's next round */
}

static void a_late_contribution_counts_in_the_next_round(void **state)
{
    struct dlc_coord_config cfg;
    struct dlc_coord_counts counts;
    struct dlc_event late;
    struct bench b;

    (void)state;
    late_in_round_1(&b, &late, &cfg);
    assert_int_equal(give(&b, &late), DLC_OK);
    assert_int_equal(dlc_coord_t(b.c), 1); /* not waited for, and not enough to close on */
    assert_int_equal(give(&b, &late), DLC_OK);
    contribute(&b, 0, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 2);
    assert_non_null(strstr(b.line, "{\"fate\":\"carried\",\"island\":1"));
    assert_non_null(strstr(b.line, "\"weight\":50}"));
    assert_true(fabs(b.c->record.delta_norm - 2 * (0.5 * 2 + 0.25) / 3) < 1e-6); /* weights 100 and 50, N = 4 */
    assert_int_equal(b.c->islands[1].state_step, 1); /* of the round that it worked on */
    assert_int_equal(b.c->record.n_tokens, 300);
    dlc_coord_counts(&counts, b.c);
    assert_true(counts.alive == 2 && counts.contributing == 2 && counts.tokens == 200);
    assert_int_equal(give(&b, &late), DLC_OK); /* once more: it is in the record */
    assert_int_equal(count(&b, DLC_ACTION_REFUSED, 1), 0);
    whole_round(&b);
    bench_close(&b);
}

static void what_is_too_late_even_then_is_given_up(void **state)
{
    struct dlc_coord_config cfg;
    struct dlc_event late;
    struct bench b;

    (void)state;
    late_in_round_1(&b, &late, &cfg);
    forget(&b);
    contribute(&b, 0, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 2);
    assert_null(strstr(b.line, "\"island\":1"));
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 1), 1);
    assert_int_equal(assigned(&b)->t, 3);
    assert_int_equal(assigned(&b)->state_step, 0);
    assert_int_equal(give(&b, &late), DLC_OK);
    assert_int_equal(count(&b, DLC_ACTION_REFUSED, 1), 1);
    whole_round(&b);
    assert_int_equal(totals_of(&b).consumed + totals_of(&b).leased + totals_of(&b).free_below_next, totals_of(&b).next);
    bench_close(&b);
}

static void a_new_life_gives_up_what_was_late(void **state)
{
    struct dlc_coord_config cfg;
    struct dlc_event late;
    struct bench b;

    (void)state;
    late_in_round_1(&b, &late, &cfg);
    tell(&b, DLC_EVENT_LOST, 1);
    tell(&b, DLC_EVENT_BACK, 1);
    assert_int_equal(b.c->islands[1].state, DLC_ISLAND_LATE);
    hello(&b, 1);
    assert_int_equal(b.c->islands[1].state, DLC_ISLAND_READY);
    assert_int_equal(totals_of(&b).leased, 10);
    bench_close(&b);
}

/* --- a round that outlives its coordinator ------------------------------------------------------------------------ */

static dlc_err resume_with(struct bench *b, const struct dlc_coord_config *cfg, const json_t *round)
{
    bench_init(b, cfg);
    for (int j = 0; j < N; j++)
        b->theta_values[0][j] = 1.0f + (float)j;
    return dlc_coord_resume(&b->c, cfg, b->theta, b->state, NULL, NULL, NULL, round);
}

static void the_open_round_goes_on(void **state)
{
    struct dlc_coord_config cfg = policy(3, 1);
    struct dlc_event ev;
    struct bench a, b;

    (void)state;
    cfg.min_islands = 3;
    cfg.nonfinite_rollbacks_max = 2;
    bench_open(&a, &cfg);
    hello_all(&a);
    tell(&a, DLC_EVENT_NONFINITE, 0); /* attempt 2, 30 samples set aside */
    assert_int_equal(resume_with(&b, &cfg, a.round), DLC_OK);
    assert_int_equal(totals_of(&b).discarded, 30);
    assert_int_equal(totals_of(&b).leased, 30);
    assert_int_equal(dlc_coord_waiting_for(b.c, NULL, 0), 3);
    for (int i = 0; i < 2; i++) { /* the same lives, and a new one */
        b.incarnations[i] = 1;
        tell(&b, DLC_EVENT_HELLO, i);
        assert_int_equal(assigned(&b)->attempt, 2);
        assert_int_equal(assigned(&b)->lease->items[0].start, 30 + 10 * i);
        contribute(&b, i, 0.5f);
    }
    assert_int_equal(dlc_coord_t(b.c), 0); /* the third was not heard of yet */
    b.incarnations[2] = 1;
    ev = event_of(&b, DLC_EVENT_LOST, 2);
    assert_int_equal(give(&b, &ev), DLC_OK);
    assert_int_equal(dlc_coord_t(b.c), 1);
    assert_non_null(strstr(b.line, "\"discarded\":[[0,0,30]]"));
    bench_close(&a);
    bench_close(&b);
}

static void members_that_are_never_heard_of_are_not_waited_for_for_ever(void **state)
{
    struct dlc_coord_config cfg = policy(2, 1);
    struct bench a, b;

    (void)state;
    cfg.min_islands = 2;
    bench_open(&a, &cfg);
    hello_all(&a);
    assert_int_equal(resume_with(&b, &cfg, a.round), DLC_OK);
    hello(&b, 0);
    contribute(&b, 0, 0.5f);
    assert_int_equal(dlc_coord_t(b.c), 0);
    b.now_ns = dlc_coord_deadline_ns(b.c);
    assert_true(b.now_ns >= 20 * SECOND && b.now_ns < 21 * SECOND);
    tick(&b);
    assert_int_equal(dlc_coord_t(b.c), 1);
    bench_close(&a);
    bench_close(&b);
}

static void a_round_that_does_not_fit_is_refused(void **state)
{
    static const struct {
        const char *change; /* merged into the round */
        dlc_err expected;
        const char *why;
    } rows[] = {
        { "{}", DLC_OK, "as it was" },
        { "{\"t\":2}", DLC_OK, "of another step: not used" },
        { "{\"prev\":\"00000000000000000000000000000000000000000000000000000000000000aa\"}", DLC_OK, "another history" },
        { "{\"t\":0}", DLC_EINPUT, "no such step" },
        { "{\"prev\":\"xy\"}", DLC_EINPUT, "no digest" },
        { "{\"run\":\"1123456789abcdef0123456789abcdef\"}", DLC_EINPUT, "another run" },
        { "{\"attempt\":0}", DLC_EINPUT, "no attempt" },
        { "{\"rollbacks\":-1}", DLC_EINPUT, "negative" },
        { "{\"members\":[]}", DLC_EINPUT, "nobody" },
        { "{\"members\":[{\"island\":0,\"incarnation\":1,\"lease\":[[0,0,9]]}]}", DLC_EINPUT, "too few samples" },
        { "{\"members\":[{\"island\":0,\"incarnation\":1,\"lease\":[[1,0,10]]}]}", DLC_EINPUT, "no such pool" },
        { "{\"members\":[{\"island\":2,\"incarnation\":1,\"lease\":[[0,0,10]]}]}", DLC_EINPUT, "no such island" },
        { "{\"members\":[{\"island\":0,\"incarnation\":1,\"lease\":[[0,0,10]]},"
          "{\"island\":1,\"incarnation\":1,\"lease\":[[0,9,10]]}]}",
          DLC_EINPUT, "a sample lent twice" },
        { "{\"members\":[{\"island\":1,\"incarnation\":1,\"lease\":[[0,0,10]]},"
          "{\"island\":1,\"incarnation\":1,\"lease\":[[0,10,10]]}]}",
          DLC_EINPUT, "an island twice" },
        { "{\"discarded\":[[0,5,1]]}", DLC_EINPUT, "a sample set aside and lent" },
        { "{\"fresh\":[7]}", DLC_EINPUT, "no such island" },
        { "{\"released\":{}}", DLC_EINPUT, "not a list" },
        { "{\"arrivals\":[-1]}", DLC_EINPUT, "a time before it began" },
    };
    struct dlc_coord_config cfg = policy(2, 2);
    struct bench a, b;

    (void)state;
    bench_open(&a, &cfg);
    hello_all(&a);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        json_t *round = json_deep_copy(a.round), *change = NULL;
        dlc_err err;

        assert_int_equal(dlc_json_parse(&change, rows[k].change, strlen(rows[k].change), "row"), DLC_OK);
        json_object_update(round, change);
        err = resume_with(&b, &cfg, round);
        if (err != rows[k].expected)
            fail_msg("%s: %d, expected %d", rows[k].why, (int)err, (int)rows[k].expected);
        bench_close(&b);
        json_decref(round);
        json_decref(change);
    }
    bench_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_leaves_gives_back_its_lease_and_is_not_waited_for),
        cmocka_unit_test(the_last_one_leaves_and_another_begins),
        cmocka_unit_test(who_was_only_silent_goes_on),
        cmocka_unit_test(who_is_back_after_a_new_attempt_gets_it),
        cmocka_unit_test(who_lost_its_state_begins_anew),
        cmocka_unit_test(a_state_lost_after_contributing_is_not_asked_for),
        cmocka_unit_test(those_who_stand_by_join_a_round_that_cannot_end),
        cmocka_unit_test(nothing_let_in_is_a_new_attempt_and_not_the_end),
        cmocka_unit_test(too_many_refusals_in_a_row_send_away),
        cmocka_unit_test(no_island_ends_the_run),
        cmocka_unit_test(a_late_contribution_counts_in_the_next_round),
        cmocka_unit_test(what_is_too_late_even_then_is_given_up),
        cmocka_unit_test(a_new_life_gives_up_what_was_late),
        cmocka_unit_test(the_open_round_goes_on),
        cmocka_unit_test(members_that_are_never_heard_of_are_not_waited_for_for_ever),
        cmocka_unit_test(a_round_that_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests_name("coord-membership", tests, NULL, NULL);
}
