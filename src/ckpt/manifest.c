#include "ckpt/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define HEX_DIGITS (DLC_SHA256_HEX - 1)

static const char opening[] = "{\n  \"self_sha256\": \""; /* the digest's place in the file is fixed */
static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";

enum { MAX_MANIFEST_BYTES = 64 << 20 };

/* SHA-256 of the text with its own 64 digits as zeros; the text is at least that long. */
static dlc_err self_digest(char hex[DLC_SHA256_HEX], const char *text, size_t size_bytes)
{
    const size_t head = sizeof opening - 1;
    struct dlc_sha256 digest;
    dlc_sha256_ctx *ctx;

    DLC_TRY(dlc_sha256_create(&ctx));
    dlc_sha256_update(ctx, text, head);
    dlc_sha256_update(ctx, zeros, HEX_DIGITS);
    dlc_sha256_update(ctx, text + head + HEX_DIGITS, size_bytes - head - HEX_DIGITS);
    digest = dlc_sha256_final(ctx);
    dlc_sha256_destroy(ctx);
    dlc_sha256_to_hex(hex, &digest);
    return DLC_OK;
}

static dlc_err make_durable(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    dlc_err err = DLC_OK;

    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s", path);
    if (fsync(fd) != 0)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be made durable", path);
    close(fd);
    return err;
}

/* Size of a plain file; a missing file and anything that is not one is `code`. */
static dlc_err plain_file_size(uint64_t *out, const char *path, dlc_err code)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return errno == ENOENT ? dlc_fail(code, "%s: is missing", path) : dlc_fail_errno(DLC_EIO, "%s", path);
    if (!S_ISREG(st.st_mode))
        return dlc_fail(code, "%s: %s, a checkpoint has only plain files", path,
                        S_ISDIR(st.st_mode) ? "a folder" : "not a plain file");
    *out = (uint64_t)st.st_size;
    return DLC_OK;
}

static dlc_err describe_file(json_t *files, const char *folder, const char *name)
{
    char path[DLC_PATH_MAX], hex[DLC_SHA256_HEX];
    struct dlc_sha256 digest;
    uint64_t size_bytes = 0;
    json_t *entry;

    DLC_TRY(dlc_path_join(path, folder, name));
    DLC_TRY(plain_file_size(&size_bytes, path, DLC_EFAIL));
    DLC_TRY(make_durable(path));
    DLC_TRY(dlc_sha256_file(&digest, path));
    dlc_sha256_to_hex(hex, &digest);
    entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)size_bytes, "sha256", hex);
    if (!entry)
        return dlc_fail(DLC_ENOMEM, "out of memory: manifest of %s", folder);
    if (json_object_set_new(files, name, entry) != 0)
        return dlc_fail(DLC_ENOMEM, "%s: out of memory for the manifest, or the name is not UTF-8", path);
    return DLC_OK;
}

static dlc_err describe_files(json_t *files, const char *folder)
{
    struct dlc_names names;
    dlc_err err = dlc_list_folder(&names, folder);

    for (size_t i = 0; err == DLC_OK && i < names.n; i++) {
        if (strcmp(names.names[i], DLC__MANIFEST_NAME) != 0)
            err = describe_file(files, folder, names.names[i]);
    }
    dlc_names_free(&names);
    return err;
}

static dlc_err write_text(const char *folder, const json_t *manifest)
{
    char path[DLC_PATH_MAX], hex[DLC_SHA256_HEX], *text;
    struct dlc_buf b = { 0 };
    dlc_err err;

    DLC_TRY(dlc_path_join(path, folder, DLC__MANIFEST_NAME));
    text = dlc_json_dump_indented(manifest);
    if (!text)
        return dlc_fail_context(DLC_ENOMEM, "%s", path);
    err = dlc_buf_printf(&b, "%s\n", text);
    dlc_free(text);
    if (err == DLC_OK)
        err = self_digest(hex, b.data, b.len);
    if (err == DLC_OK) {
        memcpy(b.data + sizeof opening - 1, hex, HEX_DIGITS);
        err = dlc_file_write_atomic(path, b.data, b.len);
    }
    dlc_buf_fini(&b);
    return err;
}

dlc_err dlc__manifest_write(const char *folder, uint64_t outer_step, const json_t *info)
{
    json_t *files = json_object();
    json_t *manifest =
        json_pack("{s:s, s:I, s:O}", "self_sha256", zeros, "outer_step", (json_int_t)outer_step, "files", files);
    json_t *copy = info ? json_deep_copy(info) : NULL;
    dlc_err err = DLC_OK;

    if (!manifest || (info && !copy) || (copy && json_object_set(manifest, "info", copy) != 0))
        err = dlc_fail(DLC_ENOMEM, "out of memory: manifest of %s", folder);
    if (err == DLC_OK)
        err = describe_files(files, folder);
    if (err == DLC_OK)
        err = write_text(folder, manifest);
    json_decref(copy);
    json_decref(files);
    json_decref(manifest);
    return err;
}

static dlc_err check_file(const char *name, const json_t *entry, const char *where)
{
    struct dlc_sha256 digest;
    const char *hex;
    int64_t size_bytes;

    if (name[0] == '\0' || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
        strcmp(name, DLC__MANIFEST_NAME) == 0)
        return dlc_fail(DLC_EINPUT, "%s: \"%.200s\" cannot be the name of a file of a checkpoint", where, name);
    if (!json_is_object(entry))
        return dlc_fail(DLC_EINPUT, "%s: the entry of \"%.200s\" is not an object", where, name);
    if (dlc_json_get_int(&size_bytes, entry, "bytes", 0, INT64_MAX, name) != DLC_OK ||
        dlc_json_get_string(&hex, entry, "sha256", name) != DLC_OK || dlc_sha256_from_hex(&digest, hex) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "%s", where);
    return DLC_OK;
}

dlc_err dlc__manifest_check(const json_t *manifest, const char *where)
{
    const char *name;
    json_t *files, *entry;
    int64_t outer_step;

    if (!json_is_object(manifest))
        return dlc_fail(DLC_EINPUT, "%s: not a JSON object", where);
    DLC_TRY(dlc_json_get_int(&outer_step, manifest, "outer_step", 0, INT64_MAX, where));
    DLC_TRY(dlc_json_get_object(&files, manifest, "files", where));
    json_object_foreach(files, name, entry) DLC_TRY(check_file(name, entry, where));
    return DLC_OK;
}

dlc_err dlc__manifest_parse(json_t **out, const char *text, size_t size_bytes, const char *where)
{
    const size_t head = sizeof opening - 1;
    char hex[DLC_SHA256_HEX];
    dlc_err err;

    *out = NULL;
    if (size_bytes < head + HEX_DIGITS || memcmp(text, opening, head) != 0)
        return dlc_fail(DLC_EINPUT, "%s: cut off or not a manifest: it does not begin with its own digest", where);
    DLC_TRY(self_digest(hex, text, size_bytes));
    if (memcmp(hex, text + head, HEX_DIGITS) != 0)
        return dlc_fail(DLC_EINPUT, "%s: damaged: its bytes do not have the digest it names", where);
    DLC_TRY(dlc_json_parse(out, text, size_bytes, where));
    err = dlc__manifest_check(*out, where);
    if (err != DLC_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return err;
}

dlc_err dlc__manifest_read(json_t **out, const char *folder)
{
    char path[DLC_PATH_MAX];
    struct dlc_buf b = { 0 };
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_path_join(path, folder, DLC__MANIFEST_NAME));
    err = dlc_file_read(&b, path, MAX_MANIFEST_BYTES);
    if (err == DLC_ENOTFOUND)
        err = dlc_fail(DLC_EINPUT, "%s: is missing; without it there is no checkpoint here", path);
    if (err == DLC_OK)
        err = dlc__manifest_parse(out, b.data, b.len, path);
    dlc_buf_fini(&b);
    return err;
}

static dlc_err compare_size(const char *path, const json_t *entry)
{
    int64_t expected;
    uint64_t size_bytes = 0;

    DLC_TRY(dlc_json_get_int(&expected, entry, "bytes", 0, INT64_MAX, path));
    DLC_TRY(plain_file_size(&size_bytes, path, DLC_EINPUT));
    if (size_bytes != (uint64_t)expected)
        return dlc_fail(DLC_EINPUT, "%s: has %llu bytes, the manifest says %lld", path, (unsigned long long)size_bytes,
                        (long long)expected);
    return DLC_OK;
}

static dlc_err compare_digest(const char *path, const json_t *entry)
{
    struct dlc_sha256 expected, digest;
    const char *hex;

    DLC_TRY(dlc_json_get_string(&hex, entry, "sha256", path));
    DLC_TRY(dlc_sha256_from_hex(&expected, hex));
    DLC_TRY(dlc_sha256_file(&digest, path));
    if (!dlc_sha256_equal(&digest, &expected))
        return dlc_fail(DLC_EINPUT, "%s: damaged: its SHA-256 is not the one in the manifest", path);
    return DLC_OK;
}

dlc_err dlc__manifest_compare(const json_t *manifest, const char *folder, int hash)
{
    json_t *files = json_object_get(manifest, "files"), *entry;
    char path[DLC_PATH_MAX];
    const char *name;

    json_object_foreach(files, name, entry)
    { /* sizes first: they cost nothing */
        DLC_TRY(dlc_path_join(path, folder, name));
        DLC_TRY(compare_size(path, entry));
    }
    json_object_foreach(files, name, entry)
    {
        if (!hash)
            break;
        DLC_TRY(dlc_path_join(path, folder, name));
        DLC_TRY(compare_digest(path, entry));
    }
    return DLC_OK;
}
