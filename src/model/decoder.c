/* Generation: creation of a decoder, its memory, and the feeding of tokens in chunks. */
#include <assert.h>

#include "base/mem.h"
#include "model/decoder_internal.h"

#define ALIGN 64

/* Rows of a prompt at once: enough for products of matrices to be at their speed, few enough to be small beside the
 * weights. */
#define CHUNK_ROWS 256

static void *take(char *block, size_t *size_bytes, size_t n, size_t element_bytes)
{
    void *p = block ? block + *size_bytes : NULL;

    *size_bytes += (n * element_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

/* Measures with blocks NULL, else places. */
static void plan(dlc_decoder *dec)
{
    struct dlc__dims d = dlc__dims(&dec->config);
    size_t P = (size_t)dec->max_positions, cache = (size_t)dec->config.n_layers * P * d.KD;
    size_t widest = d.C > d.HD ? d.C : d.HD, R, qkv, *used = &dec->scratch_bytes;
    char *block = dec->scratch_block;

    widest = widest > d.F ? widest : d.F;
    R = dec->chunk = P < CHUNK_ROWS ? P : CHUNK_ROWS;
    qkv = R * (d.HD + 2 * d.KD);
    dec->cache_bytes = dec->scratch_bytes = 0;
    dec->keys = take(dec->cache_block, &dec->cache_bytes, cache, dlc_dtype_size(dec->type));
    dec->values = take(dec->cache_block, &dec->cache_bytes, cache, dlc_dtype_size(dec->type));
    dec->rope = take(block, used, P * d.D, sizeof(float));
    dec->x = take(block, used, R * d.C, sizeof(float));
    dec->h = take(block, used, R * d.C, sizeof(float));
    dec->qkv = take(block, used, qkv, sizeof(float));
    dec->pre = dec->config.qk_norm ? take(block, used, qkv, sizeof(float)) : dec->qkv;
    dec->y = take(block, used, R * d.HD, sizeof(float));
    dec->gate_up = take(block, used, 2 * R * d.F, sizeof(float));
    dec->act = take(block, used, R * d.F, sizeof(float));
    dec->logits = take(block, used, d.V, sizeof(float));
    dec->operand = dec->type == DLC_BF16 ? take(block, used, R * widest, sizeof(dlc_bf16)) : NULL;
}

static dlc_err check_positions(int max_positions)
{
    if (max_positions < 1 || max_positions > 1 << 24)
        return dlc_fail(DLC_EUSAGE, "decoder: %d positions; must be 1 to %d", max_positions, 1 << 24);
    return DLC_OK;
}

static dlc_dtype type_of(dlc_precision precision)
{
    return precision == DLC_PRECISION_BF16 ? DLC_BF16 : DLC_F32;
}

static dlc_err alloc_blocks(dlc_decoder *dec)
{
    void *block;

    plan(dec);
    DLC_TRY(dlc_backend_alloc(dec->be, &block, dec->cache_bytes, "key/value cache"));
    dec->cache_block = block;
    DLC_TRY(dlc_backend_alloc(dec->be, &block, dec->scratch_bytes, "decoder scratch"));
    dec->scratch_block = block;
    plan(dec);
    dlc__rope_table(dec->rope, (size_t)dec->max_positions, dec->config.head_dim, dec->config.rope_theta);
    return DLC_OK;
}

/* model NULL: alone. */
static dlc_err create(dlc_decoder **out, const struct dlc_model_config *config, const dlc_model *model, dlc_dtype type,
                      dlc_backend *be, int max_positions)
{
    dlc_decoder *dec;
    dlc_err err;

    DLC_TRY(check_positions(max_positions));
    dec = dlc_calloc(1, sizeof *dec);
    if (!dec)
        return DLC_ENOMEM;
    dec->config = *config;
    dec->be = be;
    dec->type = type;
    dec->max_positions = max_positions;
    if (model)
        DLC_TRY_TO(fail, dlc__decoder_weights_borrow(&dec->weights, model));
    else
        DLC_TRY_TO(fail, dlc__decoder_weights_own(&dec->weights, config, type, be));
    DLC_TRY_TO(fail, alloc_blocks(dec));
    *out = dec;
    return DLC_OK;
fail:
    dlc_decoder_destroy(dec);
    return err;
}

dlc_err dlc_decoder_create(dlc_decoder **out, dlc_model *model, int max_positions)
{
    *out = NULL;
    return create(out, &model->config, model, model->in, model->be, max_positions);
}

dlc_err dlc_decoder_create_alone(dlc_decoder **out, const struct dlc_model_config *config, dlc_precision precision,
                                 dlc_backend *backend, int max_positions)
{
    *out = NULL;
    DLC_TRY(dlc_model_config_check(config));
    return create(out, config, NULL, type_of(precision), backend, max_positions);
}

void dlc_decoder_destroy(dlc_decoder *dec)
{
    if (!dec)
        return;
    dlc_backend_free(dec->be, dec->cache_block, dec->cache_bytes);
    dlc_backend_free(dec->be, dec->scratch_block, dec->scratch_bytes);
    dlc__decoder_weights_fini(&dec->weights, dec->be);
    dlc_free(dec);
}

void dlc_decoder_memory_plan(struct dlc_decoder_memory *out, const struct dlc_model_config *config,
                             dlc_precision precision, int max_positions)
{
    struct dlc_decoder dec = { .config = *config, .type = type_of(precision), .max_positions = max_positions };

    plan(&dec);
    *out = (struct dlc_decoder_memory){
        .weights = dlc__decoder_weights_bytes(config, dec.type),
        .cache = dec.cache_bytes,
        .scratch = dec.scratch_bytes,
        .loading = dlc__decoder_weights_loading(config, dec.type) * sizeof(float),
    };
}

void dlc_decoder_reset(dlc_decoder *dec)
{
    dec->position = 0;
}

int dlc_decoder_position(const dlc_decoder *dec)
{
    return dec->position;
}

const float *dlc_decoder_prefill(dlc_decoder *dec, const int32_t *tokens, size_t n)
{
    assert(n >= 1);
    for (size_t i = 0; i < n; i++)
        assert(tokens[i] >= 0 && tokens[i] < dec->config.vocab_size);
    if (n > (size_t)(dec->max_positions - dec->position))
        return NULL;
    while (n > 0) {
        size_t R = n < dec->chunk ? n : dec->chunk;

        dlc__decoder_feed(dec, tokens, R, n == R);
        dec->position += (int)R;
        tokens += R;
        n -= R;
    }
    return dec->logits;
}

const float *dlc_decoder_step(dlc_decoder *dec, int32_t token)
{
    return dlc_decoder_prefill(dec, &token, 1);
}
