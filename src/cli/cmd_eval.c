/* diloco eval: loss, perplexity and bits per byte of a model on prepared data. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/loaded.h"
#include "cli/verbs.h"
#include "train/evaluate.h"

#define BATCH_TOKENS 4096

struct args {
    struct dlc_common common;
    const char *data, *split, *isa;
    int64_t tokens, context, threads;
};

static const char *const splits[] = { "val", "train", NULL };

#define AT(field) offsetof(struct args, field)

static const struct dlc_option options[] = {
    { "data", DLC_OPTION_TEXT, AT(data), .value = "FOLDER", .help = "prepared data; needed" },
    { "split", DLC_OPTION_TEXT, AT(split), .choices = splits, .value = "NAME", .fallback = "val",
      .help = "which part of it" },
    { "tokens", DLC_OPTION_INT, AT(tokens), 0, 1e15, .value = "N", .fallback = "0", .help = "at most so many; 0: all" },
    { "context", DLC_OPTION_INT, AT(context), 0, 1048576, .value = "T", .fallback = "0",
      .help = "tokens of a window; 0: what the model was trained with" },
    { "threads", DLC_OPTION_INT, AT(threads), 0, 1024, .value = "N", .fallback = "0", .help = "0: all cores" },
    { "isa", DLC_OPTION_TEXT, AT(isa), .value = "NAME", .fallback = "auto", .help = "instruction set of the kernels" },
};

static dlc_err differ(const struct dlc_loaded *l, const char *data, const char *how)
{
    return dlc_fail(
        DLC_EINPUT,
        "the tokenizers of %s and %s differ (%s); prepare the text again with --tokenizer %s/tokenizer.json", l->folder,
        data, how, l->folder);
}

/* Files that differ only in how they are written (a tool saved one again) hold the same tokens. */
static dlc_err compare_tokens(const struct dlc_loaded *l, const dlc_tokenizer *other, const char *data)
{
    int n = dlc_tokenizer_vocab_size(l->tokenizer);
    char how[80];

    snprintf(how, sizeof how, "%d and %d tokens", n, dlc_tokenizer_vocab_size(other));
    if (n != dlc_tokenizer_vocab_size(other))
        return differ(l, data, how);
    for (int32_t id = 0; id < n; id++) {
        size_t n_mine = 0, n_other = 0;
        const char *mine = dlc_tokenizer_token(&n_mine, l->tokenizer, id),
                   *others = dlc_tokenizer_token(&n_other, other, id);

        if (!mine != !others || n_mine != n_other || (mine && memcmp(mine, others, n_mine) != 0)) {
            snprintf(how, sizeof how, "first at token %d", (int)id);
            return differ(l, data, how);
        }
    }
    return DLC_OK;
}

static dlc_err check_tokenizer(const struct dlc_loaded *l, const dlc_dataset *d, const char *data)
{
    struct dlc_sha256 digest;
    char path[DLC_PATH_MAX];
    dlc_tokenizer *other;
    dlc_err err;

    if (!l->tokenizer) { /* the evaluator still checks the size of the vocabulary */
        dlc_warn("%s has no tokenizer.json: cannot check that the data was made for this model", l->folder);
        return DLC_OK;
    }
    DLC_TRY(dlc_tokenizer_digest(&digest, l->tokenizer));
    if (dlc_sha256_equal(&digest, &dlc_dataset_info(d)->tokenizer_digest))
        return DLC_OK;
    DLC_TRY(dlc_path_join(path, data, "tokenizer.json"));
    if (!dlc_file_exists(path))
        return differ(l, data, "their digests do");
    DLC_TRY(dlc_tokenizer_load(&other, path));
    err = compare_tokens(l, other, data);
    dlc_tokenizer_destroy(other);
    return err;
}

static dlc_err evaluate(struct dlc_eval_result *out, const struct args *a, struct dlc_loaded *l, const dlc_dataset *d,
                        int batch, int context)
{
    struct dlc_evaluator_options o = {
        .max_tokens = (uint64_t)a->tokens, .batch = batch, .context = context, .tokenizer = l->tokenizer
    };
    dlc_evaluator *e;
    bool done = false;
    dlc_err err = DLC_OK;

    o.split = strcmp(a->split, "train") == 0 ? DLC_SPLIT_TRAIN : DLC_SPLIT_VAL;
    DLC_TRY(check_tokenizer(l, d, a->data));
    DLC_TRY(dlc_evaluator_create(&e, l->model, d, &o));
    dlc_evaluator_start(e, NULL);
    while (err == DLC_OK && !done)
        err = dlc_evaluator_step(e, &done);
    if (err == DLC_OK)
        *out = dlc_evaluator_result(e);
    dlc_evaluator_destroy(e);
    return err;
}

/* Numbers that JSON has no word for are null. */
static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static dlc_err print(const struct dlc_eval_result *r, const struct dlc_loaded *l, bool as_json)
{
    char *text;
    json_t *v;

    if (!as_json) {
        printf("%s: loss %.4f, perplexity %.3f, ", l->folder, r->loss, r->ppl);
        if (isfinite(r->bpb))
            printf("%.4f bits per byte, ", r->bpb);
        printf("%" PRIu64 " tokens\n", r->tokens);
        return DLC_OK;
    }
    v = json_pack("{s:o, s:o, s:o, s:I}", "loss", number(r->loss), "ppl", number(r->ppl), "bpb", number(r->bpb),
                  "tokens", (json_int_t)r->tokens);
    text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    if (!text)
        return dlc_fail(DLC_ENOMEM, "out of memory: result of eval");
    printf("%s\n", text);
    free(text);
    return DLC_OK;
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct dlc_eval_result result;
    struct dlc_loaded l = { .model = NULL };
    struct args a = { .data = NULL };
    dlc_dataset *d = NULL;
    int batch, context;
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 1, 1));
    if (!a.data)
        return dlc_fail(DLC_EUSAGE, "--data is missing: diloco %s %s", verb->name, verb->usage);
    if (a.common.quiet)
        dlc_log_set_level(DLC_LOG_WARN);
    DLC_TRY_TO(done, dlc_loaded_init(&l, &batch, a.common.words[0],
                                     &(struct dlc_load_options){ .isa = a.isa,
                                                                 .threads = (int)a.threads,
                                                                 .context = (int)a.context,
                                                                 .max_tokens = BATCH_TOKENS }));
    context = a.context ? (int)a.context : l.config.context;
    DLC_TRY_TO(done, dlc_dataset_open(&d, a.data, context, DLC_DEAL_IID, 0));
    DLC_TRY_TO(done, evaluate(&result, &a, &l, d, batch, context));
    err = print(&result, &l, a.common.json);
done:
    dlc_dataset_close(d);
    dlc_loaded_fini(&l);
    return err;
}

const struct dlc_verb dlc_verb_eval = {
    .name = "eval",
    .summary = "loss, perplexity and bits per byte of a model on data",
    .usage = "MODEL --data FOLDER [--split val|train] [--tokens N]",
    .text = "MODEL is a model folder, or a run folder for its latest checkpoint. Computes in f32. Perplexity depends "
            "on the tokenizer,\n"
            "bits per byte do not: compare models with different tokenizers by the latter. --json prints one object:\n"
            "{\"loss\", \"ppl\", \"bpb\", \"tokens\"}.\n\n"
            "  diloco eval runs/a --data data/demo --json\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
