/* Learning-rate schedules. */
#include <math.h>

#include "optim/optim.h"

/* How far the rate has fallen, from 0 at step `start` to 1 at step `last`. Where there is no room to fall, it stays. */
static double progress(int64_t step, int64_t start, int64_t last)
{
    if (step <= start || last <= start)
        return 0;
    return (double)(step - start) / (double)(last - start);
}

double dlc_schedule_lr(const struct dlc_schedule *s, int64_t step)
{
    int64_t last = s->total_steps > 0 ? s->total_steps - 1 : 0, start;
    double height = 1; /* above min_ratio, of the way to the peak */

    if (step > last)
        step = last;
    if (step < s->warmup_steps)
        return s->lr * (double)(step + 1) / (double)s->warmup_steps;
    switch (s->kind) {
    case DLC_SCHEDULE_COSINE:
        height = 0.5 * (1 + cos(3.14159265358979323846 * progress(step, s->warmup_steps, last)));
        break;
    case DLC_SCHEDULE_LINEAR:
        height = 1 - progress(step, s->warmup_steps, last);
        break;
    case DLC_SCHEDULE_WSD: /* 1 - sqrt: Haegele et al., arXiv 2405.18392 */
        start = last - llround(s->decay_fraction * (double)s->total_steps);
        height = 1 - sqrt(progress(step, start > s->warmup_steps ? start : s->warmup_steps, last));
        break;
    case DLC_SCHEDULE_CONSTANT:
        return s->lr;
    }
    return s->lr * (s->min_ratio + (1 - s->min_ratio) * height);
}
