/* The backward pass of the layers, last to first.
 *
 * s.dx carries the gradient of the residual stream. Each half of a layer adds its part through the norm at its entrance
 * (rmsnorm_bwd adds), so the stream's own path costs nothing. */
#include "model/model_internal.h"

/* dx[R][K] (+)= dy[R][N] w, and the weight's gradient += dy^T x, for the weight [N][K] that starts at `at`. */
static void project_back(struct dlc_model *m, float *dx, const void *dy, const void *x, size_t at, size_t R, size_t N,
                         size_t K, int accumulate)
{
    m->be->ops->matmul_nn(m->be, dx, dy, dlc__weight(m, at), R, N, K, m->in, accumulate);
    m->be->ops->matmul_tn(m->be, m->grads + at, dy, x, R, N, K, m->in, 1);
}

static void mlp_half_back(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t R)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;
    const void *dx, *act, *dgate, *dup, *h;

    dx = dlc__operand(m, s->dx16, s->dx, R * d.C);
    ops->matmul_nn(m->be, s->act, dx, dlc__weight(m, at[DLC__DOWN]), R, d.C, d.F, m->in, 0);
    ops->swiglu_bwd(m->be, a->gate, a->up, s->act, s->act, a->gate, a->up, R * d.F);
    act = dlc__operand(m, s->in16, s->act, R * d.F);
    ops->matmul_tn(m->be, m->grads + at[DLC__DOWN], dx, act, R, d.C, d.F, m->in, 1);
    dgate = dlc__operand(m, s->dgate16, a->gate, R * d.F);
    dup = dlc__operand(m, s->dup16, a->up, R * d.F);
    h = dlc__normed(m, a->inv2, a->x_mid, at[DLC__NORM2], R);
    project_back(m, s->dh, dgate, h, at[DLC__GATE], R, d.F, d.C, 0);
    project_back(m, s->dh, dup, h, at[DLC__UP], R, d.F, d.C, 1);
    ops->rmsnorm_bwd(m->be, s->dx, m->grads + at[DLC__NORM2], s->dh, a->x_mid, a->inv2, m->params + at[DLC__NORM2], R,
                     d.C);
}

/* From the gradients of the normed q and k to those before the norm, in dq_pre and dk_pre. */
static void qk_norm_back(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t R)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;

    dlc__zero(m->be, s->dq_pre, R * d.HD);
    dlc__zero(m->be, s->dk_pre, R * d.KD);
    ops->rmsnorm_bwd(m->be, s->dq_pre, m->grads + at[DLC__Q_NORM], s->dq, a->q_pre, a->inv_q,
                     m->params + at[DLC__Q_NORM], R * d.H, d.D);
    ops->rmsnorm_bwd(m->be, s->dk_pre, m->grads + at[DLC__K_NORM], s->dk, a->k_pre, a->inv_k,
                     m->params + at[DLC__K_NORM], R * d.K, d.D);
}

static void attention_half_back(struct dlc_model *m, const struct dlc__layer_acts *a, const size_t *at, size_t B,
                                size_t T)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;
    size_t R = B * T;
    const void *dx, *y, *dq, *dk, *dv, *h;

    dx = dlc__operand(m, s->dx16, s->dx, R * d.C);
    y = dlc__operand(m, s->in16, a->y, R * d.HD);
    project_back(m, s->dy, dx, y, at[DLC__O], R, d.C, d.HD, 0);
    ops->attention_bwd(m->be, s->dq, s->dk, s->dv, s->dy, a->q, a->k, a->v, a->y, a->lse, B, T, d.H, d.K, d.D);
    ops->rope(m->be, s->dq, s->rope, R, T, 0, d.H, d.D, 1);
    ops->rope(m->be, s->dk, s->rope, R, T, 0, d.K, d.D, 1);
    if (m->config.qk_norm)
        qk_norm_back(m, a, at, R);
    dq = dlc__operand(m, s->dq16, s->dq_pre, R * d.HD);
    dk = dlc__operand(m, s->dk16, s->dk_pre, R * d.KD);
    dv = dlc__operand(m, s->dv16, s->dv, R * d.KD);
    h = dlc__normed(m, a->inv1, a->x, at[DLC__NORM1], R);
    project_back(m, s->dh, dq, h, at[DLC__Q], R, d.HD, d.C, 0);
    project_back(m, s->dh, dk, h, at[DLC__K], R, d.KD, d.C, 1);
    project_back(m, s->dh, dv, h, at[DLC__V], R, d.KD, d.C, 1);
    ops->rmsnorm_bwd(m->be, s->dx, m->grads + at[DLC__NORM1], s->dh, a->x, a->inv1, m->params + at[DLC__NORM1], R, d.C);
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
