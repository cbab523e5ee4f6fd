/* Messages: bytes and back, and every way in which bytes can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"
#include "exchange/message.h"

static const struct {
    dlc_message_kind kind;
    const char *name;
} kinds[] = {
    { DLC_MSG_HELLO, "hello" },         { DLC_MSG_PROGRESS, "progress" },
    { DLC_MSG_GRADIENT, "gradient" },   { DLC_MSG_CONTRIBUTION, "contribution" },
    { DLC_MSG_NONFINITE, "nonfinite" }, { DLC_MSG_PAUSED, "paused" },
    { DLC_MSG_FAILED, "failed" },       { DLC_MSG_RESUPPLY, "resupply" },
    { DLC_MSG_LEAVE, "leave" },         { DLC_MSG_DISMISS, "dismiss" },
    { DLC_MSG_ASSIGN, "assign" },       { DLC_MSG_MEAN, "mean" },
    { DLC_MSG_PAUSE, "pause" },         { DLC_MSG_FINISH, "finish" },
};

/* Every field set, so that none can be left out unseen. */
static struct dlc_message example(dlc_message_kind kind)
{
    struct dlc_message m = { .kind = kind,
                             .incarnation = 0x01020304,
                             .t = 0x1112131415161718,
                             .attempt = 0x21222324,
                             .step = 1000,
                             .first_step = 0x3132333435363738 >> 4,
                             .n_steps = 500,
                             .state_step = 7,
                             .own_params = true,
                             .size_bytes = 1 << 20,
                             .loss = 2.5,
                             .lr = 4e-4,
                             .grad_norm = -0.0,
                             .seconds = INFINITY,
                             .data_s = 1e-5,
                             .outer_s = 0.25,
                             .code = DLC_ENOMEM,
                             .states_known = true,
                             .states = { 40, 39 } };

    for (size_t i = 0; i < DLC_SHA256_BYTES; i++)
        m.digest.bytes[i] = (unsigned char)(200 + i);
    snprintf(m.text, sizeof m.text,
             "loss nan, gr\xc3\xb6\xc3\x9f"
             "e");
    assert_int_equal(dlc_ranges_add(&m.ranges, (struct dlc_range){ 3, 1000, 24 }), DLC_OK);
    assert_int_equal(dlc_ranges_add(&m.ranges, (struct dlc_range){ 0, 0, 1 }), DLC_OK);
    return m;
}

static void assert_same(const struct dlc_message *a, const struct dlc_message *b)
{
    struct dlc_message x = *a, y = *b;

    x.ranges = y.ranges = (struct dlc_ranges){ 0 };
    assert_int_equal(x.kind, y.kind);
    assert_int_equal(x.incarnation, y.incarnation);
    assert_int_equal(x.t, y.t);
    assert_int_equal(x.attempt, y.attempt);
    assert_int_equal(x.step, y.step);
    assert_int_equal(x.first_step, y.first_step);
    assert_int_equal(x.n_steps, y.n_steps);
    assert_int_equal(x.state_step, y.state_step);
    assert_int_equal(x.own_params, y.own_params);
    assert_int_equal(x.size_bytes, y.size_bytes);
    assert_int_equal(x.code, y.code);
    assert_int_equal(x.states_known, y.states_known);
    assert_int_equal(x.states[0], y.states[0]);
    assert_int_equal(x.states[1], y.states[1]);
    assert_memory_equal(&x.digest, &y.digest, sizeof x.digest);
    assert_memory_equal(&x.loss, &y.loss, 8);
    assert_memory_equal(&x.lr, &y.lr, 8);
    assert_memory_equal(&x.grad_norm, &y.grad_norm, 8);
    assert_memory_equal(&x.seconds, &y.seconds, 8);
    assert_memory_equal(&x.data_s, &y.data_s, 8);
    assert_memory_equal(&x.outer_s, &y.outer_s, 8);
    assert_string_equal(x.text, y.text);
    assert_int_equal(a->ranges.n, b->ranges.n);
    for (size_t i = 0; i < a->ranges.n; i++) {
        assert_int_equal(a->ranges.items[i].pool, b->ranges.items[i].pool);
        assert_int_equal(a->ranges.items[i].start, b->ranges.items[i].start);
        assert_int_equal(a->ranges.items[i].count, b->ranges.items[i].count);
    }
}

static struct dlc_buf encode(const struct dlc_message *m)
{
    struct dlc_buf b = { 0 };

    assert_int_equal(dlc_message_encode(&b, m), DLC_OK);
    assert_int_equal(b.data[b.len], 0);
    return b;
}

static void every_kind_comes_back(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct dlc_message m = example(kinds[k].kind), bare = { .kind = kinds[k].kind }, back;
        struct dlc_buf b = encode(&m);
        size_t length = 0, first = b.len;

        assert_int_equal(dlc_message_length(&length, b.data), DLC_OK);
        assert_int_equal(length, b.len);
        if (dlc_message_decode(&back, b.data, b.len) != DLC_OK)
            fail_msg("%s: %s", kinds[k].name, dlc_err_text());
        assert_same(&m, &back);
        dlc_message_fini(&back);

        assert_int_equal(dlc_message_encode(&b, &bare), DLC_OK); /* appended, and decoded from there */
        assert_int_equal(dlc_message_decode(&back, b.data + first, b.len - first), DLC_OK);
        assert_same(&bare, &back);
        dlc_message_fini(&back);
        dlc_message_fini(&m);
        dlc_buf_fini(&b);
    }
}

/* The layout of docs/protocol.md, byte by byte. */
static void the_layout(void **state)
{
    /* clang-format off */
    static const unsigned char head[] = {
        'D', 'L', 'C', 'M', 3, 0, 20, 0, 0xda, 0, 0, 0,       /* magic, version, kind, bytes of the body */
        4, 3, 2, 1,                                           /* incarnation */
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,       /* t */
        0x24, 0x23, 0x22, 0x21,                               /* attempt */
        0xe8, 3, 0, 0, 0, 0, 0, 0,                            /* step */
        0x73, 0x63, 0x53, 0x43, 0x33, 0x23, 0x13, 0x03,       /* first_step */
        0xf4, 1, 0, 0, 0, 0, 0, 0,                            /* n_steps */
        7, 0, 0, 0, 0, 0, 0, 0,                               /* state_step */
        1,                                                    /* own_params */
        0, 0, 0x10, 0, 0, 0, 0, 0,                            /* size_bytes */
        200,                                                  /* digest, 32 bytes */
    };
    static const unsigned char tail[] = {
        0, 0, 0, 0, 0, 0, 4, 0x40,       /* loss 2.5 */
        0x2d, 0x43, 0x1c, 0xeb, 0xe2, 0x36, 0x3a, 0x3f, /* lr 4e-4 */
        0, 0, 0, 0, 0, 0, 0, 0x80,       /* grad_norm -0 */
        0, 0, 0, 0, 0, 0, 0xf0, 0x7f,    /* seconds infinite */
        0xf1, 0x68, 0xe3, 0x88, 0xb5, 0xf8, 0xe4, 0x3e, /* data_s 1e-5 */
        0, 0, 0, 0, 0, 0, 0xd0, 0x3f,    /* outer_s 0.25 */
        6,                               /* code */
        1,                               /* states_known */
        40, 0, 0, 0, 0, 0, 0, 0,         /* states[0] */
        39, 0, 0, 0, 0, 0, 0, 0,         /* states[1] */
        17, 0,                           /* bytes of text */
        2, 0, 0, 0,                      /* ranges */
    };
    /* clang-format on */
    struct dlc_message m = example(DLC_MSG_ASSIGN);
    struct dlc_buf b = encode(&m);

    (void)state;
    assert_int_equal(b.len, 12 + 161 + 17 + 2 * 20);
    assert_int_equal(b.len - 12, 0xda);
    assert_memory_equal(b.data, head, sizeof head);
    assert_memory_equal(b.data + sizeof head + 31, tail, sizeof tail);
    assert_memory_equal(b.data + 12 + 161, m.text, 17);
    assert_memory_equal(b.data + 12 + 161 + 17, "\3\0\0\0\xe8\3\0\0\0\0\0\0\x18\0\0\0\0\0\0\0", 20);
    dlc_buf_fini(&b);
    dlc_message_fini(&m);
}

/* From memory of exactly that size, so that a sanitizer sees one byte too many. */
static dlc_err decode_exactly(struct dlc_message *out, const char *bytes, size_t n)
{
    char *copy = dlc_alloc(n);
    dlc_err err;

    assert_non_null(copy);
    memcpy(copy, bytes, n);
    err = dlc_message_decode(out, copy, n);
    dlc_free(copy);
    return err;
}

static void cut_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct dlc_message m = example(kinds[k].kind), back;
        struct dlc_buf b = encode(&m);

        for (size_t n = 0; n < b.len; n++) {
            if (decode_exactly(&back, b.data, n) != DLC_EPEER)
                fail_msg("%s cut to %zu of %zu bytes was taken", kinds[k].name, n, b.len);
        }
        assert_int_equal(dlc_buf_append(&b, "", 1), DLC_OK);
        assert_int_equal(decode_exactly(&back, b.data, b.len), DLC_EPEER); /* and one byte too many */
        dlc_buf_fini(&b);
        dlc_message_fini(&m);
    }
}

/* Any byte with any value: refused, or a message that encodes to the bytes it came from. */
static void any_byte_changed_is_refused_or_a_message(void **state)
{
    struct dlc_message m = example(DLC_MSG_ASSIGN), back;
    struct dlc_buf b = encode(&m), again = { 0 };
    int n_refused = 0;

    (void)state;
    for (size_t i = 0; i < b.len; i++) {
        char was = b.data[i];

        for (int value = 0; value < 256; value++) {
            b.data[i] = (char)value;
            if (decode_exactly(&back, b.data, b.len) != DLC_OK) {
                n_refused++;
                continue;
            }
            dlc_buf_clear(&again);
            assert_int_equal(dlc_message_encode(&again, &back), DLC_OK);
            assert_int_equal(again.len, b.len);
            assert_memory_equal(again.data, b.data, b.len);
            dlc_message_fini(&back);
        }
        b.data[i] = was;
    }
    assert_true(n_refused > 256 * 8);
    dlc_buf_fini(&b);
    dlc_buf_fini(&again);
    dlc_message_fini(&m);
}

static void random_bytes_are_safe(void **state)
{
    struct dlc_message back;
    struct dlc_rng rng = { .seed = 4 };

    (void)state;
    for (int k = 0; k < 20000; k++) {
        struct dlc_message m = example(kinds[dlc_rng_below(&rng, 12)].kind);
        struct dlc_buf b = encode(&m);

        for (uint64_t i = 1 + dlc_rng_below(&rng, 8); i > 0; i--)
            b.data[dlc_rng_below(&rng, b.len)] = (char)dlc_rng_next(&rng);
        if (decode_exactly(&back, b.data, b.len) == DLC_OK)
            dlc_message_fini(&back);
        dlc_buf_fini(&b);
        dlc_message_fini(&m);
    }
}

static void set_u64(struct dlc_buf *b, size_t at, uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        b->data[at + i] = (char)(value >> (8 * i));
}

static void values_out_of_range_are_refused(void **state)
{
    enum { STEP = 12 + 16, FIRST = STEP + 8, COUNT = FIRST + 8, TEXT = 12 + 161, RANGES = TEXT + 17 };
    static const struct {
        size_t at;
        uint64_t value;
        const char *text, *why;
    } rows[] = {
        { STEP, UINT64_MAX, "out of range", "a negative step" },
        { FIRST, INT64_MAX, "out of range", "a step beyond all" },
        { COUNT, ((uint64_t)1 << 60) + 1, "out of range", "more steps than there can be" },
        { TEXT, 0, "out of range", "a zero byte in the text" },
        { RANGES + 4, ((uint64_t)1 << 60) + 1, "token range 0", "a range beyond all samples" },
        { RANGES + 12, 0, "token range 0", "an empty range" },
        { RANGES + 12, UINT64_MAX, "token range 0", "a range without end" },
        { RANGES + 20 + 12, (uint64_t)1 << 60, "token range 1", "more samples than there can be, in all" },
        { RANGES, 1000001, "token range 0", "a pool beyond all" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_message m = example(DLC_MSG_ASSIGN), back;
        struct dlc_buf b = encode(&m);

        set_u64(&b, rows[k].at, rows[k].value);
        if (decode_exactly(&back, b.data, b.len) != DLC_EPEER || !strstr(dlc_err_text(), rows[k].text))
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        assert_null(back.ranges.items);
        dlc_buf_fini(&b);
        dlc_message_fini(&m);
    }
}

static void headers_of_others_are_named(void **state)
{
    static const struct {
        size_t at;
        unsigned char value;
        const char *text;
    } rows[] = {
        { 0, 'X', "not a message of ours" }, { 4, 2, "message version 2, this program speaks 3" },
        { 6, 99, "unknown kind 99" },        { 6, 10, "unknown kind 10" },
        { 6, 0, "unknown kind 0" },          { 11, 1, "at most 65536" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_message m = example(DLC_MSG_MEAN), back;
        struct dlc_buf b = encode(&m);

        b.data[rows[k].at] = (char)rows[k].value;
        if (decode_exactly(&back, b.data, b.len) != DLC_EPEER || !strstr(dlc_err_text(), rows[k].text))
            fail_msg("%s: %s", rows[k].text, dlc_err_text());
        dlc_buf_fini(&b);
        dlc_message_fini(&m);
    }
}

static void the_longest_message_fits_and_one_more_does_not(void **state)
{
    struct dlc_message m = { .kind = DLC_MSG_ASSIGN }, back;
    struct dlc_buf b = { 0 };
    size_t most = (DLC_MESSAGE_MAX_BYTES - 12 - 161) / 20;

    (void)state;
    for (size_t i = 0; i < most; i++)
        assert_int_equal(dlc_ranges_add(&m.ranges, (struct dlc_range){ 0, 2 * i, 1 }), DLC_OK);
    b = encode(&m);
    assert_int_equal(decode_exactly(&back, b.data, b.len), DLC_OK);
    assert_int_equal(back.ranges.n, most);
    assert_int_equal(dlc_ranges_add(&m.ranges, (struct dlc_range){ 0, 2 * most, 1 }), DLC_OK);
    assert_int_equal(dlc_message_encode(&b, &m), DLC_EFAIL);
    dlc_message_fini(&m);
    dlc_message_fini(&back);
    dlc_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_comes_back),       cmocka_unit_test(the_layout),
        cmocka_unit_test(cut_anywhere_is_refused),     cmocka_unit_test(any_byte_changed_is_refused_or_a_message),
        cmocka_unit_test(random_bytes_are_safe),       cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(headers_of_others_are_named), cmocka_unit_test(the_longest_message_fits_and_one_more_does_not),
    };

    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
