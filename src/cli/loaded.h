/* A model folder (or a run's latest checkpoint) ready to compute: what eval and generate begin with. eval computes
 * batches with a model, generate one sequence with a decoder, which needs far less memory. */
#ifndef DLC_CLI_LOADED_H
#define DLC_CLI_LOADED_H

#include "base/file.h"
#include "data/tokenizer.h"
#include "model/model.h"

struct dlc_loaded {
    char folder[DLC_PATH_MAX]; /* the model folder that was meant */
    struct dlc_model_config config;
    dlc_backend *backend;
    dlc_model *model;         /* either this */
    dlc_decoder *decoder;     /* or this, with room for the model's context */
    dlc_tokenizer *tokenizer; /* NULL: the folder has none */
};

struct dlc_load_options {
    const char *isa;
    int threads;           /* 0: all cores */
    int context;           /* longest sequence; 0: the model's */
    int max_tokens;        /* of a batch: sets how many sequences are computed at once, at least 1 */
    const char *precision; /* of a decoder: "f32", "bf16", or "auto": bf16 if the folder stores its matrices in it */
};

/* A model; *batch: sequences at once. DLC_EINPUT with what is missing or does not match; DLC_ENOMEM with both sizes
 * when it does not fit. dlc_loaded_fini in every case. */
dlc_err dlc_loaded_init(struct dlc_loaded *out, int *batch, const char *path, const struct dlc_load_options *options);
/* The same with a decoder. */
dlc_err dlc_loaded_init_decoder(struct dlc_loaded *out, const char *path, const struct dlc_load_options *options);
void dlc_loaded_fini(struct dlc_loaded *l);

#endif
