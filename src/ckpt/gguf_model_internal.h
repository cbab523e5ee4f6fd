/* What the files of GGUF models share. */
#ifndef DLC_CKPT_GGUF_MODEL_INTERNAL_H
#define DLC_CKPT_GGUF_MODEL_INTERNAL_H

#include "ckpt/gguf_model.h"

/* The name in GGUF of a tensor of the table. */
void dlc__gguf_tensor_name(char out[DLC_GGUF_NAME_BYTES], const struct dlc_param *p);

/* Rotary positions turn pairs of values: (j, j + D/2) of a head here and in Hugging Face's files, (2j, 2j + 1) in
 * GGUF's "llama". Rows of the query and key matrices are reordered to match; "qwen3" keeps them. Heads of p's rows; 0
 * when it is none of these. */
int dlc__gguf_heads(const struct dlc_model_config *config, const struct dlc_param *p);
/* Reorders the rows of each head in place; `scratch` has room for one head [D][C]. */
void dlc__gguf_interleave(float *matrix, float *scratch, const struct dlc_model_config *config, int n_heads);
void dlc__gguf_deinterleave(float *matrix, float *scratch, const struct dlc_model_config *config, int n_heads);

/* Types of tokens. */
enum { DLC__GGUF_NORMAL = 1, DLC__GGUF_CONTROL = 3, DLC__GGUF_UNUSED = 5 };

/* The two pre-tokenizers that every program knows. */
#define DLC__GGUF_PRE_GPT2 "gpt-2"
#define DLC__GGUF_PRE_LLAMA3 "llama-bpe"

/* What dlc_gguf_model_tokenizer gives. */
dlc_err dlc__gguf_tokenizer_json(struct dlc_buf *out, const dlc_gguf_file *file, int32_t bos, bool add_bos);
dlc_err dlc__gguf_put_tokenizer(struct dlc_gguf_pairs *pairs, const struct dlc_model_content *content);

#endif
