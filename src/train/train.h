/* The main job: coordinator and islands of one run on one machine. */
#ifndef DLC_TRAIN_TRAIN_H
#define DLC_TRAIN_TRAIN_H

#include <stdbool.h>

#include "base/err.h"
#include "config/config.h"

struct dlc_train_options {
    bool fresh; /* fail when the run folder has history */
    bool quiet, json;
};

/* `config` as given; it is resolved in place. */
dlc_err dlc_train(struct dlc_config *config, const struct dlc_train_options *options);

#endif
