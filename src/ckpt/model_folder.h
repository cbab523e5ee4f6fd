/* Model folders: what Hugging Face tools load as they are (model.safetensors, config.json, tokenizer.json,
 * tokenizer_config.json, generation_config.json). Llama family; with qk_norm Qwen3. */
#ifndef DLC_CKPT_MODEL_FOLDER_H
#define DLC_CKPT_MODEL_FOLDER_H

#include "base/err.h"
#include "ckpt/stored.h"
#include "model/model.h"

/* Writes all files but tokenizer.json's content is given as bytes (NULL: no tokenizer files are written).
 * params: the flat array [N]. bos_eos: id of <|endoftext|>. dtype: DLC_F32 or DLC_BF16 in the file. */
dlc_err dlc_model_folder_write(const char *folder, const struct dlc_model_config *config, const float *params,
                               dlc_dtype dtype, const char *tokenizer_json, size_t tokenizer_json_bytes,
                               int32_t bos_eos);

/* A model on its way from one place to another: all but the tensors' values is in memory. What the pointers point to is
 * the owner's. */
struct dlc_model_content {
    struct dlc_model_config config;
    struct dlc_tensor_source tensors; /* by place in the parameter table */
    const char *tokenizer_json;       /* NULL: none */
    size_t tokenizer_json_bytes;
    int32_t bos, eos; /* ids; -1: none */
    bool add_bos;     /* tools put bos before a text they encode */
};

/* As dlc_model_folder_write, with memory for one tensor; F16 too. */
dlc_err dlc_model_folder_write_content(const char *folder, const struct dlc_model_content *content, dlc_dtype dtype);

/* config.json to our configuration. Anything that would not compute exactly as the file means (biases, another
 * activation, scaled rope, ...) is DLC_EINPUT with the key and value. */
dlc_err dlc_model_folder_config(struct dlc_model_config *out, const char *folder);
dlc_err dlc_model_folder_config_parse(struct dlc_model_config *out, const char *text, size_t size_bytes,
                                      const char *where); /* the same from memory */

/* Parameters into the flat array [N]: every tensor of the table must be there with its shape (also from sharded
 * model.safetensors.index.json); unknown tensors are an error that names the first. */
dlc_err dlc_model_folder_params(float *params, const struct dlc_model_config *config, const char *folder);

/* The same tensors one at a time. After _open all of them are known to be there with their shapes. */
typedef struct dlc_model_tensors dlc_model_tensors;
dlc_err dlc_model_tensors_open(dlc_model_tensors **out, const struct dlc_model_config *config, const char *folder);
void dlc_model_tensors_close(dlc_model_tensors *t);                      /* accepts NULL */
struct dlc_tensor_source dlc_model_tensors_source(dlc_model_tensors *t); /* valid until close */
/* DLC_BF16 when all matrices are stored in it, so that nothing is lost by keeping them so; otherwise DLC_F32. */
dlc_dtype dlc_model_tensors_dtype(const dlc_model_tensors *t);

/* Which tokens config.json says begin and end a text (of several the first); -1 where it says nothing. */
dlc_err dlc_model_folder_tokens(int32_t *bos, int32_t *eos, const char *folder);

/* A run folder stands for its latest checkpoint: gives the model folder that `path` means. */
dlc_err dlc_model_folder_resolve(char out[4096], const char *path);

#endif
