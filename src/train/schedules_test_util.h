/* Islands, a coordinator and stable storage in one thread and virtual time. For schedules_test.c and storms_test.c.
 *
 * The trainer is a toy (eight parameters, momentum), but its gradient depends on every sample index, its state is kept
 * over rounds and survives only what was saved, so any lost, doubled or reordered token range, and any island that
 * starts from the wrong state, shows in the bits of theta. */
#ifndef DLC_TRAIN_SCHEDULES_TEST_UTIL_H
#define DLC_TRAIN_SCHEDULES_TEST_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "exchange/inproc.h"
#include "island/island.h"
#include "train/coordinator.h"

#define N 8
#define MAX_ISLANDS 100
#define MAX_ROUNDS 12
#define BATCH 3
#define TOKENS_PER_SAMPLE 10

/* --- a toy trainer ------------------------------------------------------------------------------------------------ */

struct toy_state {
    bool saved;
    float params[N], momentum[N];
};

struct toy {
    float params[N], grads[N], momentum[N];
    struct toy_state disk[MAX_ROUNDS + 1]; /* survives the island's death */
    double poison_at;                      /* samples above this give a NaN loss; 0: none */
};

static inline size_t toy_n(void *self)
{
    (void)self;
    return N;
}
static inline float *toy_params(void *self)
{
    return ((struct toy *)self)->params;
}
static inline float *toy_grads(void *self)
{
    return ((struct toy *)self)->grads;
}
static inline void toy_changed(void *self)
{
    (void)self;
}
static inline int toy_batch(void *self)
{
    (void)self;
    return BATCH;
}

static inline uint64_t sample_at(const struct dlc_ranges *lease, uint64_t offset, int *pool)
{
    for (size_t i = 0; i < lease->n; i++) {
        if (offset < lease->items[i].count) {
            *pool = lease->items[i].pool;
            return lease->items[i].start + offset;
        }
        offset -= lease->items[i].count;
    }
    fail_msg("offset beyond the lease");
    return 0;
}

static inline dlc_err toy_gradient(void *self, double *loss, const struct dlc_ranges *lease, uint64_t offset, int64_t step)
{
    struct toy *t = self;

    *loss = 0;
    memset(t->grads, 0, sizeof t->grads);
    for (uint64_t b = 0; b < BATCH; b++) {
        int pool = 0;
        uint64_t k = sample_at(lease, offset + b, &pool);

        for (int j = 0; j < N; j++) {
            double target = dlc_rng_uniform((uint64_t)pool, k, (uint64_t)j), d = t->params[j] - target;

            t->grads[j] += (float)(d / BATCH);
            *loss += d * d / (BATCH * N);
        }
        if (t->poison_at > 0 && (double)k == t->poison_at)
            *loss = NAN;
    }
    t->grads[0] += 1e-3f * (float)step; /* the position in the schedule matters too */
    return DLC_OK;
}

static inline void toy_apply(void *self, double *norm, double *lr, int64_t step)
{
    struct toy *t = self;

    *lr = 0.05;
    *norm = 0;
    (void)step;
    for (int j = 0; j < N; j++) {
        t->momentum[j] = 0.9f * t->momentum[j] + t->grads[j];
        t->params[j] -= 0.05f * t->momentum[j];
        *norm += (double)t->grads[j] * t->grads[j];
    }
}

static inline dlc_err toy_load(void *self, uint64_t state_step, bool own_params, int *n_skipped)
{
    struct toy *t = self;

    *n_skipped = 0;
    if (state_step == 0) {
        memset(t->momentum, 0, sizeof t->momentum);
        return DLC_OK;
    }
    if (!t->disk[state_step].saved)
        return dlc_fail(DLC_ENOTFOUND, "no state of outer step %llu", (unsigned long long)state_step);
    memcpy(t->momentum, t->disk[state_step].momentum, sizeof t->momentum);
    if (own_params)
        memcpy(t->params, t->disk[state_step].params, sizeof t->params);
    return DLC_OK;
}

static inline dlc_err toy_save(void *self, uint64_t state_step, uint64_t base_step, int n_skipped)
{
    struct toy *t = self;

    (void)n_skipped;
    t->disk[state_step].saved = true;
    memcpy(t->disk[state_step].momentum, t->momentum, sizeof t->momentum);
    memcpy(t->disk[state_step].params, t->params, sizeof t->params);
    for (uint64_t s = 0; s <= MAX_ROUNDS; s++)
        t->disk[s].saved &= s == state_step || s == base_step;
    return DLC_OK;
}

static inline dlc_err toy_held(void *self, uint64_t states[2])
{
    struct toy *t = self;
    int n = 0;

    states[0] = states[1] = 0;
    for (uint64_t s = MAX_ROUNDS; s > 0 && n < 2; s--) {
        if (t->disk[s].saved)
            states[n++] = s;
    }
    return DLC_OK;
}

static const struct dlc_trainer_ops toy_ops = { .n_params = toy_n,
                                                .params = toy_params,
                                                .grads = toy_grads,
                                                .params_changed = toy_changed,
                                                .gradient = toy_gradient,
                                                .batch = toy_batch,
                                                .apply = toy_apply,
                                                .load = toy_load,
                                                .save = toy_save,
                                                .held = toy_held };

/* --- a world of islands, a coordinator and stable storage ----------------------------------------------------------
 */

struct world;

/* What an island holds of the exchange; outlives the coordinator, as an endpoint over a network does: then it says HELLO
 * again and repeats its contribution. */
struct wire {
    dlc_endpoint base;
    struct world *w;
    int island;
    struct dlc_message hello, contribution; /* kind 0: none yet */
    float slot[N];
};

struct world {
    bool islands_survive; /* the coordinator's death; and rounds are durable when they are opened */
    struct wire wires[MAX_ISLANDS];
    int64_t now_ns; /* when the last coordinator died */
    json_t *round;
    double p_wiped; /* an island that starts again has lost its disk */
    int (*wanted)(const struct world *w); /* islands that should be there now; NULL: all */
    int n_left;
    struct dlc_coord_config cfg;
    struct dlc_rng rng;
    double p_island_dies, p_coordinator_dies; /* at each event */
    int64_t delay_max_ns;
    double duplicate;
    double poison_at;
    int nonfinite_max;

    dlc_inproc *x;
    dlc_coord *core;
    dlc_coordinator *coordinator;
    float state[2][N];
    struct toy toys[MAX_ISLANDS];
    dlc_island *islands[MAX_ISLANDS];
    uint32_t incarnations[MAX_ISLANDS];
    int64_t busy_until_ns[MAX_ISLANDS], restart_at_ns[MAX_ISLANDS];
    int64_t step_ns[MAX_ISLANDS];
    bool coordinator_must_die;

    /* stable storage of the coordinator */
    char *lines[MAX_ROUNDS + 1]; /* record t */
    uint64_t n_records;
    json_t *saved[2]; /* of the newest checkpoint and the one before: which of them counts the records say */
    uint64_t saved_t[2];
    float saved_theta[2][N], saved_state[2][2][N];

    int n_deaths, n_coordinator_deaths, n_refused;
};

static inline struct dlc_coord_config config_of(int n_islands, int64_t steps, int64_t H)
{
    return (struct dlc_coord_config){ .run = "0123456789abcdef0123456789abcdef",
                                      .seed = 5,
                                      .n_islands = n_islands,
                                      .n_params = N,
                                      .total_steps = steps,
                                      .H = H,
                                      .batch = BATCH,
                                      .tokens_per_sample = TOKENS_PER_SAMPLE,
                                      .n_pools = 1,
                                      .opt = { .kind = DLC_OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9 },
                                      .codec = &dlc_codec_f32,
                                      .wait_for_all = true,
                                      .min_islands = n_islands,
                                      .quorum = n_islands,
                                      .publish_before_commit = true };
}

static inline dlc_endpoint *inner(dlc_endpoint *ep)
{
    struct wire *wire = (struct wire *)ep;

    return dlc_inproc_endpoint(wire->w->x, wire->island);
}

static inline dlc_err wire_send(dlc_endpoint *ep, const struct dlc_message *m)
{
    struct wire *wire = (struct wire *)ep;

    if (m->kind == DLC_MSG_HELLO)
        wire->hello = *m;
    if (m->kind == DLC_MSG_CONTRIBUTION) {
        wire->contribution = *m;
        memcpy(wire->hello.states, m->states, sizeof m->states);
        if (!wire->w->cfg.lockstep)
            memcpy(inner(ep)->ops->slot(inner(ep)), wire->slot, sizeof wire->slot);
    }
    return inner(ep)->ops->send(inner(ep), m);
}

static inline void *wire_slot(dlc_endpoint *ep)
{
    struct wire *wire = (struct wire *)ep;

    return wire->w->cfg.lockstep ? inner(ep)->ops->slot(inner(ep)) : wire->slot;
}
static inline const float *wire_theta(dlc_endpoint *ep, uint64_t t)
{
    return inner(ep)->ops->theta(inner(ep), t);
}
static inline const float *wire_mean(dlc_endpoint *ep)
{
    return inner(ep)->ops->mean(inner(ep));
}

static const struct dlc_endpoint_ops wire_ops = { wire_send, wire_slot, wire_theta, wire_mean };

static inline double chance(struct world *w)
{
    return (double)(dlc_rng_next(&w->rng) >> 11) * 0x1p-53;
}

static inline dlc_err keep(void *self, const struct dlc_record *record, const json_t *saved, const float *theta)
{
    struct world *w = self;
    int slot = (int)(record->t & 1);

    if (w->p_coordinator_dies > 0 && chance(w) < 0.05) { /* dies before anything of step t is durable */
        w->coordinator_must_die = true;
        return dlc_fail(DLC_EFAIL, "killed");
    }
    json_decref(w->saved[slot]);
    w->saved[slot] = json_deep_copy(saved);
    w->saved_t[slot] = record->t;
    memcpy(w->saved_theta[slot], theta, sizeof w->saved_theta[slot]);
    memcpy(w->saved_state[slot], w->state, sizeof w->state);
    if (w->p_coordinator_dies > 0 && chance(w) < 0.05) { /* dies between checkpoint and record */
        w->coordinator_must_die = true;
        return dlc_fail(DLC_EFAIL, "killed");
    }
    assert_int_equal(record->t, w->n_records + 1);
    assert_int_equal(dlc_record_to_line(&w->lines[record->t], record), DLC_OK);
    w->n_records = record->t;
    return DLC_OK;
}

static inline dlc_err keep_round(void *self, const json_t *round)
{
    struct world *w = self;

    if (w->p_coordinator_dies > 0 && chance(w) < 0.05) {
        w->coordinator_must_die = true;
        return dlc_fail(DLC_EFAIL, "killed");
    }
    json_decref(w->round);
    w->round = json_deep_copy(round);
    if (w->p_coordinator_dies > 0 && chance(w) < 0.05) { /* before anybody is told */
        w->coordinator_must_die = true;
        return dlc_fail(DLC_EFAIL, "killed");
    }
    return DLC_OK;
}

static inline void count_refused(void *self, int island, uint64_t t, const char *reason)
{
    (void)island, (void)t, (void)reason;
    ((struct world *)self)->n_refused++;
}

static inline void start_island(struct world *w, int i)
{
    struct dlc_island_config cfg = { .index = i,
                                     .incarnation = ++w->incarnations[i],
                                     .lockstep = w->cfg.lockstep,
                                     .codec = w->cfg.codec,
                                     .progress_every = 1,
                                     .nonfinite =
                                         w->cfg.nonfinite_rollbacks_max ? DLC_NONFINITE_ROLLBACK : DLC_NONFINITE_STOP,
                                     .nonfinite_max = w->nonfinite_max };

    dlc_coordinator_set_incarnation(w->coordinator, i, cfg.incarnation);
    memset(w->toys[i].params, 0x7f, sizeof w->toys[i].params); /* a fresh process knows nothing */
    memset(w->toys[i].momentum, 0x7f, sizeof w->toys[i].momentum);
    w->toys[i].poison_at = w->poison_at;
    w->busy_until_ns[i] = dlc_inproc_now_ns(w->x);
    if (w->p_wiped > 0 && chance(w) < w->p_wiped)
        memset(w->toys[i].disk, 0, sizeof w->toys[i].disk);
    w->wires[i] = (struct wire){ .base = { &wire_ops }, .w = w, .island = i };
    assert_int_equal(dlc_island_create(&w->islands[i], &cfg, &toy_ops, &w->toys[i], &w->wires[i].base), DLC_OK);
}

static inline void kill_island(struct world *w, int i)
{
    if (!w->islands[i])
        return;
    dlc_island_destroy(w->islands[i]);
    w->islands[i] = NULL;
    w->restart_at_ns[i] = dlc_inproc_now_ns(w->x) + 1 + (int64_t)dlc_rng_below(&w->rng, 60);
    dlc_inproc_cut(w->x, i, true);
    w->n_deaths++;
}

/* Leaves in order. */
static inline void send_away(struct world *w, int i)
{
    assert_int_equal(dlc_island_leave(w->islands[i], "told to"), DLC_OK);
    dlc_island_destroy(w->islands[i]);
    w->islands[i] = NULL;
    dlc_inproc_cut(w->x, i, true);
    w->n_left++;
}

/* The coordinator is a new one; the island is in the middle of what it does. */
static inline void say_again(struct world *w, int i)
{
    struct wire *wire = &w->wires[i];

    dlc_coordinator_set_incarnation(w->coordinator, i, w->incarnations[i]);
    assert_int_equal(inner(&wire->base)->ops->send(inner(&wire->base), &wire->hello), DLC_OK);
    if (wire->contribution.kind == 0)
        return;
    memcpy(inner(&wire->base)->ops->slot(inner(&wire->base)), wire->slot, sizeof wire->slot);
    assert_int_equal(inner(&wire->base)->ops->send(inner(&wire->base), &wire->contribution), DLC_OK);
}

static inline void start_coordinator(struct world *w)
{
    struct dlc_exchange_size size = {
        .n_islands = w->cfg.n_islands, .n_params = N, .slot_bytes = 4 * N, .lockstep = w->cfg.lockstep
    };
    struct dlc_inproc_faults faults = { .seed = dlc_rng_next(&w->rng),
                                        .delay_max_ns = w->delay_max_ns,
                                        .duplicate = w->duplicate };
    struct dlc_coordinator_callbacks cb = { .self = w, .commit = keep, .refused = count_refused };
    json_t *round = w->islands_survive ? w->round : NULL;
    float *theta[2], *state[2] = { w->state[0], w->state[1] };
    struct dlc_record last;
    int slot = (int)(w->n_records & 1);

    if (w->islands_survive)
        cb.opened = keep_round;
    assert_int_equal(dlc_inproc_create(&w->x, &size, &faults), DLC_OK);
    dlc_inproc_set_now(w->x, w->now_ns);
    theta[0] = dlc_inproc_hub(w->x)->ops->theta(dlc_inproc_hub(w->x), 0);
    theta[1] = dlc_inproc_hub(w->x)->ops->theta(dlc_inproc_hub(w->x), 1);
    if (w->n_records == 0) {
        for (int j = 0; j < N; j++)
            theta[0][j] = (float)dlc_rng_normal(w->cfg.seed, 1, (uint64_t)j);
        memset(w->state, 0, sizeof w->state);
        assert_int_equal(dlc_coord_resume(&w->core, &w->cfg, theta, state, NULL, NULL, NULL, round), DLC_OK);
    } else {
        const char *line = w->lines[w->n_records];

        assert_int_equal(w->saved_t[slot], w->n_records); /* what the last record needs is there */
        memcpy(theta[slot], w->saved_theta[slot], sizeof w->saved_theta[slot]);
        memcpy(w->state, w->saved_state[slot], sizeof w->state);
        assert_int_equal(dlc_record_from_line(&last, line, strlen(line), "record"), DLC_OK);
        if (dlc_coord_resume(&w->core, &w->cfg, theta, state, NULL, w->saved[slot], &last, round) != DLC_OK)
            fail_msg("resume: %s", dlc_err_text());
        dlc_record_fini(&last);
    }
    assert_int_equal(dlc_coordinator_create(&w->coordinator, w->core, &w->cfg, dlc_inproc_hub(w->x), NULL, &cb),
                     DLC_OK);
    for (int i = 0; i < w->cfg.n_islands; i++) {
        if (w->islands[i])
            say_again(w, i);
        else if (w->incarnations[i] == 0 || !w->islands_survive)
            w->restart_at_ns[i] = 0;
        if (!w->islands[i] && !w->wanted && w->restart_at_ns[i] == 0)
            start_island(w, i);
    }
}

static inline void stop_coordinator(struct world *w, bool islands_too)
{
    w->now_ns = w->islands_survive ? dlc_inproc_now_ns(w->x) + 10 : 0;
    for (int i = 0; islands_too && i < w->cfg.n_islands; i++) {
        dlc_island_destroy(w->islands[i]);
        w->islands[i] = NULL;
    }
    dlc_coordinator_destroy(w->coordinator);
    dlc_coord_destroy(w->core);
    dlc_inproc_destroy(w->x);
    w->coordinator = NULL;
    w->core = NULL;
    w->x = NULL;
    w->coordinator_must_die = false;
}

static inline void run_islands(struct world *w)
{
    int64_t now_ns = dlc_inproc_now_ns(w->x);

    for (int i = 0; i < w->cfg.n_islands; i++) {
        struct dlc_message m;
        bool got = true;

        if (!w->islands[i]) {
            if (now_ns >= w->restart_at_ns[i] && !w->wanted)
                start_island(w, i);
            continue;
        }
        while (got) {
            assert_int_equal(dlc_inproc_island_recv(w->x, i, &m, &got), DLC_OK);
            if (got && dlc_island_on_message(w->islands[i], &m) != DLC_OK)
                fail_msg("seed %llu, island %d: %s", (unsigned long long)w->rng.seed, i, dlc_err_text());
            if (got)
                dlc_message_fini(&m);
        }
        if (dlc_island_has_work(w->islands[i]) && now_ns >= w->busy_until_ns[i]) {
            if (dlc_island_work(w->islands[i]) != DLC_OK)
                fail_msg("seed %llu, island %d: %s", (unsigned long long)w->rng.seed, i, dlc_err_text());
            w->busy_until_ns[i] = now_ns + w->step_ns[i];
        }
    }
}

/* True when the run is over. */
static inline bool run_coordinator(struct world *w)
{
    bool idle = false;

    while (!idle && !w->coordinator_must_die) {
        dlc_err err = dlc_coordinator_poll(w->coordinator, &idle, 0);

        if (err != DLC_OK && !w->coordinator_must_die)
            fail_msg("coordinator: %s", dlc_err_text());
    }
    return !w->coordinator_must_die && dlc_coordinator_is_finished(w->coordinator);
}

/* Islands join and leave in order until as many are there as are wanted. */
static inline void follow_wanted(struct world *w)
{
    int n = 0, wanted = w->wanted(w);

    for (int i = 0; i < w->cfg.n_islands; i++)
        n += w->islands[i] != NULL;
    for (int i = 0; i < w->cfg.n_islands && n < wanted; i++) {
        if (!w->islands[i]) {
            start_island(w, i);
            n++;
        }
    }
    for (int i = w->cfg.n_islands; i-- > 0 && n > wanted;) {
        if (w->islands[i]) {
            send_away(w, i);
            n--;
        }
    }
}

static inline void one_life(struct world *w)
{
    start_coordinator(w);
    for (long events = 0;; events++) {
        if (events > 200000)
            fail_msg("still at outer step %llu after %ld events", (unsigned long long)dlc_coord_t(w->core), events);
        if (w->wanted)
            follow_wanted(w);
        run_islands(w);
        if (run_coordinator(w))
            return;
        if (w->p_coordinator_dies > 0 && chance(w) < w->p_coordinator_dies)
            w->coordinator_must_die = true;
        if (w->coordinator_must_die)
            return;
        for (int i = 0; i < w->cfg.n_islands; i++) {
            if (w->p_island_dies > 0 && chance(w) < w->p_island_dies)
                kill_island(w, i);
        }
        dlc_inproc_set_now(w->x, dlc_inproc_now_ns(w->x) + 1 + (int64_t)dlc_rng_below(&w->rng, 3));
    }
}

static inline void run_world(struct world *w)
{
    for (;;) {
        one_life(w);
        if (dlc_coordinator_is_finished(w->coordinator))
            return;
        stop_coordinator(w, !w->islands_survive);
        if (++w->n_coordinator_deaths > 20)
            w->p_coordinator_dies = 0; /* enough: it must come to an end */
    }
}

static inline void free_world(struct world *w)
{
    stop_coordinator(w, true);
    json_decref(w->round);
    for (uint64_t t = 1; t <= w->n_records; t++)
        dlc_free(w->lines[t]);
    json_decref(w->saved[0]);
    json_decref(w->saved[1]);
}

/* --- what must hold at the end of every run ------------------------------------------------------------------------
 */

static inline void read_records(struct dlc_record *records, const struct world *w)
{
    for (uint64_t t = 1; t <= w->n_records; t++)
        assert_int_equal(dlc_record_from_line(&records[t], w->lines[t], strlen(w->lines[t]), "record"), DLC_OK);
}

static inline void check_chain(const struct dlc_record *records, const struct world *w)
{
    struct dlc_sha256 theta;

    assert_int_equal(w->n_records, dlc_coord_n_rounds(&w->cfg));
    for (uint64_t t = 1; t <= w->n_records; t++) {
        assert_int_equal(records[t].t, t);
        if (t > 1)
            assert_true(dlc_sha256_equal(&records[t].prev, &records[t - 1].hash));
    }
    theta = dlc_sha256(dlc_coord_theta(w->core), N * sizeof(float));
    assert_true(dlc_sha256_equal(&theta, &records[w->n_records].theta));
}

/* No sample in two records, none lost: consumed, discarded and free make up all that was ever handed out. */
static inline void check_ledger(const struct dlc_record *records, const struct world *w)
{
    static unsigned char used[4][32768];
    uint64_t in_records = 0, consumed = 0;

    memset(used, 0, sizeof used);
    for (uint64_t t = 1; t <= w->n_records; t++) {
        for (size_t m = 0; m < records[t].n_members; m++) {
            const struct dlc_ranges *r = &records[t].members[m].ranges;

            for (size_t i = 0; i < r->n; i++) {
                for (uint64_t k = r->items[i].start; k < r->items[i].start + r->items[i].count; k++) {
                    assert_true(k < sizeof used[0]);
                    assert_int_equal(used[r->items[i].pool][k]++, 0);
                    in_records++;
                }
            }
        }
    }
    for (int pool = 0; pool < w->cfg.n_pools; pool++) {
        struct dlc_ledger_totals totals;

        dlc_ledger_totals(&totals, dlc_coord_ledger(w->core), pool);
        assert_int_equal(totals.leased, 0);
        consumed += totals.consumed;
    }
    assert_int_equal(consumed, in_records);
    assert_int_equal(records[w->n_records].n_tokens, in_records * TOKENS_PER_SAMPLE);
}

/* Trains every member of every record again, alone and undisturbed, and takes the outer steps: same bits. A carried
 * contribution is that of the round before, from the parameters of then. */
static inline void check_replay(const struct dlc_record *records, const struct world *w)
{
    static struct toy toys[MAX_ISLANDS];
    static float contributions[MAX_ISLANDS][N];
    uint64_t last[MAX_ISLANDS] = { 0 };
    float theta[N], before[N] = { 0 }, buf[N] = { 0 };
    float *const state[2] = { buf, NULL };

    for (int j = 0; j < N; j++)
        theta[j] = (float)dlc_rng_normal(w->cfg.seed, 1, (uint64_t)j);
    memset(toys, 0, sizeof toys);
    for (uint64_t t = 1; t <= w->n_records; t++) {
        double weights[MAX_ISLANDS], mean[N] = { 0 }, total = 0;
        const float *bases[MAX_ISLANDS];
        size_t n = 0;
        bool as_it_is;

        for (size_t k = 0; k < records[t].n_members; k++) {
            const struct dlc_record_member *m = &records[t].members[k];
            bool carried = m->fate == DLC_MEMBER_CARRIED;
            struct toy *toy = &toys[m->island];
            uint64_t round = t - carried;
            double loss, norm, lr;
            int skipped;

            if (m->fate != DLC_MEMBER_SUMMED && !carried)
                continue;
            bases[n] = carried ? before : theta;
            memcpy(toy->params, bases[n], sizeof theta);
            assert_int_equal(toy_load(toy, last[m->island], false, &skipped), DLC_OK);
            for (uint64_t s = 0; s * BATCH < dlc_ranges_count(&m->ranges); s++) {
                int64_t step = (int64_t)(round - 1) * w->cfg.H + (int64_t)s;

                toy_gradient(toy, &loss, &m->ranges, s * BATCH, step);
                toy_apply(toy, &norm, &lr, step);
            }
            memset(toy->disk, 0, sizeof toy->disk);
            toy_save(toy, round, round, 0);
            last[m->island] = round;
            memcpy(contributions[n], toy->params, sizeof theta);
            weights[n] = (double)m->weight;
            total += weights[n++];
        }
        for (size_t k = 0; k < n; k++) {
            for (int j = 0; j < N; j++)
                mean[j] += weights[k] / total * ((double)bases[k][j] - (double)contributions[k][j]);
        }
        as_it_is = n == 1 && bases[0] == theta; /* otherwise the mean travels as parameters */
        for (int j = 0; !as_it_is && j < N; j++)
            mean[j] = (double)theta[j] - (double)(float)((double)theta[j] - mean[j]);
        memcpy(before, theta, sizeof theta);
        dlc_outer_opt_step(&w->cfg.opt, theta, theta, state, mean, N, t);
        assert_memory_equal(dlc_sha256(theta, sizeof theta).bytes, records[t].theta.bytes, DLC_SHA256_BYTES);
    }
}

static inline void check_all(struct world *w, bool replay)
{
    struct dlc_record records[MAX_ROUNDS + 1];

    read_records(records, w);
    check_chain(records, w);
    check_ledger(records, w);
    if (replay)
        check_replay(records, w);
    for (uint64_t t = 1; t <= w->n_records; t++)
        dlc_record_fini(&records[t]);
}

struct shape {
    int n_islands, n_pools;
    int64_t steps, H;
    double drop;
    bool lockstep, publish_before_commit;
    const char *why;
};

static inline void set_up(struct world *w, const struct shape *s, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->cfg = config_of(s->n_islands, s->steps, s->H);
    w->cfg.n_pools = s->n_pools;
    w->cfg.drop = s->drop;
    w->cfg.lockstep = s->lockstep;
    w->cfg.publish_before_commit = s->publish_before_commit;
    w->rng = (struct dlc_rng){ .seed = seed, .stream = 77 };
    for (int i = 0; i < s->n_islands; i++)
        w->step_ns[i] = 2 + i;
}

static inline long n_schedules(long usual)
{
    const char *text = getenv("DLC_SCHEDULES");

    return text ? strtol(text, NULL, 10) : usual;
}

#endif
