/* The layouts of questions and answers; docs/protocol.md has them as tables. */
#include "exchange/fetch.h"

#include "base/cursor.h"

#define ASK_MAGIC 0x51434c44u    /* "DLCQ" */
#define ANSWER_MAGIC 0x42434c44u /* "DLCB" */
#define VERSION 1
#define CHECKED_BYTES 64 /* of the answer's header: all but its own checksum */
#define GONE 1

static dlc_err check_version(unsigned version)
{
    if (version != VERSION)
        return dlc_fail(DLC_EPEER, "chunk version %u, this program speaks %d; use the same version everywhere", version,
                        VERSION);
    return DLC_OK;
}

void dlc_chunk_ask_encode(uint8_t out[DLC_CHUNK_ASK_BYTES], const struct dlc_chunk_ask *ask)
{
    struct dlc_cursor c = dlc_cursor(out, DLC_CHUNK_ASK_BYTES);

    dlc_put_u32(&c, ASK_MAGIC);
    dlc_put_u16(&c, VERSION);
    dlc_put_u16(&c, 0);
    dlc_put_bytes(&c, ask->digest.bytes, DLC_SHA256_BYTES);
    dlc_put_u32(&c, ask->index);
    dlc_put_u32(&c, 0);
}

dlc_err dlc_chunk_ask_decode(struct dlc_chunk_ask *out, const void *bytes, size_t size_bytes)
{
    struct dlc_cursor c = dlc_cursor(bytes, size_bytes);
    uint32_t magic = dlc_get_u32(&c), zeros;
    unsigned version = dlc_get_u16(&c);

    *out = (struct dlc_chunk_ask){ 0 };
    if (size_bytes != DLC_CHUNK_ASK_BYTES || magic != ASK_MAGIC)
        return dlc_fail(DLC_EPEER, "not a question of ours: %zu bytes, starts with %08x", size_bytes, magic);
    DLC_TRY(check_version(version));
    zeros = dlc_get_u16(&c);
    dlc_get_bytes(&c, out->digest.bytes, DLC_SHA256_BYTES);
    out->index = dlc_get_u32(&c);
    zeros |= dlc_get_u32(&c);
    if (zeros != 0)
        return dlc_fail(DLC_EPEER, "question for chunk %u with bytes set that must be zero", out->index);
    return DLC_OK;
}

/* Chunk i of a blob; 0: there is none. */
static uint32_t length_of(uint64_t size_bytes, uint32_t index)
{
    uint64_t from = (uint64_t)index * DLC_CHUNK_BYTES;

    if (from >= size_bytes)
        return 0;
    return size_bytes - from < DLC_CHUNK_BYTES ? (uint32_t)(size_bytes - from) : (uint32_t)DLC_CHUNK_BYTES;
}

dlc_err dlc_chunk_answer(struct dlc_buf *out, const struct dlc_chunk_ask *ask, const void *bytes, uint64_t size_bytes)
{
    uint32_t length = bytes ? length_of(size_bytes, ask->index) : 0;
    const unsigned char *chunk = bytes ? (const unsigned char *)bytes + (uint64_t)ask->index * DLC_CHUNK_BYTES : NULL;
    struct dlc_cursor c;

    dlc_buf_clear(out);
    if (bytes && length == 0)
        return dlc_fail(DLC_EPEER, "chunk %u was asked for of a blob of %llu bytes", ask->index,
                        (unsigned long long)size_bytes);
    DLC_TRY(dlc_buf_reserve(out, DLC_CHUNK_HEADER_BYTES + length));
    c = dlc_cursor(out->data, DLC_CHUNK_HEADER_BYTES + length);
    dlc_put_u32(&c, ANSWER_MAGIC);
    dlc_put_u16(&c, VERSION);
    dlc_put_u16(&c, bytes ? 0 : GONE);
    dlc_put_bytes(&c, ask->digest.bytes, DLC_SHA256_BYTES);
    dlc_put_u64(&c, size_bytes);
    dlc_put_u32(&c, ask->index);
    dlc_put_u32(&c, length);
    dlc_put_u64(&c, dlc_xxh64(length > 0 ? chunk : (const unsigned char *)"", length));
    dlc_put_u64(&c, dlc_xxh64(out->data, CHECKED_BYTES));
    if (length > 0)
        dlc_put_bytes(&c, chunk, length);
    out->len = DLC_CHUNK_HEADER_BYTES + length;
    out->data[out->len] = '\0'; /* as every buffer ends */
    return DLC_OK;
}

static dlc_err check_header(const struct dlc_chunk *a, unsigned flags)
{
    uint32_t length = flags == GONE ? 0 : length_of(a->size_bytes, a->index);

    if (flags > GONE || a->length_bytes != length || (flags != GONE && length == 0))
        return dlc_fail(DLC_EPEER, "answer with flags %u, chunk %u of %u bytes, of a blob of %llu, is not sound", flags,
                        a->index, a->length_bytes, (unsigned long long)a->size_bytes);
    return DLC_OK;
}

dlc_err dlc_chunk_decode(struct dlc_chunk *out, const void **chunk, bool *header_sound, const void *bytes,
                         size_t size_bytes)
{
    struct dlc_cursor c = dlc_cursor(bytes, size_bytes);
    uint32_t magic = dlc_get_u32(&c);
    unsigned version = dlc_get_u16(&c), flags;
    uint64_t checksum;

    *out = (struct dlc_chunk){ 0 };
    *chunk = NULL;
    *header_sound = false;
    if (size_bytes < DLC_CHUNK_HEADER_BYTES || magic != ANSWER_MAGIC)
        return dlc_fail(DLC_EPEER, "not a chunk of ours: %zu bytes, starts with %08x", size_bytes, magic);
    DLC_TRY(check_version(version));
    flags = dlc_get_u16(&c);
    dlc_get_bytes(&c, out->digest.bytes, DLC_SHA256_BYTES);
    out->size_bytes = dlc_get_u64(&c);
    out->index = dlc_get_u32(&c);
    out->length_bytes = dlc_get_u32(&c);
    out->gone = flags == GONE;
    checksum = dlc_get_u64(&c);
    if (dlc_get_u64(&c) != dlc_xxh64(bytes, CHECKED_BYTES))
        return dlc_fail(DLC_EPEER, "header of a chunk is damaged: its checksum is another");
    DLC_TRY(check_header(out, flags));
    *header_sound = true;
    if (c.left != out->length_bytes || dlc_xxh64(c.at, c.left) != checksum)
        return dlc_fail(DLC_EPEER, "chunk %u is damaged: %u bytes expected, %zu came, or its checksum is another",
                        out->index, out->length_bytes, c.left);
    *chunk = c.at;
    return DLC_OK;
}
