/* Where a relay listens and where it leads to. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "link/relay_internal.h"

#define RECEIVE_BUFFER_S 0.125 /* of the rate: what the kernel may take in beyond what the relay holds */
#define RECEIVE_BUFFER_MIN 32768
#define RECEIVE_BUFFER_MAX (4 << 20)

static dlc_err look_up(struct addrinfo **out, const struct dlc_link_address *a, bool passive, const char *where)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    char port[16];
    int rc;

    hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
    snprintf(port, sizeof port, "%d", a->port);
    rc = getaddrinfo(a->host, port, &hints, out);
    if (rc != 0)
        return dlc_fail(DLC_EPEER, "%s: the host '%s' cannot be looked up: %s", where, a->host, gai_strerror(rc));
    return DLC_OK;
}

dlc_err dlc__link_resolve_target(dlc_link *link)
{
    struct addrinfo *found;

    DLC_TRY(look_up(&found, &link->config.to, false, "--to"));
    if (found->ai_addrlen > sizeof link->target) {
        freeaddrinfo(found);
        return dlc_fail(DLC_EPEER, "--to: the host '%s' has an address of an unknown kind", link->config.to.host);
    }
    memcpy(&link->target, found->ai_addr, found->ai_addrlen);
    link->target_size = found->ai_addrlen;
    freeaddrinfo(found);
    return DLC_OK;
}

/* Connections inherit both. A narrow link has small buffers and frames: what does not fit waits at its sender. */
static void make_narrow(int fd, double bits_per_s)
{
    double bytes = bits_per_s / 8 * RECEIVE_BUFFER_S;
    int size = bytes < RECEIVE_BUFFER_MIN   ? RECEIVE_BUFFER_MIN
               : bytes > RECEIVE_BUFFER_MAX ? RECEIVE_BUFFER_MAX
                                            : (int)bytes;
    int segment = DLC_LINK_SEGMENT_BYTES;

    if (bits_per_s == 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
}

static int port_of(int fd)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;

    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return 0;
    if (at.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&at)->sin6_port);
    return ntohs(((struct sockaddr_in *)&at)->sin_port);
}

static bool listen_at(dlc_link *link, const struct addrinfo *at)
{
    int one = 1;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return false;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    make_narrow(fd, link->config.bits_per_s[DLC_LINK_UP]);
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, DLC_LINK_MAX_CONNECTIONS) != 0) {
        int failed = errno;

        close(fd);
        errno = failed;
        return false;
    }
    link->listen_fd = fd;
    link->port = port_of(fd);
    return true;
}

dlc_err dlc__link_listen(dlc_link *link)
{
    const struct dlc_link_address *a = &link->config.listen;
    struct addrinfo *found;
    bool listens;

    DLC_TRY(look_up(&found, a, true, "--listen"));
    listens = listen_at(link, found);
    freeaddrinfo(found);
    return listens ? DLC_OK : dlc_fail_errno(DLC_EPEER, "--listen: %s port %d", a->host, a->port);
}
