/* What the files of model folders share. */
#ifndef DLC_CKPT_MODEL_FOLDER_INTERNAL_H
#define DLC_CKPT_MODEL_FOLDER_INTERNAL_H

#include "base/err.h"
#include "base/mem.h"
#include "ckpt/model_folder.h"

dlc_err dlc__model_config_write(const char *folder, const struct dlc_model_config *config, dlc_dtype dtype, int32_t bos,
                                int32_t eos);

#endif
