/* For tests of the nats exchange: a real server, a hub driven by the test as a coordinator would, islands, and a relay
 * between an island and the server that can be slow, frozen or cut. */
#ifndef DLC_EXCHANGE_NATS_TEST_UTIL_H
#define DLC_EXCHANGE_NATS_TEST_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "exchange/nats_endpoint.h"
#include "exchange/nats_hub.h"
#include "exchange/nats_thread.h"
#include "net/nats_server.h"
#include "net/wire.h"
#include "outer/merge.h"

#define NATS_RUN "0123456789abcdef0123456789abcdef"
#define NATS_ISLANDS 4
#define NATS_STEPS 40
#define PATIENCE_S 20.0

#define nats_must(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != DLC_OK)                                                                                          \
            fail_msg("%s:%d: %s", __FILE__, __LINE__, dlc_err_text());                                                 \
    } while (0)

/* libnats 3.4.1 loses the buffer of a message whose first half has come when its connection is closed. The sanitizer asks
 * for this by name. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:natsBuf_Create\n";
}

/* --- one server for all tests ------------------------------------------------------------------------------------- */

struct nats_place {
    char folder[64];
    dlc_nats_server *server;
    uint64_t fence; /* of the last hub */
    int n_worlds;
};
static struct nats_place place;

/* False: no server here; the test is skipped. */
static inline bool nats_place_open(void)
{
    struct dlc_nats_server_options o = { .run = NATS_RUN, .loopback = true };
    char folder[DLC_PATH_MAX];
    dlc_err err;

    if (place.server)
        return true;
    snprintf(place.folder, sizeof place.folder, "/tmp/dlc-nats-XXXXXX");
    assert_non_null(mkdtemp(place.folder));
    nats_must(dlc_path_join(folder, place.folder, "nats"));
    o.folder = folder;
    if (!dlc_wire_is_built() || dlc_wire_init() != DLC_OK) {
        print_message("built without NATS: the exchange `nats` is not tested\n");
        return false;
    }
    err = dlc_nats_server_start(&place.server, &o);
    if (err == DLC_EUSAGE)
        print_message("no nats-server here, the exchange `nats` is not tested: %s\n", dlc_err_text());
    else
        nats_must(err);
    return err == DLC_OK;
}

static inline void nats_place_close(void)
{
    dlc_nats_server_stop(place.server);
    if (place.folder[0])
        (void)dlc_remove_tree(place.folder);
    place = (struct nats_place){ 0 };
}

/* --- a relay ------------------------------------------------------------------------------------------------------ */

#define RELAY_PAIRS 64

struct relay {
    int port, to_port, listen_fd;
    _Atomic bool stop, frozen, closed; /* closed: nobody gets in */
    _Atomic bool cut;                  /* once: all connections end */
    _Atomic long bytes_per_s;          /* of each direction of each connection; 0: as fast as it goes */
    _Atomic uint64_t n_bytes;
    pthread_t thread;
};

static inline int relay_listen(int *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 16) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

static inline int relay_connect(int port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_port = htons((uint16_t)port);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Some bytes from one end to the other. False: one of them is closed. */
static inline bool relay_copy(struct relay *r, int from, int to, int64_t *next_ns)
{
    char bytes[16384];
    long rate = atomic_load(&r->bytes_per_s);
    size_t most = rate > 0 && (size_t)rate / 20 < sizeof bytes ? (size_t)rate / 20 + 1 : sizeof bytes;
    ssize_t n;

    if (dlc_now_ns() < *next_ns)
        return true;
    n = recv(from, bytes, most, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0)
        return false;
    if (rate > 0)
        *next_ns = dlc_now_ns() + (int64_t)(1e9 * (double)n / (double)rate);
    atomic_fetch_add(&r->n_bytes, (uint64_t)n);
    return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static inline void *relay_run(void *arg)
{
    struct relay *r = arg;
    int pairs[RELAY_PAIRS][2], n = 0;
    int64_t next_ns[RELAY_PAIRS][2] = { 0 };

    while (!atomic_load(&r->stop)) {
        struct pollfd p[1 + 2 * RELAY_PAIRS] = { { .fd = r->listen_fd, .events = POLLIN } };

        for (int i = 0; i < n; i++) {
            for (int d = 0; d < 2; d++)
                p[1 + 2 * i + d] = (struct pollfd){ .fd = pairs[i][d], .events = POLLIN };
        }
        (void)poll(p, (nfds_t)(1 + 2 * n), atomic_load(&r->bytes_per_s) > 0 ? 0 : 5);
        if (atomic_load(&r->bytes_per_s) > 0 || atomic_load(&r->frozen))
            (void)usleep(1000);
        if ((p[0].revents & POLLIN) && n < RELAY_PAIRS) {
            pairs[n][0] = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC);
            pairs[n][1] = atomic_load(&r->closed) ? -1 : relay_connect(r->to_port);
            if (pairs[n][0] >= 0 && pairs[n][1] >= 0)
                n++;
            else if (pairs[n][0] >= 0)
                close(pairs[n][0]);
        }
        for (int i = 0; i < n && !atomic_load(&r->frozen); i++) {
            if (!atomic_load(&r->cut) && relay_copy(r, pairs[i][0], pairs[i][1], &next_ns[i][0]) &&
                relay_copy(r, pairs[i][1], pairs[i][0], &next_ns[i][1]))
                continue;
            close(pairs[i][0]);
            close(pairs[i][1]);
            n--;
            memcpy(pairs[i], pairs[n], sizeof pairs[i]);
            memcpy(next_ns[i], next_ns[n], sizeof next_ns[i]);
            i--;
        }
        if (n == 0)
            atomic_store(&r->cut, false);
    }
    for (int i = 0; i < n; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
    return NULL;
}

static inline void relay_open(struct relay *r)
{
    *r = (struct relay){ .to_port = dlc_nats_server_lead_url(place.server)->port };
    r->listen_fd = relay_listen(&r->port);
    assert_int_equal(pthread_create(&r->thread, NULL, relay_run, r), 0);
}

static inline void relay_close(struct relay *r)
{
    if (r->port == 0)
        return;
    atomic_store(&r->stop, true);
    pthread_join(r->thread, NULL);
    close(r->listen_fd);
    *r = (struct relay){ 0 };
}

/* --- hub and islands ---------------------------------------------------------------------------------------------- */

struct nats_isle {
    struct nats_world *w;
    int i;
    dlc_nats_endpoint *ep; /* NULL: dead */
    uint32_t incarnation;
    int port; /* 0: the server's */
    double patience_s;
    bool unwelcome;
    dlc_err err;
    char err_text[512];
    _Atomic bool done;
    pthread_t thread;
};

struct nats_world {
    char folder[96];
    int number;
    size_t n; /* parameters */
    const char *run;
    int open_port; /* 0: the server of all tests; else one that lets everybody do everything */
    struct dlc_outer_opt opt;
    dlc_nats_hub *h;
    dlc_hub *hub;
    float *theta0, *state[2];
    uint64_t t;
    struct dlc_record record; /* the last one; t 0: none */
    struct dlc_sha256 theta;
    char *lines[NATS_STEPS];
    struct nats_isle isles[NATS_ISLANDS];
    int n_admitted;
};

static inline struct dlc_join_url nats_url(const struct nats_world *w, bool lead)
{
    struct dlc_join_url url = { .host = "127.0.0.1", .port = w->open_port, .user = "lead", .secret = "none" };

    if (w->open_port == 0) {
        url = *(lead ? dlc_nats_server_lead_url(place.server) : dlc_nats_server_island_url(place.server));
        snprintf(url.host, sizeof url.host, "127.0.0.1");
    } else {
        snprintf(url.user, sizeof url.user, "%s", lead ? "lead" : "isle");
    }
    snprintf(url.run, sizeof url.run, "%s", w->run);
    return url;
}

static inline void nats_identity(char out[DLC_IDENTITY_SIZE], const struct nats_world *w, int i)
{
    snprintf(out, DLC_IDENTITY_SIZE, "%030x%02x", (unsigned)(w->number * 1000 + getpid() % 1000), (unsigned)i & 0xff);
}

static inline dlc_err nats_admit(void *self, const json_t *question, int *index, json_t **welcome)
{
    struct nats_world *w = self;
    const char *identity = json_string_value(json_object_get(question, "identity"));

    w->n_admitted++;
    if (json_is_true(json_object_get(question, "unwelcome")))
        return dlc_fail(DLC_EINPUT, "not with this data");
    *index = (int)strtol(identity + 30, NULL, 16);
    *welcome = json_pack("{s:s}", "hello", "world");
    return DLC_OK;
}

static inline json_t *nats_status(void *self)
{
    return json_pack("{s:I}", "t", (json_int_t)((struct nats_world *)self)->t);
}

static inline dlc_err nats_record_line(void *self, uint64_t t, char **out)
{
    struct nats_world *w = self;

    if (t == 0 || t >= NATS_STEPS || !w->lines[t])
        return dlc_fail(DLC_EINPUT, "no record of step %llu", (unsigned long long)t);
    *out = dlc_strdup(w->lines[t]);
    return *out ? DLC_OK : DLC_ENOMEM;
}

/* A coordinator (again): theta(t) and history are the world's. */
static inline void nats_hub_open(struct nats_world *w, dlc_nats_hub **out, uint64_t fence)
{
    struct dlc_join_url url = nats_url(w, true);
    char folder[DLC_PATH_MAX];
    struct dlc_nats_hub_options o = { .size = { .n_islands = NATS_ISLANDS, .n_params = w->n, .slot_bytes = 4 * w->n },
                                      .url = &url,
                                      .ca_pem = w->open_port ? NULL : dlc_nats_server_ca_pem(place.server),
                                      .sys_secret = w->open_port ? NULL : dlc_nats_server_sys_secret(place.server),
                                      .folder = folder,
                                      .codec = &dlc_codec_f32,
                                      .fence = fence,
                                      .n_state = 1,
                                      .state = { w->state[0], w->state[1] },
                                      .self = w,
                                      .admit = nats_admit,
                                      .status = nats_status,
                                      .record_line = nats_record_line };

    nats_must(dlc_path_join(folder, w->folder, "exchange"));
    nats_must(dlc_nats_hub_create(out, &o));
}

static inline void nats_lead(struct nats_world *w, uint64_t fence)
{
    nats_hub_open(w, &w->h, fence);
    w->hub = dlc_nats_hub_base(w->h);
    memcpy(w->hub->ops->theta(w->hub, (int)(w->t & 1)), w->theta0, 4 * w->n);
    nats_must(w->hub->ops->publish(w->hub, w->t ? &w->record : NULL, &w->theta));
    place.fence = fence;
}

static inline void nats_world_open(struct nats_world *w, size_t n)
{
    *w = (struct nats_world){ .n = n,
                              .number = ++place.n_worlds,
                              .run = w->run ? w->run : NATS_RUN,
                              .open_port = w->open_port,
                              .opt = { DLC_OUTER_NESTEROV, 0.7, 0.9, 0, 0 } };
    snprintf(w->folder, sizeof w->folder, "%s/world-%d", place.folder, w->number);
    nats_must(dlc_arena_alloc((void **)&w->theta0, 4 * n, "test"));
    nats_must(dlc_arena_alloc((void **)&w->state[0], 4 * n, "test"));
    for (size_t k = 0; k < n; k++)
        w->theta0[k] = (float)(k % 1000) * 0.001f;
    w->theta = dlc_sha256(w->theta0, 4 * n);
    for (int i = 0; i < NATS_ISLANDS; i++)
        w->isles[i] = (struct nats_isle){ .w = w, .i = i, .patience_s = 60 };
    nats_lead(w, place.fence + 1);
}

/* The core's part: outer step t + 1 from the mean `params`, record, publish. n_summed 0: nothing was summed. */
static inline void nats_commit(struct nats_world *w, int n_summed)
{
    uint64_t t = w->t + 1;
    float *old = w->hub->ops->theta(w->hub, (int)(w->t & 1)), *fresh = w->hub->ops->theta(w->hub, (int)(t & 1));
    struct dlc_record r = { .t = t, .n_alive = 1, .prev = w->record.hash };
    struct dlc_merge merge = { .codec = &dlc_codec_f32, .opt = &w->opt, .n = w->n, .t = t };
    float *update;

    if (n_summed > 0) {
        update = w->hub->ops->update(w->hub, t);
        if (!update)
            fail_msg("%s", dlc_err_text());
        for (size_t k = 0; k < w->n; k++)
            update[k] = old[k] - 0.001f * (float)((k + t) % 7);
        (void)dlc_merge(fresh, old, w->state, NULL, &merge, &(struct dlc_merge_part){ update, 1.0, NULL }, 1, NULL);
    } else {
        memcpy(fresh, old, 4 * w->n);
    }
    memcpy(r.run, NATS_RUN, sizeof r.run);
    r.members = dlc_calloc(1, sizeof *r.members);
    r.n_members = 1;
    r.members[0].fate = n_summed > 0 ? DLC_MEMBER_SUMMED : DLC_MEMBER_LATE;
    r.members[0].weight = n_summed > 0;
    r.theta = dlc_sha256(fresh, 4 * w->n);
    r.outer = dlc_sha256(w->state[0], 4 * w->n);
    nats_must(dlc_record_seal(&r));
    nats_must(dlc_record_to_line(&w->lines[t], &r));
    dlc_record_fini(&w->record);
    w->record = r;
    w->t = t;
    w->theta = r.theta;
    memcpy(w->theta0, fresh, 4 * w->n);
    nats_must(w->hub->ops->publish(w->hub, &w->record, &w->theta));
}

static inline void *nats_join_thread(void *arg)
{
    struct nats_isle *isle = arg;
    struct nats_world *w = isle->w;
    struct dlc_join_url url = nats_url(w, false);
    const char *ca_pem = w->open_port ? NULL : dlc_nats_server_ca_pem(place.server);
    char identity[DLC_IDENTITY_SIZE], folder[DLC_PATH_MAX];
    struct dlc_nats_endpoint_options o = {
        .n_params = w->n, .slot_bytes = 4 * w->n, .codec = &dlc_codec_f32, .opt = w->opt, .folder = folder
    };
    json_t *question = json_pack("{s:b}", "unwelcome", isle->unwelcome), *welcome;

    if (isle->port)
        url.port = isle->port;
    nats_identity(identity, w, isle->i);
    snprintf(folder, sizeof folder, "%s/isle-%d", w->folder, isle->i);
    isle->err = dlc_nats_join(&isle->ep, &url, ca_pem, identity, isle->incarnation, question,
                              &welcome, isle->patience_s);
    if (isle->err == DLC_OK) {
        json_decref(welcome);
        isle->err = dlc_nats_endpoint_begin(isle->ep, &o);
    }
    snprintf(isle->err_text, sizeof isle->err_text, "%s", isle->err == DLC_OK ? "" : dlc_err_text());
    json_decref(question);
    atomic_store(&isle->done, true);
    return NULL;
}

/* Asks to join; the hub's turn meanwhile. isle->err tells. */
static inline void nats_try_start(struct nats_world *w, int i)
{
    struct nats_isle *isle = &w->isles[i];
    struct dlc_message m;
    bool lost, got;
    int island;

    atomic_store(&isle->done, false);
    assert_int_equal(pthread_create(&isle->thread, NULL, nats_join_thread, isle), 0);
    while (!atomic_load(&isle->done)) {
        nats_must(w->hub->ops->recv(w->hub, &island, &m, &lost, &got, dlc_now_ns() + 20 * DLC_MS_NS));
        if (got && !lost)
            dlc_message_fini(&m);
    }
    pthread_join(isle->thread, NULL);
}

static inline void nats_start(struct nats_world *w, int i)
{
    w->isles[i].incarnation++;
    nats_try_start(w, i);
    if (w->isles[i].err != DLC_OK)
        fail_msg("island %d does not join: %s", i, w->isles[i].err_text);
}

static inline void nats_die(struct nats_world *w, int i)
{
    dlc_nats_endpoint_destroy(w->isles[i].ep);
    w->isles[i].ep = NULL;
}

static inline void nats_stop_leading(struct nats_world *w, bool leaving)
{
    dlc_nats_hub_destroy(w->h, leaving);
    w->h = NULL;
    w->hub = NULL;
}

static inline void nats_world_close(struct nats_world *w)
{
    for (int i = 0; i < NATS_ISLANDS; i++)
        nats_die(w, i);
    nats_stop_leading(w, false);
    dlc_arena_free(w->theta0, 4 * w->n);
    dlc_arena_free(w->state[0], 4 * w->n);
    dlc_record_fini(&w->record);
    for (int t = 0; t < NATS_STEPS; t++)
        dlc_free(w->lines[t]);
    (void)dlc_remove_tree(w->folder);
}

/* --- small steps -------------------------------------------------------------------------------------------------- */

static inline dlc_endpoint *nats_end(struct nats_world *w, int i)
{
    return dlc_nats_endpoint_base(w->isles[i].ep);
}

static inline void nats_say(struct nats_world *w, int i, struct dlc_message m)
{
    m.incarnation = w->isles[i].incarnation;
    nats_must(nats_end(w, i)->ops->send(nats_end(w, i), &m));
}

static inline void nats_hub_say(struct nats_world *w, int i, struct dlc_message m)
{
    nats_must(w->hub->ops->send(w->hub, i, &m));
}

#define HEARS_LOST (-1)
#define HEARS_NOTHING (-2)

/* The kind of the next message of any island, while the islands' recv have their turns as well. */
static inline int nats_hub_hears_within(struct nats_world *w, int *island, struct dlc_message *out, double within_s)
{
    int64_t until_ns = dlc_now_ns() + (int64_t)(within_s * 1e9);
    bool lost = false, got = false;

    while (!got && dlc_now_ns() < until_ns)
        nats_must(w->hub->ops->recv(w->hub, island, out, &lost, &got,
                                    dlc_earlier(until_ns, dlc_now_ns() + 20 * DLC_MS_NS)));
    return !got ? HEARS_NOTHING : lost ? HEARS_LOST : (int)out->kind;
}

static inline void nats_hub_expects(struct nats_world *w, int kind, int island, struct dlc_message *out)
{
    struct dlc_message m = { 0 };
    int from = -1, is = nats_hub_hears_within(w, &from, &m, PATIENCE_S);

    if (is != kind || from != island)
        fail_msg("the hub hears %d of island %d (t %llu, '%s'), expected %d of island %d", is, from,
                 (unsigned long long)m.t, m.text, kind, island);
    if (out)
        *out = m;
}

/* The island's turn until it holds step t: it gets no message meanwhile. The hub's turn as well, for its questions. */
static inline void nats_until_holds(struct nats_world *w, int i, uint64_t t)
{
    int64_t until_ns = dlc_now_ns() + (int64_t)(PATIENCE_S * 1e9);
    struct dlc_message m;
    bool got, lost;
    char text[160];
    int island;

    while (dlc_nats_hub_island(w->h, i).held_t != t || !dlc_nats_hub_island(w->h, i).connected ||
           memcmp(nats_end(w, i)->ops->theta(nats_end(w, i), t), w->hub->ops->theta(w->hub, (int)(t & 1)), 4 * w->n)) {
        nats_must(dlc_nats_endpoint_recv(w->isles[i].ep, &m, &got, dlc_now_ns() + 5 * DLC_MS_NS));
        if (got)
            fail_msg("island %d hears message %d", i, (int)m.kind);
        nats_must(w->hub->ops->recv(w->hub, &island, &m, &lost, &got, dlc_now_ns() + 5 * DLC_MS_NS));
        if (got)
            fail_msg("the hub hears %d of island %d", lost ? -1 : (int)m.kind, island);
        if (dlc_now_ns() > until_ns) {
            dlc_nats_endpoint_state(w->isles[i].ep, text);
            fail_msg("island %d does not get to step %llu: %s", i, (unsigned long long)t, text);
        }
    }
}

static inline struct dlc_message nats_fill_slot(struct nats_world *w, int i, uint64_t t, int value)
{
    struct dlc_message m = { .kind = DLC_MSG_CONTRIBUTION, .t = t, .attempt = 1, .size_bytes = 4 * w->n };
    unsigned char *slot = nats_end(w, i)->ops->slot(nats_end(w, i));

    for (size_t k = 0; k < m.size_bytes; k++)
        slot[k] = (unsigned char)(value + (int)(k >> 12));
    m.digest = dlc_sha256(slot, m.size_bytes);
    return m;
}

static inline void nats_check_slot(struct nats_world *w, int i, int value)
{
    const unsigned char *slot = w->hub->ops->slot(w->hub, i);

    assert_non_null(slot);
    for (size_t k = 0; k < 4 * w->n; k++) {
        if (slot[k] != (unsigned char)(value + (int)(k >> 12)))
            fail_msg("byte %zu of the slot of island %d is %d", k, i, slot[k]);
    }
}

#endif
