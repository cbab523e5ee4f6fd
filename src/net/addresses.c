#include "net/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static bool four_is_private(uint32_t a)
{
    return a >> 24 == 10 || a >> 20 == (172u << 4 | 1) || a >> 16 == (192u << 8 | 168) || a >> 22 == (100u << 2 | 1);
}

static bool fill_four(struct dlc_address *out, const struct sockaddr_in *in)
{
    uint32_t a = ntohl(in->sin_addr.s_addr);

    if (a == 0 || a >> 24 == 127 || a >> 16 == (169u << 8 | 254))
        return false;
    out->private_net = four_is_private(a);
    return inet_ntop(AF_INET, &in->sin_addr, out->text, sizeof out->text) != NULL;
}

static bool fill_six(struct dlc_address *out, const struct sockaddr_in6 *in)
{
    const struct in6_addr *a = &in->sin6_addr;

    if (IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_LOOPBACK(a) || IN6_IS_ADDR_LINKLOCAL(a) || IN6_IS_ADDR_V4MAPPED(a))
        return false;
    out->six = true;
    out->private_net = (a->s6_addr[0] & 0xfe) == 0xfc;
    return inet_ntop(AF_INET6, a, out->text, sizeof out->text) != NULL;
}

static bool fill(struct dlc_address *out, const struct ifaddrs *from)
{
    memset(out, 0, sizeof *out);
    if (!from->ifa_addr || !(from->ifa_flags & IFF_UP) || (from->ifa_flags & IFF_LOOPBACK))
        return false;
    snprintf(out->interface, sizeof out->interface, "%s", from->ifa_name);
    if (from->ifa_addr->sa_family == AF_INET)
        return fill_four(out, (const struct sockaddr_in *)(const void *)from->ifa_addr);
    return from->ifa_addr->sa_family == AF_INET6 &&
           fill_six(out, (const struct sockaddr_in6 *)(const void *)from->ifa_addr);
}

/* Connecting a datagram socket sends nothing; it chooses the route, and with it our own address. The targets are of the
 * blocks for documentation. */
static bool own_address(char text[DLC_ADDRESS_SIZE], int family)
{
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(9) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
    struct sockaddr *to = family == AF_INET ? (struct sockaddr *)&four : (struct sockaddr *)&six;
    socklen_t size = family == AF_INET ? sizeof four : sizeof six;
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok;

    if (fd < 0)
        return false;
    inet_pton(AF_INET, "203.0.113.1", &four.sin_addr);
    inet_pton(AF_INET6, "2001:db8:ffff::1", &six.sin6_addr);
    ok = connect(fd, to, size) == 0 && getsockname(fd, to, &size) == 0 &&
         inet_ntop(family, family == AF_INET ? (void *)&four.sin_addr : (void *)&six.sin6_addr, text, DLC_ADDRESS_SIZE);
    close(fd);
    return ok;
}

static int in_order_of_use(const void *left, const void *right)
{
    const struct dlc_address *a = left, *b = right;

    if (a->default_route != b->default_route)
        return a->default_route ? -1 : 1;
    if (a->six != b->six)
        return a->six ? 1 : -1;
    return strcmp(a->text, b->text);
}

dlc_err dlc_addresses_list(struct dlc_address *out, size_t *n, size_t max)
{
    char four[DLC_ADDRESS_SIZE] = "", six[DLC_ADDRESS_SIZE] = "";
    struct ifaddrs *all;

    *n = 0;
    if (getifaddrs(&all) != 0)
        return dlc_fail_errno(DLC_EFAIL, "addresses of this machine");
    if (!own_address(four, AF_INET))
        *four = '\0';
    if (!own_address(six, AF_INET6))
        *six = '\0';
    for (const struct ifaddrs *at = all; at && *n < max; at = at->ifa_next)
        if (fill(&out[*n], at)) {
            out[*n].default_route = strcmp(out[*n].text, out[*n].six ? six : four) == 0;
            ++*n;
        }
    freeifaddrs(all);
    qsort(out, *n, sizeof *out, in_order_of_use);
    return DLC_OK;
}

bool dlc_address_is_loopback(const char *host)
{
    struct in6_addr six;
    struct in_addr four;

    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return strcasecmp(host, "localhost") == 0;
}
