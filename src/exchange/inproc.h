/* The inproc exchange: hub and islands in one thread, under virtual time. Every message is encoded and decoded as on a
 * wire and delivered at a time of its own, in order per island and direction.
 *
 * Without faults this is `exchange.kind = inproc`: all islands of a run in one process, and the same bits as with
 * processes. With a seeded schedule of delays and duplicates it is the simulator under the outer engine's tests. Deaths
 * are made by whoever drives it: dlc_inproc_cut loses what was on the way, as a closed connection does. */
#ifndef DLC_EXCHANGE_INPROC_H
#define DLC_EXCHANGE_INPROC_H

#include "exchange/exchange.h"

typedef struct dlc_inproc dlc_inproc;

struct dlc_inproc_faults {
    uint64_t seed;
    int64_t delay_max_ns; /* each message takes 0 .. delay_max_ns */
    double duplicate;     /* probability that a message arrives twice */
};

/* faults: NULL for none. */
dlc_err dlc_inproc_create(dlc_inproc **out, const struct dlc_exchange_size *size,
                          const struct dlc_inproc_faults *faults);
void dlc_inproc_destroy(dlc_inproc *x); /* accepts NULL */

dlc_hub *dlc_inproc_hub(dlc_inproc *x);
dlc_endpoint *dlc_inproc_endpoint(dlc_inproc *x, int island);

/* Virtual time. recv never waits: it gives what has arrived by now. */
int64_t dlc_inproc_now_ns(const dlc_inproc *x);
void dlc_inproc_set_now(dlc_inproc *x, int64_t now_ns);
int64_t dlc_inproc_next_arrival_ns(const dlc_inproc *x); /* INT64_MAX: nothing on the way */

/* A message for the island that has arrived; *got false: none. */
dlc_err dlc_inproc_island_recv(dlc_inproc *x, int island, struct dlc_message *out, bool *got);

/* The island's connection closes: what was on the way to it is lost; what it sent arrives, and then the hub is told.
 * tell_hub false: the hub itself died, everything on the way is lost in both directions. */
void dlc_inproc_cut(dlc_inproc *x, int island, bool tell_hub);

#endif
