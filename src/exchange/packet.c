#include "exchange/packet.h"

#include "base/cursor.h"

#define MAGIC 0x50434c44u /* "DLCP" */
#define VERSION 1
#define NUMBER_MAX ((uint64_t)1 << 60) /* of packets and messages: no sum can overflow */

static void put_note(struct dlc_cursor *c, const struct dlc_note *note)
{
    dlc_put_u64(c, note->fence);
    dlc_put_u64(c, note->t);
    dlc_put_bytes(c, note->theta.bytes, DLC_SHA256_BYTES);
    dlc_put_bytes(c, note->record.bytes, DLC_SHA256_BYTES);
    dlc_put_bytes(c, note->update.digest.bytes, DLC_SHA256_BYTES);
    dlc_put_u64(c, note->update.size_bytes);
}

static void get_note(struct dlc_note *note, struct dlc_cursor *c)
{
    note->fence = dlc_get_u64(c);
    note->t = dlc_get_u64(c);
    dlc_get_bytes(c, note->theta.bytes, DLC_SHA256_BYTES);
    dlc_get_bytes(c, note->record.bytes, DLC_SHA256_BYTES);
    dlc_get_bytes(c, note->update.digest.bytes, DLC_SHA256_BYTES);
    note->update.size_bytes = dlc_get_u64(c);
}

dlc_err dlc_packet_encode(struct dlc_buf *out, const struct dlc_packet *p)
{
    struct dlc_cursor c;

    DLC_TRY(dlc_buf_reserve(out, DLC_PACKET_HEADER_BYTES));
    c = dlc_cursor(out->data + out->len, DLC_PACKET_HEADER_BYTES);
    dlc_put_u32(&c, MAGIC);
    dlc_put_u16(&c, VERSION);
    dlc_put_u8(&c, p->note.flags);
    dlc_put_u8(&c, 0);
    dlc_put_u64(&c, p->session);
    dlc_put_u64(&c, p->to);
    dlc_put_u64(&c, p->number);
    dlc_put_u64(&c, p->echo);
    dlc_put_u32(&c, p->held_us);
    dlc_put_u32(&c, p->n_messages);
    dlc_put_u64(&c, p->ack);
    dlc_put_u64(&c, p->first);
    put_note(&c, &p->note);
    out->len += DLC_PACKET_HEADER_BYTES;
    out->data[out->len] = '\0'; /* as every buffer ends */
    return DLC_OK;
}

static dlc_err check(const struct dlc_packet *p, unsigned zero)
{
    bool joined = p->first != 0;

    if (zero != 0 || p->note.flags > DLC_NOTE_LEAVING || p->session == 0 || p->to == p->session)
        return dlc_fail(DLC_EPEER, "packet with flags %u, session %016llx to %016llx is not sound", p->note.flags,
                        (unsigned long long)p->session, (unsigned long long)p->to);
    if (p->number == 0 || p->number > NUMBER_MAX || p->first > NUMBER_MAX || p->ack > NUMBER_MAX ||
        p->n_messages > DLC_PACKET_MAX_BYTES || (p->to == 0 && (p->echo != 0 || p->held_us != 0 || joined)) ||
        (!joined && (p->ack != 0 || p->n_messages != 0)))
        return dlc_fail(DLC_EPEER, "packet %llu (echo %llu, ack %llu, first %llu, %u messages) is not sound",
                        (unsigned long long)p->number, (unsigned long long)p->echo, (unsigned long long)p->ack,
                        (unsigned long long)p->first, p->n_messages);
    return DLC_OK;
}

dlc_err dlc_packet_decode(struct dlc_packet *out, const void **messages, size_t *messages_bytes, const void *bytes,
                          size_t size_bytes)
{
    struct dlc_cursor c = dlc_cursor(bytes, size_bytes);
    uint32_t magic;
    unsigned version, zero;

    *out = (struct dlc_packet){ 0 };
    if (size_bytes < DLC_PACKET_HEADER_BYTES || size_bytes > DLC_PACKET_MAX_BYTES)
        return dlc_fail(DLC_EPEER, "packet of %zu bytes; they have %d to %d", size_bytes, DLC_PACKET_HEADER_BYTES,
                        DLC_PACKET_MAX_BYTES);
    magic = dlc_get_u32(&c);
    version = dlc_get_u16(&c);
    if (magic != MAGIC)
        return dlc_fail(DLC_EPEER, "not a packet of ours: starts with %08x", magic);
    if (version != VERSION)
        return dlc_fail(DLC_EPEER, "packet version %u, this program speaks %d; use the same version everywhere",
                        version, VERSION);
    out->note.flags = dlc_get_u8(&c);
    zero = dlc_get_u8(&c);
    out->session = dlc_get_u64(&c);
    out->to = dlc_get_u64(&c);
    out->number = dlc_get_u64(&c);
    out->echo = dlc_get_u64(&c);
    out->held_us = dlc_get_u32(&c);
    out->n_messages = dlc_get_u32(&c);
    out->ack = dlc_get_u64(&c);
    out->first = dlc_get_u64(&c);
    get_note(&out->note, &c);
    *messages = c.at;
    *messages_bytes = c.left;
    return check(out, zero);
}
