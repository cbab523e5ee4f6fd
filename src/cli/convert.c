#include "cli/convert.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

dlc_err dlc_convert_check_folder(const char *path)
{
    struct dlc_names names;
    size_t n;

    if (!dlc_file_exists(path))
        return DLC_OK;
    if (!dlc_is_folder(path))
        return dlc_fail(DLC_EUSAGE, "--out %s is a file; a new or empty folder is needed", path);
    DLC_TRY(dlc_list_folder(&names, path));
    n = names.n;
    dlc_names_free(&names);
    if (n > 0)
        return dlc_fail(DLC_EUSAGE, "--out %s has files in it; a new or empty folder is needed", path);
    return DLC_OK;
}

dlc_err dlc_convert_check_gguf(const char *path)
{
    char magic[4] = { 0 };
    FILE *f;

    if (dlc_is_folder(path))
        return dlc_fail(DLC_EUSAGE, "--out %s is a folder; the name of a file is needed, like %s/model.gguf", path,
                        path);
    if (!dlc_file_exists(path))
        return DLC_OK;
    f = fopen(path, "rb");
    if (!f)
        return dlc_fail_errno(DLC_EIO, "%s", path);
    if (fread(magic, 1, sizeof magic, f) != sizeof magic)
        magic[0] = 0;
    fclose(f);
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return dlc_fail(DLC_EUSAGE, "--out %s is there and no GGUF file; it is not replaced", path);
    return DLC_OK;
}

dlc_err dlc_convert_print(const char *path, const char *format, dlc_stored dtype,
                          const struct dlc_model_content *content, bool as_json)
{
    size_t n = dlc_model_n_params(&content->config);
    char *text;
    json_t *v;

    if (!as_json) {
        printf("%s: %s in %s, %zu parameters, %s\n", path, content->config.qk_norm ? "Qwen3" : "Llama",
               dlc_stored_name(dtype), n, content->tokenizer_json ? "with its tokenizer" : "no tokenizer");
        return DLC_OK;
    }
    v = json_pack("{s:s, s:s, s:s, s:I, s:b}", "path", path, "format", format, "dtype", dlc_stored_name(dtype),
                  "parameters", (json_int_t)n, "tokenizer", content->tokenizer_json != NULL);
    text = v ? dlc_json_dump(v) : NULL;
    json_decref(v);
    if (!text)
        return dlc_fail(DLC_ENOMEM, "out of memory, or %s is not UTF-8", path);
    printf("%s\n", text);
    dlc_free(text);
    return DLC_OK;
}
