/* Packets of a channel: whatever the bytes, an error that changes nothing or a packet that is written as it was read.
 * The seeds are what session 0xa says to 0xb. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/channel.h"
#include "exchange/packet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static dlc_channel *create(uint64_t session)
{
    dlc_channel *c;

    if (dlc_channel_create(&c, session) != DLC_OK)
        abort();
    return c;
}

static void hand(dlc_channel *from, dlc_channel *to)
{
    struct dlc_note note = { 0 };
    struct dlc_buf b = { 0 };
    bool fresh;

    if (dlc_channel_packet(from, &b, &note, 1) != DLC_OK)
        abort();
    (void)dlc_channel_receive(to, &note, &fresh, b.data, b.len, 1);
    dlc_buf_fini(&b);
}

/* Session 0xb as it is when 0xa has joined it and has one of its two messages still to acknowledge. */
static dlc_channel *joined(void)
{
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS };
    dlc_channel *a = create(0xa), *b = create(0xb);

    for (int i = 0; i < 3; i++) {
        hand(a, b);
        hand(b, a);
    }
    for (int i = 0; i < 2; i++) {
        if (!dlc_channel_is_joined(b) || dlc_channel_send(b, &m) != DLC_OK)
            abort();
        hand(b, a);
        if (i == 0)
            hand(a, b);
    }
    dlc_channel_destroy(a);
    return b;
}

static void receive(dlc_channel *c, const uint8_t *data, size_t size)
{
    bool was_joined = dlc_channel_is_joined(c), fresh;
    size_t unacknowledged = dlc_channel_unacknowledged(c);
    int64_t due = dlc_channel_due_ns(c), heard = dlc_channel_heard_ns(c);
    struct dlc_message m;
    struct dlc_note note;
    dlc_err err = dlc_channel_receive(c, &note, &fresh, data, size, 7);

    if (err == DLC_EPEER &&
        (fresh || was_joined != dlc_channel_is_joined(c) || unacknowledged != dlc_channel_unacknowledged(c) ||
         due != dlc_channel_due_ns(c) || heard != dlc_channel_heard_ns(c) || dlc_channel_next(c, &m)))
        abort();
    while (dlc_channel_next(c, &m))
        dlc_message_fini(&m);
}

static void write_and_compare(const uint8_t *data, size_t size)
{
    struct dlc_buf b = { 0 };
    struct dlc_packet p;
    const void *messages;
    size_t left;

    if (dlc_packet_decode(&p, &messages, &left, data, size) != DLC_OK)
        return;
    if (left != size - DLC_PACKET_HEADER_BYTES || dlc_packet_encode(&b, &p) != DLC_OK ||
        memcmp(b.data, data, DLC_PACKET_HEADER_BYTES) != 0)
        abort();
    dlc_buf_fini(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dlc_channel *met = joined(), *alone = create(0xb), *peer = create(0xa);

    write_and_compare(data, size);
    for (int i = 0; i < 2; i++) { /* the second time is a repetition */
        receive(met, data, size);
        receive(alone, data, size);
        hand(met, peer); /* what it says then is taken or refused, and safe */
        hand(alone, peer);
    }
    dlc_channel_destroy(met);
    dlc_channel_destroy(alone);
    dlc_channel_destroy(peer);
    return 0;
}
