#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

#include "tensor/dtype.h"

#define POSITIVE_INFINITY 0x7c00u

static void expect(float f, unsigned expected, const char *why)
{
    uint16_t plus = dlc_f32_to_f16(f), minus = dlc_f32_to_f16(-f);

    if (plus != expected || minus != (expected | 0x8000u))
        fail_msg("%s: %a gives 0x%04x, its negative 0x%04x; 0x%04x is right", why, (double)f, plus, minus, expected);
}

static void every_half_comes_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; h++) {
        float f = dlc_f16_to_f32((uint16_t)h);
        uint16_t back = dlc_f32_to_f16(f);
        bool is_nan = (h & 0x7fff) > POSITIVE_INFINITY;

        if (is_nan ? !isnan(f) || (back & 0x7fff) <= POSITIVE_INFINITY || ((back ^ h) & 0x8000) : back != h)
            fail_msg("0x%04x is %a and comes back as 0x%04x", h, (double)f, back);
    }
}

/* Between each two neighbours: the middle goes to the even one, what lies beside the middle to the nearer one. The step
 * after the largest finite half counts as if there were a next one. */
static void ties_go_to_even_and_others_to_the_nearest(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < POSITIVE_INFINITY; h++) {
        double low = dlc_f16_to_f32((uint16_t)h);
        double high = h + 1 < POSITIVE_INFINITY ? dlc_f16_to_f32((uint16_t)(h + 1)) : 65536;
        float middle = (float)((low + high) / 2);

        assert_true((double)middle == (low + high) / 2);
        expect(middle, h % 2 == 0 ? h : h + 1, "tie");
        expect(nextafterf(middle, 0), h, "below the tie");
        expect(nextafterf(middle, INFINITY), h + 1, "above the tie");
    }
}

static void extremes(void **state)
{
    (void)state;
    expect(0, 0, "zero");
    expect(0x1p-149f, 0, "the smallest f32");
    expect(65504, 0x7bff, "the largest half");
    expect(1e38f, POSITIVE_INFINITY, "far too large");
    expect(INFINITY, POSITIVE_INFINITY, "infinity");
    assert_true((dlc_f32_to_f16(NAN) & 0x7e00) == 0x7e00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_comes_back),
        cmocka_unit_test(ties_go_to_even_and_others_to_the_nearest),
        cmocka_unit_test(extremes),
    };

    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
