#include "island/identity.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"

dlc_err dlc_identity_write(const struct dlc_identity *identity, const char *folder)
{
    char path[DLC_PATH_MAX];
    json_t *v;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, folder, "island.json"));
    v = json_pack("{s:s, s:s, s:s, s:I}", "identity", identity->identity, "run", identity->run, "name", identity->name,
                  "incarnation", (json_int_t)identity->incarnation);
    err = v ? dlc_json_write_file(path, v) : dlc_fail(DLC_ENOMEM, "out of memory: %s", path);
    json_decref(v);
    return err;
}

static dlc_err take_text(char *out, size_t size, const json_t *v, const char *key, const char *path)
{
    const char *text;

    DLC_TRY(dlc_json_get_string(&text, v, key, path));
    if (strlen(text) >= size)
        return dlc_fail(DLC_EINPUT, "%s: \"%s\" is longer than %zu", path, key, size - 1);
    memcpy(out, text, strlen(text) + 1);
    return DLC_OK;
}

static dlc_err read_identity(struct dlc_identity *out, const char *path)
{
    int64_t incarnation;
    json_t *v = NULL;
    dlc_err err;

    DLC_TRY(dlc_json_read_file(&v, path, 65536));
    DLC_TRY_TO(done, take_text(out->identity, sizeof out->identity, v, "identity", path));
    DLC_TRY_TO(done, take_text(out->run, sizeof out->run, v, "run", path));
    DLC_TRY_TO(done, take_text(out->name, sizeof out->name, v, "name", path));
    DLC_TRY_TO(done, dlc_json_get_int(&incarnation, v, "incarnation", 0, UINT32_MAX - 1, path));
    out->incarnation = (uint32_t)incarnation;
done:
    json_decref(v);
    return err;
}

dlc_err dlc_identity_begin(struct dlc_identity *out, const char *folder, const char *run)
{
    char path[DLC_PATH_MAX];

    *out = (struct dlc_identity){ .incarnation = 0 };
    DLC_TRY(dlc_path_join(path, folder, "island.json"));
    if (dlc_file_exists(path)) {
        DLC_TRY(read_identity(out, path));
        if (strcmp(out->run, run) != 0)
            return dlc_fail(DLC_EINPUT, "%s belongs to an island of run %s, the line is of run %s; give another --out",
                            folder, out->run, run);
    } else {
        snprintf(out->run, sizeof out->run, "%s", run);
        DLC_TRY(dlc_random_hex(out->identity, 16));
    }
    out->incarnation++;
    return dlc_identity_write(out, folder);
}
