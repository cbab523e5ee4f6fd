/* The arithmetic of an outer step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "outer/merge.h"

static void assert_near(double got, double expected, double bound, const char *what)
{
    if (!(fabs(got - expected) <= bound))
        fail_msg("%s: %.17g, expected %.17g within %.3g", what, got, expected, bound);
}

static float *random_values(size_t n, uint64_t stream)
{
    float *values = dlc_alloc(n * sizeof *values);

    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = (float)dlc_rng_normal(11, stream, i);
    return values;
}

static double merge(float *theta_new, const float *theta_old, float *const state[2], const struct dlc_codec *codec,
                    const struct dlc_merge_part *parts, size_t n_parts, const struct dlc_outer_opt *opt, size_t n,
                    uint64_t t, dlc_pool *pool)
{
    struct dlc_merge m = { codec, opt, DLC_AGGREGATE_MEAN, n, t };

    return dlc_merge(theta_new, theta_old, state, NULL, &m, parts, n_parts, pool);
}

/* --- one island, eta = 1, mu = 0: plain training, to the last bit ------------------------------------------------- */

static const struct {
    float base, params;
    const char *why;
} extremes[] = {
    { 0.5f, 0.499f, "a small step" },
    { 0.02f, -0.013f, "through zero" },
    { 0, 0, "nothing" },
    { 0, -0.0f, "the sign of zero" },
    { 1, 0, "to zero" },
    { 0, 1, "from zero" },
    { 1, 1e-40f, "to a denormal" },
    { 1e-40f, 1, "from a denormal" },
    { 1e-45f, -1e-45f, "the smallest values" },
    { 1, 1.2345678e-10f, "to a value far below the base's last bit" },
    { 1e30f, 1.1111111e-30f, "sixty decades apart" },
    { 1e-30f, 3.3333333e30f, "and back" },
    { -FLT_MAX, 1e-45f, "the whole range" },
    { FLT_MAX, -FLT_MAX, "the difference is no float" },
};

#define N_EXTREMES (sizeof extremes / sizeof *extremes)

static const struct {
    struct dlc_outer_opt opt;
    const char *why;
} identities[] = {
    { { .kind = DLC_OUTER_SGD, .lr = 1 }, "sgd" },
    { { .kind = DLC_OUTER_SGDM, .lr = 1, .momentum = 0 }, "sgdm, mu 0" },
    { { .kind = DLC_OUTER_NESTEROV, .lr = 1, .momentum = 0 }, "nesterov, mu 0" },
};

static void reproduces(const float *base, const float *params, size_t n, size_t which)
{
    float *payload = dlc_alloc(4 * n), *theta = dlc_alloc(4 * n), *buf = dlc_calloc(n, 4);
    struct dlc_merge_part part = { payload, 12345, NULL };

    assert_true(payload && theta && buf);
    dlc_codec_f32.encode(payload, base, params, n);
    merge(theta, base, (float *const[2]){ buf, NULL }, &dlc_codec_f32, &part, 1, &identities[which].opt, n, 1, NULL);
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&theta[i], &params[i], 4) != 0)
            fail_msg("%s: value %zu (%s) is %.9g, the island's is %.9g, base %.9g", identities[which].why, i,
                     n == N_EXTREMES ? extremes[i].why : "random", (double)theta[i], (double)params[i],
                     (double)base[i]);
        if (identities[which].opt.kind != DLC_OUTER_SGD && buf[i] != (float)((double)base[i] - (double)params[i]))
            fail_msg("%s: momentum %zu is %.9g", identities[which].why, i, (double)buf[i]);
    }
    dlc_free(payload);
    dlc_free(theta);
    dlc_free(buf);
}

static void one_island_alone_is_plain_training(void **state)
{
    float base[N_EXTREMES], params[N_EXTREMES], *random_base = random_values(5000, 1), *random = random_values(5000, 2);

    (void)state;
    for (size_t i = 0; i < N_EXTREMES; i++) {
        base[i] = extremes[i].base;
        params[i] = extremes[i].params;
    }
    for (size_t k = 0; k < sizeof identities / sizeof *identities; k++) {
        reproduces(base, params, N_EXTREMES, k);
        reproduces(random_base, random, 5000, k);
    }
    dlc_free(random_base);
    dlc_free(random);
}

/* --- the mean ----------------------------------------------------------------------------------------------------- */

static void the_mean_divides_by_the_weights_summed(void **state)
{
    static const struct {
        size_t n;
        double weights[3], expected; /* islands moved from 0 to 1, 2 and 4 */
        const char *why;
    } rows[] = {
        { 3, { 1, 1, 1 }, 7.0 / 3, "all" },
        { 2, { 1, 1, 0 }, 1.5, "one dropped: two remain, and two is the divisor" },
        { 1, { 1, 0, 0 }, 1, "one alone" },
        { 1, { 1000000, 0, 0 }, 1, "one alone, whatever it weighs" },
        { 3, { 1, 2, 5 }, 25.0 / 8, "by weight" },
        { 2, { 3e9, 1e9, 0 }, 1.25, "weights are tokens" },
    };
    static const float islands[3][1] = { { 1 }, { 2 }, { 4 } };
    static const struct dlc_outer_opt opt = { .kind = DLC_OUTER_SGD, .lr = 1 };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_merge_part parts[3];
        float base[1] = { 0 }, theta[1];
        double norm;

        for (size_t i = 0; i < rows[k].n; i++)
            parts[i] = (struct dlc_merge_part){ islands[i], rows[k].weights[i], NULL };
        norm =
            merge(theta, base, (float *const[2]){ NULL, NULL }, &dlc_codec_f32, parts, rows[k].n, &opt, 1, 1, NULL);
        assert_near(theta[0], rows[k].expected, 1e-6, rows[k].why);
        assert_near(norm, (double)(float)rows[k].expected, 1e-12, rows[k].why); /* of the f32 update */
    }
}

/* Two islands that agree are one island, and the momentum's closed form holds through the merge. */
static void identical_islands_are_one(void **state)
{
    static const struct dlc_outer_opt nesterov = { .kind = DLC_OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9 };
    float base[1] = { 2 }, island[1] = { 1.5f }, theta[1], buf[1] = { 0 };
    struct dlc_merge_part parts[2] = { { island, 7, NULL }, { island, 9, NULL } };

    (void)state;
    merge(theta, base, (float *const[2]){ buf, NULL }, &dlc_codec_f32, parts, 2, &nesterov, 1, 1, NULL);
    assert_near(theta[0], 2 - 0.7 * 1.9 * 0.5, 1e-6, "first round");
    assert_near(buf[0], 0.5, 0, "momentum");
}

/* --- blocks and threads ------------------------------------------------------------------------------------------- */

struct outcome {
    float *theta, *buf, *mean;
    double norm;
};

static struct outcome merge_of(size_t n, int n_threads, const struct dlc_codec *codec)
{
    static const struct dlc_outer_opt nesterov = { .kind = DLC_OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9 };
    struct outcome o = { .theta = dlc_calloc(n, 4), .buf = random_values(n, 9), .mean = dlc_calloc(n, 4) };
    float *base = random_values(n, 1), *params[3];
    double weights[3] = { 3, 1, 2 };
    struct dlc_merge_part parts[3];
    dlc_pool *pool = NULL;

    if (n_threads)
        assert_int_equal(dlc_pool_create(&pool, n_threads), DLC_OK);
    for (uint64_t k = 0; k < 3; k++) {
        void *payload = dlc_alloc(codec->size_bytes(n));

        params[k] = random_values(n, 2 + k);
        codec->encode(payload, base, params[k], n);
        parts[k] = (struct dlc_merge_part){ payload, weights[k], NULL };
    }
    o.norm = merge(o.theta, base, (float *const[2]){ o.buf, NULL }, codec, parts, 3, &nesterov, n, 5, pool);
    dlc_mean_gradients(o.mean, (const float *const *)params, weights, 3, n, pool);
    for (int k = 0; k < 3; k++) {
        dlc_free(params[k]);
        dlc_free((void *)(uintptr_t)parts[k].payload);
    }
    dlc_free(base);
    dlc_pool_destroy(pool);
    return o;
}

static void outcome_fini(struct outcome *o)
{
    dlc_free(o->theta);
    dlc_free(o->buf);
    dlc_free(o->mean);
}

static void threads_and_blocks_change_no_bit(void **state)
{
    static const size_t sizes[] = { 1, 2047, 2048, 2049, 10000, 1100000 };

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (const struct dlc_codec *const *codec = dlc_codecs(); *codec; codec++) {
            struct outcome alone = merge_of(sizes[s], 0, *codec);

            for (int threads = 1; threads <= 4; threads++) {
                struct outcome o = merge_of(sizes[s], threads, *codec);

                assert_memory_equal(o.theta, alone.theta, 4 * sizes[s]);
                assert_memory_equal(o.buf, alone.buf, 4 * sizes[s]);
                assert_memory_equal(o.mean, alone.mean, 4 * sizes[s]);
                assert_true(o.norm == alone.norm);
                outcome_fini(&o);
            }
            outcome_fini(&alone);
        }
    }
}

/* A value's result depends on its own inputs only, not on where the blocks are cut. */
static void the_first_values_do_not_know_how_many_follow(void **state)
{
    struct outcome few = merge_of(100, 0, &dlc_codec_f32), many = merge_of(10000, 3, &dlc_codec_f32);

    (void)state;
    assert_memory_equal(few.theta, many.theta, 400);
    assert_memory_equal(few.buf, many.buf, 400);
    outcome_fini(&few);
    outcome_fini(&many);
}

/* --- DiLoCo with H = 1, SGD inside and outer SGD(1) is data parallelism ------------------------------------------- */

static void one_inner_step_is_data_parallelism(void **state)
{
    enum { N = 3000, ISLANDS = 4 };
    static const struct dlc_outer_opt opt = { .kind = DLC_OUTER_SGD, .lr = 1 };
    float *theta = random_values(N, 1), *grads[ISLANDS], *islands[ISLANDS], *mean = dlc_calloc(N, 4),
          *outer = dlc_calloc(N, 4);
    double weights[ISLANDS] = { 1, 2, 3, 4 }, lr = 0.05;
    struct dlc_merge_part parts[ISLANDS];

    (void)state;
    for (uint64_t k = 0; k < ISLANDS; k++) {
        grads[k] = random_values(N, 20 + k);
        islands[k] = random_values(N, 0);
        for (size_t i = 0; i < N; i++)
            islands[k][i] = theta[i] - (float)lr * grads[k][i];
        parts[k] = (struct dlc_merge_part){ islands[k], weights[k], NULL };
    }
    merge(outer, theta, (float *const[2]){ NULL, NULL }, &dlc_codec_f32, parts, ISLANDS, &opt, N, 1, NULL);
    dlc_mean_gradients(mean, (const float *const *)grads, weights, ISLANDS, N, NULL);
    for (size_t i = 0; i < N; i++)
        assert_near(outer[i], (double)theta[i] - lr * (double)mean[i], 1e-6, "parameter");
    for (int k = 0; k < ISLANDS; k++) {
        dlc_free(grads[k]);
        dlc_free(islands[k]);
    }
    dlc_free(theta);
    dlc_free(mean);
    dlc_free(outer);
}

/* --- norms -------------------------------------------------------------------------------------------------------- */

static void norms_tell_what_must_not_get_in(void **state)
{
    static const struct {
        float value;
        bool finite;
        const char *why;
    } rows[] = {
        { 3, true, "ordinary" },         { 3e38f, true, "huge, and its square is no float" },
        { 1e-45f, true, "denormal" },    { NAN, false, "not a number" },
        { INFINITY, false, "infinite" }, { -INFINITY, false, "negative infinite" },
    };
    enum { N = 5000 };

    (void)state;
    for (const struct dlc_codec *const *codec = dlc_codecs(); *codec; codec++) {
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            for (size_t at = 0; at < N; at += N / 2 - 1) { /* in the first block, in the middle, in the last one */
                float *base = dlc_calloc(N, 4), *params = dlc_calloc(N, 4);
                void *payload = dlc_alloc((*codec)->size_bytes(N));
                double norm;

                params[at] = rows[k].value;
                (*codec)->encode(payload, base, params, N);
                norm = dlc_contribution_norm(*codec, payload, base, N, NULL);
                if (isfinite(norm) != rows[k].finite)
                    fail_msg("%s, %s at %zu: norm %g", (*codec)->name, rows[k].why, at, norm);
                dlc_free(base);
                dlc_free(params);
                dlc_free(payload);
            }
        }
    }
}

static void a_norm_is_the_euclidean_one(void **state)
{
    float base[3] = { 1, 1, 1 }, params[3] = { 1, 4, -3 };

    (void)state;
    assert_near(dlc_contribution_norm(&dlc_codec_f32, params, base, 3, NULL), 5, 1e-12, "3, 4, 5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_island_alone_is_plain_training),
        cmocka_unit_test(the_mean_divides_by_the_weights_summed),
        cmocka_unit_test(identical_islands_are_one),
        cmocka_unit_test(threads_and_blocks_change_no_bit),
        cmocka_unit_test(the_first_values_do_not_know_how_many_follow),
        cmocka_unit_test(one_inner_step_is_data_parallelism),
        cmocka_unit_test(norms_tell_what_must_not_get_in),
        cmocka_unit_test(a_norm_is_the_euclidean_one),
    };

    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
