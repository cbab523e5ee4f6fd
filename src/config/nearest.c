#include "config/nearest.h"

#include <stdint.h>
#include <string.h>

#define LONGEST 63

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int letter(char c)
{
    return c == '-' ? '_' : c;
}

size_t dlc_edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    unsigned char d[LONGEST + 1][LONGEST + 1]; /* d[i][j]: between the first i letters of a and j of b */

    if (n > LONGEST || m > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= n; i++) {
        d[i][0] = (unsigned char)i;
        for (size_t j = 1; j <= m; j++) {
            int differs = letter(a[i - 1]) != letter(b[j - 1]);
            size_t cost = least(least(d[i - 1][j], d[i][j - 1]) + 1u, d[i - 1][j - 1] + (size_t)differs);

            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost = least(cost, d[i - 2][j - 2] + 1u);
            d[i][j] = (unsigned char)cost;
        }
    }
    return d[n][m];
}

struct dlc_nearest dlc_nearest_start(const char *typed)
{
    return (struct dlc_nearest){ .typed = typed, .best = NULL, .distance = SIZE_MAX };
}

void dlc_nearest_offer(struct dlc_nearest *nearest, const char *candidate, const char *answer)
{
    size_t distance = dlc_edit_distance(nearest->typed, candidate);

    if (distance < nearest->distance) {
        nearest->distance = distance;
        nearest->best = answer;
    }
}

const char *dlc_nearest_result(const struct dlc_nearest *nearest)
{
    size_t n = strlen(nearest->typed), allowed = n / 3 > 2 ? n / 3 : 2;

    return n > 1 && nearest->distance <= allowed && nearest->distance < n ? nearest->best : NULL;
}
