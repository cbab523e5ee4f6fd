/* The bulk connection of the hub: chunks of updates and snapshots for islands that ask, chunks of their contributions
 * asked for. How much is under way is bounded in all and divided among the islands, so a slow one holds up nobody. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_hub_internal.h"

#define ABSENT_NS (300 * DLC_MS_NS) /* before an island that nobody answers for is asked again */
#define FAILED_NS (5 * DLC_S_NS)     /* a disk that is full may be less so later */
#define BAD_MAX 2

/* --- give --------------------------------------------------------------------------------------------------------- */

/* "_I.<run>.<random>.<identity>": for the counters. */
static void count_down(struct dlc_nats_hub *h, const char *reply, size_t size_bytes)
{
    const char *dot = strrchr(reply, '.');
    struct hub_island *isl;

    pthread_mutex_lock(&h->mutex);
    isl = dot ? hub__find(h, dot + 1) : NULL;
    if (isl)
        isl->traffic.bytes_down += size_bytes;
    pthread_mutex_unlock(&h->mutex);
}

void *hub__give(void *hub)
{
    struct dlc_nats_hub *h = hub;
    struct dlc_buf answer = { 0 };
    struct dlc_wire_msg msg;
    char inbox[DLC_SUBJECT_SIZE], lead[DLC_SUBJECT_SIZE];
    bool got;

    snprintf(inbox, sizeof inbox, "_I.%s.", h->run);
    snprintf(lead, sizeof lead, "_L.%s.", h->run);
    while (!atomic_load(&h->stop) && dlc_wire_next(h->asks, &msg, &got, 200) == DLC_OK) {
        if (!got)
            continue;
        if (msg.reply && (dlc_subject_after(msg.reply, inbox) || dlc_subject_after(msg.reply, lead)) &&
            dlc_blobs_answer(h->blobs, &answer, &msg, dlc_now_ns()) == DLC_OK &&
            dlc_wire_publish(h->bulk, msg.reply, NULL, answer.data, answer.len) == DLC_OK)
            count_down(h, msg.reply, answer.len);
        dlc_wire_msg_free(&msg);
    }
    dlc_buf_fini(&answer);
    return NULL;
}

/* --- fetch -------------------------------------------------------------------------------------------------------- */

/* The fetches that run and whose island is there. Those that nobody wants any more end here; those that lost what was
 * under way ask again. */
static int collect_running(struct dlc_nats_hub *h, int *running)
{
    int64_t now_ns = dlc_now_ns();
    int n = 0;

    pthread_mutex_lock(&h->mutex);
    for (int i = 0; i < h->hub.n_islands; i++) {
        struct hub_fetch *f = &h->islands[i].fetch;

        if (f->state != FETCH_RUNNING)
            continue;
        if (!f->entry) { /* the disk's thread closes the file */
            f->state = FETCH_OPENING;
            pthread_cond_signal(&h->disk);
            continue;
        }
        if (!h->islands[i].alive || f->not_before_ns > now_ns)
            continue;
        if (f->is_stale)
            dlc_fetch_ask_again(f->f);
        f->is_stale = false;
        running[n++] = i;
    }
    if (n == 0 && !atomic_load(&h->stop))
        dlc_cond_wait_until(&h->fetching, &h->mutex, dlc_now_ns() + 200 * DLC_MS_NS);
    pthread_mutex_unlock(&h->mutex);
    return n;
}

/* What is under way is lost: it is asked for again a little later. */
static void mark_stale(struct dlc_nats_hub *h, int island, int64_t wait_ns)
{
    struct hub_fetch *f = &h->islands[island].fetch;

    pthread_mutex_lock(&h->mutex);
    f->is_stale = true;
    f->not_before_ns = dlc_now_ns() + wait_ns;
    pthread_mutex_unlock(&h->mutex);
}

static bool ask_one(struct dlc_nats_hub *h, int island, int window)
{
    struct hub_island *isl = &h->islands[island];
    struct dlc_subject subject = dlc_subject_give(h->run, isl->identity);
    uint8_t bytes[DLC_CHUNK_ASK_BYTES];
    char reply[DLC_SUBJECT_SIZE];
    struct dlc_chunk_ask ask;

    if (!dlc_fetch_ask(isl->fetch.f, &ask, window, dlc_now_ns()))
        return false;
    dlc_chunk_ask_encode(bytes, &ask);
    snprintf(reply, sizeof reply, "%s.%d", dlc_wire_inbox(h->bulk), island);
    if (dlc_wire_publish(h->bulk, subject.text, reply, bytes, sizeof bytes) == DLC_OK)
        return true;
    mark_stale(h, island, ABSENT_NS);
    return false;
}

/* One chunk each in turn, as long as somebody may ask for one more. */
static void ask_all(struct dlc_nats_hub *h, const int *running, int n)
{
    int window = HUB_WINDOW / n > 0 ? HUB_WINDOW / n : 1;
    bool any = true;

    while (any && !atomic_load(&h->stop)) {
        any = false;
        for (int k = 0; k < n; k++)
            any |= ask_one(h, running[k], window);
    }
}

/* The island does not have these bytes any more: something newer stands in their place, and it says so. */
static void give_up(struct dlc_nats_hub *h, struct hub_island *isl)
{
    pthread_mutex_lock(&h->mutex);
    if (isl->fetch.entry)
        hub__drop_entry(isl, isl->fetch.entry);
    isl->fetch.entry = NULL;
    pthread_cond_signal(&h->arrived);
    pthread_mutex_unlock(&h->mutex);
}

static bool is_running(struct dlc_nats_hub *h, const struct hub_island *isl)
{
    bool running;

    pthread_mutex_lock(&h->mutex);
    running = isl->fetch.state == FETCH_RUNNING; /* only this thread ends that */
    pthread_mutex_unlock(&h->mutex);
    return running;
}

static void take_chunk(struct dlc_nats_hub *h, const struct dlc_wire_msg *msg)
{
    const char *dot = strrchr(msg->subject, '.');
    int island = dot ? (int)strtol(dot + 1, NULL, 10) : -1;
    struct hub_island *isl;
    struct hub_fetch *f;
    bool mine = false, gone = false;
    dlc_err err;

    if (island < 0 || island >= h->hub.n_islands || !is_running(h, &h->islands[island]))
        return;
    isl = &h->islands[island];
    f = &isl->fetch;
    if (msg->no_responders) {
        mark_stale(h, island, ABSENT_NS);
        return;
    }
    err = dlc_fetch_answer(f->f, msg->bytes, msg->size_bytes, &mine, &gone, dlc_now_ns());
    if (err == DLC_EPEER && mine && gone) {
        give_up(h, isl);
        return;
    }
    if (err != DLC_OK && err != DLC_EPEER) {
        dlc_warn("what island %d sends cannot be kept: %s", island, dlc_err_text());
        mark_stale(h, island, FAILED_NS);
        return;
    }
    pthread_mutex_lock(&h->mutex);
    isl->traffic.bytes_up += msg->size_bytes;
    f->progress = dlc_fetch_progress(f->f);
    if (dlc_fetch_is_complete(f->f)) {
        f->state = FETCH_FINISHING;
        pthread_cond_signal(&h->disk);
    }
    pthread_mutex_unlock(&h->mutex);
}

static void take_chunks(struct dlc_nats_hub *h)
{
    struct dlc_wire_msg msg;
    bool got = true;
    int wait_ms = 20;

    for (int k = 0; k < 64 && got; k++, wait_ms = 0) {
        if (dlc_wire_next(h->chunks, &msg, &got, wait_ms) != DLC_OK)
            return;
        if (!got)
            return;
        take_chunk(h, &msg);
        dlc_wire_msg_free(&msg);
    }
}

static void ask_again_after_reconnect(struct dlc_nats_hub *h, unsigned *epoch)
{
    unsigned now = atomic_load(&h->bulk_epoch);

    if (now == *epoch)
        return;
    *epoch = now;
    pthread_mutex_lock(&h->mutex);
    for (int i = 0; i < h->hub.n_islands; i++)
        h->islands[i].fetch.is_stale |= h->islands[i].fetch.state == FETCH_RUNNING;
    pthread_mutex_unlock(&h->mutex);
}

void *hub__fetch(void *hub)
{
    struct dlc_nats_hub *h = hub;
    int *running = dlc_calloc((size_t)h->hub.n_islands, sizeof *running), n;
    unsigned epoch = atomic_load(&h->bulk_epoch);

    while (running && !atomic_load(&h->stop)) {
        ask_again_after_reconnect(h, &epoch);
        n = collect_running(h, running);
        if (n == 0)
            continue;
        ask_all(h, running, n);
        take_chunks(h);
    }
    if (!running) {
        pthread_mutex_lock(&h->mutex);
        hub__fail(h, DLC_ENOMEM, dlc_err_text());
        pthread_mutex_unlock(&h->mutex);
    }
    dlc_free(running);
    return NULL;
}

/* --- disk --------------------------------------------------------------------------------------------------------- */

static void incoming_path(char out[DLC_PATH_MAX], const struct dlc_nats_hub *h, int island)
{
    snprintf(out, DLC_PATH_MAX, "%.3900s/incoming/%02d.bin", h->folder, island);
}

/* The next piece of work; -1: none. *next_ns: when there may be some. */
static int next_work(struct dlc_nats_hub *h, int64_t *next_ns)
{
    int64_t now_ns = dlc_now_ns();

    for (int i = 0; i < h->hub.n_islands; i++) {
        struct hub_fetch *f = &h->islands[i].fetch;

        if (f->state == FETCH_FINISHING)
            return i;
        if (f->state == FETCH_OPENING && (f->not_before_ns <= now_ns || !f->entry))
            return i;
        if (f->state == FETCH_OPENING)
            *next_ns = dlc_earlier(*next_ns, f->not_before_ns);
    }
    return -1;
}

struct disk_work {
    int island;
    hub_fetch_state state;
    bool wanted;
    struct dlc_blob_ref ref;
    dlc_fetch *f;
    struct dlc_file_map map;
    bool is_complete;
};

/* Without the mutex. */
static dlc_err open_fetch(struct dlc_nats_hub *h, struct disk_work *w)
{
    char path[DLC_PATH_MAX];

    incoming_path(path, h, w->island);
    dlc_fetch_destroy(w->f);
    w->f = NULL;
    if (!w->wanted)
        return DLC_OK;
    DLC_TRY(dlc_fetch_create(&w->f, &w->ref, path));
    w->is_complete = dlc_fetch_is_complete(w->f);
    return DLC_OK;
}

static dlc_err finish_fetch(struct dlc_nats_hub *h, struct disk_work *w)
{
    char path[DLC_PATH_MAX];

    incoming_path(path, h, w->island);
    DLC_TRY(dlc_fetch_finish(w->f));
    dlc_fetch_destroy(w->f);
    w->f = NULL;
    return dlc_file_map_open(&w->map, path);
}

/* What follows, under the mutex. */
static void settle(struct dlc_nats_hub *h, const struct disk_work *w, dlc_err err)
{
    struct hub_island *isl = &h->islands[w->island];
    struct hub_fetch *f = &isl->fetch;

    f->f = w->f;
    if (err == DLC_EPEER && f->entry) { /* the digest of what came is another one */
        f->state = ++f->n_bad >= BAD_MAX ? FETCH_BAD : FETCH_OPENING;
    } else if (err != DLC_OK && f->entry) {
        f->state = FETCH_OPENING;
        f->not_before_ns = dlc_now_ns() + FAILED_NS;
    } else if (!f->entry) {
        f->state = FETCH_OPENING; /* once more, to close it */
    } else if (w->state == FETCH_OPENING) {
        f->state = w->is_complete ? FETCH_FINISHING : FETCH_RUNNING;
    } else {
        f->state = FETCH_DONE;
        f->map = w->map;
    }
    if (!f->entry && !f->f) {
        isl->fetch = (struct hub_fetch){ 0 };
        hub__consider_fetch(h, isl);
    }
    pthread_cond_signal(&h->fetching);
    pthread_cond_signal(&h->arrived);
}

static void do_work(struct dlc_nats_hub *h, int island)
{
    struct hub_fetch *f = &h->islands[island].fetch;
    struct disk_work w = {
        .island = island, .state = f->state, .wanted = f->entry != NULL, .ref = f->ref, .f = f->f, .map = { .data = "" }
    };
    dlc_err err;

    pthread_mutex_unlock(&h->mutex);
    err = w.state == FETCH_OPENING || !w.wanted ? open_fetch(h, &w) : finish_fetch(h, &w);
    if (err != DLC_OK)
        dlc_warn("contribution of island %d: %s", island, dlc_err_text());
    pthread_mutex_lock(&h->mutex);
    if (!f->entry)
        dlc_file_map_close(&w.map);
    settle(h, &w, err);
    if (f->state == FETCH_BAD) {
        pthread_mutex_unlock(&h->mutex);
        dlc_fetch_destroy(w.f);
        pthread_mutex_lock(&h->mutex);
        f->f = NULL;
    }
}

void *hub__disk(void *hub)
{
    struct dlc_nats_hub *h = hub;
    int64_t cleaned_ns = dlc_now_ns();

    pthread_mutex_lock(&h->mutex);
    while (!atomic_load(&h->stop)) {
        int64_t next_ns = cleaned_ns + 5 * DLC_S_NS;
        int island = next_work(h, &next_ns);

        if (island >= 0) {
            do_work(h, island);
            continue;
        }
        if (dlc_now_ns() < next_ns)
            dlc_cond_wait_until(&h->disk, &h->mutex, next_ns);
        if (dlc_now_ns() < cleaned_ns + 5 * DLC_S_NS)
            continue;
        cleaned_ns = dlc_now_ns();
        pthread_mutex_unlock(&h->mutex);
        dlc_blobs_drop(h->blobs, DLC_BLOB_SNAPSHOT, UINT64_MAX, cleaned_ns - HUB_UNUSED_NS);
        pthread_mutex_lock(&h->mutex);
    }
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}
