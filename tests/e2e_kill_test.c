/* Kill -9 of islands and coordinator at seeded random moments: the run that comes out is the undisturbed one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "history.h"
#include "runner.h"
#include "scene.h"

static const struct {
    const char *name, *flags;
    int n_islands, n_schedules; /* 50 in all */
    const char *why;
} rows[] = {
    { "plain", "", 3, 14, "the default" },
    { "momentum", "--outer.momentum 0.9 --optim.lr 0.01", 3, 8, "outer state has to come back" },
    { "drop", "--outer.drop 0.4", 3, 8, "islands that go on from their own parameters" },
    { "sparse", "--train.checkpoint_every 3 --train.keep 1", 3, 8, "records beyond the checkpoint are trained again" },
    { "dp", "--method dp", 3, 6, "everybody repeats when one is lost" },
    { "one", "--islands 1 --outer.momentum 0.9", 1, 2, "nobody else goes on meanwhile" },
    { "all", "--outer.drop 0.3 --outer.optimizer adam --train.checkpoint_every 2 --train.keep 1 --train.log_every 3", 3,
      4, "together" },
};

static int n_islands_killed, n_coordinators_killed;

static int set_up(void **state)
{
    int rc = runner_begin(state);

    if (rc == 0)
        scene_prepare();
    return rc;
}

/* Waits until the records have that many lines, and a little longer, so that moments spread over the whole run however
 * fast the machine is. False: the run has ended before. */
static bool wait_for_moment(struct child *c, const char *run, struct dlc_rng *rng, int *status)
{
    int lines = (int)dlc_rng_below(rng, TINY_STEPS / TINY_H);
    int since = history_lines(run);
    double extra_ms = (double)dlc_rng_below(rng, 30000) / 1000;

    if (lines < since)
        lines = since;
    while (history_lines(run) < lines) {
        if (child_has_ended(c, status))
            return false;
        sleep_ms(0.5);
    }
    sleep_ms(extra_ms);
    return !child_has_ended(c, status);
}

static void kill_somebody(struct child *c, struct dlc_rng *rng)
{
    pid_t islands[TINY_ISLANDS];
    int n = runner_children_of(c->pid, islands, TINY_ISLANDS);
    int victim = (int)dlc_rng_below(rng, TINY_ISLANDS + 2);

    if (victim < TINY_ISLANDS && victim < n) {
        n_islands_killed += kill(islands[victim], SIGKILL) == 0;
        return;
    }
    child_signal(c, SIGKILL);
    if (child_wait(c) == 128 + SIGKILL)
        n_coordinators_killed++;
}

static void disturb(const char *run, const char *flags, uint64_t seed)
{
    struct dlc_rng rng = { .seed = seed, .stream = 77 };
    int left = 1 + (int)dlc_rng_below(&rng, 3), status = -1;
    struct child c = { 0 };

    child_start(&c, TINY " --out %s %s", run, flags);
    while (left-- > 0 && wait_for_moment(&c, run, &rng, &status)) {
        kill_somebody(&c, &rng);
        if (c.pid == 0) {
            runner_no_children("after a kill of the coordinator");
            child_start(&c, TINY " --out %s %s", run, flags);
        }
    }
    if (c.pid)
        status = child_wait(&c);
    if (status != 0)
        child_fail(&c, "schedule %llu ended with status %d", (unsigned long long)seed, status);
}

static void killed_runs_end_like_undisturbed_ones(void **state)
{
    static struct history expected, got;
    uint64_t seed = 1;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = runner_is_long     ? 3 * rows[i].n_schedules
                : runner_is_slow() ? (rows[i].n_schedules + 3) / 4
                                   : rows[i].n_schedules;

        run_expecting(0, TINY " --out calm-%s %s", rows[i].name, rows[i].flags);
        history_read(&expected, in_scratch("calm-%s", rows[i].name) + strlen(runner_scratch()) + 1);
        assert_int_equal(expected.n_records, TINY_STEPS / TINY_H);
        for (int k = 0; k < n; k++, seed++) {
            char run[64], what[100];

            snprintf(run, sizeof run, "%s-%d", rows[i].name, k);
            snprintf(what, sizeof what, "%s, schedule %llu", rows[i].name, (unsigned long long)seed);
            disturb(run, rows[i].flags, seed);
            history_read(&got, run);
            history_same(&expected, &got, what);
            history_is_complete(run, (uint64_t)(TINY_STEPS * TINY_BATCH * rows[i].n_islands));
            assert_int_equal(dlc_remove_tree(in_scratch("%s", run)), DLC_OK);
        }
        runner_no_children(rows[i].name);
    }
    print_message("%d islands and %d coordinators were killed in %d schedules\n", n_islands_killed,
                  n_coordinators_killed, (int)seed - 1);
    assert_true(n_islands_killed >= (int)seed / 4 && n_coordinators_killed >= (int)seed / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(killed_runs_end_like_undisturbed_ones) };

    return runner_main("e2e kill", tests, set_up);
}
