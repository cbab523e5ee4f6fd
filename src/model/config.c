/* Configurations: what is allowed, the presets, and the cost of a token. */
#include "model/model.h"

#include <math.h>
#include <string.h>

#include "model/model_internal.h"

/* Known good shapes. Vocabulary comes from the data. All tie the embeddings and have as many key/value heads as heads.
 *
 * nano to small are for machines without accelerators; 124m has GPT-2's shape; 60m, 150m and 400m are those of arXiv
 * 2311.08105, Table 1. The paper does not give the width of its MLP: here it is SwiGLU's usual 8/3 of d_model, rounded
 * up to a multiple of 64, which with tied embeddings and the paper's 32,000 vocabulary gives 59, 151 and 389 M
 * parameters.
 *
 *        name     L   C     H   D    F     context */
#define PRESETS(X)                                                                                                     \
    X("nano", 3, 96, 3, 32, 256, 128)                                                                                  \
    X("micro", 4, 128, 4, 32, 384, 256)                                                                                \
    X("mini", 4, 192, 6, 32, 512, 256)                                                                                 \
    X("small", 4, 256, 4, 64, 704, 256)                                                                                \
    X("60m", 3, 896, 16, 64, 2432, 1024)                                                                               \
    X("124m", 12, 768, 12, 64, 2048, 1024)                                                                             \
    X("150m", 12, 896, 16, 64, 2432, 1024)                                                                             \
    X("400m", 12, 1536, 12, 128, 4096, 1024)

#define PRESET_ROW(name, L, C, H, D, F, context) { name, L, C, H, D, F, context },
#define PRESET_NAME(name, L, C, H, D, F, context) name,
#define PRESET_TEXT(name, L, C, H, D, F, context) " " name

static const struct {
    const char *name;
    int n_layers, d_model, n_heads, head_dim, d_ffn, context;
} presets[] = { PRESETS(PRESET_ROW) };

static const char *const preset_names[] = { PRESETS(PRESET_NAME) NULL };

const char *const *dlc_model_preset_names(void)
{
    return preset_names;
}

dlc_err dlc_model_preset(struct dlc_model_config *config, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(name, presets[i].name) != 0)
            continue;
        *config = (struct dlc_model_config){
            .vocab_size = config->vocab_size,
            .n_layers = presets[i].n_layers,
            .d_model = presets[i].d_model,
            .n_heads = presets[i].n_heads,
            .n_kv_heads = presets[i].n_heads,
            .head_dim = presets[i].head_dim,
            .d_ffn = presets[i].d_ffn,
            .context = presets[i].context,
            .rope_theta = 10000,
            .norm_eps = 1e-5,
            .tie_embeddings = true,
            .init_std = 0.02,
        };
        return DLC_OK;
    }
    return dlc_fail(DLC_EUSAGE, "no preset is called \"%s\"; there are:" PRESETS(PRESET_TEXT), name);
}

static dlc_err check_int(const char *name, int value, int lowest, int highest)
{
    if (value < lowest || value > highest)
        return dlc_fail(DLC_EUSAGE, "model: %s is %d, must be %d to %d", name, value, lowest, highest);
    return DLC_OK;
}

/* Written so that NaN fails. */
static dlc_err check_double(const char *name, double value, double above, double highest)
{
    if (!(value > above && value <= highest))
        return dlc_fail(DLC_EUSAGE, "model: %s is %g, must be above %g and at most %g", name, value, above, highest);
    return DLC_OK;
}

/* The bounds keep every product of sizes far inside 64 bits. */
dlc_err dlc_model_config_check(const struct dlc_model_config *c)
{
    DLC_TRY(check_int("vocab_size", c->vocab_size, 1, 1 << 24));
    DLC_TRY(check_int("layers", c->n_layers, 1, 1024));
    DLC_TRY(check_int("d_model", c->d_model, 1, 1 << 16));
    DLC_TRY(check_int("heads", c->n_heads, 1, 1024));
    DLC_TRY(check_int("kv_heads", c->n_kv_heads, 1, 1024));
    DLC_TRY(check_int("head_dim", c->head_dim, 2, 1024));
    DLC_TRY(check_int("d_ffn", c->d_ffn, 1, 1 << 20));
    DLC_TRY(check_int("context", c->context, 1, 1 << 22));
    if (c->n_heads % c->n_kv_heads != 0)
        return dlc_fail(DLC_EUSAGE, "model: kv_heads %d does not divide heads %d", c->n_kv_heads, c->n_heads);
    if (c->head_dim % 2 != 0)
        return dlc_fail(DLC_EUSAGE, "model: head_dim %d is odd; rotary positions turn pairs", c->head_dim);
    DLC_TRY(check_double("rope_theta", c->rope_theta, 0, 1e15));
    DLC_TRY(check_double("norm_eps", c->norm_eps, 0, 1));
    return check_double("init_std", c->init_std, 0, 10);
}

/* A multiply-add counts 2 and the backward pass twice the forward pass, hence 6 for each parameter in a product. Scores
 * and their sum over values are 4 H D for each earlier position, on average T/2 of them. */
double dlc_model_flops_per_token(const struct dlc_model_config *c, int seq_len)
{
    struct dlc__dims d = dlc__dims(c);
    double looked_up = c->tie_embeddings ? 0 : (double)(d.V * d.C);
    double attention = 12.0 * c->n_layers * (double)d.HD * seq_len / 2;

    return 6 * ((double)dlc_model_n_params(c) - looked_up) + attention;
}
