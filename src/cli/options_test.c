#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/options.h"
#include "cli/utf8_stream.h"

struct args {
    struct dlc_common common;
    bool fresh;
    int64_t tokens;
    uint64_t seed;
    double temperature;
    const char *split, *prompt;
    struct dlc_texts names;
};

static const char *const splits[] = { "val", "train", NULL };

static const struct dlc_option options[] = {
    { "fresh", DLC_OPTION_FLAG, offsetof(struct args, fresh), .help = "h" },
    { "tokens", DLC_OPTION_INT, offsetof(struct args, tokens), 1, 1000, .value = "N", .fallback = "100", .help = "h" },
    { "seed", DLC_OPTION_SEED, offsetof(struct args, seed), .value = "N", .help = "h" },
    { "temperature", DLC_OPTION_REAL, offsetof(struct args, temperature), 0, 100, .value = "X", .fallback = "0.8",
      .help = "h" },
    { "split", DLC_OPTION_TEXT, offsetof(struct args, split), .choices = splits, .value = "NAME", .fallback = "val",
      .help = "h" },
    { "prompt-text", DLC_OPTION_TEXT, offsetof(struct args, prompt), .value = "TEXT", .help = "h" },
    { "name", DLC_OPTION_LIST, offsetof(struct args, names), .value = "NAME", .help = "h" },
};

static const struct dlc_verb verb = {
    .name = "verb", .usage = "A B", .options = options, .n_options = sizeof options / sizeof *options
};

#define MAX_WORDS 20

struct line {
    const char *words[MAX_WORDS];
};

static dlc_err parse(struct args *a, struct dlc_config *config, const struct line *line)
{
    static char *argv[MAX_WORDS + 1];
    int argc = 0;

    memset(a, 0, sizeof *a);
    while (argc < MAX_WORDS && line->words[argc]) {
        argv[argc] = (char *)(uintptr_t)line->words[argc];
        argc++;
    }
    return dlc_options_parse(a, config, &verb, argc, argv);
}

static void flags_and_words_mix(void **state)
{
    struct args a;

    (void)state;
    assert_int_equal(parse(&a, NULL,
                           &(struct line){ { "one", "--tokens", "7", "-", "--seed=18446744073709551615", "--fresh",
                                             "--", "--x" } }),
                     DLC_OK);
    assert_int_equal(a.common.n_words, 3);
    assert_string_equal(a.common.words[0], "one");
    assert_string_equal(a.common.words[1], "-");
    assert_string_equal(a.common.words[2], "--x");
    assert_int_equal(a.tokens, 7);
    assert_true(a.seed == UINT64_MAX);
    assert_true(a.fresh);
    assert_true(a.temperature == 0.8); /* its default */
    assert_string_equal(a.split, "val");
    assert_false(a.common.json);
}

static void mistakes_are_named(void **state)
{
    static const struct {
        struct line line;
        const char *text; /* NULL: no mistake */
        const char *why;
    } rows[] = {
        { { { NULL } }, NULL, "nothing at all" },
        { { { "--json", "--quiet" } }, NULL, "flags of every verb" },
        { { { "--prompt_text=--x=y", "--tokens", "1e2" } }, NULL, "'_' for '-', a value with dashes and '='" },
        { { { "--prompt-text", "" } }, NULL, "an empty value" },
        { { { "--prompt-text", "-5" } }, NULL, "one dash is no flag" },
        { { { "--tokns", "7" } }, "there is no flag --tokns; did you mean --tokens?", "mistyped" },
        { { { "--token=7" } }, "did you mean --tokens?", "mistyped, with a value" },
        { { { "--jsno" } }, "did you mean --json?", "mistyped flag of every verb" },
        { { { "--zzzzzzzzz" } }, "there is no flag --zzzzzzzzz; diloco verb --help lists them", "far from all" },
        { { { "--optim.lr", "1" } }, "there is no flag --optim.lr", "a key, but this verb takes none" },
        { { { "--tokens" } }, "--tokens needs a value", "at the end" },
        { { { "--tokens", "--fresh" } }, "write --tokens=--fresh", "followed by a flag" },
        { { { "--tokens", "many" } }, "--tokens: tokens is 'many', must be a whole number in 1..1000", "no number" },
        { { { "--tokens", "1001" } }, "must lie in 1..1000", "too large" },
        { { { "--temperature", "nan" } }, "must be a number in 0..100", "not a number" },
        { { { "--fresh=1" } }, "--fresh takes no value", "value of a flag" },
        { { { "--split", "vall" } }, "did you mean val?", "choice" },
        { { { "--split", "rest" } }, "must be one of val | train", "choice, near none" },
        { { { "-t", "3" } }, "flags begin with two dashes: -t", "short flag" },
        { { { "--" } }, NULL, "the end of nothing" },
        { { { "--=3" } }, "there is no flag --", "no name" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct args a;
        dlc_err err = parse(&a, NULL, &rows[i].line);

        if (err != (rows[i].text ? DLC_EUSAGE : DLC_OK) || (err && !strstr(dlc_err_text(), rows[i].text)))
            fail_msg("%s: %d, %s", rows[i].why, err, dlc_err_text());
    }
}

static void keys_are_flags_of_verbs_that_take_them(void **state)
{
    struct dlc_config config;
    struct args a;

    (void)state;
    dlc_config_default(&config);
    if (parse(&a, &config,
              &(struct line){
                  { "--data", "d", "--optim.weight-decay=0.2", "--momentum", "0.5", "--qk_norm", "--steps=1e3" } }))
        fail_msg("%s", dlc_err_text());
    assert_string_equal(config.data.path, "d");
    assert_true(config.optim.weight_decay == 0.2);
    assert_true(config.outer.momentum == 0.5);
    assert_true(config.model.shape.qk_norm);
    assert_int_equal(config.train.steps, 1000);
    assert_true(dlc_config_is_given(&config, "model.qk_norm"));

    assert_int_equal(parse(&a, &config, &(struct line){ { "--qk_norm", "no", "word" } }), DLC_OK);
    assert_false(config.model.shape.qk_norm);
    assert_int_equal(a.common.n_words, 1);
    assert_int_equal(parse(&a, &config, &(struct line){ { "--qk_norm", "word" } }), DLC_OK);
    assert_true(config.model.shape.qk_norm);
    assert_int_equal(a.common.n_words, 1);

    assert_int_equal(parse(&a, &config, &(struct line){ { "--island", "4" } }), DLC_EUSAGE);
    assert_string_equal(dlc_err_text(), "there is no flag --island; did you mean --islands?");
    assert_int_equal(parse(&a, &config, &(struct line){ { "--eps", "1" } }), DLC_EUSAGE); /* two keys have it */
    assert_int_equal(parse(&a, &config, &(struct line){ { "--lr", "x" } }), DLC_EUSAGE);
    assert_non_null(strstr(dlc_err_text(), "--lr: optim.lr is 'x'"));
}

static void lists_grow(void **state)
{
    struct line line = { { "--name", "a", "word", "--name=b" } };
    struct args a;

    (void)state;
    assert_int_equal(parse(&a, NULL, &line), DLC_OK);
    assert_int_equal(a.names.n, 2);
    assert_string_equal(a.names.items[0], "a");
    assert_string_equal(a.names.items[1], "b");
    assert_int_equal(a.common.n_words, 1);
    for (size_t i = 0; i < DLC_MAX_TEXTS; i++)
        line.words[i] = "--name=x";
    assert_int_equal(parse(&a, NULL, &line), DLC_OK);
    assert_int_equal(a.names.n, DLC_MAX_TEXTS);
    line.words[DLC_MAX_TEXTS] = "--name=x";
    assert_int_equal(parse(&a, NULL, &line), DLC_EUSAGE);
    assert_string_equal(dlc_err_text(), "--name: given more than 16 times");
}

static void words_are_counted(void **state)
{
    struct args a;

    (void)state;
    assert_int_equal(parse(&a, NULL, &(struct line){ { "one", "two" } }), DLC_OK);
    assert_int_equal(dlc_options_words(&a.common, &verb, 0, 2), DLC_OK);
    assert_int_equal(dlc_options_words(&a.common, &verb, 1, -1), DLC_OK);
    assert_int_equal(dlc_options_words(&a.common, &verb, 3, 3), DLC_EUSAGE);
    assert_string_equal(dlc_err_text(), "something is missing: diloco verb A B");
    assert_int_equal(dlc_options_words(&a.common, &verb, 0, 1), DLC_EUSAGE);
    assert_non_null(strstr(dlc_err_text(), "'two' is one word too many"));
}

#define BAD "\xef\xbf\xbd"

static void characters_are_never_split(void **state)
{
    static const struct {
        const char *in, *out, *why;
    } rows[] = {
        { "", "", "nothing" },
        { "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", "one to four bytes" },
        { "\xff", BAD, "no character begins so" },
        { "\x80\x80", BAD BAD, "continuations alone" },
        { "\xc3", BAD, "cut at the end" },
        { "\xe2\x82", BAD, "cut at the end: one mark" },
        { "\xe2\x82z", BAD "z", "cut by a letter" },
        { "\xe2\x82\xc3\xa9", BAD "\xc3\xa9", "cut by another character" },
        { "\xc0\xaf", BAD BAD, "overlong in two bytes" },
        { "\xe0\x80\xaf", BAD BAD BAD, "overlong in three" },
        { "\xed\xa0\x80", BAD BAD BAD, "a surrogate" },
        { "\xf4\x90\x80\x80", BAD BAD BAD BAD, "above U+10FFFF" },
        { "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf", "U+10FFFF itself" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t piece = 1; piece <= 3; piece++) {
            struct dlc_utf8_stream stream = { .n_held = 0 };
            struct dlc_buf out = { 0 };
            size_t n = strlen(rows[i].in);

            for (size_t at = 0; at < n; at += piece)
                assert_int_equal(dlc_utf8_stream_feed(&out, &stream, rows[i].in + at, n - at < piece ? n - at : piece),
                                 DLC_OK);
            assert_int_equal(dlc_utf8_stream_end(&out, &stream), DLC_OK);
            if (strcmp(out.data ? out.data : "", rows[i].out) != 0)
                fail_msg("%s, %zu bytes at once: '%s'", rows[i].why, piece, out.data);
            dlc_buf_fini(&out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_and_words_mix),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(keys_are_flags_of_verbs_that_take_them),
        cmocka_unit_test(lists_grow),
        cmocka_unit_test(words_are_counted),
        cmocka_unit_test(characters_are_never_split),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
