/* The nats exchange, an island's side: holds theta and the outer state of its own, takes the outer step of every round
 * itself from the update that the coordinator sends, and compares the digest with the record's. A joiner, or one that
 * was away too long, fetches a snapshot and catches up. An ASSIGN comes out of recv only when theta(t-1) stands.
 *
 * The computing thread calls send, slot, theta and recv; network threads do the rest, also while it computes: heartbeats,
 * chunks of the contribution, the next update. Nothing here waits for the network but recv.
 *
 * The coordinator may vanish and come back, also as another machine with a higher fence: the endpoint says HELLO again
 * and repeats the contribution that no record has used yet. */
#ifndef DLC_EXCHANGE_NATS_ENDPOINT_H
#define DLC_EXCHANGE_NATS_ENDPOINT_H

#include <jansson.h>

#include "exchange/exchange.h"
#include "base/pool.h"
#include "exchange/nats_hub.h"
#include "outer/outer_opt.h"

typedef struct dlc_nats_endpoint dlc_nats_endpoint;

/* Asks to join: `question` goes to the coordinator's `admit`. *welcome: its answer (new reference; "index" and
 * "n_islands" are in it). Waits at most patience_s for a coordinator to be there, saying so. DLC_EPEER: none, or the
 * network; any other error is the coordinator's refusal with its text. Leaves *out able to receive, with nothing of the
 * run's size allocated yet. */
dlc_err dlc_nats_join(dlc_nats_endpoint **out, const struct dlc_join_url *url, const char *ca_pem,
                      const char identity[DLC_IDENTITY_SIZE], uint32_t incarnation, const json_t *question,
                      json_t **welcome, double patience_s);

struct dlc_nats_endpoint_options {
    size_t n_params; /* N */
    size_t slot_bytes;
    const struct dlc_codec *codec;
    struct dlc_outer_opt opt;
    dlc_pool *pool;     /* for the outer step; may be NULL; used by the computing thread only */
    const char *folder; /* the island's own: what is fetched comes here */
};
/* Everything big is allocated here. After it send, slot and theta work; HELLO is passed on once theta stands. */
dlc_err dlc_nats_endpoint_begin(dlc_nats_endpoint *ep, const struct dlc_nats_endpoint_options *options);

/* A last packet, everything sent acknowledged (at most 3 s), then closes. Accepts NULL. */
void dlc_nats_endpoint_destroy(dlc_nats_endpoint *ep);
dlc_endpoint *dlc_nats_endpoint_base(dlc_nats_endpoint *ep);

/* The next message; waits until deadline_ns (monotonic; 0: not at all). The caller owns *out. DLC_EPEER: the coordinator
 * was gone for longer than patience_s, or its history is not the one this island holds (the text says which). */
dlc_err dlc_nats_endpoint_recv(dlc_nats_endpoint *ep, struct dlc_message *out, bool *got, int64_t deadline_ns);

/* For people: "catching up: 40 of 120 MB", "the coordinator is silent for 12 s", ...; empty: nothing to say. */
void dlc_nats_endpoint_state(dlc_nats_endpoint *ep, char text[160]);

/* Whose parameters stand here; false: none yet. */
bool dlc_nats_endpoint_held(const dlc_nats_endpoint *ep, uint64_t *t, struct dlc_sha256 *theta);

struct dlc_traffic dlc_nats_endpoint_traffic(const dlc_nats_endpoint *ep);

#endif
