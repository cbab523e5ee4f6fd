/* Islands that come, vanish, come back and leave. */
#include <stdio.h>

#include "outer/coord_internal.h"

/* The island begins anew; what it had trained and no record has used is free again. */
dlc_err dlc__coord_forget_state(struct dlc_coord *c, int island)
{
    struct dlc__island *isl = &c->islands[island];

    DLC_TRY(dlc_ledger_return(c->ledger, island, &isl->pending));
    isl->pending.n = 0;
    isl->state_step = 0;
    isl->own_params = false;
    isl->fresh = true;
    return DLC_OK;
}

dlc_err dlc__coord_release_late(struct dlc_coord *c, int island)
{
    struct dlc__island *isl = &c->islands[island];

    DLC_TRY(dlc_ledger_return(c->ledger, island, &isl->lease));
    isl->lease.n = 0;
    isl->payload = NULL;
    isl->released = true;
    isl->state = isl->gone ? DLC_ISLAND_AWAY : DLC_ISLAND_READY;
    isl->gone = false;
    return DLC_OK;
}

static bool holds(const struct dlc_event *ev, uint64_t state_step)
{
    return !ev->states_known || state_step == 0 || ev->states[0] == state_step || ev->states[1] == state_step;
}

/* Of a life that was not heard of before: which inner states survived? *changed: not the one that counts. */
static dlc_err look_at_states(struct dlc_coord *c, const struct dlc_event *ev, bool *changed)
{
    struct dlc__island *isl = &c->islands[ev->island];

    *changed = false;
    if (c->cfg.wait_for_all)
        return DLC_OK; /* what is missing there is an error, and the island says so */
    if (isl->member && isl->state == DLC_ISLAND_DONE) {
        isl->state_lost = !holds(ev, c->t + 1); /* the one that it will be asked for */
        return DLC_OK;
    }
    if (holds(ev, isl->state_step))
        return DLC_OK;
    *changed = true;
    return dlc__coord_forget_state(c, ev->island);
}

static dlc_err member_is_here(struct dlc_coord *c, int64_t now_ns, int island, bool changed)
{
    struct dlc__island *isl = &c->islands[island];

    isl->gone = false;
    if (isl->state == DLC_ISLAND_DONE)
        return DLC_OK;
    if (isl->left) {
        isl->state = DLC_ISLAND_READY; /* its lease is gone: the next round, or this one as a joiner */
        return DLC_OK;
    }
    isl->state = DLC_ISLAND_TRAINING;
    if (isl->refused)
        return DLC_OK; /* once a round is enough: it waits for the next */
    if (c->cfg.lockstep)
        return dlc__coord_restart_round(c, now_ns);
    if (changed)
        DLC_TRY(dlc__coord_opened(c));
    return dlc__coord_assign(c, island, now_ns);
}

static dlc_err begin_life(struct dlc_coord *c, const struct dlc_event *ev, bool *changed)
{
    struct dlc__island *isl = &c->islands[ev->island];

    isl->n_refusals = 0;
    isl->dismissed = false;
    isl->incarnation = ev->incarnation;
    return look_at_states(c, ev, changed);
}

dlc_err dlc__coord_on_hello(struct dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];
    bool same_life = ev->incarnation == isl->incarnation, changed = false;

    if (same_life && isl->dismissed)
        return dlc__coord_dismiss(c, ev->island);
    if (ev->incarnation < isl->incarnation || (same_life && !isl->unheard && isl->state != DLC_ISLAND_AWAY))
        return DLC_OK; /* of an earlier life, or said already */
    isl->unheard = isl->awaited = false;
    isl->last_heard_ns = now_ns;
    if (!same_life)
        DLC_TRY(begin_life(c, ev, &changed));
    if (isl->state == DLC_ISLAND_LATE) {
        isl->gone = false;
        return same_life ? DLC_OK : dlc__coord_release_late(c, ev->island);
    }
    if (c->round == DLC_ROUND_TRAINING && isl->member)
        return member_is_here(c, now_ns, ev->island, changed);
    isl->state = DLC_ISLAND_READY;
    return DLC_OK;
}

dlc_err dlc__coord_on_back(struct dlc_coord *c, int64_t now_ns, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];

    if (ev->incarnation != isl->incarnation || isl->unheard || isl->dismissed)
        return DLC_OK;
    isl->last_heard_ns = now_ns;
    isl->gone = false;
    if (isl->state == DLC_ISLAND_AWAY)
        isl->state = DLC_ISLAND_READY;
    if (isl->state != DLC_ISLAND_LOST)
        return DLC_OK;
    if (isl->attempt != c->attempt && !isl->refused)
        return dlc__coord_assign(c, ev->island, now_ns); /* the round was begun again meanwhile */
    isl->state = DLC_ISLAND_TRAINING;
    return DLC_OK;
}

dlc_err dlc__coord_on_lost(struct dlc_coord *c, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];

    if (ev->incarnation != isl->incarnation)
        return DLC_OK;
    isl->awaited = false;
    switch (isl->state) {
    case DLC_ISLAND_READY: isl->state = DLC_ISLAND_AWAY; break;
    case DLC_ISLAND_TRAINING: isl->state = DLC_ISLAND_LOST; break;
    case DLC_ISLAND_DONE:
    case DLC_ISLAND_LATE: isl->gone = true; break;
    case DLC_ISLAND_AWAY:
    case DLC_ISLAND_LOST: break;
    }
    return DLC_OK;
}

/* In lockstep and where all are waited for, whoever leaves is awaited like one who died. */
dlc_err dlc__coord_on_left(struct dlc_coord *c, const struct dlc_event *ev)
{
    struct dlc__island *isl = &c->islands[ev->island];

    if (ev->incarnation != isl->incarnation)
        return DLC_OK;
    if (c->cfg.wait_for_all || c->cfg.lockstep || isl->state == DLC_ISLAND_DONE)
        return dlc__coord_on_lost(c, ev); /* what is in counts */
    isl->awaited = false;
    if (isl->state == DLC_ISLAND_LATE)
        DLC_TRY(dlc__coord_release_late(c, ev->island));
    if (isl->member) {
        DLC_TRY(dlc_ledger_return(c->ledger, ev->island, &isl->lease));
        isl->lease.n = 0;
        isl->left = true;
    }
    isl->state = DLC_ISLAND_AWAY;
    return isl->pending.n > 0 ? dlc__coord_forget_state(c, ev->island) : DLC_OK;
}

static bool can_contribute(const struct dlc__island *isl)
{
    return isl->member && !isl->refused && !isl->left &&
           (isl->state == DLC_ISLAND_DONE || isl->state == DLC_ISLAND_TRAINING ||
            (isl->state == DLC_ISLAND_LOST && isl->awaited));
}

/* A round whose members died must not wait for them for ever while others stand by. */
dlc_err dlc__coord_take_in(struct dlc_coord *c, int64_t now_ns)
{
    int n_able = 0, n_taken = 0;

    if (c->cfg.wait_for_all || c->cfg.lockstep || c->round != DLC_ROUND_TRAINING)
        return DLC_OK;
    for (int i = 0; i < c->cfg.n_islands; i++)
        n_able += can_contribute(&c->islands[i]);
    for (int i = 0; n_able < c->cfg.quorum && i < c->cfg.n_islands; i++) {
        if (c->islands[i].state != DLC_ISLAND_READY)
            continue;
        DLC_TRY(dlc__coord_lease(c, i));
        c->islands[i].member = true;
        c->islands[i].attempt = 0; /* to be assigned below */
        n_taken++;
    }
    if (n_taken == 0)
        return DLC_OK;
    c->opened_ns = now_ns; /* the deadline counts from here: they begin now */
    DLC_TRY(dlc__coord_opened(c));
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (c->islands[i].state == DLC_ISLAND_READY && c->islands[i].member)
            DLC_TRY(dlc__coord_assign(c, i, now_ns));
    }
    return DLC_OK;
}
