#include "exchange/nats_endpoint.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_endpoint_internal.h"

#define WAIT_MAX_NS (200 * DLC_MS_NS) /* of recv: a signal shows only between two waits */

void end__fail(dlc_nats_endpoint *e, dlc_err err, const char *text)
{
    if (e->failed == DLC_OK) {
        snprintf(e->failed_text, sizeof e->failed_text, "%s", text);
        e->failed = err;
    }
    pthread_cond_broadcast(&e->arrived);
}

/* --- send --------------------------------------------------------------------------------------------------------- */

static void say_again(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    if (m->kind != 0)
        (void)dlc_channel_send(e->channel, m);
}

/* Here I am, once theta stands; and to a new leader what the old one may have taken with it: the outcome of a round that
 * no record holds. */
void end__say_hello(dlc_nats_endpoint *e)
{
    if (!e->hello_due || !e->holds || !e->has_leader || e->held_t != e->leader.t || e->failed != DLC_OK ||
        !dlc_channel_is_joined(e->channel))
        return;
    e->hello_due = false;
    say_again(e, &e->hello);
    if (e->outcome.t > e->leader.t)
        say_again(e, &e->outcome);
    say_again(e, &e->farewell);
    pthread_cond_signal(&e->due);
}

/* Its bytes are offered from now on, in place of those before. */
static dlc_err offer_contribution(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    struct dlc_blob_ref ref = { .digest = m->digest, .size_bytes = m->size_bytes };

    if (!e->begun || m->size_bytes > e->opt.slot_bytes)
        return DLC_OK; /* the coordinator refuses it, and asks for nothing */
    e->given_slot = !e->given_slot;
    return dlc_blobs_add(e->blobs, DLC_BLOB_CONTRIBUTION, m->t, &ref, e->slots[e->given_slot], NULL, dlc_now_ns());
}

/* The states that HELLO names move on with the rounds. */
static void keep_states(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    if (!e->hello.states_known || m->kind != DLC_MSG_CONTRIBUTION)
        return;
    e->hello.states[0] = m->states_known ? m->states[0] : m->t;
    e->hello.states[1] = m->states_known ? m->states[1] : e->assigned.t == m->t ? e->assigned.state_step : 0;
}

static dlc_err send_outcome(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    if (m->kind == DLC_MSG_CONTRIBUTION)
        DLC_TRY(offer_contribution(e, m));
    keep_states(e, m);
    e->busy = false;
    e->outcome = *m;
    return e->hello_due ? DLC_OK : dlc_channel_send(e->channel, m);
}

static dlc_err send_locked(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    if (e->failed != DLC_OK && m->kind != DLC_MSG_FAILED && m->kind != DLC_MSG_LEAVE)
        return dlc_fail(e->failed, "%s", e->failed_text);
    switch (m->kind) {
    case DLC_MSG_HELLO:
        e->hello = *m;
        e->has_hello = e->hello_due = true;
        end__say_hello(e);
        return DLC_OK;
    case DLC_MSG_CONTRIBUTION:
    case DLC_MSG_NONFINITE: return send_outcome(e, m);
    case DLC_MSG_PAUSED:
    case DLC_MSG_LEAVE:
    case DLC_MSG_FAILED:
        e->busy = false;
        e->farewell = *m;
        return dlc_channel_send(e->channel, m);
    case DLC_MSG_PROGRESS: /* of use now or never */
        if (e->hello_due || !dlc_channel_is_joined(e->channel))
            return DLC_OK;
        return dlc_channel_send(e->channel, m);
    default: return dlc_channel_send(e->channel, m);
    }
}

static dlc_err endpoint_send(dlc_endpoint *ep, const struct dlc_message *m)
{
    dlc_nats_endpoint *e = (dlc_nats_endpoint *)ep;
    dlc_err err;

    pthread_mutex_lock(&e->mutex);
    err = send_locked(e, m);
    pthread_cond_signal(&e->due);
    pthread_mutex_unlock(&e->mutex);
    return err;
}

static void *endpoint_slot(dlc_endpoint *ep)
{
    dlc_nats_endpoint *e = (dlc_nats_endpoint *)ep;
    void *slot = e->slots[!e->given_slot];

    dlc_blobs_drop_bytes(e->blobs, slot);
    return slot;
}

static const float *endpoint_theta(dlc_endpoint *ep, uint64_t t)
{
    return ((dlc_nats_endpoint *)ep)->theta[t & 1];
}

static const float *endpoint_mean(dlc_endpoint *ep)
{
    (void)ep;
    return NULL;
}

static const struct dlc_endpoint_ops endpoint_ops = { endpoint_send, endpoint_slot, endpoint_theta, endpoint_mean };

/* --- recv --------------------------------------------------------------------------------------------------------- */

static void drop_entry(dlc_nats_endpoint *e, struct end_entry *entry, struct end_entry *before)
{
    *(before ? &before->next : &e->first) = entry->next;
    if (e->last == entry)
        e->last = before;
    e->n_queued--;
    dlc_message_fini(&entry->m);
    dlc_free(entry);
}

/* theta(t-1) is not what the assignment says, although it is what the record says, or it was fetched anew. */
static void on_wrong_theta(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    struct dlc_message resupply = {
        .kind = DLC_MSG_RESUPPLY, .incarnation = e->incarnation, .t = m->t, .attempt = m->attempt
    };
    char mine[DLC_SHA256_HEX], theirs[DLC_SHA256_HEX], text[240];

    dlc_sha256_to_hex(mine, &e->held_theta);
    dlc_sha256_to_hex(theirs, &m->digest);
    if (e->holds && e->resupplied_t == m->t) {
        snprintf(text, sizeof text, "the coordinator assigns step %llu from parameters %.16s, its history has %.16s",
                 (unsigned long long)m->t, theirs, mine);
        end__fail(e, DLC_EPEER, text);
        return;
    }
    e->resupplied_t = m->t;
    e->resupply_wanted = false;
    (void)dlc_channel_send(e->channel, &resupply);
    pthread_cond_signal(&e->due);
    if (!e->holds)
        return; /* it is on its way already */
    dlc_warn("step %llu is assigned from parameters %.16s, here are %.16s: they are fetched anew",
             (unsigned long long)m->t, theirs, mine);
    e->holds = false;
    end__plan(e);
}

typedef enum { WAITS, READY, OUTDATED } readiness;

/* An assignment waits until theta(t-1) stands. */
static readiness look_at(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    if (m->kind != DLC_MSG_ASSIGN || m->t == 0)
        return READY;
    if (m->incarnation != 0 && m->incarnation != e->incarnation)
        return OUTDATED; /* for an earlier life of this island */
    if (e->resupply_wanted)
        on_wrong_theta(e, m);
    if (!e->holds || e->held_t + 1 < m->t)
        return WAITS;
    if (e->held_t + 1 > m->t)
        return OUTDATED;
    if (dlc_sha256_equal(&m->digest, &e->held_theta))
        return READY;
    on_wrong_theta(e, m);
    return WAITS;
}

static bool ends_waiting(const struct dlc_message *m)
{
    return m->kind == DLC_MSG_FINISH || m->kind == DLC_MSG_DISMISS || m->kind == DLC_MSG_PAUSE;
}

static void note_assignment(dlc_nats_endpoint *e, const struct dlc_message *m)
{
    bool is_newer = m->t > e->assigned.t || (m->t == e->assigned.t && m->attempt > e->assigned.attempt);

    if (m->kind != DLC_MSG_ASSIGN || !is_newer)
        return;
    e->busy = true;
    e->assigned = *m;
    e->assigned.ranges = (struct dlc_ranges){ 0 };
}

static void take_message(dlc_nats_endpoint *e, struct dlc_message *out, bool *got)
{
    struct end_entry *before = NULL, *next;
    bool waiting = false;

    for (struct end_entry *q = e->first; q && !*got; q = next) {
        readiness r = waiting ? (ends_waiting(&q->m) ? READY : WAITS) : look_at(e, &q->m);

        next = q->next;
        if (r == OUTDATED) {
            drop_entry(e, q, before);
        } else if (r == READY) {
            note_assignment(e, &q->m);
            *out = q->m;
            q->m = (struct dlc_message){ 0 };
            drop_entry(e, q, before);
            *got = true;
        } else {
            waiting = true;
            before = q;
        }
    }
}

static dlc_err recv_locked(dlc_nats_endpoint *e, struct dlc_message *out, bool *got, int64_t deadline_ns)
{
    for (;;) {
        double silent_s = (double)(dlc_now_ns() - e->heard_ns) * 1e-9;

        if (e->failed != DLC_OK)
            return dlc_fail(e->failed, "%s", e->failed_text);
        if (end__may_step(e)) {
            DLC_TRY(end__step(e));
            continue;
        }
        take_message(e, out, got);
        if (*got || dlc_now_ns() >= deadline_ns)
            return DLC_OK;
        if (silent_s > e->patience_s)
            return dlc_fail(DLC_EPEER, "the coordinator at %s has not been heard for %.0f s", e->host, silent_s);
        dlc_cond_wait_until(&e->arrived, &e->mutex, deadline_ns);
    }
}

dlc_err dlc_nats_endpoint_recv(dlc_nats_endpoint *e, struct dlc_message *out, bool *got, int64_t deadline_ns)
{
    dlc_err err;

    *got = false;
    deadline_ns = dlc_earlier(deadline_ns, dlc_now_ns() + WAIT_MAX_NS);
    pthread_mutex_lock(&e->mutex);
    err = recv_locked(e, out, got, deadline_ns);
    pthread_mutex_unlock(&e->mutex);
    return err;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

static void on_control(void *self, bool connected)
{
    atomic_store(&((dlc_nats_endpoint *)self)->control_is_up, connected);
}

static void on_bulk(void *self, bool connected)
{
    if (connected)
        atomic_fetch_add(&((dlc_nats_endpoint *)self)->bulk_epoch, 1);
}

static dlc_err connect_both(dlc_nats_endpoint *e, const struct dlc_join_url *url, const char *ca_pem)
{
    struct dlc_subject down = dlc_subject_all_down(e->run, e->identity), asks = dlc_subject_give(e->run, e->identity);
    char name[DLC_IDENTITY_SIZE + 16], chunks[DLC_SUBJECT_SIZE];
    struct dlc_wire_options o = { .host = url->host,
                                  .port = url->port,
                                  .run = e->run,
                                  .user = url->user,
                                  .secret = url->secret,
                                  .ca_pem = ca_pem,
                                  .name = name,
                                  .on_state = on_control,
                                  .self = e };

    atomic_store(&e->control_is_up, true);
    snprintf(name, sizeof name, "%s/control", e->identity); /* by it the coordinator knows whose connection closed */
    DLC_TRY(dlc_wire_connect(&e->control, &o));
    DLC_TRY(dlc_wire_subscribe(&e->down, e->control, down.text));
    snprintf(name, sizeof name, "%s/bulk", e->identity);
    o.bulk = true;
    o.on_state = on_bulk;
    DLC_TRY(dlc_wire_connect(&e->bulk, &o));
    snprintf(chunks, sizeof chunks, "%s.>", dlc_wire_inbox(e->bulk));
    DLC_TRY(dlc_wire_subscribe(&e->chunks, e->bulk, chunks));
    return dlc_wire_subscribe(&e->asks, e->bulk, asks.text);
}

static dlc_err start_threads(dlc_nats_endpoint *e)
{
    static void *(*const run[])(void *) = { end__listen, end__speak, end__give, end__fetch };

    for (; e->n_threads < 4; e->n_threads++) {
        if (pthread_create(&e->threads[e->n_threads], NULL, run[e->n_threads], e) != 0)
            return dlc_fail(DLC_EFAIL, "no thread for the exchange");
    }
    return DLC_OK;
}

static dlc_err wait_for_welcome(dlc_nats_endpoint *e)
{
    int64_t began_ns = dlc_now_ns();
    bool said = false;
    dlc_err err = DLC_OK;

    pthread_mutex_lock(&e->mutex);
    while (!e->welcome && err == DLC_OK) {
        double waited_s = (double)(dlc_now_ns() - began_ns) * 1e-9;

        if (waited_s > 3 && !said) {
            dlc_info("connected to %s; no coordinator of run %s answers yet, waiting for it", e->host, e->run);
            said = true;
        }
        if (e->failed != DLC_OK)
            err = dlc_fail(e->failed, "%s", e->failed_text);
        else if (waited_s > e->patience_s)
            err = dlc_fail(DLC_EPEER, "connected to %s, but no coordinator of run %s has answered for %.0f s", e->host,
                           e->run, waited_s);
        else
            dlc_cond_wait_until(&e->arrived, &e->mutex, dlc_now_ns() + WAIT_MAX_NS);
    }
    pthread_mutex_unlock(&e->mutex);
    return err;
}

static dlc_err join(dlc_nats_endpoint *e, const struct dlc_join_url *url, const char *ca_pem, const json_t *question)
{
    if (!dlc_identity_is_good(e->identity))
        return dlc_fail(DLC_EFAIL, "'%s' is not an identity of 32 hexadecimal digits", e->identity);
    e->question = json_deep_copy(question);
    if (!e->question)
        return dlc_fail(DLC_ENOMEM, "out of memory for joining");
    DLC_TRY(dlc_draw_session(&e->session));
    DLC_TRY(dlc_channel_create(&e->channel, e->session));
    DLC_TRY(dlc_blobs_create(&e->blobs));
    DLC_TRY(connect_both(e, url, ca_pem));
    e->join_wanted = true;
    DLC_TRY(start_threads(e));
    return wait_for_welcome(e);
}

dlc_err dlc_nats_join(dlc_nats_endpoint **out, const struct dlc_join_url *url, const char *ca_pem,
                      const char identity[DLC_IDENTITY_SIZE], uint32_t incarnation, const json_t *question,
                      json_t **welcome, double patience_s)
{
    dlc_nats_endpoint *e = dlc_calloc(1, sizeof *e);
    dlc_err err;

    *out = NULL;
    *welcome = NULL;
    if (!e)
        return DLC_ENOMEM;
    e->base.ops = &endpoint_ops;
    snprintf(e->run, sizeof e->run, "%s", url->run);
    snprintf(e->host, sizeof e->host, "%s", url->host);
    snprintf(e->identity, sizeof e->identity, "%s", identity);
    e->incarnation = incarnation;
    e->patience_s = patience_s;
    e->index = -1;
    e->heard_ns = dlc_now_ns();
    (void)pthread_mutex_init(&e->mutex, NULL);
    dlc_cond_init(&e->arrived);
    dlc_cond_init(&e->due);
    dlc_cond_init(&e->fetching);
    err = join(e, url, ca_pem, question);
    if (err != DLC_OK) {
        dlc_nats_endpoint_destroy(e);
        return err;
    }
    *welcome = json_incref(e->welcome);
    *out = e;
    return DLC_OK;
}

/* --- begin and end ------------------------------------------------------------------------------------------------ */

static dlc_err map_slots(dlc_nats_endpoint *e)
{
    char path[DLC_PATH_MAX];

    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.3900s/contribution-%d.bin", e->folder, i);
        DLC_TRY(dlc_map_writable(&e->slots[i], path, e->opt.slot_bytes, false));
        (void)unlink(path); /* of this process alone, and gone with it */
    }
    return DLC_OK;
}

static dlc_err allocate(dlc_nats_endpoint *e)
{
    size_t bytes = e->opt.n_params * sizeof(float);

    DLC_TRY(dlc_mkdir_p(e->folder));
    DLC_TRY(map_slots(e));
    for (int i = 0; i < 2; i++)
        DLC_TRY(dlc_arena_alloc((void **)&e->theta[i], bytes, "the global parameters"));
    for (int i = 0; i < dlc_outer_opt_n_state(e->opt.opt.kind); i++)
        DLC_TRY(dlc_arena_alloc((void **)&e->state[i], bytes, "the outer optimizer's state"));
    return DLC_OK;
}

dlc_err dlc_nats_endpoint_begin(dlc_nats_endpoint *e, const struct dlc_nats_endpoint_options *options)
{
    snprintf(e->folder, sizeof e->folder, "%s", options->folder);
    e->opt = *options;
    e->opt.folder = NULL;
    DLC_TRY(allocate(e));
    pthread_mutex_lock(&e->mutex);
    e->begun = true;
    end__plan(e);
    pthread_mutex_unlock(&e->mutex);
    return DLC_OK;
}

static void say_goodbye(dlc_nats_endpoint *e)
{
    int64_t until_ns = dlc_now_ns() + 3 * DLC_S_NS;
    bool quiet = false;

    while (!quiet && dlc_now_ns() < until_ns && atomic_load(&e->control_is_up)) {
        pthread_mutex_lock(&e->mutex);
        quiet = e->index < 0 || dlc_channel_unacknowledged(e->channel) == 0;
        pthread_mutex_unlock(&e->mutex);
        if (!quiet)
            (void)nanosleep(&(struct timespec){ .tv_nsec = 10 * DLC_MS_NS }, NULL);
    }
}

static void stop_threads(dlc_nats_endpoint *e)
{
    pthread_mutex_lock(&e->mutex);
    e->is_leaving = true;
    atomic_store(&e->stop, true);
    pthread_cond_broadcast(&e->due);
    pthread_cond_broadcast(&e->fetching);
    pthread_mutex_unlock(&e->mutex);
    if (e->n_threads > 1) /* its last packet needs the connection */
        pthread_join(e->threads[1], NULL);
    dlc_wire_stop(e->control);
    dlc_wire_stop(e->bulk);
    for (int i = 0; i < e->n_threads; i++) {
        if (i != 1)
            pthread_join(e->threads[i], NULL);
    }
    dlc_wire_close(e->control);
    dlc_wire_close(e->bulk);
}

static void free_memory(dlc_nats_endpoint *e)
{
    size_t bytes = e->opt.n_params * sizeof(float);

    while (e->first)
        drop_entry(e, e->first, NULL);
    dlc_fact_fini(&e->fact);
    dlc_channel_destroy(e->channel);
    dlc_blobs_destroy(e->blobs, false);
    for (int i = 0; i < 2; i++) {
        dlc_unmap(e->slots[i], e->opt.slot_bytes);
        dlc_arena_free(e->theta[i], bytes);
        dlc_arena_free(e->state[i], bytes);
    }
    json_decref(e->question);
    json_decref(e->welcome);
}

void dlc_nats_endpoint_destroy(dlc_nats_endpoint *e)
{
    if (!e)
        return;
    if (e->n_threads > 1)
        say_goodbye(e);
    stop_threads(e);
    free_memory(e);
    (void)pthread_cond_destroy(&e->arrived);
    (void)pthread_cond_destroy(&e->due);
    (void)pthread_cond_destroy(&e->fetching);
    (void)pthread_mutex_destroy(&e->mutex);
    dlc_free(e);
}

dlc_endpoint *dlc_nats_endpoint_base(dlc_nats_endpoint *e)
{
    return &e->base;
}

bool dlc_nats_endpoint_held(const dlc_nats_endpoint *endpoint, uint64_t *t, struct dlc_sha256 *theta)
{
    dlc_nats_endpoint *e = (dlc_nats_endpoint *)(uintptr_t)endpoint;
    bool holds;

    pthread_mutex_lock(&e->mutex);
    holds = e->holds;
    *t = e->held_t;
    *theta = e->held_theta;
    pthread_mutex_unlock(&e->mutex);
    return holds;
}

struct dlc_traffic dlc_nats_endpoint_traffic(const dlc_nats_endpoint *endpoint)
{
    dlc_nats_endpoint *e = (dlc_nats_endpoint *)(uintptr_t)endpoint;
    struct dlc_traffic traffic;

    pthread_mutex_lock(&e->mutex);
    traffic = e->traffic;
    pthread_mutex_unlock(&e->mutex);
    return traffic;
}

/* --- for people --------------------------------------------------------------------------------------------------- */

static void describe_catching_up(const dlc_nats_endpoint *e, char text[160])
{
    double mb = 1e-6 * (double)e->progress.bytes, of_mb = 1e-6 * (double)e->progress.size_bytes;

    if (e->stage == CATCH_FETCH_SNAPSHOT)
        snprintf(text, 160, "fetching the state of step %llu: %.0f of %.0f MB", (unsigned long long)e->snapshot.t, mb,
                 of_mb);
    else if (e->stage == CATCH_ASK_SNAPSHOT)
        snprintf(text, 160, "asking for the state of the run");
    else if (e->holds && e->held_t < e->leader.t && e->stage == CATCH_FETCH_UPDATE)
        snprintf(text, 160, "catching up: step %llu of %llu, %.0f of %.0f MB", (unsigned long long)e->held_t + 1,
                 (unsigned long long)e->leader.t, mb, of_mb);
}

void dlc_nats_endpoint_state(dlc_nats_endpoint *e, char text[160])
{
    double silent_s;

    text[0] = '\0';
    pthread_mutex_lock(&e->mutex);
    silent_s = (double)(dlc_now_ns() - e->heard_ns) * 1e-9;
    if (!atomic_load(&e->control_is_up))
        snprintf(text, 160, "no connection to %.100s; trying again", e->host);
    else if (e->has_leader && silent_s > 1 && (e->leader.flags & DLC_NOTE_LEAVING))
        snprintf(text, 160, "the coordinator has stopped in order; waiting for it to come back");
    else if (silent_s > 3)
        snprintf(text, 160, "the coordinator is silent for %.0f s", silent_s);
    else
        describe_catching_up(e, text);
    pthread_mutex_unlock(&e->mutex);
}
