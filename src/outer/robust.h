/* One outer gradient out of several when not every island is trusted: value by value, so that no single contribution can
 * move a value beyond what the others say. */
#ifndef DLC_OUTER_ROBUST_H
#define DLC_OUTER_ROBUST_H

#include "outer/merge.h"

/* out[i] from values[k * n + i], k < n_parts (2 .. DLC_ROBUST_PARTS_MAX), finite, in island order.
 *   median    of the values, unweighted; of an even number the mean of the middle two
 *   trimmed   weighted mean without the lowest and the highest floor(n_parts / 4), at least one each when n_parts >= 3;
 *             of equal values the one of the lower island counts as lower. Summed in island order and kept between the
 *             lowest and the highest value that counts */
void dlc__robust(double *out, const double *values, size_t n, const struct dlc_merge_part *parts, size_t n_parts,
                 dlc_aggregate aggregate);

#endif
