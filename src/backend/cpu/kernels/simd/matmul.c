/* c = a b by blocks (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
 *
 * Panels of a and b are copied into the order in which the innermost loop reads them, from bf16 to f32 on the way: b in
 * strips of 2 W columns, a in strips of 6 rows. A strip of b stays in the first cache while all strips of a block of a
 * pass it from the second. Blocks of the inner dimension are added in order and their sizes depend on K alone, so a
 * value's bits do not depend on where c is cut, nor on alignment.
 *
 * What this adds to a textbook: c is asked for before the sums begin. It comes from memory, its latency is a quarter of
 * the time a block takes, and processors do not look that far ahead. */
#include "backend/cpu/kernels/simd/simd.h"

enum {
    ROWS = 6,
    COLUMNS = 2 * W,
    BLOCK_M = 16 * ROWS, /* of a: 200 KB, in the second cache */
    BLOCK_K = 4096 / W,  /* of a strip of b: 32 KB, about the first cache */
    BLOCK_N = 512,
    LINE = 64 / sizeof(float),
};

/* One past what is used: strips of a are written 8 values at a time. */
_Static_assert((BLOCK_N * BLOCK_K + BLOCK_M * BLOCK_K + GROUP) <= 8 * DLC_ATTENTION_TILE * DLC_ATTENTION_TILE * 17,
               "the panels fit into a worker's scratch");

/* ---- copies ---- */

static inline __attribute__((always_inline)) __m256 load_group(const struct dlc_matrix *m, size_t at, const int bf16)
{
    if (!bf16)
        return _mm256_loadu_ps((const float *)m->values + at);
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)((const dlc_bf16 *)m->values + at))),
                          16));
}

static inline float load_one(const struct dlc_matrix *m, size_t at)
{
    return m->dtype == DLC_F32 ? ((const float *)m->values)[at] : dlc_bf16_to_f32(((const dlc_bf16 *)m->values)[at]);
}

/* A strip is `width` lines of m side by side: to[k*width + w] is value k0 + k of line i0 + w. Lines lie along memory
 * (a value's neighbours belong to the same line) or `across` it. Of the `width` only n exist. */
struct strip {
    const struct dlc_matrix *m;
    size_t i0, k0, n_k, n;
    int width, across;
};

static size_t place_in(const struct strip *s, size_t w, size_t k)
{
    return s->across ? (s->k0 + k) * s->m->ld + s->i0 + w : (s->i0 + w) * s->m->ld + s->k0 + k;
}

/* Values [k, n_k) one by one, zeros for lines that do not exist. */
static void copy_singly(float *to, const struct strip *s, size_t k)
{
    for (; k < s->n_k; k++)
        for (size_t w = 0; w < (size_t)s->width; w++)
            to[k * (size_t)s->width + w] = w < s->n ? load_one(s->m, place_in(s, w, k)) : 0;
}

/* The next strip's values at k: what is copied comes from memory in pieces too short for the processor to see them
 * coming. An address past the matrix is never read. */
static inline __attribute__((always_inline)) void ask_for_next(const struct strip *s, size_t w, size_t k)
{
    _mm_prefetch((const char *)s->m->values + place_in(s, w + (size_t)s->width, k) * dlc_dtype_size(s->m->dtype),
                 _MM_HINT_T0);
}

/* Whole groups; a strip of 6 is written 8 wide, each group over the end of the one before. Returns how far it came. */
static inline __attribute__((always_inline)) size_t copy_groups(float *to, const struct strip *s, const int width,
                                                                const int across, const int bf16)
{
    size_t ld = s->m->ld, k = 0;

    if (across) {
        /* The last line but one: a group of 8 may reach past a strip of 6, and must not past the matrix. */
        size_t end = width % GROUP ? s->n_k - 1 : s->n_k;

        for (; k < end; k++) {
            ask_for_next(s, 0, k);
            for (int w = 0; w < width; w += GROUP)
                _mm256_storeu_ps(to + k * (size_t)width + w, load_group(s->m, place_in(s, (size_t)w, k), bf16));
        }
        return k;
    }
    for (; k + GROUP <= s->n_k; k += GROUP) {
        for (int w = 0; w < width; w += GROUP) {
            __m256 r[GROUP];
            size_t from = place_in(s, (size_t)w, k);

            for (int i = 0; i < GROUP; i++)
                r[i] = w + i < width ? load_group(s->m, from + (size_t)i * ld, bf16) : _mm256_setzero_ps();
            for (int i = 0; k % LINE == 0 && i < GROUP && w + i < width; i++)
                ask_for_next(s, (size_t)(w + i), k);
            transpose_group(r);
            for (int i = 0; i < GROUP; i++)
                _mm256_storeu_ps(to + (k + (size_t)i) * (size_t)width + w, r[i]);
        }
    }
    return k;
}

static inline __attribute__((always_inline)) void copy_strip(float *to, const struct strip *s, const int width)
{
    size_t k = 0;

    if (s->n == (size_t)width) {
        if (s->m->dtype == DLC_F32)
            k = s->across ? copy_groups(to, s, width, 1, 0) : copy_groups(to, s, width, 0, 0);
        else
            k = s->across ? copy_groups(to, s, width, 1, 1) : copy_groups(to, s, width, 0, 1);
    }
    copy_singly(to, s, k);
}

static size_t at_most(size_t n, size_t limit)
{
    return n < limit ? n : limit;
}

static void copy_a(float *to, const struct dlc_matrix *a, size_t i0, size_t k0, size_t m, size_t n_k)
{
    for (size_t i = 0; i < m; i += ROWS) {
        struct strip s = { a, i0 + i, k0, n_k, at_most(m - i, ROWS), ROWS, a->transposed };

        copy_strip(to + i * n_k, &s, ROWS);
    }
}

static void copy_b(float *to, const struct dlc_matrix *b, size_t j0, size_t k0, size_t n, size_t n_k)
{
    for (size_t j = 0; j < n; j += COLUMNS) {
        struct strip s = { b, j0 + j, k0, n_k, at_most(n - j, COLUMNS), COLUMNS, !b->transposed };

        copy_strip(to + j * n_k, &s, COLUMNS);
    }
}

/* ---- products ---- */

static inline void ask_for(const float *c, size_t ldc, int rows)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < COLUMNS; j += LINE)
            _mm_prefetch((const char *)(c + (size_t)i * ldc + j), _MM_HINT_T0);
}

static inline void put(float *c, vf v, size_t n, int accumulate)
{
    if (accumulate)
        v = v + v_load_upto(c, n);
    v_store_upto(c, v, n);
}

/* c[rows][n] = or += a strip by strip. `rows` is a constant at every call: loops over it disappear. The pragmas keep
 * `sum` in registers with gcc, which otherwise unrolls too late. */
static inline __attribute__((always_inline)) void multiply_strips(float *c, size_t ldc, const float *a, const float *b,
                                                                  size_t n_k, const int rows, size_t n, int accumulate)
{
    vf sum[ROWS][2];

    ask_for(c, ldc, rows);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
        sum[i][0] = sum[i][1] = v_set(0);
    for (size_t k = 0; k < n_k; k++, a += ROWS, b += COLUMNS) {
        vf b0 = v_load(b), b1 = v_load(b + W);

#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            vf x = v_set(a[i]);

            sum[i][0] = v_fma(x, b0, sum[i][0]);
            sum[i][1] = v_fma(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++, c += ldc) {
        put(c, sum[i][0], n, accumulate);
        if (n > W)
            put(c + W, sum[i][1], n - W, accumulate);
    }
}

static void multiply_edge(float *c, size_t ldc, const float *a, const float *b, size_t n_k, size_t rows, size_t n,
                          int accumulate)
{
    switch (rows) {
    case 6: multiply_strips(c, ldc, a, b, n_k, 6, n, accumulate); break;
    case 5: multiply_strips(c, ldc, a, b, n_k, 5, n, accumulate); break;
    case 4: multiply_strips(c, ldc, a, b, n_k, 4, n, accumulate); break;
    case 3: multiply_strips(c, ldc, a, b, n_k, 3, n, accumulate); break;
    case 2: multiply_strips(c, ldc, a, b, n_k, 2, n, accumulate); break;
    default: multiply_strips(c, ldc, a, b, n_k, 1, n, accumulate); break;
    }
}

/* While a strip of b is used, the next one comes nearer, a few lines with every block of c. */
static void multiply_block(float *c, size_t ldc, const float *a, const float *b, size_t m, size_t n, size_t n_k,
                           int accumulate)
{
    size_t share = (COLUMNS * n_k * ROWS / m + LINE) / LINE * LINE;

    for (size_t j = 0; j < n; j += COLUMNS) {
        const float *next = b + (j + COLUMNS) * n_k;

        for (size_t i = 0; i < m; i += ROWS) {
            for (size_t line = 0; line < share; line += LINE)
                _mm_prefetch((const char *)(next + line), _MM_HINT_T1);
            next += share;
            multiply_edge(c + i * ldc + j, ldc, a + i * n_k, b + j * n_k, n_k, at_most(m - i, ROWS),
                          at_most(n - j, COLUMNS), accumulate);
        }
    }
}

/* Parts of equal size, at most `limit` each. */
static size_t even_part(size_t n, size_t limit, size_t grain)
{
    size_t parts = (n + limit - 1) / limit;

    return ((n + parts - 1) / parts + grain - 1) / grain * grain;
}

void DLC_KERNEL(matmul)(const struct dlc_product *p, float *scratch)
{
    size_t step_k = even_part(p->K, BLOCK_K, GROUP), step_m = even_part(p->M, BLOCK_M, ROWS);
    size_t step_n = even_part(p->N, BLOCK_N, COLUMNS);
    float *b = scratch, *a = scratch + (size_t)BLOCK_K * BLOCK_N;

    for (size_t j = 0; j < p->N; j += step_n) {
        size_t n = at_most(p->N - j, step_n);

        for (size_t k = 0; k < p->K; k += step_k) {
            size_t n_k = at_most(p->K - k, step_k);

            copy_b(b, &p->b, j, k, n, n_k);
            for (size_t i = 0; i < p->M; i += step_m) {
                size_t m = at_most(p->M - i, step_m);

                copy_a(a, &p->a, i, k, m, n_k);
                multiply_block(p->c + i * p->ldc + j, p->ldc, a, b, m, n, n_k, p->accumulate || k > 0);
            }
        }
    }
}
