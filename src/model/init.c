/* Initial values: a pure function of seed, tensor and position, so any number of threads gives the same bits.
 *
 * A matrix has both branches of Box-Muller: values 2i and 2i + 1 come from pair i. The numbers that count are those of
 * the C library's log, sqrt, cos and sin in double, rounded to f32 (exact_pair). They are slow. The polynomials below
 * are within 2^-45 of them (measured: 2^-50), and rounding to f32 is monotone: where both ends of that interval round
 * to the same f32, so does the library's value. Elsewhere, one or two values in a million, the library is asked. */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "base/rng.h"
#include "model/model_internal.h"

#define INIT_STREAM 0x696e697400000000u /* keeps these numbers apart from those of other uses of the same seed */
#define PART ((size_t)1 << 14)          /* values that a thread takes at once */

enum { PAIRS = 256 }; /* done together: their arrays stay in the first-level cache */

static void exact_pair(float x[2], double u, double v, double std)
{
    double angle = 6.283185307179586476925 * v, radius = std * sqrt(-2.0 * log(u));

    x[0] = (float)(radius * cos(angle));
    x[1] = (float)(radius * sin(angle));
}

/* ln u for u in (0, 1): u = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)). */
static inline double fast_log(double u)
{
    const uint64_t root_half = 0x3fe6a09e667f3bcdu, bias = 0x4000000000000000u, magic = 0x4330000000000000u;
    uint64_t bits, shifted, e_bits, m_bits;
    double e, m, s, z, p;

    memcpy(&bits, &u, sizeof bits);
    shifted = (bits - root_half + bias) >> 52; /* e + 1024 */
    e_bits = shifted | magic;
    m_bits = bits - (shifted << 52) + bias;
    memcpy(&e, &e_bits, sizeof e);
    memcpy(&m, &m_bits, sizeof m);
    e -= 0x1p52 + 1024;
    s = (m - 1) / (m + 1);
    z = s * s;
    p = 1.0 / 19;
    p = p * z + 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    return e * 0.693147180559945309417 + (2 * s + 2 * s * z * p);
}

/* cos and sin of `angle` in [0, 2 pi), which lies in the quarter around q pi/2, q = 0..4. Taylor on +-pi/4. */
static inline void fast_cos_sin(double *cosine, double *sine, double angle, double q)
{
    const double half_pi_high = 0x1.921fb544p0, half_pi_low = 0x1.0b4611a626331p-34;
    double r = (angle - q * half_pi_high) - q * half_pi_low, z = r * r, c, s;

    s = -1.0 / 1307674368000;
    s = s * z + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = r + r * z * s;
    c = 1.0 / 20922789888000;
    c = c * z - 1.0 / 87178291200;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = 1 + z * c;
    *cosine = q == 1 ? -s : q == 2 ? -c : q == 3 ? s : c;
    *sine = q == 1 ? c : q == 2 ? -s : q == 3 ? -c : s;
}

/* 1 when the interval around d is not wholly on one f32. */
static inline int is_unsure(float *x, double d)
{
    float low = (float)(d * (1 - 0x1p-44)), high = (float)(d * (1 + 0x1p-44));

    *x = low;
    return low != high;
}

/* n <= PAIRS; x [2 n]. */
static void fill_pairs(float *x, size_t n, uint64_t first_pair, double std, uint64_t seed, uint64_t stream)
{
    const double round_to_whole = 0x1.8p52;
    double u[PAIRS], v[PAIRS];
    float a[PAIRS], b[PAIRS];
    int unsure[PAIRS], any = 0;

    for (size_t i = 0; i < n; i++) {
        u[i] = 1.0 - dlc_rng_uniform(seed, stream, 2 * (first_pair + i));
        v[i] = dlc_rng_uniform(seed, stream, 2 * (first_pair + i) + 1);
    }
    for (size_t i = 0; i < n; i++) {
        double radius = std * sqrt(-2.0 * fast_log(u[i])), c, s;

        fast_cos_sin(&c, &s, 6.283185307179586476925 * v[i], (4 * v[i] + round_to_whole) - round_to_whole);
        unsure[i] = is_unsure(&a[i], radius * c) | is_unsure(&b[i], radius * s) | !(u[i] < 1);
        any |= unsure[i];
    }
    for (size_t i = 0; i < n; i++) {
        x[2 * i] = a[i];
        x[2 * i + 1] = b[i];
    }
    for (size_t i = 0; any && i < n; i++)
        if (unsure[i])
            exact_pair(x + 2 * i, u[i], v[i], std);
}

/* Values [begin, end) of a matrix of n; begin is even. */
static void fill_normal(float *x, size_t begin, size_t end, double std, uint64_t seed, uint64_t stream)
{
    float last[2];

    for (size_t i = begin; i + 1 < end; i += 2 * PAIRS) {
        size_t pairs = (end - i) / 2;

        fill_pairs(x + i, pairs < PAIRS ? pairs : PAIRS, i / 2, std, seed, stream);
    }
    if ((end - begin) % 2) {
        fill_pairs(last, 1, end / 2, std, seed, stream);
        x[end - 1] = last[0];
    }
}

struct job {
    float *params;
    const struct dlc_model_config *config;
    uint64_t seed;
};

/* Each tensor is divided between all: its parts are few for a small one, and the first touch of each page, which costs
 * as much as the numbers, is divided too. */
static void fill_part(void *arg, int worker, int n_workers)
{
    const struct job *j = arg;
    struct dlc__walk w = { .config = j->config };
    double residual_std = j->config->init_std / sqrt(2.0 * j->config->n_layers);

    while (dlc__walk_next(&w)) {
        float *p = j->params + w.offset;
        bool into_residual = w.role == DLC__O || w.role == DLC__DOWN;
        size_t begin, end;

        dlc_pool_part(&begin, &end, w.n_values, PART, worker, n_workers);
        if (w.n_dims == 2)
            fill_normal(p, begin, end, into_residual ? residual_std : j->config->init_std, j->seed,
                        INIT_STREAM + w.index);
        else
            for (size_t i = begin; i < end; i++)
                p[i] = 1;
    }
}

void dlc_model_init_params_by(float *params, const struct dlc_model_config *config, uint64_t seed, struct dlc_pool *pool)
{
    dlc_pool_run(pool, fill_part, &(struct job){ .params = params, .config = config, .seed = seed });
}

void dlc_model_init_params(float *params, const struct dlc_model_config *config, uint64_t seed)
{
    dlc_model_init_params_by(params, config, seed, NULL);
}
