/* Runs a fuzz target over files, without a fuzzer: every path of the command line, folders one level deep. An ordinary
 * test of the ordinary build, so that what the fuzzer once found stays found. */
#include <stdint.h>
#include <stdio.h>

#include "base/file.h"

#define SEED_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    struct dlc_buf b = { 0 };
    dlc_err err = dlc_file_read(&b, path, SEED_MAX);

    if (err == DLC_OK)
        LLVMFuzzerTestOneInput((const uint8_t *)b.data, b.len);
    else
        fprintf(stderr, "%s\n", dlc_err_text());
    dlc_buf_fini(&b);
    return err == DLC_OK ? 1 : -1;
}

/* How many inputs were run, -1 when one could not be read. */
static int replay(const char *path)
{
    struct dlc_names names;
    int n = 0;

    if (!dlc_is_folder(path))
        return replay_file(path);
    if (dlc_list_folder(&names, path) != DLC_OK)
        return -1;
    for (size_t i = 0; i < names.n && n >= 0; i++) {
        char file[DLC_PATH_MAX];

        n = dlc_path_join(file, path, names.names[i]) == DLC_OK && replay_file(file) == 1 ? n + 1 : -1;
    }
    dlc_names_free(&names);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;

    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);

        if (n < 0)
            return 1;
        total += n;
    }
    printf("%d inputs\n", total);
    return total > 0 ? 0 : 1;
}
