#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "schedule.h"

#define MAX 1000

static const struct chaos_plan plan = {
    .n_islands = 8,
    .duration_s = 180,
    .every_s = 2,
    .weight = { 6, 4, 2, 3, 2, 1, 1, 1, 1, 0 },
    .for_s = { { 1, 2 },
               { 5, 20 },
               { 1, 4 },
               { 2, 10 },
               { 5, 15 },
               { 0, 0 },
               { 0, 0 },
               { 0.5, 2 },
               { 2, 5 },
               { 3, 3 } },
    .rest_s = 3,
    .least_up = 0.5,
};

static void one_seed_gives_one_schedule(void **state)
{
    static struct chaos_fault a[MAX], b[MAX];
    struct dlc_buf x = { 0 }, y = { 0 }, z = { 0 };
    size_t n = chaos_schedule(a, MAX, &plan, 7);

    (void)state;
    assert_int_equal(chaos_schedule(b, MAX, &plan, 7), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(chaos_describe(&x, &a[i]), DLC_OK);
        assert_int_equal(chaos_describe(&y, &b[i]), DLC_OK);
    }
    assert_string_equal(x.data, y.data);
    n = chaos_schedule(b, MAX, &plan, 8);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(chaos_describe(&z, &b[i]), DLC_OK);
    assert_string_not_equal(x.data, z.data);
    dlc_buf_fini(&x);
    dlc_buf_fini(&y);
    dlc_buf_fini(&z);
}

static int in_trouble(const struct chaos_fault *f, size_t n, double at_s)
{
    int count = 0;

    for (size_t i = 0; i < n; i++)
        count += f[i].island != CHAOS_NOBODY && f[i].at_s <= at_s && f[i].at_s + f[i].for_s > at_s;
    return count;
}

static void check(const struct chaos_fault *f, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        assert_true(f[i].island >= CHAOS_NOBODY && f[i].island < plan.n_islands);
        assert_true(f[i].at_s > 0 && f[i].at_s + f[i].for_s <= plan.duration_s);
        assert_true(plan.weight[f[i].kind] > 0);
        assert_true(f[i].for_s >= plan.for_s[f[i].kind][0] && f[i].for_s <= plan.for_s[f[i].kind][1]);
        if (in_trouble(f, n, f[i].at_s) > plan.n_islands / 2)
            fail_msg("seed %llu: at %g s %d of %d islands are in trouble", (unsigned long long)seed, f[i].at_s,
                     in_trouble(f, n, f[i].at_s), plan.n_islands);
        for (size_t k = 0; k < i; k++) {
            if (f[k].island == f[i].island && f[k].at_s + f[k].for_s + plan.rest_s > f[i].at_s)
                fail_msg("seed %llu: %s at %g s, before the fault of %g s is over and rested", (unsigned long long)seed,
                         chaos_kind_name(f[i].kind), f[i].at_s, f[k].at_s);
        }
        assert_true(i == 0 || f[i].at_s >= f[i - 1].at_s);
    }
}

static void schedules_keep_to_their_plan(void **state)
{
    static struct chaos_fault f[MAX];
    int seen[CHAOS_N_KINDS] = { 0 };
    size_t all = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        size_t n = chaos_schedule(f, MAX, &plan, seed);

        check(f, n, seed);
        all += n;
        for (size_t i = 0; i < n; i++)
            seen[f[i].kind]++;
    }
    for (int k = 0; k < CHAOS_N_KINDS; k++)
        assert_true((seen[k] > 0) == (plan.weight[k] > 0));
    if (all <
        200 * 89 * 3 / 5) /* of 89 that were asked for, those at the end and those that found nobody are left out */
        fail_msg("only %zu faults in 200 schedules", all);
}

static void a_small_buffer_is_kept(void **state)
{
    struct chaos_fault f[3];

    (void)state;
    assert_int_equal(chaos_schedule(f, 3, &plan, 1), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_seed_gives_one_schedule),
        cmocka_unit_test(schedules_keep_to_their_plan),
        cmocka_unit_test(a_small_buffer_is_kept),
    };

    return cmocka_run_group_tests_name("chaos schedule", tests, NULL, NULL);
}
