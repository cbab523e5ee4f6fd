/* Bulk: whoever wants bytes asks for them, chunk by chunk, by the digest of the whole. The sender keeps nothing but the
 * bytes themselves and answers any question at any time; the receiver decides how much is under way, remembers on disk
 * what it has, and so goes on after a break of either side or of the road.
 *
 * A question is (digest, chunk index), an answer a header with checksum and the chunk's bytes. Pure, but for the file;
 * time comes from outside. docs/protocol.md has the layouts. Received bytes may be anything. */
#ifndef DLC_EXCHANGE_FETCH_H
#define DLC_EXCHANGE_FETCH_H

#include "exchange/channel.h"

#define DLC_CHUNK_BYTES ((size_t)256 << 10)
#define DLC_CHUNK_HEADER_BYTES 72
#define DLC_CHUNK_ASK_BYTES 48

/* --- the sender's side --- */

struct dlc_chunk_ask {
    struct dlc_sha256 digest;
    uint32_t index;
};
void dlc_chunk_ask_encode(uint8_t out[DLC_CHUNK_ASK_BYTES], const struct dlc_chunk_ask *ask);
dlc_err dlc_chunk_ask_decode(struct dlc_chunk_ask *out, const void *bytes, size_t size_bytes);

/* The answer: header and chunk `ask->index` of the `size_bytes` at `bytes`, in place of out's content. DLC_EPEER: there
 * is no such chunk. bytes NULL: "I do not have it" (with size_bytes, if it is known). */
dlc_err dlc_chunk_answer(struct dlc_buf *out, const struct dlc_chunk_ask *ask, const void *bytes, uint64_t size_bytes);

/* An answer. *chunk points to its bytes, which have the checksum; gone: there are none. DLC_EPEER: not an answer of
 * ours, or damaged; with *header_sound *out says which chunk it was. */
struct dlc_chunk {
    struct dlc_sha256 digest;
    uint64_t size_bytes; /* of the whole */
    uint32_t index, length_bytes;
    bool gone;
};
dlc_err dlc_chunk_decode(struct dlc_chunk *out, const void **chunk, bool *header_sound, const void *bytes,
                         size_t size_bytes);

/* --- the receiver's side --- */

typedef struct dlc_fetch dlc_fetch;

#define DLC_FETCH_MAX_BYTES ((uint64_t)1 << 42) /* larger blobs are refused */

/* Into the file `path`, its blob's size, made or gone on with: path.part and path.map (a checksum a chunk) stay while
 * it is incomplete, and belong to this digest or are begun anew; what does not have its checksum any more is fetched
 * again. A complete file is hashed and taken as it is; another one under this name stays until the fetch is finished.
 * DLC_EIO: a full or broken disk; what has come stays. */
dlc_err dlc_fetch_create(dlc_fetch **out, const struct dlc_blob_ref *ref, const char *path);
void dlc_fetch_destroy(dlc_fetch *f); /* accepts NULL; what has come stays on disk */

/* The next question to send now; false: wait for answers, or until dlc_fetch_due_ns. `window` is how many may be under
 * way (of this fetch); it keeps below it what would take over 2 s at the rate seen, but one at least. What was not
 * answered within max(5 s, 4 times what answers take) is asked again, later each time that nothing comes at all. */
bool dlc_fetch_ask(dlc_fetch *f, struct dlc_chunk_ask *out, int window, int64_t now_ns);
int64_t dlc_fetch_due_ns(const dlc_fetch *f); /* when an unanswered question is asked again; INT64_MAX: none is out */
/* The road is a new one, or the question could not be sent: nothing that was asked is under way any more. */
void dlc_fetch_ask_again(dlc_fetch *f);

/* An answer. *mine false: it is of another fetch. DLC_EPEER: damaged (it is asked again), or the sender does not have
 * the blob (*gone). DLC_EIO: it cannot be written; it is asked again, so wait before the next question. */
dlc_err dlc_fetch_answer(dlc_fetch *f, const void *bytes, size_t size_bytes, bool *mine, bool *gone, int64_t now_ns);

/* After the last chunk: digest of the whole compared, file durable and in place. DLC_EPEER: the bytes are not those of
 * the digest; it begins again. DLC_EIO: call it again later. */
bool dlc_fetch_is_complete(const dlc_fetch *f);
dlc_err dlc_fetch_finish(dlc_fetch *f);

struct dlc_fetch_progress {
    uint64_t bytes, size_bytes;
    double bytes_per_s; /* of late */
    uint64_t n_asked_again;
};
struct dlc_fetch_progress dlc_fetch_progress(const dlc_fetch *f);

#endif
