/* Packets, questions and answers: the control connection of an island. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_endpoint_internal.h"

#define TICK_NS (250 * DLC_MS_NS)
#define PAUSED_NS (1 * DLC_S_NS)
#define ASK_AGAIN_NS (1 * DLC_S_NS)
#define JOIN_AGAIN_NS (500 * DLC_MS_NS)
#define SILENT_NS (3 * DLC_S_NS) /* a new coordinator may not know this island */
#define QUEUE_MAX 4096

/* --- listen ------------------------------------------------------------------------------------------------------- */

/* A lower fence is a leader of the past, only asleep until now. */
static bool is_outdated(dlc_nats_endpoint *e, uint64_t fence)
{
    if (fence < e->fence)
        return true;
    e->fence = fence;
    return false;
}

static void queue_messages(dlc_nats_endpoint *e)
{
    struct end_entry *entry;

    while ((entry = dlc_calloc(1, sizeof *entry)) != NULL && dlc_channel_next(e->channel, &entry->m)) {
        *(e->last ? &e->last->next : &e->first) = entry;
        e->last = entry;
        e->n_queued++;
    }
    dlc_free(entry);
}

static void take_packet(dlc_nats_endpoint *e, const struct dlc_wire_msg *msg)
{
    int64_t now_ns = dlc_now_ns();
    struct dlc_note note;
    bool fresh;
    dlc_err err;

    e->traffic.bytes_down += msg->size_bytes;
    err = dlc_channel_peek(&note, msg->bytes, msg->size_bytes);
    if (err == DLC_OK && is_outdated(e, note.fence))
        return;
    if (err == DLC_OK && e->n_queued < QUEUE_MAX)
        err = dlc_channel_receive(e->channel, &note, &fresh, msg->bytes, msg->size_bytes, now_ns);
    pthread_cond_signal(&e->due);
    if (err != DLC_OK) {
        dlc_debug("a packet is ignored: %s", dlc_err_text());
        return;
    }
    e->heard_ns = now_ns;
    e->leader = note;
    e->has_leader = true;
    e->hello_due |= fresh && e->has_hello;
    end__check_history(e);
    queue_messages(e);
    end__plan(e);
    end__say_hello(e);
    pthread_cond_signal(&e->arrived);
}

/* An empty packet: the coordinator does not know this island. */
static void on_packet(dlc_nats_endpoint *e, const struct dlc_wire_msg *msg)
{
    pthread_mutex_lock(&e->mutex);
    if (msg->size_bytes > 0) {
        take_packet(e, msg);
    } else if (e->index >= 0) {
        e->join_wanted = true;
        pthread_cond_signal(&e->due);
    }
    pthread_mutex_unlock(&e->mutex);
}

static void take_welcome(dlc_nats_endpoint *e, const struct dlc_answer *a)
{
    int64_t index;

    if (!e->join_wanted)
        return;
    if (!a->ok) {
        end__fail(e, a->code, a->text);
        return;
    }
    if (dlc_json_get_int(&index, a->ok, "index", 0, 1000000, "the answer to joining") != DLC_OK) {
        end__fail(e, DLC_EPEER, dlc_err_text());
        return;
    }
    if (e->index >= 0 && e->index != (int)index) {
        end__fail(e, DLC_EPEER, "the coordinator that leads now takes this island for another one: its run folder is not "
                                "the one this island joined");
        return;
    }
    e->index = (int)index;
    e->join_wanted = false;
    e->heard_ns = dlc_now_ns();
    if (!e->welcome)
        e->welcome = json_deep_copy(a->ok);
}

static void on_answer(dlc_nats_endpoint *e, const struct dlc_wire_msg *msg)
{
    struct dlc_answer a;

    if (msg->no_responders || dlc_answer_parse(&a, msg->bytes, msg->size_bytes) != DLC_OK)
        return;
    pthread_mutex_lock(&e->mutex);
    if (!is_outdated(e, a.fence)) {
        if (strcmp(a.about, "join") == 0)
            take_welcome(e, &a);
        else if (strcmp(a.about, "fact") == 0)
            end__take_fact(e, &a);
        else if (strcmp(a.about, "snapshot") == 0)
            end__take_snapshot_offer(e, &a);
        pthread_cond_broadcast(&e->arrived);
        pthread_cond_signal(&e->due);
        pthread_cond_signal(&e->fetching);
    }
    pthread_mutex_unlock(&e->mutex);
    dlc_answer_fini(&a);
}

void *end__listen(void *endpoint)
{
    dlc_nats_endpoint *e = endpoint;
    struct dlc_subject packets = dlc_subject_down(e->run, e->identity);
    struct dlc_subject answers = dlc_subject_answer(e->run, e->identity);
    struct dlc_wire_msg msg;
    bool got;

    while (!atomic_load(&e->stop) && dlc_wire_next(e->down, &msg, &got, 200) == DLC_OK) {
        if (!got)
            continue;
        if (strcmp(msg.subject, packets.text) == 0)
            on_packet(e, &msg);
        else if (strcmp(msg.subject, answers.text) == 0)
            on_answer(e, &msg);
        dlc_wire_msg_free(&msg);
    }
    if (!atomic_load(&e->stop)) {
        pthread_mutex_lock(&e->mutex);
        end__fail(e, DLC_EPEER, dlc_err_text());
        pthread_mutex_unlock(&e->mutex);
    }
    return NULL;
}

/* --- speak -------------------------------------------------------------------------------------------------------- */

/* The mutex is let go around the call of the network. */
static void ask(dlc_nats_endpoint *e, const char *name, json_t *question)
{
    struct dlc_subject to = dlc_subject_question(e->run, name), reply = dlc_subject_answer(e->run, e->identity);
    char *text = NULL;

    if (question && json_object_set_new(question, "ask", json_integer(++e->ask)) == 0 &&
        json_object_set_new(question, "identity", json_string(e->identity)) == 0)
        text = dlc_json_dump(question);
    json_decref(question);
    if (!text)
        return; /* out of memory: in a second again */
    pthread_mutex_unlock(&e->mutex);
    (void)dlc_wire_publish(e->control, to.text, reply.text, text, strlen(text));
    dlc_free(text);
    pthread_mutex_lock(&e->mutex);
}

static void ask_to_join(dlc_nats_endpoint *e, int64_t now_ns)
{
    json_t *question = json_deep_copy(e->question);
    char session[24];

    e->join_due_ns = now_ns + (e->index < 0 ? ASK_AGAIN_NS : JOIN_AGAIN_NS);
    snprintf(session, sizeof session, "%016llx", (unsigned long long)e->session);
    if (question && json_object_set_new(question, "incarnation", json_integer(e->incarnation)) == 0 &&
        json_object_set_new(question, "session", json_string(session)) == 0)
        ask(e, "join", question);
    else
        json_decref(question);
}

static void ask_what_is_due(dlc_nats_endpoint *e)
{
    int64_t now_ns = dlc_now_ns();

    if (e->join_wanted && e->join_due_ns <= now_ns)
        ask_to_join(e, now_ns);
    if (e->question_due_ns > now_ns || (e->stage != CATCH_ASK_FACT && e->stage != CATCH_ASK_SNAPSHOT))
        return;
    e->question_due_ns = now_ns + ASK_AGAIN_NS;
    if (e->stage == CATCH_ASK_FACT)
        ask(e, "fact", json_pack("{s:I}", "t", (json_int_t)(e->held_t + 1)));
    else
        ask(e, "snapshot", json_pack("{s:I}", "t", (json_int_t)(e->holds ? e->held_t : 0)));
}

static void look_around(dlc_nats_endpoint *e, int64_t *looked_ns)
{
    int64_t now_ns = dlc_now_ns();

    if (now_ns - *looked_ns > PAUSED_NS) /* this process was stopped: what came meanwhile is read now */
        e->heard_ns = now_ns;
    else if (e->index >= 0 && now_ns - e->heard_ns > SILENT_NS)
        e->join_wanted = true;
    *looked_ns = now_ns;
}

static int64_t packet_due_ns(const dlc_nats_endpoint *e)
{
    if (e->index < 0)
        return INT64_MAX;
    return e->wants_packet ? 0 : dlc_channel_due_ns(e->channel);
}

static void speak(dlc_nats_endpoint *e, struct dlc_buf *packet)
{
    struct dlc_subject subject = dlc_subject_up(e->run, e->identity);
    struct dlc_note note = { .fence = e->fence,
                             .t = e->holds ? e->held_t : 0,
                             .theta = e->held_theta,
                             .record = e->held_record,
                             .flags = e->is_leaving ? DLC_NOTE_LEAVING : 0 };

    e->wants_packet = false;
    if (dlc_channel_packet(e->channel, packet, &note, dlc_now_ns()) != DLC_OK)
        return;
    e->traffic.bytes_up += packet->len;
    pthread_mutex_unlock(&e->mutex);
    (void)dlc_wire_publish(e->control, subject.text, NULL, packet->data, packet->len);
    pthread_mutex_lock(&e->mutex);
}

void *end__speak(void *endpoint)
{
    dlc_nats_endpoint *e = endpoint;
    struct dlc_buf packet = { 0 };
    int64_t looked_ns = dlc_now_ns(), next_ns;

    pthread_mutex_lock(&e->mutex);
    while (!atomic_load(&e->stop)) {
        look_around(e, &looked_ns);
        ask_what_is_due(e);
        if (packet_due_ns(e) <= dlc_now_ns())
            speak(e, &packet);
        next_ns = dlc_earlier(dlc_now_ns() + TICK_NS, packet_due_ns(e));
        if (e->join_wanted)
            next_ns = dlc_earlier(next_ns, e->join_due_ns);
        if (e->stage == CATCH_ASK_FACT || e->stage == CATCH_ASK_SNAPSHOT)
            next_ns = dlc_earlier(next_ns, e->question_due_ns);
        if (!atomic_load(&e->stop) && next_ns > dlc_now_ns())
            dlc_cond_wait_until(&e->due, &e->mutex, next_ns);
    }
    if (e->is_leaving && e->index >= 0 && atomic_load(&e->control_is_up))
        speak(e, &packet);
    pthread_mutex_unlock(&e->mutex);
    dlc_buf_fini(&packet);
    return NULL;
}
