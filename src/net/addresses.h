/* This machine's addresses, as others could reach them. */
#ifndef DLC_NET_ADDRESSES_H
#define DLC_NET_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define DLC_ADDRESS_SIZE 46 /* of an IPv6 address as text */

struct dlc_address {
    char text[DLC_ADDRESS_SIZE];
    char interface[32];
    bool six;           /* IPv6 */
    bool default_route; /* the one that this machine sends from to far away */
    bool private_net;   /* 10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7: not reachable from the internet as it is */
};

/* At most `max`, in the order to offer them: the default route's first, IPv4 before IPv6. Without loopback, link-local
 * and what belongs to an interface that is down. *n may be 0. No packet is sent. */
dlc_err dlc_addresses_list(struct dlc_address *out, size_t *n, size_t max);

/* Is it an address at which only this machine answers: 127.0.0.0/8, ::1, "localhost"? */
bool dlc_address_is_loopback(const char *host);

#endif
