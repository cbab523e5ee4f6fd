/* The wire over libnats. What its versions get wrong (3.4.1 is the oldest that is used) and what is done about it:
 *
 * - OpenSSL used before the library is opened crashes at exit: nats_Open comes first (dlc_wire_init).
 * - Connections made from one natsOptions share a lock of TLS: each has options of its own.
 * - Without SetSecure a server that says "no TLS" is sent the password in clear.
 * - Destroying a subscription while messages arrive uses freed memory: unsubscribe, flush, close, and only then destroy.
 *   For the same reason there are no pull consumers and no watchers here, which do it inside.
 * - While it reconnects every call on a connection blocks, even the question for its state: callbacks set a flag that
 *   is read instead.
 * - What is published while there is no connection would come late: the buffer for it is 0.
 * - There is no deadline for writing unless one is set, and one thread pings for all connections.
 * - The handshake of TLS has no time limit: connect_limits.c, which the executable links.
 * - A peer that is silent after it was sent CONNECT makes natsConnection_Connect turn in place for as long as the connection
 *   stands. The probe and the pin come first, so only a server of ours that hangs at this moment does it; watching it
 *   (nats_server.h) ends that.
 * - natsInbox_Create ignores the prefix that was set: the inbox is made by hand. */
#include "net/wire.h"

#include <nats/nats.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "net/wire_internal.h"

/* Of one subscription, waiting to be read; beyond it messages are dropped, as a wire may. */
#define PENDING_MESSAGES 65536
#define PENDING_BYTES (64 << 20)
#define CLOSE_PATIENCE_S 5

struct dlc_wire_sub {
    dlc_wire *wire;
    natsSubscription *sub;
    dlc_wire_sub *next;
};

struct dlc_wire {
    natsConnection *nc;
    char inbox[80];
    size_t max_payload;
    void (*on_state)(void *self, bool connected);
    void *self;
    atomic_bool connected;
    atomic_ullong n_refused;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    dlc_wire_sub *subs;
    int n_inside; /* calls under way */
    bool stopped; /* by dlc_wire_stop */
    bool closed;  /* the library's last callback has been */
};

bool dlc_wire_is_built(void)
{
    return true;
}

static natsStatus opened = NATS_OK;

static void open_library(void)
{
    opened = nats_Open(-1);
}

dlc_err dlc_wire_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, open_library);
    if (opened != NATS_OK)
        return dlc_fail(DLC_EFAIL, "libnats does not start: %s", natsStatus_GetText(opened));
    return DLC_OK;
}

/* --- callbacks, in threads of the library ----------------------------------------------------------------------------
 */

static void say_state(dlc_wire *w, bool connected)
{
    atomic_store(&w->connected, connected);
    if (w->on_state)
        w->on_state(w->self, connected);
}

static void on_disconnected(natsConnection *nc, void *self)
{
    (void)nc;
    say_state(self, false);
}

static void on_reconnected(natsConnection *nc, void *self)
{
    (void)nc;
    say_state(self, true);
}

static void on_closed(natsConnection *nc, void *self)
{
    dlc_wire *w = self;

    (void)nc;
    say_state(w, false);
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* The library's own handler would print. */
static void on_error(natsConnection *nc, natsSubscription *sub, natsStatus status, void *self)
{
    dlc_wire *w = self;

    (void)nc;
    (void)sub;
    if (status == NATS_NOT_PERMITTED)
        atomic_fetch_add(&w->n_refused, 1);
}

/* --- connecting ------------------------------------------------------------------------------------------------------
 */

static natsStatus set_tls(natsOptions *o, const struct dlc_wire_options *options)
{
    char name[64];
    natsStatus s;

    if (!options->ca_pem)
        return NATS_OK;
    snprintf(name, sizeof name, "%s.diloco", options->run);
    s = natsOptions_SetSecure(o, true);
    if (s == NATS_OK)
        s = natsOptions_SetCATrustedCertificates(o, options->ca_pem);
    if (s == NATS_OK)
        s = natsOptions_SetExpectedHostname(o, name);
    return s;
}

/* A control connection notices a dead peer after two pings; bulk's pings wait behind data that is under way, for half a
 * minute on a link of 1 Mbit/s. */
static natsStatus set_times(natsOptions *o, bool bulk)
{
    natsStatus s = natsOptions_SetTimeout(o, bulk ? 10000 : 3000);

    if (s == NATS_OK)
        s = natsOptions_SetWriteDeadline(o, bulk ? 30000 : 3000);
    if (s == NATS_OK)
        s = natsOptions_SetPingInterval(o, bulk ? 30000 : 2000);
    if (s == NATS_OK)
        s = natsOptions_SetMaxPingsOut(o, 2);
    if (s == NATS_OK)
        s = natsOptions_SetMaxReconnect(o, -1);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectWait(o, 250);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectJitter(o, 250, 250);
    return s;
}

static natsStatus set_behaviour(natsOptions *o, dlc_wire *w)
{
    natsStatus s = natsOptions_SetReconnectBufSize(o, 0);

    if (s == NATS_OK)
        s = natsOptions_SetFailRequestsOnDisconnect(o, true);
    if (s == NATS_OK)
        s = natsOptions_UseGlobalMessageDelivery(o, true);
    if (s == NATS_OK)
        s = natsOptions_SetDisconnectedCB(o, on_disconnected, w);
    if (s == NATS_OK)
        s = natsOptions_SetReconnectedCB(o, on_reconnected, w);
    if (s == NATS_OK)
        s = natsOptions_SetClosedCB(o, on_closed, w);
    if (s == NATS_OK)
        s = natsOptions_SetErrorHandler(o, on_error, w);
    return s;
}

/* Replies to islands and replies to the leader are different rights at the server. */
static const char *inbox_root(const struct dlc_wire_options *options)
{
    return options->user && strcmp(options->user, "lead") == 0 ? "_L" : "_I";
}

static natsStatus set_names(natsOptions *o, const struct dlc_wire_options *options)
{
    char url[320], prefix[64];
    natsStatus s;

    snprintf(url, sizeof url, strchr(options->host, ':') ? "nats://[%s]:%d" : "nats://%s:%d", options->host,
             options->port);
    snprintf(prefix, sizeof prefix, "%s.%s", inbox_root(options), options->run);
    s = natsOptions_SetURL(o, url);
    if (s == NATS_OK && options->user)
        s = natsOptions_SetUserInfo(o, options->user, options->secret ? options->secret : "");
    if (s == NATS_OK && options->name)
        s = natsOptions_SetName(o, options->name);
    if (s == NATS_OK)
        s = natsOptions_SetCustomInboxPrefix(o, prefix);
    return s;
}

static const char *last_detail(void)
{
    const char *text = nats_GetLastError(NULL);

    return text ? text : "";
}

static dlc_err connect_error(natsStatus s, const struct dlc_wire_options *options)
{
    const char *why = natsStatus_GetText(s);

    if (s == NATS_NO_MEMORY)
        return dlc_fail(DLC_ENOMEM, "connection to %s port %d", options->host, options->port);
    switch (s) {
    case NATS_NO_SERVER: why = "nobody answers there; check address, port and firewall"; break;
    case NATS_TIMEOUT: why = "no answer in time"; break;
    case NATS_CONNECTION_AUTH_FAILED: why = "the server refuses the secret; take the join line of this run"; break;
    case NATS_SECURE_CONNECTION_WANTED: why = "it does not offer TLS, so it was told nothing"; break;
    case NATS_SSL_ERROR: why = "its certificate or its TLS is not this run's"; break;
    default: break;
    }
    return dlc_fail(DLC_EPEER, "%s port %d: %s (%s)", options->host, options->port, why, last_detail());
}

static void make_inbox(dlc_wire *w, const struct dlc_wire_options *options)
{
    unsigned long long at_random = 0;

    if (getrandom(&at_random, sizeof at_random, 0) != (ssize_t)sizeof at_random)
        at_random = (unsigned long long)(uintptr_t)w; /* never for so few bytes; distinct is enough */
    snprintf(w->inbox, sizeof w->inbox, "%s.%s.%016llx", inbox_root(options), options->run, at_random);
}

static void wire_free(dlc_wire *w)
{
    while (w->subs) {
        dlc_wire_sub *sub = w->subs;

        w->subs = sub->next;
        natsSubscription_Destroy(sub->sub);
        dlc_free(sub);
    }
    natsConnection_Destroy(w->nc);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    dlc_free(w);
}

static natsStatus connect_wire(dlc_wire *w, const struct dlc_wire_options *options)
{
    natsOptions *o = NULL;
    natsStatus s = natsOptions_Create(&o);

    if (s == NATS_OK)
        s = set_names(o, options);
    if (s == NATS_OK)
        s = set_tls(o, options);
    if (s == NATS_OK)
        s = set_times(o, options->bulk);
    if (s == NATS_OK)
        s = set_behaviour(o, w);
    if (s == NATS_OK)
        s = natsConnection_Connect(&w->nc, o);
    natsOptions_Destroy(o);
    return s;
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

dlc_err dlc_wire_connect(dlc_wire **out, const struct dlc_wire_options *options)
{
    dlc_wire *w;
    natsStatus s;

    *out = NULL;
    DLC_TRY(dlc_wire_init());
    w = dlc_calloc(1, sizeof *w);
    if (!w)
        return DLC_ENOMEM;
    pthread_mutex_init(&w->lock, NULL);
    init_condition(&w->changed);
    w->on_state = options->on_state;
    w->self = options->self;
    atomic_store(&w->connected, true); /* before the first callback can say otherwise */
    make_inbox(w, options);
    s = connect_wire(w, options);
    if (s != NATS_OK) {
        wire_free(w);
        return connect_error(s, options);
    }
    w->max_payload = (size_t)natsConnection_GetMaxPayload(w->nc);
    *out = w;
    return DLC_OK;
}

/* --- closing ---------------------------------------------------------------------------------------------------------
 */

static void wait_for_flag(dlc_wire *w, const bool *flag)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += CLOSE_PATIENCE_S;
    while (!*flag && pthread_cond_timedwait(&w->changed, &w->lock, &until) == 0)
        ;
}

void dlc_wire_stop(dlc_wire *w)
{
    dlc_wire_sub *subs;
    bool first;

    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    first = !w->stopped;
    w->stopped = true;
    subs = w->subs;
    pthread_mutex_unlock(&w->lock);
    if (!first)
        return;
    if (atomic_load(&w->connected)) {
        for (dlc_wire_sub *sub = subs; sub; sub = sub->next) /* the list only grows, at its front */
            natsSubscription_Unsubscribe(sub->sub);
        natsConnection_FlushTimeout(w->nc, 1000);
    }
    natsConnection_Close(w->nc);
}

void dlc_wire_close(dlc_wire *w)
{
    bool closed;

    if (!w)
        return;
    dlc_wire_stop(w);
    pthread_mutex_lock(&w->lock);
    while (w->n_inside > 0)
        pthread_cond_wait(&w->changed, &w->lock);
    wait_for_flag(w, &w->closed); /* callbacks come in order, so nothing calls into freed memory after this one */
    closed = w->closed;
    pthread_mutex_unlock(&w->lock);
    if (closed)
        wire_free(w);
}

/* Every call is counted while it is inside, so that closing can wait for it. */
static dlc_err enter(dlc_wire *w)
{
    bool stopped;

    pthread_mutex_lock(&w->lock);
    stopped = w->stopped;
    if (!stopped)
        w->n_inside++;
    pthread_mutex_unlock(&w->lock);
    return stopped ? dlc_fail(DLC_EPEER, "the connection is closed") : DLC_OK;
}

static void leave(dlc_wire *w)
{
    pthread_mutex_lock(&w->lock);
    if (--w->n_inside == 0)
        pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

/* --- state -----------------------------------------------------------------------------------------------------------
 */

bool dlc_wire_is_connected(const dlc_wire *w)
{
    return atomic_load(&w->connected);
}

size_t dlc_wire_max_payload(const dlc_wire *w)
{
    return w->max_payload;
}

const char *dlc_wire_inbox(const dlc_wire *w)
{
    return w->inbox;
}

natsConnection *dlc__wire_connection(dlc_wire *w)
{
    return w->nc;
}

uint64_t dlc_wire_n_refused(const dlc_wire *w)
{
    return atomic_load(&w->n_refused);
}

static dlc_err call_error(natsStatus s, const char *what, const char *subject)
{
    return dlc_fail(s == NATS_NO_MEMORY ? DLC_ENOMEM : DLC_EPEER, "%s %s: %s", what, subject, natsStatus_GetText(s));
}

/* --- messages --------------------------------------------------------------------------------------------------------
 */

static dlc_err subscribe(dlc_wire_sub **out, dlc_wire *w, const char *subject)
{
    dlc_wire_sub *sub = dlc_calloc(1, sizeof *sub);
    natsStatus s;

    if (!sub)
        return DLC_ENOMEM;
    s = natsConnection_SubscribeSync(&sub->sub, w->nc, subject);
    if (s == NATS_OK)
        s = natsSubscription_SetPendingLimits(sub->sub, PENDING_MESSAGES, PENDING_BYTES);
    if (s != NATS_OK) {
        natsSubscription_Destroy(sub->sub);
        dlc_free(sub);
        return call_error(s, "subscribe to", subject);
    }
    sub->wire = w;
    pthread_mutex_lock(&w->lock);
    sub->next = w->subs;
    w->subs = sub;
    pthread_mutex_unlock(&w->lock);
    *out = sub;
    /* So that whoever is told now finds it there. Should the connection break: the library subscribes again. */
    natsConnection_FlushTimeout(w->nc, 3000);
    return DLC_OK;
}

dlc_err dlc_wire_subscribe(dlc_wire_sub **out, dlc_wire *w, const char *subject)
{
    dlc_err err;

    *out = NULL;
    DLC_TRY(enter(w));
    err = subscribe(out, w, subject);
    leave(w);
    return err;
}

static void fill_message(struct dlc_wire_msg *out, natsMsg *m)
{
    out->handle = m;
    out->subject = natsMsg_GetSubject(m);
    out->reply = natsMsg_GetReply(m);
    out->bytes = natsMsg_GetData(m);
    out->size_bytes = (size_t)natsMsg_GetDataLength(m);
    out->no_responders = natsMsg_IsNoResponders(m);
}

dlc_err dlc_wire_next(dlc_wire_sub *sub, struct dlc_wire_msg *out, bool *got, int timeout_ms)
{
    natsMsg *m = NULL;
    natsStatus s;

    memset(out, 0, sizeof *out);
    *got = false;
    DLC_TRY(enter(sub->wire));
    do
        s = natsSubscription_NextMsg(&m, sub->sub, timeout_ms);
    while (s == NATS_SLOW_CONSUMER); /* said once after something was dropped */
    leave(sub->wire);
    if (s == NATS_CONNECTION_CLOSED || s == NATS_INVALID_SUBSCRIPTION)
        return dlc_fail(DLC_EPEER, "the connection is closed: %s", natsStatus_GetText(s));
    if (s == NATS_NO_RESPONDERS) { /* the library takes the empty message itself, and says so as an error */
        *out = (struct dlc_wire_msg){ .subject = "", .bytes = "", .no_responders = true };
        *got = true;
    } else if (s == NATS_OK) {
        fill_message(out, m);
        *got = true;
    }
    return DLC_OK; /* whatever else it was, the subscription goes on */
}

void dlc_wire_msg_free(struct dlc_wire_msg *m)
{
    natsMsg_Destroy(m->handle);
    memset(m, 0, sizeof *m);
}

static dlc_err check_size(const dlc_wire *w, const char *subject, size_t size_bytes)
{
    if (!atomic_load(&w->connected)) /* the library would make the caller wait until it has reconnected */
        return dlc_fail(DLC_EPEER, "publish to %s: there is no connection now", subject);
    if (size_bytes > w->max_payload)
        return dlc_fail(DLC_EFAIL, "publish to %s: %zu bytes, the server takes %zu (its max_payload)", subject,
                        size_bytes, w->max_payload);
    return DLC_OK;
}

dlc_err dlc_wire_publish(dlc_wire *w, const char *subject, const char *reply, const void *bytes, size_t size_bytes)
{
    natsStatus s;

    DLC_TRY(check_size(w, subject, size_bytes));
    DLC_TRY(enter(w));
    if (reply)
        s = natsConnection_PublishRequest(w->nc, subject, reply, bytes, (int)size_bytes);
    else
        s = natsConnection_Publish(w->nc, subject, bytes, (int)size_bytes);
    leave(w);
    return s == NATS_OK ? DLC_OK : call_error(s, "publish to", subject);
}

dlc_err dlc_wire_request(dlc_wire *w, const char *subject, const void *bytes, size_t size_bytes,
                         struct dlc_wire_msg *out, bool *got, int timeout_ms)
{
    natsMsg *m = NULL;
    natsStatus s;

    memset(out, 0, sizeof *out);
    *got = false;
    DLC_TRY(check_size(w, subject, size_bytes));
    DLC_TRY(enter(w));
    s = natsConnection_Request(&m, w->nc, subject, bytes, (int)size_bytes, timeout_ms);
    leave(w);
    if (s == NATS_NO_RESPONDERS) {
        out->no_responders = true;
        *got = true;
        return DLC_OK;
    }
    if (s == NATS_TIMEOUT)
        return DLC_OK;
    if (s != NATS_OK)
        return call_error(s, "ask", subject);
    fill_message(out, m);
    *got = true;
    return DLC_OK;
}
