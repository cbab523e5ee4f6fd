/* Writing of model folders, and finding the one that a path means. Reading is in model_config_json.c and
 * model_params.c. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "ckpt/ckpt.h"
#include "ckpt/model_folder_internal.h"
#include "ckpt/safetensors.h"

static dlc_err write_json(const char *folder, const char *name, json_t *value)
{
    char path[DLC_PATH_MAX];
    dlc_err err;

    if (!value)
        return dlc_fail(DLC_ENOMEM, "out of memory: %s/%s", folder, name);
    err = dlc_path_join(path, folder, name);
    if (err == DLC_OK)
        err = dlc_json_write_file(path, value);
    json_decref(value);
    return err;
}

/* params NULL: they are asked for one tensor at a time. */
static dlc_err write_params(const char *folder, const struct dlc_model_content *content, const float *params,
                            dlc_dtype dtype)
{
    struct dlc_st_write_tensor *tensors = NULL;
    struct dlc_param *table = NULL;
    char path[DLC_PATH_MAX];
    dlc_err err;
    size_t n;

    DLC_TRY(dlc_path_join(path, folder, "model.safetensors"));
    DLC_TRY(dlc_model_params_table(&table, &n, &content->config));
    tensors = dlc_calloc(n, sizeof *tensors);
    if (!tensors) {
        err = DLC_ENOMEM;
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        tensors[i] = (struct dlc_st_write_tensor){ .name = table[i].name,
                                                   .dtype = dtype,
                                                   .n_dims = table[i].n_dims,
                                                   .data = params ? params + table[i].offset : NULL };
        for (int k = 0; k < table[i].n_dims; k++)
            tensors[i].dims[k] = table[i].dims[k];
    }
    err = params ? dlc_st_write(path, tensors, n, NULL, 0)
                 : dlc_st_write_from(path, tensors, n, NULL, 0, &content->tensors);
done:
    dlc_free(tensors);
    dlc_free(table);
    return err;
}

/* The text of the token with this id: an added token, or one of the vocabulary. Borrowed; NULL when there is none. */
static const char *token_text(const json_t *tokenizer, int32_t id)
{
    json_t *vocab = json_object_get(json_object_get(tokenizer, "model"), "vocab"), *value;
    const json_t *added = json_object_get(tokenizer, "added_tokens");
    const char *text;

    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);

        if (json_is_integer(json_object_get(token, "id")) && json_integer_value(json_object_get(token, "id")) == id)
            return json_string_value(json_object_get(token, "content"));
    }
    json_object_foreach(vocab, text, value)
    {
        if (json_is_integer(value) && json_integer_value(value) == id)
            return text;
    }
    return NULL;
}

/* The token's text, null for -1; the caller's. */
static dlc_err token_json(json_t **out, const json_t *tokenizer, int32_t id, const char *folder)
{
    const char *text = id < 0 ? NULL : token_text(tokenizer, id);

    if (id >= 0 && !text)
        return dlc_fail(DLC_EINPUT, "%s/tokenizer.json: no token has the id %d, which should begin or end a text",
                        folder, id);
    *out = text ? json_string(text) : json_null();
    return *out ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory: %s/tokenizer_config.json", folder);
}

/* The class is the generic one on purpose: transformers v5 replaces the splitting rules of a tokenizer.json that calls
 * itself a Llama or GPT-2 tokenizer by those of that model. */
static dlc_err write_tokenizer_config(const char *folder, const json_t *tokenizer,
                                      const struct dlc_model_content *content)
{
    json_t *bos, *eos = NULL;
    dlc_err err;

    DLC_TRY(token_json(&bos, tokenizer, content->bos, folder));
    err = token_json(&eos, tokenizer, content->eos, folder);
    if (err == DLC_OK)
        err = write_json(folder, "tokenizer_config.json",
                         json_pack("{s:s, s:O, s:O, s:O, s:b, s:i, s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                                   "bos_token", bos, "eos_token", eos, "pad_token", eos, "add_bos_token",
                                   (int)content->add_bos, "model_max_length", content->config.context,
                                   "clean_up_tokenization_spaces", 0));
    json_decref(bos);
    json_decref(eos);
    return err;
}

static dlc_err write_tokenizer(const char *folder, const struct dlc_model_content *content)
{
    char path[DLC_PATH_MAX];
    json_t *tokenizer;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, folder, "tokenizer.json"));
    DLC_TRY(dlc_json_parse(&tokenizer, content->tokenizer_json, content->tokenizer_json_bytes, path));
    err = write_tokenizer_config(folder, tokenizer, content);
    json_decref(tokenizer);
    return err == DLC_OK ? dlc_file_write_atomic(path, content->tokenizer_json, content->tokenizer_json_bytes) : err;
}

static dlc_err write_generation_config(const char *folder, int32_t bos, int32_t eos)
{
    json_t *root = json_object();
    int failed = root == NULL;

    if (bos >= 0)
        failed |= json_object_set_new(root, "bos_token_id", json_integer(bos));
    if (eos >= 0) {
        failed |= json_object_set_new(root, "eos_token_id", json_integer(eos));
        failed |= json_object_set_new(root, "pad_token_id", json_integer(eos));
    }
    if (failed) {
        json_decref(root);
        root = NULL;
    }
    return write_json(folder, "generation_config.json", root);
}

static dlc_err write_folder(const char *folder, const struct dlc_model_content *content, const float *params,
                            dlc_dtype dtype)
{
    DLC_TRY(dlc_model_config_check(&content->config));
    DLC_TRY(dlc_mkdir_p(folder));
    if (content->tokenizer_json)
        DLC_TRY(write_tokenizer(folder, content));
    DLC_TRY(write_generation_config(folder, content->bos, content->eos));
    DLC_TRY(write_params(folder, content, params, dtype));
    /* last: it is what makes a folder a model's */
    return dlc__model_config_write(folder, &content->config, dtype, content->bos, content->eos);
}

dlc_err dlc_model_folder_write_content(const char *folder, const struct dlc_model_content *content, dlc_dtype dtype)
{
    return write_folder(folder, content, NULL, dtype);
}

dlc_err dlc_model_folder_write(const char *folder, const struct dlc_model_config *config, const float *params,
                               dlc_dtype dtype, const char *tokenizer_json, size_t tokenizer_json_bytes,
                               int32_t bos_eos)
{
    const struct dlc_model_content content = { .config = *config,
                                               .tokenizer_json = tokenizer_json,
                                               .tokenizer_json_bytes = tokenizer_json_bytes,
                                               .bos = bos_eos,
                                               .eos = bos_eos };

    return write_folder(folder, &content, params, dtype);
}

dlc_err dlc_model_folder_resolve(char out[4096], const char *path)
{
    char inside[DLC_PATH_MAX];
    uint64_t outer_step;

    if (!dlc_file_exists(path))
        return dlc_fail(DLC_ENOTFOUND, "%s: no such folder", path);
    if (!dlc_is_folder(path))
        return dlc_fail(DLC_EINPUT, "%s: not a folder; a model folder or a run folder is wanted", path);
    DLC_TRY(dlc_path_join(inside, path, "config.json"));
    if (dlc_file_exists(inside)) {
        if (snprintf(out, DLC_PATH_MAX, "%s", path) >= DLC_PATH_MAX)
            return dlc_fail(DLC_EUSAGE, "path too long: %.60s...", path);
        return DLC_OK;
    }
    DLC_TRY(dlc_path_join(inside, path, "checkpoints"));
    if (!dlc_is_folder(inside))
        return dlc_fail(DLC_EINPUT, "%s: neither a model folder (no config.json) nor a run folder (no checkpoints)",
                        path);
    return dlc_ckpt_find(out, &outer_step, path);
}
