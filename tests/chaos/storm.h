/* One storm: a served run with N islands behind N links, and what happens to them. */
#ifndef DLC_CHAOS_STORM_H
#define DLC_CHAOS_STORM_H

#include "actors.h"
#include "checks.h"
#include "link/relay.h"
#include "schedule.h"
#include "watch.h"

#define STORM_MAX_ISLANDS 64
#define STORM_MAX_FAULTS 2000
#define STORM_MAX_RECORDS 20000

struct storm_config {
    const char *name, *about;
    struct chaos_plan plan;
    double round_s;    /* length that rounds should have; sets H */
    int n_rounds;      /* > 0: the run ends by itself after so many, and an undisturbed one must end the same */
    bool wait_for_all; /* quorum and least islands: all of them */
    double link_delay_s, link_bits_per_s;
    /* Bounds; 0: not held to any. */
    double least_steps_used, least_contributing, most_recovery_rounds, most_stop_s;
    double most_growth_bytes, most_growth_fds;
    int least_faults;
};

struct storm {
    const struct storm_config *config;
    const char *program, *folder; /* everything is below it */
    uint64_t seed;
    int64_t H;
    int port; /* of the run's server */
    char url[1024];

    struct actor coordinator, islands[STORM_MAX_ISLANDS];
    dlc_link *links[STORM_MAX_ISLANDS];
    int index[STORM_MAX_ISLANDS]; /* of island i in the records */

    struct chaos_fault faults[STORM_MAX_FAULTS];
    double ends_s[STORM_MAX_FAULTS]; /* of the faults that are on; 0: over, or not begun */
    size_t n_faults, n_begun;

    double start_s; /* of the storm: the zero of all times but those of samples */
    struct chaos_commit commits[STORM_MAX_RECORDS];
    size_t n_commits;
    uint64_t records_bytes;                              /* of records.jsonl, as far as it was counted */
    struct chaos_life lives[3 * STORM_MAX_ISLANDS + 64]; /* ended and present ones */
    size_t n_lives;
    double sampled_s;
    uint64_t store_early_bytes, store_late_bytes;
    struct chaos_findings findings;
    int n_unclean, n_theta_seen, n_left_over;
};

/* A storm from beginning to end; findings.wrong says what did not hold. An error: it could not be carried out. */
dlc_err storm_run(struct storm *s);
void storm_fini(struct storm *s);

/* One JSON object, and whether everything held. */
dlc_err storm_report(struct dlc_buf *out, bool *held, const struct storm *s);

#endif
