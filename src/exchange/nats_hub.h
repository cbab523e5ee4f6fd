/* The nats exchange, the coordinator's side. Its hub looks to the coordinator like any other: a CONTRIBUTION comes out of
 * recv once its bytes have been fetched, compared with their digest and stand in the slot (a mapped file); an ASSIGN can
 * be sent at once, the island fetches what it needs for it.
 *
 * Two connections, each with threads of its own: control (packets of every island, joins, questions) and bulk (chunks in
 * both directions). Threads share the hub's state under one mutex that is never held over a call of the network or the
 * disk. recv, send, update, publish belong to the coordinator's thread.
 *
 * An island is known by its identity (32 hexadecimal digits, made once in its folder); `admit` turns it into an index.
 * Lost: its connection closed (told by the server at once, where it is our own), or no packet for the longest silence
 * seen times 4, at least 5 s. When packets of the same life come again: DLC_MSG_BACK. */
#ifndef DLC_EXCHANGE_NATS_HUB_H
#define DLC_EXCHANGE_NATS_HUB_H

#include <jansson.h>

#include "exchange/exchange.h"
#include "net/join_url.h"
#include "outer/codecs/codec.h"

#define DLC_IDENTITY_SIZE 33

typedef struct dlc_nats_hub dlc_nats_hub;

struct dlc_nats_hub_options {
    struct dlc_exchange_size size; /* n_islands: how many there can ever be; slots are made when one is admitted */
    const struct dlc_join_url *url; /* of the server, as the leader */
    const char *ca_pem;             /* NULL: no encryption */
    const char *sys_secret;         /* NULL: closed connections show as silence only */
    const char *folder;             /* <run folder>/exchange: incoming and served bytes; emptied of what is not needed */
    const struct dlc_codec *codec;
    uint64_t fence;                 /* higher than any leader's before */
    int n_state;                    /* arrays of the outer optimizer, part of a snapshot */
    float *state[2];                /* [N], the core's */

    /* All are called from recv, in the coordinator's thread. */
    void *self;
    /* An island asks to join. DLC_OK: *index, and what else it must know (run.ini's text, ...) as an object, a new
     * reference. An error is sent as the refusal, with its text. */
    dlc_err (*admit)(void *self, const json_t *question, int *index, json_t **welcome);
    /* What `diloco status URL` shows; a new reference. */
    json_t *(*status)(void *self);
    /* The line of record t, for those who catch up; DLC_EINPUT: there is none. The caller frees with dlc_free. */
    dlc_err (*record_line)(void *self, uint64_t t, char **out);
};

dlc_err dlc_nats_hub_create(dlc_nats_hub **out, const struct dlc_nats_hub_options *options);
/* Leaves in order: a last packet to every island (leaving: it comes back; false: the run is over), then closes. */
void dlc_nats_hub_destroy(dlc_nats_hub *hub, bool leaving); /* accepts NULL */
dlc_hub *dlc_nats_hub_base(dlc_nats_hub *hub);

/* What an island is doing, for status. */
struct dlc_nats_island_info {
    bool connected;
    double silent_s;
    uint64_t held_t;      /* whose theta it holds */
    double bytes_per_s_up; /* of the fetch under way; 0: none */
    uint64_t fetched, fetch_size; /* bytes */
};
struct dlc_nats_island_info dlc_nats_hub_island(dlc_nats_hub *hub, int island);

/* Every island has acknowledged everything that was sent to it, or is lost. */
bool dlc_nats_hub_is_quiet(dlc_nats_hub *hub);

#endif
