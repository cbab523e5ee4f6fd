/* The shared memory of the local exchange: one layout, mapped by the coordinator and by every island. */
#ifndef DLC_EXCHANGE_LOCAL_MEMORY_H
#define DLC_EXCHANGE_LOCAL_MEMORY_H

#include "exchange/exchange.h"

struct dlc_local_memory {
    unsigned char *base;
    size_t size_bytes;
    float *theta[2];
    float *mean;          /* NULL unless lockstep */
    unsigned char *slots; /* n_islands of them, slot_stride apart */
    size_t slot_stride;
};

/* A new file of the right size, unlinked, close-on-exec. */
dlc_err dlc_local_memory_create(int *out_fd, const struct dlc_exchange_size *size, const char *fallback_folder);
/* DLC_EPEER when the file is not of the size that `size` gives: the two programs do not agree. */
dlc_err dlc_local_memory_map(struct dlc_local_memory *out, int fd, const struct dlc_exchange_size *size);
void dlc_local_memory_unmap(struct dlc_local_memory *m);

#endif
