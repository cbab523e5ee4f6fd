#include "cli/help.h"

#include <string.h>

#include "cli/build_info.h"
#include "cli/verbs.h"
#include "config/keys.h"

dlc_err dlc_help_tour(struct dlc_buf *out)
{
    DLC_TRY(dlc_buf_printf(
        out, "diloco trains language models on machines that are far apart: each island trains alone for H steps,\n"
             "then all exchange one outer gradient (DiLoCo). On one machine there is nothing to start beside it.\n\n"));
    for (const struct dlc_verb *const *v = dlc_verbs(); *v; v++)
        DLC_TRY(dlc_buf_printf(out, "  %-10s %s\n", (*v)->name, (*v)->summary));
    return dlc_buf_printf(
        out, "\nA tour:\n"
             "  diloco prepare  texts/ --out data/demo --vocab-size 4096\n"
             "  diloco train    --data data/demo --out runs/a --preset nano --islands 4 --steps 1000 --batch 16\n"
             "  diloco eval     runs/a --data data/demo\n"
             "  diloco generate runs/a --prompt \"In the beginning\" --tokens 100\n"
             "  diloco export   runs/a --out a.gguf --format gguf --dtype q8_0\n"
             "\ndiloco VERB --help is complete; diloco --version says what was built in.\n"
             "Exit status: 0 done, 1 failed, 2 wrong usage, 3 stopped but resumable, 4 input not usable, 5 a peer or "
             "the network.\n");
}

static dlc_err option_left(char *out, size_t size, const struct dlc_option *option)
{
    if (option->value)
        snprintf(out, size, "--%s %s", option->name, option->value);
    else
        snprintf(out, size, "--%s", option->name);
    return DLC_OK;
}

static dlc_err option_line(struct dlc_buf *out, const struct dlc_option *option)
{
    char left[80];

    DLC_TRY(option_left(left, sizeof left, option));
    DLC_TRY(dlc_buf_printf(out, "  %-24s %s", left, option->help));
    if (option->choices) {
        DLC_TRY(dlc_buf_printf(out, ":"));
        for (size_t i = 0; option->choices[i]; i++)
            DLC_TRY(dlc_buf_printf(out, "%s %s", i ? "," : "", option->choices[i]));
    }
    if (option->fallback)
        DLC_TRY(dlc_buf_printf(out, " (%s)", option->fallback));
    return dlc_buf_printf(out, "\n");
}

static dlc_err options_lines(struct dlc_buf *out, const struct dlc_verb *verb)
{
    size_t n;
    const struct dlc_option *common = dlc_common_options(&n);

    DLC_TRY(dlc_buf_printf(out, "\nFlags (defaults in parentheses):\n"));
    for (size_t i = 0; i < verb->n_options; i++)
        DLC_TRY(option_line(out, &verb->options[i]));
    for (size_t i = 0; i < n; i++)
        DLC_TRY(option_line(out, &common[i]));
    return dlc_buf_printf(out, "  %-24s %s\n", "--help", "this text");
}

static dlc_err key_line(struct dlc_buf *out, const struct dlc_key *key)
{
    char left[80];

    snprintf(left, sizeof left, "--%s%s%s", key->name, key->flag ? ", --" : "", key->flag ? key->flag : "");
    DLC_TRY(dlc_buf_printf(out, "  %-36s %s [", left, key->help));
    DLC_TRY(dlc_key_describe(out, key));
    return dlc_buf_printf(out, "] (%s)\n", !key->fallback ? "by preset" : *key->fallback ? key->fallback : "none");
}

static dlc_err keys_lines(struct dlc_buf *out)
{
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    DLC_TRY(dlc_buf_printf(
        out, "\nKeys, in run.ini ([section] and name = value) or as flags; the part after the dot is enough where\n"
             "only one key has it (range in brackets, default in parentheses):\n"));
    for (size_t i = 0; i < n; i++)
        DLC_TRY(key_line(out, &keys[i]));
    DLC_TRY(dlc_buf_printf(out, "\nPresets:\n"));
    return dlc_help_presets(out, false);
}

dlc_err dlc_help_verb(struct dlc_buf *out, const struct dlc_verb *verb)
{
    DLC_TRY(dlc_buf_printf(out, "diloco %s %s\n\n%s", verb->name, verb->usage, verb->text));
    DLC_TRY(options_lines(out, verb));
    return verb->takes_config ? keys_lines(out) : DLC_OK;
}

static dlc_err markdown_options(struct dlc_buf *out, const struct dlc_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char left[80];

        DLC_TRY(option_left(left, sizeof left, &options[i]));
        DLC_TRY(dlc_buf_printf(out, "| `%s` | %s | ", left, options[i].fallback ? options[i].fallback : ""));
        DLC_TRY(dlc_buf_printf(out, "%s", options[i].help));
        for (size_t j = 0; options[i].choices && options[i].choices[j]; j++)
            DLC_TRY(dlc_buf_printf(out, "%s `%s`", j ? "," : ":", options[i].choices[j]));
        DLC_TRY(dlc_buf_printf(out, " |\n"));
    }
    return DLC_OK;
}

/* Examples are indented by two; for a code block it takes four. */
static dlc_err markdown_text(struct dlc_buf *out, const char *text)
{
    while (*text) {
        const char *end = strchr(text, '\n') + 1; /* every line has one */

        DLC_TRY(dlc_buf_printf(out, "%s%.*s", text[0] == ' ' ? "  " : "", (int)(end - text), text));
        text = end;
    }
    return DLC_OK;
}

static dlc_err markdown_verb(struct dlc_buf *out, const struct dlc_verb *verb)
{
    DLC_TRY(dlc_buf_printf(out, "\n## %s\n\n    diloco %s %s\n\n", verb->name, verb->name, verb->usage));
    DLC_TRY(markdown_text(out, verb->text));
    if (verb->n_options > 0)
        DLC_TRY(dlc_buf_printf(out, "\n| flag | default | |\n|---|---|---|\n"));
    DLC_TRY(markdown_options(out, verb->options, verb->n_options));
    return verb->takes_config ? dlc_buf_printf(out, "\nEvery key below is a flag too.\n") : DLC_OK;
}

/* '|' separates the columns of a table. */
static dlc_err markdown_range(struct dlc_buf *out, const struct dlc_key *key)
{
    struct dlc_buf range = { 0 };
    dlc_err err = dlc_key_describe(&range, key);

    for (const char *c = range.data; err == DLC_OK && c && *c; c++)
        err = *c == '|' ? dlc_buf_append(out, "\\|", 2) : dlc_buf_append(out, c, 1);
    dlc_buf_fini(&range);
    return err;
}

static dlc_err markdown_keys(struct dlc_buf *out)
{
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    DLC_TRY(dlc_buf_printf(out, "\n## Keys\n\n"
                                "In `run.ini` (`[section]`, then `name = value`) or as flags: `--section.name value`, "
                                "`--section.name=value`, the short\n"
                                "flag, or the part after the dot where only one key has it. Flags beat the file. Whole "
                                "numbers may be written `1e6` or\n"
                                "`1_000_000`; `auto` lets the program choose, and it says what it chose.\n\n"
                                "| key | flag | range | default | |\n|---|---|---|---|---|\n"));
    for (size_t i = 0; i < n; i++) {
        DLC_TRY(dlc_buf_printf(out, "| `%s` | %s%s%s | ", keys[i].name, keys[i].flag ? "`--" : "",
                               keys[i].flag ? keys[i].flag : "", keys[i].flag ? "`" : ""));
        DLC_TRY(markdown_range(out, &keys[i]));
        DLC_TRY(dlc_buf_printf(out, " | %s | %s |\n", keys[i].fallback ? keys[i].fallback : "by preset", keys[i].help));
    }
    DLC_TRY(dlc_buf_printf(out, "\n## Presets\n\n"));
    return dlc_help_presets(out, true);
}

dlc_err dlc_help_markdown(struct dlc_buf *out)
{
    size_t n;
    const struct dlc_option *common = dlc_common_options(&n);

    DLC_TRY(
        dlc_buf_printf(out,
                       "# The command line\n\nMade by `./do docs` from the tables of verbs and keys; edit those.\n\n"
                       "| verb | |\n|---|---|\n"));
    for (const struct dlc_verb *const *v = dlc_verbs(); *v; v++)
        DLC_TRY(dlc_buf_printf(out, "| [`%s`](#%s) | %s |\n", (*v)->name, (*v)->name, (*v)->summary));
    DLC_TRY(dlc_buf_printf(out, "\nFlags of every verb:\n\n| flag | default | |\n|---|---|---|\n"));
    DLC_TRY(markdown_options(out, common, n));
    DLC_TRY(dlc_buf_printf(out, "| `--help` | | everything about a verb |\n\n"
                                "Exit status: 0 done, 1 failed, 2 wrong usage, 3 stopped but resumable, 4 input not "
                                "usable, 5 a peer or the network.\n"
                                "Results go to standard output, everything else to standard error.\n"));
    for (const struct dlc_verb *const *v = dlc_verbs(); *v; v++)
        DLC_TRY(markdown_verb(out, *v));
    return markdown_keys(out);
}

dlc_err dlc_help_version(struct dlc_buf *out)
{
    dlc_backend *be;

    DLC_TRY(dlc_backend_create(&be, "auto", 1));
    dlc_err err = dlc_buf_printf(out, "diloco %s\ninstruction set in use: %s\nmatrix products: %s\n%s", DLC_VERSION,
                                 be->isa, be->matmul, DLC_BUILD_FOUND);

    dlc_backend_destroy(be);
    return err;
}
