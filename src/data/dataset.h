/* Token shards (llm.c's .bin layout with a meta.json beside them) as one addressable set of training windows.
 *
 * A window is T+1 consecutive tokens of one shard: T inputs and T targets; windows of a shard follow each other with
 * stride T, the rest of a shard shorter than a window is not used. Sample k of a pool (k counts up for ever) is window
 * perm_e(k mod n) in epoch e = k / n, with perm_e a seeded Feistel permutation: random access, no state, and the order
 * depends on the seed alone, never on how many islands there are.
 *
 * A pool is what islands draw from: one pool with everything (iid), or one per source label (non-iid). */
#ifndef DLC_DATA_DATASET_H
#define DLC_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"

typedef enum { DLC_DEAL_IID, DLC_DEAL_SOURCE } dlc_deal;

struct dlc_dataset_info {
    int vocab_size;
    int32_t eot; /* -1: not known (shards without meta.json) */
    uint64_t n_train_tokens, n_val_tokens;
    uint64_t n_val_bytes; /* bytes of text behind the validation tokens: makes bits per byte computable */
    struct dlc_sha256 tokenizer_digest;
    struct dlc_sha256 digest; /* of the whole set: shard hashes and tokenizer, in order */
};

typedef struct dlc_dataset dlc_dataset;

/* Opens folder/meta.json and its shards (read-only; a file each stays open) and checks headers, lengths, digests, every token id
 * against the vocabulary, and tokenizer.json against the digest that the shards were made with. context = T.
 * A folder of *_train_*.bin and *_val_*.bin without meta.json, as other programs write them, is taken too: the
 * vocabulary is the largest id + 1, eot -1, tokenizer digest zeros, n_val_bytes 0. DLC_DEAL_SOURCE: a source without a
 * single window is no pool; a warning says so. When no window of T+1 tokens exists: DLC_EINPUT with T, the tokens there
 * are, and the largest T that would work. */
dlc_err dlc_dataset_open(dlc_dataset **out, const char *folder, int context, dlc_deal deal, uint64_t seed);
/* The same but for reading the shards through: for a process whose parent has just done that and compares the digest of
 * meta.json. Ids are still checked as they are read. A folder without meta.json is read through all the same. */
dlc_err dlc_dataset_open_checked(dlc_dataset **out, const char *folder, int context, dlc_deal deal, uint64_t seed);
/* Windows of another length; `deal` and `folder` as they were. After an error the set can only be closed. */
dlc_err dlc_dataset_set_context(dlc_dataset *d, int context, dlc_deal deal, const char *folder);
void dlc_dataset_close(dlc_dataset *d); /* accepts NULL */
const struct dlc_dataset_info *dlc_dataset_info(const dlc_dataset *d);

int dlc_dataset_n_pools(const dlc_dataset *d);
const char *dlc_dataset_pool_name(const dlc_dataset *d, int pool); /* source label, "all" when iid */
uint64_t dlc_dataset_pool_windows(const dlc_dataset *d, int pool); /* windows in one epoch */

/* tokens[T], targets[T] of sample k. DLC_EIO; DLC_EINPUT when the file has changed since it was opened. Allocates
 * nothing. */
dlc_err dlc_dataset_sample(const dlc_dataset *d, int pool, uint64_t k, int32_t *tokens, int32_t *targets);
/* Sample k will be wanted soon: asks the system to read it meanwhile, and does not wait. */
void dlc_dataset_prefetch(const dlc_dataset *d, int pool, uint64_t k);

/* The fixed validation set: the shards of the split one after the other as one sequence, in windows with stride T, in
 * that order. n_windows covers max_tokens at most (0: all; one window at least); fewer than there are: spread evenly,
 * so that every source has its share. When the split is shorter than one window its one window is shortened: *seq_len
 * tells
 * (<= T); n_bytes: text bytes of these targets, proportional when a part of the split is used.
 * DLC_ENOTFOUND when the data have no validation split. */
struct dlc_val_set {
    uint64_t n_windows;
    int seq_len;
    double n_bytes;
};
dlc_err dlc_dataset_val_set(struct dlc_val_set *out, const dlc_dataset *d, uint64_t max_tokens);
dlc_err dlc_dataset_val_window(const dlc_dataset *d, const struct dlc_val_set *set, uint64_t index, int32_t *tokens,
                               int32_t *targets); /* fails as dlc_dataset_sample */

#endif
