/* Models as GGUF files: which keys and tensors say what (docs/formats/gguf.md). Llama family; with qk_norm Qwen3. */
#ifndef DLC_CKPT_GGUF_MODEL_H
#define DLC_CKPT_GGUF_MODEL_H

#include "base/buf.h"
#include "ckpt/gguf.h"
#include "ckpt/model_folder.h"

/* Matrices are stored as `type`, all else in f32; for q8_0, matrices whose rows are no multiple of 32 in f16 (said).
 * `name` is for people. A tokenizer must be one that dlc_tokenizer_parse takes; tokens that llama.cpp would encode
 * otherwise are said. */
dlc_err dlc_gguf_model_write(const char *path, const struct dlc_model_content *content, dlc_stored type,
                             const char *name);

/* DLC_EINPUT for anything that would not compute exactly as the file means: another architecture, scaled positions,
 * experts, tensors that are missing, of another shape or left over. */
typedef struct dlc_gguf_model dlc_gguf_model;
dlc_err dlc_gguf_model_open(dlc_gguf_model **out, const char *path);
dlc_err dlc_gguf_model_parse(dlc_gguf_model **out, const void *bytes, size_t size_bytes, const char *where);
void dlc_gguf_model_close(dlc_gguf_model *m); /* accepts NULL */

/* Everything but the tokenizer. Valid until close. */
struct dlc_model_content dlc_gguf_model_content(dlc_gguf_model *m);
/* A tokenizer.json that encodes as llama.cpp does with this file, appended to `out`. DLC_ENOTFOUND when the file has no
 * tokenizer, DLC_EINPUT with the reason when it is not one that can be run here. */
dlc_err dlc_gguf_model_tokenizer(struct dlc_buf *out, const dlc_gguf_model *m);

#endif
