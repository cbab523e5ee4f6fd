/* Names and layout of tensors in GGUF. */
#include <stdio.h>
#include <string.h>

#include "ckpt/gguf_model_internal.h"

static const struct {
    const char *here, *gguf;
} whole[] = {
    { "model.embed_tokens.weight", "token_embd.weight" },
    { "model.norm.weight", "output_norm.weight" },
    { "lm_head.weight", "output.weight" },
}, in_layer[] = {
    { "input_layernorm.weight", "attn_norm.weight" },
    { "self_attn.q_proj.weight", "attn_q.weight" },
    { "self_attn.k_proj.weight", "attn_k.weight" },
    { "self_attn.v_proj.weight", "attn_v.weight" },
    { "self_attn.o_proj.weight", "attn_output.weight" },
    { "self_attn.q_norm.weight", "attn_q_norm.weight" },
    { "self_attn.k_norm.weight", "attn_k_norm.weight" },
    { "post_attention_layernorm.weight", "ffn_norm.weight" },
    { "mlp.gate_proj.weight", "ffn_gate.weight" },
    { "mlp.up_proj.weight", "ffn_up.weight" },
    { "mlp.down_proj.weight", "ffn_down.weight" },
};

/* What follows "model.layers.N."; NULL for tensors outside the layers. */
static const char *name_in_layer(const struct dlc_param *p)
{
    const char *dot = strncmp(p->name, "model.layers.", 13) == 0 ? strchr(p->name + 13, '.') : NULL;

    return dot ? dot + 1 : NULL;
}

void dlc__gguf_tensor_name(char out[DLC_GGUF_NAME_BYTES], const struct dlc_param *p)
{
    const char *inner = name_in_layer(p);

    for (size_t i = 0; inner && i < sizeof in_layer / sizeof *in_layer; i++)
        if (strcmp(inner, in_layer[i].here) == 0)
            snprintf(out, DLC_GGUF_NAME_BYTES, "blk.%d.%s", p->layer, in_layer[i].gguf);
    for (size_t i = 0; !inner && i < sizeof whole / sizeof *whole; i++)
        if (strcmp(p->name, whole[i].here) == 0)
            snprintf(out, DLC_GGUF_NAME_BYTES, "%s", whole[i].gguf);
}

int dlc__gguf_heads(const struct dlc_model_config *config, const struct dlc_param *p)
{
    const char *inner = config->qk_norm ? NULL : name_in_layer(p);

    if (inner && strcmp(inner, "self_attn.q_proj.weight") == 0)
        return config->n_heads;
    return inner && strcmp(inner, "self_attn.k_proj.weight") == 0 ? config->n_kv_heads : 0;
}

/* Row half * D/2 + j of a head goes to row 2j + half, or back. */
static void reorder(float *matrix, float *scratch, const struct dlc_model_config *config, int n_heads, bool to_gguf)
{
    size_t C = (size_t)config->d_model, half_rows = (size_t)config->head_dim / 2, head = 2 * half_rows * C;

    for (int h = 0; h < n_heads; h++, matrix += head) {
        memcpy(scratch, matrix, head * sizeof *matrix);
        for (size_t j = 0; j < half_rows; j++) {
            for (size_t half = 0; half < 2; half++) {
                size_t split = half * half_rows + j, pair = 2 * j + half;

                memcpy(matrix + (to_gguf ? pair : split) * C, scratch + (to_gguf ? split : pair) * C,
                       C * sizeof *matrix);
            }
        }
    }
}

void dlc__gguf_interleave(float *matrix, float *scratch, const struct dlc_model_config *config, int n_heads)
{
    reorder(matrix, scratch, config, n_heads, true);
}

void dlc__gguf_deinterleave(float *matrix, float *scratch, const struct dlc_model_config *config, int n_heads)
{
    reorder(matrix, scratch, config, n_heads, false);
}
