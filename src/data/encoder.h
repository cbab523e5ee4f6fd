/* Encoding with several threads, results in the order of the texts. The owner fills one batch while the threads work on
 * another; what a batch holds does not depend on how many threads there are. */
#ifndef DLC_DATA_ENCODER_H
#define DLC_DATA_ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "data/tokenizer.h"

#define DLC_BATCH_BYTES ((size_t)8 << 20) /* a batch is full at this much text */

struct dlc_encode_item {
    size_t offset, size_bytes; /* in the batch's text */
    int stream;                /* the caller's; where its tokens go */
    bool starts_document;      /* the document mark stands before its tokens */
    size_t unit;
    size_t ids_begin, n_ids; /* in the unit's ids, once encoded */
};

struct dlc_encode_unit {
    size_t item_begin, item_end, size_bytes;
    struct dlc_buf ids;
    uint64_t n_invalid; /* bytes that are not UTF-8 */
};

struct dlc_encode_batch { /* zero-initialise */
    struct dlc_buf text;
    struct dlc_encode_item *items;
    size_t n_items, items_cap;
    struct dlc_encode_unit *units; /* what one thread takes at a time */
    size_t n_units, units_cap;
};

dlc_err dlc_encode_batch_add(struct dlc_encode_batch *b, const char *text, size_t size_bytes, int stream,
                             bool starts_document);
static inline bool dlc_encode_batch_full(const struct dlc_encode_batch *b)
{
    return b->text.len >= DLC_BATCH_BYTES;
}
const int32_t *dlc_encode_batch_ids(const struct dlc_encode_batch *b, const struct dlc_encode_item *item);
void dlc_encode_batch_clear(struct dlc_encode_batch *b); /* keeps the memory */
void dlc_encode_batch_fini(struct dlc_encode_batch *b);

typedef struct dlc_encoder dlc_encoder;

/* n_threads >= 1. With 1 the work is done inside dlc_encoder_start. The tokenizer must outlive the encoder. */
dlc_err dlc_encoder_create(dlc_encoder **out, const dlc_tokenizer *t, int n_threads);
void dlc_encoder_destroy(dlc_encoder *e); /* accepts NULL; waits for work in progress */

/* The batch is the encoder's until dlc_encoder_wait, which returns the first failure. One batch at a time. */
void dlc_encoder_start(dlc_encoder *e, struct dlc_encode_batch *b);
dlc_err dlc_encoder_wait(dlc_encoder *e);

#endif
