#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "train/sample.h"

#define V 5

/* Draws at n positions; counts per id. */
static void draw(int *counts, const struct dlc_sampling *settings, const float *logits, int n)
{
    dlc_sampler *s;

    memset(counts, 0, V * sizeof *counts);
    if (dlc_sampler_create(&s, settings, V) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    for (int i = 0; i < n; i++) {
        int32_t id = dlc_sampler_next(s, logits, (uint64_t)i);

        assert_in_range(id, 0, V - 1);
        counts[id]++;
    }
    dlc_sampler_destroy(s);
}

static void only_what_may_be_drawn_is_drawn(void **state)
{
    static const struct {
        struct dlc_sampling settings;
        float logits[V];
        int allowed[V];
        const char *why;
    } rows[] = {
        { { 0, 0, 1, 1 },
          { 1, 3, 2, 3, 0 },
          { 0, 1, 0, 0, 0 },
          "temperature 0: the most likely, the lowest id of equals" },
        { { 1, 1, 1, 1 }, { 1, 3, 2, 3, 0 }, { 0, 1, 0, 0, 0 }, "top-k 1 is greedy, equals by id" },
        { { 1, 2, 1, 1 }, { 1, 3, 2, 3, 0 }, { 0, 1, 0, 1, 0 }, "top-k 2" },
        { { 1, 3, 1, 1 }, { 0, 0, 0, 0, 0 }, { 1, 1, 1, 0, 0 }, "top-k among equals: the lowest ids" },
        { { 1, 99, 1, 1 }, { 0, 0, 0, 0, 0 }, { 1, 1, 1, 1, 1 }, "top-k beyond the vocabulary" },
        { { 1, 0, 1e-9, 1 }, { 1, 3, 2, 0, 0 }, { 0, 1, 0, 0, 0 }, "top-p near 0 keeps one" },
        { { 1, 0, 0.4, 1 }, { 0, 0, 0, 0, 0 }, { 1, 1, 0, 0, 0 }, "top-p 0.4 of five equals: exactly two" },
        { { 1, 0, 0.41, 1 }, { 0, 0, 0, 0, 0 }, { 1, 1, 1, 0, 0 }, "a little more: three" },
        { { 1, 2, 0.9, 1 }, { 0, 0, 0, 0, 0 }, { 1, 1, 0, 0, 0 }, "top-p counts within top-k" },
        { { 1, 0, 1, 1 }, { 1, INFINITY, NAN, 1, -INFINITY }, { 1, 0, 0, 1, 0 }, "what is not finite is never drawn" },
        { { 0, 0, 1, 1 }, { NAN, INFINITY, -5, -9, NAN }, { 0, 0, 1, 0, 0 }, "nor at temperature 0" },
        { { 1, 0, 1, 1 }, { NAN, NAN, NAN, NAN, NAN }, { 1, 0, 0, 0, 0 }, "nothing finite: token 0" },
        { { 1e-6, 0, 1, 1 },
          { 1, 3, 2, 2.9f, 0 },
          { 0, 1, 0, 0, 0 },
          "a tiny temperature is greedy and does not overflow" },
        { { 100, 0, 1, 1 }, { 1, 3, 2, 3, 0 }, { 1, 1, 1, 1, 1 }, "a large one is near uniform" },
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        int counts[V];

        draw(counts, &rows[r].settings, rows[r].logits, 400);
        for (int i = 0; i < V; i++)
            if ((counts[i] > 0) != rows[r].allowed[i])
                fail_msg("%s: token %d drawn %d times", rows[r].why, i, counts[i]);
    }
}

static void frequencies_are_the_softmax(void **state)
{
    const float logits[V] = { logf(1), logf(2), logf(3), logf(4), -INFINITY };
    int counts[V];

    (void)state;
    draw(counts, &(struct dlc_sampling){ .temperature = 1, .top_p = 1, .seed = 7 }, logits, 40000);
    for (int i = 0; i < 4; i++) {
        double expected = 40000 * (i + 1) / 10.0;

        if (fabs(counts[i] - expected) > 5 * sqrt(expected))
            fail_msg("token %d: %d times, expected about %.0f", i, counts[i], expected);
    }
    draw(counts, &(struct dlc_sampling){ .temperature = 0.5, .top_p = 1, .seed = 7 }, logits, 40000);
    assert_true(fabs(counts[3] - 40000 * 16 / 30.0) < 600); /* squares of the weights: 1 4 9 16 */
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* A vocabulary of real size: what is drawn lies within the limits found by sorting everything, and all of a small
 * nucleus is met. */
static void limits_hold_in_a_large_vocabulary(void **state)
{
    enum { N = 50257, DRAWS = 300 };
    static const struct {
        double scale, temperature;
        int top_k;
        double top_p;
        const char *why;
    } rows[] = {
        { 3, 1, 40, 1, "top-k" },         { 3, 1, 0, 0.5, "top-p" },   { 3, 0.7, 40, 0.5, "both" },
        { 3, 1, 0, 0.999, "nearly all" }, { 0.01, 1, 0, 0.3, "flat" }, { 1e30, 1e29, 7, 1, "huge logits" },
    };
    float *logits = dlc_alloc(N * sizeof *logits), *sorted = dlc_alloc(N * sizeof *sorted);

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        int n = rows[r].top_k ? rows[r].top_k : N, n_limit = 0, n_below = 0;
        double sum = 0, kept = 0;
        dlc_sampler *s;

        for (int i = 0; i < N; i++)
            sorted[i] = logits[i] = (float)(rows[r].scale * dlc_rng_normal(9, 9, (uint64_t)i));
        qsort(sorted, N, sizeof *sorted, by_size);
        for (int i = 0; i < n; i++)
            sum += exp(((double)sorted[i] - sorted[0]) / rows[r].temperature);
        while (n_limit < n && kept < rows[r].top_p * sum)
            kept += exp(((double)sorted[n_limit++] - sorted[0]) / rows[r].temperature);
        assert_int_equal(
            dlc_sampler_create(&s, &(struct dlc_sampling){ rows[r].temperature, rows[r].top_k, rows[r].top_p, 3 }, N),
            DLC_OK);
        for (uint64_t i = 0; i < DRAWS; i++) {
            float drawn = logits[dlc_sampler_next(s, logits, i)];

            /* One more may be in where rounding decides. */
            if (drawn < sorted[n_limit < N ? n_limit : N - 1])
                fail_msg("%s: drew a logit of %g; %d tokens from %g up may be", rows[r].why, (double)drawn, n_limit,
                         (double)sorted[n_limit - 1]);
            n_below += drawn <= sorted[n_limit / 2];
        }
        if (n_below == 0)
            fail_msg("%s: none of the less likely half of %d tokens was drawn", rows[r].why, n_limit);
        dlc_sampler_destroy(s);
    }
    dlc_free(logits);
    dlc_free(sorted);
}

static void the_seed_decides(void **state)
{
    const float logits[V] = { 0, 0, 0, 0, 0 };
    dlc_sampler *a, *b, *c;
    int differs = 0;

    (void)state;
    assert_int_equal(dlc_sampler_create(&a, &(struct dlc_sampling){ 1, 0, 1, 1 }, V), DLC_OK);
    assert_int_equal(dlc_sampler_create(&b, &(struct dlc_sampling){ 1, 0, 1, 1 }, V), DLC_OK);
    assert_int_equal(dlc_sampler_create(&c, &(struct dlc_sampling){ 1, 0, 1, 2 }, V), DLC_OK);
    (void)dlc_sampler_next(b, logits, 1000); /* what was drawn before does not matter */
    for (uint64_t i = 0; i < 100; i++) {
        int32_t id = dlc_sampler_next(a, logits, i);

        assert_int_equal(id, dlc_sampler_next(b, logits, i));
        differs += id != dlc_sampler_next(c, logits, i);
    }
    assert_true(differs > 50);
    dlc_sampler_destroy(a);
    dlc_sampler_destroy(b);
    dlc_sampler_destroy(c);
}

static void settings_are_checked(void **state)
{
    static const struct dlc_sampling wrong[] = {
        { -1, 0, 1, 1 }, { NAN, 0, 1, 1 }, { INFINITY, 0, 1, 1 }, { 1, -1, 1, 1 },
        { 1, 0, 0, 1 },  { 1, 0, 1.5, 1 }, { 1, 0, NAN, 1 },
    };
    dlc_sampler *s;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(dlc_sampler_create(&s, &wrong[i], V), DLC_EUSAGE);
    for (uint64_t n = 1; n <= 4; n++) {
        dlc_mem_fail_at(n);
        assert_int_equal(dlc_sampler_create(&s, &(struct dlc_sampling){ 1, 0, 1, 1 }, V), DLC_ENOMEM);
        assert_null(s);
    }
    dlc_mem_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_may_be_drawn_is_drawn),
        cmocka_unit_test(frequencies_are_the_softmax),
        cmocka_unit_test(limits_hold_in_a_large_vocabulary),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(settings_are_checked),
    };

    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
