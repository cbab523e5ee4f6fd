/* Messages between islands and coordinator: small and fixed in layout. Bulk (contributions, theta, gradients) travels
 * beside them, see exchange.h. docs/protocol.md has the layout; encode and decode stand together in message.c. */
#ifndef DLC_EXCHANGE_MESSAGE_H
#define DLC_EXCHANGE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "outer/ledger.h"

typedef enum {
    /* island to coordinator */
    DLC_MSG_HELLO = 1,        /* incarnation, states: I am here and can take an assignment; these inner states I hold */
    DLC_MSG_PROGRESS = 2,     /* t, attempt, step, loss, lr, grad_norm, seconds: one inner step is done */
    DLC_MSG_GRADIENT = 3,     /* t, attempt, step: my gradient stands in my slot (data parallelism) */
    DLC_MSG_CONTRIBUTION = 4, /* t, attempt, digest, size_bytes, states, seconds, data_s, outer_s: my outer gradient is in
                               * my slot; its inner steps took so many seconds, and outer_s passed between the last one
                               * of the round before and the first one of this */
    DLC_MSG_NONFINITE = 5,    /* t, attempt, step, loss, text */
    DLC_MSG_PAUSED = 6,       /* t, attempt, step: stopped before this inner step, state is saved */
    DLC_MSG_FAILED = 7,       /* code, text: this island cannot go on */
    DLC_MSG_RESUPPLY = 8,     /* t, attempt: theta(t-1) arrived with another digest than assigned */
    DLC_MSG_LEAVE = 9,        /* t, attempt, text: I leave for good or for long; what I was lent is free at once */

    /* coordinator to island */
    DLC_MSG_ASSIGN = 20, /* incarnation (0: any), t, attempt, first_step, n_steps, state_step, own_params, digest of
                          * theta(t-1), ranges */
    DLC_MSG_MEAN = 21,   /* t, attempt, step: the mean gradient is there */
    DLC_MSG_PAUSE = 22,  /* finish the inner step, save, answer PAUSED */
    DLC_MSG_FINISH = 23, /* the run is over: leave */
    DLC_MSG_DISMISS = 24, /* code, text: leave, for this reason */

    /* never on a wire: a hub says it of an island that it had reported lost for its silence alone and that goes on, in
     * the same life, as if nothing had happened */
    DLC_MSG_BACK = 100
} dlc_message_kind;

struct dlc_message {
    dlc_message_kind kind;
    uint32_t incarnation;
    uint64_t t;
    uint32_t attempt;
    int64_t step, first_step, n_steps;
    uint64_t state_step;
    bool own_params;
    uint64_t size_bytes;
    struct dlc_sha256 digest;
    double loss, lr, grad_norm, seconds; /* loss: mean over the step's tokens, nats */
    double data_s, outer_s;              /* of waiting for samples; outside of inner steps */
    dlc_err code;
    bool states_known;  /* HELLO, CONTRIBUTION: `states` says what the island holds; otherwise it holds what it should */
    uint64_t states[2]; /* outer steps whose inner states are on the island's disk, newest first; 0: none */
    char text[200];
    struct dlc_ranges ranges; /* owned by the message */
};

#define DLC_MESSAGE_MAX_BYTES 65536
#define DLC_MESSAGE_HEADER_BYTES 12 /* magic u32, version u16, kind u16, body bytes u32 */

void dlc_message_fini(struct dlc_message *m);

/* Header and body appended to `out` (a dlc_buf's content may be sent as it is). */
struct dlc_buf;
dlc_err dlc_message_encode(struct dlc_buf *out, const struct dlc_message *m);

/* Length of the whole message that starts at `bytes` (DLC_MESSAGE_HEADER_BYTES of it are there), or an error when it is
 * not one of ours: wrong magic, another version, longer than DLC_MESSAGE_MAX_BYTES. */
dlc_err dlc_message_length(size_t *out, const void *header);

/* A whole message. Any bytes are safe. The caller owns *out (dlc_message_fini). */
dlc_err dlc_message_decode(struct dlc_message *out, const void *bytes, size_t size_bytes);

#endif
