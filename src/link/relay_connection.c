/* Connections of a relay: taken, led to the target, ended. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link/relay_internal.h"

#define ACCEPT_AGAIN_NS 100000000
#define SEND_BUFFER 65536 /* beyond a narrow link nothing should pile up either */

static bool watch(dlc_link *link, const struct dlc__connection *c, int side)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };

    event.data.u64 = 2 * (uint64_t)(c - link->connections) + (uint64_t)side;
    return epoll_ctl(link->epoll_fd, EPOLL_CTL_ADD, c->fd[side], &event) == 0;
}

static void close_reset(int fd)
{
    struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

void dlc__link_close(dlc_link *link, struct dlc__connection *c, bool reset)
{
    for (int side = 0; side < 2; side++) {
        if (c->fd[side] >= 0 && reset)
            close_reset(c->fd[side]);
        else if (c->fd[side] >= 0)
            close(c->fd[side]);
        c->fd[side] = -1;
        dlc__pipe_clear(&c->pipe[side]);
    }
    link->stats.n_open--;
    link->knocking = true; /* there is room again */
}

static struct dlc__connection *free_place(dlc_link *link)
{
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++)
        if (link->connections[i].fd[DLC_LINK_UP] < 0)
            return &link->connections[i];
    return NULL;
}

static void set_options(const dlc_link *link, int fd, int direction_out)
{
    int one = 1, size = SEND_BUFFER;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (link->config.bits_per_s[direction_out] > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

/* The way back is as narrow in the kernel as the way there (relay_open.c sets what who connects gets). */
static void limit_receiving(const dlc_link *link, int fd)
{
    double bytes = link->config.bits_per_s[DLC_LINK_DOWN] / 64;
    int size = bytes < 32768 ? 32768 : bytes > (4 << 20) ? 4 << 20 : (int)bytes;

    if (link->config.bits_per_s[DLC_LINK_DOWN] > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

static bool lead_on(dlc_link *link, struct dlc__connection *c)
{
    const struct sockaddr *target = (const struct sockaddr *)&link->target;
    int fd = socket(target->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return false;
    c->fd[DLC_LINK_DOWN] = fd;
    set_options(link, fd, DLC_LINK_UP);
    limit_receiving(link, fd);
    if (connect(fd, target, link->target_size) != 0 && errno != EINPROGRESS)
        return false;
    c->connecting = true;
    return watch(link, c, DLC_LINK_UP) && watch(link, c, DLC_LINK_DOWN);
}

static void take(dlc_link *link, struct dlc__connection *c, int fd)
{
    *c = (struct dlc__connection){
        .fd = { fd, -1 },
        .reset_due_ns = NEVER_NS,
        .number = (uint64_t)link->stats.n_connections++,
    };
    link->stats.n_open++;
    set_options(link, fd, DLC_LINK_DOWN);
    if (lead_on(link, c))
        return;
    link->stats.n_refused++;
    dlc__link_close(link, c, true);
}

void dlc__link_accept(dlc_link *link)
{
    while (link->knocking && link->accept_again_ns <= link->now_ns) {
        struct dlc__connection *c = free_place(link);
        int fd;

        if (!c)
            return; /* whoever ends next lets one in */
        fd = accept4(link->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            take(link, c, fd);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            link->knocking = false;
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            link->accept_again_ns = link->now_ns + ACCEPT_AGAIN_NS;
    }
}

void dlc__link_connected(dlc_link *link, struct dlc__connection *c)
{
    int failed = 0;
    socklen_t size = sizeof failed;

    c->connecting = false;
    if (getsockopt(c->fd[DLC_LINK_DOWN], SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && failed == 0)
        return;
    link->stats.n_refused++;
    c->reset_due_ns = link->now_ns + link->delay_ns;
}
