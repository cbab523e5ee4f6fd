#include "exchange/message.h"

#include <string.h>

#include "base/buf.h"
#include "base/cursor.h"

#define MAGIC 0x4d434c44u /* "DLCM" */
#define VERSION 3
#define RANGE_BYTES 20
#define COUNT_MAX ((uint64_t)1 << 60) /* of samples and steps: no sum of two can overflow */
#define FIXED_BODY_BYTES (4 + 8 + 4 + 3 * 8 + 8 + 1 + 8 + DLC_SHA256_BYTES + 6 * 8 + 1 + 1 + 2 * 8 + 2 + 4)

void dlc_message_fini(struct dlc_message *m)
{
    dlc_ranges_fini(&m->ranges);
}

static void put_body(struct dlc_cursor *c, const struct dlc_message *m, size_t text_bytes)
{
    dlc_put_u32(c, m->incarnation);
    dlc_put_u64(c, m->t);
    dlc_put_u32(c, m->attempt);
    dlc_put_u64(c, (uint64_t)m->step);
    dlc_put_u64(c, (uint64_t)m->first_step);
    dlc_put_u64(c, (uint64_t)m->n_steps);
    dlc_put_u64(c, m->state_step);
    dlc_put_u8(c, m->own_params);
    dlc_put_u64(c, m->size_bytes);
    dlc_put_bytes(c, m->digest.bytes, DLC_SHA256_BYTES);
    dlc_put_f64(c, m->loss);
    dlc_put_f64(c, m->lr);
    dlc_put_f64(c, m->grad_norm);
    dlc_put_f64(c, m->seconds);
    dlc_put_f64(c, m->data_s);
    dlc_put_f64(c, m->outer_s);
    dlc_put_u8(c, (uint8_t)m->code);
    dlc_put_u8(c, m->states_known);
    dlc_put_u64(c, m->states[0]);
    dlc_put_u64(c, m->states[1]);
    dlc_put_u16(c, (uint16_t)text_bytes);
    dlc_put_u32(c, (uint32_t)m->ranges.n);
    dlc_put_bytes(c, m->text, text_bytes);
    for (size_t i = 0; i < m->ranges.n; i++) {
        dlc_put_u32(c, (uint32_t)m->ranges.items[i].pool);
        dlc_put_u64(c, m->ranges.items[i].start);
        dlc_put_u64(c, m->ranges.items[i].count);
    }
}

dlc_err dlc_message_encode(struct dlc_buf *out, const struct dlc_message *m)
{
    size_t text_bytes = strnlen(m->text, sizeof m->text - 1);
    size_t body_bytes = FIXED_BODY_BYTES + text_bytes + m->ranges.n * RANGE_BYTES;
    struct dlc_cursor c;

    if (DLC_MESSAGE_HEADER_BYTES + body_bytes > DLC_MESSAGE_MAX_BYTES)
        return dlc_fail(DLC_EFAIL, "message with %zu token ranges does not fit", m->ranges.n);
    DLC_TRY(dlc_buf_reserve(out, DLC_MESSAGE_HEADER_BYTES + body_bytes));
    c = dlc_cursor(out->data + out->len, DLC_MESSAGE_HEADER_BYTES + body_bytes);
    dlc_put_u32(&c, MAGIC);
    dlc_put_u16(&c, VERSION);
    dlc_put_u16(&c, (uint16_t)m->kind);
    dlc_put_u32(&c, (uint32_t)body_bytes);
    put_body(&c, m, text_bytes);
    out->len += DLC_MESSAGE_HEADER_BYTES + body_bytes;
    out->data[out->len] = '\0'; /* as every buffer ends */
    return DLC_OK;
}

dlc_err dlc_message_length(size_t *out, const void *header)
{
    struct dlc_cursor c = dlc_cursor(header, DLC_MESSAGE_HEADER_BYTES);
    uint32_t magic = dlc_get_u32(&c), body_bytes;
    uint16_t version = dlc_get_u16(&c);

    (void)dlc_get_u16(&c); /* kind */
    body_bytes = dlc_get_u32(&c);
    if (magic != MAGIC)
        return dlc_fail(DLC_EPEER, "not a message of ours: starts with %08x", magic);
    if (version != VERSION)
        return dlc_fail(DLC_EPEER, "message version %u, this program speaks %d; use the same version everywhere",
                        version, VERSION);
    if (body_bytes > DLC_MESSAGE_MAX_BYTES - DLC_MESSAGE_HEADER_BYTES)
        return dlc_fail(DLC_EPEER, "message of %u bytes, at most %d are taken", body_bytes, DLC_MESSAGE_MAX_BYTES);
    *out = DLC_MESSAGE_HEADER_BYTES + body_bytes;
    return DLC_OK;
}

static bool is_known(unsigned kind)
{
    return (kind >= DLC_MSG_HELLO && kind <= DLC_MSG_LEAVE) || (kind >= DLC_MSG_ASSIGN && kind <= DLC_MSG_DISMISS);
}

static dlc_err get_ranges(struct dlc_message *m, struct dlc_cursor *c, size_t n)
{
    uint64_t total = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t pool = dlc_get_u32(c);
        struct dlc_range r = { .pool = (int)(pool & 0x7fffffff) };

        r.start = dlc_get_u64(c);
        r.count = dlc_get_u64(c);
        total += r.count <= COUNT_MAX ? r.count : 0;
        if (pool > 1000000 || r.count == 0 || r.count > COUNT_MAX || r.start > COUNT_MAX || total > COUNT_MAX)
            return dlc_fail(DLC_EPEER, "message of kind %d: token range %zu is out of range", (int)m->kind, i);
        DLC_TRY(dlc_ranges_add(&m->ranges, r));
    }
    return DLC_OK;
}

static bool is_count(int64_t n)
{
    return n >= 0 && (uint64_t)n <= COUNT_MAX;
}

static dlc_err get_body(struct dlc_message *m, struct dlc_cursor *c)
{
    size_t text_bytes, n_ranges;
    uint8_t own_params, states_known;

    m->incarnation = dlc_get_u32(c);
    m->t = dlc_get_u64(c);
    m->attempt = dlc_get_u32(c);
    m->step = (int64_t)dlc_get_u64(c);
    m->first_step = (int64_t)dlc_get_u64(c);
    m->n_steps = (int64_t)dlc_get_u64(c);
    m->state_step = dlc_get_u64(c);
    own_params = dlc_get_u8(c);
    m->size_bytes = dlc_get_u64(c);
    dlc_get_bytes(c, m->digest.bytes, DLC_SHA256_BYTES);
    m->loss = dlc_get_f64(c);
    m->lr = dlc_get_f64(c);
    m->grad_norm = dlc_get_f64(c);
    m->seconds = dlc_get_f64(c);
    m->data_s = dlc_get_f64(c);
    m->outer_s = dlc_get_f64(c);
    m->code = (dlc_err)dlc_get_u8(c);
    states_known = dlc_get_u8(c);
    m->states[0] = dlc_get_u64(c);
    m->states[1] = dlc_get_u64(c);
    text_bytes = dlc_get_u16(c);
    n_ranges = dlc_get_u32(c);
    if (!dlc_cursor_ok(c) || text_bytes >= sizeof m->text || m->code > DLC_ENOTFOUND ||
        n_ranges > DLC_MESSAGE_MAX_BYTES / RANGE_BYTES || c->left != text_bytes + n_ranges * RANGE_BYTES)
        return dlc_fail(DLC_EPEER, "message of kind %d is cut or has lengths that do not fit", (int)m->kind);
    dlc_get_bytes(c, m->text, text_bytes);
    m->own_params = own_params;
    m->states_known = states_known;
    if (own_params > 1 || states_known > 1 || !is_count(m->step) || !is_count(m->first_step) || !is_count(m->n_steps) ||
        memchr(m->text, '\0', text_bytes))
        return dlc_fail(DLC_EPEER, "message of kind %d has values out of range", (int)m->kind);
    return get_ranges(m, c, n_ranges);
}

dlc_err dlc_message_decode(struct dlc_message *out, const void *bytes, size_t size_bytes)
{
    struct dlc_cursor c = dlc_cursor(bytes, size_bytes);
    unsigned kind;
    size_t length;
    dlc_err err;

    *out = (struct dlc_message){ 0 };
    if (size_bytes < DLC_MESSAGE_HEADER_BYTES)
        return dlc_fail(DLC_EPEER, "message of %zu bytes is shorter than its header", size_bytes);
    DLC_TRY(dlc_message_length(&length, bytes));
    if (length != size_bytes)
        return dlc_fail(DLC_EPEER, "message says %zu bytes, %zu came", length, size_bytes);
    (void)dlc_cursor_take(&c, 6);
    kind = dlc_get_u16(&c);
    (void)dlc_get_u32(&c);
    if (!is_known(kind))
        return dlc_fail(DLC_EPEER, "message of unknown kind %u", kind);
    out->kind = (dlc_message_kind)kind;
    err = get_body(out, &c);
    if (err != DLC_OK)
        dlc_message_fini(out);
    return err;
}
