/* A connect() of the executable's own, in front of the C library's: the dynamic linker gives it to libnats too, whose
 * TLS handshake otherwise waits for ever for a peer that accepts and then says nothing, and with it every call on that
 * connection and its close. Only executables link this file, and libnats must be a shared library.
 *
 * The time limits act on blocking calls, so on the handshake; later the library polls. TCP_USER_TIMEOUT ends a
 * connection whose peer acknowledges nothing. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "net/connect_limits.h"

int dlc_handshake_limit_ms = 10000;

__attribute__((visibility("default"))) int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    if (address->sa_family == AF_INET || address->sa_family == AF_INET6) {
        struct timeval limit = { .tv_sec = dlc_handshake_limit_ms / 1000,
                                 .tv_usec = dlc_handshake_limit_ms % 1000 * 1000 };
        int on = 1, unacknowledged_ms = 30000;

        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
    }
    return (int)syscall(SYS_connect, fd, address, size);
}
