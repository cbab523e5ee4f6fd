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
json_t *dlc__ring_to_json(const struct dlc__ring *r); /* new reference; NULL out of memory */
dlc_err dlc__ring_from_json(struct dlc__ring *r, const json_t *list, const char *key, const char *where);

typedef enum {
    DLC_ISLAND_AWAY,
    DLC_ISLAND_READY,
    DLC_ISLAND_TRAINING,
    DLC_ISLAND_DONE,
    DLC_ISLAND_LOST,
    DLC_ISLAND_LATE
} dlc_island_state;

struct dlc__island {
    dlc_island_state state;
    bool gone;    /* DONE or LATE, but it is not there */
    bool member;  /* of the open round */
    bool awaited; /* it is LOST only because it has not been heard of since the resume */
    bool unheard; /* not heard since this coordinator resumed; `incarnation` is the life that has its assignment */
    uint32_t incarnation;
    int64_t last_heard_ns;
    int n_refusals; /* in a row */
    bool dismissed; /* in this incarnation */
    char dismissal[160];

    /* committed history, but for what `fresh` says */
    uint64_t state_step;
    bool own_params;
    struct dlc_ranges pending; /* of dropped contributions: trained on, leased, not yet in a record */
    bool fresh;      /* since the last record: it lost its inner state and begins anew, nothing pending */
    bool released;   /* since the last record: its late lease was given back */
    bool state_lost; /* it is DONE, and its new life does not hold the state after this round */

    /* the open round; LATE: the one before */
    struct dlc_ranges lease;
    uint32_t attempt; /* that it was assigned */
    bool refused, left;
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
    int64_t opened_ns; /* INT64_MIN: at the next event (after a resume) */
    int64_t resumed_ns;
    bool resumed;      /* this attempt was begun by an earlier coordinator: nobody knows how long it takes */
    int64_t close_by_ns; /* INT64_MAX: none */
    bool assigned;     /* by this event: the leases of its actions must stay until they are taken */
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

/* round.c */
int64_t dlc__coord_round_steps(const struct dlc_coord_config *cfg, uint64_t t);
dlc_err dlc__coord_assign(struct dlc_coord *c, int island, int64_t now_ns); /* sends that of the open round */
dlc_err dlc__coord_lease(struct dlc_coord *c, int island);                  /* the lease of round t + 1 */
dlc_err dlc__coord_opened(struct dlc_coord *c);                             /* says that the open round changed */
dlc_err dlc__coord_open_round(struct dlc_coord *c, int64_t now_ns);
dlc_err dlc__coord_restart_round(struct dlc_coord *c, int64_t now_ns);
dlc_err dlc__coord_close_if_due(struct dlc_coord *c, int64_t now_ns);
int dlc__coord_n_in(const struct dlc_coord *c);

/* close.c */
dlc_err dlc__coord_close_round(struct dlc_coord *c, int64_t now_ns);
dlc_err dlc__coord_digest_state(struct dlc_sha256 *out, const struct dlc_coord *c);

/* membership.c */
dlc_err dlc__coord_on_hello(struct dlc_coord *c, int64_t now_ns, const struct dlc_event *ev);
dlc_err dlc__coord_on_back(struct dlc_coord *c, int64_t now_ns, const struct dlc_event *ev);
dlc_err dlc__coord_on_lost(struct dlc_coord *c, const struct dlc_event *ev);
dlc_err dlc__coord_on_left(struct dlc_coord *c, const struct dlc_event *ev);
dlc_err dlc__coord_take_in(struct dlc_coord *c, int64_t now_ns); /* READY islands, when a round cannot end without */
dlc_err dlc__coord_forget_state(struct dlc_coord *c, int island); /* it begins anew */
dlc_err dlc__coord_release_late(struct dlc_coord *c, int island);

/* contribution.c */
dlc_err dlc__coord_on_contribution(struct dlc_coord *c, int64_t now_ns, const struct dlc_event *ev);
dlc_err dlc__coord_on_nonfinite(struct dlc_coord *c, int64_t now_ns, const struct dlc_event *ev);
dlc_err dlc__coord_on_resupply(struct dlc_coord *c, int64_t now_ns, const struct dlc_event *ev);
bool dlc__coord_is_of_this_round(const struct dlc_coord *c, const struct dlc_event *ev);
dlc_err dlc__coord_on_nonsense(struct dlc_coord *c, const struct dlc_event *ev);
dlc_err dlc__coord_dismiss(struct dlc_coord *c, int island);

/* coord_save.c, coord_round.c */
dlc_err dlc__coord_save(struct dlc_coord *c); /* fills c->saved */
dlc_err dlc__coord_take_round(struct dlc_coord *c, const json_t *round);

#endif
