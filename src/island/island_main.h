/* An island as a process of its own, started by the coordinator on the same machine (exchange: local). */
#ifndef DLC_ISLAND_ISLAND_MAIN_H
#define DLC_ISLAND_ISLAND_MAIN_H

#include "backend/backend.h"
#include "config/config.h"
#include "island/island.h"

struct dlc_island_args {
    const char *run_folder;
    const char *run_id;
    long parent; /* process id of the coordinator */
    int vocab_size;
    struct dlc_sha256 data_digest; /* what the data must be */
    int index;
    uint32_t incarnation;
    int socket_fd, memory_fd; /* taken over */
};

/* Trains until the run is over or paused (DLC_OK), the coordinator is gone (DLC_EPEER) or something fails. *reported:
 * the coordinator was told of the failure, and will say it. config: run.ini of the run folder, resolved; the
 * vocabulary's size is filled in. */
dlc_err dlc_island_main(struct dlc_config *config, const struct dlc_island_args *args, bool *reported);

/* The configuration of an island, and the sizes of the exchange, that coordinator and island derive alike. */
struct dlc_island_config dlc_island_config_of(const struct dlc_config *config, int index, uint32_t incarnation);
struct dlc_exchange_size dlc_exchange_size_of(const struct dlc_config *config);
const struct dlc_codec *dlc_codec_of(const struct dlc_config *config);
struct dlc_outer_opt dlc_outer_opt_of(const struct dlc_config *config);

/* system.pin: the threads of island `index` to cores of their own, after those of the islands before it. */
void dlc_island_pin(const struct dlc_config *config, int index, dlc_backend *backend);

#endif
