#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/net_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/nats_child.h"

static char scratch[256];

int net_begin(void **state)
{
    (void)state;
    if (dlc_wire_is_built() && dlc_wire_init() != DLC_OK) /* before OpenSSL is used */
        return -1;
    snprintf(scratch, sizeof scratch, "%s/diloco-net-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

int net_end(void **state)
{
    (void)state;
    return dlc_remove_tree(scratch) == DLC_OK ? 0 : -1;
}

const char *net_scratch(const char *fmt, ...)
{
    static char paths[8][DLC_PATH_MAX];
    static int next;
    char *out = paths[next++ % 8];
    int n = snprintf(out, DLC_PATH_MAX, "%s/", scratch);
    va_list args;

    va_start(args, fmt);
    vsnprintf(out + n, (size_t)(DLC_PATH_MAX - n), fmt, args);
    va_end(args);
    return out;
}

void net_sleep_ms(double ms)
{
    struct timespec time = { .tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)((ms - 1e3 * (double)(long)(ms / 1e3)) * 1e6) };

    nanosleep(&time, NULL);
}

void net_needs_server(void)
{
    char path[DLC_PATH_MAX];

    if (!dlc_wire_is_built()) {
        print_message("skipped: built without NATS (libnats-dev)\n");
        skip();
    }
    if (dlc__nats_find(path, NULL) != DLC_OK) {
        print_message("skipped: %s\n", dlc_err_text());
        skip();
    }
}

dlc_nats_server *net_server(const char *folder, bool insecure)
{
    static int n;
    dlc_nats_server *s;
    struct dlc_nats_server_options options = {
        .folder = folder ? folder : net_scratch("server-%d", n++), .run = RUN, .insecure = insecure, .loopback = true,
    };

    if (dlc_nats_server_start(&s, &options) != DLC_OK)
        fail_msg("server: %s", dlc_err_text());
    return s;
}

struct dlc_wire_options net_options(const struct dlc_join_url *url, const char *ca_pem)
{
    return (struct dlc_wire_options){ .host = url->host, .port = url->port, .run = url->run, .user = url->user,
                                      .secret = url->secret, .ca_pem = ca_pem, .name = url->user };
}

dlc_wire *net_connect(const struct dlc_wire_options *options)
{
    dlc_wire *w;

    if (dlc_wire_connect(&w, options) != DLC_OK)
        fail_msg("connect: %s", dlc_err_text());
    return w;
}

/* --- a client over a bare socket -------------------------------------------------------------------------------------
 */

static bool wait_readable(int fd, double seconds)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

    return poll(&poll_fd, 1, (int)(seconds * 1e3)) > 0;
}

static bool read_greeting(int fd)
{
    char c = 0;

    while (c != '\n')
        if (!wait_readable(fd, 10.0) || recv(fd, &c, 1, 0) != 1)
            return false;
    return true;
}

bool raw_open(struct raw *r, int port, bool tls)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    memset(r, 0, sizeof *r);
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(r->fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail_msg("port %d: %s", port, strerror(errno));
    if (!read_greeting(r->fd))
        return false;
    if (!tls)
        return true;
    r->context = SSL_CTX_new(TLS_client_method());
    r->ssl = SSL_new(r->context);
    SSL_set_fd(r->ssl, r->fd);
    return SSL_connect(r->ssl) == 1;
}

void raw_send(struct raw *r, const char *text)
{
    if (r->ssl)
        (void)!SSL_write(r->ssl, text, (int)strlen(text));
    else
        (void)!send(r->fd, text, strlen(text), MSG_NOSIGNAL);
}

void raw_read(struct raw *r, struct dlc_buf *out, const char *wanted, double seconds, bool *closed)
{
    double deadline_s = dlc_now_s() + seconds;
    char bytes[4096];

    *closed = false;
    for (;;) {
        double left_s = deadline_s - dlc_now_s();
        int n;

        if (wanted && out->data && strstr(out->data, wanted))
            return;
        if (left_s <= 0 || (!(r->ssl && SSL_pending(r->ssl) > 0) && !wait_readable(r->fd, left_s)))
            return;
        n = r->ssl ? SSL_read(r->ssl, bytes, sizeof bytes) : (int)recv(r->fd, bytes, sizeof bytes, 0);
        if (n <= 0) {
            *closed = true;
            return;
        }
        assert_int_equal(dlc_buf_append(out, bytes, (size_t)n), DLC_OK);
    }
}

void raw_close(struct raw *r)
{
    SSL_free(r->ssl);
    SSL_CTX_free(r->context);
    close(r->fd);
    memset(r, 0, sizeof *r);
    r->fd = -1;
}

/* --- a server that is none -------------------------------------------------------------------------------------------
 */

static void *fake_run(void *self)
{
    struct fake *f = self;
    char bytes[4096];
    ssize_t n;
    int fd = -1;

    while (!f->stop && fd < 0)
        if (wait_readable(f->listen_fd, 0.05))
            fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return NULL;
    (void)!send(fd, f->greeting, strlen(f->greeting), MSG_NOSIGNAL);
    while (f->manner == MANNER_SILENT && !f->stop) {
        if (!wait_readable(fd, 0.05))
            continue;
        n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0 || dlc_buf_append(&f->got, bytes, (size_t)n) != DLC_OK)
            break;
    }
    close(fd);
    return NULL;
}

void fake_begin(struct fake *f, const char *greeting, enum manner manner)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    pthread_t thread;

    memset(f, 0, sizeof *f);
    f->greeting = greeting;
    f->manner = manner;
    f->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->listen_fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(f->listen_fd, 8), 0);
    assert_int_equal(getsockname(f->listen_fd, (struct sockaddr *)&at, &size), 0);
    f->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&thread, NULL, fake_run, f), 0);
    f->thread = (unsigned long)thread;
}

void fake_end(struct fake *f)
{
    f->stop = true;
    pthread_join((pthread_t)f->thread, NULL);
    close(f->listen_fd);
    dlc_buf_fini(&f->got);
}
