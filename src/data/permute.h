/* A seeded permutation of 0..n-1 that is computed, not stored: position i can be looked up alone, in constant memory.
 * A Feistel network of six rounds over the smallest even number of bits that holds n-1; results >= n are permuted again
 * (the domain is at most 4n, so four times on average at worst). */
#ifndef DLC_DATA_PERMUTE_H
#define DLC_DATA_PERMUTE_H

#include <stdint.h>

#include "base/rng.h"

/* i < n. */
static inline uint64_t dlc_permute(uint64_t i, uint64_t n, uint64_t key)
{
    int half = 1;
    uint64_t mask;

    if (n < 2)
        return 0;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;

        for (uint64_t round = 0; round < 6; round++) {
            uint64_t mixed = left ^ (dlc_rng_u64(key, round, right) & mask);

            left = right;
            right = mixed;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

#endif
