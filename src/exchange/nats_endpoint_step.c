/* From the step that is held to the one the leader stands at: records, updates, the outer steps, snapshots. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "exchange/nats_endpoint_internal.h"
#include "outer/merge.h"

static size_t theta_bytes(const dlc_nats_endpoint *e)
{
    return e->opt.n_params * sizeof(float);
}

static size_t n_arrays(const dlc_nats_endpoint *e, uint64_t t)
{
    return 1 + (t > 0 ? (size_t)dlc_outer_opt_n_state(e->opt.opt.kind) : 0);
}

/* --- what comes next ---------------------------------------------------------------------------------------------- */

static void go_to(dlc_nats_endpoint *e, catch_stage stage)
{
    e->stage = stage;
    e->question_due_ns = 0;
    pthread_cond_signal(&e->due);
    pthread_cond_signal(&e->fetching);
    pthread_cond_broadcast(&e->arrived);
}

void end__plan(dlc_nats_endpoint *e)
{
    if (!e->begun || e->failed != DLC_OK || e->stage != CATCH_NOTHING || !e->has_leader)
        return;
    if (!e->holds)
        go_to(e, CATCH_ASK_SNAPSHOT);
    else if (e->held_t < e->leader.t)
        go_to(e, CATCH_ASK_FACT);
}

static void report_fork(dlc_nats_endpoint *e, uint64_t t, const struct dlc_sha256 *theirs, const char *what)
{
    char mine[DLC_SHA256_HEX], other[DLC_SHA256_HEX], text[320];
    struct dlc_message m = { .kind = DLC_MSG_FAILED, .incarnation = e->incarnation, .code = DLC_EPEER, .t = e->held_t };

    dlc_sha256_to_hex(mine, &e->held_record);
    dlc_sha256_to_hex(other, theirs);
    snprintf(text, sizeof text, "two histories: this island holds record %.16s of step %llu, %s %.16s of step %llu",
             mine, (unsigned long long)e->held_t, what, other, (unsigned long long)t);
    snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof m.text - 1, text);
    if (e->failed == DLC_OK)
        (void)dlc_channel_send(e->channel, &m);
    end__fail(e, DLC_EPEER, text);
}

/* Nobody leads from a history that ends before what somebody holds, or goes another way. */
void end__check_history(dlc_nats_endpoint *e)
{
    if (!e->holds || e->failed != DLC_OK)
        return;
    if (e->leader.t < e->held_t || (e->leader.t == e->held_t && !dlc_sha256_equal(&e->leader.record, &e->held_record)))
        report_fork(e, e->leader.t, &e->leader.record, "the coordinator stands at record");
}

struct dlc_blob_ref end__wanted(const dlc_nats_endpoint *e)
{
    return e->stage == CATCH_FETCH_UPDATE ? e->fact.update : e->snapshot.blob;
}

void end__wanted_path(char out[DLC_PATH_MAX], const dlc_nats_endpoint *e)
{
    bool is_update = e->stage == CATCH_FETCH_UPDATE || e->stage == CATCH_APPLY_UPDATE;

    snprintf(out, DLC_PATH_MAX, "%.3900s/%s.bin", e->folder, is_update ? "update" : "snapshot");
}

static void refuse_size(dlc_nats_endpoint *e, const char *what, uint64_t size, uint64_t expected)
{
    char text[200];

    snprintf(text, sizeof text, "the coordinator offers %s of %llu bytes, %llu are right for this model", what,
             (unsigned long long)size, (unsigned long long)expected);
    end__fail(e, DLC_EPEER, text);
}

void end__take_fact(dlc_nats_endpoint *e, const struct dlc_answer *a)
{
    size_t expected = e->begun ? e->opt.codec->size_bytes(e->opt.n_params) : 0;
    struct dlc_fact fact;

    if (e->stage != CATCH_ASK_FACT || !a->ok)
        return;
    if (dlc_fact_from_json(&fact, a->ok) != DLC_OK) {
        dlc_warn("what the coordinator says of step %llu: %s", (unsigned long long)(e->held_t + 1), dlc_err_text());
        return;
    }
    if (fact.record.t != e->held_t + 1) {
        dlc_fact_fini(&fact);
        return; /* an answer from before */
    }
    dlc_fact_fini(&e->fact);
    e->fact = fact;
    if (!dlc_sha256_equal(&fact.record.prev, &e->held_record))
        report_fork(e, e->held_t, &fact.record.prev, "the coordinator's history has record");
    else if (!fact.summed)
        go_to(e, CATCH_APPLY_UPDATE);
    else if (fact.update.size_bytes == 0)
        go_to(e, CATCH_ASK_SNAPSHOT); /* away for too long */
    else if (fact.update.size_bytes != expected)
        refuse_size(e, "an update", fact.update.size_bytes, expected);
    else
        go_to(e, CATCH_FETCH_UPDATE);
}

void end__take_snapshot_offer(dlc_nats_endpoint *e, const struct dlc_answer *a)
{
    struct dlc_snapshot s;
    size_t expected;

    if (e->stage != CATCH_ASK_SNAPSHOT)
        return;
    if (!a->ok) {
        dlc_debug("no snapshot yet: %s", a->text);
        return;
    }
    if (dlc_snapshot_from_json(&s, a->ok) != DLC_OK) {
        dlc_warn("what the coordinator says of its snapshot: %s", dlc_err_text());
        return;
    }
    expected = n_arrays(e, s.t) * theta_bytes(e);
    if (e->holds && s.t < e->held_t)
        return; /* an answer from before */
    e->snapshot = s;
    if (s.blob.size_bytes != expected)
        refuse_size(e, "a snapshot", s.blob.size_bytes, expected);
    else
        go_to(e, CATCH_FETCH_SNAPSHOT);
}

/* --- the outer step ----------------------------------------------------------------------------------------------- */

/* The assignment at work needs theta of the step before it, until it is done or a newer one has taken its place. */
static bool is_replaced(const dlc_nats_endpoint *e)
{
    for (const struct end_entry *q = e->first; q; q = q->next) {
        if (q->m.kind == DLC_MSG_ASSIGN && q->m.t > e->assigned.t)
            return true;
    }
    return false;
}

bool end__may_step(const dlc_nats_endpoint *e)
{
    if (e->stage == CATCH_APPLY_UPDATE)
        return !e->busy || e->held_t + 1 <= e->assigned.t || is_replaced(e);
    return e->stage == CATCH_APPLY_SNAPSHOT && (!e->busy || is_replaced(e));
}

static dlc_err take_outer_step(dlc_nats_endpoint *e, const char *path, uint64_t t)
{
    float *theta_new = e->theta[t & 1], *theta_old = e->theta[(t - 1) & 1];
    struct dlc_merge_part part = { .weight = 1.0 };
    struct dlc_merge merge = { .codec = e->opt.codec, .opt = &e->opt.opt, .n = e->opt.n_params, .t = t };
    struct dlc_file_map map;

    if (!e->fact.summed) {
        memcpy(theta_new, theta_old, theta_bytes(e));
        return DLC_OK;
    }
    DLC_TRY(dlc_file_map_open(&map, path));
    part.payload = map.data;
    if (map.size_bytes == e->fact.update.size_bytes)
        (void)dlc_merge(theta_new, theta_old, e->state, NULL, &merge, &part, 1, e->opt.pool);
    dlc_file_map_close(&map);
    return DLC_OK;
}

/* Parameters that are not the record's: what led there may be wrong as well, so all of it is fetched anew. */
static void lose_hold(dlc_nats_endpoint *e, uint64_t t, const struct dlc_sha256 *expected, const struct dlc_sha256 *found)
{
    char want[DLC_SHA256_HEX], is[DLC_SHA256_HEX];

    dlc_sha256_to_hex(want, expected);
    dlc_sha256_to_hex(is, found);
    dlc_warn("the parameters of step %llu are %.16s here and %.16s in the record: they are fetched anew",
             (unsigned long long)t, is, want);
    e->holds = false;
    go_to(e, CATCH_ASK_SNAPSHOT);
}

static dlc_err step_by_update(dlc_nats_endpoint *e)
{
    uint64_t t = e->held_t + 1;
    struct dlc_sha256 theta;
    char path[DLC_PATH_MAX];
    dlc_err err;

    end__wanted_path(path, e);
    pthread_mutex_unlock(&e->mutex);
    err = take_outer_step(e, path, t);
    if (err == DLC_OK)
        theta = dlc_sha256(e->theta[t & 1], theta_bytes(e));
    (void)unlink(path);
    pthread_mutex_lock(&e->mutex);
    if (err != DLC_OK)
        return err;
    e->stage = CATCH_NOTHING;
    if (!dlc_sha256_equal(&theta, &e->fact.record.theta)) {
        e->resupply_wanted = true;
        lose_hold(e, t, &e->fact.record.theta, &theta);
        return DLC_OK;
    }
    e->held_t = t;
    e->held_theta = theta;
    e->held_record = e->fact.record.hash;
    return DLC_OK;
}

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

static dlc_err check_outer(const dlc_nats_endpoint *e, const char *at, size_t size_bytes)
{
    struct dlc_sha256 outer = dlc_sha256(at, size_bytes);

    if (e->snapshot.t == 0 || dlc_sha256_equal(&outer, &e->snapshot.outer))
        return DLC_OK;
    return dlc_fail(DLC_EPEER, "the outer state in the coordinator's snapshot of step %llu is not the record's",
                    (unsigned long long)e->snapshot.t);
}

static dlc_err copy_snapshot(dlc_nats_endpoint *e, const char *bytes)
{
    const struct dlc_snapshot *s = &e->snapshot;
    size_t n = n_arrays(e, s->t);
    struct dlc_sha256 theta;

    memcpy(e->theta[s->t & 1], bytes, theta_bytes(e));
    theta = dlc_sha256(e->theta[s->t & 1], theta_bytes(e));
    if (!dlc_sha256_equal(&theta, &s->theta))
        return dlc_fail(DLC_EPEER, "the parameters in the coordinator's snapshot of step %llu are not the record's",
                        (unsigned long long)s->t);
    DLC_TRY(check_outer(e, bytes + theta_bytes(e), (n - 1) * theta_bytes(e)));
    for (size_t k = 0; k < 2; k++) {
        if (e->state[k] && k + 1 < n)
            memcpy(e->state[k], bytes + (k + 1) * theta_bytes(e), theta_bytes(e));
        else if (e->state[k])
            memset(e->state[k], 0, theta_bytes(e));
    }
    return DLC_OK;
}

static dlc_err load_snapshot(dlc_nats_endpoint *e, const char *path)
{
    struct dlc_file_map map;
    dlc_err err;

    DLC_TRY(dlc_file_map_open(&map, path));
    if (map.size_bytes != e->snapshot.blob.size_bytes)
        err = dlc_fail(DLC_EINPUT, "%s: %zu bytes, %llu were written", path, map.size_bytes,
                       (unsigned long long)e->snapshot.blob.size_bytes);
    else
        err = copy_snapshot(e, map.data);
    dlc_file_map_close(&map);
    (void)unlink(path);
    return err;
}

static dlc_err step_by_snapshot(dlc_nats_endpoint *e)
{
    char path[DLC_PATH_MAX];
    dlc_err err;

    end__wanted_path(path, e);
    pthread_mutex_unlock(&e->mutex);
    err = load_snapshot(e, path);
    pthread_mutex_lock(&e->mutex);
    if (err != DLC_OK)
        return err;
    e->stage = CATCH_NOTHING;
    e->holds = true;
    e->held_t = e->snapshot.t;
    e->held_theta = e->snapshot.theta;
    e->held_record = e->snapshot.record;
    return DLC_OK;
}

dlc_err end__step(dlc_nats_endpoint *e)
{
    DLC_TRY(e->stage == CATCH_APPLY_UPDATE ? step_by_update(e) : step_by_snapshot(e));
    if (e->holds)
        end__check_history(e);
    end__plan(e);
    end__say_hello(e);
    e->wants_packet = true; /* where it stands now */
    pthread_cond_signal(&e->due);
    return DLC_OK;
}
