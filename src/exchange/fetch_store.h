/* What a fetch keeps on disk: path.part, the bytes, and path.map, a checksum for each chunk that is there. Killed at
 * any point, what is whole is found again: a chunk is written before its checksum, and read back against it. */
#ifndef DLC_EXCHANGE_FETCH_STORE_H
#define DLC_EXCHANGE_FETCH_STORE_H

#include "base/file.h"
#include "exchange/fetch.h"

struct dlc_fetch_store {
    struct dlc_blob_ref ref;
    char path[DLC_PATH_MAX], part[DLC_PATH_MAX], map[DLC_PATH_MAX];
    int part_fd, map_fd; /* -1: not open */
    uint32_t n_chunks, n_there;
    uint64_t bytes_there;
    unsigned char *there; /* a bit a chunk */
    bool in_place;        /* `path` is the blob */
};

/* On failure nothing is open. */
dlc_err dlc_fetch_store_open(struct dlc_fetch_store *s, const struct dlc_blob_ref *ref, const char *path);
void dlc_fetch_store_close(struct dlc_fetch_store *s);

bool dlc_fetch_store_has(const struct dlc_fetch_store *s, uint32_t index);
uint32_t dlc_fetch_store_length(const struct dlc_fetch_store *s, uint32_t index);
dlc_err dlc_fetch_store_put(struct dlc_fetch_store *s, uint32_t index, const void *chunk);

/* All chunks are there. DLC_EPEER: they are not the digest's; all are forgotten. */
dlc_err dlc_fetch_store_finish(struct dlc_fetch_store *s);

#endif
