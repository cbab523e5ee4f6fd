/* The backward pass of the layers, last to first.
 *
 * s.dx carries the gradient of the residual stream. Each half of a layer adds its part through the norm at its entrance
 * (rmsnorm_bwd adds), so the stream's own path costs nothing. */
#include "model/model_internal.h"

/* dx[R][K] = dy[R][N] w, and the weight's gradient += dy^T x, for the weight [N][K] that starts at `at`. */
static void project_back(struct dlc_model *m, float *dx, const void *dy, const void *x, size_t at, size_t R, size_t N,
                         size_t K)
{
    m->be->ops->matmul_nn(m->be, dx, dy, dlc__weight(m, at), R, N, K, m->in, 0);
    m->be->ops->matmul_tn(m->be, m->grads + at, dy, x, R, N, K, m->in, 1);
}

static void mlp_half_back(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t R)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;
    struct dlc_norm norm = dlc_norm_rows(R, d.C, 0);
    const float *gate = a->gate_up, *up = gate + d.F;
    void *dgate_up = m->in == DLC_BF16 ? (void *)s->dgate_up16 : (void *)a->gate_up;
    void *dup = (char *)dgate_up + d.F * dlc_dtype_size(m->in);
    const void *dx = dlc__dx(m), *h;

    ops->matmul_nn(m->be, s->dact, dx, dlc__weight(m, at[DLC__DOWN]), R, d.C, d.F, m->in, 0);
    ops->swiglu_bwd(m->be, dgate_up, dup, s->act, s->dact, gate, up, R, d.F, 2 * d.F, m->in);
    ops->matmul_tn(m->be, m->grads + at[DLC__DOWN], dx, s->act, R, d.C, d.F, m->in, 1);
    h = dlc__normed(m, a->inv2, a->x_mid, at[DLC__NORM2], R);
    project_back(m, s->dh, dgate_up, h, at[DLC__GATE], R, 2 * d.F, d.C);
    ops->rmsnorm_bwd(m->be, s->dx, s->dx16, m->grads + at[DLC__NORM2], s->dh, a->x_mid, a->inv2, m->params + at[DLC__NORM2],
                     &norm);
}

/* From the gradients of the normed q and k to those before the norm, which are added to dqkv. */
static void qk_norm_back(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t R)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc_norm q = dlc__head_norm(&d, R, d.H, 0), k = dlc__head_norm(&d, R, d.K, 0);
    struct dlc__scratch *s = &m->s;

    ops->rmsnorm_bwd(m->be, s->dqkv, NULL, m->grads + at[DLC__Q_NORM], s->dqk, a->qkv, a->inv_q, m->params + at[DLC__Q_NORM],
                     &q);
    ops->rmsnorm_bwd(m->be, s->dqkv + d.HD, NULL, m->grads + at[DLC__K_NORM], s->dqk + d.HD, a->qkv + d.HD, a->inv_k,
                     m->params + at[DLC__K_NORM], &k);
}

static void attention_half_back(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t B,
                                size_t T)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;
    struct dlc_attention shape = dlc__attention_shape(m, B, T);
    struct dlc_norm norm = dlc_norm_rows(B * T, d.C, 0);
    size_t R = B * T, v_at = d.HD + d.KD;
    const void *dqkv = s->dqkv, *h;

    project_back(m, s->dy, dlc__dx(m), a->y, at[DLC__O], R, d.C, d.HD);
    if (m->config.qk_norm)
        dlc__zero(m->be, s->dqkv, R * d.QKV);
    ops->attention_bwd(m->be, s->dqk, s->dqk + d.HD, s->dqkv + v_at, s->dy, a->qk, a->qk + d.HD, a->qkv + v_at, a->y,
                       a->lse, &shape);
    ops->rope(m->be, s->dqk, s->rope, R, T, 0, d.H + d.K, d.D, d.QK, 1);
    if (m->config.qk_norm)
        qk_norm_back(m, a, at, R);
    if (m->in == DLC_BF16) { /* made by two operations, so it is rounded when both are done */
        ops->to_bf16(m->be, s->dqkv16, s->dqkv, R * d.QKV);
        dqkv = s->dqkv16;
    }
    h = dlc__normed(m, a->inv1, a->x, at[DLC__NORM1], R);
    project_back(m, s->dh, dqkv, h, at[DLC__Q], R, d.QKV, d.C);
    ops->rmsnorm_bwd(m->be, s->dx, s->dx16, m->grads + at[DLC__NORM1], s->dh, a->x, a->inv1, m->params + at[DLC__NORM1], &norm);
}

void dlc__backward(struct dlc_model *m, const int32_t *tokens, size_t B, size_t T)
{
    for (int l = m->config.n_layers - 1; l >= 0; l--) {
        if (m->options.recompute_layers)
            dlc__forward_again(m, l, B, T);
        mlp_half_back(m, &m->acts[l], m->layer_at[l].at, B * T);
        attention_half_back(m, &m->acts[l], m->layer_at[l].at, B, T);
    }
    m->be->ops->embed_bwd(m->be, m->grads + m->embed_at, tokens, m->s.dx, B * T, (size_t)m->config.d_model);
}
