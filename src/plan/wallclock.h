/* The idealised wall-clock model of the scaling-laws paper (arXiv 2503.09799, appendix A).
 *
 *   compute          6 N D / (R Q)
 *   all-reduce       (2 N b / W)(1 - 1/R) + e  seconds at least, for N parameters of b bits among R chips
 *   steps            T = D / B                 (not rounded)
 *   data parallel    T [ (2 N b / W1)(1 - 1/R) + e1 ]
 *   DiLoCo, M = 1    T (1 + 1/H) [ (2 N b / W1)(1 - 1/R) + e1 ]
 *   DiLoCo, M >= 2   T [ (2 N b / W0)(1 - M/R) + e0 ] + (T / H) [ (2 N b / W1)(1 - 1/R) + e1 ]
 *
 * W1, e1 are the network between sites, W0, e0 the one inside. Total = compute + communication: nothing overlaps. */
#ifndef DLC_PLAN_WALLCLOCK_H
#define DLC_PLAN_WALLCLOCK_H

struct dlc_network {
    const char *name;
    double bits_per_s; /* W */
    double latency_s;  /* e */
};

/* The paper's three: high 400 Gbit/s, 1e-4 s; medium 100 Gbit/s, 1e-3 s; low 10 Gbit/s, 1e-2 s. */
extern const struct dlc_network dlc_network_high, dlc_network_medium, dlc_network_low;

struct dlc_wallclock {
    double n_params;     /* N */
    double n_tokens;     /* D */
    double batch_tokens; /* B, of all islands together */
    double n_chips;      /* R */
    double chip_flops;   /* Q, FLOP/s that a chip reaches; the paper takes 300e12 */
    double bits;         /* b, a parameter; the paper takes 16 */
    struct dlc_network between, inside;
};

double dlc_wallclock_steps(const struct dlc_wallclock *w);
double dlc_wallclock_compute_s(const struct dlc_wallclock *w);
double dlc_wallclock_dp_s(const struct dlc_wallclock *w);                   /* communication only */
double dlc_wallclock_diloco_s(const struct dlc_wallclock *w, int M, int H); /* communication only; M islands */

#endif
