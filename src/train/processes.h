/* Islands as child processes: started, watched, started again, ended. One a run; one thread. */
#ifndef DLC_TRAIN_PROCESSES_H
#define DLC_TRAIN_PROCESSES_H

#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "exchange/local.h"

typedef struct dlc_processes dlc_processes;

/* What every island is told on its command line: where the run is, and what its data must be. */
struct dlc_islands_start {
    const char *run_folder, *run_id;
    int vocab_size;
    char data_sha256[DLC_SHA256_HEX];
};

/* The texts of `start` and the exchange stay the caller's. */
dlc_err dlc_processes_create(dlc_processes **out, int n_islands, dlc_local *exchange,
                             const struct dlc_islands_start *start);
/* Kills what is still there and waits for it. Accepts NULL. */
void dlc_processes_destroy(dlc_processes *p);

/* Connects the island anew and starts its process; its incarnation is one higher than before. */
dlc_err dlc_processes_start(dlc_processes *p, int island);
uint32_t dlc_processes_incarnation(const dlc_processes *p, int island);

/* The most memory the island's process has had; 0: not known. */
size_t dlc_processes_peak_bytes(const dlc_processes *p, int island);

/* Ends the island at once (SIGKILL). */
void dlc_processes_kill(dlc_processes *p, int island);

/* After its connection closed: waits for the process (killing it when it lingers) and tells how it ended, "signal 9
 * (Killed)" or "exit status 1". */
void dlc_processes_reap(dlc_processes *p, int island, char how[64]);

/* Waits until all have ended by themselves, at most so long, then kills the rest. */
void dlc_processes_wait_all(dlc_processes *p, double seconds);

#endif
