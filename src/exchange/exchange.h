/* The exchange: how messages and bulk travel between the coordinator and its islands.
 *
 * Two ends, each a table of functions. The coordinator holds the hub, every island an endpoint. An implementation
 * (inproc.h, local.h) makes both and passes the conformance suite (exchange_test.c) under its own name.
 *
 * Messages between one island and the hub keep their order; nothing is promised between islands. Bulk does not travel
 * in messages: an island writes into its slot and then says so, the hub reads the slot until the round in which it counts is closed;
 * theta(t) stands where the hub put it until round t + 1 is closed. Bytes of bulk are counted where they would cross
 * a wire. */
#ifndef DLC_EXCHANGE_EXCHANGE_H
#define DLC_EXCHANGE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "exchange/message.h"
#include "outer/record.h"

struct dlc_traffic {
    uint64_t bytes_up, bytes_down; /* island to hub, hub to island; messages and bulk */
};

typedef struct dlc_hub dlc_hub;
struct dlc_hub_ops {
    /* The next message, waiting until deadline_ns (monotonic; 0: do not wait) at most. *got false: none came in time,
     * or the wait was interrupted by a signal. *lost true: the island's connection closed (or it sent what is no
     * message); said once, after everything it had sent, there is no message. The caller owns *out (dlc_message_fini).
     * Blocks; one thread. */
    dlc_err (*recv)(dlc_hub *hub, int *island, struct dlc_message *out, bool *lost, bool *got, int64_t deadline_ns);

    /* Never waits for the island, and sending to one that is not there is no error: an island that cannot take it is
     * reported as lost by recv. What was sent to a dead island is lost, or reaches its next life: messages say which
     * round and attempt they are of. m stays the caller's. */
    dlc_err (*send)(dlc_hub *hub, int island, const struct dlc_message *m);

    int64_t (*now_ns)(dlc_hub *hub); /* monotonic; virtual under inproc */

    const void *(*slot)(dlc_hub *hub, int island); /* what the island wrote */
    float *(*theta)(dlc_hub *hub, int which);      /* [N], which = t & 1 */
    float *(*mean)(dlc_hub *hub);                  /* [N], data parallelism only */

    /* Where islands do not see the hub's memory; both NULL otherwise.
     * update: where the core writes the encoded mean outer gradient of step t (codec->size_bytes(N)), from which every
     * island takes the same outer step; stays the hub's.
     * publish: record t is durable, so theta(t) may be known; from now on update t and a snapshot of theta(t) can be
     * fetched. Where no member was summed or carried there is
     * no update, and theta(t) is theta(t-1). Once for each step, before the assignments of
     * t + 1, and once after a resume (t may be 0). */
    void *(*update)(dlc_hub *hub, uint64_t t);
    dlc_err (*publish)(dlc_hub *hub, const struct dlc_record *record, const struct dlc_sha256 *theta);
};
struct dlc_hub {
    const struct dlc_hub_ops *ops;
    int n_islands;
    struct dlc_traffic *traffic; /* [n_islands], kept by the implementation (messages) and by the coordinator (bulk) */
};

typedef struct dlc_endpoint dlc_endpoint;
struct dlc_endpoint_ops {
    dlc_err (*send)(dlc_endpoint *ep, const struct dlc_message *m); /* DLC_EPEER: the coordinator is gone */
    void *(*slot)(dlc_endpoint *ep); /* to write the contribution or gradient into */
    const float *(*theta)(dlc_endpoint *ep, uint64_t t); /* theta(t) [N]; stays while round t + 1 is open */
    const float *(*mean)(dlc_endpoint *ep);
};
struct dlc_endpoint {
    const struct dlc_endpoint_ops *ops;
};

struct dlc_exchange_size {
    int n_islands;
    size_t n_params;   /* N */
    size_t slot_bytes; /* the larger of an encoded contribution and, with data parallelism, 4 N */
    bool lockstep;     /* a mean gradient is needed */
};

#endif
