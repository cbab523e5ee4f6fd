/* Before a connection is tried in earnest: each step from the name to the certificate on its own, so that the message
 * names the one that fails. Its socket is its own and it sends no secret. */
#ifndef DLC_NET_PROBE_H
#define DLC_NET_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "net/join_url.h"

struct dlc_probe_result {
    char address[64];       /* the address that answered */
    char server_version[32]; /* of nats-server */
    char server_name[64];
    size_t max_payload;     /* bytes */
    double connect_s, tls_s; /* round trip of the TCP and TLS handshakes */
};

/* What a NATS server says of itself before anything else, in one line: "INFO {...}". Any bytes are safe. */
struct dlc_nats_info {
    char version[32], server_name[64];
    size_t max_payload;
    bool tls; /* it begins TLS after this line */
};
#define DLC_NATS_INFO_MAX_BYTES 65536
dlc_err dlc_nats_info_parse(struct dlc_nats_info *out, const char *line, size_t size_bytes);

/* DLC_EPEER with the step in the text: the name is not known, no route, refused (wrong port, or nothing listens), no
 * answer (a firewall), not a NATS server, no TLS where it was asked for (or the other way round), another certificate
 * than the pin's. ca_pem: the certificate with the pin's digest, for dlc_wire_options; NULL without TLS. */
dlc_err dlc_probe(struct dlc_probe_result *out, struct dlc_buf *ca_pem, const struct dlc_join_url *url, double timeout_s);

#endif
