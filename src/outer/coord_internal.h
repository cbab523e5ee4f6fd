/* What the files of the coordinator's core share. */
#ifndef DLC_OUTER_COORD_INTERNAL_H
#define DLC_OUTER_COORD_INTERNAL_H

#include "outer/coord.h"

#define DLC_RING 64

/* The last DLC_RING values seen; for medians. */
struct dlc__ring {
    double values[DLC_RING];
    size_t n; /* ever added */
};
void dlc__ring_add(struct dlc__ring *r, double value);
size_t dlc__ring_size(const struct dlc__ring *r);
double dlc__ring_median(const struct dlc__ring *r);
double dlc__ring_spread(const struct dlc__ring *r); /* 1.4826 x median absolute deviation */
double dlc__ring_max(const struct dlc__ring *r);

typedef enum {
    DLC_ISLAND_AWAY,
    DLC_ISLAND_READY,
    DLC_ISLAND_TRAINING,
    DLC_ISLAND_DONE,
    DLC_ISLAND_LOST
} dlc_island_state;

struct dlc__island {
    dlc_island_state state;
    bool gone; /* DONE, but its process is not there */
    bool member; /* of the open round */
    uint32_t incarnation;
    int64_t last_heard_ns;

    /* committed history */
    uint64_t state_step;
    bool own_params;
    struct dlc_ranges pending; /* of dropped contributions: trained on, leased, not yet in a record */

    /* the open round */
    struct dlc_ranges lease;
    bool refused;
    int n_resupplied;
    const void *payload;
    double norm; /* of the outer gradient that was let in */
    struct dlc_sha256 digest;
};

typedef enum { DLC_ROUND_WAITING, DLC_ROUND_TRAINING, DLC_ROUND_FINISHED } dlc_round_state;

struct dlc_coord {
    struct dlc_coord_config cfg;
    float *theta[2];
    float *state[2];
    dlc_pool *pool;
    void *(*update)(void *self, uint64_t t); /* may be NULL */
    void *update_self;

    uint64_t t; /* last closed outer step */
    dlc_round_state round;
    bool uncommitted; /* record t is not durable yet */
    bool failed;
    uint32_t attempt;
    int64_t opened_ns;
    int64_t close_by_ns; /* INT64_MAX: none */
    struct dlc_sha256 theta_digest;
    struct dlc_record record; /* of step t */
    json_t *saved;            /* state after t, before the leases of t + 1 */

    struct dlc__island *islands;
    dlc_ledger *ledger;
    uint64_t n_tokens;
    int n_rollbacks;
    struct dlc_ranges discarded; /* since the last record */

    struct dlc__ring arrivals_s, norms, silences_s;

    struct dlc_action *actions; /* queue */
    size_t n_actions, next_action, cap_actions;
};

dlc_err dlc__coord_push(struct dlc_coord *c, struct dlc_action action);
dlc_err dlc__coord_fail(struct dlc_coord *c, dlc_err code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

int64_t dlc__coord_round_steps(const struct dlc_coord_config *cfg, uint64_t t);
dlc_err dlc__coord_assign(struct dlc_coord *c, int island, int64_t now_ns); /* sends that of the open round */
dlc_err dlc__coord_lease(struct dlc_coord *c, int island);                  /* the lease of round t + 1 */
dlc_err dlc__coord_open_round(struct dlc_coord *c, int64_t now_ns);
dlc_err dlc__coord_close_round(struct dlc_coord *c, int64_t now_ns);
dlc_err dlc__coord_digest_state(struct dlc_sha256 *out, const struct dlc_coord *c);
dlc_err dlc__coord_save(struct dlc_coord *c); /* fills c->saved */

#endif
