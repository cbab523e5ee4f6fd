#include "schedule.h"

#include <math.h>
#include <stdbool.h>

#include "base/rng.h"

#define MAX_TRIES 16
#define NO_ISLAND (-2)

static const struct {
    const char *name;
    bool of_island;
} kinds[CHAOS_N_KINDS] = {
    [CHAOS_KILL_ISLAND] = { "kill", true },
    [CHAOS_STALL_ISLAND] = { "stall", true },
    [CHAOS_LEAVE] = { "leave", true },
    [CHAOS_CUT_LINK] = { "cut link of", true },
    [CHAOS_SLOW_LINK] = { "slow link of", true },
    [CHAOS_RESET_LINK] = { "reset link of", true },
    [CHAOS_KILL_SERVER] = { "kill nats-server", false },
    [CHAOS_KILL_COORDINATOR] = { "kill coordinator", false },
    [CHAOS_STALL_COORDINATOR] = { "stall coordinator", false },
    [CHAOS_FILL_DISK] = { "fill the disk of the run folder", false },
};

const char *chaos_kind_name(chaos_kind kind)
{
    return kinds[kind].name;
}

static double between(struct dlc_rng *rng, double low, double high)
{
    return low + (high - low) * (double)(dlc_rng_next(rng) >> 11) * 0x1p-53;
}

static chaos_kind draw_kind(struct dlc_rng *rng, const struct chaos_plan *plan)
{
    uint64_t sum = 0, at;
    int k = 0;

    for (int i = 0; i < CHAOS_N_KINDS; i++)
        sum += (uint64_t)plan->weight[i];
    at = dlc_rng_below(rng, sum);
    while (at >= (uint64_t)plan->weight[k])
        at -= (uint64_t)plan->weight[k++];
    return (chaos_kind)k;
}

/* Whether somebody's last fault and its rest are over. */
static bool is_free(const struct chaos_fault *made, size_t n, int who, double at_s, const struct chaos_plan *plan)
{
    for (size_t i = 0; i < n; i++)
        if (made[i].island == who && made[i].at_s + made[i].for_s + plan->rest_s > at_s)
            return false;
    return true;
}

static int n_in_trouble(const struct chaos_fault *made, size_t n, double at_s)
{
    int count = 0;

    for (size_t i = 0; i < n; i++)
        count += made[i].island != CHAOS_NOBODY && made[i].at_s + made[i].for_s > at_s;
    return count;
}

/* NO_ISLAND: nobody may have a fault now. */
static int draw_island(struct dlc_rng *rng, const struct chaos_fault *made, size_t n, double at_s,
                       const struct chaos_plan *plan)
{
    int first = (int)dlc_rng_below(rng, (uint64_t)plan->n_islands);
    int most = (int)floor((1 - plan->least_up) * plan->n_islands);

    if (n_in_trouble(made, n, at_s) >= most)
        return NO_ISLAND;
    for (int i = 0; i < plan->n_islands; i++) {
        int who = (first + i) % plan->n_islands;

        if (is_free(made, n, who, at_s, plan))
            return who;
    }
    return NO_ISLAND;
}

/* False: what was drawn cannot be now. */
static bool draw(struct chaos_fault *f, struct dlc_rng *rng, const struct chaos_fault *made, size_t n, double at_s,
                 const struct chaos_plan *plan)
{
    *f = (struct chaos_fault){ .at_s = at_s, .kind = draw_kind(rng, plan), .island = CHAOS_NOBODY };
    f->for_s = between(rng, plan->for_s[f->kind][0], plan->for_s[f->kind][1]);
    if (f->kind == CHAOS_SLOW_LINK)
        f->bits_per_s = 1e6 * pow(10, between(rng, 0, 1));
    if (f->at_s + f->for_s > plan->duration_s)
        return false;
    if (!kinds[f->kind].of_island)
        return is_free(made, n, CHAOS_NOBODY, at_s, plan);
    f->island = draw_island(rng, made, n, at_s, plan);
    return f->island >= 0;
}

size_t chaos_schedule(struct chaos_fault *out, size_t max, const struct chaos_plan *plan, uint64_t seed)
{
    struct dlc_rng rng = { .seed = seed, .stream = 4 };
    size_t n = 0;

    for (double next_s = plan->every_s; n < max && next_s < plan->duration_s; next_s += plan->every_s) {
        double at_s = next_s + between(&rng, -0.25, 0.25) * plan->every_s;
        bool made = false;

        for (int tries = 0; tries < MAX_TRIES && !made; tries++)
            made = draw(&out[n], &rng, out, n, at_s, plan);
        n += made;
    }
    return n;
}

dlc_err chaos_describe(struct dlc_buf *out, const struct chaos_fault *f)
{
    DLC_TRY(dlc_buf_printf(out, "%7.2f s  %s", f->at_s, kinds[f->kind].name));
    if (f->island != CHAOS_NOBODY)
        DLC_TRY(dlc_buf_printf(out, " island %d", f->island));
    if (f->bits_per_s > 0)
        DLC_TRY(dlc_buf_printf(out, " to %.2f Mbit/s", f->bits_per_s / 1e6));
    if (f->for_s > 0)
        DLC_TRY(dlc_buf_printf(out, ", %.2f s", f->for_s));
    return DLC_OK;
}
