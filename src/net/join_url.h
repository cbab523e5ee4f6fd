/* The line that `diloco coordinate` prints and `diloco join` takes:
 *
 *   nats+tls://isle:SECRET@HOST:PORT/RUN?pin=PIN     PIN: SHA-256 of the run's CA certificate (DER), base64url
 *   nats://isle:SECRET@HOST:PORT/RUN                 without encryption (--insecure)
 *
 * HOST may be a name, an IPv4 address or an IPv6 address in brackets. Any text is safe to parse. Messages never quote
 * the secret. */
#ifndef DLC_NET_JOIN_URL_H
#define DLC_NET_JOIN_URL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/digest.h"

#define DLC_HOST_SIZE 256
#define DLC_SECRET_SIZE 129
#define DLC_USER_SIZE 33

struct dlc_join_url {
    bool tls;
    char user[DLC_USER_SIZE], secret[DLC_SECRET_SIZE];
    char host[DLC_HOST_SIZE];
    int port;
    char run[33];
    struct dlc_sha256 pin; /* tls only */
};

dlc_err dlc_join_url_parse(struct dlc_join_url *out, const char *text); /* DLC_EUSAGE names the part that is wrong */
dlc_err dlc_join_url_format(struct dlc_buf *out, const struct dlc_join_url *url);

#endif
