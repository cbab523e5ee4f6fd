/* diloco generate: text from a model, a token at a time. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/loaded.h"
#include "cli/utf8_stream.h"
#include "cli/verbs.h"
#include "train/sample.h"

#define PROMPT_MAX (1 << 20) /* bytes */

struct args {
    struct dlc_common common;
    const char *prompt, *precision, *isa;
    int64_t tokens, top_k, threads;
    double temperature, top_p;
    uint64_t seed;
};

static const char *const precisions[] = { "auto", "f32", "bf16", NULL };

#define AT(field) offsetof(struct args, field)

static const struct dlc_option options[] = {
    { "prompt", DLC_OPTION_TEXT, AT(prompt), .value = "TEXT", .fallback = "",
      .help = "what to go on from; -: standard input" },
    { "tokens", DLC_OPTION_INT, AT(tokens), 1, 1e9, .value = "N", .fallback = "100",
      .help = "at most so many; fewer when the model ends its text" },
    { "temperature", DLC_OPTION_REAL, AT(temperature), 0, 100, .value = "X", .fallback = "0.8",
      .help = "0: always the most likely token; above 1: bolder" },
    { "top-k", DLC_OPTION_INT, AT(top_k), 0, 1e9, .value = "K", .fallback = "0",
      .help = "from the K most likely only; 0: all" },
    { "top-p", DLC_OPTION_REAL, AT(top_p), 1e-9, 1, .value = "P", .fallback = "1",
      .help = "from the most likely that reach probability P together" },
    { "seed", DLC_OPTION_SEED, AT(seed), .value = "N", .fallback = "1", .help = "the same seed gives the same text" },
    { "precision", DLC_OPTION_TEXT, AT(precision), .choices = precisions, .value = "NAME", .fallback = "auto",
      .help = "of weights and cache; bf16 is about twice as fast; auto: bf16 if the model is stored in it, else f32" },
    { "threads", DLC_OPTION_INT, AT(threads), 0, 1024, .value = "N", .fallback = "0", .help = "0: all cores" },
    { "isa", DLC_OPTION_TEXT, AT(isa), .value = "NAME", .fallback = "auto", .help = "instruction set of the kernels" },
};

struct generation {
    const struct args *args;
    struct dlc_loaded loaded;
    dlc_sampler *sampler;
    struct dlc_buf prompt;
    struct dlc_buf ids;  /* int32: <|endoftext|>, prompt, what was generated */
    struct dlc_buf text; /* of what was generated; with --json all of it, otherwise what is not printed yet */
    struct dlc_utf8_stream stream;
    int64_t n_generated;
    bool ended; /* by the model */
};

static dlc_err read_stdin(struct dlc_buf *out)
{
    char chunk[65536];
    size_t n;

    while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0) {
        DLC_TRY(dlc_buf_append(out, chunk, n));
        if (out->len > PROMPT_MAX)
            return dlc_fail(DLC_EINPUT, "standard input: a prompt has at most %d bytes", PROMPT_MAX);
    }
    return ferror(stdin) ? dlc_fail_errno(DLC_EIO, "standard input") : DLC_OK;
}

static dlc_err read_prompt(struct generation *g)
{
    int32_t eot = dlc_tokenizer_eot(g->loaded.tokenizer);

    if (strcmp(g->args->prompt, "-") == 0)
        DLC_TRY(read_stdin(&g->prompt));
    else
        DLC_TRY(dlc_buf_append(&g->prompt, g->args->prompt, strlen(g->args->prompt)));
    if (eot >= 0)
        DLC_TRY(dlc_buf_append(&g->ids, &eot, sizeof eot)); /* as before every document in training */
    DLC_TRY(dlc_tokenizer_encode(&g->ids, g->loaded.tokenizer, g->prompt.data ? g->prompt.data : "", g->prompt.len));
    if (g->ids.len == 0)
        return dlc_fail(DLC_EUSAGE, "this tokenizer has no token for the beginning of a text: a --prompt is needed");
    return DLC_OK;
}

static dlc_err open_all(struct generation *g, const char *path)
{
    const struct args *a = g->args;
    struct dlc_sampling s = {
        .temperature = a->temperature, .top_k = (int)a->top_k, .top_p = a->top_p, .seed = a->seed
    };

    DLC_TRY(dlc_loaded_init_decoder(&g->loaded, path,
                                    &(struct dlc_load_options){
                                        .isa = a->isa, .threads = (int)a->threads, .precision = a->precision }));
    if (!g->loaded.tokenizer)
        return dlc_fail(DLC_EINPUT, "%s has no tokenizer.json: cannot turn text into tokens", g->loaded.folder);
    DLC_TRY(dlc_sampler_create(&g->sampler, &s, g->loaded.config.vocab_size));
    return read_prompt(g);
}

static const float *feed(struct generation *g, size_t from)
{
    const int32_t *ids = (const int32_t *)(void *)g->ids.data;

    return dlc_decoder_prefill(g->loaded.decoder, ids + from, g->ids.len / sizeof *ids - from);
}

/* The model knows positions below its context only. When they are used up it reads the last half of it again. */
static const float *next_logits(struct generation *g, bool first)
{
    size_t n = g->ids.len / sizeof(int32_t), context = (size_t)g->loaded.config.context, half = (context + 1) / 2;

    if (first && n <= context)
        return feed(g, 0);
    if (!first && dlc_decoder_position(g->loaded.decoder) < g->loaded.config.context)
        return feed(g, n - 1);
    dlc_decoder_reset(g->loaded.decoder);
    return feed(g, n > half ? n - half : 0);
}

static dlc_err print_new_text(struct generation *g)
{
    if (g->args->common.json)
        return DLC_OK;
    fwrite(g->text.data, 1, g->text.len, stdout);
    dlc_buf_clear(&g->text);
    return fflush(stdout) == 0 ? DLC_OK : dlc_fail_errno(DLC_EIO, "standard output");
}

static dlc_err generate(struct generation *g)
{
    const int32_t eot = dlc_tokenizer_eot(g->loaded.tokenizer);

    if (!g->args->common.json) {
        DLC_TRY(dlc_utf8_stream_feed(&g->text, &g->stream, g->prompt.data, g->prompt.len));
        DLC_TRY(print_new_text(g));
    }
    while (g->n_generated < g->args->tokens && !g->ended) {
        const float *logits = next_logits(g, g->n_generated == 0);
        int32_t id = dlc_sampler_next(g->sampler, logits, (uint64_t)g->n_generated);
        size_t n_bytes = 0;
        const char *bytes =
            dlc_tokenizer_token(&n_bytes, g->loaded.tokenizer, id); /* NULL: padding of the vocabulary */

        g->n_generated++;
        g->ended = id == eot;
        DLC_TRY(dlc_buf_append(&g->ids, &id, sizeof id));
        DLC_TRY(dlc_utf8_stream_feed(&g->text, &g->stream, bytes, bytes ? n_bytes : 0));
        DLC_TRY(print_new_text(g));
    }
    DLC_TRY(dlc_utf8_stream_end(&g->text, &g->stream));
    return print_new_text(g);
}

static dlc_err print_json(struct generation *g)
{
    struct dlc_buf prompt = { 0 };
    struct dlc_utf8_stream stream = { .n_held = 0 };
    json_t *v = NULL;
    char *text = NULL;
    dlc_err err;

    DLC_TRY_TO(done, dlc_utf8_stream_feed(&prompt, &stream, g->prompt.data, g->prompt.len));
    DLC_TRY_TO(done, dlc_utf8_stream_end(&prompt, &stream));
    v = json_pack("{s:s%, s:s%, s:I, s:b}", "prompt", prompt.data ? prompt.data : "", prompt.len, "text",
                  g->text.data ? g->text.data : "", g->text.len, "tokens", (json_int_t)g->n_generated, "ended",
                  g->ended);
    text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    if (text)
        printf("%s\n", text);
    else
        err = dlc_fail(DLC_ENOMEM, "out of memory: result of generate");
done:
    free(text);
    json_decref(v);
    dlc_buf_fini(&prompt);
    return err;
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .prompt = NULL };
    struct generation g = { .args = &a };
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 1, 1));
    if (a.common.quiet)
        dlc_log_set_level(DLC_LOG_WARN);
    DLC_TRY_TO(done, open_all(&g, a.common.words[0]));
    DLC_TRY_TO(done, generate(&g));
    if (a.common.json)
        err = print_json(&g);
    else
        printf("\n");
done:
    dlc_sampler_destroy(g.sampler);
    dlc_loaded_fini(&g.loaded);
    dlc_buf_fini(&g.prompt);
    dlc_buf_fini(&g.ids);
    dlc_buf_fini(&g.text);
    return err;
}

const struct dlc_verb dlc_verb_generate = {
    .name = "generate",
    .summary = "text from a model",
    .usage = "MODEL [--prompt TEXT] [--tokens N] [--temperature X] [--seed N]",
    .text = "MODEL is a model folder, or a run folder for its latest checkpoint. The text appears as it is made. The "
            "same seed, model\n"
            "and machine kind give the same text. With --precision bf16 weights, keys and values are rounded to bf16, "
            "which eval\n"
            "does not do. --json prints one object at the end: {\"prompt\", \"text\", \"tokens\", \"ended\"}.\n\n"
            "  diloco generate runs/a --prompt \"In the beginning\" --tokens 100 --temperature 0.8 --seed 1\n"
            "  echo \"Once upon a time\" | diloco generate runs/a --prompt - --temperature 0\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
