#include "island/island.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

typedef enum {
    IDLE,      /* nothing assigned */
    TRAINING,  /* work: inner steps */
    AVERAGING, /* my gradient is in, the mean is awaited */
    WAITING,   /* contributed, or told of a non-finite loss: the next assignment is awaited */
    LEAVING
} island_state;

struct dlc_island {
    struct dlc_island_config cfg;
    const struct dlc_trainer_ops *ops;
    void *trainer;
    dlc_endpoint *ep;

    island_state state;
    struct dlc_message assignment;
    int64_t n_done;      /* inner steps of the assignment */
    uint64_t held_state; /* the inner state in the trainer is the one after this outer step */
    bool holds_state;    /* false: in the middle of a round, or nothing loaded yet */
    int n_skipped;
    bool pause_wanted;
    double loss, step_began_s, last_progress_s;
    double round_s;          /* of this round's inner steps */
    double data_before_s;    /* waiting for samples up to this round, by the trainer's count */
    double outer_s, ended_s; /* from the last inner step (ended_s; 0: none yet) to the first one of this round */
};

static dlc_err send_simple(dlc_island *isl, dlc_message_kind kind)
{
    struct dlc_message m = {
        .kind = kind, .incarnation = isl->cfg.incarnation, .t = isl->assignment.t, .attempt = isl->assignment.attempt
    };

    return isl->ep->ops->send(isl->ep, &m);
}

static dlc_err say_hello(dlc_island *isl)
{
    struct dlc_message m = { .kind = DLC_MSG_HELLO, .incarnation = isl->cfg.incarnation };

    if (isl->ops->held) {
        DLC_TRY(isl->ops->held(isl->trainer, m.states));
        m.states_known = true;
    }
    return isl->ep->ops->send(isl->ep, &m);
}

dlc_err dlc_island_create(dlc_island **out, const struct dlc_island_config *config, const struct dlc_trainer_ops *ops,
                          void *trainer, dlc_endpoint *endpoint)
{
    dlc_island *isl = dlc_calloc(1, sizeof *isl);
    dlc_err err;

    *out = NULL;
    if (!isl)
        return DLC_ENOMEM;
    isl->cfg = *config;
    isl->ops = ops;
    isl->trainer = trainer;
    isl->ep = endpoint;
    err = say_hello(isl);
    if (err != DLC_OK) {
        dlc_island_destroy(isl);
        return err;
    }
    *out = isl;
    return DLC_OK;
}

void dlc_island_destroy(dlc_island *isl)
{
    if (!isl)
        return;
    dlc_message_fini(&isl->assignment);
    dlc_free(isl);
}

void dlc_island_describe(const dlc_island *isl, char text[160])
{
    const struct dlc_message *a = &isl->assignment;

    text[0] = '\0';
    if (isl->state == TRAINING && isl->n_done > 0)
        snprintf(text, 160, "outer step %llu, inner step %lld of %lld, loss %.4f", (unsigned long long)a->t,
                 (long long)isl->n_done, (long long)a->n_steps, isl->loss);
    else if (isl->state == WAITING)
        snprintf(text, 160, "contributed to outer step %llu, waiting for the others", (unsigned long long)a->t);
    else if (isl->state == IDLE)
        snprintf(text, 160, "waiting for an assignment");
}

bool dlc_island_has_work(const dlc_island *isl)
{
    return isl->state == TRAINING;
}

bool dlc_island_may_leave(const dlc_island *isl)
{
    return isl->state == LEAVING;
}

/* Waiting for samples so far. */
static double data_s(const dlc_island *isl)
{
    return isl->ops->data_s ? isl->ops->data_s(isl->trainer) : 0;
}

/* --- taking an assignment ---------------------------------------------------------------------------------------- */

static dlc_err keep_assignment(dlc_island *isl, const struct dlc_message *m)
{
    struct dlc_ranges ranges = isl->assignment.ranges; /* its memory is used again */
    dlc_err err = dlc_ranges_copy(&ranges, &m->ranges);

    isl->assignment = *m;
    isl->assignment.ranges = ranges;
    return err;
}

/* theta(t-1) into the model, bit for bit what the coordinator says it is. */
static dlc_err adopt_theta(dlc_island *isl)
{
    const struct dlc_message *a = &isl->assignment;
    size_t size_bytes = isl->ops->n_params(isl->trainer) * sizeof(float);
    const float *theta = isl->ep->ops->theta(isl->ep, a->t - 1);
    struct dlc_sha256 digest;

    memcpy(isl->ops->params(isl->trainer), theta, size_bytes);
    digest = dlc_sha256(isl->ops->params(isl->trainer), size_bytes);
    if (!dlc_sha256_equal(&digest, &a->digest)) {
        isl->state = IDLE;
        DLC_TRY(send_simple(isl, DLC_MSG_RESUPPLY));
        isl->assignment.t = 0; /* the same one again is welcome */
        return DLC_OK;
    }
    isl->ops->params_changed(isl->trainer);
    return DLC_OK;
}

static dlc_err start_state(dlc_island *isl)
{
    const struct dlc_message *a = &isl->assignment;

    if (!isl->holds_state || isl->held_state != a->state_step)
        DLC_TRY(isl->ops->load(isl->trainer, a->state_step, a->own_params, &isl->n_skipped));
    isl->holds_state = true;
    isl->held_state = a->state_step;
    return a->own_params ? DLC_OK : adopt_theta(isl);
}

static bool is_stale(const dlc_island *isl, const struct dlc_message *m)
{
    if (m->incarnation != 0 && m->incarnation != isl->cfg.incarnation)
        return true; /* of an earlier life of this island: the coordinator has not heard of this one yet */
    return m->t < isl->assignment.t || (m->t == isl->assignment.t && m->attempt <= isl->assignment.attempt);
}

/* Where a stop left this assignment. Only in its first attempt: a round that starts again does so for everybody, and in
 * lockstep all must stand before the same step. */
static dlc_err take_paused(dlc_island *isl)
{
    const struct dlc_message *a = &isl->assignment;

    if (!isl->ops->load_paused || isl->holds_state || a->attempt != 1)
        return DLC_OK;
    DLC_TRY(isl->ops->load_paused(isl->trainer, a, &isl->n_done, &isl->n_skipped));
    if (isl->n_done < 0 || isl->n_done >= a->n_steps)
        return dlc_fail(DLC_EINPUT, "island %d: the state of a stop says %lld of %lld inner steps are done",
                        isl->cfg.index, (long long)isl->n_done, (long long)a->n_steps);
    isl->ops->params_changed(isl->trainer);
    return DLC_OK;
}

/* Where in the lease the next inner step's samples begin. */
static uint64_t next_sample(const dlc_island *isl)
{
    return (uint64_t)isl->n_done * (uint64_t)isl->ops->batch(isl->trainer);
}

static dlc_err on_assign(dlc_island *isl, const struct dlc_message *m)
{
    if (m->t == 0 || m->n_steps < 1 ||
        dlc_ranges_count(&m->ranges) != (uint64_t)m->n_steps * (uint64_t)isl->ops->batch(isl->trainer))
        return dlc_fail(DLC_EPEER, "island %d: assignment of %lld steps with %llu samples makes no sense",
                        isl->cfg.index, (long long)m->n_steps, (unsigned long long)dlc_ranges_count(&m->ranges));
    if (is_stale(isl, m))
        return DLC_OK; /* came twice */
    DLC_TRY(keep_assignment(isl, m));
    isl->n_done = 0;
    isl->round_s = isl->outer_s = 0;
    isl->data_before_s = data_s(isl);
    DLC_TRY(take_paused(isl));
    isl->state = TRAINING;
    if (isl->ops->prefetch)
        isl->ops->prefetch(isl->trainer, &isl->assignment.ranges, next_sample(isl));
    return isl->n_done == 0 ? start_state(isl) : DLC_OK;
}

/* --- inner steps ------------------------------------------------------------------------------------------------- */

static void count_step(dlc_island *isl)
{
    isl->ended_s = dlc_now_s();
    isl->round_s += isl->ended_s - isl->step_began_s;
}

static dlc_err report_progress(dlc_island *isl, double norm, double lr)
{
    const struct dlc_message *a = &isl->assignment;
    int64_t step = a->first_step + isl->n_done - 1;
    double now_s = isl->ended_s;
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS,
                             .incarnation = isl->cfg.incarnation,
                             .t = a->t,
                             .attempt = a->attempt,
                             .step = step,
                             .loss = isl->loss,
                             .lr = lr,
                             .grad_norm = norm,
                             .seconds = now_s - isl->step_began_s };

    if ((step + 1) % isl->cfg.progress_every != 0 && isl->n_done < a->n_steps && now_s - isl->last_progress_s < 1.0)
        return DLC_OK;
    isl->last_progress_s = now_s;
    return isl->ep->ops->send(isl->ep, &m);
}

static dlc_err report_nonfinite(dlc_island *isl, double norm)
{
    const struct dlc_message *a = &isl->assignment;
    struct dlc_message m = { .kind = DLC_MSG_NONFINITE,
                             .incarnation = isl->cfg.incarnation,
                             .t = a->t,
                             .attempt = a->attempt,
                             .step = a->first_step + isl->n_done,
                             .loss = isl->loss };

    snprintf(m.text, sizeof m.text, "loss %g, gradient norm %g: not finite%s", isl->loss, norm,
             isl->cfg.nonfinite == DLC_NONFINITE_SKIP ? " (more steps skipped than train.nonfinite_max allows)" : "");
    isl->state = WAITING;
    isl->holds_state = false;
    return isl->ep->ops->send(isl->ep, &m);
}

static dlc_err contribute(dlc_island *isl)
{
    const struct dlc_message *a = &isl->assignment;
    size_t n = isl->ops->n_params(isl->trainer);
    struct dlc_message m = { .kind = DLC_MSG_CONTRIBUTION,
                             .incarnation = isl->cfg.incarnation,
                             .t = a->t,
                             .attempt = a->attempt,
                             .size_bytes = isl->cfg.codec->size_bytes(n),
                             .seconds = isl->round_s,
                             .data_s = data_s(isl) - isl->data_before_s,
                             .outer_s = isl->outer_s,
                             .states_known = true, /* what a HELLO says from now on */
                             .states = { a->t, a->state_step } };
    void *slot = isl->ep->ops->slot(isl->ep);

    /* The state first: should this process die right after, its next life needs it. */
    DLC_TRY(isl->ops->save(isl->trainer, a->t, a->state_step, isl->n_skipped));
    isl->held_state = a->t;
    isl->holds_state = true;
    isl->cfg.codec->encode(slot, isl->ep->ops->theta(isl->ep, a->t - 1), isl->ops->params(isl->trainer), n);
    m.digest = dlc_sha256(slot, m.size_bytes);
    isl->state = WAITING;
    return isl->ep->ops->send(isl->ep, &m);
}

static dlc_err after_step(dlc_island *isl)
{
    if (isl->n_done == isl->assignment.n_steps)
        return contribute(isl);
    isl->state = TRAINING;
    return DLC_OK;
}

static dlc_err apply(dlc_island *isl)
{
    double norm = NAN, lr = 0;
    bool bad;

    /* A step that is left out changes nothing. In lockstep all must do the same, so only what all share counts there.
     */
    if (isl->cfg.lockstep || isfinite(isl->loss))
        isl->ops->apply(isl->trainer, &norm, &lr, isl->assignment.first_step + isl->n_done);
    bad = !isfinite(norm) || !isfinite(isl->loss);
    if (bad && (isl->cfg.nonfinite != DLC_NONFINITE_SKIP || ++isl->n_skipped > isl->cfg.nonfinite_max))
        return report_nonfinite(isl, norm);
    isl->n_done++;
    count_step(isl);
    DLC_TRY(report_progress(isl, norm, lr));
    return after_step(isl);
}

static dlc_err hand_in_gradient(dlc_island *isl)
{
    struct dlc_message m = { .kind = DLC_MSG_GRADIENT,
                             .incarnation = isl->cfg.incarnation,
                             .t = isl->assignment.t,
                             .attempt = isl->assignment.attempt,
                             .step = isl->assignment.first_step + isl->n_done };
    size_t size_bytes = isl->ops->n_params(isl->trainer) * sizeof(float);

    memcpy(isl->ep->ops->slot(isl->ep), isl->ops->grads(isl->trainer), size_bytes);
    m.size_bytes = size_bytes;
    isl->state = AVERAGING;
    return isl->ep->ops->send(isl->ep, &m);
}

static dlc_err pause_now(dlc_island *isl)
{
    struct dlc_message m = { .kind = DLC_MSG_PAUSED,
                             .incarnation = isl->cfg.incarnation,
                             .t = isl->assignment.t,
                             .attempt = isl->assignment.attempt,
                             .step = isl->assignment.first_step + isl->n_done };

    /* A gradient that was handed in has changed nothing yet: it is computed again. */
    if ((isl->state == TRAINING || isl->state == AVERAGING) && isl->ops->save_paused && isl->n_done > 0)
        DLC_TRY(isl->ops->save_paused(isl->trainer, &isl->assignment, isl->n_done, isl->n_skipped));
    isl->state = LEAVING;
    return isl->ep->ops->send(isl->ep, &m);
}

dlc_err dlc_island_work(dlc_island *isl)
{
    const struct dlc_message *a = &isl->assignment;

    if (isl->state != TRAINING)
        return DLC_OK;
    if (isl->pause_wanted)
        return pause_now(isl);
    isl->holds_state = false;
    isl->step_began_s = dlc_now_s();
    if (isl->round_s == 0 && isl->ended_s > 0)
        isl->outer_s = isl->step_began_s - isl->ended_s;
    DLC_TRY(isl->ops->gradient(isl->trainer, &isl->loss, &a->ranges, next_sample(isl), a->first_step + isl->n_done));
    return isl->cfg.lockstep ? hand_in_gradient(isl) : apply(isl);
}

dlc_err dlc_island_leave(dlc_island *isl, const char *reason)
{
    struct dlc_message m = { .kind = DLC_MSG_LEAVE,
                             .incarnation = isl->cfg.incarnation,
                             .t = isl->assignment.t,
                             .attempt = isl->assignment.attempt };

    if (isl->state == LEAVING)
        return DLC_OK;
    snprintf(m.text, sizeof m.text, "%s", reason);
    isl->state = LEAVING;
    return isl->ep->ops->send(isl->ep, &m);
}

static dlc_err on_mean(dlc_island *isl, const struct dlc_message *m)
{
    const struct dlc_message *a = &isl->assignment;

    if (isl->state != AVERAGING || m->t != a->t || m->attempt != a->attempt || m->step != a->first_step + isl->n_done)
        return DLC_OK;
    memcpy(isl->ops->grads(isl->trainer), isl->ep->ops->mean(isl->ep),
           isl->ops->n_params(isl->trainer) * sizeof(float));
    return apply(isl);
}

dlc_err dlc_island_on_message(dlc_island *isl, const struct dlc_message *m)
{
    if (isl->state == LEAVING)
        return DLC_OK; /* sent before the coordinator knew */
    switch (m->kind) {
    case DLC_MSG_ASSIGN: return on_assign(isl, m);
    case DLC_MSG_MEAN: return on_mean(isl, m);
    case DLC_MSG_PAUSE: isl->pause_wanted = true; return isl->state == TRAINING ? DLC_OK : pause_now(isl);
    case DLC_MSG_FINISH: isl->state = LEAVING; return DLC_OK;
    case DLC_MSG_DISMISS:
        isl->state = LEAVING;
        return dlc_fail(DLC_EPEER, "island %d was dismissed by the coordinator: %s", isl->cfg.index, m->text);
    default:
        return dlc_fail(DLC_EPEER, "island %d: message of kind %d is not for islands", isl->cfg.index, (int)m->kind);
    }
}
