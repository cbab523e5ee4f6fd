/* "Did you mean": the candidate at the smallest edit distance from what was typed. */
#ifndef DLC_CONFIG_NEAREST_H
#define DLC_CONFIG_NEAREST_H

#include <stddef.h>

/* Levenshtein distance with swaps of neighbours counting one. Names longer than 63 bytes are far from everything. */
size_t dlc_edit_distance(const char *a, const char *b);

struct dlc_nearest {
    const char *typed;
    const char *best;
    size_t distance;
};

struct dlc_nearest dlc_nearest_start(const char *typed);
/* `answer` is what to suggest when `candidate` is the nearest; the first of equals stays. */
void dlc_nearest_offer(struct dlc_nearest *nearest, const char *candidate, const char *answer);
/* NULL when even the best shares too little: more than a third of the letters would have to change (at least 2 may). */
const char *dlc_nearest_result(const struct dlc_nearest *nearest);

#endif
