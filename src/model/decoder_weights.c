/* Where a decoder's weights are: in a model, or in a block of its own. */
#include <assert.h>

#include "base/mem.h"
#include "model/decoder_internal.h"

/* Gains are counted apart: in bf16 they stand behind the flat array in f32. */
struct places {
    const char *flat;
    dlc_dtype type;
    const float *gains; /* by their offset in the flat array, or packed */
    bool packed;
};

static void place_tensor(struct dlc__decoder_weights *w, const struct dlc__walk *t, const void *matrix,
                         const float *gain)
{
    struct dlc__decoder_layer *l = t->role < DLC__N_LAYER_ROLES ? &w->layers[t->layer] : NULL;

    switch (t->role) {
    case DLC__NORM1: l->norm1 = gain; break;
    case DLC__Q: l->q = matrix; break;
    case DLC__K: l->k = matrix; break;
    case DLC__V: l->v = matrix; break;
    case DLC__O: l->o = matrix; break;
    case DLC__Q_NORM: l->q_norm = gain; break;
    case DLC__K_NORM: l->k_norm = gain; break;
    case DLC__NORM2: l->norm2 = gain; break;
    case DLC__GATE: l->gate = matrix; break;
    case DLC__UP: l->up = matrix; break;
    case DLC__DOWN: l->down = matrix; break;
    case DLC__EMBED: w->embed = w->head = matrix; break;
    case DLC__NORM_F: w->norm_f = gain; break;
    case DLC__HEAD: w->head = matrix; break;
    }
}

static void place_all(struct dlc__decoder_weights *w, const struct dlc_model_config *config, struct places p)
{
    struct dlc__walk t = { .config = config };
    size_t n_gains = 0;

    while (dlc__walk_next(&t)) {
        place_tensor(w, &t, p.flat + t.offset * dlc_dtype_size(p.type), p.gains + (p.packed ? n_gains : t.offset));
        n_gains += t.n_dims == 1 ? t.n_values : 0;
    }
}

static dlc_err alloc_layers(struct dlc__decoder_weights *w, const struct dlc_model_config *config)
{
    w->layers = dlc_calloc((size_t)config->n_layers, sizeof *w->layers);
    return w->layers ? DLC_OK : DLC_ENOMEM;
}

dlc_err dlc__decoder_weights_borrow(struct dlc__decoder_weights *w, const dlc_model *m)
{
    DLC_TRY(alloc_layers(w, &m->config));
    place_all(w, &m->config, (struct places){ dlc__weight(m, 0), m->in, m->params, false });
    w->embed = m->params + m->embed_at;
    w->embed_type = DLC_F32;
    return DLC_OK;
}

/* The flat array with its gains: in bf16 rounded and not read. */
static size_t flat_bytes(const struct dlc_model_config *config, dlc_dtype type)
{
    return (dlc_model_n_params(config) * dlc_dtype_size(type) + 63) / 64 * 64;
}

size_t dlc__decoder_weights_bytes(const struct dlc_model_config *config, dlc_dtype type)
{
    struct dlc__walk t = { .config = config };
    size_t n_gains = 0;

    while (dlc__walk_next(&t))
        n_gains += t.n_dims == 1 ? t.n_values : 0;
    return flat_bytes(config, type) + (type == DLC_F32 ? 0 : n_gains * sizeof(float));
}

size_t dlc__decoder_weights_loading(const struct dlc_model_config *config, dlc_dtype type)
{
    struct dlc__walk t = { .config = config };
    size_t largest = 0;

    while (type != DLC_F32 && dlc__walk_next(&t))
        largest = t.n_values > largest ? t.n_values : largest;
    return largest;
}

dlc_err dlc__decoder_weights_own(struct dlc__decoder_weights *w, const struct dlc_model_config *config, dlc_dtype type,
                                 dlc_backend *be)
{
    void *block;
    bool packed = type != DLC_F32;

    DLC_TRY(alloc_layers(w, config));
    w->block_bytes = dlc__decoder_weights_bytes(config, type);
    DLC_TRY(dlc_backend_alloc(be, &block, w->block_bytes, "weights"));
    w->block = block;
    w->embed_type = type;
    place_all(w, config,
              (struct places){ w->block, type,
                               (const float *)(void *)(w->block + (packed ? flat_bytes(config, type) : 0)), packed });
    return DLC_OK;
}

void dlc__decoder_weights_fini(struct dlc__decoder_weights *w, dlc_backend *be)
{
    dlc_backend_free(be, w->block, w->block_bytes);
    dlc_free(w->layers);
}

typedef dlc_err read_fn(float *out, void *arg, size_t index);

static dlc_err load_f32(dlc_decoder *dec, read_fn *read, void *arg)
{
    float *flat = (float *)(void *)dec->weights.block;
    dlc_err err = DLC_OK;

    for (struct dlc__walk t = { .config = &dec->config }; err == DLC_OK && dlc__walk_next(&t);)
        err = read(flat + t.offset, arg, t.index);
    return err;
}

static dlc_err load_bf16(dlc_decoder *dec, read_fn *read, void *arg, float *tensor)
{
    dlc_bf16 *flat = (dlc_bf16 *)(void *)dec->weights.block;
    float *gain = (float *)(void *)(dec->weights.block + flat_bytes(&dec->config, DLC_BF16));

    for (struct dlc__walk t = { .config = &dec->config }; dlc__walk_next(&t);) {
        DLC_TRY(read(tensor, arg, t.index));
        if (t.n_dims == 2) {
            dec->be->ops->to_bf16(dec->be, flat + t.offset, tensor, t.n_values);
        } else {
            memcpy(gain, tensor, t.n_values * sizeof *gain);
            gain += t.n_values;
        }
    }
    return DLC_OK;
}

dlc_err dlc_decoder_load(dlc_decoder *dec, read_fn *read, void *arg)
{
    size_t loading_bytes = dlc__decoder_weights_loading(&dec->config, dec->type) * sizeof(float);
    void *tensor;
    dlc_err err;

    assert(dec->weights.block);
    if (dec->type == DLC_F32)
        return load_f32(dec, read, arg);
    DLC_TRY(dlc_backend_alloc(dec->be, &tensor, loading_bytes, "a tensor while loading"));
    err = load_bf16(dec, read, arg, tensor);
    dlc_backend_free(dec->be, tensor, loading_bytes);
    return err;
}
