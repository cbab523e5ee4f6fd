/* Generation, one position at a time.
 *
 * The same operations as the forward pass, with one row; only attention is written differently: the query row against
 * the cached keys and values as two small matrix products and a softmax. The cache of a layer is [K][positions][D], so
 * that each key/value head is one matrix and the H/K query heads that share it are its rows. */
#include <assert.h>
#include <math.h>

#include "base/mem.h"
#include "model/model_internal.h"

struct dlc_decoder {
    dlc_model *model;
    int max_positions, position;

    char *block; /* all arrays below */
    size_t block_bytes;
    float *rope;                 /* [max_positions][D/2][2] */
    float *keys, *values;        /* [L][K][max_positions][D] */
    float *x, *x_mid, *h;        /* [C] */
    float *q, *q_pre, *k, *y;    /* [H*D], [H*D], [K*D], [H*D] */
    float *gate, *up, *act;      /* [F] */
    float *scores;               /* [H/K][max_positions] */
    float *logits;               /* [V] */
    dlc_bf16 *operand;           /* [max(C, H*D, F)] what a product reads, in bf16 */
};

static void *take(dlc_decoder *dec, size_t n, size_t size_bytes)
{
    void *p = dec->block ? dec->block + dec->block_bytes : NULL;

    dec->block_bytes += (n * size_bytes + 63) / 64 * 64;
    return p;
}

/* Measures with block NULL, else places. */
static void plan(dlc_decoder *dec)
{
    const struct dlc_model_config *c = &dec->model->config;
    struct dlc__dims d = dlc__dims(c);
    size_t P = (size_t)dec->max_positions, cache = (size_t)c->n_layers * P * d.KD;
    size_t widest = d.C > d.HD ? d.C : d.HD;

    widest = widest > d.F ? widest : d.F;
    dec->block_bytes = 0;
    dec->rope = take(dec, P * d.D, sizeof(float));
    dec->keys = take(dec, cache, sizeof(float));
    dec->values = take(dec, cache, sizeof(float));
    dec->x = take(dec, d.C, sizeof(float));
    dec->x_mid = take(dec, d.C, sizeof(float));
    dec->h = take(dec, d.C, sizeof(float));
    dec->q = take(dec, d.HD, sizeof(float));
    dec->q_pre = take(dec, d.HD, sizeof(float));
    dec->k = take(dec, d.KD, sizeof(float));
    dec->y = take(dec, d.HD, sizeof(float));
    dec->gate = take(dec, d.F, sizeof(float));
    dec->up = take(dec, d.F, sizeof(float));
    dec->act = take(dec, d.F, sizeof(float));
    dec->scores = take(dec, d.H / d.K * P, sizeof(float));
    dec->logits = take(dec, d.V, sizeof(float));
    dec->operand = take(dec, widest, sizeof(dlc_bf16));
}

dlc_err dlc_decoder_create(dlc_decoder **out, dlc_model *model, int max_positions)
{
    const struct dlc_model_config *c = &model->config;
    dlc_decoder *dec;
    void *block;

    *out = NULL;
    if (max_positions < 1 || max_positions > 1 << 24)
        return dlc_fail(DLC_EUSAGE, "decoder: %d positions; must be 1 to %d", max_positions, 1 << 24);
    dec = dlc_calloc(1, sizeof *dec);
    if (!dec)
        return DLC_ENOMEM;
    dec->model = model;
    dec->max_positions = max_positions;
    plan(dec);
    if (dlc_backend_alloc(model->be, &block, dec->block_bytes, "key/value cache") != DLC_OK) {
        dlc_free(dec);
        return DLC_ENOMEM;
    }
    dec->block = block;
    plan(dec);
    dlc__rope_table(dec->rope, (size_t)max_positions, c->head_dim, c->rope_theta);
    *out = dec;
    return DLC_OK;
}

void dlc_decoder_destroy(dlc_decoder *dec)
{
    if (!dec)
        return;
    dlc_backend_free(dec->model->be, dec->block, dec->block_bytes);
    dlc_free(dec);
}

void dlc_decoder_reset(dlc_decoder *dec)
{
    dec->position = 0;
}

int dlc_decoder_position(const dlc_decoder *dec)
{
    return dec->position;
}

/* y[N] = x[K] w[N][K]^T */
static void project(dlc_decoder *dec, float *y, const float *x, size_t at, size_t N, size_t K)
{
    dlc_model *m = dec->model;

    m->be->ops->matmul_nt(m->be, y, dlc__operand(m, dec->operand, x, K), dlc__weight(m, at), 1, N, K, m->in, 0);
}

/* In place; a non-finite score makes the row non-finite. */
static void softmax(float *x, size_t n)
{
    float max = x[0], sum = 0;

    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - max);
    for (size_t i = 0; i < n; i++)
        x[i] /= sum;
}

static void attend(dlc_decoder *dec, int layer)
{
    dlc_model *m = dec->model;
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    size_t P = (size_t)dec->max_positions, n = (size_t)dec->position + 1, group = d.H / d.K;
    float scale = 1 / sqrtf((float)d.D);

    for (size_t k = 0; k < d.K; k++) {
        size_t cache = ((size_t)layer * d.K + k) * P * d.D, head = k * group * d.D;

        ops->matmul_nt(m->be, dec->scores, dec->q + head, dec->keys + cache, group, n, d.D, DLC_F32, 0);
        for (size_t g = 0; g < group; g++) {
            float *row = dec->scores + g * n;

            for (size_t i = 0; i < n; i++)
                row[i] *= scale;
            softmax(row, n);
        }
        ops->matmul_nn(m->be, dec->y + head, dec->scores, dec->values + cache, group, n, d.D, DLC_F32, 0);
    }
}

/* Puts the position's key or value [K*D] into its places in the cache. */
static void remember(float *cache, const dlc_decoder *dec, int layer, const float *row)
{
    struct dlc__dims d = dlc__dims(&dec->model->config);
    size_t P = (size_t)dec->max_positions;

    for (size_t k = 0; k < d.K; k++) {
        float *to = cache + (((size_t)layer * d.K + k) * P + (size_t)dec->position) * d.D;

        memcpy(to, row + k * d.D, d.D * sizeof *to);
    }
}

/* Norm over each head (Qwen3) and rotation; result in `out`, which may be `pre` without qk_norm. */
static void place_heads(dlc_decoder *dec, float *out, const float *pre, const float *gain, size_t heads)
{
    dlc_model *m = dec->model;
    size_t D = (size_t)m->config.head_dim;

    if (m->config.qk_norm)
        m->be->ops->rmsnorm_fwd(m->be, out, NULL, pre, gain, heads, D, (float)m->config.norm_eps);
    m->be->ops->rope(m->be, out, dec->rope, 1, 1, (size_t)dec->position, heads, D, 0);
}

static void attention_half(dlc_decoder *dec, int layer, const size_t *at)
{
    dlc_model *m = dec->model;
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);
    float *pre = m->config.qk_norm ? dec->q_pre : dec->q;

    ops->rmsnorm_fwd(m->be, dec->h, NULL, dec->x, m->params + at[DLC__NORM1], 1, d.C, (float)m->config.norm_eps);
    project(dec, pre, dec->h, at[DLC__Q], d.HD, d.C);
    place_heads(dec, dec->q, pre, m->params + at[DLC__Q_NORM], d.H);
    pre = m->config.qk_norm ? dec->q_pre : dec->k;
    project(dec, pre, dec->h, at[DLC__K], d.KD, d.C);
    place_heads(dec, dec->k, pre, m->params + at[DLC__K_NORM], d.K);
    remember(dec->keys, dec, layer, dec->k);
    project(dec, dec->k, dec->h, at[DLC__V], d.KD, d.C);
    remember(dec->values, dec, layer, dec->k);
    attend(dec, layer);
    project(dec, dec->x_mid, dec->y, at[DLC__O], d.C, d.HD);
    ops->add(m->be, dec->x_mid, dec->x, d.C);
}

static void mlp_half(dlc_decoder *dec, const size_t *at)
{
    dlc_model *m = dec->model;
    const struct dlc_ops *ops = m->be->ops;
    struct dlc__dims d = dlc__dims(&m->config);

    ops->rmsnorm_fwd(m->be, dec->h, NULL, dec->x_mid, m->params + at[DLC__NORM2], 1, d.C, (float)m->config.norm_eps);
    project(dec, dec->gate, dec->h, at[DLC__GATE], d.F, d.C);
    project(dec, dec->up, dec->h, at[DLC__UP], d.F, d.C);
    ops->swiglu_fwd(m->be, dec->act, dec->gate, dec->up, d.F);
    project(dec, dec->x, dec->act, at[DLC__DOWN], d.C, d.F);
    ops->add(m->be, dec->x, dec->x_mid, d.C);
}

const float *dlc_decoder_step(dlc_decoder *dec, int32_t token)
{
    dlc_model *m = dec->model;
    struct dlc__dims d = dlc__dims(&m->config);

    assert(token >= 0 && token < m->config.vocab_size);
    if (dec->position == dec->max_positions)
        return NULL;
    m->be->ops->embed_fwd(m->be, dec->x, &token, m->params + m->embed_at, 1, d.C);
    for (int l = 0; l < m->config.n_layers; l++) {
        attention_half(dec, l, m->layer_at[l].at);
        mlp_half(dec, m->layer_at[l].at);
    }
    m->be->ops->rmsnorm_fwd(m->be, dec->h, NULL, dec->x, m->params + m->norm_f_at, 1, d.C, (float)m->config.norm_eps);
    project(dec, dec->logits, dec->h, m->head_at, d.V, d.C);
    dec->position++;
    return dec->logits;
}
