/* The simulator against the published table and against its second implementation; the wall-clock model against values
 * worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "plan/paper_table.h"
#include "plan/simulator.h"
#include "plan/wallclock.h"

static const double targets[5] = { 0.5, 0.8, 0.9, 0.95, 0.99 };

/* What an implementation of the same description in another language gives, rounded as printed there. */
static const double rederived[DLC_PAPER_ROWS][5] = {
    { 86.9, 152.6, 184.2, 222.3, 569.0 }, { 1.4, 6.3, 13.3, 23.3, 86.9 },        { 1.4, 5.2, 9.1, 16.0, 28.1 },
    { 1.4, 4.3, 6.3, 7.5, 11.0 },         { 0.3, 1.0, 1.7, 2.0, 2.9 },           { 104.8, 222.3, 222.3, 268.3, 471.5 },
    { 1.7, 7.5, 16.0, 33.9, 104.8 },      { 1.7, 5.2, 9.1, 13.3, 19.3 },         { 1.4, 3.6, 5.2, 6.3, 7.5 },
    { 0.4, 1.0, 1.2, 1.4, 1.7 },          { 184.2, 323.7, 390.7, 390.7, 471.5 }, { 2.9, 11.0, 23.3, 49.4, 184.2 },
    { 2.4, 6.3, 9.1, 11.0, 23.3 },        { 2.0, 3.6, 4.3, 5.2, 5.2 },           { 0.4, 1.0, 1.2, 1.2, 1.4 },
};

/* The grid point that a published figure (one decimal, some of them cut off) stands for. */
static int grid_index(double gbits)
{
    int best = 0;

    for (int i = 1; i < DLC_SIM_GRID; i++)
        if (fabs(dlc_sim_grid_rate(i) / 1e9 - gbits) < fabs(dlc_sim_grid_rate(best) / 1e9 - gbits))
            best = i;
    if (fabs(dlc_sim_grid_rate(best) / 1e9 - gbits) > 0.1)
        fail_msg("%g Gbit/s lies on no point of the grid; the nearest is %g", gbits, dlc_sim_grid_rate(best) / 1e9);
    return best;
}

static void every_cell_is_within_one_grid_step(void **state)
{
    int n_exact = 0, n_exact_without_fragments = 0;

    (void)state;
    for (int r = 0; r < DLC_PAPER_ROWS; r++) {
        const struct dlc_paper_row *row = &dlc_paper_streaming[r];
        double ours[5];

        assert_int_equal(dlc_sim_bandwidths(ours, &row->sim, targets, 5), DLC_OK);
        for (int i = 0; i < 5; i++) {
            int off = grid_index(ours[i] / 1e9) - grid_index(row->published_gbits[i]);

            if (abs(off) > 1)
                fail_msg("%s %s at %g: %.2f Gbit/s, published %.1f: %d grid steps", row->size, row->method, targets[i],
                         ours[i] / 1e9, row->published_gbits[i], off);
            n_exact += off == 0;
            n_exact_without_fragments += off == 0 && row->sim.kind != DLC_SIM_STREAMING;
        }
    }
    print_message("%d of 75 cells exact\n", n_exact);
    assert_int_equal(n_exact, 68);
    assert_int_equal(n_exact_without_fragments, 30);
}

static void cells_equal_a_second_implementation(void **state)
{
    (void)state;
    for (int r = 0; r < DLC_PAPER_ROWS; r++) {
        const struct dlc_paper_row *row = &dlc_paper_streaming[r];
        double ours[5];

        assert_int_equal(dlc_sim_bandwidths(ours, &row->sim, targets, 5), DLC_OK);
        for (int i = 0; i < 5; i++)
            if (fabs(ours[i] / 1e9 - rederived[r][i]) > 0.0501)
                fail_msg("%s %s at %g: %.3f Gbit/s, the other implementation %.1f", row->size, row->method, targets[i],
                         ours[i] / 1e9, rederived[r][i]);
    }
}

static void the_simulator_agrees_with_formulas(void **state)
{
    struct dlc_sim sim = { DLC_SIM_DILOCO, 1e10, 48, 0.8, 100, 0, 16 };
    double cu, slower;

    (void)state;
    /* One exchange of 16 N bits stops training for 78 s in 80 s of compute; the last layers overlap a little. */
    assert_int_equal(dlc_sim_utilisation(&cu, &sim, 2.05e9), DLC_OK);
    if (fabs(cu - 80 / (80 + 78.0)) > 0.005)
        fail_msg("DiLoCo at 2.05 Gbit/s: %.4f, closed form %.4f", cu, 80 / (80 + 78.0));
    sim.kind = DLC_SIM_DP; /* the link alone decides: bits N / W a step */
    assert_int_equal(dlc_sim_utilisation(&cu, &sim, 1e9), DLC_OK);
    if (fabs(cu - 0.8 / 160) > 0.0002)
        fail_msg("data parallel at 1 Gbit/s: %.5f, closed form %.5f", cu, 0.8 / 160);
    sim.kind = DLC_SIM_STREAMING;
    for (int tau = 0; tau < 5; tau++) {
        sim.overlap = tau;
        assert_int_equal(dlc_sim_utilisation(&slower, &sim, 2.05e9), DLC_OK);
        if (tau > 0 && slower <= cu)
            fail_msg("overlap %d: %.4f, not above %.4f", tau, slower, cu);
        cu = slower;
    }
    assert_int_equal(dlc_sim_utilisation(&cu, &sim, 1e15), DLC_OK);
    assert_true(cu > 0.999 && cu < 1.0001);
}

static void a_missed_target_is_infinite(void **state)
{
    const struct dlc_sim sim = { DLC_SIM_DP, 6.71e11, 61, 0.01, 1, 0, 16 };
    double rates[5];

    (void)state;
    assert_int_equal(dlc_sim_bandwidths(rates, &sim, targets, 5), DLC_OK);
    assert_true(isinf(rates[4]));
}

static void no_memory_is_reported(void **state)
{
    double cu;

    (void)state;
    dlc_mem_fail_at(1);
    assert_int_equal(dlc_sim_utilisation(&cu, &dlc_paper_streaming[0].sim, 1e9), DLC_ENOMEM);
    dlc_mem_fail_at(0);
}

static void wall_clock_values(void **state)
{
    const struct dlc_wallclock w = {
        1e9, 20e9, 1 << 20, 64, 300e12, 16, { "low", 10e9, 1e-2 }, { "high", 400e9, 1e-4 }
    };
    const struct {
        double s, expected;
        const char *why;
    } rows[] = {
        { dlc_wallclock_steps(&w), 19073.49, "steps" },
        { dlc_wallclock_compute_s(&w), 6250.0, "compute" },
        { dlc_wallclock_dp_s(&w), 60272.2, "data parallel" },
        { dlc_wallclock_diloco_s(&w, 1, 30), 62281.3, "DiLoCo, one replica: every step crosses the slow network" },
        { dlc_wallclock_diloco_s(&w, 2, 30), 3489.2, "two replicas" },
        { dlc_wallclock_diloco_s(&w, 8, 30), 3346.1, "eight replicas" },
        { dlc_wallclock_diloco_s(&w, 8, 100), 1939.8, "eight replicas, longer rounds" },
    };

    (void)state;
    assert_true(dlc_network_low.bits_per_s == 10e9 && dlc_network_low.latency_s == 1e-2);
    assert_true(dlc_network_medium.bits_per_s == 100e9 && dlc_network_medium.latency_s == 1e-3);
    assert_true(dlc_network_high.bits_per_s == 400e9 && dlc_network_high.latency_s == 1e-4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (fabs(rows[i].s - rows[i].expected) > 0.0501)
            fail_msg("%s: %.3f, expected %.2f", rows[i].why, rows[i].s, rows[i].expected);
}

static void tables_are_printed_in_full(void **state)
{
    struct dlc_buf out = { 0 };
    json_t *rows, *cells;
    size_t n_cells = 0, i;

    (void)state;
    assert_int_equal(dlc_paper_streaming_text(&out), DLC_OK);
    assert_non_null(strstr(out.data, "569.0 (569.0)"));
    dlc_buf_clear(&out);
    assert_int_equal(dlc_paper_wallclock_text(&out), DLC_OK);
    assert_non_null(strstr(out.data, "60272.2"));
    dlc_buf_clear(&out);
    assert_int_equal(dlc_paper_streaming_json(&out), DLC_OK);
    assert_int_equal(dlc_json_parse(&rows, out.data, out.len, "table"), DLC_OK);
    for (i = 0; i < json_array_size(rows); i++) {
        assert_int_equal(dlc_json_get_array(&cells, json_array_get(rows, i), "cells", "table"), DLC_OK);
        n_cells += json_array_size(cells);
    }
    assert_int_equal(n_cells, 75);
    json_decref(rows);
    dlc_buf_clear(&out);
    assert_int_equal(dlc_paper_wallclock_json(&out), DLC_OK);
    assert_int_equal(dlc_json_parse(&rows, out.data, out.len, "table"), DLC_OK);
    assert_int_equal(json_array_size(rows), 21);
    json_decref(rows);
    dlc_buf_fini(&out);
}

static void tables_without_memory(void **state)
{
    static const struct {
        dlc_err (*table)(struct dlc_buf *out);
        const char *why;
    } rows[] = {
        { dlc_paper_streaming_text, "streaming" },
        { dlc_paper_streaming_json, "streaming, JSON" },
        { dlc_paper_wallclock_text, "wall-clock" },
        { dlc_paper_wallclock_json, "wall-clock, JSON" },
    };
    static const uint64_t at[] = { 1, 2, 3, 7, 51, 60, 200 };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
            struct dlc_buf out = { 0 };
            uint64_t failed = dlc_mem_n_failed();
            dlc_err err;

            dlc_mem_fail_at(at[i]);
            err = rows[r].table(&out);
            dlc_mem_fail_at(0);
            if (err != (dlc_mem_n_failed() > failed ? DLC_ENOMEM : DLC_OK))
                fail_msg("%s without allocation %d: error %d", rows[r].why, (int)at[i], (int)err);
            dlc_buf_fini(&out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_within_one_grid_step),
        cmocka_unit_test(cells_equal_a_second_implementation),
        cmocka_unit_test(the_simulator_agrees_with_formulas),
        cmocka_unit_test(a_missed_target_is_infinite),
        cmocka_unit_test(no_memory_is_reported),
        cmocka_unit_test(wall_clock_values),
        cmocka_unit_test(tables_are_printed_in_full),
        cmocka_unit_test(tables_without_memory),
    };

    return cmocka_run_group_tests_name("simulator", tests, NULL, NULL);
}
