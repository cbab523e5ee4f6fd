/* Bytes that are offered by the digest of the whole, to whoever asks for chunks of them: files, mapped. A blob stays
 * valid while somebody uses it, also when it was dropped meanwhile. Any thread. */
#ifndef DLC_EXCHANGE_NATS_BLOB_H
#define DLC_EXCHANGE_NATS_BLOB_H

#include "exchange/channel.h"
#include "net/wire.h"

/* A file of this size mapped for writing, made anew (all zeros) or, keep, taken as it is when its size is right. */
dlc_err dlc_map_writable(void **out, const char *path, size_t size_bytes, bool keep);
void dlc_unmap(void *bytes, size_t size_bytes); /* accepts NULL */

typedef enum {
    DLC_BLOB_CONTRIBUTION, /* memory of the owner's; dropping it waits until nobody uses it */
    DLC_BLOB_UPDATE,       /* the rest: mapping and file end with the blob */
    DLC_BLOB_SNAPSHOT
} dlc_blob_kind;

struct dlc_blob {
    dlc_blob_kind kind;
    uint64_t t;
    struct dlc_blob_ref ref;
    void *bytes;
    char *path; /* removed with the blob; NULL: no file */
    int64_t used_ns;
    int n_users;
    bool dropped;
    struct dlc_blob *next;
};

typedef struct dlc_blobs dlc_blobs;
dlc_err dlc_blobs_create(dlc_blobs **out);
/* Nobody uses any. Files stay where keep_files. Accepts NULL. */
void dlc_blobs_destroy(dlc_blobs *bs, bool keep_files);

/* The blob owns the mapping `bytes` (but for contributions) from now on, also on failure. path: copied; may be NULL. */
dlc_err dlc_blobs_add(dlc_blobs *bs, dlc_blob_kind kind, uint64_t t, const struct dlc_blob_ref *ref, void *bytes,
                      const char *path, int64_t now_ns);

/* NULL: there is none. */
struct dlc_blob *dlc_blobs_use(dlc_blobs *bs, const struct dlc_sha256 *digest, int64_t now_ns);
void dlc_blobs_release(dlc_blobs *bs, struct dlc_blob *blob);

/* The newest of this kind with from_t <= t; NULL ref size: none. */
bool dlc_blobs_find(dlc_blobs *bs, dlc_blob_kind kind, uint64_t from_t, struct dlc_blob_ref *ref, uint64_t *t);
/* Of exactly this t. */
bool dlc_blobs_of(dlc_blobs *bs, dlc_blob_kind kind, uint64_t t, struct dlc_blob_ref *ref);

/* Those of the kind that are of a t below `below_t` and were not used since unused_since_ns. */
void dlc_blobs_drop(dlc_blobs *bs, dlc_blob_kind kind, uint64_t below_t, int64_t unused_since_ns);
/* The contribution in these bytes; waits for its users (the copy of one chunk). */
void dlc_blobs_drop_bytes(dlc_blobs *bs, const void *bytes);

/* Answers one question for a chunk: the bytes of the answer stand in `out` afterwards. DLC_EPEER: no question of ours. */
dlc_err dlc_blobs_answer(dlc_blobs *bs, struct dlc_buf *out, const struct dlc_wire_msg *ask, int64_t now_ns);

#endif
