/* A nats-server of the run's own, as a child process: configuration, secrets, certificates and store in one folder of
 * mode 0700, started, watched, started again at the same port. docs/security.md says what the configuration protects. */
#ifndef DLC_NET_NATS_SERVER_H
#define DLC_NET_NATS_SERVER_H

#include <stdbool.h>

#include "base/file.h"
#include "net/join_url.h"

typedef struct dlc_nats_server dlc_nats_server;

struct dlc_nats_server_options {
    const char *folder;  /* <run folder>/nats; made when missing; secrets and port in it are used again */
    const char *run;     /* run id */
    const char *program; /* NULL: "nats-server" from PATH, then /usr/sbin, /usr/local/bin */
    const char *listen;  /* "HOST:PORT", "HOST" or ":PORT"; NULL: every address, port 4222 or the next free one, kept over
                          * restarts. A HOST that is not this machine's is where others reach it: it listens everywhere */
    bool insecure;       /* no TLS; the secrets stay */
    bool loopback;       /* 127.0.0.1 only */
    double silence_s;    /* without a connection while the process lives: it is replaced; 0: 10 s */
};

/* Returns once the server answers. DLC_EUSAGE: no such program (says the package's name); DLC_EINPUT: another process has
 * the folder; DLC_EPEER: it does not start, with the last line of its log.
 *
 * The server ends with the thread that started it last (so that it never outlives us, whatever happens): start and watch
 * belong to one thread that lives as long as the run. */
dlc_err dlc_nats_server_start(dlc_nats_server **out, const struct dlc_nats_server_options *options);
void dlc_nats_server_stop(dlc_nats_server *s); /* accepts NULL */

/* To be called every second or so; it does not wait. Starts the server again when it died or does not answer, which takes
 * 4 to 6 s to see and silence_s to be sure of (*restarted tells), at the same port. DLC_EPEER: that did not help several times. */
dlc_err dlc_nats_server_watch(dlc_nats_server *s, bool *restarted);

/* For the coordinator's own connections (127.0.0.1) and for islands (host: the first address that others can reach, or
 * the one asked for). */
const struct dlc_join_url *dlc_nats_server_lead_url(const dlc_nats_server *s);
const struct dlc_join_url *dlc_nats_server_island_url(const dlc_nats_server *s);
const char *dlc_nats_server_ca_pem(const dlc_nats_server *s); /* NULL: insecure */
const char *dlc_nats_server_sys_secret(const dlc_nats_server *s); /* user "sys": who disconnects; NULL: a foreign one */
long dlc_nats_server_pid(const dlc_nats_server *s);

#endif
