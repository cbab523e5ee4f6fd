/* Trimmed mean and median: by hand, and that one hostile island of four cannot move a value beyond the honest ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "outer/robust.h"

#define MAX 8

static void by_hand(void **state)
{
    static const struct {
        dlc_aggregate aggregate;
        size_t n;
        double values[MAX], weights[MAX], expected;
        const char *why;
    } rows[] = {
        { DLC_AGGREGATE_MEDIAN, 2, { 1, 3 }, { 1, 9 }, 2, "the middle two, unweighted" },
        { DLC_AGGREGATE_MEDIAN, 3, { 5, -1, 2 }, { 1, 1, 1 }, 2, "the middle one" },
        { DLC_AGGREGATE_MEDIAN, 4, { 5, -1, 2, 100 }, { 1, 1, 1, 1 }, 3.5, "of an even number" },
        { DLC_AGGREGATE_TRIMMED, 2, { 1, 3 }, { 1, 3 }, 2.5, "of two nothing is cut" },
        { DLC_AGGREGATE_TRIMMED, 3, { 5, -1, 2 }, { 1, 1, 1 }, 2, "of three the middle one" },
        { DLC_AGGREGATE_TRIMMED, 4, { 5, -1, 2, 100 }, { 3, 1, 1, 1 }, 17.0 / 4, "weighted, without -1 and 100" },
        { DLC_AGGREGATE_TRIMMED, 8, { 8, 7, 6, 5, 4, 3, 2, 1 }, { 1, 1, 1, 1, 1, 1, 1, 1 }, 4.5, "a quarter each" },
        { DLC_AGGREGATE_TRIMMED, 3, { 2, 2, 2 }, { 1, 2, 3 }, 2, "all equal" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_merge_part parts[MAX];
        double out;

        for (size_t i = 0; i < rows[k].n; i++)
            parts[i] = (struct dlc_merge_part){ NULL, rows[k].weights[i], NULL };
        dlc__robust(&out, rows[k].values, 1, parts, rows[k].n, rows[k].aggregate);
        if (out < rows[k].expected - 1e-12 || out > rows[k].expected + 1e-12)
            fail_msg("%s: %.17g, expected %.17g", rows[k].why, out, rows[k].expected);
    }
}

#define N 3000
#define K 4

/* theta(t) by SGD(1), so that the outer gradient can be seen; returns how many values left the honest islands' range. */
static size_t n_outside(dlc_aggregate aggregate, int hostile, float with)
{
    static const struct dlc_outer_opt opt = { .kind = DLC_OUTER_SGD, .lr = 1 };
    static float base[N], islands[K][N], theta[N];
    struct dlc_merge m = { &dlc_codec_f32, &opt, aggregate, N, 1 };
    struct dlc_merge_part parts[K];
    size_t n = 0;

    for (int i = 0; i < K; i++)
        parts[i] = (struct dlc_merge_part){ islands[i], 1 + i, NULL };
    for (size_t j = 0; j < N; j++) {
        base[j] = (float)dlc_rng_normal(4, 0, j);
        for (int i = 0; i < K; i++)
            islands[i][j] = j % 7 == 0 ? base[j] : base[j] - 0.01f * (float)dlc_rng_normal(4, 1 + (uint64_t)i, j);
        islands[hostile][j] = j % 2 ? with : -with;
    }
    dlc_merge(theta, base, (float *const[2]){ NULL, NULL }, NULL, &m, parts, K, NULL);
    for (size_t j = 0; j < N; j++) {
        float low = 1e30f, high = -1e30f;

        for (int i = 0; i < K; i++) {
            low = i != hostile && islands[i][j] < low ? islands[i][j] : low;
            high = i != hostile && islands[i][j] > high ? islands[i][j] : high;
        }
        n += theta[j] < low || theta[j] > high;
    }
    return n;
}

static void one_hostile_island_of_four_moves_nothing_out_of_range(void **state)
{
    (void)state;
    for (int hostile = 0; hostile < K; hostile++) {
        assert_int_equal(n_outside(DLC_AGGREGATE_TRIMMED, hostile, 1e20f), 0);
        assert_int_equal(n_outside(DLC_AGGREGATE_MEDIAN, hostile, 1e20f), 0);
        assert_int_equal(n_outside(DLC_AGGREGATE_TRIMMED, hostile, 0.02f), 0);
        assert_true(n_outside(DLC_AGGREGATE_MEAN, hostile, 1e20f) > N / 2); /* the attack is one */
    }
}

/* Many islands, threads: the same bits, and the sort that is used from 33 islands on agrees with the other. */
static void many_islands_and_threads(void **state)
{
    enum { MANY = 100, n = 5000 };
    static const struct dlc_outer_opt opt = { .kind = DLC_OUTER_SGD, .lr = 0.5 };
    static float islands[MANY][n], base[n], alone[n], threads[n];
    struct dlc_merge_part parts[MANY];
    dlc_pool *pool;

    (void)state;
    assert_int_equal(dlc_pool_create(&pool, 3), DLC_OK);
    for (size_t i = 0; i < MANY; i++) {
        parts[i] = (struct dlc_merge_part){ islands[i], 1, NULL };
        for (size_t j = 0; j < n; j++)
            islands[i][j] = (float)((i * 37 + j) % MANY);
    }
    for (int k = 1; k <= 2; k++) {
        struct dlc_merge m = { &dlc_codec_f32, &opt, (dlc_aggregate)k, n, 1 };

        dlc_merge(alone, base, (float *const[2]){ NULL, NULL }, NULL, &m, parts, MANY, NULL);
        dlc_merge(threads, base, (float *const[2]){ NULL, NULL }, NULL, &m, parts, MANY, pool);
        assert_memory_equal(alone, threads, sizeof alone);
        for (size_t j = 0; j < n; j++)
            assert_true(alone[j] > 24.7f && alone[j] < 24.8f); /* half of 49.5: the values are 0 .. 99 */
    }
    dlc_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(one_hostile_island_of_four_moves_nothing_out_of_range),
        cmocka_unit_test(many_islands_and_threads),
    };

    return cmocka_run_group_tests_name("robust", tests, NULL, NULL);
}
