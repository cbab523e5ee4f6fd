/* What export and import share: where they may write, and what they say at the end. */
#ifndef DLC_CLI_CONVERT_H
#define DLC_CLI_CONVERT_H

#include <stdbool.h>

#include "ckpt/model_source.h"
#include "ckpt/stored.h"

/* A folder to be written must be new or empty; a GGUF file may only replace a GGUF file. DLC_EUSAGE otherwise: what is
 * there stays. */
dlc_err dlc_convert_check_folder(const char *path);
dlc_err dlc_convert_check_gguf(const char *path);

/* The result on standard output: a sentence, or {"path", "format", "dtype", "parameters", "tokenizer"}. */
dlc_err dlc_convert_print(const char *path, const char *format, dlc_stored dtype,
                          const struct dlc_model_content *content, bool as_json);

#endif
