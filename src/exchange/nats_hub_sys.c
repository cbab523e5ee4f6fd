/* What our own server tells of connections: one that closes is known at once. */
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "exchange/nats_hub_internal.h"

struct event {
    const char *identity;
    uint64_t server, id; /* of the connection: numbers grow, from 1 with every start of the server */
};

static bool parse(struct event *out, char identity[DLC_IDENTITY_SIZE], const json_t *v)
{
    const json_t *client = json_object_get(v, "client");
    const char *name = json_string_value(json_object_get(client, "name")),
               *server = json_string_value(json_object_get(json_object_get(v, "server"), "id"));
    json_int_t id = json_integer_value(json_object_get(client, "id"));
    size_t n = DLC_IDENTITY_SIZE - 1;

    if (!name || !server || id <= 0 || strlen(name) < n || strcmp(name + n, "/control") != 0)
        return false;
    memcpy(identity, name, n);
    identity[n] = '\0';
    *out = (struct event){ .identity = identity, .server = dlc_xxh64(server, strlen(server)), .id = (uint64_t)id };
    return dlc_identity_is_good(identity);
}

/* An island that found another way has a newer connection: the end of the old one says nothing. */
static void on_event(struct dlc_nats_hub *h, const struct event *e, bool opened)
{
    struct hub_island *isl = hub__find(h, e->identity);
    bool is_older;

    if (!isl)
        return;
    is_older = isl->conn_server == e->server && e->id < isl->conn_id;
    if (is_older)
        return;
    isl->conn_server = e->server;
    isl->conn_id = e->id;
    isl->closed_ns = opened ? 0 : dlc_now_ns();
    isl->fetch.is_stale |= opened;
    pthread_cond_signal(&h->due);
}

static void take_event(struct dlc_nats_hub *h, const struct dlc_wire_msg *msg)
{
    const char *what = dlc_subject_after(msg->subject, "$SYS.ACCOUNT.DLC.");
    bool opened = what && strcmp(what, "CONNECT") == 0, closed = what && strcmp(what, "DISCONNECT") == 0;
    char identity[DLC_IDENTITY_SIZE];
    struct event e;
    json_t *v;

    if ((!opened && !closed) || dlc_json_parse(&v, msg->bytes, msg->size_bytes, "event") != DLC_OK)
        return;
    if (parse(&e, identity, v)) {
        pthread_mutex_lock(&h->mutex);
        on_event(h, &e, opened);
        pthread_mutex_unlock(&h->mutex);
    }
    json_decref(v);
}

void *hub__sys(void *hub)
{
    struct dlc_nats_hub *h = hub;
    struct dlc_wire_msg msg;
    bool got;

    while (!atomic_load(&h->stop) && dlc_wire_next(h->events, &msg, &got, 500) == DLC_OK) {
        if (!got)
            continue;
        take_event(h, &msg);
        dlc_wire_msg_free(&msg);
    }
    return NULL;
}
