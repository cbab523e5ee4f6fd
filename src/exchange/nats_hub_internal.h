/* Between the files of the hub. One mutex guards everything in struct dlc_nats_hub that is not said to be a thread's
 * own; it is never held over a call of the network or the disk. Threads:
 *
 *   coordinator  recv, send; answers to questions; update, publish      nats_hub.c, nats_hub_answer.c, nats_hub_serve.c
 *   listen       packets and questions of islands                           nats_hub_control.c
 *   speak        packets and answers that are due; who is silent            nats_hub_control.c
 *   sys          closed connections, told by our own server                 nats_hub_sys.c
 *   give         chunks of updates and snapshots, asked for by islands      nats_hub_bulk.c
 *   fetch        chunks of contributions, asked for by the hub              nats_hub_bulk.c
 *   disk         opening and closing of what is fetched (digests, fsync), files nobody wants any more    nats_hub_bulk.c
 */
#ifndef DLC_EXCHANGE_NATS_HUB_INTERNAL_H
#define DLC_EXCHANGE_NATS_HUB_INTERNAL_H

#include <stdatomic.h>

#include "base/file.h"
#include "exchange/fetch.h"
#include "exchange/nats_blob.h"
#include "exchange/nats_hub.h"
#include "exchange/nats_thread.h"
#include "exchange/nats_question.h"
#include "exchange/nats_subjects.h"
#include "net/wire.h"

#define HUB_QUEUE_MAX 4096     /* messages of one island that wait for the coordinator; more are not acknowledged */
#define HUB_QUESTIONS_MAX 256
#define HUB_KEPT_UPDATES 16
#define HUB_WINDOW 48          /* chunks under way in all */
#define HUB_UNUSED_NS (60 * DLC_S_NS)

/* What an island said and recv has not given out. */
struct hub_entry {
    struct hub_entry *next;
    struct dlc_message m;
    bool ends_life; /* no message: the process that sent what stands before it is gone */
};

typedef enum {
    FETCH_NONE,
    FETCH_OPENING,   /* disk */
    FETCH_RUNNING,   /* fetch */
    FETCH_FINISHING, /* disk */
    FETCH_DONE,      /* `map` holds it */
    FETCH_BAD        /* its bytes are not those of its digest, again and again */
} hub_fetch_state;

struct hub_fetch {
    hub_fetch_state state;
    struct hub_entry *entry; /* the CONTRIBUTION; NULL: not wanted any more, whose state it is cleans up */
    struct dlc_blob_ref ref;
    dlc_fetch *f; /* of the thread whose state it is */
    struct dlc_file_map map;
    int n_bad;
    int64_t not_before_ns; /* after a failure, or when nobody was there to answer */
    bool is_stale;         /* what is under way is lost: it is asked for again, not before not_before_ns */
    struct dlc_fetch_progress progress;
};

struct hub_slot {
    struct hub_slot *next;
    struct dlc_file_map map;
    uint64_t t;
};

struct hub_island {
    char identity[DLC_IDENTITY_SIZE]; /* "": nobody was admitted to this index; then it never changes */
    uint32_t incarnation;
    uint64_t session;     /* said when it joined */
    dlc_channel *channel; /* NULL: not admitted */

    bool has_life; /* a packet came, ever */
    bool alive;    /* as far as packets and the server tell */
    bool left;     /* said that it leaves: alive only with a new life */
    bool told_lost;
    int64_t heard_ns, closed_ns, spoke_ns;
    double longest_gap_s;
    uint64_t conn_server, conn_id; /* its newest connection, told by the server */
    uint64_t held_t;
    bool wants_packet;

    struct hub_entry *first, *last;
    size_t n_queued;
    struct hub_fetch fetch;
    bool has_taken; /* the contribution given out last */
    struct dlc_message taken;
    struct hub_slot *slots; /* newest first; older ones until the round is closed */
    struct dlc_traffic traffic, shown;
};

struct hub_question {
    struct hub_question *next;
    char name[16];
    json_t *json;
    char reply[DLC_SUBJECT_SIZE];
};

struct hub_letter { /* an answer on its way out */
    struct hub_letter *next;
    char subject[DLC_SUBJECT_SIZE];
    struct dlc_buf bytes;
};

struct hub_fact {
    uint64_t t; /* 0: none */
    char *line;
    bool summed;
};

struct dlc_nats_hub {
    dlc_hub hub;
    struct dlc_nats_hub_options opt; /* its strings are not kept */
    char run[33], folder[DLC_PATH_MAX];
    uint64_t session;
    dlc_blobs *blobs;
    float *theta[2];

    dlc_wire *control, *bulk, *sys;
    dlc_wire_sub *up, *events, *asks, *chunks;
    _Atomic bool control_is_up;
    _Atomic unsigned bulk_epoch; /* grows when the bulk connection is there again */
    _Atomic bool stop;
    pthread_t threads[6];
    int n_threads;

    pthread_mutex_t mutex;
    pthread_cond_t arrived, due, fetching, disk;
    struct hub_island *islands; /* [n_islands] */
    struct hub_question *questions;
    int n_questions;
    struct hub_letter *letters;
    struct dlc_note note;
    bool is_published; /* note says where history stands; before it nothing is sent */
    bool is_leaving;
    struct hub_fact facts[HUB_KEPT_UPDATES]; /* at t mod its length */
    dlc_err failed;
    char failed_text[400];

    int last_island;                  /* coordinator */
    uint64_t update_t;                /* coordinator: the mapped update that was not published yet; 0: none */
    void *update;
    struct dlc_snapshot *snapshot;    /* coordinator: the newest */
};

/* Under the mutex. */
struct hub_island *hub__find(struct dlc_nats_hub *h, const char *identity);
bool hub__needs_fetch(const struct dlc_nats_hub *h, const struct hub_island *isl, const struct dlc_message *m);
void hub__consider_fetch(struct dlc_nats_hub *h, struct hub_island *isl);
void hub__drop_entry(struct hub_island *isl, struct hub_entry *e);
void hub__drop_unfetched(struct hub_island *isl);
void hub__end_life(struct hub_island *isl);
void hub__entry_free(struct hub_entry *e);
void hub__fail(struct dlc_nats_hub *h, dlc_err err, const char *text);

/* Threads. */
void *hub__listen(void *hub);
void *hub__speak(void *hub);
void *hub__sys(void *hub);
void *hub__give(void *hub);
void *hub__fetch(void *hub);
void *hub__disk(void *hub);

/* The coordinator's thread, without the mutex. */
void *hub__update(dlc_hub *hub, uint64_t t);
dlc_err hub__publish(dlc_hub *hub, const struct dlc_record *record, const struct dlc_sha256 *theta);
void hub__answer(struct dlc_nats_hub *h, struct hub_question *q, bool *again_later);
/* By the listening thread: what needs no coordinator. */
bool hub__answer_at_once(struct dlc_nats_hub *h, const struct hub_question *q);
dlc_err hub__open_served(struct dlc_nats_hub *h);
bool hub__find_update(struct dlc_nats_hub *h, uint64_t t, struct dlc_blob_ref *ref);
dlc_err hub__take_snapshot(struct dlc_nats_hub *h, uint64_t above_t);
void hub__question_free(struct hub_question *q);
void hub__slots_free(struct hub_island *isl, uint64_t up_to_t);

#endif
