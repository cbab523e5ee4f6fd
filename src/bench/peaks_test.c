#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "bench/peaks.h"

enum { N = 2 * DLC_PEAK_GRAIN };

static struct dlc_peak_set sets[DLC_PEAK_MAX_SETS];
static size_t n_sets;

/* Every sum tends to 2, exactly; one that the compiler left out would be missing from the total. */
static void every_multiply_add_is_done(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_sets; i++) {
        float total = 0;
        double flops;

        if (!sets[i].vectors)
            continue;
        flops = sets[i].vectors->fma(&total);
        if (flops / DLC_PEAK_FMA_ROUNDS != (double)total || total < 2 * 10 * 4)
            fail_msg("%s: %g FLOPs, %d rounds, total %g; at least 10 sums of 4", sets[i].name, flops,
                     DLC_PEAK_FMA_ROUNDS, (double)total);
    }
}

static void dot_products_are_done(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_sets; i++) {
        float total = 0;

        if (!sets[i].dot)
            continue;
        if (!(sets[i].dot(&total) > 1e6) || !isfinite(total) || !(total > 0))
            fail_msg("%s: total %g", sets[i].name, (double)total);
    }
}

static void streams_touch_every_value(void **state)
{
    float *a, *b, *c;
    void *arena;

    (void)state;
    assert_int_equal(dlc_arena_alloc(&arena, 3 * N * sizeof(float), "test"), DLC_OK);
    a = arena;
    b = a + N;
    c = b + N;
    for (size_t i = 0; i < n_sets; i++) {
        const struct dlc_peak_vectors *v = sets[i].vectors;

        if (!v)
            continue;
        for (int j = 0; j < N; j++) {
            a[j] = -1;
            b[j] = (float)j;
            c[j] = (float)(3 * j % 7);
        }
        v->triad(a, b, c, 2, N);
        for (int j = 0; j < N; j++)
            if (a[j] != b[j] + 2 * c[j])
                fail_msg("%s: triad [%d] is %g, not %g + 2 x %g", sets[i].name, j, (double)a[j], (double)b[j],
                         (double)c[j]);
        v->in_place(b, 5, N);
        for (int j = 0; j < N; j++)
            if (b[j] != 5 - (float)j)
                fail_msg("%s: in place [%d] is %g, not 5 - %d", sets[i].name, j, (double)b[j], j);
        if (v->read(b, N) != 5 * N - (float)N / 2 * (N - 1)) /* all partial sums are whole numbers below 2^24 */
            fail_msg("%s: the sum read is %g", sets[i].name, (double)v->read(b, N));
    }
    dlc_arena_free(arena, 3 * N * sizeof(float));
}

static void all_is_measured(void **state)
{
    struct dlc_peaks p = { 0 };
    struct dlc_bandwidth high = { .read = 1e18, .triad = 1e18, .in_place = 1e18 };
    struct dlc_streams s;
    dlc_pool *pool;

    (void)state;
    assert_int_equal(dlc_pool_create(&pool, 2), DLC_OK);
    dlc_peaks_arithmetic(&p, pool, 0.001);
    assert_int_equal(p.n_threads, 2);
    assert_true(p.f32_flops > 0 && p.f32_flops_1 > 0);
    assert_true((p.bf16_flops > 0) == (p.bf16_flops_1 > 0));

    assert_int_equal(dlc_streams_init(&s, pool, 100 * 1000), DLC_OK);
    dlc_streams_measure(&p.memory, &s, 0.001);
    assert_int_equal(p.memory.array_bytes, 24 * DLC_PEAK_GRAIN * sizeof(float)); /* whole grains */
    assert_true(p.memory.read > 0 && p.memory.triad > 0 && p.memory.in_place > 0);
    dlc_streams_measure(&high, &s, 0.001);
    assert_true(high.read == 1e18 && high.triad == 1e18 && high.in_place == 1e18); /* the best so far */
    dlc_streams_fini(&s);

    dlc_mem_fail_at(1);
    assert_int_equal(dlc_streams_init(&s, pool, 100 * 1000), DLC_ENOMEM);
    dlc_mem_fail_at(0);
    assert_non_null(strstr(dlc_err_text(), "bandwidth"));
    dlc_streams_fini(&s);
    dlc_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_multiply_add_is_done),
        cmocka_unit_test(dot_products_are_done),
        cmocka_unit_test(streams_touch_every_value),
        cmocka_unit_test(all_is_measured),
    };

    n_sets = dlc_peak_sets(sets);
    for (size_t i = 0; i < n_sets; i++)
        print_message("this machine has %s\n", sets[i].name);
    return cmocka_run_group_tests_name("peaks", tests, NULL, NULL);
}
