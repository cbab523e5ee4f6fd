#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "bench/bench.h"
#include "bench/machine.h"

static void cases_follow_the_preset(void **state)
{
    static const struct {
        struct dlc_bench_options o;
        const char *preset;
        int vocab, batch, seq, context;
        const char *why;
    } rows[] = {
        { { 0 }, "nano", 4096, 16, 128, 128, "a short context is the sequence" },
        { { 0 }, "small", 4096, 16, 256, 256, "just below the limit of small" },
        { { 0 }, "124m", 32000, 4, 256, 1024, "a long context is cut" },
        { { .vocab = 50257, .batch = 1, .seq = 1024 }, "124m", 50257, 1, 1024, 1024, "as given" },
        { { .seq = 512 }, "nano", 4096, 16, 512, 512, "the model is made for what it is asked" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_bench_case c;

        assert_int_equal(dlc_bench_case_init(&c, &rows[i].o, rows[i].preset, DLC_PRECISION_F32), DLC_OK);
        if (c.model.vocab_size != rows[i].vocab || c.batch != rows[i].batch || c.seq != rows[i].seq ||
            c.model.context != rows[i].context || c.n_params != dlc_model_n_params(&c.model))
            fail_msg("%s: vocabulary %d, %d x %d, context %d", rows[i].why, c.model.vocab_size, c.batch, c.seq,
                     c.model.context);
    }
}

static void medians(void **state)
{
    static const struct {
        double values[4];
        size_t n;
        double median, best;
    } rows[] = {
        { { 3 }, 1, 3, 3 },
        { { 5, 1 }, 2, 3, 1 },
        { { 9, 2, 4 }, 3, 4, 2 },
        { { 8, 1, 2, 4 }, 4, 3, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double scratch[4], best, median = dlc_bench_median(&best, rows[i].values, rows[i].n, scratch);

        if (median != rows[i].median || best != rows[i].best)
            fail_msg("row %zu: median %g, best %g", i, median, best);
    }
}

static void shares_of_roofs(void **state)
{
    const struct dlc_peaks machine = { .f32_flops = 200e9, .memory = { 30e9, 20e9, 40e9, 0 } };
    struct dlc_bench_step s = { .c = { .n_params = 1000000, .precision = DLC_PRECISION_BF16 }, .peaks = machine };
    static const struct {
        dlc_roof roof;
        double rate;
        const char *name;
    } rows[] = {
        { DLC_ROOF_F32, 200e9, "f32" },  { DLC_ROOF_BF16, 200e9, "f32" }, /* none: computed in f32 */
        { DLC_ROOF_READ, 30e9, "read" }, { DLC_ROOF_TRIAD, 20e9, "triad" }, { DLC_ROOF_IN_PLACE, 40e9, "in_place" },
    };
    dlc_roof roof;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        roof = rows[i].roof;
        assert_true(dlc_bench_roof(&machine, &roof) == rows[i].rate);
        assert_string_equal(dlc_bench_roof_name(roof), rows[i].name);
    }
    assert_true(dlc_bench_mfu(&s, 10000, &roof) == 6e6 * 10000 / 200e9);
    assert_int_equal(roof, DLC_ROOF_F32);
    s.peaks.bf16_flops = 400e9;
    assert_true(dlc_bench_mfu(&s, 10000, &roof) == 6e6 * 10000 / 400e9);
    assert_int_equal(roof, DLC_ROOF_BF16);
}

static void profiles_add_up(void **state)
{
    struct dlc_timed_row timed[] = {
        { .op = 1, .n_calls = 2, .seconds = 1 },
        { .op = 0, .n_calls = 1, .seconds = 2 },
        { .op = 1, .sizes = { 7 }, .n_calls = 3, .seconds = 4 },
    };
    struct dlc_bench_step s = { .rows = timed, .n_rows = 3, .profile_s = 8.5, .zero_s = 0.5 };
    struct dlc_bench_op_time times[DLC_BENCH_MAX_OPS];
    size_t n;

    (void)state;
    assert_true(dlc_bench_profile(times, &n, &s) == 1);
    assert_int_equal(n, 3);
    assert_string_equal(times[0].op, dlc_timed_op_name(1));
    assert_true(times[0].n_calls == 5 && times[0].seconds == 5);
    assert_true(times[1].n_calls == 1 && times[1].seconds == 2);
    assert_string_equal(times[2].op, "zero_grads");
}

static const struct dlc_bench_options tiny = {
    .sections = DLC_BENCH_ALL,
    .presets = (const char *const[]){ "nano" },
    .n_presets = 1,
    .vocab = 64,
    .batch = 1,
    .seq = 8,
    .f32 = true,
    .isa = "auto",
    .threads = 2,
    .seconds = 0.01,
};

static void a_model_too_large_is_refused_at_once(void **state)
{
    struct dlc_bench_options o = tiny;
    struct dlc_bench_result r;

    (void)state;
    o.presets = (const char *const[]){ "nano", "400m" };
    o.n_presets = 2;
    o.available_bytes = 100 << 20;
    assert_int_equal(dlc_bench_run(&r, &o), DLC_ENOMEM);
    assert_non_null(strstr(dlc_err_text(), "preset 400m with 1 x 8 tokens needs "));
    assert_non_null(strstr(dlc_err_text(), "100 MiB are available"));
    assert_true(r.peaks.f32_flops == 0); /* before anything was measured */
    dlc_bench_result_fini(&r);
}

/* The announced bytes are those of the model's plan and two moments. */
static void planned_bytes(void **state)
{
    struct dlc_bench_case c;
    struct dlc_bench_step s;
    dlc_backend *be;

    (void)state;
    assert_int_equal(dlc_backend_create(&be, "auto", 1), DLC_OK);
    assert_int_equal(dlc_bench_case_init(&c, &tiny, "nano", DLC_PRECISION_F32), DLC_OK);
    assert_int_equal(dlc_bench_measure_step(&s, &c, be, &(struct dlc_bench_step_options){ 0.001, false, 0 }), DLC_OK);
    assert_int_equal(s.planned_moments, 8 * c.n_params);
    assert_int_equal(dlc_bench_step_bytes(&c, be), s.planned.params + s.planned.grads + s.planned.activations +
                                                       s.planned.scratch + s.planned_moments);
    assert_true(s.n == 0 && s.n_rows > 10 && s.profile_s > 0 && s.peaks.memory.read == 0);
    assert_true(s.peak_rss_bytes == 0 || s.peak_rss_bytes >= dlc_bench_step_bytes(&c, be));
    dlc_free(s.rows);
    dlc_backend_destroy(be);
}

static dlc_err report(const struct dlc_bench_result *r)
{
    struct dlc_buf text = { 0 };
    dlc_err err = dlc_bench_text(&text, r);

    if (err == DLC_OK)
        err = dlc_bench_json(&text, r);
    dlc_buf_fini(&text);
    return err;
}

static void allocations_that_fail_are_reported(void **state)
{
    struct dlc_bench_result r;
    dlc_err err = DLC_ENOMEM;
    uint64_t n = 0;

    (void)state;
    while (err == DLC_ENOMEM) {
        dlc_mem_fail_at(++n);
        err = dlc_bench_run(&r, &tiny);
        dlc_mem_fail_at(0);
        if (err != DLC_OK)
            dlc_bench_result_fini(&r);
    }
    if (err != DLC_OK)
        fail_msg("allocation %llu of the run: %d, %s", (unsigned long long)n, err, dlc_err_text());
    assert_true(n > 20);

    err = DLC_ENOMEM;
    for (n = 0; err == DLC_ENOMEM;) {
        dlc_mem_fail_at(++n);
        err = report(&r);
        dlc_mem_fail_at(0);
    }
    if (err != DLC_OK)
        fail_msg("allocation %llu of the report: %d, %s", (unsigned long long)n, err, dlc_err_text());
    assert_true(n > 20);
    dlc_bench_result_fini(&r);
}

static void the_machine_is_described(void **state)
{
    char text[80];
    size_t before;
    void *p;

    (void)state;
    dlc_machine_cpu(text, sizeof text);
    assert_true(strlen(text) > 0);
    before = dlc_machine_peak_rss_bytes();
    if (before == 0)
        skip();
    assert_int_equal(dlc_arena_alloc(&p, 64 << 20, "test"), DLC_OK);
    memset(p, 1, 64 << 20);
    dlc_arena_free(p, 64 << 20);
    assert_true(dlc_machine_peak_rss_bytes() >= before && dlc_machine_peak_rss_bytes() >= 64 << 20);
    dlc_machine_reset_peak_rss(); /* not every system does */
    assert_true(dlc_machine_peak_rss_bytes() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_follow_the_preset),
        cmocka_unit_test(medians),
        cmocka_unit_test(shares_of_roofs),
        cmocka_unit_test(profiles_add_up),
        cmocka_unit_test(a_model_too_large_is_refused_at_once),
        cmocka_unit_test(planned_bytes),
        cmocka_unit_test(allocations_that_fail_are_reported),
        cmocka_unit_test(the_machine_is_described),
    };

    dlc_log_set_level(DLC_LOG_WARN);
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
