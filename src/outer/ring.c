#include "outer/coord_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dlc__ring_add(struct dlc__ring *r, double value)
{
    r->values[r->n++ % DLC_RING] = value;
}

size_t dlc__ring_size(const struct dlc__ring *r)
{
    return r->n < DLC_RING ? r->n : DLC_RING;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median_of(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return n == 0 ? 0 : n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

double dlc__ring_median(const struct dlc__ring *r)
{
    double copy[DLC_RING];

    memcpy(copy, r->values, sizeof copy);
    return median_of(copy, dlc__ring_size(r));
}

double dlc__ring_spread(const struct dlc__ring *r)
{
    double deviations[DLC_RING], median = dlc__ring_median(r);
    size_t n = dlc__ring_size(r);

    for (size_t i = 0; i < n; i++)
        deviations[i] = fabs(r->values[i] - median);
    return 1.4826 * median_of(deviations, n);
}

double dlc__ring_max(const struct dlc__ring *r)
{
    double max = 0;

    for (size_t i = 0; i < dlc__ring_size(r); i++)
        max = r->values[i] > max ? r->values[i] : max;
    return max;
}
