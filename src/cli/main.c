/* diloco VERB ...: finds the verb, runs it, turns its error into one line and an exit status. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/help.h"
#include "cli/verbs.h"

static dlc_err show(dlc_err (*make)(struct dlc_buf *out))
{
    struct dlc_buf text = { 0 };
    dlc_err err = make(&text);

    if (err == DLC_OK)
        fwrite(text.data, 1, text.len, stdout);
    dlc_buf_fini(&text);
    return err;
}

static dlc_err show_verb(const struct dlc_verb *verb)
{
    struct dlc_buf text = { 0 };
    dlc_err err = dlc_help_verb(&text, verb);

    if (err == DLC_OK)
        fwrite(text.data, 1, text.len, stdout);
    dlc_buf_fini(&text);
    return err;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static dlc_err find_verb(const struct dlc_verb **out, const char *name)
{
    *out = dlc_verb_find(name);
    if (*out)
        return DLC_OK;
    if (dlc_verb_nearest(name))
        return dlc_fail(DLC_EUSAGE, "there is no verb '%.80s'; did you mean %s?", name, dlc_verb_nearest(name));
    return dlc_fail(DLC_EUSAGE, "there is no verb '%.80s'; diloco alone lists them", name);
}

static dlc_err help(int argc, char **argv)
{
    const struct dlc_verb *verb;

    if (argc == 0)
        return show(dlc_help_tour);
    if (strcmp(argv[0], "--markdown") == 0)
        return show(dlc_help_markdown);
    DLC_TRY(find_verb(&verb, argv[0]));
    return show_verb(verb);
}

static dlc_err run(int argc, char **argv)
{
    const struct dlc_verb *verb;

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return show(dlc_help_tour);
    if (strcmp(argv[1], "--version") == 0)
        return show(dlc_help_version);
    if (strcmp(argv[1], "help") == 0)
        return help(argc - 2, argv + 2);
    DLC_TRY(find_verb(&verb, argv[1]));
    if (asks_for_help(argc - 2, argv + 2))
        return show_verb(verb);
    return verb->run(verb, argc - 2, argv + 2);
}

int main(int argc, char **argv)
{
    dlc_err err = run(argc, argv);

    if (err == DLC_OK && (fflush(stdout) != 0 || ferror(stdout)))
        err = dlc_fail_errno(DLC_EIO, "standard output");
    if (err != DLC_OK) /* stopped on request is no error */
        dlc_log(err == DLC_ESTOPPED ? DLC_LOG_WARN : DLC_LOG_ERROR, "%s", dlc_err_text());
    return dlc_err_exit_status(err);
}
