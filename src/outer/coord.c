#include "outer/coord.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "outer/coord_internal.h"
#include "outer/merge.h"

#define OUTLIER_FACTOR 100.0 /* a contribution this many times the usual norm is not training any more */
#define OUTLIER_MIN_SEEN 8
#define RESUPPLY_MAX 3
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

int dlc_coord_waiting_for(const dlc_coord *c, int *islands, int max)
{
    int n = 0;

    for (int i = 0; i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];

        if (!isl->member || isl->refused || (isl->state != DLC_ISLAND_TRAINING && isl->state != DLC_ISLAND_LOST))
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

/* --- events ------------------------------------------------------------------------------------------------------ */

static bool round_is_complete(const dlc_coord *c)
{
    return c->round == DLC_ROUND_TRAINING && dlc_coord_waiting_for(c, NULL, 0) == 0;
}

static int n_members_with(const dlc_coord *c, bool refused)
{
    int n = 0;

    for (int i = 0; i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];

        n += isl->member && isl->refused == refused && (refused || isl->state == DLC_ISLAND_DONE);
    }
    return n;
}

static dlc_err close_if_due(dlc_coord *c, int64_t now_ns)
{
    bool late = !c->cfg.wait_for_all && now_ns >= c->close_by_ns;

    if (c->round != DLC_ROUND_TRAINING || c->uncommitted || c->failed || !(round_is_complete(c) || late))
        return DLC_OK;
    if (n_members_with(c, false) == 0)
        return dlc__coord_fail(c, DLC_EFAIL, "outer step %llu: none of %d contributions could be let in",
                               (unsigned long long)(c->t + 1), n_members_with(c, true));
    return dlc__coord_close_round(c, now_ns);
}

static bool is_of_this_round(const dlc_coord *c, const struct dlc_event *ev)
{
    return ev->incarnation == c->islands[ev->island].incarnation && c->round == DLC_ROUND_TRAINING &&
           ev->t == c->t + 1 && ev->attempt == c->attempt;
}

/* Everybody again from theta(t-1); what came in counts no more, nor do refusals and a deadline drawn from it. */
static dlc_err restart_round(dlc_coord *c, int64_t now_ns)
{
    c->attempt++;
    c->opened_ns = now_ns;
    c->close_by_ns = INT64_MAX;
    for (int i = 0; i < c->cfg.n_islands; i++) {
        struct dlc__island *isl = &c->islands[i];

        if (!isl->member)
            continue;
        isl->refused = false;
        if (isl->state == DLC_ISLAND_TRAINING || (isl->state == DLC_ISLAND_DONE && !isl->gone))
            DLC_TRY(dlc__coord_assign(c, i, now_ns));
        else
            isl->state = DLC_ISLAND_LOST; /* gets its assignment when it is back */
    }
    return DLC_OK;
}

static dlc_err on_hello(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];

    if (ev->incarnation < isl->incarnation || (ev->incarnation == isl->incarnation && isl->state != DLC_ISLAND_AWAY))
        return DLC_OK; /* of an earlier life, or said already */
    isl->incarnation = ev->incarnation;
    isl->last_heard_ns = now_ns;
    if (c->round == DLC_ROUND_TRAINING && isl->member) {
        isl->gone = false;
        if (isl->state == DLC_ISLAND_DONE)
            return DLC_OK;
        isl->state = DLC_ISLAND_TRAINING;
        if (isl->refused)
            return DLC_OK; /* once a round is enough: it waits for the next */
        return c->cfg.lockstep ? restart_round(c, now_ns) : dlc__coord_assign(c, ev->island, now_ns);
    }
    isl->state = DLC_ISLAND_READY;
    if (c->round == DLC_ROUND_WAITING && (!c->uncommitted || c->cfg.publish_before_commit))
        return dlc__coord_open_round(c, now_ns);
    return DLC_OK;
}

static dlc_err refuse(dlc_coord *c, int island, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static dlc_err refuse(dlc_coord *c, int island, const char *fmt, ...)
{
    struct dlc_action a = { .kind = DLC_ACTION_REFUSED, .island = island, .t = c->t + 1 };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(a.text, sizeof a.text, fmt, ap);
    va_end(ap);
    return dlc__coord_push(c, a);
}

/* `reason` stays empty when the contribution may be let in. */
static void examine(char reason[160], dlc_coord *c, const struct dlc_event *ev, double *norm)
{
    size_t expected = c->cfg.codec->size_bytes(c->cfg.n_params);
    double usual = dlc__ring_median(&c->norms); /* of earlier rounds only: the order of arrival decides nothing */

    reason[0] = '\0';
    if (ev->payload_bytes != expected) {
        snprintf(reason, 160, "%zu bytes, expected %zu", ev->payload_bytes, expected);
        return;
    }
    *norm = dlc_contribution_norm(c->cfg.codec, ev->payload, c->theta[c->t & 1], c->cfg.n_params, c->pool);
    if (!isfinite(*norm))
        snprintf(reason, 160, "has non-finite values");
    else if (c->norms.n >= OUTLIER_MIN_SEEN && usual > 0 && *norm > OUTLIER_FACTOR * usual)
        snprintf(reason, 160, "norm %.3g, the last ones had a median of %.3g", *norm, usual);
}

static void set_deadline(dlc_coord *c)
{
    double median = dlc__ring_median(&c->arrivals_s), spread = dlc__ring_spread(&c->arrivals_s);
    double wait_s = median + 4 * spread;

    if (wait_s < 1.25 * median)
        wait_s = 1.25 * median;
    c->close_by_ns = c->opened_ns + (int64_t)(wait_s * 1e9);
}

/* The same contribution once more, after its round was closed with it. */
static bool is_in_last_record(const dlc_coord *c, const struct dlc_event *ev)
{
    for (size_t i = 0; ev->t == c->t && i < c->record.n_members; i++) {
        const struct dlc_record_member *m = &c->record.members[i];

        if (m->island == ev->island && m->fate != DLC_MEMBER_LATE && dlc_sha256_equal(&m->payload, &ev->digest))
            return true;
    }
    return false;
}

static dlc_err on_contribution(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];
    char reason[160];
    double norm = 0;

    if (ev->incarnation != isl->incarnation || is_in_last_record(c, ev))
        return DLC_OK;
    if (c->round != DLC_ROUND_TRAINING || !isl->member || ev->t != c->t + 1)
        return refuse(c, ev->island, "contribution to outer step %llu, open is %llu", (unsigned long long)ev->t,
                      (unsigned long long)(c->t + 1));
    if (isl->state != DLC_ISLAND_TRAINING || isl->refused || ev->attempt != c->attempt)
        return DLC_OK; /* counted already, or of an attempt that was given up */
    isl->last_heard_ns = now_ns;
    isl->digest = ev->digest;
    examine(reason, c, ev, &norm);
    if (reason[0]) {
        isl->refused = true;
        DLC_TRY(refuse(c, ev->island, "%s", reason));
        return close_if_due(c, now_ns);
    }
    isl->state = DLC_ISLAND_DONE;
    isl->gone = false;
    isl->payload = ev->payload;
    isl->norm = norm;
    dlc__ring_add(&c->arrivals_s, (double)(now_ns - c->opened_ns) * 1e-9);
    if (!c->cfg.wait_for_all && n_members_with(c, false) >= c->cfg.quorum)
        set_deadline(c);
    return close_if_due(c, now_ns);
}

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

/* An assignment that came so late that theta(t-1) is gone is stale and needs nothing; otherwise the bits were damaged.
 */
static dlc_err on_resupply(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];

    if (!is_of_this_round(c, ev) || isl->state != DLC_ISLAND_TRAINING)
        return DLC_OK;
    if (++isl->n_resupplied > RESUPPLY_MAX)
        return dlc__coord_fail(c, DLC_EPEER, "island %d: the parameters of outer step %llu arrived damaged %d times",
                               ev->island, (unsigned long long)c->t, isl->n_resupplied);
    DLC_TRY(refuse(c, ev->island, "got theta(%llu) with another digest; it is sent again", (unsigned long long)c->t));
    return dlc__coord_assign(c, ev->island, now_ns);
}

static dlc_err on_lost(dlc_coord *c, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];

    if (ev->incarnation != isl->incarnation)
        return DLC_OK;
    switch (isl->state) {
    case DLC_ISLAND_READY: isl->state = DLC_ISLAND_AWAY; break;
    case DLC_ISLAND_TRAINING: isl->state = DLC_ISLAND_LOST; break;
    case DLC_ISLAND_DONE: isl->gone = true; break;
    case DLC_ISLAND_AWAY:
    case DLC_ISLAND_LOST: break;
    }
    return DLC_OK;
}

/* Without `wait_for_all` a lost member may never come back: it is not waited for when the others are in. */
static dlc_err close_without_lost(dlc_coord *c, int64_t now_ns)
{
    int waiting = 0, lost = 0, in = n_members_with(c, false);

    if (c->cfg.wait_for_all || c->round != DLC_ROUND_TRAINING)
        return DLC_OK;
    for (int i = 0; i < c->cfg.n_islands; i++) {
        waiting += c->islands[i].member && !c->islands[i].refused && c->islands[i].state == DLC_ISLAND_TRAINING;
        lost += c->islands[i].member && !c->islands[i].refused && c->islands[i].state == DLC_ISLAND_LOST;
    }
    if (lost > 0 && waiting == 0 && in >= c->cfg.quorum)
        c->close_by_ns = now_ns;
    return DLC_OK;
}

static dlc_err on_nonfinite(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    if (!is_of_this_round(c, ev) || c->islands[ev->island].state != DLC_ISLAND_TRAINING)
        return DLC_OK;
    if (c->n_rollbacks >= c->cfg.nonfinite_rollbacks_max)
        return dlc__coord_fail(c, DLC_EFAIL,
                               "island %d, step %lld: %s; %d rollbacks were made, %d are allowed (train.nonfinite"
                               ", train.nonfinite_max); a lower optim.lr may help",
                               ev->island, (long long)ev->step, ev->text ? ev->text : "non-finite loss", c->n_rollbacks,
                               c->cfg.nonfinite_rollbacks_max);
    c->n_rollbacks++;
    for (int i = 0; i < c->cfg.n_islands; i++) {
        struct dlc__island *isl = &c->islands[i];

        if (!isl->member)
            continue;
        DLC_TRY(dlc_ledger_discard(c->ledger, i, &isl->lease));
        for (size_t k = 0; k < isl->lease.n; k++)
            DLC_TRY(dlc_ranges_add(&c->discarded, isl->lease.items[k]));
        DLC_TRY(dlc__coord_lease(c, i));
    }
    return restart_round(c, now_ns);
}

/* A stop caught some members before, others after a step, and only some of them have kept where they were. */
static dlc_err on_out_of_step(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    return c->cfg.lockstep && is_of_this_round(c, ev) ? restart_round(c, now_ns) : DLC_OK;
}

static dlc_err on_committed(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    if (!c->uncommitted || ev->t != c->t)
        return DLC_OK;
    c->uncommitted = false;
    if (c->round == DLC_ROUND_FINISHED)
        return dlc__coord_push(c, (struct dlc_action){ .kind = DLC_ACTION_FINISHED, .t = c->t });
    if (c->round == DLC_ROUND_WAITING)
        DLC_TRY(dlc__coord_open_round(c, now_ns));
    return close_if_due(c, now_ns);
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

int64_t dlc_coord_deadline_ns(const dlc_coord *c)
{
    bool may_close = c->round == DLC_ROUND_TRAINING && !c->cfg.wait_for_all && !c->uncommitted;
    int64_t deadline = may_close ? c->close_by_ns : INT64_MAX;
    double limit_s = silence_limit_s(c);

    if (c->failed)
        return INT64_MAX;
    for (int i = 0; limit_s > 0 && c->round == DLC_ROUND_TRAINING && i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];
        int64_t at = isl->last_heard_ns + (int64_t)(limit_s * 1e9) + 1;

        if (isl->member && isl->state == DLC_ISLAND_TRAINING && !isl->refused && at < deadline)
            deadline = at;
    }
    return deadline;
}

dlc_err dlc_coord_event(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    if (c->failed)
        return DLC_OK;
    if (ev->kind != DLC_EVENT_COMMITTED && ev->kind != DLC_EVENT_TICK &&
        (ev->island < 0 || ev->island >= c->cfg.n_islands))
        return dlc_fail(DLC_EFAIL, "event of island %d, there are %d", ev->island, c->cfg.n_islands);
    switch (ev->kind) {
    case DLC_EVENT_HELLO: return on_hello(c, now_ns, ev);
    case DLC_EVENT_CONTRIBUTION: DLC_TRY(on_contribution(c, now_ns, ev)); break;
    case DLC_EVENT_PROGRESS: return on_progress(c, now_ns, ev);
    case DLC_EVENT_RESUPPLY: return on_resupply(c, now_ns, ev);
    case DLC_EVENT_NONFINITE: return on_nonfinite(c, now_ns, ev);
    case DLC_EVENT_OUT_OF_STEP: return on_out_of_step(c, now_ns, ev);
    case DLC_EVENT_LOST: DLC_TRY(on_lost(c, ev)); break;
    case DLC_EVENT_COMMITTED: return on_committed(c, now_ns, ev);
    case DLC_EVENT_TICK: DLC_TRY(find_silent(c, now_ns)); break;
    }
    DLC_TRY(close_without_lost(c, now_ns));
    return close_if_due(c, now_ns);
}
