#include "ckpt/model_source.h"

#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/gguf_model.h"
#include "data/tokenizer.h"

#define MAX_TOKENIZER_BYTES ((size_t)256 << 20)

struct dlc_model_source {
    char path[DLC_PATH_MAX];
    dlc_model_tensors *tensors; /* of a folder, or */
    dlc_gguf_model *gguf;
    struct dlc_buf tokenizer;
    struct dlc_model_content content;
};

/* A template that begins every text with a special token: *bos is it. Otherwise *bos stays. */
static void find_added_bos(bool *adds, int32_t *bos, const json_t *post)
{
    const json_t *steps = json_object_get(post, "processors"), *first, *special, *ids;
    const char *type = json_string_value(json_object_get(post, "type")), *name;

    for (size_t i = 0; i < json_array_size(steps); i++)
        find_added_bos(adds, bos, json_array_get(steps, i));
    if (!type || strcmp(type, "TemplateProcessing") != 0)
        return;
    first = json_array_get(json_object_get(post, "single"), 0);
    name = json_string_value(json_object_get(json_object_get(first, "SpecialToken"), "id"));
    special = name ? json_object_get(json_object_get(post, "special_tokens"), name) : NULL;
    ids = json_object_get(special, "ids");
    if (json_array_size(ids) == 1 && json_is_integer(json_array_get(ids, 0))) {
        *adds = true;
        *bos = (int32_t)json_integer_value(json_array_get(ids, 0));
    }
}

static dlc_err use_tokenizer(dlc_model_source *s, const dlc_tokenizer *t)
{
    struct dlc_model_content *c = &s->content;

    if (dlc_tokenizer_vocab_size(t) > c->config.vocab_size)
        return dlc_fail(DLC_EINPUT, "%s: its tokenizer has %d tokens, the model knows %d; they do not belong together",
                        s->path, dlc_tokenizer_vocab_size(t), c->config.vocab_size);
    c->tokenizer_json = s->tokenizer.data;
    c->tokenizer_json_bytes = s->tokenizer.len;
    if (c->bos < 0)
        c->bos = dlc_tokenizer_eot(t);
    if (c->eos < 0)
        c->eos = dlc_tokenizer_eot(t);
    return DLC_OK;
}

/* s->tokenizer holds a tokenizer.json, or `err` says why not. */
static dlc_err take_tokenizer(dlc_model_source *s, dlc_err err, const char *where)
{
    dlc_tokenizer *t = NULL;

    if (err == DLC_OK)
        err = dlc_tokenizer_parse(&t, s->tokenizer.data, s->tokenizer.len, where);
    if (err == DLC_OK) {
        err = use_tokenizer(s, t);
        dlc_tokenizer_destroy(t);
        return err;
    }
    if (err == DLC_EINPUT)
        dlc_warn("the tokenizer is left out: %s", dlc_err_text());
    return err == DLC_EINPUT || err == DLC_ENOTFOUND ? DLC_OK : err;
}

static dlc_err open_folder_tokenizer(dlc_model_source *s)
{
    char path[DLC_PATH_MAX];
    json_t *root;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, s->path, "tokenizer.json"));
    err = dlc_file_read(&s->tokenizer, path, MAX_TOKENIZER_BYTES);
    DLC_TRY(take_tokenizer(s, err, path));
    if (!s->content.tokenizer_json)
        return DLC_OK;
    DLC_TRY(dlc_json_parse(&root, s->tokenizer.data, s->tokenizer.len, path));
    find_added_bos(&s->content.add_bos, &s->content.bos, json_object_get(root, "post_processor"));
    json_decref(root);
    return DLC_OK;
}

static dlc_err open_folder(dlc_model_source *s)
{
    struct dlc_model_content *c = &s->content;

    DLC_TRY(dlc_model_folder_config(&c->config, s->path));
    DLC_TRY(dlc_model_folder_tokens(&c->bos, &c->eos, s->path));
    DLC_TRY(dlc_model_tensors_open(&s->tensors, &c->config, s->path));
    c->tensors = dlc_model_tensors_source(s->tensors);
    return open_folder_tokenizer(s);
}

static dlc_err open_gguf(dlc_model_source *s)
{
    DLC_TRY(dlc_gguf_model_open(&s->gguf, s->path));
    s->content = dlc_gguf_model_content(s->gguf);
    return take_tokenizer(s, dlc_gguf_model_tokenizer(&s->tokenizer, s->gguf), s->path);
}

static dlc_err open_path(dlc_model_source *s, const char *path)
{
    if (!dlc_file_exists(path))
        return dlc_fail(DLC_ENOTFOUND, "%s: no such folder or file", path);
    if (dlc_is_folder(path)) {
        DLC_TRY(dlc_model_folder_resolve(s->path, path));
        return open_folder(s);
    }
    if (snprintf(s->path, sizeof s->path, "%s", path) >= (int)sizeof s->path)
        return dlc_fail(DLC_EUSAGE, "path too long: %.60s...", path);
    return open_gguf(s);
}

dlc_err dlc_model_source_open(dlc_model_source **out, const char *path)
{
    dlc_model_source *s = dlc_calloc(1, sizeof *s);
    dlc_err err;

    *out = NULL;
    if (!s)
        return DLC_ENOMEM;
    err = open_path(s, path);
    if (err != DLC_OK) {
        dlc_model_source_close(s);
        return err;
    }
    *out = s;
    return DLC_OK;
}

void dlc_model_source_close(dlc_model_source *s)
{
    if (!s)
        return;
    dlc_model_tensors_close(s->tensors);
    dlc_gguf_model_close(s->gguf);
    dlc_buf_fini(&s->tokenizer);
    dlc_free(s);
}

const char *dlc_model_source_path(const dlc_model_source *s)
{
    return s->path;
}

const struct dlc_model_content *dlc_model_source_content(const dlc_model_source *s)
{
    return &s->content;
}
