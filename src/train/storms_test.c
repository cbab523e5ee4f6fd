/* The outer engine in policy mode, where islands come and go and outlive their coordinator. */
#include "train/schedules_test_util.h"

static void policy(struct world *w, int n_islands, uint64_t seed, int quorum)
{
    struct shape s = { n_islands, 1, 24, 4, 0, false, false, "" };

    set_up(w, &s, seed);
    w->cfg.wait_for_all = false;
    w->cfg.min_islands = quorum;
    w->cfg.quorum = quorum;
    w->islands_survive = true;
}

/* Killed anywhere, also between making a round durable and telling anybody: with the same membership, the same bits. */
static void a_coordinator_that_dies_changes_nothing(void **state)
{
    static struct world calm, stormy;
    int n_coordinator_deaths = 0, n_deaths = 0;

    (void)state;
    for (int n = 1; n <= 5; n += 2) {
        policy(&calm, n, 1, n);
        run_world(&calm);
        check_all(&calm, true);
        for (long seed = 0; seed < n_schedules(400); seed++) {
            policy(&stormy, n, (uint64_t)seed, n);
            stormy.p_coordinator_dies = 0.002 * (double)(1 + seed % 8);
            stormy.p_island_dies = seed % 3 ? 0 : 0.004;
            stormy.delay_max_ns = seed % 20;
            stormy.duplicate = seed % 2 ? 0.2 : 0;
            run_world(&stormy);
            n_coordinator_deaths += stormy.n_coordinator_deaths;
            n_deaths += stormy.n_deaths;
            for (uint64_t t = 1; t <= stormy.n_records; t++) {
                if (strcmp(calm.lines[t], stormy.lines[t]) != 0)
                    fail_msg("%d islands, seed %ld, outer step %llu:\n%s\n%s", n, seed, (unsigned long long)t,
                             calm.lines[t], stormy.lines[t]);
            }
            check_all(&stormy, true);
            free_world(&stormy);
        }
        free_world(&calm);
    }
    assert_true(n_schedules(400) < 400 || (n_coordinator_deaths > 1000 && n_deaths > 100)); /* it was a storm */
}

static int count_in(const struct world *w, const char *what)
{
    int n = 0;

    for (uint64_t t = 1; t <= w->n_records; t++) {
        for (const char *at = strstr(w->lines[t], what); at; at = strstr(at + 1, what))
            n++;
    }
    return n;
}

/* Rounds close without the slow, which may hand in one round later; everything dies; some islands lose their disks. */
static void any_membership_is_exact(void **state)
{
    static struct world w;
    int n_late = 0, n_carried = 0;

    (void)state;
    for (long seed = 0; seed < n_schedules(1500); seed++) {
        bool wiped = seed % 7 == 6;

        policy(&w, 2 + (int)(seed % 4), (uint64_t)seed, 1 + (int)(seed % 2));
        w.cfg.late = seed % 3 ? DLC_LATE_NEXT : DLC_LATE_DROP;
        w.cfg.late_weight = 0.5;
        w.cfg.uniform_weights = seed % 5 == 0;
        w.step_ns[0] = 2 + seed % 40;
        w.p_island_dies = 0.004 * (double)(seed % 5);
        w.p_wiped = wiped ? 0.5 : 0;
        w.p_coordinator_dies = seed % 4 == 0 ? 0.004 : 0;
        w.delay_max_ns = seed % 15;
        w.duplicate = seed % 3 ? 0.1 : 0;
        run_world(&w);
        check_all(&w, !wiped); /* records do not say who began anew */
        n_late += count_in(&w, "\"late\"");
        n_carried += count_in(&w, "\"carried\"");
        free_world(&w);
    }
    assert_true(n_schedules(1500) < 1500 || (n_late > 1000 && n_carried > 200));
}

/* --- the paper's schedules of compute, a hundred islands ---------------------------------------------------------- */

enum { MANY = 100, FEW = 8 };

static int constant(const struct world *w)
{
    (void)w;
    return FEW;
}
static int doubling(const struct world *w)
{
    return dlc_coord_t(w->core) < 3 ? MANY / 2 : MANY;
}
static int halving(const struct world *w)
{
    return dlc_coord_t(w->core) < 3 ? MANY : MANY / 2;
}
static int ramp_up(const struct world *w)
{
    int t = (int)dlc_coord_t(w->core);

    return 1 + (MANY - 1) * (t < 4 ? t : 4) / 4;
}
static int ramp_down(const struct world *w)
{
    return MANY + 1 - ramp_up(w);
}

static void schedules_of_compute(void **state)
{
    static const struct {
        int (*wanted)(const struct world *w);
        int first, last; /* members of the first and the last record */
        const char *why;
    } rows[] = {
        { constant, FEW, FEW, "constant" },        { doubling, MANY / 2, MANY, "doubling" },
        { halving, MANY, MANY / 2, "halving" },    { ramp_up, 1, MANY, "ramp up" },
        { ramp_down, MANY, 1, "ramp down" },
    };
    static struct world w;

    (void)state;
    for (size_t k = 0; k < 2 * sizeof rows / sizeof *rows; k++) {
        size_t row = k / 2;
        struct dlc_record first, last;

        policy(&w, MANY, k, 1);
        w.cfg.min_islands = rows[row].first;
        w.wanted = rows[row].wanted;
        w.cfg.late = k % 2 ? DLC_LATE_NEXT : DLC_LATE_DROP;
        w.cfg.late_weight = 0.5;
        w.delay_max_ns = (int64_t)(k % 2) * 5;
        for (int i = 0; i < MANY; i++)
            w.step_ns[i] = 20 + i % 3;
        if (rows[row].first == MANY)
            w.cfg.min_islands = 1; /* it shrinks below; the first round begins with whoever is there */
        run_world(&w);
        check_all(&w, true);
        assert_int_equal(dlc_record_from_line(&first, w.lines[1], strlen(w.lines[1]), "first"), DLC_OK);
        assert_int_equal(
            dlc_record_from_line(&last, w.lines[w.n_records], strlen(w.lines[w.n_records]), "last"), DLC_OK);
        if (last.n_alive < rows[row].last - 1 || last.n_alive > rows[row].last + 1)
            fail_msg("%s: the last record has %d members, expected %d", rows[row].why, last.n_alive, rows[row].last);
        if (rows[row].first < MANY)
            assert_int_equal(first.n_alive, rows[row].first);
        dlc_record_fini(&first);
        dlc_record_fini(&last);
        free_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_coordinator_that_dies_changes_nothing),
        cmocka_unit_test(any_membership_is_exact),
        cmocka_unit_test(schedules_of_compute),
    };

    return cmocka_run_group_tests_name("storms", tests, NULL, NULL);
}
