/* The bulk connection of an island: chunks of its contribution for the coordinator, chunks of updates and snapshots asked
 * for. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_endpoint_internal.h"

#define WINDOW 48
#define ABSENT_NS (300 * DLC_MS_NS)
#define FAILED_NS (5 * DLC_S_NS)

void *end__give(void *endpoint)
{
    dlc_nats_endpoint *e = endpoint;
    struct dlc_buf answer = { 0 };
    struct dlc_wire_msg msg;
    bool got;

    while (!atomic_load(&e->stop) && dlc_wire_next(e->asks, &msg, &got, 200) == DLC_OK) {
        if (!got)
            continue;
        if (msg.reply && dlc_blobs_answer(e->blobs, &answer, &msg, dlc_now_ns()) == DLC_OK &&
            dlc_wire_publish(e->bulk, msg.reply, NULL, answer.data, answer.len) == DLC_OK) {
            pthread_mutex_lock(&e->mutex);
            e->traffic.bytes_up += answer.len;
            pthread_mutex_unlock(&e->mutex);
        }
        dlc_wire_msg_free(&msg);
    }
    dlc_buf_fini(&answer);
    return NULL;
}

/* --- fetch -------------------------------------------------------------------------------------------------------- */

typedef enum { GOING, STOPPED, GONE, DONE, FAILED } fetch_result;

static void wait_a_while(dlc_nats_endpoint *e, int64_t ns)
{
    int64_t until_ns = dlc_now_ns() + ns;

    pthread_mutex_lock(&e->mutex);
    while (!atomic_load(&e->stop) && dlc_now_ns() < until_ns)
        dlc_cond_wait_until(&e->fetching, &e->mutex, until_ns);
    pthread_mutex_unlock(&e->mutex);
}

/* False: the way is not there. */
static bool ask_for_chunks(dlc_nats_endpoint *e, dlc_fetch *f)
{
    struct dlc_subject subject = dlc_subject_hub_give(e->run);
    uint8_t bytes[DLC_CHUNK_ASK_BYTES];
    char reply[DLC_SUBJECT_SIZE];
    struct dlc_chunk_ask ask;

    snprintf(reply, sizeof reply, "%s.%s", dlc_wire_inbox(e->bulk), e->identity);
    while (!atomic_load(&e->stop) && dlc_fetch_ask(f, &ask, WINDOW, dlc_now_ns())) {
        dlc_chunk_ask_encode(bytes, &ask);
        if (dlc_wire_publish(e->bulk, subject.text, reply, bytes, sizeof bytes) != DLC_OK)
            return false;
    }
    return true;
}

static fetch_result take_chunk(dlc_nats_endpoint *e, dlc_fetch *f, const struct dlc_wire_msg *msg)
{
    bool mine = false, gone = false;
    dlc_err err = dlc_fetch_answer(f, msg->bytes, msg->size_bytes, &mine, &gone, dlc_now_ns());

    if (err == DLC_EPEER && mine && gone)
        return GONE;
    if (err != DLC_OK && err != DLC_EPEER)
        return FAILED;
    pthread_mutex_lock(&e->mutex);
    e->traffic.bytes_down += msg->size_bytes;
    e->progress = dlc_fetch_progress(f);
    pthread_mutex_unlock(&e->mutex);
    return GOING;
}

/* *absent: nobody answers there, or the way is not there. */
static fetch_result go_on(dlc_nats_endpoint *e, dlc_fetch *f, bool *absent)
{
    fetch_result result = GOING;
    struct dlc_wire_msg msg;
    bool got;

    *absent = !ask_for_chunks(e, f);
    if (*absent)
        return GOING;
    if (dlc_wire_next(e->chunks, &msg, &got, 50) != DLC_OK)
        return STOPPED;
    if (!got)
        return GOING;
    *absent = msg.no_responders;
    if (!msg.no_responders)
        result = take_chunk(e, f, &msg);
    dlc_wire_msg_free(&msg);
    return result;
}

static fetch_result fetch_all(dlc_nats_endpoint *e, dlc_fetch *f)
{
    unsigned epoch = atomic_load(&e->bulk_epoch), now;
    fetch_result result = GOING;
    bool absent;

    while (result == GOING && !dlc_fetch_is_complete(f)) {
        if (atomic_load(&e->stop))
            return STOPPED;
        result = go_on(e, f, &absent);
        now = atomic_load(&e->bulk_epoch);
        if (absent)
            wait_a_while(e, ABSENT_NS);
        if (absent || now != epoch)
            dlc_fetch_ask_again(f);
        epoch = now;
    }
    return result;
}

/* One try: until it is complete, or has to be opened again. */
static fetch_result fetch_once(dlc_nats_endpoint *e, const struct dlc_blob_ref *ref, const char *path)
{
    fetch_result result = FAILED;
    dlc_fetch *f = NULL;
    dlc_err err = dlc_fetch_create(&f, ref, path);

    if (err == DLC_OK) {
        result = fetch_all(e, f);
        if (result == GOING) {
            err = dlc_fetch_finish(f);
            result = err == DLC_OK ? DONE : FAILED;
        }
    }
    if (result == FAILED)
        dlc_warn("fetching from the coordinator: %s", dlc_err_text());
    dlc_fetch_destroy(f);
    return result;
}

/* The coordinator does not have it any more: what there is now is asked for. */
static void on_gone(dlc_nats_endpoint *e)
{
    e->stage = e->stage == CATCH_FETCH_UPDATE ? CATCH_ASK_FACT : CATCH_ASK_SNAPSHOT;
    e->question_due_ns = dlc_now_ns() + DLC_S_NS;
    pthread_cond_signal(&e->due);
}

static void on_done(dlc_nats_endpoint *e)
{
    e->stage = e->stage == CATCH_FETCH_UPDATE ? CATCH_APPLY_UPDATE : CATCH_APPLY_SNAPSHOT;
    pthread_cond_signal(&e->arrived);
}

static void fetch_wanted(dlc_nats_endpoint *e)
{
    struct dlc_blob_ref ref = end__wanted(e);
    char path[DLC_PATH_MAX];
    fetch_result result;

    end__wanted_path(path, e);
    e->progress = (struct dlc_fetch_progress){ .size_bytes = ref.size_bytes };
    pthread_mutex_unlock(&e->mutex);
    result = fetch_once(e, &ref, path);
    if (result == FAILED)
        wait_a_while(e, FAILED_NS);
    pthread_mutex_lock(&e->mutex);
    if (result == GONE)
        on_gone(e);
    else if (result == DONE)
        on_done(e);
}

void *end__fetch(void *endpoint)
{
    dlc_nats_endpoint *e = endpoint;

    pthread_mutex_lock(&e->mutex);
    while (!atomic_load(&e->stop)) {
        if (e->stage == CATCH_FETCH_UPDATE || e->stage == CATCH_FETCH_SNAPSHOT)
            fetch_wanted(e);
        else
            dlc_cond_wait_until(&e->fetching, &e->mutex, dlc_now_ns() + DLC_S_NS);
    }
    pthread_mutex_unlock(&e->mutex);
    return NULL;
}
