/* What the files of this folder share: the walk over the parameters, the memory layout and the model itself.
 *
 * Letters as in model.h, and R = B*T rows. */
#ifndef DLC_MODEL_INTERNAL_H
#define DLC_MODEL_INTERNAL_H

#include "model/model.h"

/* Tensors of one layer, in the order of the flat array. */
enum dlc__role {
    DLC__NORM1,
    DLC__Q,
    DLC__K,
    DLC__V,
    DLC__O,
    DLC__Q_NORM, /* these two only with qk_norm */
    DLC__K_NORM,
    DLC__NORM2,
    DLC__GATE,
    DLC__UP,
    DLC__DOWN,
    DLC__N_LAYER_ROLES,
    DLC__EMBED = DLC__N_LAYER_ROLES,
    DLC__NORM_F,
    DLC__HEAD, /* only when untied */
};

/* Goes over all tensors in order; the one place that knows which there are. Zero-initialise but for config:
 *     struct dlc__walk w = { .config = c };
 *     while (dlc__walk_next(&w)) ... w.role, w.layer, w.n_dims, w.dims, w.offset, w.n_values */
struct dlc__walk {
    const struct dlc_model_config *config;
    enum dlc__role role;
    int layer; /* as in struct dlc_param */
    int n_dims;
    size_t dims[2];
    size_t offset, n_values;
    size_t index; /* of the tensor */
    bool started;
};
bool dlc__walk_next(struct dlc__walk *w);

/* Where the parameters of one layer start in the flat array. */
struct dlc__layer_at {
    size_t at[DLC__N_LAYER_ROLES];
};

/* What is kept of one layer for the backward pass. Without training all layers share one set; with
 * options.recompute_layers they share all but x.
 *
 * Normed rows and the MLP's product are not kept: to make them again is one pass over memory, as reading them would be.
 */
struct dlc__layer_acts {
    float *x, *x_mid;             /* [R][C] residual stream before the layer, and between its halves */
    float *inv1, *inv2;           /* [R] */
    float *qkv;                   /* [R][(H + 2K)*D] one product: q, k, v beside each other */
    float *qk;                    /* [R][(H + K)*D] q and k after their norm; without qk_norm where qkv is, and as wide */
    float *inv_q, *inv_k;         /* [R][H], [R][K] */
    void *y;                      /* [R][H*D] attention's output, as products read it */
    float *lse;                   /* [B][H][T] */
    float *gate_up;               /* [R][2F] one product; the backward pass overwrites it with its gradient */
};

/* Shared by all layers. Not all exist in every mode: see plan.c. */
struct dlc__scratch {
    float *x_last;                        /* [R][C] residual stream after the last layer */
    float *inv_f;                         /* [R] */
    void *h;                              /* [R][C] normed rows, as products read them */
    float *dx, *dh;                       /* [R][C] */
    dlc_bf16 *dx16;                       /* [R][C] dx as products read it, made with it */
    void *act;                            /* [R][F] the MLP's product, as products read it; its life and dact's end
                                           * before those of dy and what follows begin */
    float *dact;                          /* [R][F]; in f32 where act is */
    float *dy, *dqkv, *dqk;               /* [R][H*D], and as qkv and qk */
    dlc_bf16 *dgate_up16;                 /* [R][2F]; in f32 the gradient stands where gate_up was */
    dlc_bf16 *dqkv16;                     /* [R][(H + 2K)*D] */
    float *logits;                        /* [chunk_rows][V] */
    dlc_bf16 *dlogits16;                  /* [chunk_rows][V] */
    float *loss;                          /* [R] */
    float *rope;                          /* [max_seq][D/2][2] */
};

enum dlc__block_id { DLC__BLOCK_PARAMS, DLC__BLOCK_GRADS, DLC__BLOCK_ACTIVATIONS, DLC__BLOCK_SCRATCH, DLC__N_BLOCKS };

struct dlc__block {
    char *base; /* NULL while only measuring */
    size_t size_bytes;
};

struct dlc_model {
    struct dlc_model_config config;
    struct dlc_model_options options;
    dlc_backend *be;
    size_t n_params;
    dlc_dtype in; /* what matrix products read */

    struct dlc__block blocks[DLC__N_BLOCKS];
    float *params, *grads;
    dlc_bf16 *params16; /* NULL in f32 */

    size_t embed_at, norm_f_at, head_at; /* head_at == embed_at when tied */
    struct dlc__layer_at *layer_at;      /* [L] */
    struct dlc__layer_acts *acts;        /* [L] */
    struct dlc__scratch s;
    size_t chunk_rows; /* rows whose logits exist at once */
};

/* Lays the arrays of `m` (config, options, n_params, in and acts are set) out in its blocks and sets the blocks' sizes.
 * With base NULL it only measures: the arrays' pointers are then NULL. m->acts may be NULL while measuring. */
void dlc__plan(struct dlc_model *m);

/* cos and sin of every position and pair, as dlc_ops.rope reads them. */
void dlc__rope_table(float *table, size_t n_positions, int head_dim, double theta);

/* The residual stream of all rows into s.x_last, with what the backward pass needs. */
void dlc__forward(struct dlc_model *m, const int32_t *tokens, size_t B, size_t T);

/* What dlc__forward keeps of one layer, once more from its x. */
void dlc__forward_again(struct dlc_model *m, int layer, size_t B, size_t T);

/* From s.dx = d loss / d x_last down to the embeddings: adds to the gradients. */
void dlc__backward(struct dlc_model *m, const int32_t *tokens, size_t B, size_t T);

/* Final norm, logits and loss, chunk by chunk; with scale != 0 also adds to the gradients of head and final norm and
 * sets s.dx. Returns the sum of losses. */
double dlc__head_loss(struct dlc_model *m, const int32_t *targets, size_t R, float scale);

void dlc__zero(dlc_backend *be, float *x, size_t n);

/* Sizes as the operations want them. */
struct dlc__dims {
    size_t C, H, K, D, F, V, HD, KD;
    size_t QKV; /* values in a row of q, k and v */
    size_t QK;  /* and in a row of q and k as attention reads them */
};
static inline struct dlc__dims dlc__dims(const struct dlc_model_config *c)
{
    struct dlc__dims d = { .C = (size_t)c->d_model, .H = (size_t)c->n_heads, .K = (size_t)c->n_kv_heads,
                           .D = (size_t)c->head_dim, .F = (size_t)c->d_ffn, .V = (size_t)c->vocab_size };

    d.HD = d.H * d.D;
    d.KD = d.K * d.D;
    d.QKV = d.HD + 2 * d.KD;
    d.QK = c->qk_norm ? d.HD + d.KD : d.QKV;
    return d;
}

static inline struct dlc_attention dlc__attention_shape(const struct dlc_model *m, size_t B, size_t T)
{
    struct dlc__dims d = dlc__dims(&m->config);

    return (struct dlc_attention){ .B = B,
                                   .T = T,
                                   .H = d.H,
                                   .K = d.K,
                                   .D = d.D,
                                   .q_row = d.QK,
                                   .k_row = d.QK,
                                   .v_row = d.QKV,
                                   .y_type = m->in };
}

/* The norm of q or k, in place of qkv and qk. */
static inline struct dlc_norm dlc__head_norm(const struct dlc__dims *d, size_t R, size_t heads, double eps)
{
    return (struct dlc_norm){
        .R = R, .heads = heads, .C = d->D, .x_row = d->QKV, .y_row = d->QK, .eps = (float)eps
    };
}

/* A weight as matrix products read it. Weights that follow each other in the flat array are one with the rows of both:
 * q, k and v; gate and up. */
static inline const void *dlc__weight(const struct dlc_model *m, size_t at)
{
    return m->in == DLC_BF16 ? (const void *)(m->params16 + at) : (const void *)(m->params + at);
}

/* The residual stream's gradient as matrix products read it. */
static inline const void *dlc__dx(const struct dlc_model *m)
{
    return m->in == DLC_BF16 ? (const void *)m->s.dx16 : (const void *)m->s.dx;
}

/* The rows of x [R][C] after the norm whose gain starts at `gain_at`, as matrix products read them; until the next call.
 */
static inline const void *dlc__normed(struct dlc_model *m, float *inv_rms, const float *x, size_t gain_at, size_t R)
{
    size_t C = (size_t)m->config.d_model;
    struct dlc_norm shape = dlc_norm_rows(R, C, (float)m->config.norm_eps);

    shape.y_type = m->in;
    m->be->ops->rmsnorm_fwd(m->be, m->s.h, inv_rms, x, m->params + gain_at, &shape);
    return m->s.h;
}

#endif
