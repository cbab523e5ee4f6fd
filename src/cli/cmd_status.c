/* diloco status: how a run stands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/units.h"
#include "cli/verbs.h"
#include "train/status.h"

struct args {
    struct dlc_common common;
    double timeout_s;
};

static const struct dlc_option options[] = {
    { "timeout", DLC_OPTION_REAL, offsetof(struct args, timeout_s), .min = 0.1, .max = 3600, .value = "S",
      .fallback = "10", .help = "seconds to wait for the coordinator's answer" },
};

static json_int_t number(const json_t *v, const char *key)
{
    return json_integer_value(json_object_get(v, key));
}

static const char *text(const json_t *v, const char *key)
{
    const char *s = json_string_value(json_object_get(v, key));

    return s ? s : "?";
}

static void show_island(const json_t *isl)
{
    char up[DLC_UNITS_TEXT], down[DLC_UNITS_TEXT];
    double silent_s = json_number_value(json_object_get(isl, "silent_s"));

    dlc_format_bytes(up, (double)number(isl, "bytes_up"));
    dlc_format_bytes(down, (double)number(isl, "bytes_down"));
    printf("  %3d  %-20s %-9s %-10s holds %-6lld up %-9s down %-9s", (int)number(isl, "island"), text(isl, "name"),
           text(isl, "state"), json_is_true(json_object_get(isl, "connected")) ? "connected" : "away",
           (long long)number(isl, "holds_outer_step"), up, down);
    if (silent_s > 3)
        printf("  silent %.0f s", silent_s);
    if (number(isl, "fetch_size_bytes") > 0)
        printf("  fetching %.0f %%", 100.0 * (double)number(isl, "fetched_bytes") /
                                         (double)number(isl, "fetch_size_bytes"));
    printf("  %s\n", text(isl, "about"));
}

static void show_waiting(const json_t *v)
{
    const json_t *list = json_object_get(v, "waiting_for");

    if (json_array_size(list) == 0)
        return;
    printf("waiting for");
    for (size_t i = 0; i < json_array_size(list); i++)
        printf(" %d", (int)json_integer_value(json_array_get(list, i)));
    printf(", since %.0f s\n", json_number_value(json_object_get(v, "waiting_s")));
}

static void show_people(const json_t *v)
{
    const json_t *islands = json_object_get(v, "islands");

    printf("run %s\nouter step %lld of %lld, step %lld of %lld, %lld tokens averaged so far\n", text(v, "run"),
           (long long)number(v, "outer_step"), (long long)number(v, "outer_steps"), (long long)number(v, "step"),
           (long long)number(v, "steps"), (long long)number(v, "tokens"));
    printf("last outer step: %lld alive, %lld contributed\n", (long long)number(v, "alive"),
           (long long)number(v, "contributing"));
    show_waiting(v);
    for (size_t i = 0; i < json_array_size(islands); i++)
        show_island(json_array_get(islands, i));
    if (json_object_get(v, "at_work"))
        printf("%s\n", json_is_true(json_object_get(v, "at_work")) ? "at work" : "nobody is at work on it");
}

static dlc_err show_json(const json_t *v)
{
    char *dump = dlc_json_dump_indented(v);

    if (!dump)
        return dlc_fail(DLC_ENOMEM, "out of memory: status");
    puts(dump);
    dlc_free(dump);
    return DLC_OK;
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .timeout_s = 0 };
    json_t *v = NULL;
    char *url;
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 1, 1));
    if (!strstr(a.common.words[0], "://")) {
        DLC_TRY(dlc_status_folder(&v, a.common.words[0]));
    } else {
        url = strdup(a.common.words[0]);
        if (!url)
            return dlc_fail(DLC_ENOMEM, "out of memory: URL");
        memset(a.common.words[0], '*', strlen(url)); /* of the process list */
        err = dlc_status_ask(&v, url, a.timeout_s);
        free(url);
        if (err != DLC_OK)
            return err;
    }
    err = DLC_OK;
    if (a.common.json)
        err = show_json(v);
    else
        show_people(v);
    json_decref(v);
    return err;
}

const struct dlc_verb dlc_verb_status = {
    .name = "status",
    .summary = "who is alive, who contributed to the last outer step, who is waited for",
    .usage = "RUN | URL [--json]",
    .text =
        "RUN is a run folder on this machine, URL the line that `diloco coordinate` printed.\n\n"
        "  diloco status runs/a\n"
        "  diloco status 'nats+tls://isle:SECRET@192.0.2.1:4222/RUN?pin=PIN' --json\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
