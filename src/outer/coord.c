#include "outer/coord.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "outer/coord_internal.h"
#include "outer/merge.h"

#define SILENCE_FLOOR_S 20.0
#define SILENCE_FACTOR 10.0

dlc_err dlc__coord_push(struct dlc_coord *c, struct dlc_action action)
{
    if (c->next_action == c->n_actions)
        c->next_action = c->n_actions = 0;
    if (c->n_actions == c->cap_actions) {
        size_t cap = c->cap_actions ? 2 * c->cap_actions : 64;
        struct dlc_action *actions = dlc_realloc(c->actions, cap * sizeof *actions);

        if (!actions)
            return DLC_ENOMEM;
        c->actions = actions;
        c->cap_actions = cap;
    }
    c->actions[c->n_actions++] = action;
    return DLC_OK;
}

bool dlc_coord_next_action(dlc_coord *c, struct dlc_action *out)
{
    if (c->next_action == c->n_actions)
        return false;
    *out = c->actions[c->next_action++];
    return true;
}

dlc_err dlc__coord_fail(struct dlc_coord *c, dlc_err code, const char *fmt, ...)
{
    struct dlc_action a = { .kind = DLC_ACTION_FAILED, .t = c->t, .code = code };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(a.text, sizeof a.text, fmt, ap);
    va_end(ap);
    c->failed = true;
    return dlc__coord_push(c, a);
}

uint64_t dlc_coord_n_rounds(const struct dlc_coord_config *config)
{
    return (uint64_t)((config->total_steps + config->H - 1) / config->H);
}

uint64_t dlc_coord_t(const dlc_coord *c)
{
    return c->t;
}
const float *dlc_coord_theta(const dlc_coord *c)
{
    return c->theta[c->t & 1];
}
const struct dlc_sha256 *dlc_coord_theta_digest(const dlc_coord *c)
{
    return &c->theta_digest;
}
const struct dlc_record *dlc_coord_record(const dlc_coord *c)
{
    return &c->record;
}
const dlc_ledger *dlc_coord_ledger(const dlc_coord *c)
{
    return c->ledger;
}

bool dlc_coord_is_finished(const dlc_coord *c)
{
    return c->round == DLC_ROUND_FINISHED && !c->uncommitted;
}

void dlc_coord_counts(struct dlc_coord_counts *out, const dlc_coord *c)
{
    *out = (struct dlc_coord_counts){ 0 };
    for (int i = 0; i < c->cfg.n_islands; i++) {
        dlc_island_state s = c->islands[i].state;

        out->alive += s != DLC_ISLAND_AWAY && s != DLC_ISLAND_LOST && !c->islands[i].gone;
    }
    for (size_t k = 0; k < c->record.n_members; k++) {
        const struct dlc_record_member *m = &c->record.members[k];

        out->contributing += m->fate == DLC_MEMBER_SUMMED || m->fate == DLC_MEMBER_CARRIED;
        out->tokens += dlc_ranges_count(&m->ranges) * (uint64_t)c->cfg.tokens_per_sample;
    }
}

int dlc_coord_waiting_for(const dlc_coord *c, int *islands, int max)
{
    int n = 0;

    for (int i = 0; i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];

        if (!isl->member || isl->refused || isl->left ||
            (isl->state != DLC_ISLAND_TRAINING && isl->state != DLC_ISLAND_LOST))
            continue;
        if (n < max)
            islands[n] = i;
        n++;
    }
    return n;
}

dlc_err dlc_coord_create(dlc_coord **out, const struct dlc_coord_config *config, float *const theta[2],
                         float *const state[2], dlc_pool *pool)
{
    dlc_coord *c = dlc_calloc(1, sizeof *c);
    dlc_err err = DLC_ENOMEM;

    *out = NULL;
    if (!c)
        return DLC_ENOMEM;
    if (config->aggregate != DLC_AGGREGATE_MEAN && config->n_islands > DLC_ROBUST_PARTS_MAX) {
        dlc_free(c);
        return dlc_fail(DLC_EINPUT, "outer.aggregate other than mean takes at most %d islands, there may be %d",
                        DLC_ROBUST_PARTS_MAX, config->n_islands);
    }
    c->cfg = *config;
    memcpy(c->theta, theta, sizeof c->theta);
    memcpy(c->state, state, sizeof c->state);
    c->pool = pool;
    c->close_by_ns = INT64_MAX;
    memcpy(c->record.run, config->run, sizeof c->record.run);
    c->islands = dlc_calloc((size_t)config->n_islands, sizeof *c->islands);
    if (!c->islands)
        goto fail;
    DLC_TRY_TO(fail, dlc_ledger_create(&c->ledger, config->n_pools));
    c->theta_digest = dlc_sha256(theta[0], config->n_params * sizeof(float));
    DLC_TRY_TO(fail, dlc__coord_save(c));
    *out = c;
    return DLC_OK;
fail:
    dlc_coord_destroy(c);
    return err;
}

void dlc_coord_destroy(dlc_coord *c)
{
    if (!c)
        return;
    for (int i = 0; c->islands && i < c->cfg.n_islands; i++) {
        dlc_ranges_fini(&c->islands[i].pending);
        dlc_ranges_fini(&c->islands[i].lease);
    }
    dlc_free(c->islands);
    dlc_ledger_destroy(c->ledger);
    dlc_record_fini(&c->record);
    dlc_ranges_fini(&c->discarded);
    json_decref(c->saved);
    dlc_free(c->actions);
    dlc_free(c);
}

void dlc_coord_set_update(dlc_coord *c, void *(*update)(void *self, uint64_t t), void *self)
{
    c->update = update;
    c->update_self = self;
}

/* --- events, and what time alone does ----------------------------------------------------------------------------- */

static dlc_err on_progress(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];

    if (ev->incarnation != isl->incarnation)
        return DLC_OK;
    if (isl->state == DLC_ISLAND_TRAINING)
        dlc__ring_add(&c->silences_s, (double)(now_ns - isl->last_heard_ns) * 1e-9);
    isl->last_heard_ns = now_ns;
    return DLC_OK;
}

/* A stop caught some members before, others after a step, and only some of them have kept where they were. */
static dlc_err on_out_of_step(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    return c->cfg.lockstep && dlc__coord_is_of_this_round(c, ev) ? dlc__coord_restart_round(c, now_ns) : DLC_OK;
}

static dlc_err on_committed(dlc_coord *c, const struct dlc_event *ev)
{
    if (!c->uncommitted || ev->t != c->t)
        return DLC_OK;
    c->uncommitted = false;
    if (c->round == DLC_ROUND_FINISHED)
        return dlc__coord_push(c, (struct dlc_action){ .kind = DLC_ACTION_FINISHED, .t = c->t });
    return DLC_OK; /* what may follow now does, as after every event */
}

/* The longest silence that is still normal; 0 while nothing is known. */
static double silence_limit_s(const dlc_coord *c)
{
    double limit = SILENCE_FACTOR * dlc__ring_max(&c->silences_s);

    if (dlc__ring_size(&c->silences_s) == 0)
        return 0;
    return limit < SILENCE_FLOOR_S ? SILENCE_FLOOR_S : limit;
}

static dlc_err find_silent(dlc_coord *c, int64_t now_ns)
{
    double limit_s = silence_limit_s(c);

    for (int i = 0; limit_s > 0 && c->round == DLC_ROUND_TRAINING && i < c->cfg.n_islands; i++) {
        struct dlc__island *isl = &c->islands[i];
        double waited_s = (double)(now_ns - isl->last_heard_ns) * 1e-9;

        if (!isl->member || isl->state != DLC_ISLAND_TRAINING || isl->refused || waited_s <= limit_s)
            continue;
        isl->last_heard_ns = now_ns; /* said once a limit */
        DLC_TRY(dlc__coord_push(c, (struct dlc_action){
                                       .kind = DLC_ACTION_SUSPECT, .island = i, .t = c->t + 1, .waited_s = waited_s }));
    }
    return DLC_OK;
}

/* After a resume the members of the round are given as long to be heard of as anybody else. */
static int64_t grace_ends_ns(const dlc_coord *c)
{
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (c->islands[i].awaited && c->opened_ns != INT64_MIN)
            return c->resumed_ns + (int64_t)(SILENCE_FLOOR_S * 1e9);
    }
    return INT64_MAX;
}

static void end_grace(dlc_coord *c, int64_t now_ns)
{
    bool over = now_ns >= grace_ends_ns(c);

    for (int i = 0; over && i < c->cfg.n_islands; i++)
        c->islands[i].awaited = false;
}

int64_t dlc_coord_deadline_ns(const dlc_coord *c)
{
    bool may_close = c->round == DLC_ROUND_TRAINING && !c->cfg.wait_for_all && !c->uncommitted;
    int64_t deadline = may_close ? c->close_by_ns : INT64_MAX;
    double limit_s = silence_limit_s(c);

    if (c->failed)
        return INT64_MAX;
    if (!c->cfg.wait_for_all && grace_ends_ns(c) < deadline)
        deadline = grace_ends_ns(c);
    for (int i = 0; limit_s > 0 && c->round == DLC_ROUND_TRAINING && i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];
        int64_t at = isl->last_heard_ns + (int64_t)(limit_s * 1e9) + 1;

        if (isl->member && isl->state == DLC_ISLAND_TRAINING && !isl->refused && at < deadline)
            deadline = at;
    }
    return deadline;
}

static dlc_err dispatch(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    switch (ev->kind) {
    case DLC_EVENT_HELLO: return dlc__coord_on_hello(c, now_ns, ev);
    case DLC_EVENT_CONTRIBUTION: return dlc__coord_on_contribution(c, now_ns, ev);
    case DLC_EVENT_PROGRESS: return on_progress(c, now_ns, ev);
    case DLC_EVENT_RESUPPLY: return dlc__coord_on_resupply(c, now_ns, ev);
    case DLC_EVENT_NONFINITE: return dlc__coord_on_nonfinite(c, now_ns, ev);
    case DLC_EVENT_OUT_OF_STEP: return on_out_of_step(c, now_ns, ev);
    case DLC_EVENT_LOST: return dlc__coord_on_lost(c, ev);
    case DLC_EVENT_BACK: return dlc__coord_on_back(c, now_ns, ev);
    case DLC_EVENT_LEFT: return dlc__coord_on_left(c, ev);
    case DLC_EVENT_REFUSED: return dlc__coord_on_nonsense(c, ev);
    case DLC_EVENT_COMMITTED: return on_committed(c, ev);
    case DLC_EVENT_TICK: return find_silent(c, now_ns);
    }
    return DLC_OK;
}

dlc_err dlc_coord_event(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    if (c->failed)
        return DLC_OK;
    if (ev->kind != DLC_EVENT_COMMITTED && ev->kind != DLC_EVENT_TICK &&
        (ev->island < 0 || ev->island >= c->cfg.n_islands))
        return dlc_fail(DLC_EFAIL, "event of island %d, there are %d", ev->island, c->cfg.n_islands);
    if (c->opened_ns == INT64_MIN)
        c->opened_ns = c->resumed_ns = now_ns;
    c->assigned = false;
    end_grace(c, now_ns);
    DLC_TRY(dispatch(c, now_ns, ev));
    if (c->round == DLC_ROUND_WAITING && (!c->uncommitted || c->cfg.publish_before_commit))
        DLC_TRY(dlc__coord_open_round(c, now_ns));
    DLC_TRY(dlc__coord_take_in(c, now_ns));
    return c->assigned ? DLC_OK : dlc__coord_close_if_due(c, now_ns); /* otherwise with the next event, or a TICK */
}
