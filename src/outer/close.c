/* Closing of a round: who counts, the outer step, the record, and what becomes of everybody's samples and states. */
#include "outer/coord_internal.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "outer/merge.h"

#define STREAM_DROP 0x64726f70u

static bool is_dropped(const struct dlc_coord_config *cfg, uint64_t t, int island)
{
    return cfg->drop > 0 &&
           dlc_rng_uniform(cfg->seed, STREAM_DROP, (t - 1) * (uint64_t)cfg->n_islands + (uint64_t)island) < cfg->drop;
}

static dlc_member_fate fate_of(const struct dlc_coord *c, int island)
{
    const struct dlc__island *isl = &c->islands[island];

    if (isl->state == DLC_ISLAND_LATE)
        return DLC_MEMBER_CARRIED;
    if (isl->refused)
        return DLC_MEMBER_REFUSED;
    if (isl->state != DLC_ISLAND_DONE)
        return DLC_MEMBER_LATE;
    return is_dropped(&c->cfg, c->t + 1, island) ? DLC_MEMBER_DROPPED : DLC_MEMBER_SUMMED;
}

static uint64_t tokens_of_round(const struct dlc_coord_config *cfg, uint64_t t)
{
    return (uint64_t)dlc__coord_round_steps(cfg, t) * (uint64_t)cfg->batch * (uint64_t)cfg->tokens_per_sample;
}

/* Weights are integers: uniform ones leave room for a part of one where there may be late contributions. */
static uint64_t weight_of(const struct dlc_coord *c, dlc_member_fate fate)
{
    bool carried = fate == DLC_MEMBER_CARRIED;
    uint64_t unit = !c->cfg.uniform_weights          ? tokens_of_round(&c->cfg, c->record.t - carried)
                    : c->cfg.late == DLC_LATE_NEXT ? 1000
                                                     : 1;
    double part = carried ? c->cfg.late_weight * (double)unit : 0;

    return !carried ? unit : part < 1 ? 1 : (uint64_t)llround(part);
}

/* Fills c->record's members, with the ranges each summed or carried one consumes (those of its dropped rounds first). */
static dlc_err list_members(struct dlc_coord *c)
{
    struct dlc_record *r = &c->record;

    r->members = dlc_calloc((size_t)c->cfg.n_islands, sizeof *r->members);
    if (!r->members)
        return DLC_ENOMEM;
    for (int i = 0; i < c->cfg.n_islands; i++) {
        struct dlc__island *isl = &c->islands[i];
        struct dlc_record_member *m = &r->members[r->n_members];

        if (!isl->member && !(isl->state == DLC_ISLAND_LATE && isl->payload))
            continue;
        r->n_members++;
        m->island = i;
        m->fate = fate_of(c, i);
        if (m->fate != DLC_MEMBER_LATE)
            m->payload = isl->digest;
        if (m->fate != DLC_MEMBER_SUMMED && m->fate != DLC_MEMBER_CARRIED)
            continue;
        m->weight = weight_of(c, m->fate);
        for (size_t k = 0; k < isl->pending.n; k++)
            DLC_TRY(dlc_ranges_add(&m->ranges, isl->pending.items[k]));
        for (size_t k = 0; k < isl->lease.n; k++)
            DLC_TRY(dlc_ranges_add(&m->ranges, isl->lease.items[k]));
        c->n_tokens += dlc_ranges_count(&m->ranges) * (uint64_t)c->cfg.tokens_per_sample;
    }
    return DLC_OK;
}

/* A carried contribution began from theta(t-2), which stands where theta(t) is about to be written. */
static size_t collect_parts(struct dlc_merge_part *parts, const struct dlc_coord *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->record.n_members; i++) {
        const struct dlc_record_member *m = &c->record.members[i];
        const void *payload = c->islands[m->island].payload;

        if (m->fate == DLC_MEMBER_SUMMED)
            parts[n++] = (struct dlc_merge_part){ payload, (double)m->weight, NULL };
        else if (m->fate == DLC_MEMBER_CARRIED)
            parts[n++] = (struct dlc_merge_part){ payload, (double)m->weight, c->theta[c->record.t & 1] };
    }
    return n;
}

/* In lockstep everyone ends the round with the same bits: one contribution stands for all, and it is theta(t). */
static dlc_err check_lockstep(struct dlc_coord *c)
{
    const struct dlc_record_member *first = &c->record.members[0];

    for (size_t i = 1; i < c->record.n_members; i++) {
        const struct dlc_record_member *m = &c->record.members[i];

        if (!dlc_sha256_equal(&m->payload, &first->payload))
            return dlc_fail(DLC_EFAIL, "outer step %llu: islands %d and %d averaged every gradient and yet differ",
                            (unsigned long long)c->record.t, first->island, m->island);
    }
    return DLC_OK;
}

static dlc_err take_outer_step(struct dlc_coord *c)
{
    static const struct dlc_outer_opt adopt = { .kind = DLC_OUTER_SGD, .lr = 1.0 };
    uint64_t t = c->record.t;
    struct dlc_merge m = { c->cfg.codec, c->cfg.lockstep ? &adopt : &c->cfg.opt, c->cfg.aggregate, c->cfg.n_params, t };
    float *to = c->theta[t & 1], *from = c->theta[(t - 1) & 1];
    struct dlc_merge_part *parts = dlc_calloc((size_t)c->cfg.n_islands, sizeof *parts);
    void *update = NULL;
    dlc_err err = DLC_OK;
    size_t n;

    if (!parts)
        return DLC_ENOMEM;
    n = collect_parts(parts, c);
    if (c->update && n > 0) {
        update = c->update(c->update_self, t);
        if (!update) /* no room: without it no island could follow */
            err = dlc_fail_context(DLC_EIO, "outer step %llu", (unsigned long long)t);
    }
    if (err == DLC_OK && c->cfg.lockstep && n > 0)
        err = check_lockstep(c);
    if (n == 0)
        memcpy(to, from, c->cfg.n_params * sizeof *to); /* everything was lost: nothing to step on */
    else if (err == DLC_OK)
        c->record.delta_norm = dlc_merge(to, from, c->state, update, &m, parts, c->cfg.lockstep ? 1 : n, c->pool);
    dlc_free(parts);
    return err;
}

static void digest_state(struct dlc_sha256 *out, dlc_sha256_ctx *ctx, const struct dlc_coord *c)
{
    for (int i = 0; i < dlc_outer_opt_n_state(c->cfg.opt.kind); i++)
        dlc_sha256_update(ctx, c->state[i], c->cfg.n_params * sizeof(float));
    *out = dlc_sha256_final(ctx);
}

dlc_err dlc__coord_digest_state(struct dlc_sha256 *out, const struct dlc_coord *c)
{
    dlc_sha256_ctx *ctx;

    DLC_TRY(dlc_sha256_create(&ctx));
    digest_state(out, ctx, c);
    dlc_sha256_destroy(ctx);
    return DLC_OK;
}

/* Finite contributions can still give a sum that is not. */
static bool is_finite(const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return false;
    }
    return true;
}

/* Three looks at theta(t) and the outer state, each of one thread, at the same time: all islands wait for them. */
struct looks {
    const struct dlc_coord *c;
    const float *theta;
    dlc_sha256_ctx *ctx;
    struct dlc_sha256 theta_digest, state_digest;
    bool finite;
};

static void look(void *arg, int worker, int n_workers)
{
    struct looks *l = arg;
    size_t n = l->c->cfg.n_params;

    for (int i = worker; i < 3; i += n_workers) {
        if (i == 0)
            l->theta_digest = dlc_sha256(l->theta, n * sizeof(float));
        else if (i == 1)
            digest_state(&l->state_digest, l->ctx, l->c);
        else
            l->finite = is_finite(l->theta, n);
    }
}

static dlc_err look_at_result(struct dlc_coord *c, uint64_t t)
{
    struct looks l = { .c = c, .theta = c->theta[t & 1] };

    DLC_TRY(dlc_sha256_create(&l.ctx));
    dlc_pool_run(c->pool, look, &l);
    dlc_sha256_destroy(l.ctx);
    c->record.theta = l.theta_digest;
    c->record.outer = l.state_digest;
    if (l.finite)
        return DLC_OK;
    return dlc__coord_fail(c, DLC_EFAIL,
                           "outer step %llu gives parameters that are not finite; the outer gradient's norm is %.3g",
                           (unsigned long long)t, c->record.delta_norm);
}

/* It goes on with its work, which may still count in the next step. */
static bool is_carried_over(const struct dlc_coord *c, int island)
{
    const struct dlc__island *isl = &c->islands[island];

    return c->cfg.late == DLC_LATE_NEXT && !c->cfg.wait_for_all && !c->cfg.lockstep && !isl->left &&
           c->record.t < dlc_coord_n_rounds(&c->cfg) && isl->lease.n > 0;
}

static dlc_err settle_ledger(struct dlc_coord *c, const struct dlc_record_member *m)
{
    struct dlc__island *isl = &c->islands[m->island];

    switch (m->fate) {
    case DLC_MEMBER_SUMMED:
    case DLC_MEMBER_CARRIED:
        DLC_TRY(dlc_ledger_consume(c->ledger, m->island, &m->ranges));
        isl->pending.n = 0;
        isl->state_step = c->record.t - (m->fate == DLC_MEMBER_CARRIED); /* of the round that it worked on */
        isl->own_params = false;
        break;
    case DLC_MEMBER_DROPPED:
        for (size_t k = 0; k < isl->lease.n; k++)
            DLC_TRY(dlc_ranges_add(&isl->pending, isl->lease.items[k]));
        isl->state_step = c->record.t;
        isl->own_params = true;
        break;
    case DLC_MEMBER_REFUSED:
    case DLC_MEMBER_LATE: DLC_TRY(dlc_ledger_return(c->ledger, m->island, &isl->lease)); break;
    }
    isl->lease.n = 0;
    return isl->state_lost ? dlc__coord_forget_state(c, m->island) : DLC_OK;
}

static dlc_err settle_island(struct dlc_coord *c, const struct dlc_record_member *m)
{
    struct dlc__island *isl = &c->islands[m->island];

    if (m->fate == DLC_MEMBER_SUMMED || m->fate == DLC_MEMBER_DROPPED || m->fate == DLC_MEMBER_CARRIED)
        dlc__ring_add(&c->norms, isl->norm);
    isl->member = false;
    if (m->fate == DLC_MEMBER_LATE && is_carried_over(c, m->island)) {
        isl->gone = isl->state == DLC_ISLAND_LOST;
        isl->state = DLC_ISLAND_LATE;
        return DLC_OK;
    }
    DLC_TRY(settle_ledger(c, m));
    if (isl->state != DLC_ISLAND_AWAY)
        isl->state = isl->state == DLC_ISLAND_LOST || isl->gone ? DLC_ISLAND_AWAY : DLC_ISLAND_READY;
    isl->payload = NULL;
    isl->gone = isl->left = isl->state_lost = false;
    return DLC_OK;
}

/* Whoever was late for the round before and is not in now: its work is given up. */
static dlc_err release_overdue(struct dlc_coord *c)
{
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (c->islands[i].state == DLC_ISLAND_LATE && !c->islands[i].payload)
            DLC_TRY(dlc__coord_release_late(c, i));
    }
    return DLC_OK;
}

static dlc_err settle(struct dlc_coord *c)
{
    DLC_TRY(release_overdue(c));
    for (size_t i = 0; i < c->record.n_members; i++)
        DLC_TRY(settle_island(c, &c->record.members[i]));
    for (int i = 0; i < c->cfg.n_islands; i++)
        c->islands[i].fresh = c->islands[i].released = false;
    c->discarded.n = 0;
    return DLC_OK;
}

/* The pending ranges of simulated losses go back to the pool when there is no round left to bring them in. */
static dlc_err return_pending(struct dlc_coord *c)
{
    for (int i = 0; i < c->cfg.n_islands; i++) {
        DLC_TRY(dlc_ledger_return(c->ledger, i, &c->islands[i].pending));
        c->islands[i].pending.n = 0;
    }
    return DLC_OK;
}

dlc_err dlc__coord_close_round(struct dlc_coord *c, int64_t now_ns)
{
    uint64_t t = c->t + 1;
    struct dlc_sha256 prev = c->record.hash;
    bool last = t == dlc_coord_n_rounds(&c->cfg);

    dlc_record_fini(&c->record);
    memcpy(c->record.run, c->cfg.run, sizeof c->record.run);
    c->record.t = t;
    c->record.prev = prev;
    c->record.step = (int64_t)(t - 1) * c->cfg.H + dlc__coord_round_steps(&c->cfg, t);
    DLC_TRY(list_members(c));
    c->record.n_alive = (int)c->record.n_members;
    DLC_TRY(dlc_ranges_copy(&c->record.discarded, &c->discarded));
    DLC_TRY(take_outer_step(c));
    DLC_TRY(look_at_result(c, t));
    if (c->failed)
        return DLC_OK;
    c->record.n_tokens = c->n_tokens;
    c->theta_digest = c->record.theta;
    DLC_TRY(dlc_record_seal(&c->record));
    DLC_TRY(settle(c));
    if (last)
        DLC_TRY(return_pending(c));
    c->t = t;
    c->attempt = 0;
    c->resumed = false;
    c->uncommitted = true;
    c->round = last ? DLC_ROUND_FINISHED : DLC_ROUND_WAITING;
    DLC_TRY(dlc__coord_save(c));
    if (c->cfg.publish_before_commit && !last)
        DLC_TRY(dlc__coord_open_round(c, now_ns));
    return dlc__coord_push(c, (struct dlc_action){ .kind = DLC_ACTION_CLOSED, .t = t, .record = &c->record });
}
