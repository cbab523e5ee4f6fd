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

/* The answer: header and chunk `ask->index` of the `size_bytes` at `bytes`, in place of out's content. DLC_EPEER: there is
 * no such chunk. bytes NULL: "I do not have it". */
dlc_err dlc_chunk_answer(struct dlc_buf *out, const struct dlc_chunk_ask *ask, const void *bytes, uint64_t size_bytes);

/* --- the receiver's side --- */

typedef struct dlc_fetch dlc_fetch;

/* Into the file `path`, its blob's size, made or gone on with: path.part and path.map (a bit a chunk) stay while it is
 * incomplete, and belong to this digest or are begun anew. A complete file is hashed and taken as it is. */
dlc_err dlc_fetch_create(dlc_fetch **out, const struct dlc_blob_ref *ref, const char *path);
void dlc_fetch_destroy(dlc_fetch *f); /* accepts NULL; what has come stays on disk */

/* The next question to send now; false: wait for answers, or until dlc_fetch_due_ns. `window` is how many may be under
 * way (of this fetch); it keeps below it what would take over 2 s at the rate seen. */
bool dlc_fetch_ask(dlc_fetch *f, struct dlc_chunk_ask *out, int window, int64_t now_ns);
int64_t dlc_fetch_due_ns(const dlc_fetch *f); /* when an unanswered question is asked again; INT64_MAX: none is out */

/* An answer. *mine false: it is of another fetch. DLC_EPEER: damaged, or the sender does not have the blob (*gone). */
dlc_err dlc_fetch_answer(dlc_fetch *f, const void *bytes, size_t size_bytes, bool *mine, bool *gone, int64_t now_ns);

/* After the last chunk: digest of the whole compared, file durable and in place. DLC_EPEER: the bytes are not those of
 * the digest; it begins again. */
bool dlc_fetch_is_complete(const dlc_fetch *f);
dlc_err dlc_fetch_finish(dlc_fetch *f);

struct dlc_fetch_progress {
    uint64_t bytes, size_bytes;
    double bytes_per_s; /* of late */
    uint64_t n_asked_again;
};
struct dlc_fetch_progress dlc_fetch_progress(const dlc_fetch *f);

#endif
