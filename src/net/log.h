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

typedef struct dlc_runlog dlc_runlog;

/* Over a connection of its own (the coordinator's user). Makes both streams when they are missing, with three copies
 * where the servers are three or more; an existing one is taken as it is, and never made anew under the same name.
 * DLC_EPEER: the server is not there or has no JetStream.
 * Two threads may share a log when only one of them deals with entries and only one with the lease. */
dlc_err dlc_runlog_open(dlc_runlog **out, const struct dlc_wire_options *options);
void dlc_runlog_close(dlc_runlog *log); /* accepts NULL */

/* Entries after *seq (0: from the oldest that is kept): the next one, its sequence in *seq. *got false: that was the last.
 * What is no entry of ours, or was never finished by its writer, is passed over. Both read from the stream's leader. */
dlc_err dlc_runlog_next(dlc_runlog *log, uint64_t *seq, struct dlc_buf *entry, bool *got);

/* Appends after *seq, at most 16 MiB (in parts of 256 KiB; one of a single part is there at once or not at all).
 * DLC_EPEER: *taken true: somebody else has appended, this one leads no more; false: not known, for the log has not answered
 * within some seconds. Then the same call again is right: what was stored is recognised, nothing is stored twice. */
dlc_err dlc_runlog_append(dlc_runlog *log, uint64_t *seq, const void *bytes, size_t size_bytes, bool *taken);

/* --- the lease --- */

struct dlc_lease {
    char holder[64]; /* who, for people; "": nobody any more */
    uint64_t fence;  /* grows with every change of the leader */
    uint64_t seq;    /* of the message that says so; 0: nobody ever led */
};
dlc_err dlc_lease_read(dlc_runlog *log, struct dlc_lease *out);
/* Takes (another fence) or renews (the same) by compare-and-set on lease->seq; on success seq is the new one. *taken as
 * in dlc_runlog_append. */
dlc_err dlc_lease_write(dlc_runlog *log, struct dlc_lease *lease, bool *taken);

#endif
