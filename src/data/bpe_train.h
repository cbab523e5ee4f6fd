/* Training a byte-level BPE.
 *
 * Text is split into pieces, equal pieces are counted, and then the neighbours that occur together most often become
 * one token, again and again. Ties go to the pair with the smaller (left id, right id). Ids: <|endoftext|> is 0, then
 * the 256 bytes in the order of their stand-ins, then the merges in order. That is the rule of the reference
 * implementation, and on the same texts the merges are the same. (It reads files line by line; we feed documents, so
 * that "\n\n" exists.)
 *
 * Cost: counting is one hash look-up a piece; a merge touches only the distinct pieces that contain its pair.
 * Memory: bounded by what is fed, and by DLC_BPE_WORDS_MAX distinct pieces; pieces that appear for the first time when
 * that many are known are left out. Pieces are cut to DLC_BPE_WORD_BYTES_MAX here, so that one endless word cannot make
 * every merge slow. */
#ifndef DLC_DATA_BPE_TRAIN_H
#define DLC_DATA_BPE_TRAIN_H

#include "data/split.h"
#include "data/tokenizer.h"

#define DLC_BPE_WORDS_MAX ((size_t)1 << 22)
#define DLC_BPE_WORD_BYTES_MAX ((size_t)1024)
#define DLC_VOCAB_MIN 257 /* all bytes and <|endoftext|> */

typedef struct dlc_bpe_trainer dlc_bpe_trainer;

dlc_err dlc_bpe_trainer_create(dlc_bpe_trainer **out, dlc_split_kind split);
void dlc_bpe_trainer_destroy(dlc_bpe_trainer *t); /* accepts NULL */

dlc_err dlc_bpe_trainer_feed(dlc_bpe_trainer *t, const char *text, size_t size_bytes);

/* vocab_size >= DLC_VOCAB_MIN, otherwise DLC_EUSAGE. Pairs that occur less than min_count times are not merged (1:
 * all): the vocabulary comes out smaller when the text does not support it. The trainer is used up: only destroy it
 * after. */
dlc_err dlc_bpe_trainer_finish(dlc_tokenizer **out, dlc_bpe_trainer *t, int vocab_size, int64_t min_count);

/* Pieces that were left out for DLC_BPE_WORDS_MAX. */
uint64_t dlc_bpe_trainer_n_left_out(const dlc_bpe_trainer *t);

#endif
