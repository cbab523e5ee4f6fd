/* Attention and attention over a cache in double, for the list in conformance_ops.c. */
#include "backend/conformance_attention.h"

#include <math.h>
#include <string.h>

/* ---- attention: d = B T H K D gap bf16; rows of q end with so many values that are not theirs, those of k with one more and
 * those of v with two more ---- */

static struct dlc_attention attention_shape(const size_t *d)
{
    struct dlc_attention s = { .B = d[0], .T = d[1], .H = d[2], .K = d[3], .D = d[4] };

    s.q_row = s.H * s.D + d[5];
    s.k_row = s.K * s.D + (d[5] ? d[5] + 1 : 0);
    s.v_row = s.K * s.D + (d[5] ? d[5] + 2 : 0);
    s.y_type = d[6] ? DLC_BF16 : DLC_F32;
    return s;
}

int conformance_attention_fwd_arrays(struct array_spec *s, const size_t *d)
{
    struct dlc_attention shape = attention_shape(d);
    size_t R = d[0] * d[1], n = R * d[2] * d[4];

    s[0] = (struct array_spec){ "y", d[6] ? OUT16 : OUT, n, 1 };
    s[1] = (struct array_spec){ "lse", OUT, d[0] * d[1] * d[2], 1 };
    s[2] = (struct array_spec){ "q", IN, R * shape.q_row, 1.5 };
    s[3] = (struct array_spec){ "k", IN, R * shape.k_row, 1.5 };
    s[4] = (struct array_spec){ "v", IN, R * shape.v_row, 1 };
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
                          size_t k_row, size_t v_row, size_t D)
{
    double sum = 0;

    for (size_t j = 0; j <= t; j++)
        sum += exp(score(q, k + j * k_row, D)); /* scores of the tests are far from overflow in double */
    *lse = log(sum);
    memset(y, 0, D * sizeof *y);
    for (size_t j = 0; j <= t; j++) {
        double p = exp(score(q, k + j * k_row, D)) / sum;

        for (size_t i = 0; i < D; i++)
            y[i] += p * v[j * v_row + i];
    }
}

static void attention(double *y, double *lse, const double *q, const double *k, const double *v, const size_t *d)
{
    struct dlc_attention s = attention_shape(d);
    size_t T = s.T, H = s.H, D = s.D;

    for (size_t i = 0; i < s.B * T * H; i++) {
        size_t h = i % H, t = i / H % T, b = i / H / T, kv = h / (H / s.K) * D;

        attention_row(y + i * D, lse + (b * H + h) * T + t, q + i / H * s.q_row + h * D, k + b * T * s.k_row + kv,
                      v + b * T * s.v_row + kv, t, s.k_row, s.v_row, D);
    }
}

void conformance_attention_fwd_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    attention(a[0], a[1], a[2], a[3], a[4], d);
}

void conformance_attention_fwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    struct dlc_attention shape = attention_shape(d);

    (void)bf16;
    be->ops->attention_fwd(be, a[0], NULL, a[2], a[3], a[4], &shape);
    be->ops->attention_fwd(be, a[0], a[1], a[2], a[3], a[4], &shape);
}

int conformance_attention_bwd_arrays(struct array_spec *s, const size_t *d)
{
    struct dlc_attention shape = attention_shape(d);
    size_t R = d[0] * d[1], n = R * d[2] * d[4];
    enum array_kind out = d[5] ? ADD : OUT; /* with gaps, whose values must stay */

    s[0] = (struct array_spec){ "dq", out, R * shape.q_row, 1 };
    s[1] = (struct array_spec){ "dk", out, R * shape.k_row, 1 };
    s[2] = (struct array_spec){ "dv", out, R * shape.v_row, 1 };
    s[3] = (struct array_spec){ "dy", IN, n, 1 };
    s[4] = (struct array_spec){ "q", IN, R * shape.q_row, 1.5 };
    s[5] = (struct array_spec){ "k", IN, R * shape.k_row, 1.5 };
    s[6] = (struct array_spec){ "v", IN, R * shape.v_row, 1 };
    s[7] = (struct array_spec){ "y", IN16, n, 1 };
    s[8] = (struct array_spec){ "lse", IN, d[0] * d[1] * d[2], 1 };
    return 9;
}

void conformance_attention_bwd_prepare(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    attention(a[7], a[8], a[4], a[5], a[6], d);
}

static void clear_rows(double *x, size_t R, size_t row, size_t n)
{
    for (size_t r = 0; r < R; r++)
        memset(x + r * row, 0, n * sizeof *x);
}

void conformance_attention_bwd_right(double **a, int32_t **index, const size_t *d)
{
    struct dlc_attention s = attention_shape(d);
    size_t T = s.T, H = s.H, D = s.D;
    double scale = 1 / sqrt((double)D);

    (void)index;
    clear_rows(a[0], s.B * T, s.q_row, H * D);
    clear_rows(a[1], s.B * T, s.k_row, s.K * D);
    clear_rows(a[2], s.B * T, s.v_row, s.K * D);
    for (size_t i = 0; i < s.B * T * H; i++) {
        size_t h = i % H, t = i / H % T, b = i / H / T, kv = h / (H / s.K) * D, q_at = i / H * s.q_row + h * D;
        const double *dy = a[3] + i * D, *q = a[4] + q_at;
        double lse = a[8][(b * H + h) * T + t], delta = 0;

        for (size_t c = 0; c < D; c++)
            delta += dy[c] * a[7][i * D + c];
        for (size_t j = 0; j <= t; j++) {
            size_t k_at = (b * T + j) * s.k_row + kv, v_at = (b * T + j) * s.v_row + kv;
            double p = exp(score(q, a[5] + k_at, D) - lse), dp = 0, ds;

            for (size_t c = 0; c < D; c++)
                dp += dy[c] * a[6][v_at + c];
            ds = p * (dp - delta) * scale;
            for (size_t c = 0; c < D; c++) {
                a[0][q_at + c] += ds * a[5][k_at + c];
                a[1][k_at + c] += ds * q[c];
                a[2][v_at + c] += p * dy[c];
            }
        }
    }
}

void conformance_attention_bwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    struct dlc_attention shape = attention_shape(d);

    (void)bf16;
    be->ops->attention_bwd(be, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], &shape);
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

            attention_row(a[0] + at, &lse, a[3] + at, a[1] + kv, a[2] + kv, past + r, D, D, D);
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
