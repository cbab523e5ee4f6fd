#include "outer/robust.h"

#include <stdlib.h>

struct entry {
    double value;
    size_t part;
};

static int by_value(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

static int by_part(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return (x->part > y->part) - (x->part < y->part);
}

/* Most runs have few islands: for them this beats qsort. */
static void sort(struct entry *e, size_t n, int (*order)(const void *, const void *))
{
    if (n > 32) {
        qsort(e, n, sizeof *e, order);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        struct entry x = e[i];
        size_t at = i;

        for (; at > 0 && order(&e[at - 1], &x) > 0; at--)
            e[at] = e[at - 1];
        e[at] = x;
    }
}

static double median(const struct entry *sorted, size_t n)
{
    return n % 2 ? sorted[n / 2].value : 0.5 * sorted[n / 2 - 1].value + 0.5 * sorted[n / 2].value;
}

static double trimmed(struct entry *sorted, size_t n, const struct dlc_merge_part *parts)
{
    size_t cut = n < 3 ? 0 : n < 4 ? 1 : n / 4;
    struct entry *kept = sorted + cut;
    double low = kept[0].value, high = sorted[n - cut - 1].value, total = 0, sum = 0;

    n -= 2 * cut;
    sort(kept, n, by_part);
    for (size_t k = 0; k < n; k++)
        total += parts[kept[k].part].weight;
    for (size_t k = 0; k < n; k++)
        sum += parts[kept[k].part].weight / total * kept[k].value;
    return sum < low ? low : sum > high ? high : sum;
}

void dlc__robust(double *out, const double *values, size_t n, const struct dlc_merge_part *parts, size_t n_parts,
                 dlc_aggregate aggregate)
{
    struct entry e[DLC_ROBUST_PARTS_MAX];

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n_parts; k++)
            e[k] = (struct entry){ values[k * n + i], k };
        sort(e, n_parts, by_value);
        out[i] = aggregate == DLC_AGGREGATE_MEDIAN ? median(e, n_parts) : trimmed(e, n_parts, parts);
    }
}
