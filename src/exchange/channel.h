/* Messages in order and exactly once over a road that loses, repeats and delays whole packets (NATS core publish).
 *
 * Each end numbers its packets and its messages. A packet holds a note (who I am, where I stand), the number of the
 * last message that came, the highest number of a packet that came (the echo), and messages. One without messages is
 * the heartbeat, and one a second is always due, so that nothing depends on a single packet.
 *
 * A message is repeated when the peer has echoed the packet that held it, or a later one, and has not acknowledged
 * it: then it was lost (or the road changed the order). On a road that keeps the order nothing is ever repeated while
 * the first copy can still be under way, however long the queues are. An empty packet asks when no acknowledgement
 * came within a time drawn from the round trips seen.
 *
 * An end has a session, drawn at random when its process (or its leadership) begins. A session of the peer is joined
 * once it has echoed a packet that was addressed to it by name: so it lives now, and late packets of an earlier life
 * never take its place. A new session begins everything afresh: numbers, and what was under way, in both directions;
 * the one before it is given up for good.
 *
 * Pure: bytes and time in, bytes out. One thread, or the caller's lock. docs/protocol.md has the layout. Received bytes
 * may be anything. */
#ifndef DLC_EXCHANGE_CHANNEL_H
#define DLC_EXCHANGE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "exchange/message.h"

#define DLC_PACKET_MAX_BYTES (131072 + 1024) /* two of the longest messages; far below any server's max_payload */
#define DLC_HEARTBEAT_NS 1000000000LL

/* Bytes that are fetched by their digest: a contribution, an update, a snapshot. */
struct dlc_blob_ref {
    struct dlc_sha256 digest;
    uint64_t size_bytes;
};

/* Rides on every packet; a lost one does not matter. */
struct dlc_note {
    uint64_t fence;           /* leader: its number; island: the highest seen. Lower ones are refused by islands */
    uint64_t t;               /* leader: last committed outer step; island: the one whose theta it holds */
    struct dlc_sha256 theta;  /* of that step */
    struct dlc_sha256 record; /* hash of that step's record; zero for t = 0 */
    struct dlc_blob_ref update; /* leader: update t; size 0: none (t = 0, or nothing was summed) */
    uint8_t flags;
};
enum { DLC_NOTE_LEAVING = 1 }; /* leader: it stops in order and comes back; island: this is its last packet */

typedef struct dlc_channel dlc_channel;

/* session: random, not 0. */
dlc_err dlc_channel_create(dlc_channel **out, uint64_t session);
void dlc_channel_destroy(dlc_channel *c); /* accepts NULL */

/* Queues m (encoded; m stays the caller's). Before the first peer it waits for it; what waits when a peer's place is
 * taken by a new session is dropped, and the caller says again what matters. DLC_EPEER: over 4 MiB wait for a peer that
 * does not acknowledge. */
dlc_err dlc_channel_send(dlc_channel *c, const struct dlc_message *m);

/* When the next packet is due: at once (0) after a send, when an acknowledgement or an answer to a new session is
 * owed; after a time drawn from the round trips seen (at least 0.2 s) when something was not acknowledged; and a
 * heartbeat after the last packet at the latest. Ask again after each packet and each receive, whatever it returned. */
int64_t dlc_channel_due_ns(const dlc_channel *c);

/* The packet to send now, in place of out's content. */
dlc_err dlc_channel_packet(dlc_channel *c, struct dlc_buf *out, const struct dlc_note *note, int64_t now_ns);

/* The note of a packet, for who must know it before the channel does: an island gives a packet of a lower fence to no
 * channel. DLC_EPEER: not a packet of ours. */
dlc_err dlc_channel_peek(struct dlc_note *note, const void *bytes, size_t size_bytes);

/* Takes a packet. *note: the newest that this session said. *fresh: the peer's new session was joined by this packet.
 * DLC_ENOTFOUND: of a session that is not joined yet; the packets due next do that, and *note says nothing.
 * DLC_EPEER: not a packet of ours, another version, or of a session that was given up; nothing changed. */
dlc_err dlc_channel_receive(dlc_channel *c, struct dlc_note *note, bool *fresh, const void *bytes, size_t size_bytes,
                            int64_t now_ns);

/* The next message in order; the caller owns it. */
bool dlc_channel_next(dlc_channel *c, struct dlc_message *out);

bool dlc_channel_is_joined(const dlc_channel *c);
int64_t dlc_channel_heard_ns(const dlc_channel *c); /* when the last packet came; 0: never */
size_t dlc_channel_unacknowledged(const dlc_channel *c);

#endif
