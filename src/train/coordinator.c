#include "train/coordinator.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "outer/merge.h"

struct peer {
    uint32_t incarnation;
    bool connected, paused;
    bool left; /* in order or dismissed: nobody is to start it again */
    bool gradient_in; /* for (grad_t, grad_attempt, grad_step) */
    uint64_t grad_t;
    uint32_t grad_attempt;
    int64_t grad_step;
};

struct dlc_coordinator {
    dlc_coord *core;
    struct dlc_coord_config cfg;
    dlc_hub *hub;
    dlc_pool *pool;
    struct dlc_coordinator_callbacks cb;
    struct peer *peers;
    const float **grads; /* [n_islands], scratch of the mean */
    double *weights;
    struct dlc_message last_mean; /* kind 0: none yet */
    bool finished, pausing;
};

/* The last committed step: the run's, or the one that it goes on after. */
static dlc_err publish(dlc_coordinator *c)
{
    if (!c->hub->ops->publish)
        return DLC_OK;
    return c->hub->ops->publish(c->hub, dlc_coord_record(c->core), dlc_coord_theta_digest(c->core));
}

static void *update_of_hub(void *self, uint64_t t)
{
    dlc_hub *hub = self;

    return hub->ops->update(hub, t);
}

dlc_err dlc_coordinator_create(dlc_coordinator **out, dlc_coord *core, const struct dlc_coord_config *config,
                               dlc_hub *hub, dlc_pool *pool, const struct dlc_coordinator_callbacks *callbacks)
{
    dlc_coordinator *c = dlc_calloc(1, sizeof *c);
    size_t k = (size_t)config->n_islands;
    dlc_err err;

    *out = NULL;
    if (!c)
        return DLC_ENOMEM;
    *c = (dlc_coordinator){ .core = core, .cfg = *config, .hub = hub, .pool = pool, .cb = *callbacks };
    c->peers = dlc_calloc(k, sizeof *c->peers);
    c->grads = dlc_calloc(k, sizeof *c->grads);
    c->weights = dlc_calloc(k, sizeof *c->weights);
    if (!c->peers || !c->grads || !c->weights) {
        dlc_coordinator_destroy(c);
        return DLC_ENOMEM;
    }
    if (hub->ops->update)
        dlc_coord_set_update(core, update_of_hub, hub);
    err = publish(c);
    if (err != DLC_OK) {
        dlc_coordinator_destroy(c);
        return err;
    }
    *out = c;
    return DLC_OK;
}

void dlc_coordinator_destroy(dlc_coordinator *c)
{
    if (!c)
        return;
    dlc_free(c->peers);
    dlc_free(c->grads);
    dlc_free(c->weights);
    dlc_free(c);
}

bool dlc_coordinator_is_finished(const dlc_coordinator *c)
{
    return c->finished;
}

bool dlc_coordinator_is_paused(const dlc_coordinator *c)
{
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (c->peers[i].connected && !c->peers[i].paused)
            return false;
    }
    return c->pausing;
}

bool dlc_coordinator_is_connected(const dlc_coordinator *c, int island) { return c->peers[island].connected; }
bool dlc_coordinator_has_left(const dlc_coordinator *c, int island)
{
    return c->peers[island].paused;
}

void dlc_coordinator_set_incarnation(dlc_coordinator *c, int island, uint32_t incarnation)
{
    c->peers[island].incarnation = incarnation;
}

static dlc_err broadcast(dlc_coordinator *c, const struct dlc_message *m)
{
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (c->peers[i].connected)
            DLC_TRY(c->hub->ops->send(c->hub, i, m));
    }
    return DLC_OK;
}

/* In lockstep, too: every island gets the same means before it gets this, so all stop before the same step. */
dlc_err dlc_coordinator_pause(dlc_coordinator *c)
{
    struct dlc_message m = { .kind = DLC_MSG_PAUSE };

    c->pausing = true;
    return broadcast(c, &m);
}

/* --- actions of the core ------------------------------------------------------------------------------------------ */

/* Bulk that really crosses a wire is counted there. */
static bool counts_itself(const dlc_coordinator *c)
{
    return c->hub->ops->publish != NULL;
}

static dlc_err assign(dlc_coordinator *c, const struct dlc_action *a)
{
    struct dlc_message m = { .kind = DLC_MSG_ASSIGN,
                             .incarnation = a->assignment.incarnation,
                             .t = a->assignment.t,
                             .attempt = a->assignment.attempt,
                             .first_step = a->assignment.first_step,
                             .n_steps = a->assignment.n_steps,
                             .state_step = a->assignment.state_step,
                             .own_params = a->assignment.own_params,
                             .digest = a->assignment.theta,
                             .ranges = *a->assignment.lease };

    /* In lockstep the islands have theta(t-1) already, but for the first one. */
    if (!counts_itself(c) && !a->assignment.own_params && (!c->cfg.lockstep || a->assignment.t == 1))
        c->hub->traffic[a->island].bytes_down += c->cfg.n_params * sizeof(float);
    return c->hub->ops->send(c->hub, a->island, &m);
}

static dlc_err commit(dlc_coordinator *c, const struct dlc_action *a)
{
    json_t *saved = dlc_coord_to_json(c->core);
    dlc_err err = c->cb.commit(c->cb.self, a->record, saved, dlc_coord_theta(c->core));
    struct dlc_event committed = { .kind = DLC_EVENT_COMMITTED, .t = a->t };

    json_decref(saved);
    if (err == DLC_OK)
        err = publish(c);
    return err == DLC_OK ? dlc_coord_event(c->core, c->hub->ops->now_ns(c->hub), &committed) : err;
}

static dlc_err opened(dlc_coordinator *c)
{
    json_t *round;
    dlc_err err;

    if (!c->cb.opened)
        return DLC_OK;
    round = dlc_coord_round_to_json(c->core);
    err = round ? c->cb.opened(c->cb.self, round) : dlc_fail(DLC_ENOMEM, "out of memory: the open round");
    json_decref(round);
    return err;
}

static dlc_err dismiss(dlc_coordinator *c, const struct dlc_action *a)
{
    struct dlc_message m = { .kind = DLC_MSG_DISMISS, .t = a->t, .code = a->code };

    snprintf(m.text, sizeof m.text, "%.199s", a->text);
    if (c->cb.dismissed)
        c->cb.dismissed(c->cb.self, a->island, m.text);
    c->peers[a->island].left = true; /* it ends by itself */
    return c->hub->ops->send(c->hub, a->island, &m);
}

static dlc_err finish(dlc_coordinator *c)
{
    struct dlc_message m = { .kind = DLC_MSG_FINISH };

    c->finished = true;
    return broadcast(c, &m);
}

static dlc_err carry_out(dlc_coordinator *c, const struct dlc_action *a)
{
    switch (a->kind) {
    case DLC_ACTION_OPENED: return opened(c);
    case DLC_ACTION_ASSIGN: return assign(c, a);
    case DLC_ACTION_DISMISS: return dismiss(c, a);
    case DLC_ACTION_CLOSED: return commit(c, a);
    case DLC_ACTION_FINISHED: return finish(c);
    case DLC_ACTION_FAILED: return dlc_fail(a->code, "%s", a->text);
    case DLC_ACTION_REFUSED:
        if (c->cb.refused)
            c->cb.refused(c->cb.self, a->island, a->t, a->text);
        return DLC_OK;
    case DLC_ACTION_SUSPECT:
        if (c->cb.suspect)
            c->cb.suspect(c->cb.self, a->island, a->waited_s);
        return DLC_OK;
    }
    return DLC_OK;
}

static dlc_err event(dlc_coordinator *c, const struct dlc_event *ev)
{
    struct dlc_action a;

    DLC_TRY(dlc_coord_event(c->core, c->hub->ops->now_ns(c->hub), ev));
    while (dlc_coord_next_action(c->core, &a))
        DLC_TRY(carry_out(c, &a));
    return DLC_OK;
}

/* --- messages of islands ------------------------------------------------------------------------------------------ */

/* What cannot be made sense of ends the run where the islands are ours; otherwise it is that island's own affair. */
static dlc_err nonsense(dlc_coordinator *c, int island, const struct dlc_message *m, dlc_err code, const char *text)
{
    struct dlc_event ev = {
        .kind = DLC_EVENT_REFUSED, .island = island, .incarnation = m->incarnation, .t = m->t, .text = text
    };

    return c->cfg.wait_for_all ? dlc_fail(code, "island %d: %s", island, text) : event(c, &ev);
}

static dlc_err leave(dlc_coordinator *c, int island, const struct dlc_message *m)
{
    struct dlc_event ev = { .kind = DLC_EVENT_LEFT, .island = island, .incarnation = m->incarnation };

    c->peers[island].connected = false;
    c->peers[island].gradient_in = false;
    c->peers[island].left = true;
    return event(c, &ev);
}

/* It ends, and what it was lent is free. */
static dlc_err on_failed(dlc_coordinator *c, int island, const struct dlc_message *m)
{
    if (c->cfg.wait_for_all)
        return dlc_fail(m->code ? m->code : DLC_EFAIL, "island %d: %s", island, m->text);
    if (c->cb.refused)
        c->cb.refused(c->cb.self, island, m->t, m->text);
    DLC_TRY(leave(c, island, m));
    c->peers[island].left = false; /* whoever started it may start it again */
    return DLC_OK;
}

static bool same_attempt(const struct peer *a, const struct peer *b)
{
    return a->gradient_in && b->gradient_in && a->grad_t == b->grad_t && a->grad_attempt == b->grad_attempt;
}

/* A gradient that comes twice must not be averaged twice: by then the slots hold something else. */
static bool is_averaged(const struct dlc_message *last, const struct dlc_message *m)
{
    if (m->t != last->t)
        return m->t < last->t;
    if (m->attempt != last->attempt)
        return m->attempt < last->attempt;
    return last->kind != 0 && m->step <= last->step;
}

static dlc_err take_mean(dlc_coordinator *c, const struct dlc_message *m)
{
    struct dlc_message mean = { .kind = DLC_MSG_MEAN, .t = m->t, .attempt = m->attempt, .step = m->step };

    for (int i = 0; i < c->cfg.n_islands; i++) {
        c->grads[i] = c->hub->ops->slot(c->hub, i);
        c->weights[i] = 1;
    }
    dlc_mean_gradients(c->hub->ops->mean(c->hub), c->grads, c->weights, (size_t)c->cfg.n_islands, c->cfg.n_params,
                       c->pool);
    for (int i = 0; i < c->cfg.n_islands; i++) {
        c->peers[i].gradient_in = false;
        c->hub->traffic[i].bytes_down += c->cfg.n_params * sizeof(float);
    }
    c->last_mean = mean;
    return broadcast(c, &mean);
}

static dlc_err on_gradient(dlc_coordinator *c, int island, const struct dlc_message *m)
{
    struct peer *p = &c->peers[island];
    struct dlc_event out_of_step = {
        .kind = DLC_EVENT_OUT_OF_STEP, .island = island, .incarnation = m->incarnation, .t = m->t, .attempt = m->attempt
    };
    bool same_step = true;

    if (!c->cfg.lockstep)
        return nonsense(c, island, m, DLC_EPEER, "sent a gradient; this run does not average gradients");
    if (is_averaged(&c->last_mean, m))
        return DLC_OK;
    p->gradient_in = true;
    p->grad_t = m->t;
    p->grad_attempt = m->attempt;
    p->grad_step = m->step;
    c->hub->traffic[island].bytes_up += c->cfg.n_params * sizeof(float);
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (!same_attempt(&c->peers[i], p))
            return DLC_OK; /* it is waited for */
        same_step &= c->peers[i].grad_step == p->grad_step;
    }
    return same_step ? take_mean(c, m) : event(c, &out_of_step);
}

static dlc_err on_contribution(dlc_coordinator *c, int island, const struct dlc_message *m)
{
    struct dlc_event ev = { .kind = DLC_EVENT_CONTRIBUTION,
                            .island = island,
                            .incarnation = m->incarnation,
                            .t = m->t,
                            .attempt = m->attempt,
                            .payload = c->hub->ops->slot(c->hub, island),
                            .payload_bytes = m->size_bytes,
                            .digest = m->digest };

    if (c->cb.contribution)
        c->cb.contribution(c->cb.self, island, m);
    /* Data parallelism sends gradients only; this one is there for the record. */
    if (!counts_itself(c) && !c->cfg.lockstep)
        c->hub->traffic[island].bytes_up += m->size_bytes;
    return event(c, &ev);
}

static dlc_err on_message(dlc_coordinator *c, int island, const struct dlc_message *m)
{
    struct peer *p = &c->peers[island];
    struct dlc_event ev = { .island = island,
                            .incarnation = m->incarnation,
                            .t = m->t,
                            .attempt = m->attempt,
                            .step = m->step,
                            .text = m->text,
                            .states_known = m->states_known,
                            .states = { m->states[0], m->states[1] } };
    struct dlc_message pause = { .kind = DLC_MSG_PAUSE };
    char text[64];

    if (m->incarnation != p->incarnation)
        return DLC_OK; /* of an earlier life */
    switch (m->kind) {
    case DLC_MSG_HELLO:
        ev.kind = DLC_EVENT_HELLO;
        p->connected = true;
        p->gradient_in = p->left = false;
        if (c->pausing)
            return c->hub->ops->send(c->hub, island, &pause);
        return event(c, &ev);
    case DLC_MSG_PROGRESS:
        ev.kind = DLC_EVENT_PROGRESS;
        if (c->cb.progress)
            c->cb.progress(c->cb.self, island, m);
        return event(c, &ev);
    case DLC_MSG_RESUPPLY: ev.kind = DLC_EVENT_RESUPPLY; return event(c, &ev);
    case DLC_MSG_NONFINITE: ev.kind = DLC_EVENT_NONFINITE; return event(c, &ev);
    case DLC_MSG_GRADIENT: return on_gradient(c, island, m);
    case DLC_MSG_CONTRIBUTION: return on_contribution(c, island, m);
    case DLC_MSG_PAUSED: p->paused = true; return DLC_OK;
    case DLC_MSG_BACK:
        ev.kind = DLC_EVENT_BACK;
        p->connected = true;
        return event(c, &ev);
    case DLC_MSG_LEAVE: return leave(c, island, m);
    case DLC_MSG_FAILED: return on_failed(c, island, m);
    default:
        snprintf(text, sizeof text, "sent a message of kind %d", (int)m->kind);
        return nonsense(c, island, m, DLC_EPEER, text);
    }
}

static dlc_err on_lost(dlc_coordinator *c, int island)
{
    struct peer *p = &c->peers[island];
    struct dlc_event ev = { .kind = DLC_EVENT_LOST, .island = island, .incarnation = p->incarnation };

    p->connected = false;
    p->gradient_in = false;
    if (c->finished || p->paused)
        return DLC_OK;
    DLC_TRY(event(c, &ev));
    return c->cb.lost && !c->pausing && !p->left ? c->cb.lost(c->cb.self, island) : DLC_OK;
}

dlc_err dlc_coordinator_poll(dlc_coordinator *c, bool *idle, int64_t deadline_ns)
{
    struct dlc_message m = { 0 };
    struct dlc_event tick = { .kind = DLC_EVENT_TICK };
    int64_t core_deadline_ns = dlc_coord_deadline_ns(c->core);
    bool lost, got;
    int island = 0;
    dlc_err err;

    if (deadline_ns > core_deadline_ns)
        deadline_ns = core_deadline_ns;
    DLC_TRY(c->hub->ops->recv(c->hub, &island, &m, &lost, &got, deadline_ns));
    *idle = !got;
    /* Only once everything that had come is read: after a pause of this process (a stop by the terminal, a slow disk, a
     * long validation) nobody is silent whose messages are waiting here. */
    if (!got)
        return c->hub->ops->now_ns(c->hub) >= core_deadline_ns ? event(c, &tick) : DLC_OK;
    if (lost)
        return on_lost(c, island);
    err = on_message(c, island, &m);
    dlc_message_fini(&m);
    return err;
}
