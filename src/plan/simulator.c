#include "plan/simulator.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "base/mem.h"

/* Time goes on in `now`, the link is busy until `link`. Results that are on their way are kept for as many steps as
 * they can be late: need[step mod n_slots][layer] is when the layer's forward of that step may start. */
struct state {
    const struct dlc_sim *sim;
    double node_s, reduce_s; /* one compute node; the reduction of one layer */
    int n_fragments;
    int n_slots;
    double *need;
    double now, link;
};

static int n_fragments(const struct dlc_sim *sim)
{
    return (sim->n_layers + 2) / 3;
}

static int overlap_of(const struct dlc_sim *sim)
{
    return sim->kind == DLC_SIM_STREAMING ? sim->overlap : 0;
}

/* Which fragment is sent at the end of step s; -1 none, -2 all layers. Fragments whose offsets coincide (H < P) would
 * need more than one; the papers' settings have none. */
static int sent_at(const struct state *st, int s)
{
    int H = st->sim->H, P = st->n_fragments;

    if (st->sim->kind == DLC_SIM_DP)
        return -2;
    if (st->sim->kind == DLC_SIM_DILOCO)
        return (s + 1) % H == 0 ? -2 : -1;
    for (int p = 0; p < P; p++)
        if ((s + 1) % H == (int)rint((double)p * H / P) % H) /* the tables do not tell how halves are rounded */
            return p;
    return -1;
}

static void forward(struct state *st, int s)
{
    double *need = st->need + (size_t)(s % st->n_slots) * (size_t)st->sim->n_layers;

    for (int l = 0; l < st->sim->n_layers; l++) {
        st->now = fmax(st->now, need[l]) + st->node_s;
        need[l] = 0; /* the slot is used again */
    }
}

static void backward(struct state *st, int s)
{
    int sent = sent_at(st, s);
    double *need = st->need + (size_t)((s + 1 + overlap_of(st->sim)) % st->n_slots) * (size_t)st->sim->n_layers;

    for (int l = st->sim->n_layers - 1; l >= 0; l--) {
        st->now += l > 0 ? 2 * st->node_s : st->node_s;
        if (sent != -2 && (sent < 0 || l % st->n_fragments != sent))
            continue;
        st->link = fmax(st->link, st->now) + st->reduce_s;
        need[l] = st->link;
    }
}

dlc_err dlc_sim_utilisation(double *out, const struct dlc_sim *sim, double bits_per_s)
{
    bool dp = sim->kind == DLC_SIM_DP;
    int warm = dp ? 2 : sim->H / 2, n_steps = dp ? 8 : 2 * sim->H + sim->H / 2;
    struct state st = { .sim = sim, .n_fragments = n_fragments(sim), .n_slots = overlap_of(sim) + 2 };
    double start = 0;

    assert(sim->n_layers > 0 && sim->H > 0 && sim->overlap >= 0 && bits_per_s > 0);
    st.node_s = sim->step_s / (3 * sim->n_layers);
    st.reduce_s = sim->bits * sim->n_params / sim->n_layers / bits_per_s;
    st.need = dlc_calloc((size_t)st.n_slots * (size_t)sim->n_layers, sizeof *st.need);
    if (!st.need)
        return DLC_ENOMEM;
    for (int s = 0; s < n_steps; s++) {
        if (s == warm)
            start = st.now;
        forward(&st, s);
        backward(&st, s);
    }
    *out = (n_steps - warm) * (sim->step_s - st.node_s) / (st.now - start);
    dlc_free(st.need);
    return DLC_OK;
}

double dlc_sim_grid_rate(int i)
{
    return 1e9 * pow(10, -1 + 4.0 * i / (DLC_SIM_GRID - 1));
}

dlc_err dlc_sim_bandwidths(double *out_bits_per_s, const struct dlc_sim *sim, const double *targets, int n_targets)
{
    int n = 0;

    for (int i = 0; i < DLC_SIM_GRID && n < n_targets; i++) {
        double utilisation;

        DLC_TRY(dlc_sim_utilisation(&utilisation, sim, dlc_sim_grid_rate(i)));
        while (n < n_targets && utilisation >= targets[n])
            out_bits_per_s[n++] = dlc_sim_grid_rate(i > 0 ? i - 1 : 0);
    }
    while (n < n_targets)
        out_bits_per_s[n++] = INFINITY;
    return DLC_OK;
}
