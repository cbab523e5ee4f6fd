/* A model folder for tests that run the program: random parameters. Needs cmocka.h before. */
#ifndef DLC_CLI_MODEL_FOLDER_TEST_H
#define DLC_CLI_MODEL_FOLDER_TEST_H

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/model_folder.h"

#define TEST_CONTEXT 8

/* folder/name; tokenizer_path NULL: no tokenizer. */
static inline dlc_err make_model(const char *folder, const char *name, const char *tokenizer_path, int vocab_size)
{
    struct dlc_model_config c = { .vocab_size = vocab_size,
                                  .n_layers = 1,
                                  .d_model = 16,
                                  .n_heads = 2,
                                  .n_kv_heads = 1,
                                  .head_dim = 8,
                                  .d_ffn = 24,
                                  .context = TEST_CONTEXT,
                                  .rope_theta = 1e4,
                                  .norm_eps = 1e-5,
                                  .tie_embeddings = true,
                                  .init_std = 0.5 };
    struct dlc_buf json = { 0 };
    char path[DLC_PATH_MAX];
    float *params = dlc_calloc(dlc_model_n_params(&c), sizeof *params);
    dlc_err err = params ? DLC_OK : DLC_ENOMEM;

    DLC_TRY_TO(done, err);
    dlc_model_init_params(params, &c, 5);
    if (tokenizer_path)
        DLC_TRY_TO(done, dlc_file_read(&json, tokenizer_path, 10 << 20));
    DLC_TRY_TO(done, dlc_path_join(path, folder, name));
    DLC_TRY_TO(done, dlc_mkdir_p(path));
    err = dlc_model_folder_write(path, &c, params, DLC_F32, json.data, json.len, 0);
done:
    dlc_free(params);
    dlc_buf_fini(&json);
    return err;
}

#endif
