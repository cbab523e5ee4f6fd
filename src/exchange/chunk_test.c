/* Questions for chunks and their answers: the bytes, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "base/rng.h"
#include "exchange/fetch.h"

#define SIZE (12 * DLC_CHUNK_BYTES + 1001)

static unsigned char *blob; /* SIZE bytes */
static struct dlc_blob_ref ref;

static int make_blob(void **state)
{
    struct dlc_rng rng = { .seed = 1 };

    (void)state;
    blob = dlc_alloc(SIZE);
    for (size_t i = 0; blob && i < SIZE; i++)
        blob[i] = (unsigned char)dlc_rng_next(&rng);
    ref = (struct dlc_blob_ref){ .digest = dlc_sha256(blob, SIZE), .size_bytes = SIZE };
    return blob ? 0 : -1;
}

static int free_blob(void **state)
{
    (void)state;
    dlc_free(blob);
    return 0;
}

/* The layouts of docs/protocol.md, byte by byte. */
static void the_layouts(void **state)
{
    /* clang-format off */
    static const unsigned char ask_head[] = { 'D', 'L', 'C', 'Q', 1, 0, 0, 0 };      /* magic, version, zero */
    static const unsigned char ask_tail[] = { 0xc, 0, 0, 0, 0, 0, 0, 0 };            /* index, zero */
    static const unsigned char answer_head[] = { 'D', 'L', 'C', 'B', 1, 0, 0, 0 };   /* magic, version, flags */
    static const unsigned char gone_head[] = { 'D', 'L', 'C', 'B', 1, 0, 1, 0 };
    static const unsigned char answer_middle[] = { 0xe9, 3, 0x30, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0xe9, 3, 0, 0 };
    /* clang-format on */
    struct dlc_chunk_ask ask = { .digest = ref.digest, .index = 12 }, back;
    uint8_t bytes[DLC_CHUNK_ASK_BYTES];
    struct dlc_buf b = { 0 };
    uint64_t checksum;

    (void)state;
    dlc_chunk_ask_encode(bytes, &ask);
    assert_memory_equal(bytes, ask_head, 8);
    assert_memory_equal(bytes + 8, ref.digest.bytes, 32);
    assert_memory_equal(bytes + 40, ask_tail, 8);
    assert_int_equal(dlc_chunk_ask_decode(&back, bytes, sizeof bytes), DLC_OK);
    assert_memory_equal(&back, &ask, sizeof ask);

    assert_int_equal(dlc_chunk_answer(&b, &ask, blob, SIZE), DLC_OK);
    assert_int_equal(b.len, 72 + 1001);
    assert_memory_equal(b.data, answer_head, 8);
    assert_memory_equal(b.data + 8, ref.digest.bytes, 32);
    assert_memory_equal(b.data + 40, answer_middle, 16); /* size, index, length */
    checksum = dlc_xxh64(blob + 12 * DLC_CHUNK_BYTES, 1001);
    for (int i = 0; i < 8; i++)
        assert_int_equal((unsigned char)b.data[56 + i], (unsigned char)(checksum >> (8 * i)));
    checksum = dlc_xxh64(b.data, 64);
    for (int i = 0; i < 8; i++)
        assert_int_equal((unsigned char)b.data[64 + i], (unsigned char)(checksum >> (8 * i)));
    assert_memory_equal(b.data + 72, blob + 12 * DLC_CHUNK_BYTES, 1001);

    assert_int_equal(dlc_chunk_answer(&b, &ask, NULL, 0), DLC_OK);
    assert_int_equal(b.len, 72);
    assert_memory_equal(b.data, gone_head, 8);
    ask.index = 13;
    assert_int_equal(dlc_chunk_answer(&b, &ask, blob, SIZE), DLC_EPEER);
    assert_int_equal(b.len, 0);
    ask.index = UINT32_MAX;
    assert_int_equal(dlc_chunk_answer(&b, &ask, blob, SIZE), DLC_EPEER);
    dlc_buf_fini(&b);
}

static void questions_that_are_not_sound_are_refused(void **state)
{
    struct dlc_chunk_ask ask = { .digest = ref.digest, .index = 12 }, back;
    uint8_t bytes[DLC_CHUNK_ASK_BYTES];

    (void)state;
    dlc_chunk_ask_encode(bytes, &ask);
    for (size_t n = 0; n < sizeof bytes; n++)
        assert_int_equal(dlc_chunk_ask_decode(&back, bytes, n), DLC_EPEER);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 1;
        assert_int_equal(dlc_chunk_ask_decode(&back, bytes, sizeof bytes),
                         i < 8 || i >= 44 ? DLC_EPEER : DLC_OK); /* digest and index may be any */
        bytes[i] ^= 1;
    }
}

/* Headers whose checksum is right, as an enemy would write them. */
static void answers_that_are_not_sound_are_refused(void **state)
{
    static const struct {
        size_t at, n;
        uint64_t value;
        const char *text, *why;
    } rows[] = {
        { 0, 4, 0x42434c45, "not a chunk of ours", "magic" },
        { 4, 2, 2, "chunk version 2, this program speaks 1", "version" },
        { 6, 2, 2, "not sound", "an unknown flag" },
        { 6, 2, 1, "not sound", "gone, and yet there" },
        { 40, 8, 0, "not sound", "of a blob without bytes" },
        { 40, 8, SIZE + 1, "not sound", "of a longer blob, so the last chunk is longer" },
        { 40, 8, UINT64_MAX, "not sound", "of a blob beyond all" },
        { 48, 4, 13, "not sound", "behind the last chunk" },
        { 48, 4, UINT32_MAX, "not sound", "far behind the last chunk" },
        { 48, 4, 0, "not sound", "the first chunk is longer" },
        { 52, 4, 1000, "not sound", "a byte less" },
        { 52, 4, UINT32_MAX, "not sound", "more than any chunk" },
        { 56, 8, 1, "is damaged", "the bytes' checksum" },
    };
    struct dlc_chunk_ask ask = { .digest = ref.digest, .index = 12 };
    struct dlc_buf b = { 0 };
    struct dlc_chunk back;
    const void *chunk;
    bool sound;

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_cursor c;

        assert_int_equal(dlc_chunk_answer(&b, &ask, blob, SIZE), DLC_OK);
        c = dlc_cursor(b.data + rows[k].at, rows[k].n);
        dlc_put_uint(&c, rows[k].value, rows[k].n);
        c = dlc_cursor(b.data + 64, 8);
        dlc_put_u64(&c, dlc_xxh64(b.data, 64));
        if (dlc_chunk_decode(&back, &chunk, &sound, b.data, b.len) != DLC_EPEER ||
            !strstr(dlc_err_text(), rows[k].text))
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        assert_int_equal(sound, rows[k].at == 56);
        assert_null(chunk);
    }
    dlc_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layouts),
        cmocka_unit_test(questions_that_are_not_sound_are_refused),
        cmocka_unit_test(answers_that_are_not_sound_are_refused),
    };

    return cmocka_run_group_tests_name("chunk", tests, make_blob, free_blob);
}
