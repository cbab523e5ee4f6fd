/* Opening a round, beginning it again, and when it is to be closed. */
#include "outer/coord_internal.h"

int64_t dlc__coord_round_steps(const struct dlc_coord_config *cfg, uint64_t t)
{
    int64_t first = (int64_t)(t - 1) * cfg->H, left = cfg->total_steps - first;

    return left < cfg->H ? left : cfg->H;
}

static int pool_of(const struct dlc_coord_config *cfg, int island, uint64_t t)
{
    int own;

    if (cfg->n_islands >= cfg->n_pools)
        return island % cfg->n_pools;
    own = (cfg->n_pools - island + cfg->n_islands - 1) / cfg->n_islands; /* pools island, island + K, ... */
    return island + cfg->n_islands * (int)(t % (uint64_t)own);
}

dlc_err dlc__coord_lease(struct dlc_coord *c, int island)
{
    uint64_t t = c->t + 1, count = (uint64_t)dlc__coord_round_steps(&c->cfg, t) * (uint64_t)c->cfg.batch;

    c->islands[island].lease.n = 0;
    c->islands[island].n_resupplied = 0;
    return dlc_ledger_lease(c->ledger, &c->islands[island].lease, island, pool_of(&c->cfg, island, t), count);
}

dlc_err dlc__coord_assign(struct dlc_coord *c, int island, int64_t now_ns)
{
    struct dlc__island *isl = &c->islands[island];
    uint64_t t = c->t + 1;

    c->assigned = true;
    isl->state = DLC_ISLAND_TRAINING;
    isl->attempt = c->attempt;
    isl->refused = isl->left = isl->gone = isl->state_lost = false;
    isl->payload = NULL;
    isl->last_heard_ns = now_ns; /* from now on something is expected of it */
    return dlc__coord_push(c, (struct dlc_action){
                                  .kind = DLC_ACTION_ASSIGN,
                                  .island = island,
                                  .t = t,
                                  .assignment = { .incarnation = isl->incarnation,
                                                  .t = t,
                                                  .attempt = c->attempt,
                                                  .first_step = (int64_t)(t - 1) * c->cfg.H,
                                                  .n_steps = dlc__coord_round_steps(&c->cfg, t),
                                                  .lease = &isl->lease,
                                                  .state_step = isl->state_step,
                                                  .own_params = isl->own_params,
                                                  .theta = c->theta_digest },
                              });
}

dlc_err dlc__coord_opened(struct dlc_coord *c)
{
    return dlc__coord_push(c, (struct dlc_action){ .kind = DLC_ACTION_OPENED, .t = c->t + 1 });
}

/* With late = next all who are there may be busy with the round before: then there is nobody to begin with, and what they
 * have handed in is given up. */
static dlc_err free_the_late(struct dlc_coord *c, int *n_ready)
{
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (c->islands[i].state != DLC_ISLAND_LATE || !c->islands[i].payload || c->islands[i].gone)
            continue;
        DLC_TRY(dlc__coord_release_late(c, i));
        ++*n_ready;
    }
    return DLC_OK;
}

dlc_err dlc__coord_open_round(struct dlc_coord *c, int64_t now_ns)
{
    int n_ready = 0, n_late = 0, wanted = c->cfg.wait_for_all ? c->cfg.n_islands : c->cfg.min_islands;

    for (int i = 0; i < c->cfg.n_islands; i++) {
        n_ready += c->islands[i].state == DLC_ISLAND_READY;
        n_late += c->islands[i].state == DLC_ISLAND_LATE && !c->islands[i].gone;
    }
    if (n_ready + n_late < wanted)
        return DLC_OK;
    if (n_ready == 0)
        DLC_TRY(free_the_late(c, &n_ready));
    if (n_ready == 0)
        return DLC_OK;
    c->round = DLC_ROUND_TRAINING;
    c->attempt++;
    c->opened_ns = now_ns;
    c->close_by_ns = INT64_MAX;
    c->resumed = false;
    for (int i = 0; i < c->cfg.n_islands; i++) {
        c->islands[i].member = c->islands[i].state == DLC_ISLAND_READY;
        if (c->islands[i].member)
            DLC_TRY(dlc__coord_lease(c, i));
    }
    DLC_TRY(dlc__coord_opened(c));
    for (int i = 0; i < c->cfg.n_islands; i++) {
        if (c->islands[i].member)
            DLC_TRY(dlc__coord_assign(c, i, now_ns));
    }
    return DLC_OK;
}

/* Everybody again from theta(t-1); what came in counts no more, nor do refusals and a deadline drawn from it. */
dlc_err dlc__coord_restart_round(struct dlc_coord *c, int64_t now_ns)
{
    c->attempt++;
    c->opened_ns = now_ns;
    c->close_by_ns = INT64_MAX;
    c->resumed = false;
    DLC_TRY(dlc__coord_opened(c));
    for (int i = 0; i < c->cfg.n_islands; i++) {
        struct dlc__island *isl = &c->islands[i];

        if (!isl->member || isl->left || isl->dismissed)
            continue;
        isl->refused = false;
        if (isl->state == DLC_ISLAND_TRAINING || (isl->state == DLC_ISLAND_DONE && !isl->gone)) {
            DLC_TRY(dlc__coord_assign(c, i, now_ns));
        } else {
            isl->state = DLC_ISLAND_LOST; /* gets its assignment when it is back */
            isl->gone = false;
            isl->payload = NULL;
        }
    }
    return DLC_OK;
}

/* Policy mode, and nothing of anybody could be let in: leases go back, and whoever is there begins again. */
static dlc_err void_round(struct dlc_coord *c, int64_t now_ns)
{
    for (int i = 0; i < c->cfg.n_islands; i++) {
        struct dlc__island *isl = &c->islands[i];

        if (!isl->member)
            continue;
        DLC_TRY(dlc_ledger_return(c->ledger, i, &isl->lease));
        isl->lease.n = 0;
        isl->member = isl->refused = isl->left = false;
        if (isl->state == DLC_ISLAND_TRAINING)
            isl->state = DLC_ISLAND_READY;
        else if (isl->state == DLC_ISLAND_LOST)
            isl->state = DLC_ISLAND_AWAY;
    }
    c->round = DLC_ROUND_WAITING;
    return dlc__coord_open_round(c, now_ns);
}

static int n_refused(const struct dlc_coord *c)
{
    int n = 0;

    for (int i = 0; i < c->cfg.n_islands; i++)
        n += c->islands[i].member && c->islands[i].refused;
    return n;
}

int dlc__coord_n_in(const struct dlc_coord *c)
{
    int n = 0;

    for (int i = 0; i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];

        n += isl->member && !isl->refused && isl->state == DLC_ISLAND_DONE;
    }
    return n;
}

/* Without `wait_for_all` a lost member may never come back: it is not waited for when the others are in. */
static bool only_lost_are_missing(const struct dlc_coord *c)
{
    int n_lost = 0;

    for (int i = 0; i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];

        if (!isl->member || isl->refused || isl->left)
            continue;
        if (isl->state == DLC_ISLAND_TRAINING || (isl->state == DLC_ISLAND_LOST && isl->awaited))
            return false;
        n_lost += isl->state == DLC_ISLAND_LOST;
    }
    return n_lost > 0 && dlc__coord_n_in(c) >= c->cfg.quorum;
}

dlc_err dlc__coord_close_if_due(struct dlc_coord *c, int64_t now_ns)
{
    bool complete = dlc_coord_waiting_for(c, NULL, 0) == 0;
    bool late = !c->cfg.wait_for_all && (now_ns >= c->close_by_ns || only_lost_are_missing(c));

    if (c->round != DLC_ROUND_TRAINING || c->uncommitted || c->failed || !(complete || late))
        return DLC_OK;
    if (dlc__coord_n_in(c) > 0)
        return dlc__coord_close_round(c, now_ns);
    if (!c->cfg.wait_for_all)
        return void_round(c, now_ns);
    return dlc__coord_fail(c, DLC_EFAIL, "outer step %llu: none of %d contributions could be let in",
                           (unsigned long long)(c->t + 1), n_refused(c));
}
