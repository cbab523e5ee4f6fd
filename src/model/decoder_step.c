/* The layers for R rows at the next R positions: one when generating, a chunk of the prompt before that.
 *
 * One row is bound by reading the weights, so what can be one product is one, and sums into the residual stream happen
 * in the product. Chunks of many rows use the same products as the forward pass. */
#include <assert.h>

#include "model/decoder_internal.h"

/* So many rows cost less as passes over the weights four at a time than as a product of matrices, which in bf16 widens
 * or packs them first. */
static bool few_rows(const dlc_decoder *dec, size_t R)
{
    return R <= (dec->type == DLC_BF16 ? 16 : 8);
}

/* R rows of K values as the next product reads them. */
static const void *operand(dlc_decoder *dec, const float *x, size_t R, size_t K)
{
    if (few_rows(dec, R) || dec->type != DLC_BF16)
        return x;
    dec->be->ops->to_bf16(dec->be, dec->operand, x, R * K);
    return dec->operand;
}

/* y[R][N] = or += x[R][K] w[N][K]^T, x as operand() gives it. */
static void project(dlc_decoder *dec, float *y, const void *x, const void *w, size_t R, size_t N, size_t K,
                    int accumulate)
{
    if (few_rows(dec, R))
        dec->be->ops->matvec(dec->be, y, x, w, R, N, K, dec->type, accumulate);
    else
        dec->be->ops->matmul_nt(dec->be, y, x, w, R, N, K, dec->type, accumulate);
}

static void embed(dlc_decoder *dec, const int32_t *tokens, size_t R)
{
    size_t C = (size_t)dec->config.d_model;

    if (dec->weights.embed_type == DLC_F32) {
        dec->be->ops->embed_fwd(dec->be, dec->x, tokens, dec->weights.embed, R, C);
        return;
    }
    for (size_t r = 0; r < R; r++)
        dec->be->ops->from_bf16(dec->be, dec->x + r * C, (const dlc_bf16 *)dec->weights.embed + (size_t)tokens[r] * C,
                                C);
}

static void norm(dlc_decoder *dec, float *y, const float *x, const float *gain, size_t R, size_t C)
{
    struct dlc_norm shape = dlc_norm_rows(R, C, (float)dec->config.norm_eps);

    dec->be->ops->rmsnorm_fwd(dec->be, y, NULL, x, gain, &shape);
}

/* Norm over each head (Qwen3) and rotation. */
static void place_heads(dlc_decoder *dec, float *out, const float *pre, const float *gain, size_t R, size_t heads)
{
    const struct dlc_ops *ops = dec->be->ops;
    size_t D = (size_t)dec->config.head_dim;

    if (dec->config.qk_norm)
        norm(dec, out, pre, gain, R * heads, D);
    ops->rope(dec->be, out, dec->rope, R, R, (size_t)dec->position, heads, D, heads * D, 0);
}

/* Values need no placing: they are where attention reads them at once. */
static void project_qkv(dlc_decoder *dec, const struct dlc__decoder_layer *l, size_t R)
{
    struct dlc__dims d = dlc__dims(&dec->config);
    float *k = dec->pre + R * d.HD, *v = dec->qkv + R * (d.HD + d.KD);
    const void *h = operand(dec, dec->h, R, d.C);

    if (R == 1 && dec->pre == dec->qkv) {
        project(dec, dec->qkv, h, l->q, 1, d.HD + 2 * d.KD, d.C, 0);
        return;
    }
    project(dec, dec->pre, h, l->q, R, d.HD, d.C, 0);
    project(dec, k, h, l->k, R, d.KD, d.C, 0);
    project(dec, v, h, l->v, R, d.KD, d.C, 0);
}

static void attention_half(dlc_decoder *dec, int layer, size_t R)
{
    const struct dlc__decoder_layer *l = &dec->weights.layers[layer];
    const struct dlc_ops *ops = dec->be->ops;
    struct dlc__dims d = dlc__dims(&dec->config);
    float *q = dec->qkv, *k = q + R * d.HD, *v = k + R * d.KD;
    struct dlc_cached shape = { .R = R,
                                .past = (size_t)dec->position,
                                .P = (size_t)dec->max_positions,
                                .H = d.H,
                                .K = d.K,
                                .D = d.D,
                                .type = dec->type };
    size_t cache = (size_t)layer * shape.P * d.KD * dlc_dtype_size(dec->type);

    norm(dec, dec->h, dec->x, l->norm1, R, d.C);
    project_qkv(dec, l, R);
    place_heads(dec, q, dec->pre, l->q_norm, R, d.H);
    place_heads(dec, k, dec->pre + R * d.HD, l->k_norm, R, d.K);
    ops->attention_cached(dec->be, dec->y, dec->keys + cache, dec->values + cache, q, k, v, &shape);
    project(dec, dec->x, operand(dec, dec->y, R, d.HD), l->o, R, d.C, d.HD, 1);
}

static void mlp_half(dlc_decoder *dec, const struct dlc__decoder_layer *l, size_t R)
{
    const struct dlc_ops *ops = dec->be->ops;
    struct dlc__dims d = dlc__dims(&dec->config);
    float *gate = dec->gate_up, *up = gate + R * d.F;
    const void *h;

    norm(dec, dec->h, dec->x, l->norm2, R, d.C);
    h = operand(dec, dec->h, R, d.C);
    if (R == 1) {
        project(dec, gate, h, l->gate, 1, 2 * d.F, d.C, 0);
    } else {
        project(dec, gate, h, l->gate, R, d.F, d.C, 0);
        project(dec, up, h, l->up, R, d.F, d.C, 0);
    }
    ops->swiglu_fwd(dec->be, dec->act, gate, up, R, d.F, d.F, DLC_F32);
    project(dec, dec->x, operand(dec, dec->act, R, d.F), l->down, R, d.C, d.F, 1);
}

void dlc__decoder_feed(dlc_decoder *dec, const int32_t *tokens, size_t R, bool want_logits)
{
    struct dlc__dims d = dlc__dims(&dec->config);
    const float *last = dec->x + (R - 1) * d.C;

    assert(R <= dec->chunk);
    embed(dec, tokens, R);
    for (int l = 0; l < dec->config.n_layers; l++) {
        attention_half(dec, l, R);
        mlp_half(dec, &dec->weights.layers[l], R);
    }
    if (!want_logits)
        return;
    norm(dec, dec->h, last, dec->weights.norm_f, 1, d.C);
    project(dec, dec->logits, dec->h, dec->weights.head, 1, d.V, d.C, 0);
}
