/* Digests: SHA-256 (OpenSSL) for identity and the record chain, XXH3-64 (xxHash) for quick integrity checks. */
#ifndef DLC_BASE_DIGEST_H
#define DLC_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DLC_SHA256_BYTES 32
#define DLC_SHA256_HEX 65 /* with the final zero */

struct dlc_sha256 {
    unsigned char bytes[DLC_SHA256_BYTES];
};

/* One call over contiguous bytes. Aborts only if OpenSSL itself is broken (no SHA-256). */
struct dlc_sha256 dlc_sha256(const void *data, size_t size_bytes);

/* Streaming. */
typedef struct dlc_sha256_ctx dlc_sha256_ctx;
dlc_err dlc_sha256_create(dlc_sha256_ctx **out);
void dlc_sha256_update(dlc_sha256_ctx *ctx, const void *data, size_t size_bytes);
struct dlc_sha256 dlc_sha256_final(dlc_sha256_ctx *ctx); /* the context can be reused: it restarts */
void dlc_sha256_destroy(dlc_sha256_ctx *ctx);

/* The digest of a whole file. DLC_ENOTFOUND, DLC_EIO. */
dlc_err dlc_sha256_file(struct dlc_sha256 *out, const char *path);

void dlc_sha256_to_hex(char out[DLC_SHA256_HEX], const struct dlc_sha256 *d);
dlc_err dlc_sha256_from_hex(struct dlc_sha256 *out, const char *hex); /* DLC_EINPUT */
int dlc_sha256_equal(const struct dlc_sha256 *a, const struct dlc_sha256 *b);

uint64_t dlc_xxh64(const void *data, size_t size_bytes);

#endif
