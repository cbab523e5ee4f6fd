/* The two logs over JetStream. What its versions get wrong and what is done about it:
 *
 * - Compare-and-set by subject is not atomic with three servers (before 2.9.21): only the stream's last sequence counts.
 *   The first message of all is the one case in which that cannot be said; "no message" is right there.
 * - A direct read, and the key-value store's, may be of a replica that lags: js_GetMsg and js_GetLastMsg ask the leader.
 * - A time-out says nothing: what stands behind the expected place is read, and what carries this writer's number and
 *   the entry's digest is its own. A copy that arrives late is refused, its place is taken.
 * - A stream whose name was used before can lose what it acknowledged: names carry the run's number, which is random.
 * - No consumers and no watchers: destroying their subscriptions under traffic crashes.
 *
 * The oldest entries go when LOG is full: it holds what the coordinators have on their disks, and its end counts. */
#include "net/log.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "net/log_part.h"
#include "net/wire_internal.h"

#define LOG_MAX_BYTES ((int64_t)32 << 20)
#define LEASE_MAX_BYTES ((int64_t)1 << 20)
#define LEASE_KEPT 16
#define ANSWER_MS 2000      /* of one call */
#define PATIENCE_S 5.0      /* of one append with all its tries */
#define RETRY_NS 50000000L
#define REPLICAS_MAX 3

struct dlc_runlog {
    dlc_wire *wire;
    jsCtx *js;
    char log_stream[48], log_subject[48], lease_stream[48], lease_subject[48];
    uint64_t writer;
    atomic_ullong n_lease; /* so that no two renewals are the same bytes */
    struct dlc_log_assembly reading;
};

static dlc_err js_error(natsStatus s, jsErrCode code, const char *what, const char *stream)
{
    const char *detail = nats_GetLastError(NULL);

    if (s == NATS_NO_MEMORY)
        return dlc_fail(DLC_ENOMEM, "out of memory: %s", stream);
    if (code == JSNotEnabledErr || code == JSNotEnabledForAccountErr || s == NATS_NO_RESPONDERS)
        return dlc_fail(DLC_EPEER, "%s %s: the NATS server has no JetStream for this user, or no leader yet (%s)", what,
                        stream, natsStatus_GetText(s));
    return dlc_fail(DLC_EPEER, "%s %s: %s%s%s (%d)", what, stream, natsStatus_GetText(s), detail ? ": " : "",
                    detail ? detail : "", (int)code);
}

static dlc_err check_connected(const dlc_runlog *log, const char *what)
{
    /* The library would make the caller wait until it has reconnected. */
    return dlc_wire_is_connected(log->wire) ? DLC_OK : dlc_fail(DLC_EPEER, "%s: there is no connection now", what);
}

static jsOptions patience(void)
{
    jsOptions o;

    jsOptions_Init(&o);
    o.Wait = ANSWER_MS;
    return o;
}

static void nap(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = RETRY_NS }, NULL);
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static bool has_stream(dlc_runlog *log, const char *name, natsStatus *s, jsErrCode *code)
{
    jsOptions o = patience();
    jsStreamInfo *info = NULL;

    *code = 0;
    *s = js_GetStreamInfo(&info, log->js, name, &o, code);
    jsStreamInfo_Destroy(info);
    return *s == NATS_OK;
}

static natsStatus add_stream(dlc_runlog *log, jsStreamConfig *config, jsErrCode *code)
{
    jsOptions o = patience();
    natsStatus s = NATS_ERR;

    /* As many copies as there can be: one server refuses three, a cluster of two as well. */
    for (config->Replicas = REPLICAS_MAX; config->Replicas >= 1; config->Replicas -= 2) {
        *code = 0;
        s = js_AddStream(NULL, log->js, config, &o, code);
        if (s == NATS_OK || (*code != JSStreamReplicasNotSupportedErr && *code != JSClusterNoPeersErr &&
                             *code != JSInsufficientResourcesErr))
            return s;
    }
    return s;
}

static dlc_err open_stream(dlc_runlog *log, const char *name, const char *subject, int64_t max_bytes, int64_t max_messages)
{
    double until_s = dlc_now_s() + 2 * PATIENCE_S;
    jsStreamConfig config;
    const char *subjects[] = { subject };
    jsErrCode code = 0;
    natsStatus s;

    jsStreamConfig_Init(&config);
    config.Name = name;
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    config.Retention = js_LimitsPolicy;
    config.Storage = js_FileStorage;
    config.Discard = js_DiscardOld;
    config.MaxBytes = max_bytes;
    config.MaxMsgs = max_messages;
    config.DenyDelete = config.DenyPurge = true;
    /* A server that has just come up needs a moment, three of them elect a leader first. */
    for (;;) {
        if (has_stream(log, name, &s, &code))
            return DLC_OK;
        if (s == NATS_NOT_FOUND || code == JSStreamNotFoundErr)
            s = add_stream(log, &config, &code);
        if (s == NATS_OK || code == JSStreamNameExistErr) /* otherwise configured is fine, too */
            return DLC_OK;
        if (dlc_now_s() > until_s || !dlc_wire_is_connected(log->wire))
            return js_error(s, code, "making the stream", name);
        nap();
    }
}

static dlc_err open_streams(dlc_runlog *log, const char *run)
{
    snprintf(log->log_stream, sizeof log->log_stream, "DLC_%.32s_LOG", run);
    snprintf(log->log_subject, sizeof log->log_subject, "dlc.%.32s.log", run);
    snprintf(log->lease_stream, sizeof log->lease_stream, "DLC_%.32s_LEASE", run);
    snprintf(log->lease_subject, sizeof log->lease_subject, "dlc.%.32s.lease", run);
    DLC_TRY(open_stream(log, log->log_stream, log->log_subject, LOG_MAX_BYTES, -1));
    return open_stream(log, log->lease_stream, log->lease_subject, LEASE_MAX_BYTES, LEASE_KEPT);
}

dlc_err dlc_runlog_open(dlc_runlog **out, const struct dlc_wire_options *options)
{
    dlc_runlog *log = dlc_calloc(1, sizeof *log);
    natsStatus s;
    dlc_err err;

    *out = NULL;
    if (!log)
        return DLC_ENOMEM;
    DLC_TRY_TO(failed, dlc_random_bytes(&log->writer, sizeof log->writer));
    DLC_TRY_TO(failed, dlc_wire_connect(&log->wire, options));
    s = natsConnection_JetStream(&log->js, dlc__wire_connection(log->wire), NULL);
    if (s != NATS_OK)
        DLC_TRY_TO(failed, js_error(s, 0, "opening", "JetStream"));
    DLC_TRY_TO(failed, open_streams(log, options->run));
    *out = log;
    return DLC_OK;
failed:
    dlc_runlog_close(log);
    return err;
}

void dlc_runlog_close(dlc_runlog *log)
{
    if (!log)
        return;
    dlc_wire_stop(log->wire); /* ends what still waits for an answer */
    jsCtx_Destroy(log->js);
    dlc_wire_close(log->wire);
    dlc_log_assembly_fini(&log->reading);
    dlc_free(log);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct ends {
    uint64_t first, last; /* of the messages that are kept */
};

static dlc_err read_ends(struct ends *out, dlc_runlog *log, const char *stream)
{
    jsOptions o = patience();
    jsStreamInfo *info = NULL;
    jsErrCode code = 0;
    natsStatus s;

    DLC_TRY(check_connected(log, stream));
    s = js_GetStreamInfo(&info, log->js, stream, &o, &code);
    if (s != NATS_OK)
        return js_error(s, code, "reading", stream);
    *out = (struct ends){ .first = info->State.FirstSeq, .last = info->State.LastSeq };
    jsStreamInfo_Destroy(info);
    return DLC_OK;
}

/* *out NULL: there is no message with this number. */
static dlc_err read_message(natsMsg **out, dlc_runlog *log, const char *stream, uint64_t seq)
{
    jsOptions o = patience();
    jsErrCode code = 0;
    natsStatus s;

    *out = NULL;
    DLC_TRY(check_connected(log, stream));
    s = js_GetMsg(out, log->js, stream, seq, &o, &code);
    if (s == NATS_NOT_FOUND || code == JSNoMessageFoundErr) {
        *out = NULL;
        return DLC_OK;
    }
    return s == NATS_OK ? DLC_OK : js_error(s, code, "reading", stream);
}

/* The message with a number above seq, the next that is kept; NULL: seq is the last. *seq becomes its number. */
static dlc_err read_next(natsMsg **out, dlc_runlog *log, const char *stream, uint64_t *seq)
{
    uint64_t at = *seq + 1;
    struct ends ends;

    DLC_TRY(read_message(out, log, stream, at));
    if (!*out) {
        DLC_TRY(read_ends(&ends, log, stream));
        if (at < ends.first)
            at = ends.first;
        for (; !*out && at <= ends.last; at++) {
            DLC_TRY(read_message(out, log, stream, at));
            if (*out)
                break;
        }
    }
    if (*out)
        *seq = at;
    return DLC_OK;
}

static dlc_err take_part(struct dlc_log_assembly *a, natsMsg *m, uint64_t seq, int *whole)
{
    struct dlc_log_part part;

    *whole = 0;
    if (dlc_log_part_decode(&part, natsMsg_GetData(m), (size_t)natsMsg_GetDataLength(m)) == DLC_OK)
        return dlc_log_assembly_add(a, &part, whole);
    dlc_debug("message %llu of the log is passed over: %s", (unsigned long long)seq, dlc_err_text());
    dlc_log_assembly_clear(a);
    return DLC_OK;
}

/* The next whole entry after *seq. !*got: *end is the last message there is, *seq stays. */
static dlc_err next_entry(dlc_runlog *log, struct dlc_log_assembly *a, uint64_t *seq, uint64_t *end, bool *got)
{
    uint64_t at = *seq;
    natsMsg *m;
    int whole = 0;

    *got = false;
    dlc_log_assembly_clear(a);
    while (!whole) {
        dlc_err err;

        DLC_TRY(read_next(&m, log, log->log_stream, &at));
        if (!m) {
            *end = at;
            return DLC_OK;
        }
        err = take_part(a, m, at, &whole);
        natsMsg_Destroy(m);
        DLC_TRY(err);
    }
    *seq = *end = at;
    *got = true;
    return DLC_OK;
}

dlc_err dlc_runlog_next(dlc_runlog *log, uint64_t *seq, struct dlc_buf *entry, bool *got)
{
    uint64_t end;

    dlc_buf_clear(entry);
    DLC_TRY(next_entry(log, &log->reading, seq, &end, got));
    return *got ? dlc_buf_append(entry, log->reading.entry.data, log->reading.entry.len) : DLC_OK;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

typedef enum { PUT_STORED, PUT_TAKEN, PUT_UNKNOWN } put_result;

/* After the stream's message *seq, which becomes the number of this one. */
static put_result put(dlc_runlog *log, const char *subject, const void *bytes, size_t size_bytes, uint64_t *seq)
{
    jsPubOptions o;
    jsPubAck *ack = NULL;
    natsMsg *m = NULL;
    jsErrCode code = 0;
    natsStatus s;

    if (check_connected(log, subject) != DLC_OK)
        return PUT_UNKNOWN;
    jsPubOptions_Init(&o);
    o.MaxWait = ANSWER_MS;
    o.ExpectLastSeq = *seq;
    o.ExpectNoMessage = *seq == 0; /* a last number of 0 would not be sent at all */
    s = natsMsg_Create(&m, subject, NULL, bytes, (int)size_bytes);
    if (s == NATS_OK)
        s = js_PublishMsg(&ack, log->js, m, &o, &code);
    if (s == NATS_OK)
        *seq = ack->Sequence;
    else if (code != JSStreamWrongLastSequenceErr)
        (void)js_error(s, code, "appending to", subject);
    jsPubAck_Destroy(ack);
    natsMsg_Destroy(m);
    return s == NATS_OK ? PUT_STORED : code == JSStreamWrongLastSequenceErr ? PUT_TAKEN : PUT_UNKNOWN;
}

struct append {
    uint64_t from; /* the last that the caller has read */
    uint64_t at;   /* what is expected to be last */
    struct dlc_log_part part; /* the next one to go */
    const char *bytes;
    struct dlc_buf message;
};

static void go_to_part(struct append *a, uint32_t index)
{
    size_t from = DLC_LOG_PART_BYTES * index, left = (size_t)a->part.total_bytes - from;

    a->part.index = index;
    a->part.bytes = a->bytes + from;
    a->part.size_bytes = left < DLC_LOG_PART_BYTES ? left : DLC_LOG_PART_BYTES;
}

static bool is_mine(const struct dlc_log_part *theirs, const struct dlc_log_part *mine)
{
    return theirs->writer == mine->writer && theirs->count == mine->count &&
           dlc_sha256_equal(&theirs->digest, &mine->digest);
}

static bool is_my_part(natsMsg *m, const struct dlc_log_part *mine)
{
    struct dlc_log_part part;

    return dlc_log_part_decode(&part, natsMsg_GetData(m), (size_t)natsMsg_GetDataLength(m)) == DLC_OK &&
           is_mine(&part, mine) && part.index == mine->index;
}

/* Everything that the caller has not read: a whole entry is his own, of an earlier try (*stored), or somebody's (*taken). A
 * part whose writer died, a message of nobody: past it, from the first part on. */
static dlc_err look_at_all(dlc_runlog *log, struct append *a, bool *stored, bool *taken)
{
    struct dlc_log_assembly others = { .entry = { 0 } };
    uint64_t at = a->from, end = a->at;
    bool whole = false;
    dlc_err err = next_entry(log, &others, &at, &end, &whole);

    if (err == DLC_OK && whole) {
        *stored = is_mine(&others.last, &a->part);
        *taken = !*stored;
        a->at = at;
        a->part.index = a->part.count - 1;
    } else if (err == DLC_OK && end > a->at) {
        a->at = end;
        go_to_part(a, 0);
    }
    dlc_log_assembly_fini(&others);
    return err;
}

/* Something stands behind a->at, or nothing is known. */
static dlc_err look_behind(dlc_runlog *log, struct append *a, bool *stored, bool *taken)
{
    uint64_t at = a->at;
    natsMsg *m;

    DLC_TRY(read_next(&m, log, log->log_stream, &at));
    if (!m)
        return DLC_OK;
    *stored = is_my_part(m, &a->part);
    natsMsg_Destroy(m);
    if (!*stored)
        return look_at_all(log, a, stored, taken);
    a->at = at;
    return DLC_OK;
}

static dlc_err put_part(dlc_runlog *log, struct append *a, bool *stored, bool *taken)
{
    DLC_TRY(dlc_log_part_encode(&a->message, &a->part));
    switch (put(log, log->log_subject, a->message.data, a->message.len, &a->at)) {
    case PUT_STORED: *stored = true; return DLC_OK;
    case PUT_UNKNOWN: nap(); break;
    case PUT_TAKEN: break;
    }
    return look_behind(log, a, stored, taken);
}

static dlc_err append_parts(dlc_runlog *log, struct append *a, bool *taken)
{
    double until_s = dlc_now_s() + PATIENCE_S;
    dlc_err err = DLC_OK;

    for (;;) {
        bool stored = false;

        err = put_part(log, a, &stored, taken);
        if (err == DLC_ENOMEM)
            return err;
        if (*taken)
            return dlc_fail(DLC_EPEER, "another coordinator has written to the run's log: this one leads no more");
        if (stored && a->part.index + 1 == a->part.count)
            return DLC_OK;
        if (stored)
            go_to_part(a, a->part.index + 1);
        else if (dlc_now_s() > until_s)
            return dlc_fail(DLC_EPEER, "the run's log does not answer: %s", dlc_err_text());
        if (err != DLC_OK)
            nap();
    }
}

dlc_err dlc_runlog_append(dlc_runlog *log, uint64_t *seq, const void *bytes, size_t size_bytes, bool *taken)
{
    struct append a = { .from = *seq, .at = *seq, .bytes = bytes };
    dlc_err err;

    *taken = false;
    if (size_bytes > DLC_LOG_PART_BYTES * DLC_LOG_PARTS_MAX)
        return dlc_fail(DLC_EFAIL, "an entry of %zu bytes is too large for the run's log: at most %zu", size_bytes,
                        DLC_LOG_PART_BYTES * DLC_LOG_PARTS_MAX);
    a.part = (struct dlc_log_part){ .writer = log->writer,
                                    .total_bytes = size_bytes,
                                    .count = dlc_log_part_count(size_bytes),
                                    .digest = dlc_sha256(bytes, size_bytes) };
    go_to_part(&a, 0);
    err = append_parts(log, &a, taken);
    dlc_buf_fini(&a.message);
    if (err == DLC_OK)
        *seq = a.at;
    return err;
}

/* --- the lease ---------------------------------------------------------------------------------------------------- */

static bool parse_lease(struct dlc_lease *out, natsMsg *m)
{
    const char *holder;
    int64_t fence;
    json_t *v;
    bool ok;

    if (dlc_json_parse(&v, natsMsg_GetData(m), (size_t)natsMsg_GetDataLength(m), "lease") != DLC_OK)
        return false;
    ok = dlc_json_get_string(&holder, v, "holder", "lease") == DLC_OK && strlen(holder) < sizeof out->holder &&
         dlc_json_get_int(&fence, v, "fence", 1, INT64_MAX - 1, "lease") == DLC_OK;
    if (ok) {
        snprintf(out->holder, sizeof out->holder, "%s", holder);
        out->fence = (uint64_t)fence;
    }
    json_decref(v);
    return ok;
}

/* The newest that can be read says who leads; the newest of all is what the next one is compared with. */
dlc_err dlc_lease_read(dlc_runlog *log, struct dlc_lease *out)
{
    struct ends ends;
    bool found = false;

    *out = (struct dlc_lease){ .seq = 0 };
    DLC_TRY(read_ends(&ends, log, log->lease_stream));
    for (uint64_t at = ends.last; !found && at > 0 && at >= ends.first; at--) {
        natsMsg *m;

        DLC_TRY(read_message(&m, log, log->lease_stream, at));
        found = m && parse_lease(out, m);
        natsMsg_Destroy(m);
    }
    out->seq = ends.last;
    return DLC_OK;
}

static char *lease_text(dlc_runlog *log, const struct dlc_lease *lease)
{
    char writer[40];
    json_t *v;
    char *text;

    snprintf(writer, sizeof writer, "%016llx-%llu", (unsigned long long)log->writer,
             (unsigned long long)atomic_fetch_add(&log->n_lease, 1));
    v = json_pack("{s:s, s:I, s:s}", "holder", lease->holder, "fence", (json_int_t)lease->fence, "writer", writer);
    text = v ? dlc_json_dump(v) : NULL;
    json_decref(v);
    return text;
}

/* Whether the message behind `seq` is this text. *any: there is one. */
static dlc_err lease_is(dlc_runlog *log, uint64_t *seq, const char *text, bool *any, bool *mine)
{
    uint64_t at = *seq;
    natsMsg *m;

    DLC_TRY(read_next(&m, log, log->lease_stream, &at));
    *any = m != NULL;
    *mine = m && (size_t)natsMsg_GetDataLength(m) == strlen(text) &&
            memcmp(natsMsg_GetData(m), text, strlen(text)) == 0;
    natsMsg_Destroy(m);
    if (*mine)
        *seq = at;
    return DLC_OK;
}

static dlc_err write_lease(dlc_runlog *log, struct dlc_lease *lease, const char *text, bool *taken)
{
    double until_s = dlc_now_s() + PATIENCE_S;

    for (;;) {
        bool any = false, mine = false;

        if (put(log, log->lease_subject, text, strlen(text), &lease->seq) == PUT_STORED)
            return DLC_OK;
        if (lease_is(log, &lease->seq, text, &any, &mine) == DLC_OK && mine)
            return DLC_OK;
        *taken = any;
        if (any)
            return dlc_fail(DLC_EPEER, "another coordinator has taken the run's lease");
        if (dlc_now_s() > until_s)
            return dlc_fail(DLC_EPEER, "the run's lease does not answer: %s", dlc_err_text());
        nap();
    }
}

dlc_err dlc_lease_write(dlc_runlog *log, struct dlc_lease *lease, bool *taken)
{
    char *text = lease_text(log, lease);
    dlc_err err;

    *taken = false;
    if (!text)
        return dlc_fail(DLC_ENOMEM, "out of memory: lease");
    err = write_lease(log, lease, text, taken);
    dlc_free(text);
    return err;
}
