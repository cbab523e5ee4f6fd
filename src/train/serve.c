#include "train/serve.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "island/island_main.h"
#include "net/probe.h"
#include "net/wire.h"
#include "train/run.h"
#include "train/serve_internal.h"

#define PROBE_LIMIT_S 10.0

/* --- joining ------------------------------------------------------------------------------------------------------ */

static dlc_err check_data(const struct dlc_serve *s, const json_t *question)
{
    char ours[DLC_SHA256_HEX];
    const char *theirs;

    DLC_TRY(dlc_json_get_string(&theirs, question, "data_sha256", "question to join"));
    dlc_sha256_to_hex(ours, &s->run->identity.data_digest);
    if (strcmp(ours, theirs) == 0)
        return DLC_OK;
    return dlc_fail(DLC_EINPUT,
                    "the run trains on data %.12s, this island's --data is %.12s; copy the coordinator's data folder "
                    "to this machine, or prepare the same text with the same options",
                    ours, theirs);
}

static dlc_err make_welcome(json_t **out, const struct dlc_serve *s, int index)
{
    const struct dlc_run *run = s->run;
    struct dlc_buf ini = { 0 };
    char data[DLC_SHA256_HEX];
    dlc_err err = dlc_config_write_ini(&ini, run->config);

    dlc_sha256_to_hex(data, &run->identity.data_digest);
    if (err == DLC_OK)
        *out = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "run", run->identity.run_id, "version", DLC_PROGRAM_VERSION,
                         "run_ini", ini.data, "data_sha256", data, "vocab_size",
                         run->config->model.shape.vocab_size, "name", s->roster.islands[index].name);
    dlc_buf_fini(&ini);
    if (err == DLC_OK && !*out)
        err = dlc_fail(DLC_ENOMEM, "out of memory: welcome of an island");
    return err;
}

static uint32_t last_life(const dlc_serve *s, const json_t *question)
{
    const char *identity = json_string_value(json_object_get(question, "identity"));
    int index = identity ? dlc_roster_find(&s->roster, identity) : -1;

    return index < 0 ? 0 : s->roster.islands[index].incarnation;
}

static dlc_err admit(void *self, const json_t *question, int *index, json_t **welcome)
{
    dlc_serve *s = self;
    const struct dlc_roster_island *isl;
    int n = s->roster.n;
    uint32_t life;

    if (dlc_coord_is_finished(s->run->core))
        return dlc_fail(DLC_EINPUT, "the run is finished: all %lld steps are trained",
                        (long long)s->run->config->train.steps);
    DLC_TRY(check_data(s, question));
    life = last_life(s, question);
    DLC_TRY(dlc_roster_admit(&s->roster, question, index));
    isl = &s->roster.islands[*index];
    if (s->roster.n > n || isl->incarnation != life)
        DLC_TRY(serve__log_island(s, *index));
    dlc_coordinator_set_incarnation(s->run->coordinator, *index, isl->incarnation);
    dlc_info("island %d (%s, %s) joins, life %u", *index, isl->name, isl->about, isl->incarnation);
    return make_welcome(welcome, s, *index);
}

static dlc_err record_line(void *self, uint64_t t, char **out)
{
    dlc_serve *s = self;

    return dlc_record_line_read(out, s->run->config->train.out, t);
}

/* --- status ------------------------------------------------------------------------------------------------------- */

static json_t *island_status(const struct dlc_serve *s, int i)
{
    const struct dlc_roster_island *isl = &s->roster.islands[i];
    struct dlc_nats_island_info info = dlc_nats_hub_island(s->hub, i);
    const struct dlc_traffic *traffic = &dlc_nats_hub_base(s->hub)->traffic[i];

    return json_pack("{s:i, s:s, s:s, s:s, s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:f}", "island", i, "name", isl->name,
                     "about", isl->about, "state", dlc_coord_island_state(s->run->core, i), "connected",
                     (int)info.connected, "silent_s", info.silent_s, "holds_outer_step", (json_int_t)info.held_t,
                     "bytes_up", (json_int_t)traffic->bytes_up, "bytes_down", (json_int_t)traffic->bytes_down,
                     "fetched_bytes", (json_int_t)info.fetched, "fetch_size_bytes", (json_int_t)info.fetch_size,
                     "bytes_per_s_up", info.bytes_per_s_up);
}

static json_t *waiting_status(const struct dlc_serve *s)
{
    int islands[64], n = dlc_coord_waiting_for(s->run->core, islands, 64);
    json_t *list = json_array();

    for (int i = 0; list && i < n && i < 64; i++)
        json_array_append_new(list, json_integer(islands[i]));
    return list;
}

static json_t *status(void *self)
{
    dlc_serve *s = self;
    const struct dlc_run *run = s->run;
    json_t *islands = json_array();
    struct dlc_coord_counts counts;
    int n_connected = 0;

    for (int i = 0; islands && i < s->roster.n; i++) {
        n_connected += dlc_nats_hub_island(s->hub, i).connected;
        if (json_array_append_new(islands, island_status(s, i)) != 0) {
            json_decref(islands);
            return NULL;
        }
    }
    dlc_coord_counts(&counts, run->core);
    return json_pack("{s:s, s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:I, s:I, s:o, s:f, s:o}", "run",
                     run->identity.run_id, "version", DLC_PROGRAM_VERSION, "time", dlc_wall_s(), "params",
                     (json_int_t)run->core_config.n_params, "contribution_bytes",
                     (json_int_t)run->core_config.codec->size_bytes(run->core_config.n_params), "outer_step", (json_int_t)dlc_coord_t(run->core), "outer_steps",
                     (json_int_t)dlc_coord_n_rounds(&run->core_config), "step", (json_int_t)run->last.step, "steps",
                     (json_int_t)run->config->train.steps, "connected", n_connected, "alive", counts.alive,
                     "contributing", counts.contributing, "tokens_averaged", (json_int_t)counts.tokens, "tokens", (json_int_t)run->last.n_tokens, "waiting_for",
                     waiting_status(s), "waiting_s",
                     run->first_arrival_s > 0 ? dlc_now_s() - run->first_arrival_s : 0.0, "islands", islands);
}

/* --- server and hub ------------------------------------------------------------------------------------------------- */

static dlc_err start_own_server(dlc_serve *s, const char *folder)
{
    const struct dlc_serve_options *o = &s->run->options.serve;
    struct dlc_nats_server_options options = { .folder = folder, .run = s->run->identity.run_id,
                                               .program = o->nats_program, .listen = o->listen,
                                               .insecure = o->insecure, .loopback = o->loopback };
    const char *ca;

    DLC_TRY(dlc_nats_server_start(&s->server, &options));
    s->lead_url = *dlc_nats_server_lead_url(s->server);
    s->island_url = *dlc_nats_server_island_url(s->server);
    ca = dlc_nats_server_ca_pem(s->server);
    return ca ? dlc_buf_append(&s->ca_pem, ca, strlen(ca)) : DLC_OK;
}

/* Somebody's server or cluster: coordinator and islands use the credentials of the URL that was given. */
static dlc_err use_server(dlc_serve *s)
{
    struct dlc_probe_result result;

    DLC_TRY(dlc_join_url_parse(&s->lead_url, s->run->options.serve.nats));
    snprintf(s->lead_url.run, sizeof s->lead_url.run, "%s", s->run->identity.run_id);
    s->island_url = s->lead_url;
    DLC_TRY(dlc_probe(&result, &s->ca_pem, &s->lead_url, PROBE_LIMIT_S));
    dlc_info("nats-server %s at %s:%d", result.server_version, s->lead_url.host, s->lead_url.port);
    return DLC_OK;
}

static dlc_err open_hub(dlc_serve *s, const char *folder)
{
    struct dlc_run *run = s->run;
    struct dlc_nats_hub_options options = { .size = dlc_exchange_size_of(run->config),
                                            .url = &s->lead_url,
                                            .ca_pem = s->ca_pem.len ? s->ca_pem.data : NULL,
                                            .sys_secret =
                                                s->server ? dlc_nats_server_sys_secret(s->server) : NULL,
                                            .folder = folder,
                                            .codec = dlc_codec_of(run->config),
                                            .n_state = dlc_outer_opt_n_state(run->core_config.opt.kind),
                                            .state = { run->state[0], run->state[1] },
                                            .self = s,
                                            .admit = admit,
                                            .status = status,
                                            .record_line = record_line,
                                            .fence = dlc_leader_fence(s->leader) };

    return dlc_nats_hub_create(&s->hub, &options);
}

/* What a start left behind that never became a run: its certificates carry another run's name. */
static dlc_err clear_folders(const char *nats, const char *exchange, const char *run_folder)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_remove_tree(nats));
    DLC_TRY(dlc_remove_tree(exchange));
    DLC_TRY(dlc_path_join(path, run_folder, "islands.json"));
    return dlc_remove_tree(path);
}

static dlc_err open_all(dlc_serve *s, bool old)
{
    const char *out = s->run->config->train.out;
    char nats[DLC_PATH_MAX], exchange[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(nats, out, "nats"));
    DLC_TRY(dlc_path_join(exchange, out, "exchange"));
    if (!old)
        DLC_TRY(clear_folders(nats, exchange, out));
    DLC_TRY(dlc_mkdir_p(exchange));
    DLC_TRY(dlc_roster_open(&s->roster, out, dlc_config_n_identities(s->run->config)));
    DLC_TRY(s->run->options.serve.nats ? use_server(s) : start_own_server(s, nats));
    DLC_TRY(serve__take_lease(s, exchange));
    return open_hub(s, exchange);
}

dlc_err dlc_serve_open(dlc_serve **out, struct dlc_run *run, bool old)
{
    dlc_serve *s = dlc_calloc(1, sizeof *s);
    dlc_err err;

    *out = NULL;
    if (!s)
        return DLC_ENOMEM;
    s->run = run;
    err = open_all(s, old);
    if (err != DLC_OK) {
        dlc_serve_close(s, true);
        return err;
    }
    *out = s;
    return DLC_OK;
}

void dlc_serve_close(dlc_serve *s, bool leaving)
{
    if (!s)
        return;
    dlc_nats_hub_destroy(s->hub, leaving);
    dlc_leader_close(s->leader, true);
    dlc_nats_server_stop(s->server);
    dlc_roster_close(&s->roster);
    dlc_buf_fini(&s->ca_pem);
    dlc_free(s);
}

dlc_hub *dlc_serve_hub(dlc_serve *s)
{
    return dlc_nats_hub_base(s->hub);
}

void dlc_serve_say_join(const dlc_serve *s)
{
    struct dlc_buf url = { 0 };

    if (s->run->options.serve.insecure)
        dlc_warn("--insecure: nothing is encrypted; whoever sees the traffic sees the secret and the model");
    if (dlc_join_url_format(&url, &s->island_url) == DLC_OK) {
        dlc_info("on every other machine, with the data folder copied there:");
        printf("diloco join '%s' --data DATA\n", url.data);
        fflush(stdout);
    }
    dlc_buf_fini(&url);
}

dlc_err serve__watch(void *serve)
{
    dlc_serve *s = serve;
    bool restarted = false;

    if (!s->server)
        return DLC_OK;
    DLC_TRY(dlc_nats_server_watch(s->server, &restarted));
    if (restarted)
        dlc_warn("nats-server was gone and is started again; islands come back by themselves");
    return DLC_OK;
}

dlc_err dlc_serve_turn(dlc_serve *s)
{
    DLC_TRY(dlc_leader_check(s->leader));
    return serve__watch(s);
}

bool dlc_serve_is_quiet(dlc_serve *s)
{
    return dlc_nats_hub_is_quiet(s->hub);
}
