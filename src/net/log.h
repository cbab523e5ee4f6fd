/* Two small logs of a run on the NATS server (JetStream): what was decided, and who leads. Used where several
 * coordinators stand by for each other; the truth stays what each has made durable on its own disk.
 *
 * LOG is appended by compare-and-set on the stream's last sequence, so a leader that was asleep while another took over
 * cannot append any more. LEASE is renewed the same way. No time of the server counts: a candidate takes over when the
 * lease stayed the same for LEASE seconds on its own clock, with every read in between successful. */
#ifndef DLC_NET_LOG_H
#define DLC_NET_LOG_H

#include "base/buf.h"
#include "net/wire.h"

typedef struct dlc_log dlc_log;

/* Over a connection of its own (the coordinator's user). Makes both streams when they are missing; an existing one is
 * taken as it is, and never made anew under the same name. DLC_EPEER: the server is not there or has no JetStream. */
dlc_err dlc_log_open(dlc_log **out, const struct dlc_wire_options *options);
void dlc_log_close(dlc_log *log); /* accepts NULL */

/* Entries after *seq (0: from the beginning): the next one, its sequence in *seq. *got false: that was the last. */
dlc_err dlc_log_next(dlc_log *log, uint64_t *seq, struct dlc_buf *entry, bool *got);

/* Appends after *seq. DLC_EPEER: *taken true: somebody else has appended, this one leads no more; false: not known
 * (time-out): read on and compare. */
dlc_err dlc_log_append(dlc_log *log, uint64_t *seq, const void *bytes, size_t size_bytes, bool *taken);

/* --- the lease --- */

struct dlc_lease {
    char holder[64]; /* who, for people */
    uint64_t fence;  /* grows with every change of the leader */
    uint64_t seq;    /* of the message that says so; 0: nobody ever led */
};
dlc_err dlc_lease_read(dlc_log *log, struct dlc_lease *out);
/* Takes (another fence) or renews (the same) by compare-and-set on lease->seq; on success seq is the new one. *taken as
 * in dlc_log_append. */
dlc_err dlc_lease_write(dlc_log *log, struct dlc_lease *lease, bool *taken);

#endif
