/* Name, route, port, first line, TLS, certificate: one after the other with a socket of our own. libnats has no way to
 * look at a certificate, so this is also where the pin is compared; what is handed to the library afterwards is only the
 * certificate authority that had it. */
#include "net/probe.h"

#include <errno.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/wire.h"

struct probe {
    const struct dlc_join_url *url;
    double deadline_s;
    int fd; /* not blocking; -1: none */
    SSL *ssl;
    struct dlc_probe_result *result;
};

static int left_ms(const struct probe *p)
{
    double left = (p->deadline_s - dlc_now_s()) * 1e3;

    return left <= 0 ? 0 : left > 3600e3 ? 3600000 : (int)left + 1;
}

/* False: the time is over. */
static bool wait_for(const struct probe *p, short events)
{
    struct pollfd poll_fd = { .fd = p->fd, .events = events };
    int n;

    do
        n = poll(&poll_fd, 1, left_ms(p));
    while (n < 0 && errno == EINTR && left_ms(p) > 0);
    return n > 0;
}

static dlc_err failed(const struct probe *p, const char *what)
{
    if (*p->result->address && strcmp(p->result->address, p->url->host) != 0)
        return dlc_fail(DLC_EPEER, "%s (%s) port %d: %s", p->url->host, p->result->address, p->url->port, what);
    return dlc_fail(DLC_EPEER, "%s port %d: %s", p->url->host, p->url->port, what);
}

/* --- address and route -----------------------------------------------------------------------------------------------
 */

static const char *route_text(int code)
{
    switch (code) {
    case ECONNREFUSED: return "refused: nothing listens there; is it this run's port, and is 'diloco coordinate' running?";
    case ENETUNREACH:
    case EHOSTUNREACH: return "no route to it from here; is it an address that this machine can reach?";
    case ETIMEDOUT: return "no answer; a firewall in between, or a machine that is off?";
    default: return strerror(code);
    }
}

/* 0, or the errno of what failed. */
static int connect_one(struct probe *p, const struct addrinfo *to)
{
    int code = 0;
    socklen_t size = sizeof code;

    p->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd < 0)
        return errno;
    if (connect(p->fd, to->ai_addr, to->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    if (!wait_for(p, POLLOUT))
        return ETIMEDOUT;
    return getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

/* Each address of the name in turn, in equal shares of the time: the first may be one that swallows everything. */
static int connect_any(struct probe *p, const struct addrinfo *all)
{
    double end_s = p->deadline_s;
    int n_left = 0, code = EHOSTUNREACH;

    for (const struct addrinfo *at = all; at; at = at->ai_next)
        n_left++;
    for (const struct addrinfo *at = all; at; at = at->ai_next, n_left--) {
        double began_s = dlc_now_s();

        p->deadline_s = began_s + (end_s - began_s) / n_left;
        getnameinfo(at->ai_addr, at->ai_addrlen, p->result->address, sizeof p->result->address, NULL, 0, NI_NUMERICHOST);
        code = connect_one(p, at);
        p->result->connect_s = dlc_now_s() - began_s;
        p->deadline_s = end_s;
        if (code == 0)
            return 0;
        if (p->fd >= 0)
            close(p->fd);
        p->fd = -1;
    }
    return code;
}

static dlc_err connect_socket(struct probe *p)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *all = NULL;
    char port[16];
    int code;

    snprintf(port, sizeof port, "%d", p->url->port);
    code = getaddrinfo(p->url->host, port, &hints, &all);
    if (code != 0)
        return dlc_fail(DLC_EPEER, "%s: this name is not known here (%s); is it spelled right, does the network work?",
                        p->url->host, code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
    code = connect_any(p, all);
    freeaddrinfo(all);
    return code == 0 ? DLC_OK : failed(p, route_text(code));
}

/* --- the first line --------------------------------------------------------------------------------------------------
 */

/* Byte by byte, so that nothing of what comes after the line is taken away from TLS. */
static dlc_err read_line(struct probe *p, struct dlc_buf *line)
{
    for (;;) {
        char c;
        ssize_t n = recv(p->fd, &c, 1, 0);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for(p, POLLIN))
                return failed(p, "it takes the connection and says nothing; not a NATS server, or one that hangs");
            continue;
        }
        if (n <= 0)
            return failed(p, "it takes the connection and closes it at once; not a NATS server, or one that is full");
        if (c == '\n')
            return DLC_OK;
        if (line->len >= DLC_NATS_INFO_MAX_BYTES || (line->len >= 5 && memcmp(line->data, "INFO ", 5) != 0))
            return failed(p, "not a NATS server: it does not begin with INFO");
        DLC_TRY(dlc_buf_append(line, &c, 1));
    }
}

static dlc_err read_info(struct probe *p)
{
    struct dlc_buf line = { 0 };
    struct dlc_nats_info info = { 0 };
    dlc_err err = read_line(p, &line);

    if (err == DLC_OK) {
        err = dlc_nats_info_parse(&info, line.data ? line.data : "", line.len);
        if (err == DLC_EPEER)
            err = dlc_fail_context(err, "%s port %d", p->url->host, p->url->port);
    }
    dlc_buf_fini(&line);
    DLC_TRY(err);
    snprintf(p->result->server_version, sizeof p->result->server_version, "%s", info.version);
    snprintf(p->result->server_name, sizeof p->result->server_name, "%s", info.server_name);
    p->result->max_payload = info.max_payload;
    if (p->url->tls && !info.tls)
        return failed(p, "this server has no TLS, and the join line asks for it: not this run's server");
    if (!p->url->tls && info.tls)
        return failed(p, "this server wants TLS; take the join line that begins with nats+tls://");
    return DLC_OK;
}

/* --- TLS and the pin -------------------------------------------------------------------------------------------------
 */

static dlc_err shake_hands(struct probe *p)
{
    for (;;) {
        int n = SSL_connect(p->ssl), why = n == 1 ? SSL_ERROR_NONE : SSL_get_error(p->ssl, n);

        if (n == 1)
            return DLC_OK;
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
            ERR_clear_error();
            return failed(p, "the TLS handshake fails; something in between that is not this server?");
        }
        if (!wait_for(p, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT))
            return failed(p, "the TLS handshake does not end in time");
    }
}

static bool has_pin(X509 *cert, const struct dlc_sha256 *pin)
{
    unsigned char *der = NULL;
    int n = i2d_X509(cert, &der);
    struct dlc_sha256 digest;

    if (n < 0)
        return false;
    digest = dlc_sha256(der, (size_t)n);
    OPENSSL_free(der);
    return dlc_sha256_equal(&digest, pin);
}

static X509 *find_pinned(SSL *ssl, const struct dlc_sha256 *pin)
{
    STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);

    for (int i = 0; i < sk_X509_num(chain); i++) /* -1 for none */
        if (has_pin(sk_X509_value(chain, i), pin))
            return sk_X509_value(chain, i);
    return NULL;
}

/* What libnats will check again: signed by this authority, and of this run's name. X509_V_OK or why not. */
static int verify(SSL *ssl, X509 *authority, const char *run)
{
    char name[64];
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    X509 *leaf = SSL_get1_peer_certificate(ssl);
    int result = X509_V_ERR_OUT_OF_MEM;

    snprintf(name, sizeof name, "%s.diloco", run);
    if (store && context && leaf && X509_STORE_add_cert(store, authority) &&
        X509_STORE_CTX_init(context, store, leaf, SSL_get_peer_cert_chain(ssl)) &&
        X509_STORE_CTX_set_default(context, "ssl_server") &&
        X509_VERIFY_PARAM_set1_host(X509_STORE_CTX_get0_param(context), name, 0))
        result = X509_verify_cert(context) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(context);
    X509_free(leaf);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return result;
}

static dlc_err to_pem(struct dlc_buf *out, X509 *cert)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes = NULL;
    dlc_err err = dlc_fail(DLC_ENOMEM, "certificate");

    if (bio && PEM_write_bio_X509(bio, cert)) {
        long n = BIO_get_mem_data(bio, &bytes);

        dlc_buf_clear(out);
        err = dlc_buf_append(out, bytes, (size_t)n);
    }
    BIO_free(bio);
    return err;
}

static dlc_err check_certificate(struct probe *p, struct dlc_buf *ca_pem)
{
    X509 *authority = find_pinned(p->ssl, &p->url->pin);
    int why;

    if (!authority)
        return failed(p, "its certificate is not the one that the join line names (pin): another run's server, or "
                         "somebody in between; nothing was told to it");
    why = verify(p->ssl, authority, p->url->run);
    if (why == X509_V_ERR_HOSTNAME_MISMATCH)
        return failed(p, "its certificate is for another run than the join line's");
    if (why == X509_V_ERR_CERT_NOT_YET_VALID || why == X509_V_ERR_CERT_HAS_EXPIRED)
        return failed(p, "its certificate is not valid at this time; is this machine's clock right?");
    if (why != X509_V_OK)
        return failed(p, X509_verify_cert_error_string(why));
    return to_pem(ca_pem, authority);
}

static dlc_err check_tls(struct probe *p, struct dlc_buf *ca_pem)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    double began_s = dlc_now_s();
    dlc_err err;

    if (context)
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL); /* check_certificate does, with words for each case */
    p->ssl = context && SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) ? SSL_new(context) : NULL;
    SSL_CTX_free(context);
    if (!p->ssl || !SSL_set_fd(p->ssl, p->fd)) {
        ERR_clear_error();
        return dlc_fail(DLC_EFAIL, "TLS cannot be prepared");
    }
    err = shake_hands(p);
    p->result->tls_s = dlc_now_s() - began_s;
    return err == DLC_OK ? check_certificate(p, ca_pem) : err;
}

dlc_err dlc_probe(struct dlc_probe_result *out, struct dlc_buf *ca_pem, const struct dlc_join_url *url, double timeout_s)
{
    struct probe p = { .url = url, .deadline_s = dlc_now_s() + timeout_s, .fd = -1, .result = out };
    dlc_err err;

    memset(out, 0, sizeof *out);
    DLC_TRY(dlc_wire_init()); /* before OpenSSL is used */
    err = connect_socket(&p);
    if (err == DLC_OK)
        err = read_info(&p);
    if (err == DLC_OK && url->tls)
        err = check_tls(&p, ca_pem);
    if (p.ssl && err == DLC_OK)
        SSL_shutdown(p.ssl);
    SSL_free(p.ssl);
    if (p.fd >= 0)
        close(p.fd);
    return err;
}
