/* Packets: the bytes. What is refused, channel_test.c has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "exchange/packet.h"

/* The layout of docs/protocol.md, byte by byte. */
static void the_layout(void **state)
{
    /* clang-format off */
    static const unsigned char head[] = {
        'D', 'L', 'C', 'P', 1, 0, 1, 0,                  /* magic, version, flags, zero */
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,  /* session */
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,  /* to */
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x01,  /* number */
        0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,  /* echo */
        0x54, 0x53, 0x52, 0x51,                          /* held_us */
        3, 0, 0, 0,                                      /* messages */
        0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x01,  /* ack */
        0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x01,  /* first */
        0x88, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81,  /* fence */
        0x98, 0x97, 0x96, 0x95, 0x94, 0x93, 0x92, 0x91,  /* t */
    };
    /* clang-format on */
    struct dlc_packet p = { .session = 0x1112131415161718,
                            .to = 0x2122232425262728,
                            .number = 0x0132333435363738,
                            .echo = 0x4142434445464748,
                            .held_us = 0x51525354,
                            .n_messages = 3,
                            .ack = 0x0162636465666768,
                            .first = 0x0172737475767778,
                            .note = { .fence = 0x8182838485868788,
                                      .t = 0x9192939495969798,
                                      .flags = 1,
                                      .update.size_bytes = 0x0102030405060708 } },
                      back;
    const void *messages;
    size_t left;
    struct dlc_buf b = { 0 };

    (void)state;
    memset(p.note.theta.bytes, 'T', 32);
    memset(p.note.record.bytes, 'R', 32);
    memset(p.note.update.digest.bytes, 'U', 32);
    assert_int_equal(dlc_packet_encode(&b, &p), DLC_OK);
    assert_int_equal(b.len, 184);
    assert_memory_equal(b.data, head, sizeof head);
    assert_int_equal(sizeof head, 80);
    assert_memory_equal(b.data + 80, p.note.theta.bytes, 32);
    assert_memory_equal(b.data + 112, p.note.record.bytes, 32);
    assert_memory_equal(b.data + 144, p.note.update.digest.bytes, 32);
    assert_memory_equal(b.data + 176, "\10\7\6\5\4\3\2\1", 8);
    assert_int_equal(dlc_buf_append(&b, "xyz", 3), DLC_OK);
    assert_int_equal(dlc_packet_decode(&back, &messages, &left, b.data, b.len), DLC_OK);
    assert_memory_equal(&back, &p, sizeof p);
    assert_ptr_equal(messages, b.data + 184);
    assert_int_equal(left, 3);
    dlc_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_layout) };

    return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}
