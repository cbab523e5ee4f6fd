#include "data/shard.h"

#include <string.h>

#include "base/cursor.h"

#define MAGIC_16 20240520
#define VERSION_16 1
#define MAGIC_32 20240801
#define VERSION_32 7

void dlc_shard_header_write(unsigned char out[DLC_SHARD_HEADER_BYTES], struct dlc_shard_header header)
{
    struct dlc_cursor c = dlc_cursor(out, DLC_SHARD_HEADER_BYTES);

    memset(out, 0, DLC_SHARD_HEADER_BYTES);
    dlc_put_u32(&c, header.width == 2 ? MAGIC_16 : MAGIC_32);
    dlc_put_u32(&c, header.width == 2 ? VERSION_16 : VERSION_32);
    dlc_put_u32(&c, (uint32_t)header.n_tokens);
}

dlc_err dlc_shard_header_read(struct dlc_shard_header *out, const void *bytes, uint64_t file_size, const char *where)
{
    struct dlc_cursor c = dlc_cursor(bytes, DLC_SHARD_HEADER_BYTES);
    uint32_t magic, version, n_tokens;
    uint64_t there;

    if (file_size < DLC_SHARD_HEADER_BYTES)
        return dlc_fail(DLC_EINPUT, "%s: %llu bytes; a shard has a header of %zu", where, (unsigned long long)file_size,
                        DLC_SHARD_HEADER_BYTES);
    magic = dlc_get_u32(&c);
    version = dlc_get_u32(&c);
    n_tokens = dlc_get_u32(&c);
    if (magic == MAGIC_16 && version == VERSION_16)
        out->width = 2;
    else if (magic == MAGIC_32 && version == VERSION_32)
        out->width = 4;
    else
        return dlc_fail(DLC_EINPUT, "%s: not a token shard (begins with %u, version %u; known are %d/%d and %d/%d)",
                        where, magic, version, MAGIC_16, VERSION_16, MAGIC_32, VERSION_32);
    out->n_tokens = n_tokens;
    if (n_tokens > DLC_SHARD_TOKENS_MAX)
        return dlc_fail(DLC_EINPUT, "%s: the header says %u tokens, more than a shard can have", where, n_tokens);
    there = file_size - DLC_SHARD_HEADER_BYTES;
    if (there != out->n_tokens * (uint64_t)out->width)
        return dlc_fail(DLC_EINPUT, "%s: the header says %u tokens of %d bytes, the file has %llu bytes of them (%s)",
                        where, n_tokens, out->width, (unsigned long long)there,
                        there < out->n_tokens * (uint64_t)out->width ? "truncated" : "something was appended");
    return DLC_OK;
}
