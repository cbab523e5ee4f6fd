/* Messages over a stream socket: what has been read so far, cut into messages. */
#ifndef DLC_EXCHANGE_STREAM_H
#define DLC_EXCHANGE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "exchange/message.h"

struct dlc_stream {
    int fd; /* -1: none */
    struct dlc_buf in, out; /* received and not yet used; not yet taken by the socket */
    uint64_t n_read;        /* bytes of the messages that dlc_stream_next gave */
};

void dlc_stream_close(struct dlc_stream *s);

/* Reads what is there without waiting, as long as less than two of the longest messages lie unused: whoever sends
 * without end is held up and not stored. *closed true when the other side has closed (what came before stays
 * readable). */
dlc_err dlc_stream_fill(struct dlc_stream *s, bool *closed);
/* The next whole message out of what was read. */
dlc_err dlc_stream_next(struct dlc_stream *s, struct dlc_message *out, bool *got);

/* Queues a message and sends as much as the socket takes without waiting. *encoded_bytes (may be NULL): its size.
 * DLC_EPEER: the other side is gone, or it has not read for so long that over 1 MiB waits. */
dlc_err dlc_stream_send(struct dlc_stream *s, const struct dlc_message *m, size_t *encoded_bytes);
dlc_err dlc_stream_flush(struct dlc_stream *s);

#endif
