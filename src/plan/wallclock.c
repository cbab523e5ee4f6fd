#include "plan/wallclock.h"

const struct dlc_network dlc_network_high = { "high", 400e9, 1e-4 };
const struct dlc_network dlc_network_medium = { "medium", 100e9, 1e-3 };
const struct dlc_network dlc_network_low = { "low", 10e9, 1e-2 };

/* Among the chips of `n_groups` equal groups, each group by itself: (1 - M/R). */
static double all_reduce_s(const struct dlc_wallclock *w, const struct dlc_network *net, double n_groups)
{
    return 2 * w->n_params * w->bits / net->bits_per_s * (1 - n_groups / w->n_chips) + net->latency_s;
}

double dlc_wallclock_steps(const struct dlc_wallclock *w)
{
    return w->n_tokens / w->batch_tokens;
}

double dlc_wallclock_compute_s(const struct dlc_wallclock *w)
{
    return 6 * w->n_params * w->n_tokens / (w->n_chips * w->chip_flops);
}

double dlc_wallclock_dp_s(const struct dlc_wallclock *w)
{
    return dlc_wallclock_steps(w) * all_reduce_s(w, &w->between, 1);
}

double dlc_wallclock_diloco_s(const struct dlc_wallclock *w, int M, int H)
{
    double outer = all_reduce_s(w, &w->between, 1) / H;
    double inner = M == 1 ? all_reduce_s(w, &w->between, 1) : all_reduce_s(w, &w->inside, M);

    return dlc_wallclock_steps(w) * (inner + outer);
}
