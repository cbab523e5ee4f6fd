/* Questions on the control connection: who may join, what happened in step t, where a snapshot is, how the run stands. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_hub_internal.h"

/* --- facts -------------------------------------------------------------------------------------------------------- */

static json_t *fact_of(struct dlc_nats_hub *h, uint64_t t, const char *line)
{
    struct dlc_blob_ref ref = { 0 };

    (void)hub__find_update(h, t, &ref);
    return dlc_fact_to_json(t, line, &ref);
}

static bool get_t(uint64_t *out, const json_t *question)
{
    json_int_t t = json_integer_value(json_object_get(question, "t"));

    *out = t > 0 ? (uint64_t)t : 0;
    return t > 0;
}

static dlc_err answer_fact(struct dlc_nats_hub *h, const json_t *question, json_t **body)
{
    char *line;
    uint64_t t;

    if (!get_t(&t, question) || t > h->note.t) /* note: this thread's own writing */
        return dlc_fail(DLC_EINPUT, "no record of that step yet");
    DLC_TRY(h->opt.record_line(h->opt.self, t, &line));
    *body = fact_of(h, t, line);
    dlc_free(line);
    return DLC_OK;
}

static void post(struct dlc_nats_hub *h, const struct hub_question *q, struct dlc_buf *bytes)
{
    struct hub_letter *l = dlc_calloc(1, sizeof *l), **tail;

    if (!l) {
        dlc_buf_fini(bytes);
        return; /* it asks again */
    }
    memcpy(l->subject, q->reply, sizeof l->subject);
    l->bytes = *bytes;
    pthread_mutex_lock(&h->mutex);
    for (tail = &h->letters; *tail; tail = &(*tail)->next)
        ;
    *tail = l;
    pthread_cond_signal(&h->due);
    pthread_mutex_unlock(&h->mutex);
}

static void reply_with(struct dlc_nats_hub *h, const struct hub_question *q, dlc_err err, json_t *body)
{
    int64_t ask = dlc_question_ask(q->json);
    struct dlc_buf bytes = { 0 };

    if (err == DLC_OK)
        err = dlc_answer_ok(&bytes, q->name, ask, h->opt.fence, body);
    else
        err = dlc_answer_error(&bytes, q->name, ask, h->opt.fence, err, dlc_err_text());
    if (err != DLC_OK)
        dlc_buf_fini(&bytes);
    else
        post(h, q, &bytes);
}

/* A recent step: the coordinator may be busy (validation takes its time) while islands catch up. */
bool hub__answer_at_once(struct dlc_nats_hub *h, const struct hub_question *q)
{
    struct dlc_blob_ref ref = { 0 };
    const struct hub_fact *fact;
    char *line = NULL;
    uint64_t t;

    if (strcmp(q->name, "fact") != 0 || !get_t(&t, q->json))
        return false;
    pthread_mutex_lock(&h->mutex);
    fact = &h->facts[t % HUB_KEPT_UPDATES];
    if (fact->t == t && (dlc_blobs_of(h->blobs, DLC_BLOB_UPDATE, t, &ref) || !fact->summed))
        line = dlc_strdup(fact->line);
    pthread_mutex_unlock(&h->mutex);
    if (!line)
        return false;
    reply_with(h, q, DLC_OK, dlc_fact_to_json(t, line, &ref));
    dlc_free(line);
    return true;
}

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

static dlc_err answer_snapshot(struct dlc_nats_hub *h, const json_t *question, json_t **body)
{
    char *line = NULL;
    uint64_t above_t;

    (void)get_t(&above_t, question);
    if (!h->is_published)
        return dlc_fail(DLC_EPEER, "the coordinator has just begun: ask again");
    DLC_TRY(hub__take_snapshot(h, above_t));
    if (h->snapshot->t > 0)
        DLC_TRY(h->opt.record_line(h->opt.self, h->snapshot->t, &line));
    *body = dlc_snapshot_to_json(h->snapshot, line);
    dlc_free(line);
    return DLC_OK;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

struct joiner {
    const char *identity;
    uint32_t incarnation;
    uint64_t session;
};

static dlc_err parse_joiner(struct joiner *out, const json_t *question)
{
    const char *session;
    int64_t incarnation;
    unsigned long long bits;

    DLC_TRY(dlc_json_get_string(&out->identity, question, "identity", "joining"));
    DLC_TRY(dlc_json_get_int(&incarnation, question, "incarnation", 0, UINT32_MAX, "joining"));
    DLC_TRY(dlc_json_get_string(&session, question, "session", "joining"));
    if (!dlc_identity_is_good(out->identity) || sscanf(session, "%16llx", &bits) != 1 || bits == 0)
        return dlc_fail(DLC_EINPUT, "joining: identity or session is not one");
    out->incarnation = (uint32_t)incarnation;
    out->session = bits;
    return DLC_OK;
}

/* Whether another process of this identity stands in the way. Its end is made known first (*wait). */
static dlc_err check_older_life(struct dlc_nats_hub *h, const struct joiner *j, bool *wait)
{
    struct hub_island *isl = hub__find(h, j->identity);

    if (!isl || isl->session == j->session)
        return DLC_OK;
    if (j->incarnation < isl->incarnation)
        return dlc_fail(DLC_EUSAGE, "this island's folder was used by a later process (start %u, this one is %u): was it "
                                    "copied? Each island needs its own", isl->incarnation, j->incarnation);
    if (j->incarnation == isl->incarnation && isl->alive)
        return dlc_fail(DLC_EUSAGE, "another process is this island already: was its folder copied? Each island needs its "
                                    "own");
    if (!isl->has_life || isl->told_lost)
        return DLC_OK;
    hub__drop_unfetched(isl);
    isl->alive = false;
    isl->left = true; /* its packets count no more */
    *wait = true;
    return DLC_OK;
}

static dlc_err settle_in(struct dlc_nats_hub *h, const struct joiner *j, int index)
{
    struct hub_island *isl = &h->islands[index];

    if (isl->channel && strcmp(isl->identity, j->identity) != 0)
        return dlc_fail(DLC_EFAIL, "index %d belongs to another island", index);
    if (!isl->channel) {
        DLC_TRY(dlc_channel_create(&isl->channel, h->session));
        snprintf(isl->identity, sizeof isl->identity, "%s", j->identity);
    }
    isl->incarnation = j->incarnation;
    isl->session = j->session;
    return DLC_OK;
}

static dlc_err answer_join(struct dlc_nats_hub *h, const json_t *question, json_t **body, bool *wait)
{
    struct joiner j;
    int index = -1;
    dlc_err err;

    DLC_TRY(parse_joiner(&j, question));
    pthread_mutex_lock(&h->mutex);
    err = check_older_life(h, &j, wait);
    pthread_mutex_unlock(&h->mutex);
    if (err != DLC_OK || *wait)
        return err;
    DLC_TRY(h->opt.admit(h->opt.self, question, &index, body));
    if (index < 0 || index >= h->hub.n_islands) {
        err = dlc_fail(DLC_EFAIL, "index %d is beyond the %d islands there can be", index, h->hub.n_islands);
    } else {
        pthread_mutex_lock(&h->mutex);
        err = settle_in(h, &j, index);
        pthread_mutex_unlock(&h->mutex);
    }
    if (err == DLC_OK && (json_object_set_new(*body, "index", json_integer(index)) != 0 ||
                          json_object_set_new(*body, "n_islands", json_integer(h->hub.n_islands)) != 0))
        err = dlc_fail(DLC_ENOMEM, "out of memory for an answer");
    if (err != DLC_OK)
        json_decref(*body);
    return err;
}

static dlc_err answer_status(struct dlc_nats_hub *h, json_t **body)
{
    *body = h->opt.status ? h->opt.status(h->opt.self) : json_object();
    return *body ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory for an answer");
}

void hub__answer(struct dlc_nats_hub *h, struct hub_question *q, bool *again_later)
{
    json_t *body = NULL;
    dlc_err err;

    if (strcmp(q->name, "join") == 0)
        err = answer_join(h, q->json, &body, again_later);
    else if (strcmp(q->name, "fact") == 0)
        err = answer_fact(h, q->json, &body);
    else if (strcmp(q->name, "snapshot") == 0)
        err = answer_snapshot(h, q->json, &body);
    else if (strcmp(q->name, "status") == 0)
        err = answer_status(h, &body);
    else
        err = dlc_fail(DLC_EUSAGE, "there is no question '%s' here", q->name);
    if (!*again_later)
        reply_with(h, q, err, body);
}
