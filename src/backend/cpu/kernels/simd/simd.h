/* Vectors of W floats, whatever W is: kernels of this folder are written once with these and compiled for each
 * instruction set. Operators + - * / work on `vf` as they are (compiler extension of gcc and clang).
 *
 * A new set needs this file's functions and a line in the build, nothing else. */
#ifndef DLC_BACKEND_CPU_SIMD_H
#define DLC_BACKEND_CPU_SIMD_H

#include <immintrin.h>
#include <math.h>

#include "backend/cpu/kernels.h"

#if defined(__AVX512F__)

typedef __m512 vf;
enum { W = 16 };

static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
} /* a b + c */

/* The larger; the second when either is NaN. */
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* p 2^n for a whole number n. */
static inline vf v_scale2(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}

static inline __mmask16 first_lanes(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

/* The first n < W values; the other lanes are 0 and their memory is not touched. */
static inline vf v_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
static inline void v_store_n(float *p, vf v, size_t n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

/* bf16 values as floats; exact. */
static inline vf v_load_bf16(const dlc_bf16 *p)
{
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));

    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

static inline float v_sum(vf v)
{
    return _mm512_reduce_add_ps(v);
}
static inline float v_largest(vf v)
{
    return _mm512_reduce_max_ps(v);
}

/* Sum of squares in double. */
typedef __m512d vd;
static inline vd v_add_squares(vd sum, vf v)
{
    vd low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    vd high = _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)));

    return _mm512_fmadd_pd(high, high, _mm512_fmadd_pd(low, low, sum));
}
static inline vd v_zero_d(void)
{
    return _mm512_setzero_pd();
}
static inline double v_sum_d(vd v)
{
    return _mm512_reduce_add_pd(v);
}

#elif defined(__AVX2__) && defined(__FMA__)

typedef __m256 vf;
enum { W = 8 };

static inline vf v_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
} /* a b + c */

/* The larger; the second when either is NaN. */
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline vf power_of_two(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

/* p 2^n for a whole number n. Two factors: n may be 128, or far below the smallest normal exponent. */
static inline vf v_scale2(vf p, vf n)
{
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1);

    return p * power_of_two(half) * power_of_two(_mm256_sub_epi32(i, half));
}

static inline __m256i first_lanes(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n < W values; the other lanes are 0 and their memory is not touched. */
static inline vf v_load_n(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}
static inline void v_store_n(float *p, vf v, size_t n)
{
    _mm256_maskstore_ps(p, first_lanes(n), v);
}

/* bf16 values as floats; exact. */
static inline vf v_load_bf16(const dlc_bf16 *p)
{
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));

    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

static inline float v_sum(vf v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float v_largest(vf v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Sum of squares in double. */
typedef __m256d vd;
static inline vd v_add_squares(vd sum, vf v)
{
    vd low = _mm256_cvtps_pd(_mm256_castps256_ps128(v)), high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));

    return _mm256_fmadd_pd(high, high, _mm256_fmadd_pd(low, low, sum));
}
static inline vd v_zero_d(void)
{
    return _mm256_setzero_pd();
}
static inline double v_sum_d(vd v)
{
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));

    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

#else
#error "simd.h has no section for these compiler flags"
#endif

/* The first n < W values; the other lanes are 0 and their memory is not touched. */
static inline vf v_load_bf16_n(const dlc_bf16 *p, size_t n)
{
    dlc_bf16 some[W] = { 0 };

    memcpy(some, p, n * sizeof *p);
    return v_load_bf16(some);
}

/* The same for an array of either type, from value `at` on. */
static inline __attribute__((always_inline)) vf v_load_as(const void *p, size_t at, const dlc_dtype type)
{
    return type == DLC_BF16 ? v_load_bf16((const dlc_bf16 *)p + at) : v_load((const float *)p + at);
}
static inline __attribute__((always_inline)) vf v_load_as_n(const void *p, size_t at, size_t n, const dlc_dtype type)
{
    return type == DLC_BF16 ? v_load_bf16_n((const dlc_bf16 *)p + at, n) : v_load_n((const float *)p + at, n);
}

/* min(n, W) values from p, for loops that count down a tail. */
static inline vf v_load_upto(const float *p, size_t n)
{
    return n >= W ? v_load(p) : v_load_n(p, n);
}
static inline void v_store_upto(float *p, vf v, size_t n)
{
    if (n >= W)
        v_store(p, v);
    else
        v_store_n(p, v, n);
}

/* e^x. Relative error below 1.2e-7 (2 units in the last place) where the result is a normal number; 0 below -104,
 * infinity above 88.73, NaN for NaN (all of it tested). x = n ln 2 + r with |r| <= ln 2 / 2, then 2^n times the Taylor
 * polynomial of degree 7, which is within 6e-9. ln 2 in two parts, the first with so few bits that n times it is exact.
 */
static inline vf v_exp(vf x)
{
    vf n, r, p;

    x = v_min(v_set(89), v_max(v_set(-105), x));
    n = v_round(x * v_set(1.44269504f));
    r = v_fma(n, v_set(-0x1.63p-1f), x);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    p = v_set(1.f / 5040);
    p = v_fma(p, r, v_set(1.f / 720));
    p = v_fma(p, r, v_set(1.f / 120));
    p = v_fma(p, r, v_set(1.f / 24));
    p = v_fma(p, r, v_set(1.f / 6));
    p = v_fma(p, r, v_set(1.f / 2));
    p = v_fma(p, r * r, r);
    return v_scale2(v_set(1) + p, n);
}

/* Matrices are turned around in blocks of GROUP x GROUP, whatever W is. */
enum { GROUP = 8 };

/* r[i][j] becomes r[j][i]. */
static inline void transpose_group(__m256 r[GROUP])
{
    __m256 t[GROUP], u[GROUP];

    for (int i = 0; i < GROUP; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < GROUP; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

#endif
