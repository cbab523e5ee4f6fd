/* Between the files of the endpoint. One mutex guards everything in struct dlc_nats_endpoint that is not said to be a
 * thread's own; it is never held over a call of the network or the disk. Threads:
 *
 *   computing  send, slot, theta, recv; the outer steps                     nats_endpoint.c, nats_endpoint_step.c
 *   listen     packets and answers of the coordinator                       nats_endpoint_control.c
 *   speak      packets and questions that are due                           nats_endpoint_control.c
 *   give       chunks of the contribution, asked for by the coordinator     nats_endpoint_bulk.c
 *   fetch      the next update, or a snapshot                               nats_endpoint_bulk.c
 */
#ifndef DLC_EXCHANGE_NATS_ENDPOINT_INTERNAL_H
#define DLC_EXCHANGE_NATS_ENDPOINT_INTERNAL_H

#include <stdatomic.h>

#include "base/file.h"
#include "exchange/fetch.h"
#include "exchange/nats_blob.h"
#include "exchange/nats_endpoint.h"
#include "exchange/nats_question.h"
#include "exchange/nats_subjects.h"
#include "exchange/nats_thread.h"
#include "net/wire.h"

/* The way from what is held to what the leader stands at, one outer step (or one snapshot) at a time. */
typedef enum {
    CATCH_NOTHING,       /* plan() decides */
    CATCH_ASK_FACT,      /* speak: the record of the next step */
    CATCH_FETCH_UPDATE,  /* fetch */
    CATCH_APPLY_UPDATE,  /* computing, in recv */
    CATCH_ASK_SNAPSHOT,  /* speak */
    CATCH_FETCH_SNAPSHOT,
    CATCH_APPLY_SNAPSHOT
} catch_stage;

struct end_entry {
    struct end_entry *next;
    struct dlc_message m;
};

struct dlc_nats_endpoint {
    dlc_endpoint base;
    char run[33], identity[DLC_IDENTITY_SIZE], host[DLC_HOST_SIZE];
    uint32_t incarnation;
    uint64_t session;
    double patience_s;

    dlc_wire *control, *bulk;
    dlc_wire_sub *down, *asks, *chunks;
    _Atomic bool control_is_up;
    _Atomic unsigned bulk_epoch;
    _Atomic bool stop;
    pthread_t threads[4];
    int n_threads;

    pthread_mutex_t mutex;
    pthread_cond_t arrived, due, fetching;
    dlc_channel *channel;
    dlc_blobs *blobs;
    struct dlc_traffic traffic;

    /* joining */
    json_t *question, *welcome;
    int index; /* -1: not joined yet */
    bool join_wanted;
    int64_t join_due_ns, ask;

    /* the leader */
    uint64_t fence; /* the highest seen */
    bool has_leader;
    struct dlc_note leader;
    int64_t heard_ns;

    /* the run's size; since begin */
    bool begun;
    struct dlc_nats_endpoint_options opt;
    char folder[DLC_PATH_MAX];
    float *theta[2], *state[2];
    void *slots[2];
    int given_slot; /* whose bytes are offered; the other one is written next */

    /* where history stands here */
    bool holds;
    uint64_t held_t;
    struct dlc_sha256 held_theta, held_record;

    /* the next step of it */
    catch_stage stage;
    int64_t question_due_ns;
    struct dlc_fact fact;
    struct dlc_snapshot snapshot;
    struct dlc_fetch_progress progress;
    bool resupply_wanted;
    uint64_t resupplied_t;

    /* messages */
    struct end_entry *first, *last;
    size_t n_queued;
    bool has_hello, hello_due;
    struct dlc_message hello, outcome, farewell; /* kind 0: none; said again to a new leader */
    bool busy; /* with the assignment given out last */
    struct dlc_message assigned;
    bool is_leaving, wants_packet;

    dlc_err failed;
    char failed_text[400];
};

/* Under the mutex. */
void end__fail(dlc_nats_endpoint *e, dlc_err err, const char *text);
void end__plan(dlc_nats_endpoint *e);
void end__say_hello(dlc_nats_endpoint *e);
void end__check_history(dlc_nats_endpoint *e);
void end__take_fact(dlc_nats_endpoint *e, const struct dlc_answer *a);
void end__take_snapshot_offer(dlc_nats_endpoint *e, const struct dlc_answer *a);
struct dlc_blob_ref end__wanted(const dlc_nats_endpoint *e);
void end__wanted_path(char out[DLC_PATH_MAX], const dlc_nats_endpoint *e);

/* The computing thread, with the mutex, which is let go meanwhile. */
bool end__may_step(const dlc_nats_endpoint *e);
dlc_err end__step(dlc_nats_endpoint *e);

void *end__listen(void *endpoint);
void *end__speak(void *endpoint);
void *end__give(void *endpoint);
void *end__fetch(void *endpoint);

#endif
