/* Reading of a model's parameters: one model.safetensors, or shards with an index. The parameter table says what must
 * be there; nothing may be missing and nothing may be left over. */
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "ckpt/model_folder_internal.h"
#include "ckpt/safetensors.h"

enum { MAX_INDEX_BYTES = 64 << 20 };

struct loader {
    float *params;
    const struct dlc_model_config *config;
    struct dlc_param *table;
    size_t n_table;
    bool *seen;       /* [n_table] */
    float *tied_head; /* lm_head.weight of a model that ties it, kept to be compared at the end; else NULL */
    const char *folder;
};

static const char head_name[] = "lm_head.weight";
static const char embedding_name[] = "model.embed_tokens.weight";

/* The place in the table; n_table when there is none. */
static size_t find_param(const struct loader *l, const char *name)
{
    size_t i = 0;

    while (i < l->n_table && strcmp(l->table[i].name, name) != 0)
        i++;
    return i;
}

static bool is_tied_head(const struct loader *l, const char *name)
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

/* Some programs store a tied head all the same. It has to be the embedding then, or the file means another model. */
static dlc_err keep_tied_head(struct loader *l, const dlc_st_file *f, const struct dlc_st_tensor *t, const char *path)
{
    const struct dlc_param *embedding = &l->table[find_param(l, embedding_name)];

    DLC_TRY(check_shape(t, embedding, path));
    dlc_free(l->tied_head);
    l->tied_head = dlc_calloc(embedding->n_values, sizeof *l->tied_head);
    if (!l->tied_head)
        return DLC_ENOMEM;
    return dlc_st_read_f32(l->tied_head, f, t->name, embedding->n_values);
}

static dlc_err load_tensor(struct loader *l, const dlc_st_file *f, const struct dlc_st_tensor *t, const char *path)
{
    size_t i = find_param(l, t->name);

    if (is_tied_head(l, t->name))
        return keep_tied_head(l, f, t, path);
    if (i == l->n_table)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" is not part of this kind of model", path, t->name);
    if (l->seen[i])
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" is in another shard as well", path, t->name);
    DLC_TRY(check_shape(t, &l->table[i], path));
    l->seen[i] = true;
    return dlc_st_read_f32(l->params + l->table[i].offset, f, t->name, l->table[i].n_values);
}

static dlc_err load_file(struct loader *l, const char *name)
{
    char path[DLC_PATH_MAX];
    dlc_st_file *f;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, l->folder, name));
    DLC_TRY(dlc_st_open(&f, path));
    err = DLC_OK;
    for (size_t i = 0; err == DLC_OK && i < dlc_st_n_tensors(f); i++)
        err = load_tensor(l, f, dlc_st_tensor_at(f, i), path);
    dlc_st_close(f);
    return err;
}

/* Every tensor of the index is one of ours, and every shard a plain name in this folder. */
static dlc_err check_index(const struct loader *l, json_t *map, const char *where)
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

static dlc_err load_shards(struct loader *l, json_t *map)
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
            err = load_file(l, shard);
        if (err != DLC_OK)
            break;
    }
    json_decref(done);
    return err;
}

static dlc_err load_by_index(struct loader *l, const char *path)
{
    json_t *root, *map;
    dlc_err err;

    DLC_TRY(dlc_json_read_file(&root, path, MAX_INDEX_BYTES));
    err = dlc_json_get_object(&map, root, "weight_map", path);
    if (err == DLC_OK)
        err = check_index(l, map, path);
    if (err == DLC_OK)
        err = load_shards(l, map);
    json_decref(root);
    return err;
}

static dlc_err load_all(struct loader *l)
{
    char single[DLC_PATH_MAX], index[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(single, l->folder, "model.safetensors"));
    DLC_TRY(dlc_path_join(index, l->folder, "model.safetensors.index.json"));
    if (dlc_file_exists(single)) {
        DLC_TRY(load_file(l, "model.safetensors"));
    } else if (dlc_file_exists(index)) {
        DLC_TRY(load_by_index(l, index));
    } else {
        return dlc_fail(DLC_ENOTFOUND, "%s: neither model.safetensors nor model.safetensors.index.json is there",
                        l->folder);
    }
    for (size_t i = 0; i < l->n_table; i++) {
        if (!l->seen[i])
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\" is missing", l->folder, l->table[i].name);
    }
    if (l->tied_head) {
        const struct dlc_param *e = &l->table[find_param(l, embedding_name)];

        if (memcmp(l->tied_head, l->params + e->offset, e->n_values * sizeof *l->tied_head) != 0)
            return dlc_fail(DLC_EINPUT, "%s: config.json ties the embeddings, but %s differs from %s", l->folder,
                            head_name, embedding_name);
    }
    return DLC_OK;
}

dlc_err dlc_model_folder_params(float *params, const struct dlc_model_config *config, const char *folder)
{
    struct loader l = { .params = params, .config = config, .folder = folder };
    dlc_err err;

    DLC_TRY(dlc_model_config_check(config));
    DLC_TRY(dlc_model_params_table(&l.table, &l.n_table, config));
    l.seen = dlc_calloc(l.n_table, sizeof *l.seen);
    err = l.seen ? load_all(&l) : DLC_ENOMEM;
    dlc_free(l.tied_head);
    dlc_free(l.seen);
    dlc_free(l.table);
    return err;
}
