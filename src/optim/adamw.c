/* One AdamW step over a whole replica. */
#include <math.h>

#include "optim/optim.h"

/* The factor of torch.nn.utils.clip_grad_norm_. */
static double clip_scale(double norm, double clip)
{
    double scale = clip / (norm + 1e-6);

    return clip > 0 && scale < 1 ? scale : 1;
}

double dlc_adamw_step(dlc_backend *be, float *params, float *m, float *v, const float *grads,
                      const struct dlc_param *table, size_t n_table, const struct dlc_adamw_config *config, double lr,
                      int64_t step)
{
    size_t n = table[n_table - 1].offset + table[n_table - 1].n_values;
    double norm = sqrt(be->ops->sum_squares(be, grads, n));
    struct dlc_adamw a = {
        .lr = (float)lr,
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .eps = (float)config->eps,
        .bias1 = (float)(1 - pow((float)config->beta1, (double)step)),
        .bias2 = (float)(1 - pow((float)config->beta2, (double)step)),
        .grad_scale = (float)clip_scale(norm, config->clip),
    };

    if (!isfinite(norm))
        return norm;
    /* Neighbours with the same decay go in one call: the table has no gaps. */
    for (size_t i = 0, end; i < n_table; i = end) {
        size_t from = table[i].offset, to;

        for (end = i + 1; end < n_table && table[end].decay == table[i].decay; end++)
            ;
        to = end < n_table ? table[end].offset : n;
        a.weight_decay = table[i].decay ? (float)config->weight_decay : 0;
        be->ops->adamw(be, params + from, m + from, v + from, grads + from, to - from, &a);
    }
    return norm;
}
