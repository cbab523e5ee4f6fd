/* Loss, perplexity and bits per byte of one fixed set of tokens, a batch at a time, so that whoever evaluates can do
 * other things between batches.
 *
 *     dlc_evaluator_start(e, theta);
 *     while (!dlc_evaluator_step(e))
 *         ... answer messages ...
 *     result = dlc_evaluator_result(e);
 *
 * Losses are summed in double, windows in order: the same parameters and options give the same bits however the steps
 * are spread in time. Another batch size sums in other groups and may differ in the last digits. */
#ifndef DLC_TRAIN_EVALUATE_H
#define DLC_TRAIN_EVALUATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "model/model.h"

typedef enum { DLC_SPLIT_VAL, DLC_SPLIT_TRAIN } dlc_split;

struct dlc_evaluator_options {
    dlc_split split;
    uint64_t max_tokens; /* 0: the whole split */
    int batch;           /* windows at once; 1..max_batch of the model */
    int context;         /* T of a window: what the dataset was opened with; at most max_seq of the model */
    /* The training split has no count of bytes: bits per byte then need the tokenizer. NULL: not known. Not owned. */
    const dlc_tokenizer *tokenizer;
};

struct dlc_eval_result {
    double loss;     /* nats a token, mean */
    double ppl;      /* exp(loss) */
    double bpb;      /* bits a byte of text; NaN when the bytes are not known */
    uint64_t tokens; /* that were predicted */
};

typedef struct dlc_evaluator dlc_evaluator;

/* `model` and `data` stay the caller's and must outlive the evaluator. DLC_EINPUT when the split is empty or has ids
 * that the model does not know. Everything is allocated here. */
dlc_err dlc_evaluator_create(dlc_evaluator **out, dlc_model *model, const dlc_dataset *data,
                             const struct dlc_evaluator_options *options);
void dlc_evaluator_destroy(dlc_evaluator *e); /* accepts NULL */

/* Begins anew with params[N], read where they are; NULL: with what the model has. They must not change before the last
 * step. */
void dlc_evaluator_start(dlc_evaluator *e, const float *params);
/* One batch. *done: it was the last one. Fails where the data cannot be read any more. */
dlc_err dlc_evaluator_step(dlc_evaluator *e, bool *done);
/* Only after the last one. */
struct dlc_eval_result dlc_evaluator_result(const dlc_evaluator *e);

#endif
