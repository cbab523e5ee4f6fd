#include "train/paused.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "ckpt/safetensors.h"
#include "island/trainer.h"

#define PAUSED_MAX_BYTES ((size_t)64 << 20)

dlc_err dlc_paused_write(const char *run_folder, json_t *rows, uint64_t t)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, run_folder, "paused.json"));
    if (json_object_set_new(rows, "outer_step", json_integer((json_int_t)t)) != 0)
        return dlc_fail(DLC_ENOMEM, "out of memory: %s", path);
    return dlc_json_write_file(path, rows);
}

dlc_err dlc_paused_remove(const char *run_folder)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, run_folder, "paused.json"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    DLC_TRY(dlc_remove_tree(path));
    return dlc_fsync_folder(run_folder);
}

static dlc_err island_path(char out[DLC_PATH_MAX], const char *run_folder, int island)
{
    char folder[DLC_PATH_MAX];

    DLC_TRY(dlc_island_folder(folder, run_folder, island));
    return dlc_path_join(out, folder, "paused.safetensors");
}

/* Inner steps of the round in the file; 0: there is none, or none that can be read. */
static dlc_err steps_done(int64_t *out, const char *path)
{
    dlc_st_file *f = NULL;
    const char *text;
    dlc_err err;

    *out = 0;
    if (!dlc_file_exists(path))
        return DLC_OK;
    err = dlc_st_open(&f, path);
    if (err == DLC_ENOMEM)
        return err;
    if (err != DLC_OK) {
        dlc_warn("%s; this island starts the round again", dlc_err_text());
        return dlc_remove_tree(path);
    }
    text = dlc_st_metadata(f, "n_done");
    *out = text ? strtoll(text, NULL, 10) : 0;
    dlc_st_close(f);
    return DLC_OK;
}

static dlc_err remove_files(const char *run_folder, int n_islands)
{
    char path[DLC_PATH_MAX];

    for (int i = 0; i < n_islands; i++) {
        DLC_TRY(island_path(path, run_folder, i));
        DLC_TRY(dlc_remove_tree(path));
    }
    return DLC_OK;
}

static dlc_err are_alike(bool *out, const char *run_folder, int n_islands)
{
    char path[DLC_PATH_MAX];
    int64_t first = 0, n;

    *out = true;
    for (int i = 0; i < n_islands; i++) {
        DLC_TRY(island_path(path, run_folder, i));
        DLC_TRY(steps_done(&n, path));
        if (i == 0)
            first = n;
        *out = *out && n == first;
    }
    return DLC_OK;
}

static dlc_err read_rows(json_t **rows, const char *run_folder, uint64_t t)
{
    char path[DLC_PATH_MAX];
    int64_t step;
    dlc_err err;

    *rows = NULL;
    DLC_TRY(dlc_path_join(path, run_folder, "paused.json"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    err = dlc_json_read_file(rows, path, PAUSED_MAX_BYTES);
    if (err == DLC_OK)
        err = dlc_json_get_int(&step, *rows, "outer_step", 0, INT64_MAX, path);
    if (err == DLC_OK && (uint64_t)step == t)
        return DLC_OK;
    if (err != DLC_OK && err != DLC_ENOMEM)
        dlc_warn("%s; the round starts again", dlc_err_text());
    json_decref(*rows);
    *rows = NULL;
    return err == DLC_ENOMEM ? err : DLC_OK;
}

dlc_err dlc_paused_read(json_t **rows, const char *run_folder, uint64_t t, int n_islands, bool all_alike)
{
    bool alike;
    dlc_err err;

    DLC_TRY(read_rows(rows, run_folder, t));
    err = *rows ? are_alike(&alike, run_folder, n_islands) : DLC_OK;
    if (err == DLC_OK && (!*rows || (all_alike && !alike)))
        err = remove_files(run_folder, n_islands);
    if (err != DLC_OK) {
        json_decref(*rows);
        *rows = NULL;
    }
    return err;
}
