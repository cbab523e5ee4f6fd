/* meta.json: what a prepared folder consists of. Written last: a folder without it is not finished. */
#ifndef DLC_DATA_META_H
#define DLC_DATA_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "data/inputs.h"

#define DLC_SHARD_NAME_BYTES 200
#define DLC_SOURCES_MAX 256
#define DLC_META_BYTES_MAX ((size_t)64 << 20)

struct dlc_shard_info {
    char name[DLC_SHARD_NAME_BYTES]; /* a plain file name in the folder */
    bool val;
    int source;
    uint64_t n_tokens;
    uint64_t n_bytes; /* of text behind the tokens */
    uint64_t xxh3;    /* of the file after the header */
};

struct dlc_data_meta {
    struct dlc_sha256 tokenizer_digest;
    int vocab_size;
    int32_t eot;
    int width;             /* bytes a token in the shards */
    const char *val_split; /* "hash", "tail" or "none"; a constant */
    double val_fraction;
    uint64_t n_documents, n_bytes, n_invalid_utf8, n_skipped;
    char (*sources)[DLC_LABEL_BYTES];
    int n_sources;
    struct dlc_shard_info *shards;
    size_t n_shards;
};

dlc_err dlc_data_meta_write(const char *path, const struct dlc_data_meta *meta);
/* DLC_EINPUT with the reason. On failure there is nothing to free. Fuzzed. */
dlc_err dlc_data_meta_parse(struct dlc_data_meta *out, const char *text, size_t size_bytes, const char *where);
void dlc_data_meta_fini(struct dlc_data_meta *meta);

/* Identity of the data: SHA-256 over one line for the tokenizer and one for each shard, in order. */
dlc_err dlc_data_meta_digest(struct dlc_sha256 *out, const struct dlc_data_meta *meta);

#endif
