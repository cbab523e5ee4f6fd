/* Writing shards: one chain of files for each split and source, filled side by side as documents come. Files have
 * working names until dlc_shard_writer_publish; nothing in the folder that a reader uses changes before. No file stays
 * open between calls, so the number of sources does not meet the limit on open files. */
#ifndef DLC_DATA_SHARD_WRITER_H
#define DLC_DATA_SHARD_WRITER_H

#include <xxhash.h>

#include "base/buf.h"
#include "base/file.h"
#include "data/meta.h"

/* One file. */
struct dlc_shard_part {
    bool val;
    int source;
    bool closed; /* header and digest are written */
    uint64_t n_tokens, n_bytes, xxh3;
};

/* Where tokens of one split and source go. */
struct dlc_shard_stream {
    int part; /* being filled; -1: none */
    struct dlc_buf pending;
    XXH3_state_t *hash;
};

struct dlc_shard_writer {
    char folder[DLC_PATH_MAX];
    int width;
    uint64_t shard_tokens;
    uint32_t *token_bytes;                                /* text bytes behind each id, borrowed */
    struct dlc_shard_stream streams[2 * DLC_SOURCES_MAX]; /* 2 * source + val */
    struct dlc_shard_part *parts;
    size_t n_parts, parts_cap;
};

static inline int dlc_shard_stream_index(int source, bool val)
{
    return 2 * source + val;
}

/* Large: allocate it. token_bytes stays the caller's. */
void dlc_shard_writer_init(struct dlc_shard_writer *w, const char *folder, int width, uint64_t shard_tokens,
                           uint32_t *token_bytes);
void dlc_shard_writer_fini(struct dlc_shard_writer *w);

dlc_err dlc_shard_writer_add(struct dlc_shard_writer *w, int stream, const int32_t *ids, size_t n);
dlc_err dlc_shard_writer_close_all(struct dlc_shard_writer *w); /* every part complete and durable */

uint64_t dlc_shard_writer_n_tokens(const struct dlc_shard_writer *w, bool val);
/* Of one source and split. */
uint64_t dlc_shard_writer_source_tokens(const struct dlc_shard_writer *w, int source, bool val);

/* All parts closed: the last `n` training tokens of `source` become validation tokens, with `mark` before them. */
dlc_err dlc_shard_writer_move_tail(struct dlc_shard_writer *w, int source, uint64_t n, int32_t mark);
/* All parts closed: validation becomes training. */
void dlc_shard_writer_val_to_train(struct dlc_shard_writer *w);

/* Gives the files their names ("{name}_train_000000.bin", numbered by source) and lists them. Removes files with such
 * names that are not in the list. *shards is the caller's (dlc_free). */
dlc_err dlc_shard_writer_publish(struct dlc_shard_info **shards, size_t *n_shards, struct dlc_shard_writer *w,
                                 const char *name);

/* Removes working files, of this run or an earlier one. */
dlc_err dlc_shard_remove_parts(const char *folder);

#endif
