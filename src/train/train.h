/* The main job: a run with its coordinator, and with its islands where they are on this machine. */
#ifndef DLC_TRAIN_TRAIN_H
#define DLC_TRAIN_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "config/config.h"

/* How a run is served to other machines (diloco coordinate). */
struct dlc_serve_options {
    const char *nats;         /* URL of somebody's server; NULL: one of our own */
    const char *nats_program; /* NULL: nats-server from the usual places */
    const char *listen;       /* "HOST:PORT"; NULL: every address */
    bool insecure, loopback;
    uint64_t seen_lease; /* of a standby: dlc_leader_options.seen_seq; 0: none was seen */
};

struct dlc_train_options {
    bool serving; /* exchange.kind = nats */
    struct dlc_serve_options serve;
    bool fresh; /* fail when the run folder has history */
    bool quiet, json;
};

/* `config` as given; it is resolved in place. */
dlc_err dlc_train(struct dlc_config *config, const struct dlc_train_options *options);

#endif
