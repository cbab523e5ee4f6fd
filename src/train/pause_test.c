/* Stopping in order at any moment and going on, in one thread and virtual time: the records of the run are those of one
 * that was never stopped, also when an island did not live to keep where it was. With and without lockstep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "exchange/inproc.h"
#include "island/island.h"
#include "train/coordinator.h"

#define N 4
#define ISLANDS 3
#define BATCH 2
#define ROUNDS 4
#define STEPS 5 /* a round */

/* --- a toy trainer: two states of outer steps on disk and one of a stop ------------------------------------------- */

struct toy_state {
    bool there;
    uint64_t t;
    int64_t n_done;
    float params[N], momentum[N];
};

struct toy {
    float params[N], grads[N], momentum[N];
    struct toy_state disk[2], paused;
};

static size_t toy_n(void *self)
{
    (void)self;
    return N;
}
static float *toy_params(void *self)
{
    return ((struct toy *)self)->params;
}
static float *toy_grads(void *self)
{
    return ((struct toy *)self)->grads;
}
static void toy_changed(void *self)
{
    (void)self;
}
static int toy_batch(void *self)
{
    (void)self;
    return BATCH;
}

static dlc_err toy_gradient(void *self, double *loss, const struct dlc_ranges *lease, uint64_t offset, int64_t step)
{
    struct toy *t = self;
    double target = dlc_rng_uniform(1, lease->items[0].start + offset, (uint64_t)step);

    *loss = target;
    for (int j = 0; j < N; j++)
        t->grads[j] = (float)((double)t->params[j] - target * (j + 1));
    return DLC_OK;
}

static void toy_apply(void *self, double *norm, double *lr, int64_t step)
{
    struct toy *t = self;

    (void)step;
    *norm = 1;
    *lr = 0.1;
    for (int j = 0; j < N; j++) {
        t->momentum[j] = 0.9f * t->momentum[j] + t->grads[j];
        t->params[j] -= 0.1f * t->momentum[j];
    }
}

static dlc_err toy_load(void *self, uint64_t state_step, bool own_params, int *n_skipped)
{
    struct toy *t = self;
    const struct toy_state *s = &t->disk[state_step & 1];

    (void)own_params;
    *n_skipped = 0;
    memset(t->momentum, 0, sizeof t->momentum);
    if (state_step == 0)
        return DLC_OK;
    if (!s->there || s->t != state_step)
        return dlc_fail(DLC_ENOTFOUND, "no state of outer step %d", (int)state_step);
    memcpy(t->momentum, s->momentum, sizeof t->momentum);
    return DLC_OK;
}

static dlc_err toy_save(void *self, uint64_t state_step, uint64_t base_step, int n_skipped)
{
    struct toy *t = self;
    struct toy_state *s = &t->disk[state_step & 1];

    (void)base_step, (void)n_skipped;
    *s = (struct toy_state){ .there = true, .t = state_step };
    memcpy(s->momentum, t->momentum, sizeof s->momentum);
    t->paused.there = false;
    return DLC_OK;
}

static dlc_err toy_save_paused(void *self, const struct dlc_message *a, int64_t n_done, int n_skipped)
{
    struct toy *t = self;

    (void)n_skipped;
    t->paused = (struct toy_state){ .there = true, .t = a->t, .n_done = n_done };
    memcpy(t->paused.params, t->params, sizeof t->params);
    memcpy(t->paused.momentum, t->momentum, sizeof t->momentum);
    return DLC_OK;
}

static dlc_err toy_load_paused(void *self, const struct dlc_message *a, int64_t *n_done, int *n_skipped)
{
    struct toy *t = self;

    *n_done = *n_skipped = 0;
    if (!t->paused.there || t->paused.t != a->t)
        return DLC_OK;
    memcpy(t->params, t->paused.params, sizeof t->params);
    memcpy(t->momentum, t->paused.momentum, sizeof t->momentum);
    *n_done = t->paused.n_done;
    return DLC_OK;
}

static const struct dlc_trainer_ops toy_ops = { toy_n,        toy_params,      toy_grads,      toy_changed,
                                                toy_gradient, toy_batch,       toy_apply,      toy_load,
                                                toy_save,     toy_save_paused, toy_load_paused };

/* --- a run, in as many lives as it takes -------------------------------------------------------------------------- */

struct run {
    struct dlc_coord_config cfg;
    struct dlc_rng rng;
    int64_t delay_max_ns;

    dlc_inproc *x;
    dlc_coord *core;
    dlc_coordinator *coordinator;
    float state[2][N];
    struct toy toys[ISLANDS];
    dlc_island *islands[ISLANDS];
    uint32_t incarnations[ISLANDS];

    char *lines[ROUNDS + 1];
    uint64_t n_records;
    json_t *saved;
    float saved_theta[N], saved_state[N];
};

static dlc_err keep(void *self, const struct dlc_record *record, const json_t *saved, const float *theta)
{
    struct run *r = self;

    assert_int_equal(record->t, r->n_records + 1);
    assert_int_equal(dlc_record_to_line(&r->lines[record->t], record), DLC_OK);
    r->n_records = record->t;
    json_decref(r->saved);
    r->saved = json_deep_copy(saved);
    memcpy(r->saved_theta, theta, sizeof r->saved_theta);
    memcpy(r->saved_state, r->state[0], sizeof r->saved_state);
    return DLC_OK;
}

static void start_island(struct run *r, int i)
{
    struct dlc_island_config cfg = { .index = i,
                                     .incarnation = ++r->incarnations[i],
                                     .lockstep = r->cfg.lockstep,
                                     .codec = r->cfg.codec,
                                     .progress_every = 1 };

    dlc_coordinator_set_incarnation(r->coordinator, i, cfg.incarnation);
    memset(r->toys[i].params, 0x7f, sizeof r->toys[i].params); /* a fresh process knows nothing */
    memset(r->toys[i].momentum, 0x7f, sizeof r->toys[i].momentum);
    assert_int_equal(dlc_island_create(&r->islands[i], &cfg, &toy_ops, &r->toys[i], dlc_inproc_endpoint(r->x, i)),
                     DLC_OK);
}

static void start(struct run *r)
{
    struct dlc_exchange_size size = { .n_islands = ISLANDS, .n_params = N, .slot_bytes = 4 * N, .lockstep = true };
    struct dlc_inproc_faults faults = { .seed = dlc_rng_next(&r->rng), .delay_max_ns = r->delay_max_ns };
    struct dlc_coordinator_callbacks cb = { .self = r, .commit = keep };
    float *theta[2], *state[2] = { r->state[0], r->state[1] };
    struct dlc_record last;

    assert_int_equal(dlc_inproc_create(&r->x, &size, &faults), DLC_OK);
    for (int k = 0; k < 2; k++)
        theta[k] = dlc_inproc_hub(r->x)->ops->theta(dlc_inproc_hub(r->x), k);
    memcpy(r->state[0], r->saved_state, sizeof r->state[0]);
    memcpy(theta[r->n_records & 1], r->saved_theta, sizeof r->saved_theta);
    if (r->n_records == 0) {
        assert_int_equal(dlc_coord_create(&r->core, &r->cfg, theta, state, NULL), DLC_OK);
    } else {
        const char *line = r->lines[r->n_records];

        assert_int_equal(dlc_record_from_line(&last, line, strlen(line), "record"), DLC_OK);
        if (dlc_coord_resume(&r->core, &r->cfg, theta, state, NULL, r->saved, &last, NULL) != DLC_OK)
            fail_msg("%s", dlc_err_text());
        dlc_record_fini(&last);
    }
    assert_int_equal(dlc_coordinator_create(&r->coordinator, r->core, &r->cfg, dlc_inproc_hub(r->x), NULL, &cb),
                     DLC_OK);
    for (int i = 0; i < ISLANDS; i++)
        start_island(r, i);
}

static void end_island(struct run *r, int i)
{
    dlc_island_destroy(r->islands[i]);
    r->islands[i] = NULL;
    dlc_inproc_cut(r->x, i, true);
}

static void stop(struct run *r)
{
    for (int i = 0; i < ISLANDS; i++)
        dlc_island_destroy(r->islands[i]);
    memset(r->islands, 0, sizeof r->islands);
    dlc_coordinator_destroy(r->coordinator);
    dlc_coord_destroy(r->core);
    dlc_inproc_destroy(r->x);
}

static void one_event(struct run *r)
{
    bool idle = false;

    for (int i = 0; i < ISLANDS; i++) {
        struct dlc_message m;
        bool got = true;

        while (r->islands[i] && got) {
            assert_int_equal(dlc_inproc_island_recv(r->x, i, &m, &got), DLC_OK);
            if (!got)
                break;
            if (dlc_island_on_message(r->islands[i], &m) != DLC_OK)
                fail_msg("island %d: %s", i, dlc_err_text());
            dlc_message_fini(&m);
        }
        if (r->islands[i] && dlc_rng_below(&r->rng, 2) && dlc_island_work(r->islands[i]) != DLC_OK)
            fail_msg("island %d: %s", i, dlc_err_text());
        if (r->islands[i] && dlc_island_may_leave(r->islands[i]))
            end_island(r, i);
    }
    while (!idle && !dlc_coordinator_is_finished(r->coordinator)) {
        if (dlc_coordinator_poll(r->coordinator, &idle, 0) != DLC_OK)
            fail_msg("coordinator: %s", dlc_err_text());
    }
    dlc_inproc_set_now(r->x, dlc_inproc_now_ns(r->x) + 1);
}

/* Runs until it is finished (true) or has stopped in order, which it is asked after `events` events (-1: never). One
 * island may die while it is asked. */
static bool live(struct run *r, long events, int dies)
{
    start(r);
    for (long k = 0; !dlc_coordinator_is_finished(r->coordinator); k++) {
        if (k == events) {
            assert_int_equal(dlc_coordinator_pause(r->coordinator), DLC_OK);
            if (dies >= 0 && r->islands[dies])
                end_island(r, dies);
        }
        one_event(r);
        if (events >= 0 && k >= events && dlc_coordinator_is_paused(r->coordinator))
            return false;
        if (k > 5000)
            fail_msg("hangs in outer step %d after %ld events%s", (int)dlc_coord_t(r->core) + 1, k,
                     k > events && events >= 0 ? ", asked to stop" : "");
    }
    return true;
}

static void init_run(struct run *r, bool lockstep, uint64_t seed)
{
    memset(r, 0, sizeof *r);
    r->cfg = (struct dlc_coord_config){ .run = "0123456789abcdef0123456789abcdef",
                                        .seed = 5,
                                        .n_islands = ISLANDS,
                                        .n_params = N,
                                        .total_steps = STEPS * ROUNDS,
                                        .H = STEPS,
                                        .batch = BATCH,
                                        .tokens_per_sample = 10,
                                        .n_pools = 1,
                                        .lockstep = lockstep,
                                        .opt = { .kind = DLC_OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9 },
                                        .codec = &dlc_codec_f32,
                                        .wait_for_all = true,
                                        .min_islands = ISLANDS,
                                        .quorum = ISLANDS,
                                        .publish_before_commit = true };
    r->rng = (struct dlc_rng){ .seed = seed, .stream = 3 };
    r->delay_max_ns = (int64_t)(seed % 4);
}

static void free_run(struct run *r)
{
    stop(r);
    for (uint64_t t = 1; t <= r->n_records; t++)
        dlc_free(r->lines[t]);
    json_decref(r->saved);
}

static void a_stop_changes_nothing(void **state)
{
    static struct run calm, stopped;
    int n_kept = 0;

    (void)state;
    for (int lockstep = 0; lockstep < 2; lockstep++) {
        init_run(&calm, lockstep, 0);
        live(&calm, -1, -1);
        for (uint64_t seed = 0; seed < 200; seed++) {
            init_run(&stopped, lockstep, seed);
            for (int lives = 1;; lives++) {
                int dies = seed % 3 == 1 ? (int)dlc_rng_below(&stopped.rng, ISLANDS) : -1;

                if (live(&stopped, lives < 4 ? (long)dlc_rng_below(&stopped.rng, 60) : -1, dies))
                    break;
                stop(&stopped);
                if (seed % 3 == 2) /* what it kept was lost */
                    stopped.toys[dlc_rng_below(&stopped.rng, ISLANDS)].paused.there = false;
                for (int i = 0; i < ISLANDS; i++)
                    n_kept += stopped.toys[i].paused.there;
            }
            assert_int_equal(stopped.n_records, ROUNDS);
            for (uint64_t t = 1; t <= ROUNDS; t++) {
                if (strcmp(calm.lines[t], stopped.lines[t]) != 0)
                    fail_msg("lockstep %d, seed %d, step %d:\n%s\n%s", lockstep, (int)seed, (int)t, calm.lines[t],
                             stopped.lines[t]);
            }
            free_run(&stopped);
        }
        free_run(&calm);
    }
    assert_true(n_kept > 250);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_stop_changes_nothing) };

    return cmocka_run_group_tests_name("pause", tests, NULL, NULL);
}
