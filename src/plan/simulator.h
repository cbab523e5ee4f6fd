/* The compute-utilisation simulator behind the bandwidth tables of Streaming DiLoCo (arXiv 2501.18512, table 4) and of
 * the scaling-laws paper (arXiv 2503.09799, table 6).
 *
 * The papers say: a graph for each step with four kinds of nodes a layer (forward, backward to activations, backward to
 * weights, reduction), 4 L - 1 nodes; only the link between islands counts; utilisation = compute time / total time.
 * The rest is a reconstruction that lands on 68 of the 75 published cells exactly and on all within one step of the
 * grid:
 *
 *   a step of T seconds has 3 L compute nodes of t = T / (3 L); the first layer has no backward to activations
 *   reducing a layer takes bits N / (L W) on one serial link of W bit/s, first come first served; no latency, no ring
 *   data parallel   every layer every step, from its backward to weights to its forward of the next step
 *   DiLoCo          all layers at the end of every H-th step
 *   streaming       P = ceil(L/3) fragments {l : l mod P = p}; fragment p when (step + 1) mod H = round(p H / P) mod H;
 *                   its result is needed `overlap` steps later than the next step
 *   utilisation     after a warm-up: DP 6 steps after 2, the others 2 H after H / 2
 *   bandwidths      W_i = 10^(-1 + 4 i / 49) Gbit/s, i = 0..49; printed is W_(i-1), i the first that reaches the target
 *
 * The printed bandwidths are therefore one grid step (21 %) lower than what reaches the target: that is what matches.
 */
#ifndef DLC_PLAN_SIMULATOR_H
#define DLC_PLAN_SIMULATOR_H

#include "base/err.h"

typedef enum { DLC_SIM_DP, DLC_SIM_DILOCO, DLC_SIM_STREAMING } dlc_sim_kind;

struct dlc_sim {
    dlc_sim_kind kind;
    double n_params;
    int n_layers;  /* L, 1..4096 */
    double step_s; /* T */
    int H;         /* 1..100000; DP ignores it */
    int overlap;   /* inner steps; streaming only */
    double bits;   /* a parameter */
};

#define DLC_SIM_GRID 50

/* W_i in bit/s. */
double dlc_sim_grid_rate(int i);

/* Utilisation, 0..1, at a link of `bits_per_s`. DLC_ENOMEM. */
dlc_err dlc_sim_utilisation(double *out, const struct dlc_sim *sim, double bits_per_s);

/* For each target (ascending, 0..1) the bandwidth that the tables print, in bit/s; INFINITY where the grid ends before.
 */
dlc_err dlc_sim_bandwidths(double *out_bits_per_s, const struct dlc_sim *sim, const double *targets, int n_targets);

#endif
