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

static void forward_row(float *y, float *lse, const float *q, const float *k, const float *v, size_t t,
                        const struct dlc_attention *s)
{
    size_t D = s->D;
    double max = -INFINITY, sum = 0, scale = 1 / sqrt((double)D);

    for (size_t j = 0; j <= t; j++)
        max = fmax(max, scale * dot(q, k + j * s->k_row, D));
    for (size_t j = 0; j <= t; j++)
        sum += exp(scale * dot(q, k + j * s->k_row, D) - max);
    if (lse)
        *lse = (float)(max + log(sum));
    for (size_t d = 0; d < D; d++)
        y[d] = 0;
    for (size_t j = 0; j <= t; j++) {
        double p = exp(scale * dot(q, k + j * s->k_row, D) - max) / sum;

        for (size_t d = 0; d < D; d++)
            y[d] += (float)(p * v[j * s->v_row + d]);
    }
}

/* One row of y, which may be in bf16: made in or widened to f32 in `own`. */
static void put_row(void *y, size_t at, const float *own, const struct dlc_attention *s)
{
    if (s->y_type == DLC_BF16)
        DLC_KERNEL(to_bf16)((dlc_bf16 *)y + at, own, s->D);
    else
        memcpy((float *)y + at, own, s->D * sizeof *own);
}

static void get_row(float *own, const void *y, size_t at, const struct dlc_attention *s)
{
    if (s->y_type == DLC_BF16)
        DLC_KERNEL(from_bf16)(own, (const dlc_bf16 *)y + at, s->D);
    else
        memcpy(own, (const float *)y + at, s->D * sizeof *own);
}

void dlc_attention_fwd_ref(void *y, float *lse, const float *q, const float *k, const float *v,
                           const struct dlc_attention *s, size_t item_begin, size_t item_end, float *scratch)
{
    size_t T = s->T, H = s->H, K = s->K, D = s->D, G = H / K, n_tiles = dlc_attention_n_tiles(s);

    for (size_t item = item_begin; item < item_end; item++) {
        size_t tile = item % n_tiles, kv = item / n_tiles % K, b = item / n_tiles / K;
        size_t end = (tile + 1) * DLC_ATTENTION_TILE < T ? (tile + 1) * DLC_ATTENTION_TILE : T;

        for (size_t h = kv * G; h < (kv + 1) * G; h++) {
            for (size_t t = tile * DLC_ATTENTION_TILE; t < end; t++) {
                forward_row(scratch, lse ? lse + (b * H + h) * T + t : NULL, q + (b * T + t) * s->q_row + h * D,
                            k + b * T * s->k_row + kv * D, v + b * T * s->v_row + kv * D, t, s);
                put_row(y, ((b * T + t) * H + h) * D, scratch, s);
            }
        }
    }
}

static void backward_row(float *dq, float *dk, float *dv, const float *dy, const float *q, const float *k,
                         const float *v, const float *y, double lse, size_t t, const struct dlc_attention *s)
{
    size_t D = s->D;
    double scale = 1 / sqrt((double)D), delta = dot(dy, y, D);

    for (size_t d = 0; d < D; d++)
        dq[d] = 0;
    for (size_t j = 0; j <= t; j++) {
        size_t k_at = j * s->k_row, v_at = j * s->v_row;
        double p = exp(scale * dot(q, k + k_at, D) - lse), ds = scale * p * (dot(dy, v + v_at, D) - delta);

        for (size_t d = 0; d < D; d++) {
            dv[v_at + d] += (float)(p * dy[d]);
            dk[k_at + d] += (float)(ds * q[d]);
            dq[d] += (float)(ds * k[k_at + d]);
        }
    }
}

void dlc_attention_bwd_ref(float *dq, float *dk, float *dv, const float *dy, const float *q, const float *k,
                           const float *v, const void *y, const float *lse, const struct dlc_attention *s,
                           size_t item_begin, size_t item_end, float *scratch)
{
    size_t T = s->T, H = s->H, K = s->K, D = s->D, G = H / K;

    for (size_t item = item_begin; item < item_end; item++) {
        size_t kv = item % K, b = item / K, k_at = b * T * s->k_row + kv * D, v_at = b * T * s->v_row + kv * D;

        for (size_t t = 0; t < T; t++) {
            memset(dk + k_at + t * s->k_row, 0, D * sizeof *dk);
            memset(dv + v_at + t * s->v_row, 0, D * sizeof *dv);
        }
        for (size_t h = kv * G; h < (kv + 1) * G; h++) {
            for (size_t t = 0; t < T; t++) {
                size_t at = ((b * T + t) * H + h) * D, q_at = (b * T + t) * s->q_row + h * D;

                get_row(scratch, y, at, s);
                backward_row(dq + q_at, dk + k_at, dv + v_at, dy + at, q + q_at, k + k_at, v + v_at, scratch,
                             lse[(b * H + h) * T + t], t, s);
            }
        }
    }
}
