/* The coordinator's core against time, non-finite losses and simulated losses. */
#include "outer/coord_test_util.h"

/* --- silence ------------------------------------------------------------------------------------------------------ */

static void progress_every(struct bench *b, int64_t ns, int times)
{
    for (int k = 0; k < times; k++) {
        b->now_ns += ns;
        for (int i = 0; i < b->cfg.n_islands; i++)
            tell(b, DLC_EVENT_PROGRESS, i);
    }
}

static void silence_far_beyond_the_usual_is_said(void **state)
{
    static const struct {
        double usual_s, limit_s;
        const char *why;
    } rows[] = {
        { 0.5, 20, "never before 20 s" },
        { 2, 20, "ten times, and 20 s" },
        { 6, 60, "ten times the longest silence so far" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_coord_config cfg = bench_config(2);
        int64_t limit = (int64_t)(rows[k].limit_s * 1e9);
        struct bench b;

        bench_open(&b, &cfg);
        assert_true(dlc_coord_deadline_ns(b.c) == INT64_MAX);
        hello_all(&b);
        assert_true(dlc_coord_deadline_ns(b.c) == INT64_MAX); /* nothing is known: nothing is suspect */
        progress_every(&b, (int64_t)(rows[k].usual_s * 1e9), 5);
        contribute(&b, 0, 1);
        assert_true(dlc_coord_deadline_ns(b.c) == b.now_ns + limit + 1);
        forget(&b);
        b.now_ns += limit - SECOND / 1000;
        tick(&b);
        assert_int_equal(b.n_actions, 0);
        b.now_ns += SECOND / 1000 + 1;
        tick(&b);
        if (count(&b, DLC_ACTION_SUSPECT, 1) != 1 || b.n_actions != 1) /* not 0, which is done */
            fail_msg("%s: %zu suspected", rows[k].why, b.n_actions);
        assert_true(fabs(last_action(&b, DLC_ACTION_SUSPECT)->waited_s - rows[k].limit_s) < 0.01);
        tick(&b);
        assert_int_equal(b.n_actions, 1); /* said once a limit */
        bench_close(&b);
    }
}

static void who_is_lost_is_not_suspect(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    progress_every(&b, SECOND, 3);
    contribute(&b, 0, 1);
    tell(&b, DLC_EVENT_LOST, 1);
    forget(&b);
    b.now_ns += 1000 * SECOND;
    tick(&b);
    assert_int_equal(b.n_actions, 0);
    assert_true(dlc_coord_deadline_ns(b.c) == INT64_MAX);
    hello(&b, 1); /* its time starts now */
    tick(&b);
    assert_int_equal(count(&b, DLC_ACTION_SUSPECT, -1), 0);
    bench_close(&b);
}

/* --- rounds that close without somebody --------------------------------------------------------------------------- */

static struct dlc_coord_config impatient(int n_islands, int quorum)
{
    struct dlc_coord_config cfg = bench_config(n_islands);

    cfg.wait_for_all = false;
    cfg.quorum = cfg.min_islands = quorum;
    return cfg;
}

/* All islands but the last contribute after 10 s each round; the last takes as long as told. */
static void a_deadline_is_drawn_from_arrivals(void **state)
{
    struct dlc_coord_config cfg = impatient(3, 2);
    struct dlc_event late;
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b); /* round 1 opens with two */
    b.now_ns += 10 * SECOND;
    contribute(&b, 0, 1);
    assert_true(dlc_coord_deadline_ns(b.c) == INT64_MAX); /* below the quorum there is none */
    contribute(&b, 1, 1);
    assert_int_equal(dlc_coord_t(b.c), 1);

    b.now_ns += 10 * SECOND; /* round 2 has all three */
    contribute(&b, 0, 1);
    contribute(&b, 1, 1);
    assert_true(dlc_coord_deadline_ns(b.c) == b.now_ns + (int64_t)(2.5 * 1e9)); /* 1.25 medians after it was opened */
    late = contribution_of(&b, 2, 1);
    b.now_ns += (int64_t)(2.5 * 1e9) - 1;
    tick(&b);
    assert_int_equal(dlc_coord_t(b.c), 1);
    b.now_ns += 1;
    tick(&b);
    assert_int_equal(dlc_coord_t(b.c), 2);
    assert_non_null(strstr(b.line, "\"fate\":\"late\",\"island\":2"));
    assert_int_equal(totals_of(&b).consumed, 40);
    assert_int_equal(b.c->islands[0].lease.items[0].start, 40); /* what the late one had is leased again first */

    forget(&b);
    assert_int_equal(give(&b, &late), DLC_OK);
    assert_int_equal(count(&b, DLC_ACTION_REFUSED, 2), 1);
    assert_int_equal(b.c->islands[2].state, DLC_ISLAND_TRAINING); /* it is in the next round */
    assert_int_equal(b.c->islands[2].state_step, 0);
    bench_close(&b);
}

static void nobody_waits_for_the_lost_when_the_others_are_in(void **state)
{
    static const struct {
        int quorum;
        bool closes;
        const char *why;
    } rows[] = { { 1, true, "one is enough" }, { 2, false, "two are wanted and one is here" } };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_coord_config cfg = impatient(2, rows[k].quorum);
        struct bench b;

        cfg.min_islands = 2;
        bench_open(&b, &cfg);
        hello_all(&b);
        b.now_ns += SECOND;
        contribute(&b, 0, 1);
        tell(&b, DLC_EVENT_LOST, 1);
        if (dlc_coord_t(b.c) != rows[k].closes)
            fail_msg("%s: at outer step %d", rows[k].why, (int)dlc_coord_t(b.c));
        if (rows[k].closes)
            assert_int_equal(b.c->islands[1].state, DLC_ISLAND_AWAY);
        bench_close(&b);
    }
}

static void waiting_for_all_knows_no_deadline(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    b.now_ns += SECOND;
    contribute(&b, 0, 1);
    b.now_ns += 1000000 * SECOND;
    tick(&b);
    assert_int_equal(dlc_coord_t(b.c), 0);
    bench_close(&b);
}

/* --- non-finite losses -------------------------------------------------------------------------------------------- */

static void a_nonfinite_loss_stops_the_run(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct dlc_event ev;
    struct bench b;

    (void)state;
    bench_open(&b, &cfg);
    hello_all(&b);
    ev = event_of(&b, DLC_EVENT_NONFINITE, 1);
    ev.step = 3;
    ev.text = "loss nan";
    assert_int_equal(give(&b, &ev), DLC_OK);
    assert_non_null(
        strstr(last_action(&b, DLC_ACTION_FAILED)->text, "island 1, step 3: loss nan; 0 rollbacks were made"));
    bench_close(&b);
}

static void a_rollback_starts_the_round_anew(void **state)
{
    struct dlc_coord_config cfg = bench_config(3);
    struct bench b;

    (void)state;
    cfg.nonfinite_rollbacks_max = 1;
    bench_open(&b, &cfg);
    hello_all(&b);
    contribute(&b, 0, 1);
    tell(&b, DLC_EVENT_LOST, 2);
    forget(&b);
    tell(&b, DLC_EVENT_NONFINITE, 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, -1), 2); /* island 2 when it is back */
    assert_int_equal(b.actions[0].assignment.attempt, 2);
    assert_int_equal(b.actions[0].assignment.lease->items[0].start, 30);
    assert_int_equal(totals_of(&b).discarded, 30);
    hello(&b, 2);
    assert_int_equal(last_action(&b, DLC_ACTION_ASSIGN)->assignment.lease->items[0].start, 50);
    whole_round(&b);
    assert_non_null(strstr(b.line, "\"discarded\":[[0,0,30]]"));
    tell(&b, DLC_EVENT_NONFINITE, 1);
    assert_int_equal(count(&b, DLC_ACTION_FAILED, -1), 1); /* once was allowed */
    bench_close(&b);
}

/* What was known of the attempt that was given up (who was refused, when it would close, when an island last spoke)
 * says nothing about the next one. */
static void a_rollback_forgets_the_attempt(void **state)
{
    struct dlc_coord_config cfg = impatient(3, 2);
    struct dlc_event bad;
    struct bench b;

    (void)state;
    cfg.min_islands = 3;
    cfg.nonfinite_rollbacks_max = 1;
    bench_open(&b, &cfg);
    hello_all(&b);
    progress_every(&b, SECOND, 2);
    contribute(&b, 0, 1);
    bad = contribution_of(&b, 1, 1);
    bad.payload_bytes = 1;
    assert_int_equal(give(&b, &bad), DLC_OK);
    tell(&b, DLC_EVENT_LOST, 1);
    for (int k = 0; k < 60; k++) { /* island 2 is slow and alive; island 0 has long been done */
        b.now_ns += SECOND;
        tell(&b, DLC_EVENT_PROGRESS, 2);
    }
    forget(&b);
    tell(&b, DLC_EVENT_NONFINITE, 2);
    tick(&b);
    assert_int_equal(count(&b, DLC_ACTION_SUSPECT, -1), 0);
    hello(&b, 1);
    assert_int_equal(count(&b, DLC_ACTION_ASSIGN, 1), 1); /* refused in the attempt before, welcome in this one */
    contribute(&b, 0, 1);
    contribute(&b, 1, 1); /* now the quorum is in */
    bench_close(&b);

    bench_open(&b, &cfg);
    hello_all(&b);
    b.now_ns += 10 * SECOND;
    contribute(&b, 0, 1);
    contribute(&b, 1, 1);
    assert_true(dlc_coord_deadline_ns(b.c) < INT64_MAX);
    tell(&b, DLC_EVENT_NONFINITE, 2);
    assert_true(dlc_coord_deadline_ns(b.c) == INT64_MAX);
    b.now_ns += 100 * SECOND;
    tick(&b);
    assert_int_equal(count(&b, DLC_ACTION_FAILED, -1), 0);
    assert_int_equal(dlc_coord_t(b.c), 0);
    bench_close(&b);
}

/* --- simulated losses --------------------------------------------------------------------------------------------- */

/* Which contributions of 10 rounds of 6 islands are lost, as a text of d and s. */
static void drops_of(char out[61], double drop, uint64_t seed)
{
    struct dlc_coord_config cfg = bench_config(6);
    struct bench b;
    size_t n = 0;

    cfg.drop = drop;
    cfg.seed = seed;
    bench_open(&b, &cfg);
    hello_all(&b);
    for (int r = 0; r < 10; r++) {
        whole_round(&b);
        for (size_t i = 0; i < b.c->record.n_members; i++)
            out[n++] = b.c->record.members[i].fate == DLC_MEMBER_DROPPED ? 'd' : 's';
    }
    out[n] = '\0';
    assert_int_equal(totals_of(&b).leased, 0); /* nothing is pending after the last round */
    bench_close(&b);
}

static void drops_are_drawn_from_the_seed(void **state)
{
    char a[61], again[61], other[61];
    int n = 0;

    (void)state;
    drops_of(a, 0.3, 1);
    drops_of(again, 0.3, 1);
    drops_of(other, 0.3, 2);
    assert_string_equal(a, again);
    assert_string_not_equal(a, other);
    for (int k = 0; k < 60; k++)
        n += a[k] == 'd';
    if (n < 8 || n > 30) /* 18 expected, standard deviation 3.5 */
        fail_msg("%d of 60 lost with probability 0.3", n);
    drops_of(a, 0, 1);
    assert_null(strchr(a, 'd'));
}

/* The paper's semantics: the island goes on from its own parameters; its samples count in the record that sums it. */
static void a_lost_contribution_goes_on_from_its_own(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;
    uint64_t n_lost = 0;

    (void)state;
    cfg.drop = 0.5;
    cfg.seed = 5;
    cfg.total_steps = 100;
    bench_open(&b, &cfg);
    hello_all(&b);
    for (uint64_t t = 1; t < 20; t++) {
        uint64_t pending[2], consumed = totals_of(&b).consumed;

        for (int i = 0; i < 2; i++)
            pending[i] = dlc_ranges_count(&b.c->islands[i].pending);
        whole_round(&b);
        for (int i = 0; i < 2; i++) {
            const struct dlc__island *isl = &b.c->islands[i];
            const struct dlc_record_member *m = &b.c->record.members[i];
            bool lost = m->fate == DLC_MEMBER_DROPPED;

            assert_int_equal(isl->own_params, lost);
            assert_int_equal(isl->state_step, t);
            assert_int_equal(dlc_ranges_count(&m->ranges), lost ? 0 : pending[i] + 10);
            assert_int_equal(dlc_ranges_count(&isl->pending), lost ? pending[i] + 10 : 0);
            consumed += dlc_ranges_count(&m->ranges);
            n_lost += lost;
        }
        assert_int_equal(totals_of(&b).consumed, consumed);
        assert_int_equal(b.c->record.n_tokens, consumed * 10);
    }
    assert_true(n_lost > 10);
    bench_close(&b);
}

static void all_lost_leaves_theta_where_it_is(void **state)
{
    struct dlc_coord_config cfg = bench_config(2);
    struct bench b;

    (void)state;
    cfg.drop = 1;
    bench_open(&b, &cfg);
    hello_all(&b);
    whole_round(&b);
    assert_memory_equal(b.theta[0], b.theta[1], sizeof b.theta_values[0]);
    assert_true(b.state[0][0] == 0);
    assert_non_null(strstr(b.line, "\"delta_norm\":0.0"));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_far_beyond_the_usual_is_said),
        cmocka_unit_test(who_is_lost_is_not_suspect),
        cmocka_unit_test(a_deadline_is_drawn_from_arrivals),
        cmocka_unit_test(nobody_waits_for_the_lost_when_the_others_are_in),
        cmocka_unit_test(waiting_for_all_knows_no_deadline),
        cmocka_unit_test(a_nonfinite_loss_stops_the_run),
        cmocka_unit_test(a_rollback_starts_the_round_anew),
        cmocka_unit_test(a_rollback_forgets_the_attempt),
        cmocka_unit_test(drops_are_drawn_from_the_seed),
        cmocka_unit_test(a_lost_contribution_goes_on_from_its_own),
        cmocka_unit_test(all_lost_leaves_theta_where_it_is),
    };

    return cmocka_run_group_tests_name("coord-policy", tests, NULL, NULL);
}
