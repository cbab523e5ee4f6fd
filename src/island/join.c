#include "island/join.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "data/dataset.h"
#include "exchange/nats_endpoint.h"
#include "island/identity.h"
#include "island/island_main.h"
#include "island/trainer.h"
#include "net/join_url.h"
#include "net/probe.h"
#include "net/wire.h"

#define PROBE_LIMIT_S 10.0
#define SLICE_NS 200000000
#define RETRY_US 500000
#define SAY_EVERY_S 10.0

struct join {
    const struct dlc_join_options *options;
    const struct dlc_config *given;
    struct dlc_config config; /* of the run, with what belongs to this machine */
    struct dlc_join_url url;
    struct dlc_buf ca_pem;
    struct dlc_identity identity;
    char folder[DLC_PATH_MAX];
    int lock_fd, index;

    dlc_dataset *data;
    dlc_backend *backend;
    dlc_nats_endpoint *ep;
    dlc_trainer *trainer;
    dlc_island *island;

    double said_s;
    char said[160];
};

/* --- the folder ------------------------------------------------------------------------------------------------------ */

static dlc_err open_folder(struct join *j)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, j->folder, "run.json"));
    if (dlc_file_exists(path))
        return dlc_fail(DLC_EUSAGE, "%s is a run's folder, not an island's; give another --out", j->folder);
    DLC_TRY(dlc_mkdir_p(j->folder));
    DLC_TRY(dlc_path_join(path, j->folder, "lock"));
    if (dlc_lock_take(&j->lock_fd, path) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "an island is at work in %s; give each its own --out", j->folder);
    return dlc_identity_begin(&j->identity, j->folder, j->url.run);
}

/* --- what this machine adds ---------------------------------------------------------------------------------------- */

/* The run's keys, those of this machine as they were given here, or found for this machine where they can be. */
static dlc_err take_config(struct join *j, const char *run_ini)
{
    static const char *const by_machine[] = { "train.micro_batch", "system.threads", "system.isa",
                                              "system.memory_limit_mb" };
    struct dlc_buf said = { 0 };
    struct dlc_config c;
    dlc_err err;
    int islands;

    dlc_config_default(&c);
    DLC_TRY(dlc_config_parse_ini(&c, run_ini, strlen(run_ini), "the run's configuration"));
    for (size_t i = 0; i < sizeof by_machine / sizeof *by_machine; i++)
        DLC_TRY(dlc_config_set(&c, by_machine[i], "auto", "join"));
    DLC_TRY(dlc_config_join(&c, j->given));
    islands = c.train.islands;
    c.train.islands = 1; /* on this machine: what is shared out by islands is this one's */
    err = dlc_config_resolve(&c, dlc_dataset_info(j->data), &said);
    c.train.islands = islands;
    dlc_buf_fini(&said);
    memcpy(c.train.out, j->folder, sizeof c.train.out);
    if (err == DLC_OK)
        j->config = c;
    return err;
}

/* --- joining --------------------------------------------------------------------------------------------------------- */

static void host_name(char out[64])
{
    char host[256] = "";
    size_t n = 0;

    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "island");
    for (const char *c = host; *c && *c != '.' && n < 48; c++) {
        if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '-' || *c == '_')
            out[n++] = *c;
    }
    snprintf(out + n, 64 - n, "%s", n ? "" : "island");
}

static dlc_err make_question(json_t **out, const struct join *j)
{
    char data[DLC_SHA256_HEX], name[64], host[64], about[128];

    host_name(host);
    snprintf(name, sizeof name, "%s", j->options->name ? j->options->name : j->identity.name[0] ? j->identity.name : host);
    dlc_sha256_to_hex(data, &dlc_dataset_info(j->data)->digest);
    snprintf(about, sizeof about, "%s, %s, %d threads, version %s", host, j->backend->isa,
             dlc_pool_n_threads(j->backend->pool), DLC_PROGRAM_VERSION);
    *out = json_pack("{s:s, s:b, s:s, s:s, s:s}", "name", name, "name_given", (int)(j->options->name != NULL), "about",
                     about, "data_sha256", data, "version", DLC_PROGRAM_VERSION);
    return *out ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory: question to join");
}

static dlc_err take_welcome(struct join *j, const json_t *welcome)
{
    static const char where[] = "the coordinator's welcome";
    const char *ini, *name;
    int64_t index, n_islands;

    DLC_TRY(dlc_json_get_int(&n_islands, welcome, "n_islands", 1, 1 << 20, where));
    DLC_TRY(dlc_json_get_int(&index, welcome, "index", 0, n_islands - 1, where));
    DLC_TRY(dlc_json_get_string(&ini, welcome, "run_ini", where));
    DLC_TRY(dlc_json_get_string(&name, welcome, "name", where));
    j->index = (int)index;
    snprintf(j->identity.name, sizeof j->identity.name, "%s", name);
    DLC_TRY(take_config(j, ini));
    return dlc_identity_write(&j->identity, j->folder);
}

static dlc_err ask_to_join(struct join *j)
{
    json_t *question, *welcome = NULL;
    dlc_err err;

    DLC_TRY(make_question(&question, j));
    err = dlc_nats_join(&j->ep, &j->url, j->ca_pem.len ? j->ca_pem.data : NULL, j->identity.identity,
                        j->identity.incarnation, question, &welcome, j->given->exchange.patience_s);
    json_decref(question);
    if (err == DLC_OK)
        err = take_welcome(j, welcome);
    json_decref(welcome);
    return err;
}

static dlc_err find_coordinator(struct join *j)
{
    struct dlc_probe_result result;

    DLC_TRY(dlc_probe(&result, &j->ca_pem, &j->url, PROBE_LIMIT_S));
    if (!j->url.tls)
        dlc_warn("nats:// is not encrypted; whoever sees the traffic sees the secret and the model");
    return DLC_OK;
}

/* Who types the line for the first time is told at once what is wrong with it. Who was in already may find the coordinator
 * away for a while, as every island does. */
static dlc_err come_in(struct join *j)
{
    double until_s = dlc_now_s() + j->given->exchange.patience_s;
    bool said = false;

    for (;;) {
        dlc_err err = find_coordinator(j);

        if (err == DLC_OK)
            err = ask_to_join(j);
        if (err == DLC_EPEER && dlc_stop_asked())
            return dlc_fail(DLC_ESTOPPED, "stopped while the coordinator was not there; the same command tries again");
        if (err != DLC_EPEER || !j->identity.name[0] || dlc_now_s() > until_s)
            return err;
        if (!said)
            dlc_warn("%s; trying for up to %.0f s", dlc_err_text(), j->given->exchange.patience_s);
        said = true;
        dlc_nats_endpoint_destroy(j->ep);
        j->ep = NULL;
        dlc_buf_clear(&j->ca_pem);
        usleep(RETRY_US);
        DLC_TRY(dlc_identity_begin(&j->identity, j->folder, j->url.run)); /* what was asked may have been heard */
    }
}

/* The instruction set is needed before the run's configuration is there: it is part of the question. */
static dlc_err open_machine(struct join *j)
{
    const struct dlc_config *c = j->given;

    DLC_TRY(dlc_dataset_open(&j->data, c->data.path, 1, c->data.deal, c->train.seed));
    return dlc_backend_create(&j->backend, c->system.isa, c->system.threads == DLC_AUTO ? 0 : c->system.threads);
}

static dlc_err begin(struct join *j)
{
    const struct dlc_config *c = &j->config;
    struct dlc_island_config island = dlc_island_config_of(c, j->index, j->identity.incarnation);
    struct dlc_exchange_size size = dlc_exchange_size_of(c);
    struct dlc_nats_endpoint_options options = { .n_params = size.n_params,
                                                 .slot_bytes = size.slot_bytes,
                                                 .codec = dlc_codec_of(c),
                                                 .opt = dlc_outer_opt_of(c),
                                                 .pool = j->backend->pool,
                                                 .folder = j->folder };

    if (c->train.method != DLC_METHOD_DILOCO)
        return dlc_fail(DLC_EINPUT, "the run's method is not diloco; only that one crosses machines");
    dlc_dataset_close(j->data);
    j->data = NULL;
    DLC_TRY(dlc_dataset_open_checked(&j->data, c->data.path, c->model.shape.context, c->data.deal, c->train.seed));
    dlc_island_pin(c, 0, j->backend);
    DLC_TRY(dlc_trainer_create(&j->trainer, c, j->url.run, j->index, j->folder, j->data, j->backend));
    DLC_TRY(dlc_nats_endpoint_begin(j->ep, &options));
    dlc_info("island %d (%s) of run %.8s: %zu parameters, %s, %d threads; folder %s", j->index, j->identity.name,
             j->url.run, size.n_params, j->backend->isa, dlc_pool_n_threads(j->backend->pool), j->folder);
    return dlc_island_create(&j->island, &island, &dlc_trainer_ops, j->trainer, dlc_nats_endpoint_base(j->ep));
}

/* --- the loop -------------------------------------------------------------------------------------------------------- */

static void say_state(struct join *j)
{
    char text[160], work[160];

    if (j->options->quiet || dlc_now_s() - j->said_s < SAY_EVERY_S)
        return;
    j->said_s = dlc_now_s();
    dlc_nats_endpoint_state(j->ep, text);
    dlc_island_describe(j->island, work);
    if (text[0] || work[0])
        dlc_info("%s%s%s", work, text[0] && work[0] ? "; " : "", text);
}

static dlc_err take_message(struct join *j, bool *got)
{
    struct dlc_message m;
    dlc_err err;

    DLC_TRY(dlc_nats_endpoint_recv(j->ep, &m, got, dlc_island_has_work(j->island) ? 0 : dlc_now_ns() + SLICE_NS));
    if (!*got)
        return DLC_OK;
    err = dlc_island_on_message(j->island, &m);
    dlc_message_fini(&m);
    return err;
}

static dlc_err serve(struct join *j)
{
    bool got;

    while (!dlc_island_may_leave(j->island)) {
        if (dlc_stop_asked()) {
            DLC_TRY(dlc_island_leave(j->island, "stopped by its operator"));
            return dlc_fail(DLC_ESTOPPED, "left in order; the same command comes back as island %s", j->identity.name);
        }
        DLC_TRY(take_message(j, &got));
        if (!got)
            DLC_TRY(dlc_island_work(j->island));
        say_state(j);
    }
    dlc_info("the run is over");
    return DLC_OK;
}

/* What ends this island is said to the coordinator too, which goes on without it. */
static void report_failure(struct join *j, dlc_err err)
{
    struct dlc_message m = { .kind = DLC_MSG_FAILED, .incarnation = j->identity.incarnation, .code = err };
    dlc_endpoint *ep = dlc_nats_endpoint_base(j->ep);
    char text[1024];

    snprintf(text, sizeof text, "%s", dlc_err_text());
    snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof m.text - 1, text);
    (void)ep->ops->send(ep, &m);
    (void)dlc_fail(err, "%s", text); /* the first failure is the one that counts */
}

/* For whoever compares islands: all that hold theta(t) hold the same bits. */
static void print_held(const struct join *j)
{
    struct dlc_sha256 theta;
    char hex[DLC_SHA256_HEX];
    uint64_t t;

    if (!j->options->json || !j->ep || !dlc_nats_endpoint_held(j->ep, &t, &theta))
        return;
    dlc_sha256_to_hex(hex, &theta);
    printf("{\"t\": %llu, \"theta\": \"%s\"}\n", (unsigned long long)t, hex);
}

static void tear_down(struct join *j)
{
    dlc_island_destroy(j->island);
    dlc_nats_endpoint_destroy(j->ep);
    dlc_trainer_destroy(j->trainer);
    dlc_backend_destroy(j->backend);
    dlc_dataset_close(j->data);
    dlc_buf_fini(&j->ca_pem);
    dlc_lock_release(j->lock_fd);
}

static dlc_err run(struct join *j)
{
    DLC_TRY(dlc_join_url_parse(&j->url, j->options->url));
    if (j->given->train.out[0])
        memcpy(j->folder, j->given->train.out, sizeof j->folder);
    else
        snprintf(j->folder, sizeof j->folder, "diloco-island-%.8s", j->url.run);
    DLC_TRY(dlc_wire_init());
    DLC_TRY(open_folder(j));
    DLC_TRY(open_machine(j));
    DLC_TRY(come_in(j));
    DLC_TRY(begin(j));
    return serve(j);
}

dlc_err dlc_join(const struct dlc_config *given, const struct dlc_join_options *options)
{
    struct join *j = dlc_calloc(1, sizeof *j);
    dlc_err err;

    if (!j)
        return DLC_ENOMEM;
    j->options = options;
    j->given = given;
    j->lock_fd = -1;
    dlc_signals_catch();
    err = run(j);
    if (err != DLC_OK && err != DLC_ESTOPPED && err != DLC_EPEER && j->island)
        report_failure(j, err);
    print_held(j);
    tear_down(j);
    dlc_free(j);
    return err;
}
