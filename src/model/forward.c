/* The forward pass of the layers. */
#include <assert.h>

#include "model/model_internal.h"

/* y[R][N] = x[R][K] w[N][K]^T for the weight that starts at `at`. */
static void project(struct dlc_model *m, float *y, const void *x, size_t at, size_t R, size_t N, size_t K)
{
    m->be->ops->matmul_nt(m->be, y, x, dlc__weight(m, at), R, N, K, m->in, 0);
}

static void qk_norm(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t R)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc_norm q = dlc__head_norm(&d, R, d.H, m->config.norm_eps);
    struct dlc_norm k = dlc__head_norm(&d, R, d.K, m->config.norm_eps);

    ops->rmsnorm_fwd(m->be, a->qk, a->inv_q, a->qkv, m->params + at[DLC__Q_NORM], &q);
    ops->rmsnorm_fwd(m->be, a->qk + d.HD, a->inv_k, a->qkv + d.HD, m->params + at[DLC__K_NORM], &k);
}

static void attention_half(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t B, size_t T)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc_attention shape = dlc__attention_shape(m, B, T);
    size_t R = B * T;
    const void *h = dlc__normed(m, a->inv1, a->x, at[DLC__NORM1], R);

    project(m, a->qkv, h, at[DLC__Q], R, d.QKV, d.C);
    if (m->config.qk_norm)
        qk_norm(m, a, at, R);
    ops->rope(m->be, a->qk, m->s.rope, R, T, 0, d.H + d.K, d.D, d.QK, 0);
    ops->attention_fwd(m->be, a->y, a->lse, a->qk, a->qk + d.HD, a->qkv + d.HD + d.KD, &shape);
    project(m, a->x_mid, a->y, at[DLC__O], R, d.C, d.HD);
    ops->add(m->be, a->x_mid, a->x, R * d.C);
}

static void gate_and_up(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t R)
{
    struct dlc__dims d = dlc__dims(&m->config);
    const void *h = dlc__normed(m, a->inv2, a->x_mid, at[DLC__NORM2], R);

    project(m, a->gate_up, h, at[DLC__GATE], R, 2 * d.F, d.C);
}

static void down(struct dlc_model *m, float *x_out, const struct dlc__layer_acts *a, const size_t *at, size_t R)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);

    ops->swiglu_fwd(m->be, m->s.act, a->gate_up, a->gate_up + d.F, R, d.F, 2 * d.F, m->in);
    project(m, x_out, m->s.act, at[DLC__DOWN], R, d.C, d.F);
    ops->add(m->be, x_out, a->x_mid, R * d.C);
}

void dlc__forward_again(struct dlc_model *m, int layer, size_t B, size_t T)
{
    attention_half(m, &m->acts[layer], m->layer_at[layer].at, B, T);
    gate_and_up(m, &m->acts[layer], m->layer_at[layer].at, B * T);
}

void dlc__forward(struct dlc_model *m, const int32_t *tokens, size_t B, size_t T)
{
    int L = m->config.n_layers;

    assert(B >= 1 && T >= 1 && B <= (size_t)m->options.max_batch && T <= (size_t)m->options.max_seq);
    for (size_t r = 0; r < B * T; r++)
        assert(tokens[r] >= 0 && tokens[r] < m->config.vocab_size);
    m->be->ops->embed_fwd(m->be, m->acts[0].x, tokens, m->params + m->embed_at, B * T, (size_t)m->config.d_model);
    for (int l = 0; l < L; l++) {
        dlc__forward_again(m, l, B, T);
        down(m, l + 1 < L ? m->acts[l + 1].x : m->s.x_last, &m->acts[l], m->layer_at[l].at, B * T);
    }
}
