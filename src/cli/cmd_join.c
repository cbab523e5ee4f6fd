/* diloco join: one island of a served run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "island/join.h"

struct args {
    struct dlc_common common;
    const char *name, *url_file;
};

static const struct dlc_option options[] = {
    { "name", DLC_OPTION_TEXT, offsetof(struct args, name), .value = "NAME",
      .help = "what the island is called; without it the machine's name" },
    { "url-file", DLC_OPTION_TEXT, offsetof(struct args, url_file), .value = "FILE",
      .help = "read the URL from this file (-: standard input), so that no process list shows it" },
};

/* The secret would stand in every process list of this machine. */
static char *hide(char *word)
{
    char *copy = strdup(word);

    if (copy)
        memset(word, '*', strlen(word));
    return copy;
}

static dlc_err read_url(struct dlc_buf *out, const char *path)
{
    char line[4096];

    if (strcmp(path, "-") != 0)
        DLC_TRY(dlc_file_read(out, path, sizeof line));
    else if (fgets(line, sizeof line, stdin))
        DLC_TRY(dlc_buf_append(out, line, strlen(line)));
    while (out->len > 0 && strchr(" \r\n\t", out->data[out->len - 1]))
        out->data[--out->len] = '\0';
    return out->len ? DLC_OK : dlc_fail(DLC_EUSAGE, "%s holds no URL", path);
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .name = NULL };
    struct dlc_config config;
    struct dlc_buf file = { 0 };
    char *word = NULL;
    dlc_err err = DLC_OK;

    dlc_config_default(&config);
    DLC_TRY(dlc_options_parse(&a, &config, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, a.url_file ? 0 : 1, a.url_file ? 0 : 1));
    if (!config.data.path[0])
        return dlc_fail(DLC_EUSAGE, "--data FOLDER is missing: the folder that the coordinator uses, copied here");
    if (a.url_file)
        err = read_url(&file, a.url_file);
    else
        word = hide(a.common.words[0]);
    if (a.common.quiet)
        dlc_log_set_level(DLC_LOG_WARN);
    if (err == DLC_OK)
        err = dlc_join(&config, &(struct dlc_join_options){ .url = a.url_file ? file.data : word, .name = a.name,
                                                            .quiet = a.common.quiet, .json = a.common.json });
    free(word);
    dlc_buf_fini(&file);
    return err;
}

const struct dlc_verb dlc_verb_join = {
    .name = "join",
    .summary = "be one island of a run that another machine coordinates",
    .usage = "URL --data FOLDER [--out FOLDER] [--name NAME] [system keys]",
    .text =
        "URL is the line that `diloco coordinate` printed. The island's folder (--out, otherwise diloco-island-RUN in "
        "this\n"
        "folder) keeps who it is and its optimizer's state: the same command comes back as the same island, after a "
        "crash or\n"
        "an interruption. Interrupting once ends the inner step and hands back what it was lent (status 3).\n\n"
        "  diloco join 'nats+tls://isle:SECRET@192.0.2.1:4222/RUN?pin=PIN' --data data/demo\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .takes_config = true,
    .run = run,
};
