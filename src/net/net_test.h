/* For the tests of this folder: a scratch folder, servers in it, a client that says what it likes, a server that does. */
#ifndef DLC_NET_TEST_H
#define DLC_NET_TEST_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/file.h"
#include "net/nats_server.h"
#include "net/wire.h"

#define RUN "t-7f3a"

/* Group set-up and tear-down for cmocka: the scratch folder. */
int net_begin(void **state);
int net_end(void **state);
const char *net_scratch(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* a path in it; 8 live at a time */

/* Skips the test, with the reason, where the server or the library is not installed. */
void net_needs_server(void);

/* On 127.0.0.1; folder NULL: a new one. Fails the test when it does not start. */
dlc_nats_server *net_server(const char *folder, bool insecure);

struct dlc_wire_options net_options(const struct dlc_join_url *url, const char *ca_pem);
dlc_wire *net_connect(const struct dlc_wire_options *options); /* or fails the test */

/* A client over a bare socket, with or without TLS (unverified). */
struct raw {
    int fd;
    void *ssl, *context;
};
bool raw_open(struct raw *r, int port, bool tls); /* reads the first line; false: the server closed */
void raw_send(struct raw *r, const char *text);   /* what cannot be sent is dropped */
/* Reads for at most `seconds`, until `wanted` (may be NULL) or the end. *closed: by the server. */
void raw_read(struct raw *r, struct dlc_buf *out, const char *wanted, double seconds, bool *closed);
void raw_close(struct raw *r);

/* One connection on 127.0.0.1 that gets `greeting` and then `manner`; what came from the client stands in `got`. */
enum manner { MANNER_CLOSE, MANNER_SILENT };
struct fake {
    int listen_fd, port;
    const char *greeting;
    enum manner manner;
    struct dlc_buf got;
    unsigned long thread;
    volatile bool stop;
};
void fake_begin(struct fake *f, const char *greeting, enum manner manner);
void fake_end(struct fake *f);

void net_sleep_ms(double ms);

#endif
