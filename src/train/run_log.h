/* What the run's LOG (net/log.h) says: JSON objects, one an entry.
 *
 *   {"kind":"epoch", "fence", "holder", "t"}            somebody leads from here, with history up to t
 *   {"kind":"record", "fence", "record": line, "update"} record t, before anybody but coordinators knows it; update: the
 *                                                        digest of the encoded mean outer gradient, "" when nothing was summed
 *   {"kind":"round", "fence", "round": {...}}           the round that is open, before anybody is assigned anything
 *   {"kind":"island", "fence", "index", "island"}       who came in, before he is told
 *
 * Its end is what counts: nobody leads whose own history ends before the last record in it. The oldest entries may be gone. */
#ifndef DLC_TRAIN_RUN_LOG_H
#define DLC_TRAIN_RUN_LOG_H

#include <jansson.h>

#include "net/log.h"
#include "outer/record.h"

struct dlc_run_log {
    uint64_t seq;             /* read up to here */
    uint64_t fence;           /* the highest that an entry carries */
    uint64_t t;               /* of the last record; 0: there is none */
    struct dlc_sha256 record; /* its hash */
    json_t *round;            /* the last one that was opened; NULL: none */
    json_t *islands;          /* object: index as text -> island, the last word on each */
};

/* Zero-initialise; reads on from v->seq to the end. DLC_EPEER: the log does not answer, or two records in it do not follow
 * each other. Entries may be anything: what is none of ours is passed over. */
dlc_err dlc_run_log_read(struct dlc_run_log *v, dlc_runlog *log, const char *run_id);
/* One entry; for those who have it from elsewhere (a test). */
dlc_err dlc_run_log_take(struct dlc_run_log *v, const char *text, size_t size_bytes, const char *run_id);
void dlc_run_log_fini(struct dlc_run_log *v);

/* New references; NULL: out of memory. */
json_t *dlc_entry_epoch(uint64_t fence, const char *holder, uint64_t t);
json_t *dlc_entry_record(uint64_t fence, const char *line, const struct dlc_sha256 *update); /* update NULL: none */
json_t *dlc_entry_round(uint64_t fence, const json_t *round);
json_t *dlc_entry_island(uint64_t fence, int index, json_t *island); /* takes over island, also NULL */

#endif
