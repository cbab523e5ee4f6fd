/* What the tokenizer's own files share. */
#ifndef DLC_DATA_TOKENIZER_INTERNAL_H
#define DLC_DATA_TOKENIZER_INTERNAL_H

#include <stdbool.h>

#include "base/digest.h"
#include "data/bpe_model.h"
#include "data/split.h"

#define DLC_EOT_TEXT "<|endoftext|>"

/* What a tokenizer.json says, as far as it decides ids. */
struct dlc_tokenizer_spec {
    struct dlc_bpe_model model;
    dlc_split_kind split;
    bool ignore_merges; /* a piece that is a token as a whole is that token */
    int32_t eot;
};

/* DLC_EINPUT with the reason when the file asks for something that cannot be run exactly. */
dlc_err dlc_tokenizer_spec_parse(struct dlc_tokenizer_spec *out, const char *json, size_t size_bytes,
                                 const char *where);
void dlc_tokenizer_spec_fini(struct dlc_tokenizer_spec *spec);

struct dlc_bpe_rule {
    int32_t left, right;
};

/* The text of a tokenizer.json for a vocabulary with DLC_EOT_TEXT as its one special token, appended to `out`. Merges
 * in order of rank. */
dlc_err dlc_tokenizer_write_json(struct dlc_buf *out, const struct dlc_bpe_model *m, const struct dlc_bpe_rule *merges,
                                 size_t n_merges, dlc_split_kind split);

#endif
