#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

#include "base/rng.h"
#include "ckpt/stored.h"

enum { N = DLC_Q8_0_VALUES };

static void q8_0_is_what_the_formula_says(void **state)
{
    static const struct {
        const char *why;
        float values[N]; /* the rest are zeros */
        uint16_t scale;
        int8_t q[N];
    } rows[] = {
        { "nothing", { 0 }, 0, { 0 } },
        { "negative zero", { -0.0f }, 0, { 0 } },
        { "scale 1, halves away from zero",
          { 127, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 0.4999f },
          0x3c00,
          { 127, 1, -1, 2, 3, -3, 0 } },
        { "the largest is negative", { -254, 2, 3 }, 0x4000, { -127, 1, 2 } },
        { "scale of a subnormal half", { 127 * 0x1p-24f, 0x1p-24f }, 0x0001, { 127, 1 } },
        { "scale too small for a half", { 0x1p-40f, -0x1p-41f }, 0x0000, { 127, -64 } },
        { "scale without an inverse", { 0x1p-140f }, 0x0000, { 0 } },
        { "the largest scale", { 127 * 65504.0f }, 0x7bff, { 127 } },
    };
    unsigned char block[DLC_Q8_0_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (dlc_stored_encode(block, DLC_STORED_Q8_0, rows[i].values, N, "t") != DLC_OK)
            fail_msg("%s: %s", rows[i].why, dlc_err_text());
        if ((block[0] | block[1] << 8) != rows[i].scale || memcmp(block + 2, rows[i].q, N) != 0)
            fail_msg("%s: scale 0x%04x, values %d %d %d %d", rows[i].why, block[0] | block[1] << 8, (int8_t)block[2],
                     (int8_t)block[3], (int8_t)block[4], (int8_t)block[5]);
    }
}

static void values_come_back_within_their_bound(void **state)
{
    enum { BLOCKS = 200 };
    static float values[N * BLOCKS], back[N * BLOCKS];
    static unsigned char bytes[4 * N * BLOCKS + 1];

    (void)state;
    for (int i = 0; i < N * BLOCKS; i++)
        values[i] = (float)(dlc_rng_normal(3, 1, (uint64_t)i) * pow(10, i / N % 9 - 4));
    for (int type = DLC_STORED_F32; type <= DLC_STORED_Q8_0; type++) {
        assert_int_equal(dlc_stored_encode(bytes + 1, (dlc_stored)type, values, N * BLOCKS, "t"), DLC_OK);
        dlc_stored_decode(back, (dlc_stored)type, bytes + 1, N * BLOCKS); /* not aligned */
        for (int i = 0; i < N * BLOCKS; i++) {
            double largest = 0, bound = 0;

            for (int k = i / N * N; k < i / N * N + N; k++)
                largest = fmax(largest, fabs((double)values[k]));
            if (type == DLC_STORED_F16 || type == DLC_STORED_BF16)
                bound = fmax(fabs((double)values[i]) * (type == DLC_STORED_F16 ? 0x1p-11 : 0x1p-8), 0x1p-25);
            else if (type ==
                     DLC_STORED_Q8_0) /* half a step, and the scale's own rounding in the farthest of 127 steps */
                bound = largest / 127 * (0.5 + 1e-4) + fmax(largest * 0x1p-11, 127 * 0x1p-25);
            if (!(fabs((double)back[i] - (double)values[i]) <= bound))
                fail_msg("%s: %g came back as %g, at most %g away is allowed", dlc_stored_name((dlc_stored)type),
                         (double)values[i], (double)back[i], bound);
        }
    }
}

static void what_cannot_be_held_is_refused(void **state)
{
    static const struct {
        dlc_stored type;
        float value;
        bool ok;
    } rows[] = {
        { DLC_STORED_F16, 65519, true },   { DLC_STORED_F16, -65520, false },   { DLC_STORED_F16, INFINITY, true },
        { DLC_STORED_F16, NAN, true },     { DLC_STORED_BF16, 3.38e38f, true }, { DLC_STORED_BF16, 3.4e38f, false },
        { DLC_STORED_F32, NAN, true },     { DLC_STORED_Q8_0, NAN, false },     { DLC_STORED_Q8_0, -INFINITY, false },
        { DLC_STORED_Q8_0, 8.3e6f, true }, { DLC_STORED_Q8_0, 8.33e6f, false },
    };
    unsigned char bytes[4 * N];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float values[N] = { 1, rows[i].value };
        dlc_err err = dlc_stored_encode(bytes, rows[i].type, values, N, "blk.0");

        if (err != (rows[i].ok ? DLC_OK : DLC_EINPUT) ||
            (!rows[i].ok && !strstr(dlc_err_text(), "tensor \"blk.0\" has")))
            fail_msg("%s of %g: error %d, %s", dlc_stored_name(rows[i].type), (double)rows[i].value, err,
                     dlc_err_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q8_0_is_what_the_formula_says),
        cmocka_unit_test(values_come_back_within_their_bound),
        cmocka_unit_test(what_cannot_be_held_is_refused),
    };

    return cmocka_run_group_tests_name("stored", tests, NULL, NULL);
}
