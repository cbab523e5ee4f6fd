#include "exchange/nats_hub.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_hub_internal.h"

#define WAIT_MAX_NS (200 * DLC_MS_NS) /* of recv: a signal shows only between two waits */

/* --- under the mutex ---------------------------------------------------------------------------------------------- */

struct hub_island *hub__find(struct dlc_nats_hub *h, const char *identity)
{
    for (int i = 0; i < h->hub.n_islands; i++) {
        if (h->islands[i].channel && strcmp(h->islands[i].identity, identity) == 0)
            return &h->islands[i];
    }
    return NULL;
}

void hub__fail(struct dlc_nats_hub *h, dlc_err err, const char *text)
{
    if (h->failed == DLC_OK)
        snprintf(h->failed_text, sizeof h->failed_text, "%s", text);
    if (h->failed == DLC_OK)
        h->failed = err;
    pthread_cond_broadcast(&h->arrived);
}

void hub__entry_free(struct hub_entry *e)
{
    if (!e)
        return;
    dlc_message_fini(&e->m);
    dlc_free(e);
}

void hub__drop_entry(struct hub_island *isl, struct hub_entry *e)
{
    struct hub_entry **at = &isl->first, *before = NULL;

    while (*at != e) {
        before = *at;
        at = &(*at)->next;
    }
    *at = e->next;
    if (isl->last == e)
        isl->last = before;
    isl->n_queued--;
    hub__entry_free(e);
}

/* The same contribution once more, or another one in its place: nothing is fetched for it. */
static bool was_taken(const struct hub_island *isl, const struct dlc_message *m)
{
    return isl->has_taken && isl->taken.incarnation == m->incarnation && isl->taken.t == m->t &&
           isl->taken.attempt == m->attempt;
}

/* Whether the bytes can be of any use: their size is the codec's and their round is not long closed. The rest goes to the
 * coordinator as it is and is refused there. */
bool hub__needs_fetch(const struct dlc_nats_hub *h, const struct hub_island *isl, const struct dlc_message *m)
{
    return m->kind == DLC_MSG_CONTRIBUTION && m->size_bytes > 0 &&
           m->size_bytes == h->opt.codec->size_bytes(h->opt.size.n_params) && m->t >= h->note.t && !was_taken(isl, m);
}

void hub__consider_fetch(struct dlc_nats_hub *h, struct hub_island *isl)
{
    struct hub_entry *e;

    if (isl->fetch.state != FETCH_NONE)
        return;
    for (e = isl->first; e && (e->ends_life || !hub__needs_fetch(h, isl, &e->m)); e = e->next)
        ;
    if (!e)
        return;
    isl->fetch = (struct hub_fetch){ .state = FETCH_OPENING,
                                     .entry = e,
                                     .ref = { .digest = e->m.digest, .size_bytes = e->m.size_bytes } };
    pthread_cond_signal(&h->disk);
}

/* What the old process still had to give cannot come any more. */
void hub__drop_unfetched(struct hub_island *isl)
{
    struct hub_entry *next;

    for (struct hub_entry *e = isl->first; e; e = next) {
        next = e->next;
        if (e->ends_life || e->m.kind != DLC_MSG_CONTRIBUTION)
            continue;
        if (isl->fetch.entry == e && (isl->fetch.state == FETCH_DONE || isl->fetch.state == FETCH_BAD))
            continue;
        if (isl->fetch.entry == e)
            isl->fetch.entry = NULL;
        hub__drop_entry(isl, e);
    }
}

void hub__end_life(struct hub_island *isl)
{
    struct hub_entry *end;

    hub__drop_unfetched(isl);
    if (!isl->has_life || isl->told_lost || (isl->last && isl->last->ends_life))
        return;
    end = dlc_calloc(1, sizeof *end);
    if (!end)
        return; /* its new life says HELLO, which tells as much */
    end->ends_life = true;
    *(isl->last ? &isl->last->next : &isl->first) = end;
    isl->last = end;
    isl->n_queued++;
}

void hub__slots_free(struct hub_island *isl, uint64_t up_to_t)
{
    struct hub_slot **at = &isl->slots;

    while (*at) {
        struct hub_slot *s = *at;

        if (s->t > up_to_t) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        dlc_file_map_close(&s->map);
        dlc_free(s);
    }
}

/* --- recv --------------------------------------------------------------------------------------------------------- */

/* The bytes that were fetched become the slot. */
static dlc_err take_slot(struct hub_island *isl, const struct dlc_message *m)
{
    struct hub_slot *s = dlc_calloc(1, sizeof *s);

    if (!s)
        return DLC_ENOMEM;
    *s = (struct hub_slot){ .next = isl->slots, .map = isl->fetch.map, .t = m->t };
    isl->slots = s;
    isl->has_taken = true;
    isl->taken = *m;
    isl->taken.ranges = (struct dlc_ranges){ 0 };
    isl->fetch = (struct hub_fetch){ 0 };
    return DLC_OK;
}

/* *got false: the first of its messages waits for its bytes. */
static dlc_err take_first(struct dlc_nats_hub *h, struct hub_island *isl, struct dlc_message *out, bool *lost,
                          bool *got)
{
    struct hub_entry *e = isl->first;
    bool is_fetched = isl->fetch.entry == e;

    if (is_fetched && isl->fetch.state == FETCH_DONE) {
        DLC_TRY(take_slot(isl, &e->m));
    } else if (is_fetched && isl->fetch.state == FETCH_BAD) {
        e->m.size_bytes = 0; /* no contribution: the coordinator refuses it */
        isl->fetch = (struct hub_fetch){ 0 };
    } else if (!e->ends_life && hub__needs_fetch(h, isl, &e->m)) {
        return DLC_OK;
    } else if (is_fetched) {
        isl->fetch.entry = NULL; /* too late for it */
    } else if (!e->ends_life && e->m.kind == DLC_MSG_CONTRIBUTION && was_taken(isl, &e->m) &&
               !dlc_sha256_equal(&e->m.digest, &isl->taken.digest)) {
        dlc_warn("an island sent a second contribution to step %llu, attempt %u; it is ignored",
                 (unsigned long long)e->m.t, e->m.attempt);
        hub__drop_entry(isl, e);
        return DLC_OK;
    }
    *lost = e->ends_life;
    *out = e->m;
    e->m = (struct dlc_message){ 0 };
    hub__drop_entry(isl, e);
    *got = true;
    hub__consider_fetch(h, isl);
    return DLC_OK;
}

static dlc_err take_of(struct dlc_nats_hub *h, struct hub_island *isl, struct dlc_message *out, bool *lost, bool *got)
{
    if (isl->told_lost && isl->alive) {
        isl->told_lost = false;
        *out = (struct dlc_message){ .kind = DLC_MSG_BACK, .incarnation = isl->incarnation };
        *got = true;
        return DLC_OK;
    }
    if (isl->first)
        DLC_TRY(take_first(h, isl, out, lost, got));
    if (!*got && isl->has_life && !isl->alive && !isl->told_lost)
        *got = *lost = isl->told_lost = true;
    return DLC_OK;
}

static dlc_err take_one(struct dlc_nats_hub *h, int *island, struct dlc_message *out, bool *lost, bool *got)
{
    for (int k = 1; k <= h->hub.n_islands && !*got; k++) {
        int i = (h->last_island + k) % h->hub.n_islands;

        DLC_TRY(take_of(h, &h->islands[i], out, lost, got));
        if (*got)
            h->last_island = *island = i;
    }
    return DLC_OK;
}

/* All that wait now; what has to wait for a message to be given out first stays. */
static void answer_questions(struct dlc_nats_hub *h)
{
    struct hub_question *all = h->questions, *q, **tail;

    h->questions = NULL;
    h->n_questions = 0;
    pthread_mutex_unlock(&h->mutex);
    for (struct hub_question **at = &all; (q = *at) != NULL;) {
        bool again_later = false;

        hub__answer(h, q, &again_later);
        if (again_later) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        hub__question_free(q);
    }
    pthread_mutex_lock(&h->mutex);
    for (tail = &all; *tail; tail = &(*tail)->next)
        h->n_questions++;
    *tail = h->questions;
    h->questions = all;
}

/* Counted by the threads, shown to the coordinator's. */
static void show_traffic(struct dlc_nats_hub *h)
{
    for (int i = 0; i < h->hub.n_islands; i++) {
        struct hub_island *isl = &h->islands[i];

        h->hub.traffic[i].bytes_up += isl->traffic.bytes_up - isl->shown.bytes_up;
        h->hub.traffic[i].bytes_down += isl->traffic.bytes_down - isl->shown.bytes_down;
        isl->shown = isl->traffic;
    }
}

static dlc_err recv_locked(struct dlc_nats_hub *h, int *island, struct dlc_message *out, bool *lost, bool *got,
                           int64_t deadline_ns)
{
    for (;;) {
        if (h->questions)
            answer_questions(h);
        if (h->failed != DLC_OK)
            return dlc_fail(h->failed, "%s", h->failed_text);
        DLC_TRY(take_one(h, island, out, lost, got));
        if (*got || dlc_now_ns() >= deadline_ns)
            break;
        dlc_cond_wait_until(&h->arrived, &h->mutex, deadline_ns);
    }
    show_traffic(h);
    return DLC_OK;
}

static dlc_err hub_recv(dlc_hub *hub, int *island, struct dlc_message *out, bool *lost, bool *got, int64_t deadline_ns)
{
    struct dlc_nats_hub *h = (struct dlc_nats_hub *)hub;
    dlc_err err;

    *got = *lost = false;
    deadline_ns = dlc_earlier(deadline_ns, dlc_now_ns() + WAIT_MAX_NS);
    pthread_mutex_lock(&h->mutex);
    err = recv_locked(h, island, out, lost, got, deadline_ns);
    pthread_mutex_unlock(&h->mutex);
    return err;
}

static dlc_err hub_send(dlc_hub *hub, int island, const struct dlc_message *m)
{
    struct dlc_nats_hub *h = (struct dlc_nats_hub *)hub;
    struct hub_island *isl = &h->islands[island];
    dlc_err err = DLC_OK;

    pthread_mutex_lock(&h->mutex);
    if (isl->channel && !isl->told_lost)
        err = dlc_channel_send(isl->channel, m);
    if (err == DLC_EPEER) {
        isl->alive = false; /* it acknowledges nothing */
        err = DLC_OK;
    }
    pthread_cond_signal(&h->due);
    pthread_mutex_unlock(&h->mutex);
    return err;
}

static int64_t hub_now_ns(dlc_hub *hub)
{
    (void)hub;
    return dlc_now_ns();
}

static const void *hub_slot(dlc_hub *hub, int island)
{
    struct dlc_nats_hub *h = (struct dlc_nats_hub *)hub;
    const void *bytes;

    pthread_mutex_lock(&h->mutex);
    bytes = h->islands[island].slots ? h->islands[island].slots->map.data : NULL;
    pthread_mutex_unlock(&h->mutex);
    return bytes;
}

static float *hub_theta(dlc_hub *hub, int which)
{
    return ((struct dlc_nats_hub *)hub)->theta[which];
}

static float *hub_mean(dlc_hub *hub)
{
    (void)hub;
    return NULL; /* gradients of every inner step do not travel this way */
}

static const struct dlc_hub_ops hub_ops = { .recv = hub_recv,
                                            .send = hub_send,
                                            .now_ns = hub_now_ns,
                                            .slot = hub_slot,
                                            .theta = hub_theta,
                                            .mean = hub_mean,
                                            .update = hub__update,
                                            .publish = hub__publish };

/* --- begin and end ------------------------------------------------------------------------------------------------ */

static void on_control(void *self, bool connected)
{
    atomic_store(&((struct dlc_nats_hub *)self)->control_is_up, connected);
}

static void on_bulk(void *self, bool connected)
{
    if (connected)
        atomic_fetch_add(&((struct dlc_nats_hub *)self)->bulk_epoch, 1);
}

static dlc_err connect_all(struct dlc_nats_hub *h)
{
    const struct dlc_join_url *url = h->opt.url;
    struct dlc_subject asks = dlc_subject_hub_give(h->run), up = dlc_subject_all_up(h->run);
    char chunks[DLC_SUBJECT_SIZE];
    struct dlc_wire_options o = { .host = url->host,
                                  .port = url->port,
                                  .run = h->run,
                                  .user = url->user,
                                  .secret = url->secret,
                                  .ca_pem = h->opt.ca_pem,
                                  .name = "coordinator/control",
                                  .on_state = on_control,
                                  .self = h };

    atomic_store(&h->control_is_up, true);
    DLC_TRY(dlc_wire_connect(&h->control, &o));
    DLC_TRY(dlc_wire_subscribe(&h->up, h->control, up.text));
    o.name = "coordinator/bulk";
    o.bulk = true;
    o.on_state = on_bulk;
    DLC_TRY(dlc_wire_connect(&h->bulk, &o));
    snprintf(chunks, sizeof chunks, "%s.>", dlc_wire_inbox(h->bulk));
    DLC_TRY(dlc_wire_subscribe(&h->chunks, h->bulk, chunks));
    DLC_TRY(dlc_wire_subscribe(&h->asks, h->bulk, asks.text));
    if (!h->opt.sys_secret)
        return DLC_OK;
    o.name = "coordinator/sys";
    o.bulk = false;
    o.on_state = NULL;
    o.user = "sys";
    o.secret = h->opt.sys_secret;
    DLC_TRY(dlc_wire_connect(&h->sys, &o));
    return dlc_wire_subscribe(&h->events, h->sys, "$SYS.ACCOUNT.DLC.>");
}

static dlc_err start_threads(struct dlc_nats_hub *h)
{
    static void *(*const run[])(void *) = { hub__listen, hub__speak, hub__give, hub__fetch, hub__disk, hub__sys };
    int n = h->sys ? 6 : 5;

    for (; h->n_threads < n; h->n_threads++) {
        if (pthread_create(&h->threads[h->n_threads], NULL, run[h->n_threads], h) != 0)
            return dlc_fail(DLC_EFAIL, "no thread for the exchange");
    }
    return DLC_OK;
}

static dlc_err allocate(struct dlc_nats_hub *h)
{
    size_t k = (size_t)h->hub.n_islands, theta_bytes = h->opt.size.n_params * sizeof(float);

    h->islands = dlc_calloc(k, sizeof *h->islands);
    h->hub.traffic = dlc_calloc(k, sizeof *h->hub.traffic);
    h->snapshot = dlc_calloc(1, sizeof *h->snapshot);
    if (!h->islands || !h->hub.traffic || !h->snapshot)
        return DLC_ENOMEM;
    for (int i = 0; i < 2; i++)
        DLC_TRY(dlc_arena_alloc((void **)&h->theta[i], theta_bytes, "the global parameters"));
    DLC_TRY(dlc_blobs_create(&h->blobs));
    return dlc_draw_session(&h->session);
}

static dlc_err begin(struct dlc_nats_hub *h)
{
    if (h->opt.size.lockstep)
        return dlc_fail(DLC_EUSAGE, "data parallelism (train.method = dp) does not go over a network: gradients of every "
                                    "inner step would have to travel");
    DLC_TRY(allocate(h));
    DLC_TRY(hub__open_served(h));
    DLC_TRY(connect_all(h));
    return start_threads(h);
}

dlc_err dlc_nats_hub_create(dlc_nats_hub **out, const struct dlc_nats_hub_options *options)
{
    struct dlc_nats_hub *h = dlc_calloc(1, sizeof *h);
    dlc_err err;

    *out = NULL;
    if (!h)
        return DLC_ENOMEM;
    h->hub.ops = &hub_ops;
    h->hub.n_islands = options->size.n_islands;
    h->opt = *options;
    snprintf(h->run, sizeof h->run, "%s", options->url->run);
    snprintf(h->folder, sizeof h->folder, "%s", options->folder);
    h->note.fence = options->fence;
    (void)pthread_mutex_init(&h->mutex, NULL);
    dlc_cond_init(&h->arrived);
    dlc_cond_init(&h->due);
    dlc_cond_init(&h->fetching);
    dlc_cond_init(&h->disk);
    err = begin(h);
    h->opt.url = NULL; /* the caller's, with a secret in it */
    h->opt.ca_pem = h->opt.sys_secret = h->opt.folder = NULL;
    if (err != DLC_OK) {
        dlc_nats_hub_destroy(h, false);
        return err;
    }
    *out = h;
    return DLC_OK;
}

static void say_goodbye(struct dlc_nats_hub *h)
{
    int64_t until_ns = dlc_now_ns() + 3 * DLC_S_NS;

    while (!dlc_nats_hub_is_quiet(h) && dlc_now_ns() < until_ns && atomic_load(&h->control_is_up))
        (void)nanosleep(&(struct timespec){ .tv_nsec = 10 * DLC_MS_NS }, NULL);
}

static void stop_threads(struct dlc_nats_hub *h)
{
    pthread_mutex_lock(&h->mutex);
    atomic_store(&h->stop, true);
    pthread_cond_broadcast(&h->due);
    pthread_cond_broadcast(&h->fetching);
    pthread_cond_broadcast(&h->disk);
    pthread_mutex_unlock(&h->mutex);
    if (h->n_threads > 1) /* its last packets need the connection */
        pthread_join(h->threads[1], NULL);
    dlc_wire_stop(h->control);
    dlc_wire_stop(h->bulk);
    dlc_wire_stop(h->sys);
    for (int i = 0; i < h->n_threads; i++) {
        if (i != 1)
            pthread_join(h->threads[i], NULL);
    }
    dlc_wire_close(h->control);
    dlc_wire_close(h->bulk);
    dlc_wire_close(h->sys);
}

static void free_island(struct hub_island *isl)
{
    while (isl->first) {
        struct hub_entry *e = isl->first;

        isl->first = e->next;
        hub__entry_free(e);
    }
    dlc_fetch_destroy(isl->fetch.f);
    dlc_file_map_close(&isl->fetch.map);
    hub__slots_free(isl, UINT64_MAX);
    dlc_channel_destroy(isl->channel);
}

static void free_queues(struct dlc_nats_hub *h)
{
    while (h->questions) {
        struct hub_question *q = h->questions;

        h->questions = q->next;
        hub__question_free(q);
    }
    while (h->letters) {
        struct hub_letter *l = h->letters;

        h->letters = l->next;
        dlc_buf_fini(&l->bytes);
        dlc_free(l);
    }
    for (size_t i = 0; i < HUB_KEPT_UPDATES; i++)
        dlc_free(h->facts[i].line);
}

void dlc_nats_hub_destroy(dlc_nats_hub *h, bool leaving)
{
    if (!h)
        return;
    if (h->n_threads > 1)
        say_goodbye(h);
    h->is_leaving = leaving;
    stop_threads(h);
    free_queues(h);
    for (int i = 0; h->islands && i < h->hub.n_islands; i++)
        free_island(&h->islands[i]);
    if (h->update_t != 0)
        dlc_unmap(h->update, h->opt.codec->size_bytes(h->opt.size.n_params));
    dlc_blobs_destroy(h->blobs, true);
    for (int i = 0; i < 2; i++)
        dlc_arena_free(h->theta[i], h->opt.size.n_params * sizeof(float));
    (void)pthread_cond_destroy(&h->arrived);
    (void)pthread_cond_destroy(&h->due);
    (void)pthread_cond_destroy(&h->fetching);
    (void)pthread_cond_destroy(&h->disk);
    (void)pthread_mutex_destroy(&h->mutex);
    dlc_free(h->snapshot);
    dlc_free(h->islands);
    dlc_free(h->hub.traffic);
    dlc_free(h);
}

dlc_hub *dlc_nats_hub_base(dlc_nats_hub *h)
{
    return &h->hub;
}

struct dlc_nats_island_info dlc_nats_hub_island(dlc_nats_hub *h, int island)
{
    struct hub_island *isl = &h->islands[island];
    struct dlc_nats_island_info info = { 0 };

    pthread_mutex_lock(&h->mutex);
    info.connected = isl->alive;
    info.silent_s = isl->has_life ? (double)(dlc_now_ns() - isl->heard_ns) * 1e-9 : 0;
    info.held_t = isl->held_t;
    if (isl->fetch.state == FETCH_RUNNING || isl->fetch.state == FETCH_FINISHING) {
        info.bytes_per_s_up = isl->fetch.progress.bytes_per_s;
        info.fetched = isl->fetch.progress.bytes;
        info.fetch_size = isl->fetch.ref.size_bytes;
    }
    pthread_mutex_unlock(&h->mutex);
    return info;
}

bool dlc_nats_hub_is_quiet(dlc_nats_hub *h)
{
    bool quiet = true;

    pthread_mutex_lock(&h->mutex);
    for (int i = 0; i < h->hub.n_islands; i++) {
        const struct hub_island *isl = &h->islands[i];

        quiet &= !isl->channel || !isl->alive || dlc_channel_unacknowledged(isl->channel) == 0;
    }
    pthread_mutex_unlock(&h->mutex);
    return quiet;
}
