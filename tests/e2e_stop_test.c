/* Stops, in order and not: SIGINT and SIGTERM anywhere, a second one, kill in mid checkpoint write, a process that
 * hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "history.h"
#include "runner.h"
#include "scene.h"

static int set_up(void **state)
{
    int rc = runner_begin(state);

    if (rc == 0)
        scene_prepare();
    return rc;
}

/* --- orderly stops --------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *flags;
    int n_schedules;
    const char *why;
} rows[] = {
    { "plain", "--outer.momentum 0.9", 8, "stops fall anywhere in a round" },
    { "drop", "--outer.drop 0.4", 4, "own parameters are kept over the stop" },
    { "dp", "--method dp", 4, "all must stop before the same step" },
    { "single", "--method single --islands 1", 2, "one worker" },
    { "inproc", "--exchange.kind inproc --outer.momentum 0.9", 3, "the other exchange" },
    { "sparse", "--train.checkpoint_every 3 --train.keep 1 --outer.steps 8", 4, "the stop is far from any checkpoint" },
    { "rows", "--train.log_every 3", 3, "rows that are due after the stop" },
};

/* Waits for a seeded number of metrics bytes: moments inside rounds, not only between them. */
static bool wait_for_bytes(struct child *c, const char *run, uint64_t size_bytes, int *status)
{
    const char *path = in_scratch("%s/metrics.jsonl", run);
    uint64_t now;

    while (!dlc_file_exists(path) || dlc_file_size(&now, path) != DLC_OK || now < size_bytes) {
        if (child_has_ended(c, status))
            return false;
        sleep_ms(0.2);
    }
    return !child_has_ended(c, status);
}

static uint64_t metrics_bytes(const char *run)
{
    const char *path = in_scratch("%s/metrics.jsonl", run);
    uint64_t size = 0;

    return dlc_file_exists(path) && dlc_file_size(&size, path) == DLC_OK ? size : 0;
}

static int n_stops, n_signals, n_kills;

/* Somebody dies while the stop goes on. */
static void kill_meanwhile(struct child *c, struct dlc_rng *rng)
{
    pid_t islands[TINY_ISLANDS];
    int n, victim = (int)dlc_rng_below(rng, TINY_ISLANDS + 1);

    sleep_ms((double)dlc_rng_below(rng, 4000) / 1000);
    n = runner_children_of(c->pid, islands, TINY_ISLANDS);
    if (victim < n)
        n_kills += kill(islands[victim], SIGKILL) == 0;
    else
        n_kills += kill(c->pid, SIGKILL) == 0;
}

/* Stops the run again and again, each time a little later, until it is through. */
static void stop_and_go_on(const char *run, const char *flags, uint64_t seed, bool with_kills)
{
    struct dlc_rng rng = { .seed = seed, .stream = 78 };
    int status = 3;

    for (int stops = 0; status == 3 || status == 128 + SIGKILL; stops++) {
        struct child c = { 0 };
        uint64_t at = metrics_bytes(run) + 200 + dlc_rng_below(&rng, 4000);

        child_start(&c, TINY " --out %s %s", run, flags);
        if (stops < 4 && wait_for_bytes(&c, run, at, &status)) {
            child_signal(&c, dlc_rng_below(&rng, 2) ? SIGINT : SIGTERM);
            n_signals++;
            if (with_kills && dlc_rng_below(&rng, 3) > 0)
                kill_meanwhile(&c, &rng);
        }
        if (c.pid)
            status = child_wait(&c);
        n_stops += status == 3;
        if (status != 0 && status != 3 && !(with_kills && status == 128 + SIGKILL))
            child_fail(&c, "schedule %llu: exit status %d", (unsigned long long)seed, status);
        runner_no_children("after a stop");
    }
}

static void stopped_runs_go_on_bit_for_bit(void **state)
{
    static struct history expected, got;
    uint64_t seed = 1;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int n = runner_is_long ? 2 * rows[i].n_schedules : runner_is_slow() ? 1 : rows[i].n_schedules;
        char calm[64], run[64], what[100];

        snprintf(calm, sizeof calm, "calm-%s", rows[i].name);
        run_expecting(0, TINY " --out %s %s", calm, rows[i].flags);
        history_read(&expected, calm);
        for (int k = 0; k < n; k++, seed++) {
            snprintf(run, sizeof run, "%s-%d", rows[i].name, k);
            snprintf(what, sizeof what, "%s, schedule %llu", rows[i].name, (unsigned long long)seed);
            stop_and_go_on(run, rows[i].flags, seed, k % 2 == 1);
            history_read(&got, run);
            history_same(&expected, &got, what);
            assert_int_equal(dlc_remove_tree(in_scratch("%s", run)), DLC_OK);
        }
    }
    print_message("%d of %d signals stopped a run, %d processes were killed meanwhile\n", n_stops, n_signals, n_kills);
    assert_true(n_stops >= (int)seed);
}

/* Half of the work survives the stop: nothing is trained again, so the rows of the stop are not either. */
static void a_stop_keeps_the_steps_of_the_round(void **state)
{
    static const char flags[] = "train --data data" TINY_MODEL " --islands 2 --outer.steps 2000 --steps 2000 --batch 4 "
                                "--train.log_every 10 --system.threads 1 --data.val_tokens 500";
    static struct history expected, got;
    struct child c = { 0 };
    struct dlc_buf err = { 0 };
    int status;

    (void)state;
    run_expecting(0, "%s --out round-calm", flags);
    child_start(&c, "%s --out round", flags);
    assert_true(wait_for_bytes(&c, "round", 1500, &status));
    child_signal(&c, SIGTERM);
    assert_int_equal(child_wait(&c), 3);
    child_text(&err, c.err_path);
    if (!strstr(err.data, "stopped in outer step 1 of 1; the same command goes on from here"))
        fail_msg("%s", err.data);
    assert_true(dlc_file_exists(in_scratch("round/islands/00/paused.safetensors")));
    assert_true(dlc_file_exists(in_scratch("round/islands/01/paused.safetensors")));
    run_expecting(0, "%s --out round", flags);
    history_read(&expected, "round-calm");
    history_read(&got, "round");
    history_same(&expected, &got, "stopped in the only round");
    assert_false(dlc_file_exists(in_scratch("round/islands/00/paused.safetensors")));
    assert_false(dlc_file_exists(in_scratch("round/paused.json")));
    dlc_buf_fini(&err);
}

/* Keys that do not change the result may be given anew at every resume. */
static void other_keys_may_change_at_a_stop(void **state)
{
    static const char *const kinds[] = { "--exchange.kind inproc --train.checkpoint_every 1",
                                         "--exchange.kind local --train.checkpoint_every 3 --train.keep 1",
                                         "--exchange.kind inproc --train.checkpoint_every 2",
                                         "--exchange.kind local --train.keep 5" };
    static struct history expected, got;
    int status = 3, stops = 0;

    (void)state;
    run_expecting(0, TINY " --out change-calm --outer.momentum 0.9 --outer.drop 0.2");
    for (int k = 0; status == 3; k++) {
        struct child c = { 0 };

        child_start(&c, TINY " --out change --outer.momentum 0.9 --outer.drop 0.2 %s", kinds[k % 4]);
        if (k < 8 && wait_for_bytes(&c, "change", metrics_bytes("change") + 700, &status))
            child_signal(&c, SIGTERM);
        if (c.pid)
            status = child_wait(&c);
        stops += status == 3;
    }
    assert_int_equal(status, 0);
    assert_true(stops >= 2);
    history_read(&expected, "change-calm");
    history_read(&got, "change");
    history_same(&expected, &got, "another exchange after each stop");
}

/* From here on signals are caught: the lock is taken after that. */
static void wait_for_lock(struct child *c, const char *run)
{
    const char *path = in_scratch("%s/lock", run);
    struct dlc_buf text = { 0 };
    int status;

    while (!dlc_file_exists(path) || strtol(child_text(&text, path), NULL, 10) != (long)c->pid) {
        if (child_has_ended(c, &status))
            child_fail(c, "ended with status %d", status);
        sleep_ms(0.5);
    }
    dlc_buf_fini(&text);
}

/* Islands that have not said a word yet are not waited for. */
static void a_stop_right_after_the_start_is_quick(void **state)
{
    static struct history expected, got;

    (void)state;
    run_expecting(0, TINY " --out early-calm");
    for (int k = 0; k < 8; k++) {
        struct child c = { 0 };
        double began_s;
        int status;

        child_start(&c, TINY " --out early");
        wait_for_lock(&c, "early");
        sleep_ms(k * 5);
        began_s = dlc_now_s();
        child_signal(&c, SIGTERM);
        status = child_wait(&c);
        if (status == 0)
            break; /* a fast machine: it was through */
        assert_int_equal(status, 3);
        if (dlc_now_s() - began_s > 5)
            child_fail(&c, "%.1f s from the signal to the end", dlc_now_s() - began_s);
    }
    run_expecting(0, TINY " --out early");
    history_read(&expected, "early-calm");
    history_read(&got, "early");
    history_same(&expected, &got, "stopped at the start");
}

/* --- a second signal ------------------------------------------------------------------------------------- */

/* An inner step that takes long: the first signal has to wait for it, the second does not. */
#define HEAVY                                                                                                          \
    "train --data data --model.layers 2 --model.d_model 256 --model.context 128 --islands 2 --outer.steps 1"           \
    " --steps 8 --batch 100 --train.log_every 1 --system.threads 1 --data.val_tokens 500 --out heavy"

static void the_second_signal_quits_at_once(void **state)
{
    struct child c = { 0 };
    double began_s;
    int status;

    (void)state;
    child_start(&c, HEAVY);
    while (history_lines("heavy") < 1) {
        if (child_has_ended(&c, &status))
            child_fail(&c, "ended with status %d", status);
        sleep_ms(5);
    }
    sleep_ms(300);
    child_signal(&c, SIGINT);
    sleep_ms(50);
    if (!child_has_ended(&c, &status)) {
        child_signal(&c, SIGINT);
        began_s = dlc_now_s();
        status = child_wait(&c);
        if (dlc_now_s() - began_s > 2)
            fail_msg("%.1f s after the second signal", dlc_now_s() - began_s);
    }
    if (status != 130)
        child_fail(&c, "ended with status %d after the second signal, expected 130", status);
    runner_no_children("after the second signal");
}

/* --- checkpoints cut off --------------------------------------------------------------------------------- */

/* A model whose checkpoint takes long to write beside what a round takes. */
#define LARGE                                                                                                          \
    "train --data data --model.layers 2 --model.d_model 192 --model.context 32 --islands 2 --outer.steps 1 --steps 8 " \
    "--batch 1 --train.log_every 1 --system.threads 1 --data.val_tokens 100 --outer.momentum 0.9"

static bool a_partial_is_there(const char *run)
{
    struct dlc_names names = { 0 };
    bool found = false;

    if (dlc_list_folder(&names, in_scratch("%s/checkpoints", run)) != DLC_OK)
        return false;
    for (size_t i = 0; i < names.n; i++)
        found = found || strncmp(names.names[i], ".partial-", 9) == 0;
    dlc_names_free(&names);
    return found;
}

/* Kills the coordinator while a checkpoint is being written, which is known for sure because it stands still meanwhile.
 */
static bool kill_in_checkpoint(struct child *c, const char *run, double after_ms, int *status)
{
    for (;;) {
        if (child_has_ended(c, status))
            return false;
        if (!a_partial_is_there(run))
            continue;
        sleep_ms(after_ms);
        if (child_has_ended(c, status))
            return false;
        child_signal(c, SIGSTOP);
        sleep_ms(1);
        if (a_partial_is_there(run))
            break;
        child_signal(c, SIGCONT);
    }
    child_signal(c, SIGKILL);
    *status = child_wait(c);
    return *status == 128 + SIGKILL;
}

static void kills_in_mid_checkpoint_change_nothing(void **state)
{
    static struct history expected, got;
    struct dlc_rng rng = { .seed = 5 };
    int kills = 0, wanted = runner_is_slow() ? 4 : 12, status = -1;

    (void)state;
    run_expecting(0, LARGE " --out large-calm");
    history_read(&expected, "large-calm");
    for (int k = 0; kills < wanted; k++) {
        struct child c = { 0 };
        char run[32];

        assert_true(k < 4 * wanted);
        snprintf(run, sizeof run, "large-%d", k);
        child_start(&c, LARGE " --out %s", run);
        while (kills < wanted && kill_in_checkpoint(&c, run, (double)dlc_rng_below(&rng, 20), &status)) {
            kills++;
            child_start(&c, LARGE " --out %s", run);
        }
        if (c.pid)
            status = child_wait(&c);
        if (status != 0)
            child_fail(&c, "exit status %d", status);
        history_read(&got, run);
        history_same(&expected, &got, run);
        assert_false(a_partial_is_there(run));
        assert_int_equal(dlc_remove_tree(in_scratch("%s", run)), DLC_OK);
    }
    runner_no_children("after the kills in mid checkpoint");
}

/* --- an island that hangs -------------------------------------------------------------------------------- */

static void a_hanging_island_is_replaced(void **state)
{
    static struct history expected, got;
    struct child c = { 0 };
    struct dlc_buf err = { 0 };
    pid_t islands[TINY_ISLANDS];
    int status;

    (void)state;
    if (!runner_is_long)
        skip(); /* the silence limit is many times what a step takes, and never below some 20 s */
    run_expecting(0, TINY " --out hang-calm");
    child_start(&c, TINY " --out hang");
    while (history_lines("hang") < 3)
        assert_false(child_has_ended(&c, &status));
    assert_int_equal(runner_children_of(c.pid, islands, TINY_ISLANDS), TINY_ISLANDS);
    assert_int_equal(kill(islands[1], SIGSTOP), 0);
    assert_int_equal(child_wait(&c), 0);
    child_text(&err, c.err_path);
    if (!strstr(err.data, "has been silent for"))
        fail_msg("%s", err.data);
    history_read(&expected, "hang-calm");
    history_read(&got, "hang");
    history_same(&expected, &got, "with an island that hung");
    runner_no_children("after the island that hung");
    dlc_buf_fini(&err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_runs_go_on_bit_for_bit),  cmocka_unit_test(a_stop_keeps_the_steps_of_the_round),
        cmocka_unit_test(other_keys_may_change_at_a_stop), cmocka_unit_test(a_stop_right_after_the_start_is_quick),
        cmocka_unit_test(the_second_signal_quits_at_once), cmocka_unit_test(kills_in_mid_checkpoint_change_nothing),
        cmocka_unit_test(a_hanging_island_is_replaced),
    };

    return runner_main("e2e stop", tests, set_up);
}
