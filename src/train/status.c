#include "train/status.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "config/config.h"
#include "exchange/nats_question.h"
#include "net/join_url.h"
#include "net/probe.h"
#include "net/wire.h"
#include "train/run_folder.h"

#define PROBE_LIMIT_S 10.0

/* --- of a coordinator ------------------------------------------------------------------------------------------------- */

static dlc_err take_answer(json_t **out, const struct dlc_wire_msg *m)
{
    struct dlc_answer answer;
    dlc_err err = DLC_OK;

    DLC_TRY(dlc_answer_parse(&answer, m->bytes, m->size_bytes));
    if (answer.ok)
        *out = json_incref((json_t *)(uintptr_t)answer.ok);
    else
        err = dlc_fail(answer.code, "%s", answer.text);
    dlc_answer_fini(&answer);
    return err;
}

static dlc_err ask_until(json_t **out, dlc_wire *w, const char *run, double timeout_s)
{
    double until_s = dlc_now_s() + timeout_s;
    struct dlc_wire_msg answer;
    char subject[128];
    bool got = false;
    dlc_err err;

    snprintf(subject, sizeof subject, "dlc.%s.c.status", run);
    while (!got && dlc_now_s() < until_s) {
        DLC_TRY(dlc_wire_request(w, subject, "{}", 2, &answer, &got, 1000));
        if (got && answer.no_responders) {
            dlc_wire_msg_free(&answer);
            return dlc_fail(DLC_EPEER, "the server is there and the coordinator of run %.8s is not", run);
        }
    }
    if (!got)
        return dlc_fail(DLC_EPEER, "the coordinator of run %.8s did not answer in %.0f s", run, timeout_s);
    err = take_answer(out, &answer);
    dlc_wire_msg_free(&answer);
    return err;
}

dlc_err dlc_status_ask(json_t **out, const char *text, double timeout_s)
{
    struct dlc_probe_result result;
    struct dlc_buf ca_pem = { 0 };
    struct dlc_join_url url;
    dlc_wire *w = NULL;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_join_url_parse(&url, text));
    DLC_TRY(dlc_wire_init());
    err = dlc_probe(&result, &ca_pem, &url, PROBE_LIMIT_S);
    if (err == DLC_OK)
        err = dlc_wire_connect(&w, &(struct dlc_wire_options){ .host = url.host,
                                                               .port = url.port,
                                                               .run = url.run,
                                                               .user = url.user,
                                                               .secret = url.secret,
                                                               .ca_pem = url.tls ? ca_pem.data : NULL,
                                                               .name = "status" });
    if (err == DLC_OK)
        err = ask_until(out, w, url.run, timeout_s);
    dlc_wire_close(w);
    dlc_buf_fini(&ca_pem);
    return err;
}

/* --- of a folder ------------------------------------------------------------------------------------------------------ */

static json_t *members_of(const struct dlc_record *r)
{
    static const char *const fates[] = { "summed", "dropped", "refused", "late", "carried" };
    json_t *list = json_array();

    for (size_t i = 0; list && i < r->n_members; i++)
        json_array_append_new(list, json_pack("{s:i, s:s}", "island", r->members[i].island, "fate",
                                              (size_t)r->members[i].fate < sizeof fates / sizeof *fates
                                                  ? fates[r->members[i].fate]
                                                  : "?"));
    return list;
}

static int n_summed(const struct dlc_record *r)
{
    int n = 0;

    for (size_t i = 0; i < r->n_members; i++)
        n += r->members[i].fate == DLC_MEMBER_SUMMED || r->members[i].fate == DLC_MEMBER_CARRIED;
    return n;
}

static bool is_at_work(const char *run_folder)
{
    char path[DLC_PATH_MAX];
    int fd;

    if (dlc_path_join(path, run_folder, "lock") != DLC_OK || !dlc_file_exists(path) || dlc_lock_take(&fd, path) != DLC_OK)
        return dlc_file_exists(path);
    dlc_lock_release(fd);
    return false;
}

dlc_err dlc_status_folder(json_t **out, const char *run_folder)
{
    static const struct dlc_record none;
    struct dlc_run_identity identity;
    struct dlc_records records;
    struct dlc_config config;
    const struct dlc_record *last;
    char path[DLC_PATH_MAX];
    int64_t rounds;

    *out = NULL;
    DLC_TRY(dlc_run_identity_read(&identity, run_folder));
    dlc_config_default(&config);
    DLC_TRY(dlc_path_join(path, run_folder, "run.ini"));
    DLC_TRY(dlc_config_read_ini(&config, path));
    DLC_TRY(dlc_records_read(&records, run_folder, identity.run_id));
    last = records.n ? &records.items[records.n - 1] : &none;
    rounds = (config.train.steps + config.outer.steps - 1) / config.outer.steps;
    *out = json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:i, s:i, s:I, s:o}", "run", identity.run_id, "at_work",
                     (int)is_at_work(run_folder), "outer_step", (json_int_t)last->t, "outer_steps", (json_int_t)rounds,
                     "step", (json_int_t)last->step, "steps", (json_int_t)config.train.steps, "alive", last->n_alive,
                     "contributing", n_summed(last), "tokens", (json_int_t)last->n_tokens, "members", members_of(last));
    dlc_records_free(&records);
    return *out ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory: status");
}
