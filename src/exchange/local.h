/* The local exchange: islands as processes on one machine. Messages go over a socket pair each, bulk through one block
 * of shared memory: theta twice, a slot an island and, for data parallelism, the mean gradient.
 *
 * The memory is an unlinked file in memory (memfd; elsewhere an unlinked file in the run folder), never /dev/shm, which
 * is 64 MB in many containers. A process that dies closes its socket, which the other side sees at once. */
#ifndef DLC_EXCHANGE_LOCAL_H
#define DLC_EXCHANGE_LOCAL_H

#include "exchange/exchange.h"

typedef struct dlc_local dlc_local;

/* --- the coordinator's side --- */

/* fallback_folder: where the memory's file is made on systems without memfd. */
dlc_err dlc_local_create(dlc_local **out, const struct dlc_exchange_size *size, const char *fallback_folder);
void dlc_local_destroy(dlc_local *x); /* accepts NULL; closes all connections */
dlc_hub *dlc_local_hub(dlc_local *x);
int dlc_local_memory_fd(const dlc_local *x);

/* A fresh connection for the island, in place of an older one. *child_fd is the island's end: hand it to the new
 * process and close it here. Both are close-on-exec. */
dlc_err dlc_local_connect(dlc_local *x, int island, int *child_fd);
/* Forgets the connection without a report. */
void dlc_local_disconnect(dlc_local *x, int island);

/* --- an island's side --- */

typedef struct dlc_local_endpoint dlc_local_endpoint;

/* Takes over both descriptors. */
dlc_err dlc_local_attach(dlc_local_endpoint **out, const struct dlc_exchange_size *size, int island, int socket_fd,
                         int memory_fd);
void dlc_local_detach(dlc_local_endpoint *ep); /* accepts NULL */
dlc_endpoint *dlc_local_endpoint_base(dlc_local_endpoint *ep);

/* The next message; wait false: *got may be false. DLC_EPEER: the coordinator is gone. The caller owns *out. */
dlc_err dlc_local_endpoint_recv(dlc_local_endpoint *ep, struct dlc_message *out, bool *got, bool wait);

#endif
