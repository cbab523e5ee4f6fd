/* The layout of a channel's packets: a header with the note, then whole messages. docs/protocol.md has it as a table.
 * Received bytes may be anything. */
#ifndef DLC_EXCHANGE_PACKET_H
#define DLC_EXCHANGE_PACKET_H

#include <stddef.h>
#include <stdint.h>

#include "exchange/channel.h"

#define DLC_PACKET_HEADER_BYTES 184

/* Message i of the packet has the number first + i. */
struct dlc_packet {
    uint64_t session; /* the sender's, never 0 */
    uint64_t to;      /* the session it speaks to; 0: it knows none */
    uint64_t number;  /* counts the packets of `session`, from 1 */
    uint64_t echo;    /* the highest number that came from `to` */
    uint32_t held_us; /* time from its arrival to this packet */
    uint32_t n_messages;
    uint64_t ack;   /* the last message that came from `to`, in order */
    uint64_t first; /* the first message in here, or the next to come when there are none; 0: not joined to `to` */
    struct dlc_note note;
};

/* The header appended to `out`; whole messages follow. */
dlc_err dlc_packet_encode(struct dlc_buf *out, const struct dlc_packet *p);

/* The header; *messages points behind it, at n_messages messages that are not looked at here. */
dlc_err dlc_packet_decode(struct dlc_packet *out, const void **messages, size_t *messages_bytes, const void *bytes,
                          size_t size_bytes);

#endif
