/* A replica: made, loaded, asked for losses and gradients. */
#include "model/model.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "model/model_internal.h"

static void zero_part(void *arg, struct dlc_part part)
{
    float *x = arg;

    memset(x + part.begin, 0, (part.end - part.begin) * sizeof *x);
}

void dlc__zero(dlc_backend *be, float *x, size_t n)
{
    dlc_pool_each(be->pool, zero_part, x, n, (size_t)1 << 16);
}

static dlc_err check_options(const struct dlc_model_options *o)
{
    if (o->max_batch < 1 || o->max_seq < 1 || (int64_t)o->max_batch * o->max_seq > INT32_MAX)
        return dlc_fail(DLC_EUSAGE, "model: a micro-batch of %d x %d tokens; must be at least 1 x 1, below 2^31 in all",
                        o->max_batch, o->max_seq);
    return DLC_OK;
}

static void locate_params(struct dlc_model *m)
{
    struct dlc__walk w = { .config = &m->config };

    while (dlc__walk_next(&w)) {
        if (w.role < DLC__N_LAYER_ROLES)
            m->layer_at[w.layer].at[w.role] = w.offset;
        else if (w.role == DLC__EMBED)
            m->embed_at = m->head_at = w.offset;
        else if (w.role == DLC__NORM_F)
            m->norm_f_at = w.offset;
        else
            m->head_at = w.offset;
    }
    m->n_params = w.offset;
}

static dlc_err allocate_blocks(struct dlc_model *m)
{
    static const char *const purpose[DLC__N_BLOCKS] = { "parameters", "gradients", "activations", "model scratch" };

    dlc__plan(m);
    for (int i = 0; i < DLC__N_BLOCKS; i++) {
        void *p;

        if (m->blocks[i].size_bytes == 0)
            continue;
        DLC_TRY(dlc_backend_alloc(m->be, &p, m->blocks[i].size_bytes, purpose[i]));
        m->blocks[i].base = p;
    }
    dlc__plan(m);
    return DLC_OK;
}

dlc_err dlc_model_create(dlc_model **out, const struct dlc_model_config *config,
                         const struct dlc_model_options *options, dlc_backend *backend)
{
    dlc_err err = DLC_OK;
    dlc_model *m;

    *out = NULL;
    DLC_TRY(dlc_model_config_check(config));
    DLC_TRY(check_options(options));
    m = dlc_calloc(1, sizeof *m);
    if (!m)
        return DLC_ENOMEM;
    m->config = *config;
    m->options = *options;
    m->be = backend;
    m->in = options->precision == DLC_PRECISION_BF16 ? DLC_BF16 : DLC_F32;
    m->layer_at = dlc_calloc((size_t)config->n_layers, sizeof *m->layer_at);
    m->acts = dlc_calloc((size_t)config->n_layers, sizeof *m->acts);
    if (!m->layer_at || !m->acts) {
        err = DLC_ENOMEM;
        goto fail;
    }
    locate_params(m);
    DLC_TRY_TO(fail, allocate_blocks(m));
    dlc__rope_table(m->s.rope, (size_t)options->max_seq, config->head_dim, config->rope_theta);
    *out = m;
    return DLC_OK;
fail:
    dlc_model_destroy(m);
    return err;
}

void dlc_model_destroy(dlc_model *m)
{
    if (!m)
        return;
    for (int i = 0; i < DLC__N_BLOCKS; i++)
        if (m->blocks[i].base)
            dlc_backend_free(m->be, m->blocks[i].base, m->blocks[i].size_bytes);
    dlc_free(m->acts);
    dlc_free(m->layer_at);
    dlc_free(m);
}

const struct dlc_model_config *dlc_model_get_config(const dlc_model *m)
{
    return &m->config;
}

size_t dlc_model_size(const dlc_model *m)
{
    return m->n_params;
}

float *dlc_model_params(dlc_model *m)
{
    return m->params;
}

float *dlc_model_grads(dlc_model *m)
{
    return m->grads;
}

void dlc_model_use_params(dlc_model *m, const float *params)
{
    m->params = (float *)(uintptr_t)params; /* no operation of a forward pass writes there */
    dlc_model_params_changed(m);
}

/* The norms' few values are converted too, and not read: one call for the whole array. */
void dlc_model_params_changed(dlc_model *m)
{
    if (m->params16)
        m->be->ops->to_bf16(m->be, m->params16, m->params, m->n_params);
}

void dlc_model_zero_grads(dlc_model *m)
{
    assert(m->grads);
    dlc__zero(m->be, m->grads, m->n_params);
}

double dlc_model_loss(dlc_model *m, const int32_t *tokens, const int32_t *targets, int B, int T)
{
    dlc__forward(m, tokens, (size_t)B, (size_t)T);
    return dlc__head_loss(m, targets, (size_t)B * (size_t)T, 0);
}

double dlc_model_loss_grad(dlc_model *m, const int32_t *tokens, const int32_t *targets, int B, int T, float scale)
{
    double loss;

    assert(m->options.training);
    dlc__forward(m, tokens, (size_t)B, (size_t)T);
    loss = dlc__head_loss(m, targets, (size_t)B * (size_t)T, scale);
    if (scale != 0)
        dlc__backward(m, tokens, (size_t)B, (size_t)T);
    return loss;
}
