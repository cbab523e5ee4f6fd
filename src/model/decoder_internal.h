/* What the files of the decoder share: its weights, wherever they are, and its arrays.
 *
 * Letters as in model.h; R rows of a chunk of the prompt, P positions of the cache. */
#ifndef DLC_MODEL_DECODER_INTERNAL_H
#define DLC_MODEL_DECODER_INTERNAL_H

#include "model/model_internal.h"

/* Matrices of the decoder's type, gains f32. The matrices of q, k and v lie one behind the other and are one matrix
 * [H*D + 2*K*D][C] where that suits; the same for gate and up. */
struct dlc__decoder_layer {
    const void *q, *k, *v, *o, *gate, *up, *down;
    const float *norm1, *q_norm, *k_norm, *norm2;
};

struct dlc__decoder_weights {
    struct dlc__decoder_layer *layers; /* [L] */
    const void *embed, *head;
    dlc_dtype embed_type; /* f32 beside a model, whose masters are read; else the decoder's */
    const float *norm_f;

    char *block; /* of a decoder alone: the flat array in the decoder's type and, in bf16, the gains in f32 */
    size_t block_bytes;
};

/* Points at the weights of a model. */
dlc_err dlc__decoder_weights_borrow(struct dlc__decoder_weights *w, const dlc_model *m);
/* Zeroed weights of its own. */
dlc_err dlc__decoder_weights_own(struct dlc__decoder_weights *w, const struct dlc_model_config *config, dlc_dtype type,
                                 dlc_backend *be);
size_t dlc__decoder_weights_bytes(const struct dlc_model_config *config, dlc_dtype type);
/* Values of the largest tensor when loading needs room for it, else 0. */
size_t dlc__decoder_weights_loading(const struct dlc_model_config *config, dlc_dtype type);
void dlc__decoder_weights_fini(struct dlc__decoder_weights *w, dlc_backend *be);

struct dlc_decoder {
    struct dlc_model_config config;
    dlc_backend *be;
    dlc_dtype type; /* of weights and cache */
    struct dlc__decoder_weights weights;
    size_t chunk; /* most rows at once */
    int max_positions, position;

    char *cache_block, *scratch_block; /* NULL while measuring */
    size_t cache_bytes, scratch_bytes;
    char *keys, *values;  /* [L][K][P][D] */
    float *rope;          /* [P][D/2][2] */
    float *x, *h;         /* [R][C] residual stream, normed */
    float *qkv, *pre;     /* [R][H*D] [R][K*D] [R][K*D]; before their norm, or the same array */
    float *y;             /* [R][H*D] attention's output */
    float *gate_up, *act; /* [R][F] twice, [R][F] */
    float *logits;        /* [V] */
    dlc_bf16 *operand;    /* [R][max(C, H*D, F)] what large products read, in bf16 */
};

/* Feeds R <= chunk tokens; logits of the last one when wanted. */
void dlc__decoder_feed(dlc_decoder *dec, const int32_t *tokens, size_t R, bool want_logits);

#endif
