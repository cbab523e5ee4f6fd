#include "exchange/local.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange/local_memory.h"
#include "exchange/stream.h"

struct dlc_local {
    dlc_hub hub;
    int memory_fd;
    struct dlc_local_memory memory;
    struct dlc_stream *streams; /* [n_islands] */
    bool *closed;               /* the end was seen; what came before it is still handed out */
    struct pollfd *polls;
    int last_island;
};

/* --- the coordinator's side --------------------------------------------------------------------------------------- */

/* The next message of the island. When its end was seen, what it had sent by then may still lie in the socket: a failed
 * send tells of the end earlier than reading does. */
static dlc_err next_of(dlc_local *x, int island, struct dlc_message *out, bool *got)
{
    struct dlc_stream *s = &x->streams[island];
    bool closed;
    dlc_err err = dlc_stream_next(s, out, got);

    if (err == DLC_OK && !*got && x->closed[island]) {
        DLC_TRY(dlc_stream_fill(s, &closed));
        err = dlc_stream_next(s, out, got);
    }
    if (err != DLC_EPEER)
        return err;
    /* Not ours: where the next message would begin nobody knows. That is the end of this connection, not of the run. */
    dlc_warn("island %d: %s; its connection is closed", island, dlc_err_text());
    x->closed[island] = true;
    return DLC_OK;
}

/* A message that has been read already, islands in turn; or the report of a closed connection once nothing is left. */
static dlc_err take_one(dlc_local *x, int *island, struct dlc_message *out, bool *lost, bool *got)
{
    *got = *lost = false;
    for (int k = 1; k <= x->hub.n_islands; k++) {
        int i = (x->last_island + k) % x->hub.n_islands;
        uint64_t before = x->streams[i].n_read;

        if (x->streams[i].fd < 0)
            continue;
        DLC_TRY(next_of(x, i, out, got));
        if (!*got && !x->closed[i])
            continue;
        x->last_island = *island = i;
        if (*got) {
            x->hub.traffic[i].bytes_up += x->streams[i].n_read - before;
            return DLC_OK;
        }
        dlc_local_disconnect(x, i);
        *lost = *got = true;
        return DLC_OK;
    }
    return DLC_OK;
}

static int timeout_ms(int64_t deadline_ns)
{
    int64_t left_ms;

    if (deadline_ns == INT64_MAX)
        return -1;
    left_ms = (deadline_ns - dlc_now_ns() + 999999) / 1000000;
    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

static dlc_err serve(dlc_local *x, int i, short events)
{
    if ((events & POLLOUT) && dlc_stream_flush(&x->streams[i]) != DLC_OK)
        x->closed[i] = true;
    if (events & (POLLIN | POLLHUP | POLLERR))
        return dlc_stream_fill(&x->streams[i], &x->closed[i]);
    return DLC_OK;
}

static dlc_err hub_recv(dlc_hub *hub, int *island, struct dlc_message *out, bool *lost, bool *got, int64_t deadline_ns)
{
    dlc_local *x = (dlc_local *)hub;
    int n;

    DLC_TRY(take_one(x, island, out, lost, got));
    if (*got)
        return DLC_OK;
    for (int i = 0; i < hub->n_islands; i++)
        x->polls[i] = (struct pollfd){ .fd = x->streams[i].fd,
                                       .events = (short)(POLLIN | (x->streams[i].out.len ? POLLOUT : 0)) };
    n = poll(x->polls, (nfds_t)hub->n_islands, timeout_ms(deadline_ns));
    if (n < 0 && errno == EINTR)
        return DLC_OK;
    if (n < 0)
        return dlc_fail_errno(DLC_EFAIL, "poll");
    for (int i = 0; i < hub->n_islands; i++) {
        if (x->streams[i].fd >= 0 && x->polls[i].revents)
            DLC_TRY(serve(x, i, x->polls[i].revents));
    }
    return take_one(x, island, out, lost, got);
}

static dlc_err hub_send(dlc_hub *hub, int island, const struct dlc_message *m)
{
    dlc_local *x = (dlc_local *)hub;
    size_t size_bytes = 0;
    dlc_err err;

    if (x->streams[island].fd < 0)
        return DLC_OK; /* reported as lost, or about to be */
    err = dlc_stream_send(&x->streams[island], m, &size_bytes);
    if (err == DLC_EPEER)
        x->closed[island] = true;
    hub->traffic[island].bytes_down += size_bytes;
    return err == DLC_EPEER ? DLC_OK : err;
}

static int64_t hub_now_ns(dlc_hub *hub)
{
    (void)hub;
    return dlc_now_ns();
}

static const void *hub_slot(dlc_hub *hub, int island)
{
    const struct dlc_local_memory *m = &((dlc_local *)hub)->memory;

    return m->slots + (size_t)island * m->slot_stride;
}

static float *hub_theta(dlc_hub *hub, int which)
{
    return ((dlc_local *)hub)->memory.theta[which];
}
static float *hub_mean(dlc_hub *hub)
{
    return ((dlc_local *)hub)->memory.mean;
}

static const struct dlc_hub_ops hub_ops = { hub_recv, hub_send, hub_now_ns, hub_slot, hub_theta, hub_mean };

static dlc_err allocate(dlc_local *x, const struct dlc_exchange_size *size, const char *fallback_folder)
{
    size_t k = (size_t)size->n_islands;

    x->hub.traffic = dlc_calloc(k, sizeof *x->hub.traffic);
    x->streams = dlc_calloc(k, sizeof *x->streams);
    x->closed = dlc_calloc(k, sizeof *x->closed);
    x->polls = dlc_calloc(k, sizeof *x->polls);
    if (!x->hub.traffic || !x->streams || !x->closed || !x->polls)
        return DLC_ENOMEM;
    for (int i = 0; i < size->n_islands; i++)
        x->streams[i].fd = -1;
    DLC_TRY(dlc_local_memory_create(&x->memory_fd, size, fallback_folder));
    return dlc_local_memory_map(&x->memory, x->memory_fd, size);
}

dlc_err dlc_local_create(dlc_local **out, const struct dlc_exchange_size *size, const char *fallback_folder)
{
    dlc_local *x = dlc_calloc(1, sizeof *x);
    dlc_err err;

    *out = NULL;
    if (!x)
        return DLC_ENOMEM;
    x->hub.ops = &hub_ops;
    x->hub.n_islands = size->n_islands;
    x->memory_fd = -1;
    err = allocate(x, size, fallback_folder);
    if (err != DLC_OK) {
        dlc_local_destroy(x);
        return err;
    }
    *out = x;
    return DLC_OK;
}

void dlc_local_destroy(dlc_local *x)
{
    if (!x)
        return;
    for (int i = 0; x->streams && i < x->hub.n_islands; i++)
        dlc_stream_close(&x->streams[i]);
    dlc_local_memory_unmap(&x->memory);
    if (x->memory_fd >= 0)
        close(x->memory_fd);
    dlc_free(x->hub.traffic);
    dlc_free(x->streams);
    dlc_free(x->closed);
    dlc_free(x->polls);
    dlc_free(x);
}

dlc_hub *dlc_local_hub(dlc_local *x)
{
    return &x->hub;
}
int dlc_local_memory_fd(const dlc_local *x)
{
    return x->memory_fd;
}

dlc_err dlc_local_connect(dlc_local *x, int island, int *child_fd)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return dlc_fail_errno(DLC_EFAIL, "connection for island %d", island);
    for (int i = 0; i < 2; i++)
        (void)fcntl(pair[i], F_SETFD, FD_CLOEXEC);
    dlc_local_disconnect(x, island);
    x->streams[island].fd = pair[0];
    *child_fd = pair[1];
    return DLC_OK;
}

void dlc_local_disconnect(dlc_local *x, int island)
{
    dlc_stream_close(&x->streams[island]);
    x->closed[island] = false;
}

/* --- an island's side --------------------------------------------------------------------------------------------- */

struct dlc_local_endpoint {
    dlc_endpoint base;
    int island;
    struct dlc_stream stream;
    struct dlc_local_memory memory;
};

static dlc_err wait_for(int fd, short events)
{
    struct pollfd p = { .fd = fd, .events = events };

    while (poll(&p, 1, -1) < 0) {
        if (errno != EINTR)
            return dlc_fail_errno(DLC_EFAIL, "poll");
    }
    return DLC_OK;
}

static dlc_err endpoint_send(dlc_endpoint *ep, const struct dlc_message *m)
{
    dlc_local_endpoint *e = (dlc_local_endpoint *)ep;

    DLC_TRY(dlc_stream_send(&e->stream, m, NULL));
    while (e->stream.out.len > 0) { /* the coordinator is busy: nothing better to do than to wait for it */
        DLC_TRY(wait_for(e->stream.fd, POLLOUT));
        DLC_TRY(dlc_stream_flush(&e->stream));
    }
    return DLC_OK;
}

static void *endpoint_slot(dlc_endpoint *ep)
{
    dlc_local_endpoint *e = (dlc_local_endpoint *)ep;

    return e->memory.slots + (size_t)e->island * e->memory.slot_stride;
}

static const float *endpoint_theta(dlc_endpoint *ep, uint64_t t)
{
    return ((dlc_local_endpoint *)ep)->memory.theta[t & 1];
}
static const float *endpoint_mean(dlc_endpoint *ep)
{
    return ((dlc_local_endpoint *)ep)->memory.mean;
}

static const struct dlc_endpoint_ops endpoint_ops = { endpoint_send, endpoint_slot, endpoint_theta, endpoint_mean };

dlc_err dlc_local_attach(dlc_local_endpoint **out, const struct dlc_exchange_size *size, int island, int socket_fd,
                         int memory_fd)
{
    dlc_local_endpoint *e = dlc_calloc(1, sizeof *e);
    dlc_err err = DLC_ENOMEM;

    *out = NULL;
    if (e) {
        e->base.ops = &endpoint_ops;
        e->island = island;
        e->stream.fd = socket_fd;
        err = dlc_local_memory_map(&e->memory, memory_fd, size);
    } else {
        close(socket_fd);
    }
    close(memory_fd);
    if (err != DLC_OK) {
        dlc_local_detach(e);
        return err;
    }
    *out = e;
    return DLC_OK;
}

void dlc_local_detach(dlc_local_endpoint *e)
{
    if (!e)
        return;
    dlc_stream_close(&e->stream);
    dlc_local_memory_unmap(&e->memory);
    dlc_free(e);
}

dlc_endpoint *dlc_local_endpoint_base(dlc_local_endpoint *ep)
{
    return &ep->base;
}

dlc_err dlc_local_endpoint_recv(dlc_local_endpoint *e, struct dlc_message *out, bool *got, bool wait)
{
    bool closed = false;

    for (;;) {
        DLC_TRY(dlc_stream_next(&e->stream, out, got));
        if (*got)
            return DLC_OK;
        if (closed)
            return dlc_fail(DLC_EPEER, "the coordinator is gone");
        if (wait)
            DLC_TRY(wait_for(e->stream.fd, POLLIN));
        DLC_TRY(dlc_stream_fill(&e->stream, &closed));
        if (!wait && !closed && e->stream.in.len < DLC_MESSAGE_HEADER_BYTES)
            return DLC_OK;
        if (!wait && !closed) {
            DLC_TRY(dlc_stream_next(&e->stream, out, got));
            return DLC_OK;
        }
    }
}
