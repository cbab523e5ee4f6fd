/* The coordinator's core: membership, rounds, ledger, records and the outer step. Events and time in, actions out; it
 * owns no socket, no thread, no file and no clock, so the same code runs in one thread under virtual time with a seeded
 * schedule of faults, on one machine with processes, and across machines. docs/protocol.md is the whole of it in words.
 *
 * One round (outer step t):
 *
 *   WAITING   until the islands wanted are here        -> every READY island gets an ASSIGN: lease, steps, state
 *   TRAINING  until every member has contributed,      -> merge in island order, theta(t), record t
 *             was refused, or (policy) the deadline passed
 *   CLOSED    until the driver says record t is durable -> next round, or FINISHED after the last
 *
 * An island's states and what moves it between them:
 *
 *   state      HELLO          CONTRIBUTION   LOST         BACK        LEFT       round closes
 *   AWAY       READY          refused        -            READY       -          -
 *   READY      READY (newer)  refused        AWAY         -           AWAY       -
 *   TRAINING   TRAINING *     DONE           LOST         -           AWAY +     late: READY, or LATE (late = next)
 *   DONE       DONE           ignored        DONE (gone)  DONE        (gone)     READY, or AWAY when gone
 *   LOST       TRAINING *     ignored        -            TRAINING    AWAY +     late: AWAY, or LATE (gone)
 *   LATE       READY #        taken          LATE (gone)  LATE        AWAY +     carried, or lease back: READY; AWAY
 *   (* newer incarnation: its assignment again: same lease, same steps, so the result is the same as if nothing had
 *      happened. # newer incarnation: what it worked on is given up. + its lease goes back at once.)
 *   READY islands join a round that is open already when fewer than `quorum` members can still contribute.
 *
 * An island's inner state (AdamW moments, step) is a function of the committed history: it moves only with a record
 * that names the island (summed, carried or dropped). Whoever was refused, late or lost goes back to the state of its
 * last record; whoever does not hold that one any more begins anew.
 *
 * Messages of an older incarnation, attempt or outer step change nothing. */
#ifndef DLC_OUTER_COORD_H
#define DLC_OUTER_COORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "base/pool.h"
#include "outer/codecs/codec.h"
#include "outer/ledger.h"
#include "outer/outer_opt.h"
#include "outer/policy.h"
#include "outer/record.h"

struct dlc_coord_config {
    char run[DLC_RUN_ID_SIZE];
    uint64_t seed;
    int n_islands;       /* identities 0 .. n_islands - 1 */
    size_t n_params;     /* N */
    int64_t total_steps; /* inner steps per island, whole run */
    int64_t H;           /* inner steps per round; the last round may be shorter */
    int batch;           /* samples per island and inner step */
    int tokens_per_sample;
    int n_pools;         /* island i draws from pool i mod n_pools when there are at least as many islands as pools,
                            else in turn from pools i, i + n_islands, ... */
    bool uniform_weights; /* else: by the tokens of this round */
    double drop;          /* probability that a contribution is lost (simulated, seeded) */
    struct dlc_outer_opt opt;
    const struct dlc_codec *codec;

    /* Lockstep: islands average gradients every inner step (data parallelism), so they end a round with the same bits.
     * A lost member makes all start the round again; contributions that differ are a fork, reported as DLC_EFAIL. */
    bool lockstep;

    dlc_aggregate aggregate; /* other than mean: at most DLC_ROBUST_PARTS_MAX islands */

    /* Policy when a member does not come back: wait for it (it is restarted by somebody), or close without it once
     * `quorum` members are in and the deadline drawn from earlier arrivals has passed. */
    bool wait_for_all; /* else: policy mode, in which no island ends the run, whatever it does */
    int min_islands; /* a round starts with at least this many; wait_for_all: n_islands */
    int quorum;
    dlc_late late;      /* policy mode only */
    double late_weight; /* next: times the weight */
    int refusals_max;   /* policy mode: in a row, then the island is dismissed; 0: never */

    int nonfinite_rollbacks_max; /* rollback policy: attempts a run may set aside; 0: a non-finite loss stops the run */
    bool publish_before_commit;  /* islands go on while the record is made durable: only where all die together */
};

/* What an island does next. `lease` is owned by the core and valid until the next event. */
struct dlc_assignment {
    uint32_t incarnation; /* the life that it is for: the next one may have lost its inner states */
    uint64_t t;
    uint32_t attempt;   /* of this round; echoes in everything the island sends about it */
    int64_t first_step; /* of the whole run, from 0 */
    int64_t n_steps;
    const struct dlc_ranges *lease; /* n_steps * batch samples, in order */
    uint64_t state_step; /* start from the inner state after outer step state_step (0: fresh) */
    bool own_params;     /* start from that state's own parameters instead of theta(t-1) */
    struct dlc_sha256 theta; /* digest of theta(t-1) */
};

typedef enum {
    DLC_EVENT_HELLO,        /* island, incarnation */
    DLC_EVENT_CONTRIBUTION, /* island, incarnation, t, attempt, payload, digest */
    DLC_EVENT_PROGRESS,     /* island, incarnation: it is alive and moved on */
    DLC_EVENT_NONFINITE,    /* island, incarnation, t, attempt, step, text */
    DLC_EVENT_OUT_OF_STEP,  /* island, incarnation, t, attempt: in lockstep members stand before different steps */
    DLC_EVENT_RESUPPLY,     /* island, incarnation, t, attempt: theta(t-1) did not arrive as it was sent */
    DLC_EVENT_LOST,         /* island, incarnation: its connection closed or it died */
    DLC_EVENT_BACK,         /* island, incarnation: it was reported lost for its silence alone, and goes on */
    DLC_EVENT_LEFT,         /* island, incarnation: it leaves in order, for good or for long */
    DLC_EVENT_REFUSED,      /* island, incarnation, text: what it said makes no sense (policy mode) */
    DLC_EVENT_COMMITTED,    /* t: record t is durable */
    DLC_EVENT_TICK          /* nothing but time */
} dlc_event_kind;

struct dlc_event {
    dlc_event_kind kind;
    int island;
    uint32_t incarnation; /* grows with every start of the island */
    uint64_t t;
    uint32_t attempt;
    int64_t step;
    const void *payload; /* stays the caller's; must stay valid and unchanged until the round is closed */
    size_t payload_bytes;
    struct dlc_sha256 digest; /* of the payload; an exchange over a wire has compared it with the bytes */
    const char *text;
    bool states_known;  /* HELLO: `states` says which inner states it holds; otherwise it holds what it should */
    uint64_t states[2]; /* outer steps; 0: none */
};

typedef enum {
    DLC_ACTION_OPENED,  /* t: before the assignments of a round, attempt or joiner: make dlc_coord_round_to_json durable
                           where the coordinator is to go on with this round after its death */
    DLC_ACTION_ASSIGN,  /* island, assignment */
    DLC_ACTION_DISMISS, /* island, code, text: tell it to leave */
    DLC_ACTION_REFUSED, /* island, t, text: log and count it; the island waits for its next assignment */
    DLC_ACTION_CLOSED,  /* t, record: theta(t) stands in dlc_coord_theta(); publish it, make the record durable, then
                           send DLC_EVENT_COMMITTED. With publish_before_commit the assignments of t+1 come before. */
    DLC_ACTION_SUSPECT, /* island, waited_s: silent for far longer than was observed before; restart it or drop it */
    DLC_ACTION_FINISHED, /* the last record is durable; islands may leave */
    DLC_ACTION_FAILED   /* code, text: the run cannot go on; history up to the last record is whole */
} dlc_action_kind;

struct dlc_action {
    dlc_action_kind kind;
    int island;
    uint64_t t;
    struct dlc_assignment assignment;
    const struct dlc_record *record; /* valid until the next round closes */
    double waited_s;
    dlc_err code;
    char text[256];
};

typedef struct dlc_coord dlc_coord;

/* Memory of N-sized arrays is the caller's (shared memory, heap, ...) and must outlive the core:
 *   theta[2]  theta(t) lives in theta[t & 1]; the other one keeps theta(t-1) until the next round closes
 *   state[2]  outer optimizer state, dlc_outer_opt_n_state() of them, zeroed for a new run
 *   pool      divides the merge; may be NULL
 * A new run starts with theta(0) in theta[0]. */
dlc_err dlc_coord_create(dlc_coord **out, const struct dlc_coord_config *config, float *const theta[2],
                         float *const state[2], dlc_pool *pool);

/* Continues after record t: `saved` is what dlc_coord_to_json gave then, theta[t & 1] and state are filled with what
 * was saved, `last` is record t (NULL when t = 0). Digests are compared with the record, and what does not fit together
 * is DLC_EINPUT. round: the last dlc_coord_round_to_json; when it is of round t + 1 of this history, that round goes on:
 * same members (LOST until they say HELLO), leases and attempt, so that an island in the middle of it just goes on.
 * NULL, or of another round: round t + 1 is opened anew. saved NULL (then t = 0): as dlc_coord_create.
 * Late contributions (late = next) that hold parameters are given up: theta(t-1) is not kept.
 * `saved` and `round` may be hostile. */
dlc_err dlc_coord_resume(dlc_coord **out, const struct dlc_coord_config *config, float *const theta[2],
                         float *const state[2], dlc_pool *pool, const json_t *saved, const struct dlc_record *last,
                         const json_t *round);
void dlc_coord_destroy(dlc_coord *c); /* accepts NULL */

/* Where update t is written when round t closes: update(self, t) gives codec->size_bytes(N) bytes. dlc_merge with it as
 * the one part takes the same outer step. Not called for a step in which nothing was summed. NULL, with the error
 * text set: there is no room for it, and the step is not taken (DLC_EIO). */
void dlc_coord_set_update(dlc_coord *c, void *(*update)(void *self, uint64_t t), void *self);

/* Takes one event at time now_ns (monotonic). DLC_EFAIL and DLC_ENOMEM are failures of the core itself; what an island
 * did wrong comes out as an action. */
dlc_err dlc_coord_event(dlc_coord *c, int64_t now_ns, const struct dlc_event *event);

/* The next action, in order; false when there is none. */
bool dlc_coord_next_action(dlc_coord *c, struct dlc_action *out);

/* When a TICK is wanted at the latest; INT64_MAX: none. */
int64_t dlc_coord_deadline_ns(const dlc_coord *c);

/* What has to be kept with record t so that the run can continue after it: ledger, islands, norms. Call it on CLOSED,
 * before later events. New reference; NULL out of memory. */
json_t *dlc_coord_to_json(const dlc_coord *c);

/* The open round, as of now: call it on OPENED. New reference; NULL out of memory. */
json_t *dlc_coord_round_to_json(const dlc_coord *c);

uint64_t dlc_coord_t(const dlc_coord *c); /* the last closed outer step */
const float *dlc_coord_theta(const dlc_coord *c);
const struct dlc_sha256 *dlc_coord_theta_digest(const dlc_coord *c);
/* Record t, also after a resume; for t = 0 one with nothing but the run's id. Valid until the next round closes. */
const struct dlc_record *dlc_coord_record(const dlc_coord *c);
uint64_t dlc_coord_n_rounds(const struct dlc_coord_config *config);
const dlc_ledger *dlc_coord_ledger(const dlc_coord *c);
bool dlc_coord_is_finished(const dlc_coord *c);

/* The three numbers of a report. */
struct dlc_coord_counts {
    int alive;        /* islands that are there now, at work or waiting */
    int contributing; /* whose outer gradients are in the mean of record t */
    uint64_t tokens;  /* averaged by record t */
};
void dlc_coord_counts(struct dlc_coord_counts *out, const dlc_coord *c);

/* For status: "away", "ready", "training", "done", "lost" or "late"; and how many members the open round has. */
const char *dlc_coord_island_state(const dlc_coord *c, int island);
int dlc_coord_n_members(const dlc_coord *c);

/* Who is waited for: islands of the open round that have not contributed; returns their number, fills at most max. */
int dlc_coord_waiting_for(const dlc_coord *c, int *islands, int max);

#endif
