#include "ckpt/ckpt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/manifest.h"

static const char partial_prefix[] = ".partial-";
static const char name_prefix[] = "outer-";

enum { NAME_MAX_BYTES = 32, MAX_LATEST_BYTES = 256 };

static void format_name(char out[NAME_MAX_BYTES], uint64_t outer_step)
{
    snprintf(out, NAME_MAX_BYTES, "%s%06llu", name_prefix, (unsigned long long)outer_step);
}

/* Whether `name` is exactly what format_name gives for a step. */
static int parse_name(uint64_t *outer_step, const char *name)
{
    char canonical[NAME_MAX_BYTES];

    if (strncmp(name, name_prefix, sizeof name_prefix - 1) != 0)
        return 0;
    *outer_step = strtoull(name + sizeof name_prefix - 1, NULL, 10);
    format_name(canonical, *outer_step);
    return *outer_step <= INT64_MAX && strcmp(canonical, name) == 0;
}

static dlc_err checkpoints_path(char out[DLC_PATH_MAX], const char *run_folder)
{
    return dlc_path_join(out, run_folder, "checkpoints");
}

static dlc_err step_path(char out[DLC_PATH_MAX], const char *run_folder, const char *prefix, uint64_t outer_step)
{
    char folder[DLC_PATH_MAX], name[NAME_MAX_BYTES], full[2 * NAME_MAX_BYTES];

    if (outer_step > INT64_MAX)
        return dlc_fail(DLC_EUSAGE, "outer step %llu is too large", (unsigned long long)outer_step);
    format_name(name, outer_step);
    snprintf(full, sizeof full, "%s%s", prefix, name);
    DLC_TRY(checkpoints_path(folder, run_folder));
    return dlc_path_join(out, folder, full);
}

/* The name in `latest`, and its step; DLC_ENOTFOUND when there is no such file. */
static dlc_err read_latest(uint64_t *outer_step, const char *run_folder)
{
    char path[DLC_PATH_MAX];
    struct dlc_buf b = { 0 };
    dlc_err err;

    DLC_TRY(dlc_path_join(path, run_folder, "latest"));
    err = dlc_file_read(&b, path, MAX_LATEST_BYTES);
    if (err == DLC_OK) {
        b.data[strcspn(b.data, "\n")] = '\0';
        if (!parse_name(outer_step, b.data))
            err = dlc_fail(DLC_EINPUT, "%s: \"%.60s\" is not the name of a checkpoint", path, b.data);
    }
    dlc_buf_fini(&b);
    return err;
}

/* The steps of all folders with a checkpoint's name, newest first. A missing folder has none. Free with dlc_free. */
static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x == y ? 0 : x > y ? -1 : 1;
}

static dlc_err list_steps(uint64_t **out, size_t *n, const char *run_folder)
{
    char folder[DLC_PATH_MAX];
    struct dlc_names names;
    dlc_err err;

    *out = NULL;
    *n = 0;
    DLC_TRY(checkpoints_path(folder, run_folder));
    err = dlc_list_folder(&names, folder);
    if (err != DLC_OK)
        return err == DLC_ENOTFOUND ? DLC_OK : err;
    *out = dlc_calloc(names.n, sizeof **out);
    if (!*out) {
        dlc_names_free(&names);
        return DLC_ENOMEM;
    }
    for (size_t i = 0; i < names.n; i++)
        *n += (size_t)parse_name(&(*out)[*n], names.names[i]);
    dlc_names_free(&names);
    if (*n > 1)
        qsort(*out, *n, sizeof **out, newest_first);
    return DLC_OK;
}

dlc_err dlc_ckpt_begin(char out_folder[DLC_PATH_MAX], const char *run_folder, uint64_t outer_step)
{
    char folder[DLC_PATH_MAX];

    DLC_TRY(checkpoints_path(folder, run_folder));
    DLC_TRY(dlc_mkdir_p(folder));
    DLC_TRY(step_path(out_folder, run_folder, partial_prefix, outer_step));
    DLC_TRY(dlc_remove_tree(out_folder));
    if (mkdir(out_folder, 0777) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: folder cannot be made", out_folder);
    return DLC_OK;
}

/* Complete as far as can be told without reading the data: manifest whole, every file there with its size. */
static dlc_err check_quickly(const char *folder)
{
    json_t *manifest;
    dlc_err err;

    DLC_TRY(dlc__manifest_read(&manifest, folder));
    err = dlc__manifest_compare(manifest, folder, 0);
    json_decref(manifest);
    return err;
}

/* Makes room under the final name. What is there and not a whole checkpoint does not count and goes. */
static dlc_err clear_final(const char *final)
{
    dlc_err err;

    if (!dlc_file_exists(final))
        return DLC_OK;
    err = dlc_ckpt_verify(final, NULL);
    if (err == DLC_OK)
        return dlc_fail(DLC_EFAIL, "%s: this checkpoint is complete already and is not replaced", final);
    if (err == DLC_ENOMEM)
        return err;
    dlc_warn("%s; replacing this checkpoint", dlc_err_text());
    return dlc_remove_tree(final);
}

static dlc_err commit(const char *run_folder, const char *partial, uint64_t outer_step, const json_t *info)
{
    char final[DLC_PATH_MAX], folder[DLC_PATH_MAX];

    DLC_TRY(step_path(final, run_folder, "", outer_step));
    DLC_TRY(checkpoints_path(folder, run_folder));
    DLC_TRY(dlc__manifest_write(partial, outer_step, info));
    DLC_TRY(dlc_fsync_folder(partial));
    DLC_TRY(clear_final(final));
    if (rename(partial, final) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be put in place", final);
    DLC_TRY(dlc_fsync_folder(folder));
    return dlc_fsync_folder(run_folder); /* the first checkpoint also made the folder above */
}

dlc_err dlc_ckpt_commit(const char *run_folder, uint64_t outer_step, const json_t *info)
{
    char partial[DLC_PATH_MAX];
    dlc_err err;

    DLC_TRY(step_path(partial, run_folder, partial_prefix, outer_step));
    if (!dlc_is_folder(partial))
        return dlc_fail(DLC_EFAIL, "%s: no checkpoint was begun here", partial);
    err = commit(run_folder, partial, outer_step, info);
    if (err != DLC_OK)
        dlc_ckpt_abort(run_folder, outer_step);
    return err;
}

void dlc_ckpt_abort(const char *run_folder, uint64_t outer_step)
{
    char partial[DLC_PATH_MAX], reason[1024];

    snprintf(reason, sizeof reason, "%s", dlc_err_text()); /* cleaning up keeps the first error */
    if (step_path(partial, run_folder, partial_prefix, outer_step) == DLC_OK && dlc_remove_tree(partial) != DLC_OK)
        dlc_warn("an unfinished checkpoint stays behind: %s", dlc_err_text());
    dlc_fail(DLC_EFAIL, "%s", reason);
}

static dlc_err check_step(const json_t *manifest, const char *folder)
{
    int64_t in_manifest;
    uint64_t in_name;
    const char *slash;
    char name[DLC_PATH_MAX];
    size_t n = strlen(folder);

    while (n > 1 && folder[n - 1] == '/')
        n--;
    snprintf(name, sizeof name, "%.*s", (int)n, folder);
    slash = strrchr(name, '/');
    DLC_TRY(dlc_json_get_int(&in_manifest, manifest, "outer_step", 0, INT64_MAX, folder));
    if (parse_name(&in_name, slash ? slash + 1 : name) && in_name != (uint64_t)in_manifest)
        return dlc_fail(DLC_EINPUT, "%s/%s: of outer step %lld, which does not fit the folder's name", name,
                        DLC__MANIFEST_NAME, (long long)in_manifest);
    return DLC_OK;
}

dlc_err dlc_ckpt_verify(const char *folder, json_t **info)
{
    json_t *manifest;
    dlc_err err;

    if (info)
        *info = NULL;
    if (!dlc_file_exists(folder))
        return dlc_fail(DLC_ENOTFOUND, "%s: no such checkpoint", folder);
    DLC_TRY(dlc__manifest_read(&manifest, folder));
    err = check_step(manifest, folder);
    if (err == DLC_OK)
        err = dlc__manifest_compare(manifest, folder, 1);
    if (err == DLC_OK && info)
        *info = json_incref(json_object_get(manifest, "info"));
    json_decref(manifest);
    return err;
}

dlc_err dlc_ckpt_set_latest(const char *run_folder, uint64_t outer_step)
{
    char path[DLC_PATH_MAX], folder[DLC_PATH_MAX], name[NAME_MAX_BYTES + 1];

    DLC_TRY(step_path(folder, run_folder, "", outer_step));
    if (!dlc_is_folder(folder))
        return dlc_fail(DLC_EFAIL, "%s: no such checkpoint, `latest` stays as it is", folder);
    DLC_TRY(dlc_path_join(path, run_folder, "latest"));
    format_name(name, outer_step);
    snprintf(name + strlen(name), sizeof name - strlen(name), "\n");
    return dlc_file_write_atomic(path, name, strlen(name));
}

/* The first of the steps that verifies. Out of memory is no reason to take an older one. */
static dlc_err first_complete(char out_folder[DLC_PATH_MAX], uint64_t *outer_step, const char *run_folder,
                              const uint64_t *steps, size_t n)
{
    dlc_err err = DLC_OK;

    for (size_t i = 0; i < n; i++) {
        DLC_TRY(step_path(out_folder, run_folder, "", steps[i]));
        err = dlc_ckpt_verify(out_folder, NULL);
        if (err == DLC_OK) {
            *outer_step = steps[i];
            return DLC_OK;
        }
        if (err == DLC_ENOMEM)
            return err;
        dlc_warn("checkpoint skipped: %s", dlc_err_text());
    }
    return dlc_fail(DLC_EINPUT, "%s: %zu checkpoints and none is whole; the oldest one: %s", run_folder, n,
                    dlc_err_text());
}

static dlc_err warn_about_latest(const char *run_folder, uint64_t found)
{
    uint64_t named;
    dlc_err err = read_latest(&named, run_folder);

    if (err == DLC_ENOMEM)
        return err;
    if (err == DLC_OK && named > found)
        dlc_warn("%s/latest names %s%06llu, which cannot be used; going back to %s%06llu", run_folder, name_prefix,
                 (unsigned long long)named, name_prefix, (unsigned long long)found);
    if (err != DLC_OK && err != DLC_ENOTFOUND) /* not there: the crash came before the first checkpoint was named */
        dlc_warn("%s; the newest complete checkpoint is taken: %s%06llu", dlc_err_text(), name_prefix,
                 (unsigned long long)found);
    return DLC_OK;
}

dlc_err dlc_ckpt_find(char out_folder[DLC_PATH_MAX], uint64_t *outer_step, const char *run_folder)
{
    uint64_t *steps;
    size_t n;
    dlc_err err;

    DLC_TRY(list_steps(&steps, &n, run_folder));
    if (n == 0)
        err = dlc_fail(DLC_ENOTFOUND, "%s: no checkpoint in this run folder", run_folder);
    else
        err = first_complete(out_folder, outer_step, run_folder, steps, n);
    dlc_free(steps);
    return err == DLC_OK ? warn_about_latest(run_folder, *outer_step) : err;
}

static dlc_err remove_partials(const char *run_folder)
{
    char folder[DLC_PATH_MAX], path[DLC_PATH_MAX];
    struct dlc_names names;
    dlc_err err;

    DLC_TRY(checkpoints_path(folder, run_folder));
    err = dlc_list_folder(&names, folder);
    for (size_t i = 0; err == DLC_OK && i < names.n; i++) {
        if (strncmp(names.names[i], partial_prefix, sizeof partial_prefix - 1) != 0)
            continue;
        err = dlc_path_join(path, folder, names.names[i]);
        if (err == DLC_OK)
            err = dlc_remove_tree(path);
    }
    dlc_names_free(&names);
    return err == DLC_ENOTFOUND ? DLC_OK : err;
}

/* By way of a partial name: cut off half-way it must not look like a damaged checkpoint. */
static dlc_err remove_step(const char *run_folder, uint64_t outer_step)
{
    char path[DLC_PATH_MAX], partial[DLC_PATH_MAX];

    DLC_TRY(step_path(path, run_folder, "", outer_step));
    DLC_TRY(step_path(partial, run_folder, partial_prefix, outer_step));
    if (rename(path, partial) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be removed", path);
    return dlc_remove_tree(partial);
}

static dlc_err remove_old(const char *run_folder, const uint64_t *steps, size_t n, int keep)
{
    char path[DLC_PATH_MAX];
    uint64_t latest = 0;
    int kept = 0, named;
    dlc_err err = read_latest(&latest, run_folder);

    named = err == DLC_OK;
    if (err != DLC_OK && err != DLC_ENOTFOUND && err != DLC_EINPUT)
        return err;                  /* nothing goes as long as it is not known what is named */
    for (size_t i = 0; i < n; i++) { /* newest first */
        DLC_TRY(step_path(path, run_folder, "", steps[i]));
        err = check_quickly(path);
        if (err == DLC_ENOMEM)
            return err;
        if (err == DLC_OK && kept < keep) {
            kept++;
            continue;
        }
        if (kept == 0 || (named && steps[i] == latest))
            continue; /* damaged, but there is nothing better; or in use */
        DLC_TRY(remove_step(run_folder, steps[i]));
    }
    return DLC_OK;
}

dlc_err dlc_ckpt_retain(const char *run_folder, int keep)
{
    uint64_t *steps;
    size_t n;
    dlc_err err;

    if (keep < 1)
        return dlc_fail(DLC_EUSAGE, "%d checkpoints to keep, must be at least 1", keep);
    DLC_TRY(remove_partials(run_folder));
    DLC_TRY(list_steps(&steps, &n, run_folder));
    err = remove_old(run_folder, steps, n, keep);
    dlc_free(steps);
    return err;
}
