/* Between serve.c and serve_lead.c. */
#ifndef DLC_TRAIN_SERVE_INTERNAL_H
#define DLC_TRAIN_SERVE_INTERNAL_H

#include "exchange/nats_hub.h"
#include "net/nats_server.h"
#include "train/leader.h"
#include "train/roster.h"
#include "train/serve.h"

struct dlc_serve {
    struct dlc_run *run;
    struct dlc_roster roster;
    dlc_nats_server *server; /* NULL: somebody else's */
    struct dlc_join_url lead_url, island_url;
    struct dlc_buf ca_pem;
    dlc_leader *leader;
    dlc_nats_hub *hub;
};

/* Starts a server of our own again when it died. */
dlc_err serve__watch(void *serve);

/* The lease, and the fence number that it gives; folder: the exchange's, where the number is kept. */
dlc_err serve__take_lease(dlc_serve *s, const char *folder);

/* The island at this index came in, or came back in another life: before it is told. */
dlc_err serve__log_island(dlc_serve *s, int index);

#endif
