#include <math.h>

#include "plan/plan.h"

#define MAX_OVERLAP 5 /* up to 5 steps cost no loss that shows, 10 cost 0.2 % (arXiv 2501.18512) */

/* The smallest H with which `way` (whatever its own H) reaches the target; 0: none up to DLC_PLAN_FIND_MAX_H. The stall
 * of an exchange does not depend on H, so  (H/P) T (1/target - 1) >= stall  gives it; the rounding is then put right by
 * trying. */
static int smallest_h(struct dlc_plan_way way, const struct dlc_plan_setup *s, double target)
{
    int lowest = way.overlap > 0 ? way.overlap * way.fragments + 1 : way.fragments;
    struct dlc_plan_prediction p;
    double h;

    dlc_plan_predict(&p, &way, s);
    h = ceil(way.fragments * p.stall_s / (s->step_s * (1 / target - 1)) - 1e-6);
    if (!(h <= DLC_PLAN_FIND_MAX_H))
        return 0;
    for (way.H = h > lowest ? (int)h : lowest; way.H <= DLC_PLAN_FIND_MAX_H; way.H++)
        if (dlc_plan_utilisation(&way, s, 1) >= target)
            return way.H;
    return 0;
}

static void try_way(struct dlc_plan_way *best, struct dlc_plan_way way, const struct dlc_plan_setup *s, double target)
{
    way.H = smallest_h(way, s, target);
    if (way.H > 0 && (best->H == 0 || way.H < best->H))
        *best = way;
}

/* The best with this codec, blocking and overlapped; H stays 0 when none serves, or when overlap gains nothing. */
static void search(struct dlc_plan_way best[2], const struct dlc_plan_codec *codec, const struct dlc_plan_setup *s,
                   double target, int max_fragments)
{
    struct dlc_plan_way way = { "DiLoCo", DLC_PLAN_DILOCO, 1, 1, 0, codec, codec };

    best[0] = best[1] = (struct dlc_plan_way){ .H = 0 };
    try_way(&best[0], way, s, target);
    way.name = "streaming + overlap";
    for (way.overlap = 1; way.overlap <= MAX_OVERLAP; way.overlap++)
        for (way.fragments = 1; way.fragments <= max_fragments; way.fragments++)
            try_way(&best[1], way, s, target);
    if (best[0].H > 0 && best[1].H >= best[0].H)
        best[1].H = 0;
}

void dlc_plan_find(struct dlc_plan_found out[DLC_PLAN_MAX_FOUND], int *n, const struct dlc_plan_setup *setup,
                   double target, int max_fragments)
{
    *n = 0;
    for (int codec = 0; codec < DLC_PLAN_N_CODECS; codec++) {
        struct dlc_plan_way best[2];

        search(best, &dlc_plan_codecs[codec], setup, target, max_fragments);
        for (int i = 0; i < 2; i++) {
            struct dlc_plan_setup s = *setup;

            if (best[i].H == 0)
                continue;
            s.H = best[i].H; /* bytes are told for its own rounds */
            out[*n].way = best[i];
            dlc_plan_predict(&out[*n].prediction, &best[i], &s);
            (*n)++;
        }
    }
}
