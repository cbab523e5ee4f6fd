/* Attention and attention over a cache in double, for the list in conformance_ops.c. */
#include "backend/conformance_attention.h"

#include <math.h>
#include <string.h>

/* ---- attention: d = B T H K D ---- */

int conformance_attention_fwd_arrays(struct array_spec *s, const size_t *d)
{
    size_t n = d[0] * d[1] * d[2] * d[4], n_kv = d[0] * d[1] * d[3] * d[4];

    s[0] = (struct array_spec){ "y", OUT, n, 1 };
    s[1] = (struct array_spec){ "lse", OUT, d[0] * d[1] * d[2], 1 };
    s[2] = (struct array_spec){ "q", IN, n, 1.5 };
    s[3] = (struct array_spec){ "k", IN, n_kv, 1.5 };
    s[4] = (struct array_spec){ "v", IN, n_kv, 1 };
    return 5;
}

static double score(const double *q, const double *k, size_t D)
{
    double sum = 0;

    for (size_t i = 0; i < D; i++)
        sum += q[i] * k[i];
    return sum / sqrt((double)D);
}

static void attention_row(double *y, double *lse, const double *q, const double *k, const double *v, size_t t,
                          size_t kv_row, size_t D)
{
    double sum = 0;

    for (size_t j = 0; j <= t; j++)
        sum += exp(score(q, k + j * kv_row, D)); /* scores of the tests are far from overflow in double */
    *lse = log(sum);
    memset(y, 0, D * sizeof *y);
    for (size_t j = 0; j <= t; j++) {
        double p = exp(score(q, k + j * kv_row, D)) / sum;

        for (size_t i = 0; i < D; i++)
            y[i] += p * v[j * kv_row + i];
    }
}

static void attention(double *y, double *lse, const double *q, const double *k, const double *v, const size_t *d)
{
    size_t T = d[1], H = d[2], K = d[3], D = d[4];

    for (size_t i = 0; i < d[0] * T * H; i++) {
        size_t h = i % H, t = i / H % T, b = i / H / T, kv = (b * T * K + h / (H / K)) * D;

        attention_row(y + i * D, lse + (b * H + h) * T + t, q + i * D, k + kv, v + kv, t, K * D, D);
    }
}

void conformance_attention_fwd_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    attention(a[0], a[1], a[2], a[3], a[4], d);
}

void conformance_attention_fwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->attention_fwd(be, a[0], NULL, a[2], a[3], a[4], d[0], d[1], d[2], d[3], d[4]);
    be->ops->attention_fwd(be, a[0], a[1], a[2], a[3], a[4], d[0], d[1], d[2], d[3], d[4]);
}

int conformance_attention_bwd_arrays(struct array_spec *s, const size_t *d)
{
    size_t n = d[0] * d[1] * d[2] * d[4], n_kv = d[0] * d[1] * d[3] * d[4];

    s[0] = (struct array_spec){ "dq", OUT, n, 1 };
    s[1] = (struct array_spec){ "dk", OUT, n_kv, 1 };
    s[2] = (struct array_spec){ "dv", OUT, n_kv, 1 };
    s[3] = (struct array_spec){ "dy", IN, n, 1 };
    s[4] = (struct array_spec){ "q", IN, n, 1.5 };
    s[5] = (struct array_spec){ "k", IN, n_kv, 1.5 };
    s[6] = (struct array_spec){ "v", IN, n_kv, 1 };
    s[7] = (struct array_spec){ "y", IN, n, 1 };
    s[8] = (struct array_spec){ "lse", IN, d[0] * d[1] * d[2], 1 };
    return 9;
}

void conformance_attention_bwd_prepare(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    attention(a[7], a[8], a[4], a[5], a[6], d);
}

void conformance_attention_bwd_right(double **a, int32_t **index, const size_t *d)
{
    size_t T = d[1], H = d[2], K = d[3], D = d[4];
    double scale = 1 / sqrt((double)D);

    (void)index;
    memset(a[0], 0, d[0] * T * H * D * sizeof(double));
    memset(a[1], 0, d[0] * T * K * D * sizeof(double));
    memset(a[2], 0, d[0] * T * K * D * sizeof(double));
    for (size_t i = 0; i < d[0] * T * H; i++) {
        size_t h = i % H, t = i / H % T, b = i / H / T;
        const double *dy = a[3] + i * D, *q = a[4] + i * D;
        double lse = a[8][(b * H + h) * T + t], delta = 0;

        for (size_t c = 0; c < D; c++)
            delta += dy[c] * a[7][i * D + c];
        for (size_t j = 0; j <= t; j++) {
            size_t at = ((b * T + j) * K + h / (H / K)) * D;
            double p = exp(score(q, a[5] + at, D) - lse), dp = 0, ds;

            for (size_t c = 0; c < D; c++)
                dp += dy[c] * a[6][at + c];
            ds = p * (dp - delta) * scale;
            for (size_t c = 0; c < D; c++) {
                a[0][i * D + c] += ds * a[5][at + c];
                a[1][at + c] += ds * q[c];
                a[2][at + c] += p * dy[c];
            }
        }
    }
}

void conformance_attention_bwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->attention_bwd(be, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], d[0], d[1], d[2], d[3], d[4]);
}

/* ---- over a cache: d = R past P H K D bf16 ---- */

int conformance_attention_cached_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "y", OUT, d[0] * d[3] * d[5], 1 };
    s[1] = (struct array_spec){ "keys", ADD16, d[4] * d[2] * d[5], 1.5 };
    s[2] = (struct array_spec){ "values", ADD16, d[4] * d[2] * d[5], 1 };
    s[3] = (struct array_spec){ "q", IN, d[0] * d[3] * d[5], 1.5 };
    s[4] = (struct array_spec){ "k", IN, d[0] * d[4] * d[5], 1.5 };
    s[5] = (struct array_spec){ "v", IN, d[0] * d[4] * d[5], 1 };
    return 6;
}

static void put_in_cache(double *cache, const double *x, const size_t *d)
{
    size_t R = d[0], past = d[1], P = d[2], K = d[4], D = d[5];

    for (size_t r = 0; r < R; r++)
        for (size_t k = 0; k < K; k++)
            for (size_t i = 0; i < D; i++) {
                double v = x[(r * K + k) * D + i];

                cache[(k * P + past + r) * D + i] = d[6] ? conformance_nearest_bf16(v) : v;
            }
}

void conformance_attention_cached_right(double **a, int32_t **index, const size_t *d)
{
    size_t R = d[0], past = d[1], P = d[2], H = d[3], K = d[4], D = d[5];

    (void)index;
    put_in_cache(a[1], a[4], d);
    put_in_cache(a[2], a[5], d);
    for (size_t r = 0; r < R; r++) {
        for (size_t h = 0; h < H; h++) {
            size_t at = (r * H + h) * D, kv = h / (H / K) * P * D;
            double lse;

            attention_row(a[0] + at, &lse, a[3] + at, a[1] + kv, a[2] + kv, past + r, D, D);
        }
    }
}

void conformance_attention_cached_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    struct dlc_cached shape = {
        .R = d[0], .past = d[1], .P = d[2], .H = d[3], .K = d[4], .D = d[5], .type = bf16 ? DLC_BF16 : DLC_F32
    };

    be->ops->attention_cached(be, a[0], a[1], a[2], a[3], a[4], a[5], &shape);
}
