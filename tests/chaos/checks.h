/* What a storm's run folder and its times must show. */
#ifndef DLC_CHAOS_CHECKS_H
#define DLC_CHAOS_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "schedule.h"
#include "train/run_folder.h"

/* One record's commit as the driver saw it. */
struct chaos_commit {
    double at_s;   /* since the storm's beginning; negative: before it */
    int n_running; /* islands whose process was there and not stopped */
};

struct chaos_findings {
    /* The folder. `wrong`: one line for each rule that is broken; empty when all hold. */
    struct dlc_buf wrong;
    uint64_t n_records, n_samples, n_tokens;
    uint64_t n_unused_samples; /* below the highest one that was used, in no record: on lease, or waiting to be */
    /* Shares; NaN: nothing to measure. */
    double contributing_of_alive;   /* summed members over members, mean over the rounds */
    double contributing_of_running; /* summed members over running islands, mean over the rounds of the storm */
    double survivors_steps_used;    /* of the members that had no fault in the round, weighted by steps */
    uint64_t n_late, n_refused, n_dropped;
    /* Times, seconds. */
    double round_median_s, longest_stop_s;
    double recovery_median_rounds, recovery_worst_rounds; /* next commit after an island's kill, in median rounds */
};
void chaos_findings_fini(struct chaos_findings *f);

/* Chain, hashes, ledger (no sample twice, totals), newest checkpoint is the last record's. What is broken goes into
 * f->wrong; an error is returned only where nothing can be read or memory is out. */
dlc_err chaos_check_folder(struct chaos_findings *f, struct dlc_records *records, const char *run_folder,
                           int tokens_per_sample);

/* commits[i] is of record i + 1. faults: those that were applied. */
dlc_err chaos_measure(struct chaos_findings *f, const struct dlc_records *records, const struct chaos_commit *commits,
                      size_t n_commits, const struct chaos_fault *faults, size_t n_faults);

/* theta digest (64 hexadecimal digits) that somebody says it had after outer step t, against the record's. */
dlc_err chaos_check_theta(struct chaos_findings *f, const struct dlc_records *records, uint64_t t, const char *theta,
                          const char *who);

#endif
