#include "cli/options.h"

#include <assert.h>
#include <string.h>

#include "config/keys.h"
#include "config/nearest.h"

static const struct dlc_option common_options[] = {
    { "quiet", DLC_OPTION_FLAG, offsetof(struct dlc_common, quiet), .help = "no progress; warnings and results only" },
    { "json", DLC_OPTION_FLAG, offsetof(struct dlc_common, json), .help = "results as JSON on standard output" },
};

const struct dlc_option *dlc_common_options(size_t *n)
{
    *n = sizeof common_options / sizeof *common_options;
    return common_options;
}

struct parser {
    void *args;
    struct dlc_config *config;
    const struct dlc_verb *verb;
    int argc, at; /* argv[at] is next */
    char **argv;
};

/* One flag as typed: "--name", "--name=value". */
struct flag {
    const char *text; /* the whole argument */
    const char *name;
    size_t name_length;
    const char *value; /* behind '='; NULL: none */
};

static bool same_name(const char *name, const struct flag *flag)
{
    for (size_t i = 0; i < flag->name_length; i++)
        if (name[i] != flag->name[i] && !(name[i] == '-' && flag->name[i] == '_'))
            return false;
    return name[flag->name_length] == '\0';
}

static const struct dlc_option *find_option(const struct dlc_verb *verb, const struct flag *flag)
{
    for (size_t i = 0; i < verb->n_options; i++)
        if (same_name(verb->options[i].name, flag))
            return &verb->options[i];
    for (size_t i = 0; i < sizeof common_options / sizeof *common_options; i++)
        if (same_name(common_options[i].name, flag))
            return &common_options[i];
    return NULL;
}

static dlc_err parse_number(void *field, const struct dlc_option *option, const char *value)
{
    struct dlc_key key = { .name = option->name, .min = option->min, .max = option->max };
    char where[80];

    snprintf(where, sizeof where, "--%s", option->name);
    key.type = option->type == DLC_OPTION_INT    ? DLC_KEY_INT64
               : option->type == DLC_OPTION_SEED ? DLC_KEY_UINT64
                                                 : DLC_KEY_REAL;
    return dlc_key_parse(field, &key, value, where);
}

static dlc_err parse_text(const char **field, const struct dlc_option *option, const char *value)
{
    struct dlc_nearest nearest = dlc_nearest_start(value);
    char known[200] = "";
    int at = 0;

    assert(value); /* only flags have none */
    *field = value;
    if (!option->choices)
        return DLC_OK;
    for (size_t i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], value) == 0)
            return DLC_OK;
        dlc_nearest_offer(&nearest, option->choices[i], option->choices[i]);
    }
    if (dlc_nearest_result(&nearest))
        return dlc_fail(DLC_EUSAGE, "--%s: '%.80s' is unknown; did you mean %s?", option->name, value,
                        dlc_nearest_result(&nearest));
    for (size_t i = 0; option->choices[i] && at < (int)sizeof known; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, "%s%s", i ? " | " : "", option->choices[i]);
    return dlc_fail(DLC_EUSAGE, "--%s: '%.80s' is unknown, must be one of %s", option->name, value, known);
}

static dlc_err add_text(struct dlc_texts *list, const struct dlc_option *option, const char *value)
{
    if (list->n == DLC_MAX_TEXTS)
        return dlc_fail(DLC_EUSAGE, "--%s: given more than %d times", option->name, DLC_MAX_TEXTS);
    return parse_text(&list->items[list->n++], option, value);
}

static dlc_err set_option(void *args, const struct dlc_option *option, const char *value)
{
    void *field = (char *)args + option->offset;

    switch (option->type) {
    case DLC_OPTION_FLAG: *(bool *)field = true; return DLC_OK;
    case DLC_OPTION_TEXT: return parse_text(field, option, value);
    case DLC_OPTION_LIST: return add_text(field, option, value);
    case DLC_OPTION_INT:
    case DLC_OPTION_SEED:
    case DLC_OPTION_REAL: break;
    }
    return parse_number(field, option, value);
}

/* The value behind '=' or the next argument. One that looks like a flag is more likely a forgotten value. */
static dlc_err take_value(const char **value, struct parser *p, const struct flag *flag)
{
    *value = flag->value;
    if (*value)
        return DLC_OK;
    if (p->at >= p->argc)
        return dlc_fail(DLC_EUSAGE, "%s needs a value", flag->text);
    if (strncmp(p->argv[p->at], "--", 2) == 0)
        return dlc_fail(DLC_EUSAGE, "%s needs a value; if %s is meant, write %s=%s", flag->text, p->argv[p->at],
                        flag->text, p->argv[p->at]);
    *value = p->argv[p->at++];
    return DLC_OK;
}

/* --tie_embeddings alone is true; a following word is its value only if it reads as one. */
static dlc_err take_bool(const char **value, struct parser *p, const struct flag *flag, const struct dlc_key *key)
{
    struct dlc_config scratch;

    *value = flag->value;
    if (*value)
        return DLC_OK;
    *value = "true";
    if (p->at < p->argc && dlc_key_parse(&scratch, key, p->argv[p->at], "") == DLC_OK)
        *value = p->argv[p->at++];
    return DLC_OK;
}

static dlc_err set_key(struct parser *p, const struct flag *flag, const struct dlc_key *key)
{
    const char *value;
    char where[80];

    DLC_TRY(key->type == DLC_KEY_BOOL ? take_bool(&value, p, flag, key) : take_value(&value, p, flag));
    snprintf(where, sizeof where, "--%.*s", (int)(flag->name_length < 70 ? flag->name_length : 70), flag->name);
    return dlc_config_set(p->config, key->name, value, where);
}

static dlc_err unknown_flag(const struct parser *p, const struct flag *flag)
{
    char typed[80];
    struct dlc_nearest nearest = dlc_nearest_start(typed);
    const char *best;

    snprintf(typed, sizeof typed, "%.*s", (int)(flag->name_length < 79 ? flag->name_length : 79), flag->name);
    for (size_t i = 0; i < p->verb->n_options; i++)
        dlc_nearest_offer(&nearest, p->verb->options[i].name, p->verb->options[i].name);
    for (size_t i = 0; i < sizeof common_options / sizeof *common_options; i++)
        dlc_nearest_offer(&nearest, common_options[i].name, common_options[i].name);
    if (p->config && dlc_config_nearest_key(typed))
        dlc_nearest_offer(&nearest, dlc_config_nearest_key(typed), dlc_config_nearest_key(typed));
    best = dlc_nearest_result(&nearest);
    if (!best && p->config)
        best = dlc_config_nearest_key(typed); /* near by its bare name */
    if (best)
        return dlc_fail(DLC_EUSAGE, "there is no flag --%s; did you mean --%s?", typed, best);
    return dlc_fail(DLC_EUSAGE, "there is no flag --%s; diloco %s --help lists them", typed, p->verb->name);
}

static dlc_err parse_flag(struct parser *p, const char *text)
{
    struct flag flag = { .text = text, .name = text + 2 };
    const char *equals = strchr(text, '='), *value = NULL;
    const struct dlc_option *option;
    const struct dlc_key *key;

    flag.name_length = equals ? (size_t)(equals - flag.name) : strlen(flag.name);
    flag.value = equals ? equals + 1 : NULL;
    option = find_option(p->verb, &flag);
    if (!option) {
        key = p->config ? dlc_config_find_key(flag.name, flag.name_length) : NULL;
        return key ? set_key(p, &flag, key) : unknown_flag(p, &flag);
    }
    if (option->type != DLC_OPTION_FLAG)
        DLC_TRY(take_value(&value, p, &flag));
    else if (flag.value)
        return dlc_fail(DLC_EUSAGE, "--%s takes no value", option->name);
    return set_option(p->args, option, value);
}

static dlc_err set_defaults(void *args, const struct dlc_verb *verb)
{
    for (size_t i = 0; i < verb->n_options; i++)
        if (verb->options[i].fallback)
            DLC_TRY(set_option(args, &verb->options[i], verb->options[i].fallback));
    return DLC_OK;
}

dlc_err dlc_options_parse(void *args, struct dlc_config *config, const struct dlc_verb *verb, int argc, char **argv)
{
    struct parser p = { .args = args, .config = config, .verb = verb, .argc = argc, .argv = argv };
    struct dlc_common *common = args;
    bool flags_ended = false;

    DLC_TRY(set_defaults(args, verb));
    common->words = argv;
    common->n_words = 0;
    while (p.at < argc) {
        char *text = argv[p.at++];

        if (flags_ended || text[0] != '-' || text[1] == '\0')
            argv[common->n_words++] = text; /* never ahead of p.at */
        else if (strcmp(text, "--") == 0)
            flags_ended = true;
        else if (text[1] != '-')
            return dlc_fail(DLC_EUSAGE, "flags begin with two dashes: %.80s", text);
        else
            DLC_TRY(parse_flag(&p, text));
    }
    return DLC_OK;
}

dlc_err dlc_options_words(const struct dlc_common *common, const struct dlc_verb *verb, int min, int max)
{
    if (common->n_words < min)
        return dlc_fail(DLC_EUSAGE, "something is missing: diloco %s %s", verb->name, verb->usage);
    if (max >= 0 && common->n_words > max)
        return dlc_fail(DLC_EUSAGE, "'%.80s' is one word too many: diloco %s %s", common->words[max], verb->name,
                        verb->usage);
    return DLC_OK;
}
