/* diloco join: one island of a run that is served from another machine. */
#ifndef DLC_ISLAND_JOIN_H
#define DLC_ISLAND_JOIN_H

#include <stdbool.h>

#include "config/config.h"

struct dlc_join_options {
    const char *url;
    const char *name; /* NULL: the machine's */
    bool quiet;
    bool json; /* at the end a line on standard output: {"t": ..., "theta": "<digest>"}, the parameters held last */
};

/* `given`: what was said on the command line: data.path, train.out (the island's folder), system.*, train.precision,
 * train.micro_batch; the rest is the run's. Trains until the run is over (DLC_OK), a signal stopped it (DLC_ESTOPPED), the
 * coordinator does not come back or sends it away (DLC_EPEER), or something fails. */
dlc_err dlc_join(const struct dlc_config *given, const struct dlc_join_options *options);

#endif
