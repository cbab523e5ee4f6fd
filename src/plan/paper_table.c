#include "plan/paper_table.h"

#include <math.h>

#include "base/json.h"
#include "base/mem.h"
#include "plan/wallclock.h"

#define N_TARGETS 5

static const double targets[N_TARGETS] = { 0.5, 0.8, 0.9, 0.95, 0.99 };

/* Five methods on a model of N parameters, L layers, T seconds a step; H 100, overlap 1, fragments of three blocks. The
 * arguments behind are rows of published figures. */
#define METHODS(size, N, L, T, dp, diloco, streaming, overlap, fp4)                                                    \
    { size, "data parallel", { DLC_SIM_DP, N, L, T, 100, 0, 16 }, dp },                                                \
        { size, "DiLoCo", { DLC_SIM_DILOCO, N, L, T, 100, 0, 16 }, diloco },                                           \
        { size, "streaming", { DLC_SIM_STREAMING, N, L, T, 100, 0, 16 }, streaming },                                  \
        { size, "+ overlap", { DLC_SIM_STREAMING, N, L, T, 100, 1, 16 }, overlap },                                    \
    {                                                                                                                  \
        size, "+ overlap, 4 bit", { DLC_SIM_STREAMING, N, L, T, 100, 1, 4 }, fp4                                       \
    }
#define GBITS(...)                                                                                                     \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* clang-format off */
const struct dlc_paper_row dlc_paper_streaming[DLC_PAPER_ROWS] = {
    METHODS("1B", 1e9, 24, 0.1,
            GBITS(86.8, 152.6, 184.2, 222.3, 569.0),
            GBITS(1.4, 6.2, 13.3, 23.3, 86.8),
            GBITS(1.4, 5.2, 9.1, 16.0, 28.1),
            GBITS(1.4, 4.3, 6.2, 9.1, 11.0),
            GBITS(0.4, 0.9, 1.7, 2.0, 3.0)),
    METHODS("10B", 1e10, 48, 0.8,
            GBITS(104.8, 222.3, 222.3, 268.3, 471.5),
            GBITS(1.7, 7.5, 16.0, 33.9, 104.8),
            GBITS(1.7, 5.2, 9.1, 13.3, 19.3),
            GBITS(1.7, 3.6, 5.2, 6.2, 7.5),
            GBITS(0.4, 0.9, 1.4, 1.4, 1.7)),
    METHODS("100B", 1e11, 108, 4.9,
            GBITS(184.2, 323.8, 390.7, 390.7, 471.5),
            GBITS(3.0, 11.0, 23.3, 49.4, 184.2),
            GBITS(2.4, 6.2, 9.1, 11.0, 19.3),
            GBITS(1.7, 3.6, 4.3, 5.2, 5.2),
            GBITS(0.5, 0.9, 1.1, 1.1, 1.4)),
};
/* clang-format on */

dlc_err dlc_paper_streaming_text(struct dlc_buf *out)
{
    DLC_TRY(dlc_buf_printf(out,
                           "Gbit/s for a compute utilisation; re-made, published in parentheses (arXiv 2501.18512, "
                           "table 4)\n\n%-4s %-16s",
                           "", ""));
    for (int i = 0; i < N_TARGETS; i++)
        DLC_TRY(dlc_buf_printf(out, " %14.0f %%", 100 * targets[i]));
    for (int r = 0; r < DLC_PAPER_ROWS; r++) {
        const struct dlc_paper_row *row = &dlc_paper_streaming[r];
        double ours[N_TARGETS];

        DLC_TRY(dlc_sim_bandwidths(ours, &row->sim, targets, N_TARGETS));
        DLC_TRY(dlc_buf_printf(out, "%s\n%-4s %-16s", r > 0 && r % 5 == 0 ? "\n" : "", row->size, row->method));
        for (int i = 0; i < N_TARGETS; i++)
            DLC_TRY(dlc_buf_printf(out, " %7.1f (%5.1f)", ours[i] / 1e9, row->published_gbits[i]));
    }
    return dlc_buf_printf(out, "\n");
}

/* Takes the reference. */
static dlc_err append_json(struct dlc_buf *out, json_t *value)
{
    char *text = value ? dlc_json_dump_indented(value) : NULL;
    dlc_err err = text ? dlc_buf_printf(out, "%s\n", text) : dlc_fail(DLC_ENOMEM, "out of memory: JSON of a table");

    dlc_free(text);
    json_decref(value);
    return err;
}

static json_t *streaming_cells(const struct dlc_paper_row *row, const double *ours)
{
    json_t *cells = json_array();

    for (int i = 0; i < N_TARGETS; i++) {
        json_t *cell = json_pack("{s:f, s:f, s:f}", "utilisation", targets[i], "gbit_per_s", ours[i] / 1e9,
                                 "published_gbit_per_s", row->published_gbits[i]);

        if (json_array_append_new(cells, cell) != 0) {
            json_decref(cells);
            return NULL;
        }
    }
    return cells;
}

dlc_err dlc_paper_streaming_json(struct dlc_buf *out)
{
    json_t *rows = json_array();

    for (int r = 0; r < DLC_PAPER_ROWS; r++) {
        const struct dlc_paper_row *row = &dlc_paper_streaming[r];
        double ours[N_TARGETS];
        dlc_err err = dlc_sim_bandwidths(ours, &row->sim, targets, N_TARGETS);
        json_t *v = err ? NULL
                        : json_pack("{s:s, s:s, s:o}", "model", row->size, "method", row->method, "cells",
                                    streaming_cells(row, ours));

        if (!v || json_array_append_new(rows, v) != 0) {
            json_decref(rows);
            return err ? err : dlc_fail(DLC_ENOMEM, "out of memory: JSON of a table");
        }
    }
    return append_json(out, rows);
}

/* Rows of the wall-clock table: M 0 is data parallelism. */
static const struct {
    int M, H;
} settings[] = { { 0, 1 }, { 1, 30 }, { 2, 30 }, { 4, 30 }, { 8, 30 }, { 2, 100 }, { 8, 100 } };

static const struct dlc_network *const networks[] = { &dlc_network_low, &dlc_network_medium, &dlc_network_high };

#define N_SETTINGS (sizeof settings / sizeof *settings)
#define N_NETWORKS (sizeof networks / sizeof *networks)

static struct dlc_wallclock wallclock_on(const struct dlc_network *between)
{
    return (struct dlc_wallclock){ .n_params = 1e9,
                                   .n_tokens = 20e9,
                                   .batch_tokens = 1 << 20,
                                   .n_chips = 64,
                                   .chip_flops = 300e12,
                                   .bits = 16,
                                   .between = *between,
                                   .inside = dlc_network_high };
}

static double communication_s(size_t setting, size_t network)
{
    struct dlc_wallclock w = wallclock_on(networks[network]);
    int M = settings[setting].M;

    return M == 0 ? dlc_wallclock_dp_s(&w) : dlc_wallclock_diloco_s(&w, M, settings[setting].H);
}

dlc_err dlc_paper_wallclock_text(struct dlc_buf *out)
{
    struct dlc_wallclock w = wallclock_on(networks[0]);

    DLC_TRY(dlc_buf_printf(out,
                           "Idealised seconds of communication (arXiv 2503.09799, appendix A): 1e9 parameters, 20e9 "
                           "tokens, batches of 2^20\ntokens, 64 chips of 300 TFLOP/s, 16 bit; %.0f s of compute "
                           "come on top, nothing overlaps\n\n%-22s",
                           dlc_wallclock_compute_s(&w), "between the sites"));
    for (size_t n = 0; n < N_NETWORKS; n++)
        DLC_TRY(dlc_buf_printf(out, " %8s %3.0f Gbit/s", networks[n]->name, networks[n]->bits_per_s / 1e9));
    for (size_t s = 0; s < N_SETTINGS; s++) {
        if (settings[s].M == 0)
            DLC_TRY(dlc_buf_printf(out, "\n%-22s", "data parallel"));
        else
            DLC_TRY(dlc_buf_printf(out, "\nDiLoCo, M %d, H %-8d", settings[s].M, settings[s].H));
        for (size_t n = 0; n < N_NETWORKS; n++)
            DLC_TRY(dlc_buf_printf(out, " %19.1f", communication_s(s, n)));
    }
    return dlc_buf_printf(out, "\n");
}

dlc_err dlc_paper_wallclock_json(struct dlc_buf *out)
{
    struct dlc_wallclock w = wallclock_on(networks[0]);
    json_t *rows = json_array();

    for (size_t s = 0; s < N_SETTINGS; s++) {
        for (size_t n = 0; n < N_NETWORKS; n++) {
            json_t *v =
                json_pack("{s:s, s:i, s:i, s:s, s:f, s:f}", "method", settings[s].M ? "DiLoCo" : "data parallel",
                          "islands", settings[s].M, "outer_steps", settings[s].H, "network", networks[n]->name,
                          "compute_s", dlc_wallclock_compute_s(&w), "communication_s", communication_s(s, n));

            if (json_array_append_new(rows, v) != 0) {
                json_decref(rows);
                return dlc_fail(DLC_ENOMEM, "out of memory: JSON of a table");
            }
        }
    }
    return append_json(out, rows);
}
