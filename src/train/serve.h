/* A run that is served to islands on other machines: its nats-server, hub, roster, and what the coordinator keeps
 * between two lives. dlc_run (run.h) does the rest as for a run on one machine. */
#ifndef DLC_TRAIN_SERVE_H
#define DLC_TRAIN_SERVE_H

#include <jansson.h>

#include "exchange/exchange.h"
#include "train/train.h"

struct dlc_run;
typedef struct dlc_serve dlc_serve;

/* Server, certificates, fence number, hub. The run's configuration is resolved, its identity known and the arrays of the
 * outer optimizer's state allocated. old: the run has history. */
dlc_err dlc_serve_open(dlc_serve **out, struct dlc_run *run, bool old);
/* leaving: the run goes on later. Accepts NULL. */
void dlc_serve_close(dlc_serve *s, bool leaving);
dlc_hub *dlc_serve_hub(dlc_serve *s);

/* The line to paste on other machines, on standard output. */
void dlc_serve_say_join(const dlc_serve *s);

/* Before the coordinator says its first word: nobody who led before can write any more, and the history here is the run's.
 * DLC_EPEER otherwise. The core stands. */
dlc_err dlc_serve_lead(dlc_serve *s);
bool dlc_serve_leads(dlc_serve *s); /* false: somebody else has taken over */

/* Record t is durable here and its update stands in the hub: now for the others' eyes. DLC_EPEER: somebody else leads, and
 * nobody may hear of this record. */
dlc_err dlc_serve_keep_record(dlc_serve *s, const struct dlc_record *record);

/* Every now and then: restarts a server that died, says what an operator wants to know. DLC_EPEER: somebody else leads. */
dlc_err dlc_serve_turn(dlc_serve *s);

/* Until every island has acknowledged that the run is over, at most so long. */
bool dlc_serve_is_quiet(dlc_serve *s);

/* The round that is open (round.json), kept before anybody is assigned anything; and read back: NULL when there is none
 * of outer step t + 1. */
dlc_err dlc_serve_keep_round(dlc_serve *s, const json_t *round);
dlc_err dlc_serve_read_round(json_t **out, const char *run_folder, uint64_t t);

#endif
