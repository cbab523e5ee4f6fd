/* Reading of a model's parameters: one model.safetensors, or shards with an index. The parameter table says what must
 * be there; nothing may be missing and nothing may be left over. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "ckpt/model_folder_internal.h"
#include "ckpt/safetensors.h"

enum { MAX_INDEX_BYTES = 64 << 20 };

struct dlc_model_tensors {
    const struct dlc_model_config *config; /* only while opening */
    const char *folder;                    /* the same */
    struct dlc_param *table;
    size_t n_table;
    dlc_st_file **files; /* [n_files] all shards, mapped */
    size_t n_files;
    dlc_st_file **file_of;  /* [n_table] the shard of each tensor; NULL: not seen */
    dlc_st_file *tied_head; /* that has the lm_head.weight of a model that ties it; else NULL */
};

static const char head_name[] = "lm_head.weight";
static const char embedding_name[] = "model.embed_tokens.weight";

/* The place in the table; n_table when there is none. */
static size_t find_param(const struct dlc_model_tensors *l, const char *name)
{
    size_t i = 0;

    while (i < l->n_table && strcmp(l->table[i].name, name) != 0)
        i++;
    return i;
}

static bool is_tied_head(const struct dlc_model_tensors *l, const char *name)
{
    return l->config->tie_embeddings && strcmp(name, head_name) == 0;
}

enum { SHAPE_TEXT_BYTES = 24 * DLC_ST_MAX_DIMS };

static void shape_text(char out[SHAPE_TEXT_BYTES], const uint64_t *dims, int n_dims)
{
    size_t n = 0;

    out[0] = '\0';
    for (int i = 0; i < n_dims; i++)
        n += (size_t)snprintf(out + n, SHAPE_TEXT_BYTES - n, "%s%llu", i ? ", " : "", (unsigned long long)dims[i]);
}

static dlc_err check_shape(const struct dlc_st_tensor *t, const struct dlc_param *p, const char *path)
{
    char found[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
    const uint64_t dims[2] = { p->dims[0], p->dims[1] };

    if (t->n_dims == p->n_dims && memcmp(t->dims, dims, (size_t)p->n_dims * sizeof *dims) == 0)
        return DLC_OK;
    shape_text(found, t->dims, t->n_dims);
    shape_text(expected, dims, p->n_dims);
    return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\" has the shape [%s], config.json makes it [%s]", path, t->name, found,
                    expected);
}

static dlc_err note_tensor(struct dlc_model_tensors *l, dlc_st_file *f, const struct dlc_st_tensor *t, const char *path)
{
    size_t i = find_param(l, t->name);

    if (is_tied_head(l, t->name)) {
        l->tied_head = f;
        return check_shape(t, &l->table[find_param(l, embedding_name)], path);
    }
    if (i == l->n_table)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" is not part of this kind of model", path, t->name);
    if (l->file_of[i])
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" is in another shard as well", path, t->name);
    l->file_of[i] = f;
    return check_shape(t, &l->table[i], path);
}

static dlc_err open_file(struct dlc_model_tensors *l, const char *name)
{
    char path[DLC_PATH_MAX];
    dlc_st_file **more = dlc_realloc(l->files, (l->n_files + 1) * sizeof *more), *f;

    if (!more)
        return DLC_ENOMEM;
    l->files = more;
    DLC_TRY(dlc_path_join(path, l->folder, name));
    DLC_TRY(dlc_st_open(&f, path));
    l->files[l->n_files++] = f;
    for (size_t i = 0; i < dlc_st_n_tensors(f); i++)
        DLC_TRY(note_tensor(l, f, dlc_st_tensor_at(f, i), path));
    return DLC_OK;
}

/* Every tensor of the index is one of ours, and every shard a plain name in this folder. */
static dlc_err check_index(const struct dlc_model_tensors *l, json_t *map, const char *where)
{
    const char *name, *shard;
    json_t *value;

    json_object_foreach(map, name, value)
    {
        shard = json_string_value(value);
        if (!shard || shard[0] == '\0' || strchr(shard, '/') || strcmp(shard, ".") == 0 || strcmp(shard, "..") == 0)
            return dlc_fail(DLC_EINPUT, "%s: the shard of tensor \"%.200s\" is not a file name in this folder", where,
                            name);
        if (find_param(l, name) == l->n_table && !is_tied_head(l, name))
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" is not part of this kind of model", where, name);
    }
    return DLC_OK;
}

static dlc_err open_shards(struct dlc_model_tensors *l, json_t *map)
{
    json_t *value, *done = json_object();
    const char *name;
    dlc_err err = DLC_OK;

    if (!done)
        return dlc_fail(DLC_ENOMEM, "out of memory: shards of %s", l->folder);
    json_object_foreach(map, name, value)
    {
        const char *shard = json_string_value(value);

        if (json_object_get(done, shard))
            continue;
        if (json_object_set_new(done, shard, json_true()) != 0)
            err = dlc_fail(DLC_ENOMEM, "out of memory: shards of %s", l->folder);
        if (err == DLC_OK)
            err = open_file(l, shard);
        if (err != DLC_OK)
            break;
    }
    json_decref(done);
    return err;
}

static dlc_err open_by_index(struct dlc_model_tensors *l, const char *path)
{
    json_t *root, *map;
    dlc_err err;

    DLC_TRY(dlc_json_read_file(&root, path, MAX_INDEX_BYTES));
    err = dlc_json_get_object(&map, root, "weight_map", path);
    if (err == DLC_OK)
        err = check_index(l, map, path);
    if (err == DLC_OK)
        err = open_shards(l, map);
    json_decref(root);
    return err;
}

static dlc_err open_all(struct dlc_model_tensors *l)
{
    char single[DLC_PATH_MAX], index[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(single, l->folder, "model.safetensors"));
    DLC_TRY(dlc_path_join(index, l->folder, "model.safetensors.index.json"));
    if (dlc_file_exists(single)) {
        DLC_TRY(open_file(l, "model.safetensors"));
    } else if (dlc_file_exists(index)) {
        DLC_TRY(open_by_index(l, index));
    } else {
        return dlc_fail(DLC_ENOTFOUND, "%s: neither model.safetensors nor model.safetensors.index.json is there",
                        l->folder);
    }
    for (size_t i = 0; i < l->n_table; i++) {
        if (!l->file_of[i])
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\" is missing", l->folder, l->table[i].name);
    }
    return DLC_OK;
}

static dlc_err read_tensor(float *out, void *arg, size_t index)
{
    const struct dlc_model_tensors *l = arg;
    const struct dlc_param *p = &l->table[index];

    return dlc_st_read_f32(out, l->file_of[index], p->name, p->n_values);
}

/* Some programs store a tied head all the same. It has to be the embedding then, or the file means another model. */
static dlc_err compare_tied_head(struct dlc_model_tensors *l)
{
    size_t embedding = find_param(l, embedding_name), n = l->table[embedding].n_values;
    float *values = dlc_calloc(2 * n, sizeof *values);
    dlc_err err;

    if (!values)
        return DLC_ENOMEM;
    err = read_tensor(values, l, embedding);
    if (err == DLC_OK)
        err = dlc_st_read_f32(values + n, l->tied_head, head_name, n);
    if (err == DLC_OK && memcmp(values, values + n, n * sizeof *values) != 0)
        err = dlc_fail(DLC_EINPUT, "%s: config.json ties the embeddings, but %s differs from %s", l->folder, head_name,
                       embedding_name);
    dlc_free(values);
    return err;
}

dlc_err dlc_model_tensors_open(dlc_model_tensors **out, const struct dlc_model_config *config, const char *folder)
{
    dlc_model_tensors *l;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_model_config_check(config));
    l = dlc_calloc(1, sizeof *l);
    if (!l)
        return DLC_ENOMEM;
    l->config = config;
    l->folder = folder;
    DLC_TRY_TO(fail, dlc_model_params_table(&l->table, &l->n_table, config));
    l->file_of = dlc_calloc(l->n_table, sizeof *l->file_of);
    DLC_TRY_TO(fail, l->file_of ? DLC_OK : DLC_ENOMEM);
    DLC_TRY_TO(fail, open_all(l));
    if (l->tied_head)
        DLC_TRY_TO(fail, compare_tied_head(l));
    *out = l;
    return DLC_OK;
fail:
    dlc_model_tensors_close(l);
    return err;
}

void dlc_model_tensors_close(dlc_model_tensors *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_files; i++)
        dlc_st_close(l->files[i]);
    dlc_free(l->files);
    dlc_free(l->file_of);
    dlc_free(l->table);
    dlc_free(l);
}

struct dlc_tensor_source dlc_model_tensors_source(dlc_model_tensors *l)
{
    return (struct dlc_tensor_source){ read_tensor, l };
}

dlc_dtype dlc_model_tensors_dtype(const dlc_model_tensors *l)
{
    for (size_t i = 0; i < l->n_table; i++) {
        const struct dlc_st_tensor *t = dlc_st_find(l->file_of[i], l->table[i].name);

        if (l->table[i].n_dims == 2 && strcmp(t->dtype_name, "BF16") != 0)
            return DLC_F32;
    }
    return DLC_BF16;
}

dlc_err dlc_model_folder_params(float *params, const struct dlc_model_config *config, const char *folder)
{
    dlc_model_tensors *l;
    dlc_err err;

    DLC_TRY(dlc_model_tensors_open(&l, config, folder));
    err = DLC_OK;
    for (size_t i = 0; err == DLC_OK && i < l->n_table; i++)
        err = read_tensor(params + l->table[i].offset, l, i);
    dlc_model_tensors_close(l);
    return err;
}
