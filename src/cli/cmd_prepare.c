/* diloco prepare: text in, token shards out. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "data/prepare.h"

struct args {
    struct dlc_common common;
    const char *out, *tokenizer, *json_key, *regex;
    int64_t vocab_size, shard_tokens, tokenizer_bytes, threads;
    double val_fraction;
};

static const char *const regexes[] = { "gpt2", "llama3", NULL };

#define AT(field) offsetof(struct args, field)

static const struct dlc_option options[] = {
    { "out", DLC_OPTION_TEXT, AT(out), .value = "FOLDER", .help = "where the shards go; needed" },
    { "vocab-size", DLC_OPTION_INT, AT(vocab_size), 257, 1000000, .value = "N",
      .help = "tokens of the tokenizer that is trained, 257..1000000 (4096); fewer when the text supports no more" },
    { "tokenizer", DLC_OPTION_TEXT, AT(tokenizer), .value = "FILE",
      .help = "a byte-level BPE tokenizer.json to use instead" },
    { "regex", DLC_OPTION_TEXT, AT(regex), .choices = regexes, .value = "NAME", .fallback = "gpt2",
      .help = "how a trained tokenizer splits text" },
    { "json-key", DLC_OPTION_TEXT, AT(json_key), .value = "KEY", .fallback = "text",
      .help = "the text's key in .jsonl files" },
    { "val-fraction", DLC_OPTION_REAL, AT(val_fraction), 0, 0.9, .value = "X", .fallback = "0.01",
      .help = "part of the documents kept for validation, chosen by their hash, 0..0.9" },
    { "shard-tokens", DLC_OPTION_INT, AT(shard_tokens), 1024, 2e9, .value = "N", .fallback = "1e8",
      .help = "tokens of a shard, 1024..2e9" },
    { "tokenizer-bytes", DLC_OPTION_INT, AT(tokenizer_bytes), 1, 1e12, .value = "N", .fallback = "1e8",
      .help = "at most so much text trains the tokenizer" },
    { "threads", DLC_OPTION_INT, AT(threads), 0, 1024, .value = "N", .fallback = "0", .help = "0: all cores" },
};

static dlc_err print_json(const struct dlc_prepare_result *r)
{
    json_t *v = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "documents", (json_int_t)r->n_documents, "bytes",
                          (json_int_t)r->n_bytes, "train_tokens", (json_int_t)r->n_train_tokens, "val_tokens",
                          (json_int_t)r->n_val_tokens, "invalid_utf8", (json_int_t)r->n_invalid_utf8, "skipped",
                          (json_int_t)r->n_skipped, "vocab_size", r->vocab_size);

    if (!v)
        return dlc_fail(DLC_ENOMEM, "out of memory: result of prepare");
    json_dumpf(v, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(v);
    return DLC_OK;
}

/* What was left out or is odd has been said on the way. */
static void print_text(const struct dlc_prepare_result *r, const char *out)
{
    printf("%s: %" PRIu64 " documents, %" PRIu64 " bytes, %" PRIu64 " training and %" PRIu64
           " validation tokens, vocabulary %d\n",
           out, r->n_documents, r->n_bytes, r->n_train_tokens, r->n_val_tokens, r->vocab_size);
}

static dlc_err check(const struct args *a, const struct dlc_verb *verb)
{
    DLC_TRY(dlc_options_words(&a->common, verb, 1, -1));
    if (!a->out)
        return dlc_fail(DLC_EUSAGE, "--out is missing: diloco %s %s", verb->name, verb->usage);
    if (a->tokenizer && a->vocab_size)
        return dlc_fail(DLC_EUSAGE,
                        "--vocab-size is for a tokenizer that is trained, but --tokenizer %s brings its own",
                        a->tokenizer);
    return DLC_OK;
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .out = NULL };
    struct dlc_prepare_result result;
    struct dlc_prepare_config config;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(check(&a, verb));
    if (a.common.quiet)
        dlc_log_set_level(DLC_LOG_WARN);
    config = (struct dlc_prepare_config){
        .inputs = (const char *const *)a.common.words,
        .n_inputs = (size_t)a.common.n_words,
        .out = a.out,
        .tokenizer = a.tokenizer,
        .json_key = a.json_key,
        .regex = a.regex,
        .vocab_size = a.vocab_size ? (int)a.vocab_size : 4096,
        .val_fraction = a.val_fraction,
        .shard_tokens = (uint64_t)a.shard_tokens,
        .bpe_train_bytes = (uint64_t)a.tokenizer_bytes,
        .n_threads = (int)a.threads,
    };
    DLC_TRY(dlc_prepare(&result, &config));
    if (a.common.json)
        return print_json(&result);
    print_text(&result, a.out);
    return DLC_OK;
}

const struct dlc_verb dlc_verb_prepare = {
    .name = "prepare",
    .summary = "text in (txt, jsonl, gz, zst, folders), token shards out",
    .usage = "TEXT... --out FOLDER",
    .text = "Reads files, folders, globs and standard input (-): .txt is one document, .jsonl one a line, each also "
            ".gz or .zst. Trains\n"
            "a byte-level BPE tokenizer when none is given. Writes shards (llm.c's layout), tokenizer.json and "
            "meta.json; the same\n"
            "input gives the same bytes, and running it again after an interruption is safe.\n\n"
            "  diloco prepare texts/ --out data/demo --vocab-size 4096\n"
            "  zcat dump.jsonl.gz | diloco prepare - --out data/dump --tokenizer tokenizer.json\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
