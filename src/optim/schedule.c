/* Learning-rate schedules. */
#include <math.h>

#include "optim/optim.h"

/* How far the rate has fallen, from 0 at step `start` to 1 at step `end`. Where there is no room to fall, it stays. */
static double progress(int64_t step, int64_t start, int64_t end)
{
    if (step <= start || end <= start)
        return 0;
    return (double)(step - start) / (double)(end - start);
}

double dlc_schedule_lr(const struct dlc_schedule *s, int64_t step)
{
    int64_t start = s->warmup_steps, end = s->total_steps;
    double height = 1; /* 1 at the peak, 0 at min_ratio */

    if (step > end)
        step = end;
    if (step < s->warmup_steps)
        return s->lr * (double)(step + 1) / (double)s->warmup_steps;
    switch (s->kind) {
    case DLC_SCHEDULE_COSINE:
        height = 0.5 * (1 + cos(3.14159265358979323846 * progress(step, start, end)));
        break;
    case DLC_SCHEDULE_LINEAR:
        height = 1 - progress(step, start, end);
        break;
    case DLC_SCHEDULE_WSD: /* 1 - sqrt: Haegele et al., arXiv 2405.18392 */
        start = end - llround(s->decay_fraction * (double)end);
        height = 1 - sqrt(progress(step, start > s->warmup_steps ? start : s->warmup_steps, end));
        break;
    case DLC_SCHEDULE_CONSTANT:
        break;
    }
    return s->lr * (s->min_ratio + (1 - s->min_ratio) * height);
}
