/* The text of nats-server's configuration; docs/security.md says why it is as it is. */
#ifndef DLC_NET_NATS_CONFIG_H
#define DLC_NET_NATS_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct dlc__nats_config {
    const char *folder; /* certificates, log, store */
    const char *run, *server_name;
    const char *bind_host; /* an address of this machine, "0.0.0.0" or "::" */
    int port;
    bool tls;
    bool sync_always; /* the version can (2.10): what it acknowledges is on the disk */
    uint64_t max_file_bytes; /* of JetStream */
    const char *lead_secret, *isle_secret, *sys_secret;
};

dlc_err dlc__nats_config_format(struct dlc_buf *out, const struct dlc__nats_config *config);

#endif
