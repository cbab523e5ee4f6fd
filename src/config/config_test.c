#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <unistd.h>

#include "config/config.h"
#include "config/keys.h"
#include "config/memory.h"
#include "config/nearest.h"
#include "config/rules.h"

static const struct dlc_dataset_info plenty = {
    .vocab_size = 2048, .n_train_tokens = 10000000, .n_val_tokens = 100000, .n_val_bytes = 400000
};

/* A value other than the default, legal for the key. */
static void another_value(char *out, size_t size, const struct dlc_key *key)
{
    if (key->list || key->choices) {
        const char *const *choices = key->list ? key->list() : key->choices;

        snprintf(out, size, "%s", choices[1]);
    } else if (key->type == DLC_KEY_TEXT) {
        snprintf(out, size, "some folder/a=b #1:%s", key->name);
    } else if (key->type == DLC_KEY_BOOL) {
        snprintf(out, size, "true");
    } else if (key->type == DLC_KEY_REAL) {
        snprintf(out, size, "%.17g", key->min + (key->max - key->min) / 3);
    } else if (key->type == DLC_KEY_UINT64) {
        snprintf(out, size, "%" PRIu64, UINT64_MAX);
    } else {
        snprintf(out, size, "%.0f", key->max - 2);
    }
}

static void every_key_survives_run_ini(void **state)
{
    struct dlc_config config, back;
    struct dlc_buf ini = { 0 };
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    (void)state;
    dlc_config_default(&config);
    for (size_t i = 0; i < n; i++) {
        char value[200];

        another_value(value, sizeof value, &keys[i]);
        assert_false(dlc_config_is_given(&config, keys[i].name));
        if (dlc_config_set(&config, keys[i].name, value, "test") != DLC_OK)
            fail_msg("%s", dlc_err_text());
        assert_true(dlc_config_is_given(&config, keys[i].name));
    }
    assert_int_equal(dlc_config_write_ini(&ini, &config), DLC_OK);
    dlc_config_default(&back);
    if (dlc_config_parse_ini(&back, ini.data, ini.len, "run.ini") != DLC_OK)
        fail_msg("%s\n%s", dlc_err_text(), ini.data);
    for (size_t i = 0; i < n; i++)
        if (memcmp((char *)&config + keys[i].offset, (char *)&back + keys[i].offset, keys[i].size_bytes) != 0)
            fail_msg("%s came back as another value:\n%s", keys[i].name, ini.data);
    assert_memory_equal(config.given, back.given, sizeof config.given);
    dlc_buf_fini(&ini);
}

static void defaults_are_what_the_table_says(void **state)
{
    struct dlc_config config, back;
    struct dlc_buf ini = { 0 };
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    (void)state;
    dlc_config_default(&config);
    for (size_t i = 0; i < n; i++) {
        struct dlc_buf text = { 0 };

        if (!keys[i].fallback)
            continue;
        assert_int_equal(dlc_key_format(&text, &config, &keys[i]), DLC_OK);
        if (strcmp(text.data ? text.data : "", keys[i].fallback) != 0 &&
            strtod(text.data, NULL) != strtod(keys[i].fallback, NULL))
            fail_msg("%s: default '%s' became '%s'", keys[i].name, keys[i].fallback, text.data);
        dlc_buf_fini(&text);
    }
    assert_int_equal(config.outer.steps, 500);
    assert_true(config.outer.lr == DLC_AUTO);
    assert_true(config.optim.lr == DLC_AUTO);
    assert_int_equal(dlc_config_write_ini(&ini, &config), DLC_OK);
    dlc_config_default(&back);
    if (dlc_config_parse_ini(&back, ini.data, ini.len, "run.ini") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    memset(back.given, 0, sizeof back.given);
    assert_memory_equal(&config, &back, sizeof config);
    dlc_buf_fini(&ini);
}

static void values_are_checked(void **state)
{
    static const struct {
        const char *key, *value, *text; /* text: a part of the message; NULL: accepted */
        const char *why;
    } rows[] = {
        { "optim.lr", "1e-3", NULL, "exponent" },
        { "optim.lr", ".5", NULL, "no leading zero" },
        { "optim.lr", "auto", NULL, "auto where it is allowed" },
        { "optim.beta1", "auto", "must be a number in 0..0.999999", "auto where it is not" },
        { "optim.lr", "-1", "must lie in 0..100, or auto", "DLC_AUTO's own value is no way in" },
        { "optim.lr", "nan", "must be a number", "not a number" },
        { "optim.lr", "inf", "must be a number", "infinite" },
        { "optim.lr", "1e999", "must be a number", "overflows to infinity" },
        { "optim.lr", "0x1p-3", "must be a number", "hexadecimal" },
        { "optim.lr", "1e-3 ", "must be a number", "space behind" },
        { "optim.lr", "", "must be a number", "nothing" },
        { "steps", "1e6", NULL, "whole in exponent form" },
        { "steps", "5_000", NULL, "underscores between digits" },
        { "steps", "_5", "whole number", "underscore in front" },
        { "steps", "5__0", "whole number", "two underscores" },
        { "steps", "1.5", "whole number in 1..1e+12", "a fraction" },
        { "steps", "1e-1", "whole number", "a fraction in exponent form" },
        { "steps", "10k", "whole number", "a suffix" },
        { "steps", "0", "must lie in 1..1e+12", "below the range" },
        { "steps", "9223372036854775808", "whole number", "2^63" },
        { "islands", "1024", NULL, "the largest" },
        { "islands", "1025", "must lie in 1..1024", "one more" },
        { "islands", "4294967297", "must lie in", "would be 1 in 32 bits" },
        { "seed", "18446744073709551615", NULL, "the largest" },
        { "seed", "18446744073709551616", "must be a whole number in 0..18446744073709551615", "one more" },
        { "seed", "-1", "must be a whole number", "would wrap" },
        { "seed", "1e3", NULL, "whole in exponent form" },
        { "tie_embeddings", "yes", NULL, "a word for true" },
        { "tie_embeddings", "maybe", "true | false", "no word for anything" },
        { "method", "dilco", "did you mean diloco?", "a choice mistyped" },
        { "method", "DP", "diloco | dp | single", "choices are lower case" },
        { "isa", "avx", "must be one of auto | ref", "text with choices" },
        { "preset", "nanno", "did you mean nano?", "choices of another folder" },
        { "data", "a ;b", "comment", "run.ini could not keep it" },
        { "data", "a\nb", "control character", "run.ini could not keep it" },
        { "data", " a", "space", "run.ini could not keep it" },
        { "data", "a;b c#d", NULL, "no comment" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_config config, before;
        dlc_err err;

        dlc_config_default(&config);
        before = config;
        err = dlc_config_set(&config, rows[i].key, rows[i].value, "--flag");
        if ((err == DLC_OK) != (rows[i].text == NULL) || (err && !strstr(dlc_err_text(), rows[i].text)))
            fail_msg("%s = '%s' (%s): %d, %s", rows[i].key, rows[i].value, rows[i].why, err, dlc_err_text());
        if (err) {
            assert_int_equal(err, DLC_EUSAGE);
            assert_memory_equal(&config, &before, sizeof config);
            assert_ptr_equal(strstr(dlc_err_text(), "--flag: "), dlc_err_text());
        }
    }
}

static void whole_numbers_are_exact(void **state)
{
    struct dlc_config config;

    (void)state;
    dlc_config_default(&config);
    assert_int_equal(dlc_config_set(&config, "seed", "9007199254740993", "t"), DLC_OK); /* 2^53 + 1: no double */
    assert_true(config.train.seed == 9007199254740993u);
    assert_int_equal(dlc_config_set(&config, "steps", "1e6", "t"), DLC_OK);
    assert_true(config.train.steps == 1000000);
}

static void keys_have_names_flags_and_bare_names(void **state)
{
    static const struct {
        const char *typed, *key; /* key NULL: unknown */
        const char *nearest;
    } rows[] = {
        { "optim.lr", "optim.lr", NULL },
        { "lr", "optim.lr", NULL },
        { "momentum", "outer.momentum", NULL },
        { "data", "data.path", NULL },
        { "out", "train.out", NULL },
        { "weight-decay", "optim.weight_decay", NULL },
        { "batch", "train.batch", NULL },
        { "eps", NULL, NULL }, /* optim.eps and outer.eps */
        { "beta2", NULL, NULL },
        { "optim.learning_rate", NULL, NULL },
        { "optim.weigth_decay", NULL, "optim.weight_decay" },
        { "island", NULL, "islands" },
        { "outer.step", NULL, "outer.steps" },
        { "momentun", NULL, "outer.momentum" },
        { "", NULL, NULL },
        { "zzzzzz", NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct dlc_key *key = dlc_config_find_key(rows[i].typed, strlen(rows[i].typed));

        if ((key != NULL) != (rows[i].key != NULL) || (key && strcmp(key->name, rows[i].key) != 0))
            fail_msg("'%s' is %s, expected %s", rows[i].typed, key ? key->name : "unknown", rows[i].key);
        if (rows[i].nearest)
            assert_string_equal(dlc_config_nearest_key(rows[i].typed), rows[i].nearest);
    }
    assert_null(dlc_config_nearest_key("zzzzzz"));
}

static void edit_distance_counts_letters(void **state)
{
    (void)state;
    assert_int_equal(dlc_edit_distance("", "abc"), 3);
    assert_int_equal(dlc_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(dlc_edit_distance("evla", "eval"), 1);
    assert_int_equal(dlc_edit_distance("a-b", "a_b"), 0);
}

static void ini_errors_name_the_line(void **state)
{
    static const struct {
        const char *ini, *text, *why; /* text NULL: accepted */
    } rows[] = {
        { "", NULL, "an empty file changes nothing" },
        { "[optim]\nlr = 1e-3 ; small\n# c\n; c\n\n[train]\n  steps=7\n", NULL, "comments, indentation" },
        { "[optim]\r\nlr = 1e-3\r\n", NULL, "lines of Windows" },
        { "\xef\xbb\xbf[optim]\nlr = 1e-3\n", NULL, "a byte order mark" },
        { "[optim]\nlr = 1e-3", NULL, "no final newline" },
        { "[optim]\nlr : 1e-3", NULL, "colon" },
        { "[optim]\n\nlrr = 1\n", "run.ini line 3: there is no key 'optim.lrr'; did you mean optim.lr?",
          "unknown key" },
        { "[optim]\nlr = 1\n[nope]\nx = 1\n", "run.ini line 4: there is no key 'nope.x'", "unknown section" },
        { "[train]\nsteps = many\n", "run.ini line 2: train.steps is 'many'", "wrong type" },
        { "[train]\nislands = 0\n", "run.ini line 2: train.islands is '0', must lie in 1..1024", "out of range" },
        { "[train]\nsteps\n", "run.ini line 2: neither [section] nor key = value", "no value" },
        { "[train\nsteps = 1\n", "run.ini line 1: neither", "no bracket" },
        { "[train]\nsteps = 1\nislands = x\nbatch = y\n", "line 3", "the first of two errors" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_config config;
        dlc_err err;

        dlc_config_default(&config);
        err = dlc_config_parse_ini(&config, rows[i].ini, strlen(rows[i].ini), "run.ini");
        if ((err == DLC_OK) != (rows[i].text == NULL) || (err && !strstr(dlc_err_text(), rows[i].text)))
            fail_msg("%s: %d, %s", rows[i].why, err, dlc_err_text());
        if (!err && strstr(rows[i].ini, "lr"))
            assert_true(config.optim.lr == 1e-3);
    }
}

static void ini_takes_long_lines_whole(void **state)
{
    static const size_t lengths[] = { 180, 190, 193, 194, 195, 196, 200, 389, 390, 391, 1000, 4095 };
    struct dlc_config config;

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char path[DLC_PATH_MAX + 1] = "", ini[9000];
        int n;

        for (size_t j = 0; j < lengths[i]; j++)
            path[j] = j % 7 == 6 ? ' ' : (char)('a' + j % 26);
        path[lengths[i] - 1] = 'z';
        n = snprintf(ini, sizeof ini, "# %s\n[data]\npath = %s\n[train]\nislands = 3\nx\n", path, path);
        dlc_config_default(&config);
        assert_int_equal(dlc_config_parse_ini(&config, ini, (size_t)n - 2, "run.ini"), DLC_OK);
        assert_string_equal(config.data.path, path);
        assert_int_equal(config.train.islands, 3);
        assert_int_equal(dlc_config_parse_ini(&config, ini, (size_t)n, "run.ini"), DLC_EUSAGE);
        assert_string_equal(dlc_err_text(), "run.ini line 6: neither [section] nor key = value");
    }
}

static void ini_refuses_what_is_not_text(void **state)
{
    struct dlc_config config;
    char junk[300];

    (void)state;
    dlc_config_default(&config);
    assert_int_equal(dlc_config_parse_ini(&config, "[data]\n\0x", 9, "run.ini"), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "run.ini line 2: a zero byte; this is not a text file");
    memset(junk, 'x', sizeof junk);
    memcpy(junk, "[optim]\nlr=1\n", 13);
    assert_int_equal(dlc_config_parse_ini(&config, junk, sizeof junk, "run.ini"), DLC_EUSAGE);
    assert_string_equal(dlc_err_text(), "run.ini line 3: neither [section] nor key = value");
    assert_int_equal(dlc_config_read_ini(&config, "/nonexistent/run.ini"), DLC_ENOTFOUND);
}

static void rules_hold(void **state)
{
    static const struct {
        int64_t steps, h, rounds;
        double momentum;
        const char *why;
    } rows[] = {
        { 64000, 500, 128, 0.9, "DiLoCo's own run" },
        { 10000, 500, 20, 0.6, "the shortest run with the full H; too few rounds for 0.9" },
        { 9999, 450, 23, 0.6, "just shorter: H is a round figure" },
        { 1000, 50, 20, 0.6, "the measured small run" },
        { 700, 30, 24, 0.5, "between the measured ones" },
        { 400, 20, 20, 0.5, "small H" },
        { 200, 10, 20, 0.3, "the smallest H" },
        { 100, 10, 10, 0.3, "fewer rounds rather than a smaller H" },
        { 7, 7, 1, 0.0, "shorter than the smallest H" },
        { 1, 1, 1, 0.0, "one step" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t h = dlc_rule_outer_steps(rows[i].steps), rounds = dlc_rule_rounds(rows[i].steps, h);
        double momentum = dlc_rule_outer_momentum(rounds, h);

        if (h != rows[i].h || rounds != rows[i].rounds || momentum != rows[i].momentum)
            fail_msg("%" PRId64 " steps (%s): H %" PRId64 ", %" PRId64 " rounds, momentum %g", rows[i].steps,
                     rows[i].why, h, rounds, momentum);
    }
    assert_true(dlc_rule_outer_lr(0.9, false) == 0.7 && dlc_rule_outer_lr(0, false) == 1 && dlc_rule_outer_lr(0.9, true) == 0.1);
    assert_true(dlc_rule_momentum_is_harmful(0.9, 100, 10)); /* 123 perplexity */
    assert_true(dlc_rule_momentum_is_harmful(0.9, 20, 50));  /* 71 instead of 61 */
    assert_false(dlc_rule_momentum_is_harmful(0.6, 20, 50));
    assert_false(dlc_rule_momentum_is_harmful(0.9, 128, 500));
    assert_true(dlc_rule_momentum_is_harmful(0.8, 50, 20));
}

static void inner_rules_hold(void **state)
{
    (void)state;
    assert_true(dlc_rule_inner_lr(530000) == 2e-3);    /* measured */
    assert_true(dlc_rule_inner_lr(150000000) == 4e-4); /* the paper's */
    assert_true(dlc_rule_inner_lr(1) == 4e-3);         /* clipped */
    assert_true(dlc_rule_inner_lr(7000000000u) == 3e-4);
    assert_int_equal(dlc_rule_warmup(88000), 1000);
    assert_int_equal(dlc_rule_warmup(1000), 100);
    assert_int_equal(dlc_rule_warmup(50), 10);
    assert_int_equal(dlc_rule_warmup(4), 2);
    assert_int_equal(dlc_rule_warmup(1), 1);
    assert_int_equal(dlc_rule_micro_batch(16, 64), 16);
    assert_int_equal(dlc_rule_micro_batch(512, 1024), 4);
    assert_int_equal(dlc_rule_micro_batch(9, 1024), 3);
    assert_int_equal(dlc_rule_micro_batch(7, 1024), 1);   /* a prime */
    assert_int_equal(dlc_rule_micro_batch(4, 100000), 1); /* longer than fits: one at a time */
    assert_int_equal(dlc_rule_log_every(1000, 50), 10);
    assert_int_equal(dlc_rule_log_every(10, 10), 1);
    assert_int_equal(dlc_rule_context(64, 65), 64);
    assert_int_equal(dlc_rule_context(64, 64), 32); /* 32 + 1 tokens are there, 64 + 1 are not */
    assert_int_equal(dlc_rule_context(64, 33), 32);
    assert_int_equal(dlc_rule_context(64, 2), 1);
    assert_int_equal(dlc_rule_context(64, 1), 0);
}

struct given {
    const char *key, *value;
};

static void resolve_checks_keys_together(void **state)
{
    static const struct {
        struct given given[4];
        dlc_err err;
        const char *text; /* a part of the error, or of what is said; NULL: nothing to look for */
        const char *why;
    } rows[] = {
        { { { "steps", "1000" } }, DLC_OK, "outer.steps = 50: a run of 1000 steps", "short run" },
        { { { "steps", "1000" } }, DLC_OK, "outer.momentum = 0.6: 20 exchanges", "short run" },
        { { { "steps", "64000" } }, DLC_OK, "optim.warmup = 1000", "the paper's run" },
        { { { "steps", "1000" }, { "outer.steps", "10" }, { "outer.momentum", "0.9" } },
          DLC_OK,
          "warning: outer.momentum = 0.9 is known to spoil",
          "the measured disaster" },
        { { { "steps", "100" }, { "outer.steps", "500" } }, DLC_OK, "one exchange, at the end", "H beyond the run" },
        { { { "method", "dp" }, { "outer.lr", "0.5" } },
          DLC_OK,
          "warning: outer.lr has no effect with train.method = dp",
          "dp" },
        { { { "method", "single" }, { "islands", "4" } }, DLC_EUSAGE, "train.islands = 4", "single has one" },
        { { { "batch", "16" }, { "train.micro_batch", "5" } },
          DLC_EUSAGE,
          "does not divide train.batch = 16; 16 does",
          "parts" },
        { { { "steps", "10" }, { "optim.warmup", "11" } }, DLC_EUSAGE, "longer than the run", "warm-up" },
        { { { "model.heads", "4" }, { "model.kv_heads", "3" } }, DLC_EUSAGE, "3", "groups of heads" },
        { { { "model.head_dim", "7" } }, DLC_EUSAGE, "7", "odd heads cannot be rotated" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_config config;
        struct dlc_buf said = { 0 };
        dlc_err err;

        dlc_config_default(&config);
        for (const struct given *g = rows[i].given; g < rows[i].given + 4 && g->key; g++)
            assert_int_equal(dlc_config_set(&config, g->key, g->value, "test"), DLC_OK);
        err = dlc_config_resolve(&config, &plenty, &said);
        if (err != rows[i].err || (rows[i].text && !strstr(err ? dlc_err_text() : said.data, rows[i].text)))
            fail_msg("%s: %d, %s", rows[i].why, err, err ? dlc_err_text() : said.data);
        dlc_buf_fini(&said);
    }
}

static void resolve_leaves_nothing_automatic_and_is_stable(void **state)
{
    struct dlc_config config, back;
    struct dlc_buf said = { 0 }, ini = { 0 };

    (void)state;
    dlc_config_default(&config);
    assert_int_equal(dlc_config_set(&config, "preset", dlc_model_preset_names()[1], "t"), DLC_OK);
    assert_int_equal(dlc_config_set(&config, "model.layers", "5", "t"), DLC_OK);
    if (dlc_config_resolve(&config, &plenty, &said) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_int_equal(config.model.shape.n_layers, 5); /* given beats the preset */
    assert_int_equal(config.model.shape.vocab_size, 2048);
    assert_int_equal(dlc_config_set(&config, "system.isa", "ref", "t"), DLC_OK); /* the one "auto" that stays */
    assert_int_equal(dlc_config_write_ini(&ini, &config), DLC_OK);
    assert_null(strstr(ini.data, "auto"));
    assert_true(config.train.micro_batch > 0 && config.train.log_every > 0 && config.optim.lr > 0);
    assert_true(config.optim.warmup > 0 && config.outer.momentum >= 0 && config.system.threads > 0);
    assert_true(config.system.memory_limit_mb > 0);

    dlc_config_default(&back); /* the frozen file resolves to itself and has nothing to say */
    assert_int_equal(dlc_config_parse_ini(&back, ini.data, ini.len, "run.ini"), DLC_OK);
    dlc_buf_clear(&said);
    assert_int_equal(dlc_config_resolve(&back, &plenty, &said), DLC_OK);
    if (said.len)
        fail_msg("a frozen configuration changed: %s", said.data);
    memcpy(back.given, config.given, sizeof back.given);
    assert_memory_equal(&config, &back, sizeof config);
    dlc_buf_fini(&said);
    dlc_buf_fini(&ini);
}

static void short_text_gets_a_shorter_context(void **state)
{
    struct dlc_config config;
    struct dlc_buf said = { 0 };
    struct dlc_dataset_info tiny = plenty;

    (void)state;
    tiny.n_train_tokens = 40;
    dlc_config_default(&config);
    assert_int_equal(dlc_config_resolve(&config, &tiny, &said), DLC_OK);
    assert_int_equal(config.model.shape.context, 32);
    assert_non_null(strstr(said.data, "model.context = 32"));
    dlc_buf_fini(&said);
}

static void memory_is_measured(void **state)
{
    (void)state;
    assert_true(dlc_memory_available_mb() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_survives_run_ini),
        cmocka_unit_test(defaults_are_what_the_table_says),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(keys_have_names_flags_and_bare_names),
        cmocka_unit_test(edit_distance_counts_letters),
        cmocka_unit_test(ini_errors_name_the_line),
        cmocka_unit_test(ini_takes_long_lines_whole),
        cmocka_unit_test(ini_refuses_what_is_not_text),
        cmocka_unit_test(rules_hold),
        cmocka_unit_test(inner_rules_hold),
        cmocka_unit_test(resolve_checks_keys_together),
        cmocka_unit_test(resolve_leaves_nothing_automatic_and_is_stable),
        cmocka_unit_test(short_text_gets_a_shorter_context),
        cmocka_unit_test(memory_is_measured),
    };

    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
