/* One piece of text to token ids: neighbours with the lowest-ranked merge are joined, leftmost first, until none is
 * left. Short pieces by repeated scans (the list fits in a cache line or two), long ones with a heap over a linked
 * list, O(n log n): a "word" of a million letters costs a fraction of a second, not hours. */
#ifndef DLC_DATA_BPE_MERGE_H
#define DLC_DATA_BPE_MERGE_H

#include "data/bpe_model.h"

struct dlc_bpe_scratch {
    struct dlc_buf nodes, heap; /* kept between calls; zero-initialise */
};

void dlc_bpe_scratch_fini(struct dlc_bpe_scratch *s);

/* Ids (int32) appended to `ids`. n <= DLC_BPE_PIECE_MAX. */
#define DLC_BPE_PIECE_MAX ((size_t)1 << 30)
dlc_err dlc_bpe_merge_piece(struct dlc_buf *ids, struct dlc_bpe_scratch *scratch, const struct dlc_bpe_model *m,
                            const char *piece, size_t n);

#endif
