/* Memory: which arrays a model has, in which block each stands, and how large the blocks are.
 *
 * The same code measures (blocks without memory) and places, so that what is announced is what is allocated. Arrays
 * whose lives do not overlap share memory where that is simple: without training all layers use one set of activations;
 * the head, the backward pass of the MLP and that of attention use the same scratch. */
#include <math.h>

#include "model/model_internal.h"

#define ALIGN 64

/* Logits of this many bytes are made at once: they stay in a last-level cache between the product that writes them and
 * the passes that read them. */
#define LOGITS_BYTES ((size_t)16 << 20)
/* But with a large vocabulary at least this many rows: each chunk reads and writes the head's whole gradient, which
 * with fewer rows would cost more than the product itself. */
#define MIN_CHUNK_ROWS ((size_t)256)

static void *take(struct dlc_model *m, enum dlc__block_id id, size_t n, size_t size_bytes)
{
    struct dlc__block *b = &m->blocks[id];
    void *p = b->base ? b->base + b->size_bytes : NULL;

    b->size_bytes += (n * size_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

static float *take_f32(struct dlc_model *m, enum dlc__block_id id, size_t n)
{
    return take(m, id, n, sizeof(float));
}

static dlc_bf16 *take_bf16(struct dlc_model *m, enum dlc__block_id id, size_t n)
{
    return take(m, id, n, sizeof(dlc_bf16));
}

/* What products read. */
static void *take_operand(struct dlc_model *m, enum dlc__block_id id, size_t n)
{
    return take(m, id, n, dlc_dtype_size(m->in));
}

static size_t chunk_rows(size_t V, size_t R)
{
    size_t rows = LOGITS_BYTES / (V * sizeof(float)) / 64 * 64;

    if (rows < MIN_CHUNK_ROWS)
        rows = MIN_CHUNK_ROWS;
    return rows < R ? rows : R;
}

static size_t max_rows(const struct dlc_model *m)
{
    return (size_t)m->options.max_batch * (size_t)m->options.max_seq;
}

static void plan_params(struct dlc_model *m)
{
    m->params = take_f32(m, DLC__BLOCK_PARAMS, m->n_params);
    m->params16 = m->in == DLC_BF16 ? take_bf16(m, DLC__BLOCK_PARAMS, m->n_params) : NULL;
    m->grads = m->options.training ? take_f32(m, DLC__BLOCK_GRADS, m->n_params) : NULL;
}

/* The two halves of a layer's backward pass: whichever is larger counts. */
static void plan_backward(struct dlc_model *m, size_t R)
{
    const enum dlc__block_id id = DLC__BLOCK_SCRATCH;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;
    struct dlc__block *b = &m->blocks[id];
    size_t start, mlp_end;

    start = b->size_bytes;
    s->act = take_operand(m, id, R * d.F);
    s->dact = m->in == DLC_BF16 ? take_f32(m, id, R * d.F) : s->act;
    s->dgate_up16 = m->in == DLC_BF16 ? take_bf16(m, id, R * 2 * d.F) : NULL;
    mlp_end = b->size_bytes;

    b->size_bytes = start;
    s->dy = take_f32(m, id, R * d.HD);
    s->dqkv = take_f32(m, id, R * d.QKV);
    s->dqk = m->config.qk_norm ? take_f32(m, id, R * d.QK) : s->dqkv;
    s->dqkv16 = m->in == DLC_BF16 ? take_bf16(m, id, R * d.QKV) : NULL;
    if (b->size_bytes < mlp_end)
        b->size_bytes = mlp_end;
}

static void plan_scratch(struct dlc_model *m, size_t R)
{
    const enum dlc__block_id id = DLC__BLOCK_SCRATCH;
    struct dlc__dims d = dlc__dims(&m->config);
    struct dlc__scratch *s = &m->s;
    struct dlc__block *b = &m->blocks[id];
    bool training = m->options.training;
    size_t start, head_end;

    m->chunk_rows = chunk_rows(d.V, R);
    s->rope = take_f32(m, id, (size_t)m->options.max_seq * d.D);
    s->loss = take_f32(m, id, R);
    s->h = take_operand(m, id, R * d.C);
    s->inv_f = training ? take_f32(m, id, R) : NULL;
    s->dx = training ? take_f32(m, id, R * d.C) : NULL;
    s->dh = training ? take_f32(m, id, R * d.C) : NULL;
    s->dx16 = training && m->in == DLC_BF16 ? take_bf16(m, id, R * d.C) : NULL;

    /* What the head needs and what layers need is never needed at once. */
    start = b->size_bytes;
    s->logits = take_f32(m, id, m->chunk_rows * d.V);
    s->dlogits16 = training && m->in == DLC_BF16 ? take_bf16(m, id, m->chunk_rows * d.V) : NULL;
    head_end = b->size_bytes;

    b->size_bytes = start;
    if (training)
        plan_backward(m, R);
    else
        s->act = take_operand(m, id, R * d.F);
    if (b->size_bytes < head_end)
        b->size_bytes = head_end;
}

/* All but x. */
static void plan_layer(struct dlc__layer_acts *a, struct dlc_model *m, size_t R)
{
    const enum dlc__block_id id = DLC__BLOCK_ACTIVATIONS;
    struct dlc__dims d = dlc__dims(&m->config);
    bool training = m->options.training, qk_norm = m->config.qk_norm;

    a->inv1 = training ? take_f32(m, id, R) : NULL;
    a->qkv = take_f32(m, id, R * d.QKV);
    a->qk = qk_norm ? take_f32(m, id, R * d.QK) : a->qkv;
    a->inv_q = training && qk_norm ? take_f32(m, id, R * d.H) : NULL;
    a->inv_k = training && qk_norm ? take_f32(m, id, R * d.K) : NULL;
    a->y = take_operand(m, id, R * d.HD);
    a->lse = training ? take_f32(m, id, R * d.H) : NULL;
    a->x_mid = take_f32(m, id, R * d.C);
    a->inv2 = training ? take_f32(m, id, R) : NULL;
    a->gate_up = take_f32(m, id, R * 2 * d.F);
}

/* Returns the first layer's x. */
static float *plan_layers(struct dlc_model *m, size_t R)
{
    bool own_x = m->options.training, own_rest = own_x && !m->options.recompute_layers;
    struct dlc__layer_acts first = { .x = NULL };

    for (int l = 0; l < m->config.n_layers; l++) {
        struct dlc__layer_acts a = first;

        if (l == 0 || own_x)
            a.x = take_f32(m, DLC__BLOCK_ACTIVATIONS, R * dlc__dims(&m->config).C);
        if (l == 0 || own_rest)
            plan_layer(&a, m, R);
        if (l == 0)
            first = a;
        if (m->acts)
            m->acts[l] = a;
    }
    return first.x;
}

void dlc__plan(struct dlc_model *m)
{
    size_t R = max_rows(m);
    float *first_x;

    for (int i = 0; i < DLC__N_BLOCKS; i++)
        m->blocks[i].size_bytes = 0;
    plan_params(m);
    plan_scratch(m, R);
    first_x = plan_layers(m, R);
    /* Without training the stream goes back and forth between two arrays. */
    m->s.x_last = m->options.training ? take_f32(m, DLC__BLOCK_ACTIVATIONS, R * dlc__dims(&m->config).C) : first_x;
}

void dlc_model_memory_plan(struct dlc_model_memory *out, const struct dlc_model_config *config,
                           const struct dlc_model_options *options, const dlc_backend *backend)
{
    struct dlc_model m = {
        .config = *config,
        .options = *options,
        .n_params = dlc_model_n_params(config),
        .in = options->precision == DLC_PRECISION_BF16 ? DLC_BF16 : DLC_F32,
    };

    (void)backend; /* all devices so far need the same */
    dlc__plan(&m);
    *out = (struct dlc_model_memory){
        .params = m.blocks[DLC__BLOCK_PARAMS].size_bytes,
        .grads = m.blocks[DLC__BLOCK_GRADS].size_bytes,
        .activations = m.blocks[DLC__BLOCK_ACTIVATIONS].size_bytes,
        .scratch = m.blocks[DLC__BLOCK_SCRATCH].size_bytes,
    };
}

void dlc__rope_table(float *table, size_t n_positions, int head_dim, double theta)
{
    int half = head_dim / 2;

    for (int i = 0; i < half; i++) {
        double frequency = pow(theta, -2.0 * i / head_dim);

        for (size_t pos = 0; pos < n_positions; pos++) {
            float *pair = table + (pos * (size_t)half + (size_t)i) * 2;

            pair[0] = (float)cos((double)pos * frequency);
            pair[1] = (float)sin((double)pos * frequency);
        }
    }
}
