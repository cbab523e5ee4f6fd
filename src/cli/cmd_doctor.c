/* diloco doctor: is this machine, disk, clock and road fit for a run. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/units.h"
#include "cli/verbs.h"
#include "config/memory.h"
#include "net/addresses.h"
#include "net/join_url.h"
#include "net/probe.h"
#include "net/wire.h"
#include "train/status.h"

#define DISK_TEST_BYTES ((size_t)64 << 20)
#define DISK_SLOW_BYTES_PER_S 20e6
#define CLOCK_SKEW_S 60.0
#define PROBE_LIMIT_S 10.0

struct args {
    struct dlc_common common;
    const char *link;
};

static const struct dlc_option options[] = {
    { "link", DLC_OPTION_TEXT, offsetof(struct args, link), .value = "RATE",
      .help = "the road's rate, as in 100mbit: says what one outer step costs there" },
};

struct report {
    json_t *rows;
    int n_bad;
    bool json;
};

typedef enum { GOOD, DOUBTFUL, BAD } verdict;

static void say(struct report *r, verdict v, const char *what, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static void say(struct report *r, verdict v, const char *what, const char *fmt, ...)
{
    static const char *const words[] = { "ok", "doubtful", "bad" };
    char text[1200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->n_bad += v == BAD;
    json_array_append_new(r->rows, json_pack("{s:s, s:s, s:s}", "what", what, "verdict", words[v], "text", text));
    if (!r->json)
        printf("%-9s %-9s %s\n", words[v], what, text);
}

/* --- this machine ----------------------------------------------------------------------------------------------------- */

static void look_at_machine(struct report *r, const struct dlc_config *config)
{
    dlc_backend *backend = NULL;
    int64_t available = dlc_memory_available_mb();

    if (dlc_backend_create(&backend, config->system.isa, 0) != DLC_OK)
        say(r, BAD, "compute", "%s", dlc_err_text());
    else
        say(r, GOOD, "compute", "%d cores, instruction set %s, matrix products %s", dlc_n_cores(), backend->isa,
            backend->matmul);
    dlc_backend_destroy(backend);
    if (available > 0)
        say(r, available < 512 ? DOUBTFUL : GOOD, "memory", "%lld MiB are free; diloco train says what a model needs",
            (long long)available);
}

static dlc_err write_test_file(double *seconds, const char *folder)
{
    struct dlc_file_writer w;
    char path[DLC_PATH_MAX];
    void *bytes = dlc_calloc(1, 1 << 20);
    double began_s = dlc_now_s();
    dlc_err err;

    if (!bytes)
        return DLC_ENOMEM;
    err = dlc_path_join(path, folder, "diloco-doctor.tmp");
    if (err == DLC_OK)
        err = dlc_file_writer_open(&w, path);
    if (err == DLC_OK) {
        for (size_t i = 0; i < DISK_TEST_BYTES; i += 1 << 20)
            dlc_file_writer_write(&w, bytes, 1 << 20);
        err = dlc_file_writer_commit(&w);
        *seconds = dlc_now_s() - began_s;
    }
    if (err == DLC_OK)
        err = dlc_remove_tree(path);
    dlc_free(bytes);
    return err;
}

static void look_at_disk(struct report *r, const struct dlc_config *config)
{
    const char *folder = config->train.out[0] ? config->train.out : ".";
    char left[DLC_UNITS_TEXT], rate[DLC_UNITS_TEXT];
    struct statvfs fs;
    double seconds = 0, bytes_per_s;

    if (!dlc_is_folder(folder) || statvfs(folder, &fs) != 0) {
        say(r, BAD, "disk", "%s is no folder that can be looked at; make it, or give another --out", folder);
        return;
    }
    if (write_test_file(&seconds, folder) != DLC_OK) {
        say(r, BAD, "disk", "%s", dlc_err_text());
        return;
    }
    bytes_per_s = (double)DISK_TEST_BYTES / fmax(seconds, 1e-9);
    dlc_format_bytes(left, (double)fs.f_bavail * (double)fs.f_frsize);
    dlc_format_bytes(rate, bytes_per_s);
    say(r, bytes_per_s < DISK_SLOW_BYTES_PER_S ? DOUBTFUL : GOOD, "disk", "%s free in %s, %s/s when made durable", left,
        folder, rate);
}

static void look_at_addresses(struct report *r)
{
    struct dlc_address list[8];
    char text[512] = "";
    size_t n = 0, at = 0;

    if (dlc_addresses_list(list, &n, 8) != DLC_OK || n == 0) {
        say(r, DOUBTFUL, "address", "no address at which another machine could reach this one");
        return;
    }
    for (size_t i = 0; i < n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s%s", i ? ", " : "", list[i].text,
                               list[i].private_net ? " (private)" : "");
    say(r, GOOD, "address", "%s", text);
}

/* --- the road --------------------------------------------------------------------------------------------------------- */

static void look_at_clock(struct report *r, double theirs_s, double round_trip_s)
{
    double skew_s = dlc_wall_s() - theirs_s;

    say(r, fabs(skew_s) > CLOCK_SKEW_S ? DOUBTFUL : GOOD, "clock",
        "%.1f s beside the coordinator's (nothing depends on it but the times in the records of metrics)",
        fabs(skew_s) < round_trip_s ? 0.0 : skew_s);
}

static void cost_of_outer_step(struct report *r, const json_t *status, const char *link)
{
    double bytes = json_number_value(json_object_get(status, "contribution_bytes")), bits_per_s;
    char text[DLC_UNITS_TEXT];

    dlc_format_bytes(text, 2 * bytes);
    if (!link)
        say(r, GOOD, "cost", "an outer step moves %s up and down together; --link RATE says how long that takes", text);
    else if (dlc_parse_rate(&bits_per_s, link, "--link") != DLC_OK)
        say(r, BAD, "cost", "%s", dlc_err_text());
    else
        say(r, GOOD, "cost", "an outer step moves %s up and down together: %.1f s at %s", text,
            2 * bytes * 8 / bits_per_s, link);
}

static void look_at_coordinator(struct report *r, const char *url, const char *link)
{
    json_t *status = NULL;
    double began_s = dlc_now_s(), round_trip_s;

    if (dlc_status_ask(&status, url, PROBE_LIMIT_S) != DLC_OK) {
        say(r, BAD, "run", "%s", dlc_err_text());
        return;
    }
    round_trip_s = dlc_now_s() - began_s;
    say(r, GOOD, "run", "its coordinator answers: version %s, outer step %lld of %lld, %lld islands connected",
        json_string_value(json_object_get(status, "version")),
        (long long)json_integer_value(json_object_get(status, "outer_step")),
        (long long)json_integer_value(json_object_get(status, "outer_steps")),
        (long long)json_integer_value(json_object_get(status, "connected")));
    look_at_clock(r, json_number_value(json_object_get(status, "time")), round_trip_s);
    cost_of_outer_step(r, status, link);
    json_decref(status);
}

static void look_at_road(struct report *r, const char *text, const char *link)
{
    struct dlc_probe_result result;
    struct dlc_buf ca_pem = { 0 };
    struct dlc_join_url url;

    if (dlc_join_url_parse(&url, text) != DLC_OK) {
        say(r, BAD, "road", "%s", dlc_err_text());
        return;
    }
    if (dlc_probe(&result, &ca_pem, &url, PROBE_LIMIT_S) != DLC_OK) {
        say(r, BAD, "road", "%s", dlc_err_text());
    } else {
        say(r, GOOD, "road", "%s port %d: nats-server %s, connected in %.0f ms, %s", result.address, url.port,
            result.server_version, 1e3 * result.connect_s,
            url.tls ? "certificate is the one of the line" : "not encrypted");
        look_at_coordinator(r, text, link);
    }
    dlc_buf_fini(&ca_pem);
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .link = NULL };
    struct dlc_config config;
    struct report r;
    char *url = NULL, *dump;

    dlc_config_default(&config);
    DLC_TRY(dlc_options_parse(&a, &config, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 0, 1));
    r = (struct report){ .rows = json_array(), .json = a.common.json };
    if (a.common.n_words) {
        url = strdup(a.common.words[0]);
        memset(a.common.words[0], '*', strlen(a.common.words[0])); /* of the process list */
        DLC_TRY(dlc_wire_init());
    }
    look_at_machine(&r, &config);
    look_at_disk(&r, &config);
    look_at_addresses(&r);
    if (url)
        look_at_road(&r, url, a.link);
    dump = a.common.json ? json_dumps(r.rows, JSON_INDENT(2)) : NULL;
    if (dump)
        puts(dump);
    free(dump);
    free(url);
    json_decref(r.rows);
    return r.n_bad ? dlc_fail(url ? DLC_EPEER : DLC_EFAIL, "%d of the checks failed", r.n_bad) : DLC_OK;
}

const struct dlc_verb dlc_verb_doctor = {
    .name = "doctor",
    .summary = "is this machine, its disk and the road to a coordinator fit for a run",
    .usage = "[URL] [--out FOLDER] [--link RATE] [--json]",
    .text =
        "Looks at cores, memory, the disk of --out (or of this folder) and this machine's addresses; with URL, the line "
        "that\n"
        "`diloco coordinate` printed, at each step of the road from the name to the certificate and the coordinator.\n\n"
        "  diloco doctor\n"
        "  diloco doctor 'nats+tls://isle:SECRET@192.0.2.1:4222/RUN?pin=PIN' --link 10mbit\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .takes_config = true,
    .run = run,
};
