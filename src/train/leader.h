/* Who leads a run: the lease, and the log that only its holder can append to. docs/protocol.md section 10.
 *
 * A coordinator leads from dlc_leader_take until somebody else has taken the lease, which can only happen after it was
 * not renewed for DLC_LEASE_S. It may not know at once (it slept), so nothing is made known that was not appended to the
 * log before: there the newcomer's first entry is in its way. */
#ifndef DLC_TRAIN_LEADER_H
#define DLC_TRAIN_LEADER_H

#include <jansson.h>
#include <stdbool.h>

#include "net/join_url.h"
#include "outer/record.h"
#include "train/run_log.h"

#define DLC_LEASE_S 8.0

typedef struct dlc_leader dlc_leader;

struct dlc_leader_options {
    const struct dlc_join_url *url; /* as the leader; url->run is the run */
    const char *ca_pem;             /* NULL: no encryption */
    const char *run_folder;         /* says whether the lease is this coordinator's own of before */
    uint64_t fence;                 /* the highest known: the new one is higher */
    uint64_t seen_seq;              /* this lease was seen unchanged for DLC_LEASE_S already; 0: none was */
};

/* Takes the lease: at once when it is free, or of an earlier life of this folder (whose lock the caller holds); else it is
 * waited out. Renews it from then on, in a thread. DLC_EPEER: somebody leads (the text names him), or the network;
 * DLC_ESTOPPED. */
dlc_err dlc_leader_take(dlc_leader **out, const struct dlc_leader_options *options);
/* give_up: somebody else may lead at once. Accepts NULL. */
void dlc_leader_close(dlc_leader *l, bool give_up);
uint64_t dlc_leader_fence(const dlc_leader *l);

/* Before anything is led: reads the log to its end, and writes that a new epoch begins. From then on no earlier leader can
 * append. Compare what dlc_leader_log says then with what is here. */
dlc_err dlc_leader_begin(dlc_leader *l, uint64_t t);
const struct dlc_run_log *dlc_leader_log(const dlc_leader *l);

/* Takes over entry (NULL: out of memory). Goes on trying while the server does not answer; `turn` (may be NULL) is called
 * meanwhile. DLC_EPEER: this one leads no more. DLC_ESTOPPED: a signal came, nothing is known. */
dlc_err dlc_leader_append(dlc_leader *l, json_t *entry, dlc_err (*turn)(void *self), void *self);

/* DLC_EPEER when it is known already that somebody else leads, with his name. Never blocks. */
dlc_err dlc_leader_check(dlc_leader *l);
bool dlc_leader_is_lost(dlc_leader *l);

/* The holder's text without what only programs read. */
void dlc_lease_name(char out[64], const char *holder);

#endif
