/* The outer engine under seeded schedules of faults, in one thread and virtual time: islands and the coordinator die
 * and come back at any moment, messages are late and come twice, contributions are lost on purpose. */
#include "train/schedules_test_util.h"

/* --- schedules -----------------------------------------------------------------------------------------------------
 */

static const struct shape shapes[] = {
    { 1, 1, 12, 4, 0, false, true, "one island" },
    { 3, 1, 20, 4, 0, false, true, "the usual" },
    { 3, 1, 20, 4, 0, false, false, "nobody goes on before the record is durable" },
    { 4, 1, 18, 4, 0.3, false, true, "lost contributions, short last round" },
    { 2, 3, 12, 2, 0, false, true, "more sources than islands" },
    { 5, 2, 12, 3, 0.2, false, true, "more islands than sources" },
    { 3, 1, 12, 4, 0, true, true, "data parallel" },
};

/* Whoever dies and whatever is late or doubled: when members are waited for, the bits of every record are those of the
 * undisturbed run. */
static void deaths_change_nothing(void **state)
{
    static struct world calm, stormy;
    int n_deaths = 0, n_coordinator_deaths = 0;

    (void)state;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        set_up(&calm, &shapes[k], 1);
        run_world(&calm);
        check_all(&calm, shapes[k].drop == 0 && !shapes[k].lockstep);
        for (long seed = 0; seed < n_schedules(1000); seed++) {
            set_up(&stormy, &shapes[k], (uint64_t)seed);
            stormy.p_island_dies = 0.002 * (double)(seed % 8);
            stormy.p_coordinator_dies = seed % 3 == 0 ? 0.005 : 0;
            stormy.delay_max_ns = seed % 20;
            stormy.duplicate = seed % 2 ? 0.2 : 0;
            run_world(&stormy);
            n_deaths += stormy.n_deaths;
            n_coordinator_deaths += stormy.n_coordinator_deaths;
            for (uint64_t t = 1; t <= stormy.n_records; t++) {
                if (strcmp(calm.lines[t], stormy.lines[t]) != 0)
                    fail_msg("%s, seed %ld, outer step %llu:\n%s\n%s", shapes[k].why, seed, (unsigned long long)t,
                             calm.lines[t], stormy.lines[t]);
            }
            check_all(&stormy, false);
            free_world(&stormy);
        }
        free_world(&calm);
    }
    assert_true(n_deaths > 100 && n_coordinator_deaths > 100); /* the storm was one */
}

/* When the round does not wait for everybody: any membership is legal, the chain and the ledger are exact, and theta is
 * what the recorded members alone give. */
static void rounds_close_without_the_missing(void **state)
{
    static struct world w;
    int n_late = 0;

    (void)state;
    for (long seed = 0; seed < n_schedules(3000); seed++) {
        struct shape s = { 2 + (int)(seed % 4), 1, 24, 4, 0, false, seed % 2 == 0, "" };

        set_up(&w, &s, (uint64_t)seed);
        w.cfg.wait_for_all = false;
        w.cfg.min_islands = 1;
        w.cfg.quorum = 1 + (int)(seed % 2);
        if (w.cfg.quorum > w.cfg.n_islands)
            w.cfg.quorum = w.cfg.n_islands;
        w.cfg.min_islands = w.cfg.quorum;
        w.step_ns[0] = 2 + seed % 40; /* one slow island */
        w.p_island_dies = 0.004 * (double)(seed % 5);
        w.p_coordinator_dies = seed % 4 == 0 ? 0.004 : 0;
        w.delay_max_ns = seed % 15;
        w.duplicate = seed % 3 ? 0.1 : 0;
        run_world(&w);
        check_all(&w, true);
        for (uint64_t t = 1; t <= w.n_records; t++)
            n_late += strstr(w.lines[t], "\"late\"") != NULL;
        free_world(&w);
    }
    assert_true(n_late > 100);
}

static void rollback_sets_the_samples_aside(void **state)
{
    static struct world w;
    struct shape s = { 3, 1, 12, 4, 0, false, true, "" };
    struct dlc_ledger_totals totals;

    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        set_up(&w, &s, seed);
        w.cfg.nonfinite_rollbacks_max = 2;
        w.poison_at = 20; /* in the first round of the second island */
        w.p_island_dies = 0.003 * (double)(seed % 4);
        w.delay_max_ns = (int64_t)seed % 10;
        run_world(&w);
        check_all(&w, true);
        dlc_ledger_totals(&totals, dlc_coord_ledger(w.core), 0);
        assert_int_equal(totals.discarded, 3 * 4 * BATCH);
        assert_non_null(strstr(w.lines[1], "\"discarded\":[[0,0,36]]"));
        free_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deaths_change_nothing),
        cmocka_unit_test(rounds_close_without_the_missing),
        cmocka_unit_test(rollback_sets_the_samples_aside),
    };

    return cmocka_run_group_tests_name("schedules", tests, NULL, NULL);
}
