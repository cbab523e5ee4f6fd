/* Random numbers that are a pure function of (seed, stream, counter): no hidden state, so any position can be reached at
 * once and a resumed run continues with the same numbers. Mixing function: splitmix64's finaliser (Steele, Lea and Flood
 * 2014), applied twice over the three words. Not for secrets. */
#ifndef DLC_BASE_RNG_H
#define DLC_BASE_RNG_H

#include <math.h>
#include <stdint.h>

static inline uint64_t dlc_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t dlc_rng_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return dlc_mix64(dlc_mix64(dlc_mix64(seed) ^ stream) ^ counter);
}

/* Uniform in [0, 1), 53 bits. */
static inline double dlc_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(dlc_rng_u64(seed, stream, counter) >> 11) * 0x1p-53;
}

/* Standard normal (Box-Muller, cosine branch). */
static inline double dlc_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    double u = 1.0 - dlc_rng_uniform(seed, stream, 2 * counter); /* (0, 1] */
    double v = dlc_rng_uniform(seed, stream, 2 * counter + 1);

    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v);
}

/* A sequential generator on top, for code that just wants the next number. */
struct dlc_rng {
    uint64_t seed, stream, counter;
};

static inline uint64_t dlc_rng_next(struct dlc_rng *r) { return dlc_rng_u64(r->seed, r->stream, r->counter++); }

/* Uniform in [0, n), n > 0, without the bias of a plain remainder. */
static inline uint64_t dlc_rng_below(struct dlc_rng *r, uint64_t n)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;

    do
        x = dlc_rng_next(r);
    while (x >= limit);
    return x % n;
}

#endif
