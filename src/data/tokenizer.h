/* Byte-level BPE: text to token ids and back, exact for any bytes. Reads and writes Hugging Face tokenizer.json.
 * Pre-tokenizers: the GPT-2 and the Llama-3 split regexes, verbatim (see docs; the two that every consumer knows). */
#ifndef DLC_DATA_TOKENIZER_H
#define DLC_DATA_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

typedef struct dlc_tokenizer dlc_tokenizer;

/* DLC_EINPUT with the reason for a file that is not a byte-level BPE we can run exactly. Fuzzed. */
dlc_err dlc_tokenizer_load(dlc_tokenizer **out, const char *path);
dlc_err dlc_tokenizer_parse(dlc_tokenizer **out, const char *json, size_t size_bytes, const char *where);
void dlc_tokenizer_destroy(dlc_tokenizer *t); /* accepts NULL */

/* Another handle on the same vocabulary, for another thread; the vocabulary itself is shared. */
dlc_err dlc_tokenizer_clone(dlc_tokenizer **out, const dlc_tokenizer *t);

/* The bytes of tokenizer.json, exactly those it was made from, appended to `out`; and their SHA-256, the tokenizer's
 * identity. */
dlc_err dlc_tokenizer_to_json(struct dlc_buf *out, const dlc_tokenizer *t);
dlc_err dlc_tokenizer_digest(struct dlc_sha256 *out, const dlc_tokenizer *t);

int dlc_tokenizer_vocab_size(const dlc_tokenizer *t);
/* "<|endoftext|>": stands before every document. Files that have none: the first of <|begin_of_text|>, <|bos|>, <s>,
 * <|end_of_text|>, </s> that is special there. */
int32_t dlc_tokenizer_eot(const dlc_tokenizer *t);

/* The bytes that one token stands for; none (and 0) for special tokens. NULL for an id without a token. Not
 * zero-terminated; valid as long as the tokenizer. */
const char *dlc_tokenizer_token(size_t *size_bytes, const dlc_tokenizer *t, int32_t id);

/* Ids of `text` appended to *ids (int32 values in a dlc_buf). Text is ordinary: special tokens in it are not special.
 * Any bytes are accepted (invalid UTF-8 is split off bytewise). Thread-safe with one dlc_tokenizer per thread. */
dlc_err dlc_tokenizer_encode(struct dlc_buf *ids, dlc_tokenizer *t, const char *text, size_t size_bytes);
/* The bytes of ids appended to `text`; an id outside the vocabulary is DLC_EINPUT, special tokens give nothing. */
dlc_err dlc_tokenizer_decode(struct dlc_buf *text, const dlc_tokenizer *t, const int32_t *ids, size_t n);

#endif
