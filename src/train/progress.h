/* What a run says while it goes on: rows of metrics.jsonl, and lines (on a terminal: one line, rewritten) for people.
 *
 * A row of an inner step is written once every member of the round has reported that step (or the round was closed); its loss is their mean, in island order,
 * so the rows of two runs with the same bits are the same but for times. */
#ifndef DLC_TRAIN_PROGRESS_H
#define DLC_TRAIN_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>

#include "config/config.h"
#include "exchange/exchange.h"
#include "outer/record.h"
#include "train/evaluate.h"

typedef struct dlc_progress dlc_progress;

/* config and traffic ([dlc_config_n_identities]) stay the caller's. Appends to run_folder/metrics.jsonl. first_step: rows up to this
 * number of inner steps are there already. */
dlc_err dlc_progress_create(dlc_progress **out, const struct dlc_config *config, const char *run_folder,
                            const struct dlc_traffic *traffic, int64_t first_step, bool quiet);
void dlc_progress_destroy(dlc_progress *p); /* accepts NULL */

/* false: what follows is said, and not written to metrics.jsonl, where it is already. */
void dlc_progress_set_recording(dlc_progress *p, bool recording);

/* Where islands come and go: how many the open round has; and the record that the run goes on from. */
void dlc_progress_members(dlc_progress *p, int n_members);
void dlc_progress_goes_on(dlc_progress *p, const struct dlc_record *last);

dlc_err dlc_progress_step(dlc_progress *p, int island, const struct dlc_message *m);
/* Where the time of the round went, by the island's count: goes into the next row of an outer step. */
void dlc_progress_contribution(dlc_progress *p, const struct dlc_message *m);
/* wait_s, from the first contribution to the commit; NaN: not known. */
dlc_err dlc_progress_outer(dlc_progress *p, const struct dlc_record *record, double wait_s);
dlc_err dlc_progress_eval(dlc_progress *p, uint64_t outer_step, int64_t step, const struct dlc_eval_result *result);

/* Says who is waited for; at most once a second. */
void dlc_progress_waiting(dlc_progress *p, const int *islands, int n, double seconds);

/* Rows that wait for some islands, for a stop in mid-round; and back. */
json_t *dlc_progress_to_json(const dlc_progress *p);
dlc_err dlc_progress_from_json(dlc_progress *p, const json_t *saved, const char *where);

/* Resident memory, bytes; 0: not known. */
struct dlc_memory_use {
    size_t island_planned, island_peak; /* of the largest island; none where all islands are in this process */
    size_t own_planned, own_peak;       /* of this process */
};

/* The last words: a row with "final" and the summary, as text on standard error or as JSON on standard output. */
dlc_err dlc_progress_summary(dlc_progress *p, const struct dlc_record *last, const struct dlc_memory_use *memory,
                             bool json);

#endif
