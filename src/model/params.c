/* The list of tensors. */
#include <assert.h>
#include <stdio.h>

#include "base/mem.h"
#include "model/model_internal.h"

static bool in_layer(enum dlc__role role)
{
    return role < DLC__N_LAYER_ROLES;
}

/* Moves to the next tensor of this configuration. */
static bool advance(struct dlc__walk *w)
{
    const struct dlc_model_config *c = w->config;

    if (!w->started) {
        w->started = true;
        w->role = DLC__EMBED;
        w->layer = -1;
        return true;
    }
    w->index++;
    w->offset += w->n_values;
    if (w->role == DLC__HEAD || (w->role == DLC__NORM_F && c->tie_embeddings))
        return false;
    if (w->role == DLC__NORM_F) {
        w->role = DLC__HEAD;
    } else if (w->role == DLC__EMBED || w->role == DLC__DOWN) {
        w->layer++;
        w->role = w->layer < c->n_layers ? DLC__NORM1 : DLC__NORM_F;
    } else if (w->role == DLC__O && !c->qk_norm) {
        w->role = DLC__NORM2;
    } else {
        w->role++;
    }
    return true;
}

static void set_shape(struct dlc__walk *w, size_t rows, size_t cols)
{
    w->n_dims = cols ? 2 : 1;
    w->dims[0] = rows;
    w->dims[1] = cols;
    w->n_values = cols ? rows * cols : rows;
}

bool dlc__walk_next(struct dlc__walk *w)
{
    struct dlc__dims d = dlc__dims(w->config);

    if (!advance(w))
        return false;
    switch (w->role) {
    case DLC__NORM1:
    case DLC__NORM2:
    case DLC__NORM_F: set_shape(w, d.C, 0); break;
    case DLC__Q_NORM:
    case DLC__K_NORM: set_shape(w, d.D, 0); break;
    case DLC__Q: set_shape(w, d.HD, d.C); break;
    case DLC__K:
    case DLC__V: set_shape(w, d.KD, d.C); break;
    case DLC__O: set_shape(w, d.C, d.HD); break;
    case DLC__GATE:
    case DLC__UP: set_shape(w, d.F, d.C); break;
    case DLC__DOWN: set_shape(w, d.C, d.F); break;
    case DLC__EMBED:
    case DLC__HEAD: set_shape(w, d.V, d.C); break;
    }
    return true;
}

static const char *role_name(enum dlc__role role)
{
    static const char *const names[] = {
        [DLC__NORM1] = "input_layernorm",   [DLC__Q] = "self_attn.q_proj",      [DLC__K] = "self_attn.k_proj",
        [DLC__V] = "self_attn.v_proj",      [DLC__O] = "self_attn.o_proj",      [DLC__Q_NORM] = "self_attn.q_norm",
        [DLC__K_NORM] = "self_attn.k_norm", [DLC__NORM2] = "post_attention_layernorm",
        [DLC__GATE] = "mlp.gate_proj",      [DLC__UP] = "mlp.up_proj",          [DLC__DOWN] = "mlp.down_proj",
        [DLC__EMBED] = "model.embed_tokens", [DLC__NORM_F] = "model.norm",      [DLC__HEAD] = "lm_head",
    };

    return names[role];
}

size_t dlc_model_n_params(const struct dlc_model_config *config)
{
    struct dlc__walk w = { .config = config };

    while (dlc__walk_next(&w))
        ;
    return w.offset;
}

static void fill_param(struct dlc_param *p, const struct dlc__walk *w)
{
    *p = (struct dlc_param){
        .n_dims = w->n_dims,
        .dims = { w->dims[0], w->dims[1] },
        .offset = w->offset,
        .n_values = w->n_values,
        .layer = w->layer,
        .decay = w->n_dims == 2,
    };
    if (in_layer(w->role))
        snprintf(p->name, sizeof p->name, "model.layers.%d.%s.weight", w->layer, role_name(w->role));
    else
        snprintf(p->name, sizeof p->name, "%s.weight", role_name(w->role));
}

dlc_err dlc_model_params_table(struct dlc_param **out, size_t *n, const struct dlc_model_config *config)
{
    struct dlc__walk w = { .config = config };
    struct dlc_param *table;

    *out = NULL;
    *n = 0;
    while (dlc__walk_next(&w))
        ;
    table = dlc_calloc(w.index, sizeof *table);
    if (!table)
        return DLC_ENOMEM;
    *n = w.index;
    w = (struct dlc__walk){ .config = config };
    while (dlc__walk_next(&w))
        fill_param(&table[w.index], &w);
    *out = table;
    return DLC_OK;
}
