#include "train/evaluate.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

struct dlc_evaluator {
    dlc_model *model;
    const dlc_dataset *data;
    struct dlc_evaluator_options options;
    struct dlc_val_set val;
    uint64_t n_windows, next; /* windows evaluated so far */
    int seq_len;
    int32_t *tokens, *targets; /* [batch][seq_len] */
    double loss_sum, bytes;
};

static dlc_err plan_windows(dlc_evaluator *e)
{
    const struct dlc_evaluator_options *o = &e->options;
    uint64_t fit = o->max_tokens / (uint64_t)o->context;

    if (o->split == DLC_SPLIT_VAL) {
        DLC_TRY(dlc_dataset_val_set(&e->val, e->data, o->max_tokens));
        e->n_windows = e->val.n_windows;
        e->seq_len = e->val.seq_len;
    } else {
        e->n_windows = 0;
        for (int pool = 0; pool < dlc_dataset_n_pools(e->data); pool++)
            e->n_windows += dlc_dataset_pool_windows(e->data, pool);
        if (o->max_tokens > 0 && fit < e->n_windows)
            e->n_windows = fit > 0 ? fit : 1;
        e->seq_len = o->context;
    }
    if (e->n_windows == 0)
        return dlc_fail(DLC_EINPUT, "the %s split has no tokens to evaluate",
                        o->split == DLC_SPLIT_VAL ? "validation" : "training");
    return DLC_OK;
}

static dlc_err check(const dlc_evaluator *e)
{
    int model_vocab = dlc_model_get_config(e->model)->vocab_size, data_vocab = dlc_dataset_info(e->data)->vocab_size;

    if (data_vocab > model_vocab)
        return dlc_fail(
            DLC_EINPUT,
            "the data has a vocabulary of %d tokens, the model knows %d; they belong to different tokenizers",
            data_vocab, model_vocab);
    return DLC_OK;
}

dlc_err dlc_evaluator_create(dlc_evaluator **out, dlc_model *model, const dlc_dataset *data,
                             const struct dlc_evaluator_options *options)
{
    dlc_evaluator *e = dlc_calloc(1, sizeof *e);
    dlc_err err = DLC_ENOMEM;
    size_t n;

    *out = NULL;
    if (!e)
        return DLC_ENOMEM;
    e->model = model;
    e->data = data;
    e->options = *options;
    DLC_TRY_TO(fail, check(e));
    DLC_TRY_TO(fail, plan_windows(e));
    n = (size_t)options->batch * (size_t)e->seq_len;
    e->tokens = dlc_calloc(n, sizeof *e->tokens);
    e->targets = dlc_calloc(n, sizeof *e->targets);
    if (!e->tokens || !e->targets) {
        err = DLC_ENOMEM;
        goto fail;
    }
    *out = e;
    return DLC_OK;
fail:
    dlc_evaluator_destroy(e);
    return err;
}

void dlc_evaluator_destroy(dlc_evaluator *e)
{
    if (!e)
        return;
    dlc_free(e->tokens);
    dlc_free(e->targets);
    dlc_free(e);
}

void dlc_evaluator_start(dlc_evaluator *e, const float *params)
{
    if (params)
        dlc_model_use_params(e->model, params);
    e->next = 0;
    e->loss_sum = 0;
    e->bytes = 0;
}

/* Window `index` of the training split: the pools one after the other, each in its own order of the first epoch. */
static dlc_err train_window(const dlc_evaluator *e, uint64_t index, int32_t *tokens, int32_t *targets)
{
    int pool = 0;

    while (index >= dlc_dataset_pool_windows(e->data, pool))
        index -= dlc_dataset_pool_windows(e->data, pool++);
    return dlc_dataset_sample(e->data, pool, index, tokens, targets);
}

static void count_bytes(dlc_evaluator *e, const int32_t *targets)
{
    for (int i = 0; i < e->seq_len; i++) {
        size_t n_bytes = 0;

        if (dlc_tokenizer_token(&n_bytes, e->options.tokenizer, targets[i]))
            e->bytes += (double)n_bytes;
    }
}

dlc_err dlc_evaluator_step(dlc_evaluator *e, bool *done)
{
    uint64_t left = e->n_windows - e->next;
    int batch = left < (uint64_t)e->options.batch ? (int)left : e->options.batch;

    assert(left > 0);
    for (int b = 0; b < batch; b++) {
        int32_t *tokens = e->tokens + (size_t)b * (size_t)e->seq_len,
                *targets = e->targets + (size_t)b * (size_t)e->seq_len;

        if (e->options.split == DLC_SPLIT_VAL)
            DLC_TRY(dlc_dataset_val_window(e->data, &e->val, e->next + (uint64_t)b, tokens, targets));
        else
            DLC_TRY(train_window(e, e->next + (uint64_t)b, tokens, targets));
        if (e->options.split == DLC_SPLIT_TRAIN && e->options.tokenizer)
            count_bytes(e, targets);
    }
    e->loss_sum += dlc_model_loss(e->model, e->tokens, e->targets, batch, e->seq_len);
    e->next += (uint64_t)batch;
    *done = e->next == e->n_windows;
    return DLC_OK;
}

struct dlc_eval_result dlc_evaluator_result(const dlc_evaluator *e)
{
    struct dlc_eval_result r = { .tokens = e->n_windows * (uint64_t)e->seq_len };
    double bytes = e->options.split == DLC_SPLIT_VAL ? e->val.n_bytes : e->bytes;

    assert(e->next == e->n_windows);
    r.loss = e->loss_sum / (double)r.tokens;
    r.ppl = exp(r.loss);
    r.bpb = bytes > 0 ? e->loss_sum / log(2.0) / bytes : NAN;
    return r;
}
