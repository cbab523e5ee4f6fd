/* One connection to a NATS server, as the exchange uses it: publish, subscribe, request. With log.c the only file that knows
 * the client library; what its version cannot do, or does wrongly, is worked around in wire.c and told there.
 *
 * NATS is a wire, not a memory: what is sent may be lost when a connection breaks, and nothing is queued meanwhile.
 * Calls may block for seconds while the library reconnects, so only threads that do nothing but network call them. */
#ifndef DLC_NET_WIRE_H
#define DLC_NET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct dlc_wire dlc_wire;
typedef struct dlc_wire_sub dlc_wire_sub;

struct dlc_wire_options {
    const char *host;
    int port;
    const char *run; /* the certificate's name is "<run>.diloco" */
    const char *user, *secret;
    const char *ca_pem; /* the run's certificate authority; NULL: no encryption (--insecure) */
    const char *name;   /* shown by the server: "isle-3/control" */
    bool bulk;          /* long deadlines: its pings queue behind data; control: a dead peer is noticed in 4 to 6 s */

    /* Called from a thread of the library when the connection breaks or is there again. Must only set a flag. */
    void (*on_state)(void *self, bool connected);
    void *self;
};

/* Before anything else in the program uses OpenSSL; once. DLC_EFAIL in a build without NATS, with what it lacks. */
dlc_err dlc_wire_init(void);
bool dlc_wire_is_built(void);

/* DLC_EPEER: not reachable, refused, another certificate; the text says which. Afterwards it reconnects by itself. */
dlc_err dlc_wire_connect(dlc_wire **out, const struct dlc_wire_options *options);
/* Ends every wait on it, for good: from now on calls return DLC_EPEER. Accepts NULL. With threads on the connection: stop,
 * join them, close; or close alone when none of them calls again after its first DLC_EPEER. */
void dlc_wire_stop(dlc_wire *w);
void dlc_wire_close(dlc_wire *w); /* accepts NULL; stops, and waits for the calls that are under way */
bool dlc_wire_is_connected(const dlc_wire *w); /* never blocks */
size_t dlc_wire_max_payload(const dlc_wire *w); /* of the server, bytes; never blocks */
uint64_t dlc_wire_n_refused(const dlc_wire *w); /* times the server said that this user may not; comes a moment later */

/* For the life of the connection: subscribe first, then let traffic come. */
dlc_err dlc_wire_subscribe(dlc_wire_sub **out, dlc_wire *w, const char *subject);

struct dlc_wire_msg {
    const char *subject, *reply; /* reply NULL: none wanted */
    const void *bytes;
    size_t size_bytes;
    bool no_responders; /* nobody listens where a request went (which of several is not known: subject "") */
    void *handle;
};

/* The next message; *got false: none within timeout_ms. DLC_EPEER: the connection is closed for good. Free with
 * dlc_wire_msg_free. */
dlc_err dlc_wire_next(dlc_wire_sub *sub, struct dlc_wire_msg *out, bool *got, int timeout_ms);
void dlc_wire_msg_free(struct dlc_wire_msg *m);

/* DLC_EPEER while there is no connection: nothing was sent and nothing will be. */
dlc_err dlc_wire_publish(dlc_wire *w, const char *subject, const char *reply, const void *bytes, size_t size_bytes);

/* A subject below which this connection receives replies, for its whole life: "_I.<run>.<random>", with "_L" for the user
 * "lead". Subscribe to "<inbox>.>" and use "<inbox>.<anything>" as reply. */
const char *dlc_wire_inbox(const dlc_wire *w);

/* Ask and wait: for the few small questions before and beside a run. *got false: no answer in time. */
dlc_err dlc_wire_request(dlc_wire *w, const char *subject, const void *bytes, size_t size_bytes,
                         struct dlc_wire_msg *out, bool *got, int timeout_ms);

#endif
