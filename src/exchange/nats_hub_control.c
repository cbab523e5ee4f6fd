/* Packets, questions, silence: the control connection of the hub. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_hub_internal.h"

#define TICK_NS (250 * DLC_MS_NS)    /* speak looks around this often */
#define PAUSED_NS (1 * DLC_S_NS)     /* it looked around so much later: this process was stopped */
#define SILENCE_MIN_S 5.0
#define SILENCE_MAX_S 300.0
#define CLOSED_NS (100 * DLC_MS_NS)  /* what a process sent before its connection closed has been read by then */

/* --- listen ------------------------------------------------------------------------------------------------------- */

static void note_arrival(struct hub_island *isl, bool fresh, int64_t now_ns)
{
    double gap_s = (double)(now_ns - isl->heard_ns) * 1e-9;

    /* The longest silence seen of late: it is forgotten slowly, so that one long cut does not make a later death
     * unnoticed. A silence that was reported is no measure for the next one. */
    isl->longest_gap_s *= 0.99;
    if (!fresh && isl->alive && gap_s > isl->longest_gap_s)
        isl->longest_gap_s = gap_s;
    isl->heard_ns = now_ns;
    isl->closed_ns = 0;
}

static void queue_messages(struct dlc_nats_hub *h, struct hub_island *isl)
{
    struct hub_entry *e;

    while ((e = dlc_calloc(1, sizeof *e)) != NULL && dlc_channel_next(isl->channel, &e->m)) {
        *(isl->last ? &isl->last->next : &isl->first) = e;
        isl->last = e;
        isl->n_queued++;
    }
    dlc_free(e);
    hub__consider_fetch(h, isl);
}

static void on_fence(struct dlc_nats_hub *h, const struct dlc_note *note)
{
    char text[160];

    if (note->fence <= h->note.fence)
        return;
    snprintf(text, sizeof text, "another coordinator leads this run (fence %llu, this one had %llu); this one leads no more",
             (unsigned long long)note->fence, (unsigned long long)h->note.fence);
    hub__fail(h, DLC_EPEER, text);
}

static void take_packet(struct dlc_nats_hub *h, struct hub_island *isl, const struct dlc_wire_msg *msg)
{
    int64_t now_ns = dlc_now_ns();
    struct dlc_note note;
    bool fresh = false;
    dlc_err err;

    isl->traffic.bytes_up += msg->size_bytes;
    if (isl->n_queued >= HUB_QUEUE_MAX)
        return; /* not acknowledged: it comes again when the coordinator has read some */
    err = dlc_channel_receive(isl->channel, &note, &fresh, msg->bytes, msg->size_bytes, now_ns);
    if (err != DLC_OK) {
        isl->wants_packet |= err == DLC_ENOTFOUND; /* a new session: it has to be greeted */
        pthread_cond_signal(&h->due);
        dlc_debug("a packet is ignored: %s", dlc_err_text());
        return;
    }
    on_fence(h, &note);
    if (fresh) {
        hub__end_life(isl);
        isl->told_lost = isl->left = false;
        isl->longest_gap_s = 0;
    } else if (isl->left) {
        return;
    }
    isl->fetch.is_stale |= !isl->alive; /* what was asked meanwhile is lost */
    note_arrival(isl, fresh, now_ns);
    isl->has_life = isl->alive = true;
    isl->held_t = note.t;
    queue_messages(h, isl);
    if (note.flags & DLC_NOTE_LEAVING) {
        isl->left = true;
        isl->alive = false;
    }
    pthread_cond_signal(&h->arrived);
    pthread_cond_signal(&h->due);
}

/* An island of an earlier coordinator, most likely: an empty packet asks it to join again. */
static void on_packet(struct dlc_nats_hub *h, const char *identity, const struct dlc_wire_msg *msg)
{
    struct hub_island *isl;
    bool ask;

    if (!dlc_identity_is_good(identity))
        return;
    pthread_mutex_lock(&h->mutex);
    isl = hub__find(h, identity);
    if (isl)
        take_packet(h, isl, msg);
    ask = !isl && h->is_published;
    pthread_mutex_unlock(&h->mutex);
    if (ask)
        (void)dlc_wire_publish(h->control, dlc_subject_down(h->run, identity).text, NULL, "", 0);
}

void hub__question_free(struct hub_question *q)
{
    json_decref(q->json);
    dlc_free(q);
}

/* Answers go to those who asked and nowhere else: an island must not make the coordinator speak to another one. */
static bool may_be_answered(const struct dlc_nats_hub *h, const char *reply)
{
    char inbox[DLC_SUBJECT_SIZE], lead[DLC_SUBJECT_SIZE], answers[DLC_SUBJECT_SIZE];

    snprintf(inbox, sizeof inbox, "_I.%s.", h->run);
    snprintf(lead, sizeof lead, "_L.%s.", h->run);
    snprintf(answers, sizeof answers, "dlc.%s.s.a.", h->run);
    return strlen(reply) < DLC_SUBJECT_SIZE && !strpbrk(reply, "*> \t\r\n") &&
           (dlc_subject_after(reply, inbox) || dlc_subject_after(reply, lead) || dlc_subject_after(reply, answers));
}

/* Asked again while it waits: only where the answer goes is new. Several may ask through one inbox, so this is told by
 * the question itself. */
static bool is_waiting(struct dlc_nats_hub *h, const struct hub_question *fresh)
{
    for (struct hub_question *q = h->questions; q; q = q->next) {
        const char *a = json_string_value(json_object_get(q->json, "identity")),
                   *b = json_string_value(json_object_get(fresh->json, "identity"));
        bool same_asker = a && b ? strcmp(a, b) == 0 : strcmp(q->reply, fresh->reply) == 0;

        if (!same_asker || strcmp(q->name, fresh->name) != 0)
            continue;
        json_decref(q->json);
        q->json = json_incref(fresh->json);
        memcpy(q->reply, fresh->reply, sizeof q->reply);
        return true;
    }
    return false;
}

static void queue_question(struct dlc_nats_hub *h, struct hub_question *q)
{
    struct hub_question **tail = &h->questions;

    if (h->n_questions >= HUB_QUESTIONS_MAX || is_waiting(h, q)) {
        hub__question_free(q);
        return;
    }
    while (*tail)
        tail = &(*tail)->next;
    *tail = q;
    h->n_questions++;
    pthread_cond_signal(&h->arrived);
}

static void on_question(struct dlc_nats_hub *h, const char *name, const struct dlc_wire_msg *msg)
{
    struct hub_question *q;

    if (!msg->reply || !may_be_answered(h, msg->reply) || strlen(name) >= sizeof q->name ||
        msg->size_bytes > DLC_QUESTION_MAX_BYTES)
        return;
    q = dlc_calloc(1, sizeof *q);
    if (!q)
        return;
    snprintf(q->name, sizeof q->name, "%s", name);
    snprintf(q->reply, sizeof q->reply, "%s", msg->reply);
    if (msg->size_bytes > 0 && dlc_json_parse(&q->json, msg->bytes, msg->size_bytes, "question") != DLC_OK) {
        dlc_debug("a question is ignored: %s", dlc_err_text());
        dlc_free(q);
        return;
    }
    if (hub__answer_at_once(h, q)) {
        hub__question_free(q);
        return;
    }
    pthread_mutex_lock(&h->mutex);
    queue_question(h, q);
    pthread_mutex_unlock(&h->mutex);
}

void *hub__listen(void *hub)
{
    struct dlc_nats_hub *h = hub;
    char packets[DLC_SUBJECT_SIZE], questions[DLC_SUBJECT_SIZE];
    struct dlc_wire_msg msg;
    bool got;

    snprintf(packets, sizeof packets, "dlc.%s.c.p.", h->run);
    snprintf(questions, sizeof questions, "dlc.%s.c.", h->run);
    while (!atomic_load(&h->stop) && dlc_wire_next(h->up, &msg, &got, 200) == DLC_OK) {
        const char *identity, *name;

        if (!got)
            continue;
        identity = dlc_subject_after(msg.subject, packets);
        name = dlc_subject_after(msg.subject, questions);
        if (identity)
            on_packet(h, identity, &msg);
        else if (name)
            on_question(h, name, &msg);
        dlc_wire_msg_free(&msg);
    }
    if (!atomic_load(&h->stop)) {
        pthread_mutex_lock(&h->mutex);
        hub__fail(h, DLC_EPEER, dlc_err_text());
        pthread_mutex_unlock(&h->mutex);
    }
    return NULL;
}

/* --- speak -------------------------------------------------------------------------------------------------------- */

static double silence_limit_s(const struct hub_island *isl)
{
    double limit_s = 4 * isl->longest_gap_s;

    return limit_s < SILENCE_MIN_S ? SILENCE_MIN_S : limit_s > SILENCE_MAX_S ? SILENCE_MAX_S : limit_s;
}

/* Nobody was silent while nobody could be heard: this process was stopped, or its own connection is away. */
static void forgive(struct dlc_nats_hub *h, int64_t now_ns)
{
    for (int i = 0; i < h->hub.n_islands; i++) {
        if (h->islands[i].alive)
            h->islands[i].heard_ns = now_ns;
    }
}

static void find_silent(struct dlc_nats_hub *h, int64_t now_ns)
{
    bool found = false;

    for (int i = 0; i < h->hub.n_islands; i++) {
        struct hub_island *isl = &h->islands[i];
        bool closed = isl->closed_ns != 0 && now_ns - isl->closed_ns > CLOSED_NS;

        if (!isl->alive || (!closed && (double)(now_ns - isl->heard_ns) * 1e-9 < silence_limit_s(isl)))
            continue;
        isl->alive = false;
        isl->closed_ns = 0;
        found = true;
    }
    if (found)
        pthread_cond_signal(&h->arrived);
}

static void look_around(struct dlc_nats_hub *h, int64_t *looked_ns)
{
    int64_t now_ns = dlc_now_ns();

    if (now_ns - *looked_ns > PAUSED_NS || !atomic_load(&h->control_is_up))
        forgive(h, now_ns);
    else
        find_silent(h, now_ns);
    *looked_ns = now_ns;
}

/* When this island's next packet is due. To one that is not heard no more than a packet a second goes, whatever waits for
 * it. */
static int64_t due_ns(const struct hub_island *isl, int64_t now_ns)
{
    int64_t due;

    if (!isl->channel)
        return INT64_MAX;
    if (isl->wants_packet)
        return now_ns;
    due = dlc_channel_due_ns(isl->channel);
    return !isl->alive && due < isl->spoke_ns + DLC_S_NS ? isl->spoke_ns + DLC_S_NS : due;
}

/* The mutex is let go around the call of the network. */
static void speak_to(struct dlc_nats_hub *h, struct hub_island *isl, struct dlc_buf *packet, int64_t now_ns)
{
    struct dlc_subject subject = dlc_subject_down(h->run, isl->identity);
    struct dlc_note note = h->note;

    note.flags = h->is_leaving ? DLC_NOTE_LEAVING : 0;
    isl->wants_packet = false;
    isl->spoke_ns = now_ns;
    if (dlc_channel_packet(isl->channel, packet, &note, now_ns) != DLC_OK)
        return;
    isl->traffic.bytes_down += packet->len;
    pthread_mutex_unlock(&h->mutex);
    (void)dlc_wire_publish(h->control, subject.text, NULL, packet->data, packet->len);
    pthread_mutex_lock(&h->mutex);
}

static int64_t speak_to_all(struct dlc_nats_hub *h, struct dlc_buf *packet)
{
    int64_t next_ns = dlc_now_ns() + TICK_NS;

    for (int i = 0; h->is_published && i < h->hub.n_islands; i++) {
        struct hub_island *isl = &h->islands[i];
        int64_t now_ns = dlc_now_ns();

        if (due_ns(isl, now_ns) <= now_ns)
            speak_to(h, isl, packet, now_ns);
        next_ns = dlc_earlier(next_ns, due_ns(isl, now_ns));
    }
    return next_ns;
}

static void send_letters(struct dlc_nats_hub *h)
{
    while (h->letters) {
        struct hub_letter *l = h->letters;

        h->letters = l->next;
        pthread_mutex_unlock(&h->mutex);
        (void)dlc_wire_publish(h->control, l->subject, NULL, l->bytes.data, l->bytes.len);
        dlc_buf_fini(&l->bytes);
        dlc_free(l);
        pthread_mutex_lock(&h->mutex);
    }
}

/* The end: one last packet to everybody. */
static void speak_last(struct dlc_nats_hub *h, struct dlc_buf *packet)
{
    if (!h->is_published || !atomic_load(&h->control_is_up))
        return;
    for (int i = 0; i < h->hub.n_islands; i++) {
        if (h->islands[i].alive)
            speak_to(h, &h->islands[i], packet, dlc_now_ns());
    }
}

void *hub__speak(void *hub)
{
    struct dlc_nats_hub *h = hub;
    struct dlc_buf packet = { 0 };
    int64_t looked_ns = dlc_now_ns(), next_ns;

    pthread_mutex_lock(&h->mutex);
    while (!atomic_load(&h->stop)) {
        look_around(h, &looked_ns);
        send_letters(h);
        next_ns = speak_to_all(h, &packet);
        if (!h->letters && !atomic_load(&h->stop) && next_ns > dlc_now_ns())
            dlc_cond_wait_until(&h->due, &h->mutex, next_ns);
    }
    send_letters(h);
    speak_last(h, &packet);
    pthread_mutex_unlock(&h->mutex);
    dlc_buf_fini(&packet);
    return NULL;
}
