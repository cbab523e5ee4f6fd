/* What islands hand in, and what is not let in. */
#include "outer/coord_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "outer/merge.h"

#define OUTLIER_FACTOR 100.0 /* a contribution this many times the usual norm is not training any more */
#define OUTLIER_MIN_SEEN 8
#define RESUPPLY_MAX 3

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

bool dlc__coord_is_of_this_round(const struct dlc_coord *c, const struct dlc_event *ev)
{
    return ev->incarnation == c->islands[ev->island].incarnation && c->round == DLC_ROUND_TRAINING &&
           ev->t == c->t + 1 && ev->attempt == c->attempt;
}

dlc_err dlc__coord_dismiss(struct dlc_coord *c, int island)
{
    struct dlc__island *isl = &c->islands[island];
    struct dlc_action a = { .kind = DLC_ACTION_DISMISS, .island = island, .t = c->t + 1, .code = DLC_EPEER };

    snprintf(a.text, sizeof a.text, "%d contributions in a row were refused, the last one: %s", isl->n_refusals,
             isl->dismissal);
    return dlc__coord_push(c, a);
}

/* Said, counted and, in policy mode, too often. Its contribution to the open round, if it is a member, is not waited
 * for any more. */
static dlc_err refuse_contribution(struct dlc_coord *c, int island, const char *reason)
{
    struct dlc__island *isl = &c->islands[island];

    DLC_TRY(refuse(c, island, "%s", reason));
    isl->n_refusals++;
    if (isl->state == DLC_ISLAND_LATE)
        DLC_TRY(dlc__coord_release_late(c, island));
    else if (isl->member && isl->state != DLC_ISLAND_DONE)
        isl->refused = true;
    if (c->cfg.wait_for_all || c->cfg.refusals_max == 0 || isl->n_refusals < c->cfg.refusals_max || isl->dismissed)
        return DLC_OK;
    isl->dismissed = true;
    snprintf(isl->dismissal, sizeof isl->dismissal, "%s", reason);
    if (isl->state == DLC_ISLAND_DONE) {
        isl->gone = true;
    } else {
        if (isl->member)
            DLC_TRY(dlc_ledger_return(c->ledger, island, &isl->lease));
        isl->lease.n = 0;
        isl->state = DLC_ISLAND_AWAY;
    }
    return dlc__coord_dismiss(c, island);
}

/* `reason` stays empty when the contribution may be let in. */
static void examine(char reason[160], dlc_coord *c, const struct dlc_event *ev, const float *base, double *norm)
{
    size_t expected = c->cfg.codec->size_bytes(c->cfg.n_params);
    double usual = dlc__ring_median(&c->norms); /* of earlier rounds only: the order of arrival decides nothing */

    reason[0] = '\0';
    if (ev->payload_bytes != expected) {
        snprintf(reason, 160, "%zu bytes, expected %zu", ev->payload_bytes, expected);
        return;
    }
    *norm = dlc_contribution_norm(c->cfg.codec, ev->payload, base, c->cfg.n_params, c->pool);
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

/* The same contribution once more, after a round was closed with it. */
static bool is_in_last_record(const dlc_coord *c, const struct dlc_event *ev)
{
    for (size_t i = 0; i < c->record.n_members; i++) {
        const struct dlc_record_member *m = &c->record.members[i];
        uint64_t t = c->t - (m->fate == DLC_MEMBER_CARRIED);

        if (m->island == ev->island && ev->t == t && m->fate != DLC_MEMBER_LATE &&
            dlc_sha256_equal(&m->payload, &ev->digest))
            return true;
    }
    return false;
}

static dlc_err let_in(dlc_coord *c, const struct dlc_event *ev, const float *base, bool *in)
{
    struct dlc__island *isl = &c->islands[ev->island];
    char reason[160];
    double norm = 0;

    isl->digest = ev->digest;
    examine(reason, c, ev, base, &norm);
    *in = !reason[0];
    if (!*in)
        return refuse_contribution(c, ev->island, reason);
    isl->n_refusals = 0;
    isl->payload = ev->payload;
    isl->norm = norm;
    return DLC_OK;
}

/* To the round before: theta(t-1) of then still stands, until this round is closed. */
static dlc_err on_late(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];
    bool in;

    if (isl->payload || ev->attempt != isl->attempt)
        return DLC_OK;
    isl->last_heard_ns = now_ns;
    isl->gone = false;
    return let_in(c, ev, c->theta[(c->t - 1) & 1], &in);
}

dlc_err dlc__coord_on_contribution(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];
    bool in;

    if (ev->incarnation != isl->incarnation || isl->unheard || is_in_last_record(c, ev))
        return DLC_OK;
    if (isl->state == DLC_ISLAND_LATE && ev->t == c->t)
        return on_late(c, now_ns, ev);
    if (c->round != DLC_ROUND_TRAINING || !isl->member || ev->t != c->t + 1)
        return refuse(c, ev->island, "contribution to outer step %llu, open is %llu", (unsigned long long)ev->t,
                      (unsigned long long)(c->t + 1));
    if (isl->state != DLC_ISLAND_TRAINING || isl->refused || ev->attempt != c->attempt)
        return DLC_OK; /* counted already, or of an attempt that was given up */
    isl->last_heard_ns = now_ns;
    DLC_TRY(let_in(c, ev, c->theta[c->t & 1], &in));
    if (!in)
        return DLC_OK;
    isl->state = DLC_ISLAND_DONE;
    isl->gone = false;
    if (!c->resumed)
        dlc__ring_add(&c->arrivals_s, (double)(now_ns - c->opened_ns) * 1e-9);
    if (!c->cfg.wait_for_all && dlc__coord_n_in(c) >= c->cfg.quorum && c->arrivals_s.n > 0)
        set_deadline(c);
    return DLC_OK;
}

/* An assignment that came so late that theta(t-1) is gone is stale and needs nothing; otherwise the bits were damaged.
 */
dlc_err dlc__coord_on_resupply(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];
    char reason[160];

    if (!dlc__coord_is_of_this_round(c, ev) || isl->state != DLC_ISLAND_TRAINING || isl->refused)
        return DLC_OK;
    if (++isl->n_resupplied > RESUPPLY_MAX) {
        snprintf(reason, sizeof reason, "the parameters of outer step %llu arrived damaged %d times",
                 (unsigned long long)c->t, isl->n_resupplied);
        return c->cfg.wait_for_all ? dlc__coord_fail(c, DLC_EPEER, "island %d: %s", ev->island, reason)
                                   : refuse_contribution(c, ev->island, reason);
    }
    DLC_TRY(refuse(c, ev->island, "got theta(%llu) with another digest; it is sent again", (unsigned long long)c->t));
    return dlc__coord_assign(c, ev->island, now_ns);
}

/* Samples of everybody are set aside: nobody knows whose made the parameters what they are. */
static dlc_err roll_back(dlc_coord *c, int64_t now_ns)
{
    c->n_rollbacks++;
    for (int i = 0; i < c->cfg.n_islands; i++) {
        struct dlc__island *isl = &c->islands[i];

        if (!isl->member || isl->left || isl->dismissed)
            continue;
        DLC_TRY(dlc_ledger_discard(c->ledger, i, &isl->lease));
        for (size_t k = 0; k < isl->lease.n; k++)
            DLC_TRY(dlc_ranges_add(&c->discarded, isl->lease.items[k]));
        DLC_TRY(dlc__coord_lease(c, i));
    }
    return dlc__coord_restart_round(c, now_ns);
}

dlc_err dlc__coord_on_nonfinite(dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];
    const char *text = ev->text && ev->text[0] ? ev->text : "non-finite loss";
    char reason[160];

    if (!dlc__coord_is_of_this_round(c, ev) || isl->state != DLC_ISLAND_TRAINING || isl->refused)
        return DLC_OK;
    if (c->n_rollbacks < c->cfg.nonfinite_rollbacks_max)
        return roll_back(c, now_ns);
    if (!c->cfg.wait_for_all) {
        isl->digest = (struct dlc_sha256){ { 0 } };
        snprintf(reason, sizeof reason, "step %lld: %.120s", (long long)ev->step, text);
        return refuse_contribution(c, ev->island, reason);
    }
    return dlc__coord_fail(c, DLC_EFAIL,
                           "island %d, step %lld: %s; %d rollbacks were made, %d are allowed (train.nonfinite"
                           ", train.nonfinite_max); a lower optim.lr may help",
                           ev->island, (long long)ev->step, text, c->n_rollbacks, c->cfg.nonfinite_rollbacks_max);
}

dlc_err dlc__coord_on_nonsense(dlc_coord *c, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];
    char reason[160];

    if (ev->incarnation != isl->incarnation || isl->dismissed)
        return DLC_OK;
    if (isl->state == DLC_ISLAND_TRAINING && !isl->refused)
        isl->digest = (struct dlc_sha256){ { 0 } };
    snprintf(reason, sizeof reason, "%.150s", ev->text ? ev->text : "nonsense");
    return refuse_contribution(c, ev->island, reason);
}
