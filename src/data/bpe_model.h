/* The vocabulary and the merges of a byte-level BPE: which bytes a token is, which token two neighbours become and how
 * early. Built once, read-only from then on; shared by all tokenizers made from it. */
#ifndef DLC_DATA_BPE_MODEL_H
#define DLC_DATA_BPE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define DLC_VOCAB_MAX (1 << 22) /* ids lie below this: bounds what a file can make us allocate */

typedef enum { DLC_TOKEN_NONE, DLC_TOKEN_TEXT, DLC_TOKEN_SPECIAL } dlc_token_kind;

struct dlc_bpe_token {
    size_t offset; /* in bytes_of_tokens */
    uint32_t size_bytes;
    dlc_token_kind kind;
};

struct dlc_bpe_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX in an unused slot */
    int32_t rank;  /* 0 merges first */
    int32_t id;    /* what the pair becomes */
};

struct dlc_bpe_model {
    int vocab_size; /* largest id + 1; ids below it without a token are DLC_TOKEN_NONE */
    struct dlc_bpe_token *tokens;
    int tokens_cap;
    struct dlc_buf bytes_of_tokens;
    int32_t byte_id[256]; /* -1: none */

    int32_t *by_bytes; /* open addressing over text tokens; -1 unused */
    size_t by_bytes_mask, n_text;

    struct dlc_bpe_merge *merges; /* open addressing */
    size_t merges_mask, n_merges;
};

dlc_err dlc_bpe_model_init(struct dlc_bpe_model *m);
void dlc_bpe_model_fini(struct dlc_bpe_model *m);

/* The id must be free and below DLC_VOCAB_MAX; for text tokens the bytes must be new. */
dlc_err dlc_bpe_model_add_token(struct dlc_bpe_model *m, int32_t id, dlc_token_kind kind, const char *bytes, size_t n);
/* The text token with these bytes, -1 when there is none. */
int32_t dlc_bpe_model_find(const struct dlc_bpe_model *m, const char *bytes, size_t n);
const char *dlc_bpe_model_bytes(const struct dlc_bpe_model *m, int32_t id);

/* *added false when the pair has a merge already. */
dlc_err dlc_bpe_model_add_merge(bool *added, struct dlc_bpe_model *m, int32_t left, int32_t right, int32_t id,
                                int32_t rank);

static inline uint64_t dlc_bpe_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline uint64_t dlc_bpe_pair_hash(uint64_t pair)
{
    pair *= 0x9e3779b97f4a7c15u;
    return pair ^ pair >> 29;
}

/* NULL when the two do not merge. */
static inline const struct dlc_bpe_merge *dlc_bpe_model_merge(const struct dlc_bpe_model *m, int32_t left,
                                                              int32_t right)
{
    uint64_t pair = dlc_bpe_pair(left, right);

    for (size_t i = dlc_bpe_pair_hash(pair) & m->merges_mask;; i = (i + 1) & m->merges_mask) {
        if (m->merges[i].pair == pair)
            return &m->merges[i];
        if (m->merges[i].pair == UINT64_MAX)
            return NULL;
    }
}

#endif
