/* A run's life: messages, deaths, outer steps, validation, the end. */
#include "train/run.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rss.h"
#include "base/signals.h"
#include "train/paused.h"

#define DEATHS_MAX 5 /* of one island without an outer step in between: something is wrong with it */
#define WAITING_SAID_S 5.0  /* after the first island of a round */
#define QUIET_SAID_S 60.0   /* when nothing is heard at all */
#define START_LIMIT_S 120.0 /* from a start to the first word: reading the data, making the memory */
#define PAUSE_SLICE_NS 100000000
#define WAIT_SLICE_NS 500000000
#define FAREWELL_S 15.0

/* --- validation, a batch at a time between messages ------------------------------------------------------------------
 */

static dlc_err eval_step(struct dlc_run *run)
{
    struct dlc_eval_result result;
    bool done;

    if (!run->evaluating)
        return DLC_OK;
    DLC_TRY(dlc_evaluator_step(run->evaluator, &done));
    if (!done)
        return DLC_OK;
    run->evaluating = false;
    result = dlc_evaluator_result(run->evaluator);
    return dlc_progress_eval(run->progress, run->eval_t, run->eval_step, &result);
}

static dlc_err finish_eval(struct dlc_run *run)
{
    while (run->evaluating)
        DLC_TRY(eval_step(run));
    return DLC_OK;
}

static bool eval_is_due(const struct dlc_run *run, uint64_t t)
{
    return t == dlc_coord_n_rounds(&run->core_config) || t % (uint64_t)run->config->train.eval_every == 0;
}

static dlc_err begin_eval(struct dlc_run *run, const struct dlc_record *record, const float *theta)
{
    if (!run->evaluator)
        return DLC_OK;
    dlc_evaluator_start(run->evaluator, theta);
    run->evaluating = true;
    run->eval_t = record->t;
    run->eval_step = record->step;
    return DLC_OK;
}

/* --- what the coordinator asks for -----------------------------------------------------------------------------------
 */

static dlc_err keep_last(struct dlc_run *run, const struct dlc_record *record)
{
    struct dlc_record copy = { .t = record->t, .step = record->step, .n_tokens = record->n_tokens };

    dlc_record_fini(&run->last);
    run->last = copy;
    return DLC_OK;
}

/* While they are all there: they leave once the last step is durable. */
static void measure_islands(struct dlc_run *run)
{
    for (int i = 0; run->processes && i < run->config->train.islands; i++) {
        size_t peak = dlc_processes_peak_bytes(run->processes, i);

        if (peak > run->memory.island_peak)
            run->memory.island_peak = peak;
    }
}

static dlc_err on_commit(void *self, const struct dlc_record *record, const json_t *saved, const float *theta)
{
    struct dlc_run *run = self;
    bool last = record->t == dlc_coord_n_rounds(&run->core_config);
    double now_s = dlc_now_s(), wait_s = run->first_arrival_s > 0 ? now_s - run->first_arrival_s : 0;

    /* Of the step before: its numbers are never skipped, whatever is faster; and once this step is durable, nobody
     * would evaluate that one again. */
    DLC_TRY(finish_eval(run));
    if (last)
        measure_islands(run);
    DLC_TRY(dlc_saver_commit(&run->saver, record, saved, theta, last));
    if (run->serve)
        DLC_TRY(dlc_serve_keep_record(run->serve, record));
    DLC_TRY(dlc_paused_remove(run->config->train.out));
    DLC_TRY(keep_last(run, record));
    memset(run->deaths, 0, sizeof run->deaths);
    DLC_TRY(dlc_progress_outer(run->progress, record, wait_s));
    run->first_arrival_s = 0;
    if (eval_is_due(run, record->t))
        DLC_TRY(begin_eval(run, record, theta));
    return DLC_OK;
}

static void on_progress(void *self, int island, const struct dlc_message *m)
{
    struct dlc_run *run = self;

    run->last_progress_s = dlc_now_s();
    if (dlc_progress_step(run->progress, island, m) != DLC_OK)
        dlc_warn("%s", dlc_err_text());
    if (run->first_arrival_s == 0 &&
        ((m->step + 1) % run->config->outer.steps == 0 || m->step + 1 == run->config->train.steps))
        run->first_arrival_s = dlc_now_s();
}

static void on_contribution(void *self, int island, const struct dlc_message *m)
{
    (void)island;
    dlc_progress_contribution(((struct dlc_run *)self)->progress, m);
}

static void on_refused(void *self, int island, uint64_t t, const char *reason)
{
    (void)self;
    dlc_warn("outer step %llu: the contribution of island %d is refused: %s", (unsigned long long)t, island, reason);
}

static dlc_err on_opened(void *self, const json_t *round)
{
    struct dlc_run *run = self;

    dlc_progress_members(run->progress, dlc_coord_n_members(run->core));
    return dlc_serve_keep_round(run->serve, round);
}

static void on_dismissed(void *self, int island, const char *reason)
{
    (void)self;
    dlc_warn("island %d is sent away: %s", island, reason);
}

static void on_suspect(void *self, int island, double waited_s)
{
    struct dlc_run *run = self;

    dlc_warn("island %d has been silent for %.0f s%s", island, waited_s,
             run->processes ? "; it is started again" : "");
    if (run->processes)
        dlc_processes_kill(run->processes, island);
}

static dlc_err start_island(struct dlc_run *run, int island)
{
    DLC_TRY(dlc_processes_start(run->processes, island));
    run->started_s[island] = dlc_now_s();
    dlc_coordinator_set_incarnation(run->coordinator, island, dlc_processes_incarnation(run->processes, island));
    return DLC_OK;
}

static dlc_err on_lost(void *self, int island)
{
    struct dlc_run *run = self;
    char how[64];

    dlc_processes_reap(run->processes, island, how);
    if (++run->deaths[island] > DEATHS_MAX)
        return dlc_fail(
            DLC_EPEER,
            "island %d ended %d times in outer step %llu, last with %s; the run stops here and can be resumed", island,
            run->deaths[island], (unsigned long long)dlc_coord_t(run->core) + 1, how);
    dlc_warn("island %d ended with %s; it is started again and repeats its round", island, how);
    return start_island(run, island);
}

static dlc_err open_coordinator(struct dlc_run *run)
{
    struct dlc_coordinator_callbacks callbacks = { .self = run,
                                                   .commit = on_commit,
                                                   .progress = on_progress,
                                                   .contribution = on_contribution,
                                                   .refused = on_refused,
                                                   .suspect = on_suspect,
                                                   .opened = run->serve ? on_opened : NULL,
                                                   .dismissed = on_dismissed,
                                                   .lost = run->local ? on_lost : NULL };

    return dlc_coordinator_create(&run->coordinator, run->core, &run->core_config, run->hub, run->backend->pool,
                                  &callbacks);
}

static dlc_err start_islands(struct dlc_run *run)
{
    struct dlc_islands_start start = { .run_folder = run->config->train.out, .run_id = run->identity.run_id,
                                       .vocab_size = run->config->model.shape.vocab_size };

    if (run->inproc)
        return dlc_run_inproc_open(run);
    if (run->serve)
        return DLC_OK; /* they come by themselves */
    dlc_sha256_to_hex(start.data_sha256, &run->identity.data_digest);
    DLC_TRY(dlc_processes_create(&run->processes, run->config->train.islands, run->local, &start));
    for (int i = 0; i < run->config->train.islands; i++)
        DLC_TRY(start_island(run, i));
    return DLC_OK;
}

/* --- the loop -------------------------------------------------------------------------------------------- */

/* Since the first island was through; before that, since the round began and nothing at all was heard. */
static void say_waiting(struct dlc_run *run)
{
    int islands[16], n = dlc_coord_waiting_for(run->core, islands, 16);
    double now_s = dlc_now_s();
    double since_s = run->first_arrival_s > 0 ? run->first_arrival_s : run->last_progress_s;

    if (n > 0 && now_s - since_s > (run->first_arrival_s > 0 ? WAITING_SAID_S : QUIET_SAID_S))
        dlc_progress_waiting(run->progress, islands, n, now_s - since_s);
}

/* An island that does not even say that it is there: starting takes seconds, whatever the model. */
static void watch_starts(struct dlc_run *run)
{
    for (int i = 0; i < run->config->train.islands; i++) {
        if (dlc_coordinator_is_connected(run->coordinator, i) || dlc_now_s() - run->started_s[i] < START_LIMIT_S)
            continue;
        dlc_warn("island %d has not come up in %.0f s; it is started again", i, START_LIMIT_S);
        run->started_s[i] = dlc_now_s();
        dlc_processes_kill(run->processes, i);
    }
}

static dlc_err one_turn(struct dlc_run *run, int64_t slice_ns)
{
    bool idle = true, coordinator_idle;

    if (run->inproc)
        DLC_TRY(dlc_run_inproc_work(run, &idle));
    DLC_TRY(dlc_coordinator_poll(run->coordinator, &coordinator_idle,
                                 run->inproc || run->evaluating ? 0 : dlc_now_ns() + slice_ns));
    if (coordinator_idle && run->evaluating)
        return eval_step(run);
    if (run->serve)
        DLC_TRY(dlc_serve_turn(run->serve));
    if (coordinator_idle && !run->inproc)
        say_waiting(run);
    if (coordinator_idle && run->local)
        watch_starts(run);
    return DLC_OK;
}

static dlc_err write_paused(struct dlc_run *run)
{
    json_t *rows = dlc_progress_to_json(run->progress);
    dlc_err err = rows ? dlc_paused_write(run->config->train.out, rows, dlc_coord_t(run->core)) : DLC_ENOMEM;

    json_decref(rows);
    return err;
}

/* Islands elsewhere hear that the run is over; one whose road is cut asks later, and is told then. */
static dlc_err see_islands_off(struct dlc_run *run)
{
    double until_s = dlc_now_s() + FAREWELL_S;

    while (run->serve && !dlc_serve_is_quiet(run->serve) && dlc_now_s() < until_s)
        DLC_TRY(one_turn(run, PAUSE_SLICE_NS));
    return DLC_OK;
}

static dlc_err finish(struct dlc_run *run)
{
    DLC_TRY(finish_eval(run));
    if (run->coordinator)
        DLC_TRY(see_islands_off(run));
    if (run->processes)
        dlc_processes_wait_all(run->processes, 30);
    run->memory.own_peak = dlc_rss_peak_bytes(0);
    return dlc_progress_summary(run->progress, &run->last, &run->memory, run->options.json);
}

/* Islands elsewhere train on and wait for the coordinator to come back: the open round is kept already. */
static dlc_err stop_serving(struct dlc_run *run)
{
    DLC_TRY(finish_eval(run));
    return dlc_fail(DLC_ESTOPPED,
                    "stopped in outer step %llu of %llu; the same command goes on from here, and the islands wait for it",
                    (unsigned long long)dlc_coord_t(run->core) + 1,
                    (unsigned long long)dlc_coord_n_rounds(&run->core_config));
}

static dlc_err stop_in_order(struct dlc_run *run)
{
    if (run->serve)
        return stop_serving(run);
    if (!run->options.quiet)
        dlc_info("stopping after this inner step; once more to stop at once");
    DLC_TRY(dlc_paused_remove(run->config->train.out));
    DLC_TRY(dlc_coordinator_pause(run->coordinator));
    while (!dlc_coordinator_is_paused(run->coordinator) && !dlc_coordinator_is_finished(run->coordinator))
        DLC_TRY(one_turn(run, PAUSE_SLICE_NS));
    DLC_TRY(finish_eval(run));
    if (dlc_coordinator_is_finished(run->coordinator))
        return finish(run);
    DLC_TRY(write_paused(run));
    for (int i = 0; run->processes && i < run->config->train.islands; i++) {
        if (!dlc_coordinator_has_left(run->coordinator, i)) /* it has only just been started */
            dlc_processes_kill(run->processes, i);
    }
    if (run->processes)
        dlc_processes_wait_all(run->processes, 10);
    return dlc_fail(DLC_ESTOPPED, "stopped in outer step %llu of %llu; the same command goes on from here",
                    (unsigned long long)dlc_coord_t(run->core) + 1,
                    (unsigned long long)dlc_coord_n_rounds(&run->core_config));
}

/* The rows of the step that the run goes on from, should a kill have come between its record and them. */
static dlc_err make_up_rows(struct dlc_run *run)
{
    struct dlc_metrics_rows there;

    if (run->last.t == 0)
        return DLC_OK;
    DLC_TRY(dlc_metrics_find(&there, run->config->train.out, run->last.t));
    if (!there.outer)
        DLC_TRY(dlc_progress_outer(run->progress, &run->last, NAN));
    return there.val || !eval_is_due(run, run->last.t) ? DLC_OK
                                                       : begin_eval(run, &run->last, dlc_coord_theta(run->core));
}

static dlc_err already_done(struct dlc_run *run)
{
    struct dlc_metrics_rows there;

    dlc_info("%s is finished: all %lld steps are trained", run->config->train.out, (long long)run->config->train.steps);
    DLC_TRY(dlc_metrics_find(&there, run->config->train.out, run->last.t));
    if (!there.outer)
        DLC_TRY(dlc_progress_outer(run->progress, &run->last, NAN));
    dlc_progress_set_recording(run->progress, !there.val);
    DLC_TRY(begin_eval(run, &run->last, dlc_coord_theta(run->core)));
    DLC_TRY(finish_eval(run));
    dlc_progress_set_recording(run->progress, !there.final);
    return finish(run);
}

dlc_err dlc_run_loop(struct dlc_run *run)
{
    if (dlc_coord_is_finished(run->core))
        return already_done(run);
    if (run->serve)
        DLC_TRY(dlc_serve_lead(run->serve));
    DLC_TRY(open_coordinator(run));
    DLC_TRY(start_islands(run));
    if (run->serve)
        dlc_serve_say_join(run->serve);
    DLC_TRY(make_up_rows(run));
    run->last_progress_s = dlc_now_s();
    while (!dlc_coordinator_is_finished(run->coordinator)) {
        if (dlc_stop_asked())
            return stop_in_order(run);
        DLC_TRY(one_turn(run, WAIT_SLICE_NS));
    }
    return finish(run);
}
