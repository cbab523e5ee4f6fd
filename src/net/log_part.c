#include "net/log_part.h"

#include <string.h>

#include "base/cursor.h"

static const char magic[8] = "dlclog1"; /* with its zero */

uint32_t dlc_log_part_count(uint64_t total_bytes)
{
    return total_bytes == 0 ? 1 : (uint32_t)((total_bytes + DLC_LOG_PART_BYTES - 1) / DLC_LOG_PART_BYTES);
}

/* Every part but the last is full. */
static size_t part_bytes(const struct dlc_log_part *p)
{
    return p->index + 1 < p->count ? DLC_LOG_PART_BYTES : (size_t)(p->total_bytes - DLC_LOG_PART_BYTES * p->index);
}

dlc_err dlc_log_part_encode(struct dlc_buf *out, const struct dlc_log_part *p)
{
    struct dlc_cursor c;

    dlc_buf_clear(out);
    DLC_TRY(dlc_buf_reserve(out, DLC_LOG_PART_HEADER_BYTES + p->size_bytes));
    c = dlc_cursor(out->data, DLC_LOG_PART_HEADER_BYTES);
    dlc_put_bytes(&c, magic, sizeof magic);
    dlc_put_u64(&c, p->writer);
    dlc_put_u32(&c, p->index);
    dlc_put_u32(&c, p->count);
    dlc_put_u64(&c, p->total_bytes);
    dlc_put_bytes(&c, p->digest.bytes, sizeof p->digest.bytes);
    dlc_put_u64(&c, dlc_xxh64(p->bytes, p->size_bytes));
    dlc_put_u64(&c, dlc_xxh64(out->data, DLC_LOG_PART_HEADER_BYTES - 8));
    out->len = DLC_LOG_PART_HEADER_BYTES;
    return dlc_buf_append(out, p->bytes, p->size_bytes);
}

dlc_err dlc_log_part_decode(struct dlc_log_part *out, const void *bytes, size_t size_bytes)
{
    struct dlc_cursor c = dlc_cursor(bytes, size_bytes);
    char head[sizeof magic] = "";
    uint64_t bytes_sum, head_sum;

    *out = (struct dlc_log_part){ 0 };
    dlc_get_bytes(&c, head, sizeof head);
    out->writer = dlc_get_u64(&c);
    out->index = dlc_get_u32(&c);
    out->count = dlc_get_u32(&c);
    out->total_bytes = dlc_get_u64(&c);
    dlc_get_bytes(&c, out->digest.bytes, sizeof out->digest.bytes);
    bytes_sum = dlc_get_u64(&c);
    head_sum = dlc_get_u64(&c);
    if (!dlc_cursor_ok(&c) || memcmp(head, magic, sizeof magic) != 0)
        return dlc_fail(DLC_EPEER, "no part of a log's entry: %zu bytes of something else", size_bytes);
    if (head_sum != dlc_xxh64(bytes, DLC_LOG_PART_HEADER_BYTES - 8))
        return dlc_fail(DLC_EPEER, "a part of a log's entry with a damaged header");
    if (out->total_bytes > DLC_LOG_PART_BYTES * DLC_LOG_PARTS_MAX || out->count != dlc_log_part_count(out->total_bytes) ||
        out->index >= out->count || c.left != part_bytes(out) || bytes_sum != dlc_xxh64(c.at, c.left))
        return dlc_fail(DLC_EPEER, "part %u of %u of a log's entry of %llu bytes is damaged", out->index, out->count,
                        (unsigned long long)out->total_bytes);
    out->bytes = c.at;
    out->size_bytes = c.left;
    return DLC_OK;
}

/* --- assembly ----------------------------------------------------------------------------------------------------- */

void dlc_log_assembly_clear(struct dlc_log_assembly *a)
{
    dlc_buf_clear(&a->entry);
    a->last = (struct dlc_log_part){ 0 };
}

void dlc_log_assembly_fini(struct dlc_log_assembly *a)
{
    dlc_buf_fini(&a->entry);
}

static int follows(const struct dlc_log_part *p, const struct dlc_log_part *last)
{
    return last->count == p->count && last->index + 1 == p->index && last->writer == p->writer &&
           last->total_bytes == p->total_bytes && dlc_sha256_equal(&last->digest, &p->digest);
}

dlc_err dlc_log_assembly_add(struct dlc_log_assembly *a, const struct dlc_log_part *part, int *whole)
{
    struct dlc_sha256 digest;

    *whole = 0;
    if (part->index == 0 || !follows(part, &a->last))
        dlc_log_assembly_clear(a);
    if (part->index > 0 && a->last.count == 0)
        return DLC_OK; /* the beginning is not there */
    DLC_TRY(dlc_buf_append(&a->entry, part->bytes, part->size_bytes));
    a->last = *part;
    a->last.bytes = NULL;
    if (part->index + 1 < part->count)
        return DLC_OK;
    digest = dlc_sha256(a->entry.len ? a->entry.data : "", a->entry.len);
    *whole = dlc_sha256_equal(&digest, &part->digest);
    if (!*whole)
        dlc_log_assembly_clear(a);
    return DLC_OK;
}
