/* Final norm, logits and loss.
 *
 * The logits of a whole batch would be the largest array of all ([R][V]), so they are made for chunk_rows rows at a
 * time: logits, loss, gradient of the logits in their place, and from it the gradients of the rows and of the head. */
#include <assert.h>

#include "model/model_internal.h"

static void chunk_back(struct dlc_model *m, float *dh, const void *h, size_t n)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    const void *dlogits = m->in == DLC_BF16 ? (const void *)m->s.dlogits16 : (const void *)m->s.logits;

    ops->matmul_nn(m->be, dh, dlogits, dlc__weight(m, m->head_at), n, d.V, d.C, m->in, 0);
    ops->matmul_tn(m->be, m->grads + m->head_at, dlogits, h, n, d.V, d.C, m->in, 1);
}

static double sum_in_order(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

double dlc__head_loss(struct dlc_model *m, const int32_t *targets, size_t R, float scale)
{
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;
    const char *h = dlc__normed(m, s->inv_f, s->x_last, m->norm_f_at, R);

    for (size_t r = 0; r < R; r++)
        assert(targets[r] >= 0 && targets[r] < m->config.vocab_size);
    for (size_t r = 0; r < R; r += m->chunk_rows) {
        size_t n = R - r < m->chunk_rows ? R - r : m->chunk_rows;
        const void *rows = h + r * d.C * dlc_dtype_size(m->in);

        ops->matmul_nt(m->be, s->logits, rows, dlc__weight(m, m->head_at), n, d.V, d.C, m->in, 0);
        ops->cross_entropy(m->be, s->loss + r, s->logits, s->dlogits16, targets + r, n, d.V, scale);
        if (scale != 0)
            chunk_back(m, s->dh + r * d.C, rows, n);
    }
    if (scale != 0) {
        struct dlc_norm norm = dlc_norm_rows(R, d.C, 0);

        dlc__zero(m->be, s->dx, R * d.C);
        ops->rmsnorm_bwd(m->be, s->dx, s->dx16, m->grads + m->norm_f_at, s->dh, s->x_last, s->inv_f,
                         m->params + m->norm_f_at, &norm);
    }
    return sum_in_order(s->loss, R);
}

void dlc_model_logits(dlc_model *m, float *out, const int32_t *tokens, int T)
{
    struct dlc__dims d = dlc__dims(&m->config);
    const char *h;

    dlc__forward(m, tokens, 1, (size_t)T);
    h = dlc__normed(m, m->s.inv_f, m->s.x_last, m->norm_f_at, (size_t)T);
    m->be->ops->matmul_nt(m->be, out, h, dlc__weight(m, m->head_at), (size_t)T, d.V, d.C, m->in, 0);
}
