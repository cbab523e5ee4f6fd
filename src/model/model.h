/* The transformer: a Llama-family decoder (RMSNorm, rotary positions in the half-rotation layout of Hugging Face,
 * SwiGLU, grouped-query attention, optional tied embeddings, optional QK-norm as in Qwen3).
 *
 * Letters: B sequences, T positions of a sequence, C d_model, H heads, K key/value heads, D head_dim, F d_ffn,
 *          V vocabulary, L layers, N parameters.
 *
 * All parameters of a replica are one flat f32 array of N values, and so are the gradients and each optimizer moment.
 * The parameter table (dlc_model_params_table) is the only list of tensors: it gives name, shape and place of each, and
 * checkpoint, optimizer, outer engine and fragments all read it.
 */
#ifndef DLC_MODEL_MODEL_H
#define DLC_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/err.h"

struct dlc_model_config {
    int vocab_size;    /* V */
    int n_layers;      /* L */
    int d_model;       /* C */
    int n_heads;       /* H */
    int n_kv_heads;    /* K, divides H */
    int head_dim;      /* D, even; H*D need not equal C */
    int d_ffn;         /* F */
    int context;       /* longest T the model is trained for */
    double rope_theta; /* 10000 */
    double norm_eps;   /* 1e-5 */
    bool tie_embeddings;
    bool qk_norm; /* RMSNorm over head_dim on q and k before rotation; exported as Qwen3 */
    double init_std; /* 0.02; the projections back into the residual stream (o, down) get init_std / sqrt(2 L) */
};

/* One tensor. Names are the Hugging Face ones ("model.layers.0.self_attn.q_proj.weight"); matrices are [out][in]. */
struct dlc_param {
    char name[80];
    int n_dims; /* 1 or 2 */
    size_t dims[2];
    size_t offset; /* in values from the start of the flat array */
    size_t n_values;
    int layer;     /* 0..L-1; -1 embeddings, L the final norm and the head */
    bool decay;    /* weight decay applies (2-D tensors only) */
};

/* Sane values or DLC_EUSAGE/DLC_EINPUT with the offending ones in the text. Must pass before anything below. */
dlc_err dlc_model_config_check(const struct dlc_model_config *config);

/* Presets: nano (about 0.5 M with a 2048 vocabulary), micro, small, ... 60m, 150m, 400m (shapes of arXiv 2311.08105,
 * Table 1). Leaves vocab_size as it is. DLC_EUSAGE names the known ones. */
dlc_err dlc_model_preset(struct dlc_model_config *config, const char *name);
const char *const *dlc_model_preset_names(void); /* NULL-terminated */

/* N, and the table; the caller frees *out with dlc_free. Tensors are in ascending offset with no gaps. A tied head has
 * no entry. */
size_t dlc_model_n_params(const struct dlc_model_config *config);
dlc_err dlc_model_params_table(struct dlc_param **out, size_t *n, const struct dlc_model_config *config);

/* Training FLOPs a token: 6 (N - embeddings that are only looked up) + attention (12 L H D T / 2, causal). */
double dlc_model_flops_per_token(const struct dlc_model_config *config, int seq_len);

/* Initial parameters as a pure function of (config, seed): normal(0, init_std) for matrices, ones for norms. `_by`
 * divides the work between the threads of a pool (NULL: none); the bits are the same. */
void dlc_model_init_params(float *params, const struct dlc_model_config *config, uint64_t seed);
struct dlc_pool;
void dlc_model_init_params_by(float *params, const struct dlc_model_config *config, uint64_t seed,
                              struct dlc_pool *pool);

typedef enum { DLC_PRECISION_F32, DLC_PRECISION_BF16 } dlc_precision;

struct dlc_model_options {
    int max_batch;  /* B of a micro-batch */
    int max_seq;    /* T */
    bool training;  /* gradients and stored activations; false: forward only, far smaller */
    dlc_precision precision; /* compute: bf16 rounds matmul inputs, masters stay f32 */
    bool recompute_layers;   /* training: keep only the stream between layers and run each layer's forward pass again
                              * before its backward pass: a third more compute, the same bits */
};

/* Bytes a model with these options will allocate, by purpose, before anything is allocated. Exact but for some hundred
 * bytes a layer of bookkeeping. Optimizer state and decoders are their owners' and not in it. */
struct dlc_model_memory {
    size_t params, grads, activations, scratch; /* bytes */
};
void dlc_model_memory_plan(struct dlc_model_memory *out, const struct dlc_model_config *config,
                           const struct dlc_model_options *options, const dlc_backend *backend);

typedef struct dlc_model dlc_model;

/* One replica: parameters (zero until loaded or initialised), gradients, activations; everything is allocated here and
 * nothing later. `backend` stays the caller's and must outlive the model. Not thread-safe; uses the backend's pool. */
dlc_err dlc_model_create(dlc_model **out, const struct dlc_model_config *config,
                         const struct dlc_model_options *options, dlc_backend *backend);
void dlc_model_destroy(dlc_model *model); /* accepts NULL */

const struct dlc_model_config *dlc_model_get_config(const dlc_model *model);
size_t dlc_model_size(const dlc_model *model); /* N */
float *dlc_model_params(dlc_model *model);     /* [N]; after changing them call dlc_model_params_changed */
/* Parameters that stand elsewhere, [N], from now on: read in place, the model's own memory for them stays untouched. */
void dlc_model_use_params(dlc_model *model, const float *params);
float *dlc_model_grads(dlc_model *model);      /* [N]; NULL when not training */
void dlc_model_params_changed(dlc_model *model); /* bf16 copies and the like are made anew */

/* Sum over B*T positions of the cross-entropy (nats) of targets[b][t] given tokens[b][0..t], in double, positions in
 * order. Tokens must be below V (checked by the loader; asserted here).
 * _grad also accumulates d(loss_sum * scale)/d(params) into the gradients: zero them first with dlc_model_zero_grads.
 * Gradient of the mean over several micro-batches: scale = 1 / (all positions). Same bits on every call with the same
 * inputs, backend and thread count. No allocation. */
double dlc_model_loss(dlc_model *model, const int32_t *tokens, const int32_t *targets, int B, int T);
double dlc_model_loss_grad(dlc_model *model, const int32_t *tokens, const int32_t *targets, int B, int T, float scale);
void dlc_model_zero_grads(dlc_model *model);

/* Logits [T][V] of one sequence, T <= max_seq, all at once: for tests and other small uses. No allocation. */
void dlc_model_logits(dlc_model *model, float *out, const int32_t *tokens, int T);

/* Generation: one sequence, with a key/value cache of `max_positions`. With bf16 the weights are read in bf16, keys and
 * values are kept in bf16, and everything between is f32 (but for the rows of a prompt, whose products may round their
 * inputs as training does). No allocation after creation.
 *
 * _create reads a model's weights, which must outlive it. _create_alone holds its own, zero until loaded, and nothing
 * else: no gradients, no activations of a batch, and in bf16 no f32 masters, so that embeddings are rounded too. */
typedef struct dlc_decoder dlc_decoder;
dlc_err dlc_decoder_create(dlc_decoder **out, dlc_model *model, int max_positions);
dlc_err dlc_decoder_create_alone(dlc_decoder **out, const struct dlc_model_config *config, dlc_precision precision,
                                 dlc_backend *backend, int max_positions);
void dlc_decoder_destroy(dlc_decoder *decoder); /* accepts NULL */

/* The weights of a decoder alone. `read` gives all values of the tensor with this place in the parameter table; its
 * first error is returned. */
dlc_err dlc_decoder_load(dlc_decoder *decoder, dlc_err (*read)(float *out, void *arg, size_t index), void *arg);

/* Bytes that _create_alone allocates, exactly; loading in bf16 needs the largest tensor in f32 for a while. */
struct dlc_decoder_memory {
    size_t weights, cache, scratch, loading;
};
void dlc_decoder_memory_plan(struct dlc_decoder_memory *out, const struct dlc_model_config *config,
                             dlc_precision precision, int max_positions);

void dlc_decoder_reset(dlc_decoder *decoder);
int dlc_decoder_position(const dlc_decoder *decoder); /* tokens fed so far */
/* Feeds one token and gives the logits [V] of the next one; valid until the next call. NULL when the cache is full. */
const float *dlc_decoder_step(dlc_decoder *decoder, int32_t token);
/* Feeds n >= 1 tokens, many at a time, and gives the logits after the last: those of n steps but for rounding. NULL, and
 * nothing fed, when the cache has not room for all. */
const float *dlc_decoder_prefill(dlc_decoder *decoder, const int32_t *tokens, size_t n);

#endif
