/* A folder of shards from anybody. Input: length of meta.json (two bytes, little-endian), meta.json, one shard; the
 * shard is also opened without meta.json, as shards of other programs are. What opens must be readable to its ends. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/dataset.h"

#define CONTEXT 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/tmp/dlc-fuzz-XXXXXX";

static void put(const char *name, const void *bytes, size_t n)
{
    char path[DLC_PATH_MAX];
    FILE *f;

    if (dlc_path_join(path, folder, name) != DLC_OK || !(f = fopen(path, "wb")))
        abort();
    if (n > 0 && fwrite(bytes, 1, n, f) != n)
        abort();
    fclose(f);
}

static void read_ends(const dlc_dataset *d)
{
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct dlc_val_set v;

    for (int pool = 0; pool < dlc_dataset_n_pools(d); pool++) {
        uint64_t n = dlc_dataset_pool_windows(d, pool);

        for (uint64_t k = 0; k < (n < 500 ? n : 500); k++)
            if (dlc_dataset_sample(d, pool, k, tokens, targets) != DLC_OK)
                abort();
        for (int i = 0; i < CONTEXT; i++) {
            if (tokens[i] < 0 || tokens[i] >= dlc_dataset_info(d)->vocab_size)
                abort();
        }
    }
    if (dlc_dataset_val_set(&v, d, 0) != DLC_OK)
        return;
    dlc_dataset_val_window(d, &v, 0, tokens, targets);
    dlc_dataset_val_window(d, &v, v.n_windows - 1, tokens, targets);
}

static void open_and_read(dlc_deal deal)
{
    dlc_dataset *d;

    if (dlc_dataset_open(&d, folder, CONTEXT, deal, 1) != DLC_OK)
        return;
    read_ends(d);
    dlc_dataset_close(d);
}

static void remove_folder(void)
{
    (void)dlc_remove_tree(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int ready;
    char path[DLC_PATH_MAX];
    size_t n_meta;

    if (size < 2)
        return 0;
    if (!ready) {
        if (!mkdtemp(folder))
            abort();
        atexit(remove_folder);
        dlc_log_set_level(DLC_LOG_ERROR);
        put("tokenizer.json", "{}", 2);
        ready = 1;
    }
    n_meta = (size_t)data[0] | (size_t)data[1] << 8;
    if (n_meta > size - 2)
        n_meta = size - 2;
    put("s_train_000000.bin", data + 2 + n_meta, size - 2 - n_meta);
    put("s_val_000000.bin", data + 2 + n_meta, size - 2 - n_meta);
    put("meta.json", data + 2, n_meta);
    open_and_read(DLC_DEAL_SOURCE);
    if (dlc_path_join(path, folder, "meta.json") != DLC_OK || unlink(path) != 0)
        abort();
    open_and_read(DLC_DEAL_IID);
    return 0;
}
