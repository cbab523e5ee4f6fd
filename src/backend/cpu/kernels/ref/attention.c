/* Causal grouped-query attention.
 *   s_ij = q_i.k_j / sqrt(D) for j <= i,  lse_i = log sum_j exp(s_ij),  p_ij = exp(s_ij - lse_i),  y_i = sum_j p_ij v_j
 *   dv_j = sum_i p_ij dy_i,  ds_ij = p_ij (dy_i.v_j - dy_i.y_i),  dq_i = sum_j ds_ij k_j / sqrt(D),
 *   dk_j = sum_i ds_ij q_i / sqrt(D);  dk and dv sum over the heads that share them.
 * Scores are computed again wherever they are needed, so nothing is stored but lse. */
#include <math.h>

#include "backend/cpu/kernels.h"

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void forward_row(float *y, float *lse, const float *q, const float *k, const float *v, size_t t, size_t stride,
                        size_t D)
{
    double max = -INFINITY, sum = 0, scale = 1 / sqrt((double)D);

    for (size_t j = 0; j <= t; j++)
        max = fmax(max, scale * dot(q, k + j * stride, D));
    for (size_t j = 0; j <= t; j++)
        sum += exp(scale * dot(q, k + j * stride, D) - max);
    if (lse)
        *lse = (float)(max + log(sum));
    for (size_t d = 0; d < D; d++)
        y[d] = 0;
    for (size_t j = 0; j <= t; j++) {
        double p = exp(scale * dot(q, k + j * stride, D) - max) / sum;

        for (size_t d = 0; d < D; d++)
            y[d] += (float)(p * v[j * stride + d]);
    }
}

void dlc_attention_fwd_ref(float *y, float *lse, const float *q, const float *k, const float *v,
                           const struct dlc_attention_shape *s, size_t item_begin, size_t item_end, float *scratch)
{
    size_t T = s->T, H = s->H, K = s->K, D = s->D, G = H / K, n_tiles = dlc_attention_n_tiles(s);

    (void)scratch;
    for (size_t item = item_begin; item < item_end; item++) {
        size_t tile = item % n_tiles, kv = item / n_tiles % K, b = item / n_tiles / K;
        size_t end = (tile + 1) * DLC_ATTENTION_TILE < T ? (tile + 1) * DLC_ATTENTION_TILE : T;

        for (size_t h = kv * G; h < (kv + 1) * G; h++) {
            for (size_t t = tile * DLC_ATTENTION_TILE; t < end; t++) {
                size_t at = ((b * T + t) * H + h) * D, kv_at = (b * T * K + kv) * D;

                forward_row(y + at, lse ? lse + (b * H + h) * T + t : NULL, q + at, k + kv_at, v + kv_at, t, K * D, D);
            }
        }
    }
}

static void backward_row(float *dq, float *dk, float *dv, const float *dy, const float *q, const float *k,
                         const float *v, const float *y, double lse, size_t t, size_t stride, size_t D)
{
    double scale = 1 / sqrt((double)D), delta = dot(dy, y, D);

    for (size_t d = 0; d < D; d++)
        dq[d] = 0;
    for (size_t j = 0; j <= t; j++) {
        size_t at = j * stride;
        double p = exp(scale * dot(q, k + at, D) - lse), ds = scale * p * (dot(dy, v + at, D) - delta);

        for (size_t d = 0; d < D; d++) {
            dv[at + d] += (float)(p * dy[d]);
            dk[at + d] += (float)(ds * q[d]);
            dq[d] += (float)(ds * k[at + d]);
        }
    }
}

void dlc_attention_bwd_ref(float *dq, float *dk, float *dv, const float *dy, const float *q, const float *k,
                           const float *v, const float *y, const float *lse, const struct dlc_attention_shape *s,
                           size_t item_begin, size_t item_end, float *scratch)
{
    size_t T = s->T, H = s->H, K = s->K, D = s->D, G = H / K;

    (void)scratch;
    for (size_t item = item_begin; item < item_end; item++) {
        size_t kv = item % K, b = item / K, kv_at = (b * T * K + kv) * D;

        for (size_t t = 0; t < T; t++) {
            memset(dk + kv_at + t * K * D, 0, D * sizeof *dk);
            memset(dv + kv_at + t * K * D, 0, D * sizeof *dv);
        }
        for (size_t h = kv * G; h < (kv + 1) * G; h++) {
            for (size_t t = 0; t < T; t++) {
                size_t at = ((b * T + t) * H + h) * D;

                backward_row(dq + at, dk + kv_at, dv + kv_at, dy + at, q + at, k + kv_at, v + kv_at, y + at,
                             lse[(b * H + h) * T + t], t, K * D, D);
            }
        }
    }
}
