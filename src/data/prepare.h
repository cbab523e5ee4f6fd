/* Text in, token shards out: what `diloco prepare` does. */
#ifndef DLC_DATA_PREPARE_H
#define DLC_DATA_PREPARE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct dlc_prepare_config {
    const char *const *inputs; /* files, folders, globs, "-" for standard input */
    size_t n_inputs;
    const char *out;          /* folder */
    const char *tokenizer;    /* path of a tokenizer.json; NULL: train one */
    const char *json_key;     /* "text" */
    const char *regex;        /* "gpt2" or "llama3", for a trained tokenizer */
    int vocab_size;           /* wanted; fewer when the corpus does not support it, said aloud */
    double val_fraction;      /* of documents, by hash */
    uint64_t shard_tokens;    /* 10^8 */
    uint64_t bpe_train_bytes; /* at most this much text is used to train the tokenizer */
    int n_threads;            /* 0: all cores */
};

struct dlc_prepare_result {
    uint64_t n_documents, n_bytes, n_train_tokens, n_val_tokens, n_invalid_utf8, n_skipped;
    int vocab_size;
};

/* Repeatable: the same input gives the same bytes, whatever the number of threads. Files get their names at the very
 * end, and meta.json is written last: an interrupted run leaves what was there before (a finished folder stays usable),
 * and running again starts over safely.
 *
 * One line each through dlc_info: progress with time left, and whatever was adjusted or left out.
 * DLC_EINPUT, DLC_ENOTFOUND name the file and, where there is one, the line or offset. */
dlc_err dlc_prepare(struct dlc_prepare_result *out, const struct dlc_prepare_config *config);

#endif
