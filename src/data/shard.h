/* Token shards: llm.c's .bin layout. 256 little-endian int32 (magic, version, number of tokens, zeros), then the
 * tokens: 20240520, 1: uint16; 20240801, 7: uint32. See docs/formats/shards.md. */
#ifndef DLC_DATA_SHARD_H
#define DLC_DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DLC_SHARD_HEADER_BYTES ((size_t)1024)
#define DLC_SHARD_TOKENS_MAX ((uint64_t)INT32_MAX)
#define DLC_SHARD_VOCAB_16 65535 /* vocabularies up to this size are written as uint16 */

struct dlc_shard_header {
    int width; /* bytes a token: 2 or 4 */
    uint64_t n_tokens;
};

void dlc_shard_header_write(unsigned char out[DLC_SHARD_HEADER_BYTES], struct dlc_shard_header header);

/* DLC_EINPUT when `bytes` (the beginning of a file of file_size bytes; at least min(file_size, 1024) of them) is no
 * such header, or its number of tokens does not agree with the size of the file. */
dlc_err dlc_shard_header_read(struct dlc_shard_header *out, const void *bytes, uint64_t file_size, const char *where);

#endif
