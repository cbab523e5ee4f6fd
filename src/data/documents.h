/* A stream of bytes as documents, each in pieces of at most DLC_PIECE_BYTES: one document a text file, one a line of
 * JSON. Fixed memory however long a text is.
 *
 * A long document is cut where both split expressions end a piece whatever follows (before a space that follows a
 * printable ASCII character), so the ids are those of the whole text. Where half a piece has no such place it is cut
 * between characters; that costs at most one token more there. */
#ifndef DLC_DATA_DOCUMENTS_H
#define DLC_DATA_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/reader.h"

#define DLC_PIECE_BYTES ((size_t)1 << 20)
#define DLC_JSON_LINE_MAX ((size_t)64 << 20)

struct dlc_piece {
    const char *text;
    size_t size_bytes;
    bool first;         /* of its document */
    uint64_t hash;      /* XXH3-64 of the document's first DLC_PIECE_BYTES (all of it when shorter) */
    const char *source; /* what the document itself says ("source" of a JSON line), otherwise NULL */
    size_t source_size;
};

struct dlc_documents_config {
    bool jsonl;
    bool named;           /* binary data are an error (otherwise the file is left out) */
    const char *json_key; /* of the text */
};

struct dlc_documents_stats {
    uint64_t n_documents, n_empty;
    uint64_t n_replaced; /* bytes in JSON lines that were not UTF-8: U+FFFD stands for each */
    uint64_t n_nul;      /* zero bytes after the beginning of a file that was not named */
    bool binary;         /* left out: zero bytes at its beginning */
};

/* fn's errors end the reading and are returned; DLC_ESTOPPED is how it says "enough". stats are added to. */
typedef dlc_err (*dlc_document_fn)(void *arg, const struct dlc_piece *piece);
dlc_err dlc_documents_read(struct dlc_documents_stats *stats, dlc_reader *r, const struct dlc_documents_config *config,
                           dlc_document_fn fn, void *arg);

/* Where to cut text[n], n > DLC_PIECE_BYTES / 2, of which more follows; in (n / 2, n]. */
size_t dlc_document_cut(const char *text, size_t n);

#endif
