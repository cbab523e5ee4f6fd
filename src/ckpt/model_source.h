/* A model to be converted, wherever it is: a model folder, a run folder's latest checkpoint, or a GGUF file. */
#ifndef DLC_CKPT_MODEL_SOURCE_H
#define DLC_CKPT_MODEL_SOURCE_H

#include "base/file.h"
#include "ckpt/model_folder.h"

typedef struct dlc_model_source dlc_model_source;

/* A tokenizer that cannot be run here is left out, which is said. */
dlc_err dlc_model_source_open(dlc_model_source **out, const char *path);
void dlc_model_source_close(dlc_model_source *s); /* accepts NULL */

const char *dlc_model_source_path(const dlc_model_source *s); /* the folder or file it really is */
const struct dlc_model_content *dlc_model_source_content(const dlc_model_source *s); /* valid until close */

#endif
