/* Cutting text into the pieces inside which BPE merges: the two split expressions that every consumer of tokenizer.json
 * knows, matched by PCRE2. Every byte of the text is in exactly one piece, in order.
 *
 * Parity with the reference implementation: its \s is White_Space; PCRE2's has U+180E in addition, so the class is
 * written out. Letters and numbers are those of PCRE2's Unicode tables (14.0 with 10.42): scripts assigned later split
 * like punctuation here.
 *
 * Bytes that are not UTF-8 are pieces of their own, one byte each; the stretches between them are split as texts. */
#ifndef DLC_DATA_SPLIT_H
#define DLC_DATA_SPLIT_H

#include <stddef.h>

#include "base/err.h"

typedef enum { DLC_SPLIT_GPT2, DLC_SPLIT_LLAMA3, DLC_N_SPLITS } dlc_split_kind;

typedef struct dlc_splitter dlc_splitter; /* one per thread */

const char *dlc_split_pattern(dlc_split_kind kind); /* as it stands in tokenizer.json */
const char *dlc_split_name(dlc_split_kind kind);    /* "gpt2", "llama3" */

dlc_err dlc_splitter_create(dlc_splitter **out, dlc_split_kind kind);
void dlc_splitter_destroy(dlc_splitter *s); /* accepts NULL */

/* Calls fn for each piece; stops at its first error and returns it. */
typedef dlc_err (*dlc_piece_fn)(void *arg, const char *piece, size_t size_bytes);
dlc_err dlc_split(dlc_splitter *s, const char *text, size_t size_bytes, dlc_piece_fn fn, void *arg);

#endif
