#include "net/nats_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/addresses.h"
#include "net/cert.h"
#include "net/nats_child.h"
#include "net/nats_config.h"
#include "net/private_file.h"
#include "net/probe.h"
#include "net/server_folder.h"
#include "net/wire.h"

#define FIRST_PORT 4222
#define LAST_PORT 4321
#define LOCK_PATIENCE_S 3.0
#define START_PATIENCE_S 20.0
#define SILENCE_LIMIT_S 10.0
#define GIVE_UP_AFTER 8      /* restarts in a row without an answer in between */
#define PRUNE_INTERVAL_S 60.0

struct dlc_nats_server {
    char folder[DLC_PATH_MAX], program[DLC_PATH_MAX];
    char bind_host[DLC_HOST_SIZE], server_name[64];
    struct dlc__secrets secrets;
    struct dlc_join_url lead_url, island_url; /* both have the port */
    struct dlc_buf ca_pem;
    bool sync_always, port_is_fixed;

    int lock_fd;
    pid_t pid; /* 0: none */
    dlc_wire *wire; /* the leader's, always open: whether the server answers can be read off it at any time */
    double silence_s, heard_s, spawned_s, pruned_s;
    int n_restarts; /* since it last answered */
    uint64_t log_from;
};

/* --- where to listen -------------------------------------------------------------------------------------------------
 */

static bool fill_address(struct sockaddr_storage *out, socklen_t *size, const char *host, int port)
{
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)out;

    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        *size = sizeof *four;
        return true;
    }
    if (inet_pton(AF_INET6, host, &six->sin6_addr) != 1)
        return false;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    *size = sizeof *six;
    return true;
}

/* Whether somebody could listen there now. Port 0: whether the address is one of this machine's. */
static bool can_listen(const char *host, int port)
{
    struct sockaddr_storage address;
    socklen_t size;
    int on = 1, fd;
    bool ok;

    if (!fill_address(&address, &size, host, port))
        return false;
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ok = bind(fd, (struct sockaddr *)&address, size) == 0;
    close(fd);
    return ok;
}

static dlc_err first_reachable(char out[DLC_HOST_SIZE])
{
    struct dlc_address addresses[64];
    size_t n;

    DLC_TRY(dlc_addresses_list(addresses, &n, sizeof addresses / sizeof *addresses));
    if (n == 0)
        return dlc_fail(DLC_EUSAGE, "this machine has no address at which others could reach it; connect it to a "
                                    "network, or listen on 127.0.0.1 to try things on this machine alone");
    snprintf(out, DLC_HOST_SIZE, "%s", addresses[0].text);
    return DLC_OK;
}

static bool is_any(const char *host)
{
    return !*host || strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* "HOST:PORT", "[IPV6]:PORT", "HOST", ":PORT"; port 0 where none is said. */
static dlc_err split_listen(char host[DLC_HOST_SIZE], int *port, const char *listen)
{
    const char *colon = strrchr(listen, ':'), *end = colon ? colon : listen + strlen(listen);
    bool brackets = *listen == '[';
    char *after;
    long value = 0;

    if (brackets) {
        end = strchr(listen, ']');
        colon = end && end[1] == ':' ? end + 1 : NULL;
        listen++;
    }
    if (colon) {
        value = strtol(colon + 1, &after, 10);
        if (*after || after == colon + 1 || value < 0 || value > 65535)
            end = NULL;
    }
    if (!end || (size_t)(end - listen) >= DLC_HOST_SIZE)
        return dlc_fail(DLC_EUSAGE, "'%s' is no address to listen on; HOST:PORT is meant", listen);
    memcpy(host, listen, (size_t)(end - listen));
    host[end - listen] = '\0';
    *port = (int)value;
    if (strspn(host, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_:*") != strlen(host))
        return dlc_fail(DLC_EUSAGE, "'%s' is neither a name nor an address to listen on", host);
    return DLC_OK;
}

/* Three hosts: to bind, for our own connections, for islands. An address that is not this machine's, or a name, is where
 * others reach it (behind a router, say): it listens everywhere. */
static dlc_err choose_hosts(dlc_nats_server *s, const struct dlc_nats_server_options *options)
{
    char *island = s->island_url.host, *lead = s->lead_url.host, asked[DLC_HOST_SIZE] = "";
    int port = 0;

    if (options->listen)
        DLC_TRY(split_listen(asked, &port, options->listen));
    s->port_is_fixed = port > 0;
    s->lead_url.port = port;
    snprintf(lead, DLC_HOST_SIZE, "127.0.0.1");
    if (options->loopback || (*asked && dlc_address_is_loopback(asked))) {
        if (strchr(asked, ':') && dlc_address_is_loopback(asked))
            snprintf(lead, DLC_HOST_SIZE, "%s", asked);
        memcpy(s->bind_host, lead, sizeof s->bind_host);
        memcpy(island, lead, DLC_HOST_SIZE);
        return DLC_OK;
    }
    if (!is_any(asked) && can_listen(asked, 0)) {
        memcpy(s->bind_host, asked, sizeof s->bind_host);
        memcpy(lead, asked, DLC_HOST_SIZE);
        memcpy(island, asked, DLC_HOST_SIZE);
        return DLC_OK;
    }
    if (is_any(asked))
        DLC_TRY(first_reachable(island));
    else
        memcpy(island, asked, DLC_HOST_SIZE);
    snprintf(s->bind_host, sizeof s->bind_host, strchr(island, ':') ? "::" : "0.0.0.0");
    return DLC_OK;
}

/* The one that was asked for, the one of before, or a free one, beginning at `from`. */
static dlc_err choose_port(dlc_nats_server *s, int from)
{
    int port = s->lead_url.port;

    if (!s->port_is_fixed) {
        DLC_TRY(dlc__port_load(&port, s->folder));
        s->port_is_fixed = port > 0;
    }
    for (int next = from; port == 0 && next <= LAST_PORT; next++)
        if (can_listen(s->bind_host, next))
            port = next;
    if (port == 0)
        return dlc_fail(DLC_EUSAGE, "no free port from %d to %d; name one to listen on", FIRST_PORT, LAST_PORT);
    s->lead_url.port = s->island_url.port = port;
    return DLC_OK;
}

/* --- the folder ------------------------------------------------------------------------------------------------------
 */

static void name_server(dlc_nats_server *s)
{
    char hex[DLC_SHA256_HEX];
    struct dlc_sha256 digest = dlc_sha256(s->secrets.lead, strlen(s->secrets.lead));

    dlc_sha256_to_hex(hex, &digest);
    snprintf(s->server_name, sizeof s->server_name, "dlc-%s-%.8s", s->lead_url.run, hex);
}

static dlc_err make_urls(dlc_nats_server *s, bool insecure)
{
    struct dlc_join_url *urls[] = { &s->lead_url, &s->island_url };
    const char *addresses[] = { s->lead_url.host, s->island_url.host, "localhost" };

    snprintf(s->lead_url.user, sizeof s->lead_url.user, "lead");
    snprintf(s->island_url.user, sizeof s->island_url.user, "isle");
    memcpy(s->lead_url.secret, s->secrets.lead, sizeof s->secrets.lead);
    memcpy(s->island_url.secret, s->secrets.isle, sizeof s->secrets.isle);
    memcpy(s->island_url.run, s->lead_url.run, sizeof s->island_url.run);
    if (insecure)
        return DLC_OK;
    DLC_TRY(dlc_cert_make(s->folder, s->lead_url.run, addresses, sizeof addresses / sizeof *addresses));
    for (int i = 0; i < 2; i++) {
        urls[i]->tls = true;
        DLC_TRY(dlc_cert_pin(&urls[i]->pin, &s->ca_pem, s->folder));
    }
    return DLC_OK;
}

/* At most a quarter of what is free: a full disk makes 2.9.10's JetStream hang. */
static uint64_t max_file_bytes(const char *folder)
{
    struct statvfs fs;
    uint64_t most = (uint64_t)1 << 30, least = (uint64_t)64 << 20, quarter;

    if (statvfs(folder, &fs) != 0)
        return most;
    quarter = (uint64_t)fs.f_bavail * fs.f_frsize / 4;
    return quarter > most ? most : quarter < least ? least : quarter;
}

static dlc_err write_config(const dlc_nats_server *s)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX];
    struct dlc__nats_config config = {
        .folder = s->folder, .run = s->lead_url.run, .server_name = s->server_name, .bind_host = s->bind_host,
        .port = s->lead_url.port, .tls = s->lead_url.tls, .sync_always = s->sync_always,
        .max_file_bytes = max_file_bytes(s->folder), .lead_secret = s->secrets.lead, .isle_secret = s->secrets.isle,
        .sys_secret = s->secrets.sys,
    };
    dlc_err err = dlc__nats_config_format(&text, &config);

    if (err == DLC_OK)
        err = dlc_path_join(path, s->folder, "nats.conf");
    if (err == DLC_OK)
        err = dlc__private_write(path, text.data, text.len);
    if (text.data)
        explicit_bzero(text.data, text.len);
    dlc_buf_fini(&text);
    return err;
}

/* Absolute, for the server's configuration. */
static dlc_err set_folder(dlc_nats_server *s, const char *folder)
{
    char *absolute = realpath(folder, NULL);
    int n;

    if (!absolute)
        return dlc_fail_errno(DLC_EIO, "%s", folder);
    n = snprintf(s->folder, sizeof s->folder, "%s", absolute);
    free(absolute);
    return n < (int)sizeof s->folder ? DLC_OK : dlc_fail(DLC_EUSAGE, "%s: the path is too long", folder);
}

static dlc_err prepare_folder(dlc_nats_server *s, const struct dlc_nats_server_options *options)
{
    int major, minor;

    DLC_TRY(dlc__nats_find(s->program, options->program));
    DLC_TRY(dlc__nats_version(&major, &minor, s->program));
    s->sync_always = major > 2 || minor >= 10;
    DLC_TRY(dlc__private_folder(options->folder));
    DLC_TRY(set_folder(s, options->folder));
    DLC_TRY(dlc__folder_lock(&s->lock_fd, s->folder, LOCK_PATIENCE_S));
    DLC_TRY(dlc__secrets_load(&s->secrets, s->folder));
    name_server(s);
    DLC_TRY(choose_hosts(s, options));
    return make_urls(s, options->insecure);
}

/* --- starting --------------------------------------------------------------------------------------------------------
 */

static dlc_err spawn(dlc_nats_server *s)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, s->folder, "nats.log"));
    if (dlc_file_size(&s->log_from, path) != DLC_OK)
        s->log_from = 0;
    DLC_TRY(dlc__nats_spawn(&s->pid, s->program, s->folder, s->lock_fd));
    s->spawned_s = s->heard_s = dlc_now_s();
    return DLC_OK;
}

/* One try: is it ours that answers there, and does it know the leader? */
static dlc_err try_connect(dlc_nats_server *s)
{
    struct dlc_probe_result result;
    struct dlc_buf ca_pem = { 0 };
    struct dlc_wire_options options = {
        .host = s->lead_url.host, .port = s->lead_url.port, .run = s->lead_url.run, .user = s->lead_url.user,
        .secret = s->lead_url.secret, .ca_pem = dlc_nats_server_ca_pem(s), .name = "lead/watch",
    };
    dlc_err err = dlc_probe(&result, &ca_pem, &s->lead_url, 2.0);

    dlc_buf_fini(&ca_pem);
    DLC_TRY(err);
    if (strcmp(result.server_name, s->server_name) != 0)
        return dlc_fail(DLC_EPEER, "port %d: another NATS server (%s) answers there", s->lead_url.port,
                        result.server_name);
    return dlc_wire_connect(&s->wire, &options);
}

static dlc_err not_started(dlc_nats_server *s, const char *what)
{
    char words[400];

    dlc__nats_last_words(words, sizeof words, s->folder, s->log_from);
    return dlc_fail(DLC_EPEER, "nats-server %s at port %d: %s", what, s->lead_url.port, *words ? words : "it says nothing");
}

/* *taken: it ended because somebody else has the port. */
static dlc_err start_once(dlc_nats_server *s, bool *taken)
{
    double deadline_s = dlc_now_s() + START_PATIENCE_S;

    *taken = false;
    DLC_TRY(write_config(s));
    DLC_TRY(spawn(s));
    for (;;) {
        struct timespec moment = { .tv_nsec = 20000000 };
        dlc_err err;

        nanosleep(&moment, NULL);
        if (dlc__nats_has_ended(s->pid)) {
            s->pid = 0;
            err = not_started(s, "does not start");
            *taken = strstr(dlc_err_text(), "address already in use") != NULL;
            return err;
        }
        err = try_connect(s);
        if (err == DLC_OK)
            return DLC_OK;
        if (err != DLC_EPEER)
            return err;
        if (dlc_now_s() > deadline_s)
            return not_started(s, "does not answer");
    }
}

static dlc_err start(dlc_nats_server *s, const struct dlc_nats_server_options *options)
{
    int from = FIRST_PORT;
    bool taken;

    DLC_TRY(prepare_folder(s, options));
    for (;;) {
        dlc_err err;

        DLC_TRY(choose_port(s, from));
        err = start_once(s, &taken);
        if (err == DLC_OK)
            return dlc__port_save(s->folder, s->lead_url.port);
        if (!taken || s->port_is_fixed)
            return err;
        from = s->lead_url.port + 1;
        s->lead_url.port = 0;
    }
}

static dlc_err check_run(const char *run)
{
    const char *good = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    if (!*run || strspn(run, good) != strlen(run) || strlen(run) >= sizeof((struct dlc_join_url *)0)->run)
        return dlc_fail(DLC_EUSAGE, "'%s': a run's name has 1 to 32 letters, digits, - and _", run);
    return DLC_OK;
}

dlc_err dlc_nats_server_start(dlc_nats_server **out, const struct dlc_nats_server_options *options)
{
    dlc_nats_server *s;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_wire_init());
    DLC_TRY(check_run(options->run));
    s = dlc_calloc(1, sizeof *s);
    if (!s)
        return DLC_ENOMEM;
    s->lock_fd = -1;
    s->silence_s = options->silence_s > 0 ? options->silence_s : SILENCE_LIMIT_S;
    snprintf(s->lead_url.run, sizeof s->lead_url.run, "%s", options->run);
    err = start(s, options);
    if (err != DLC_OK) {
        dlc_nats_server_stop(s);
        return err;
    }
    dlc__nats_prune_logs(s->folder);
    s->pruned_s = s->heard_s = dlc_now_s();
    *out = s;
    return DLC_OK;
}

void dlc_nats_server_stop(dlc_nats_server *s)
{
    if (!s)
        return;
    dlc_wire_close(s->wire);
    if (s->pid > 0)
        dlc__nats_end(s->pid, 3.0);
    dlc_lock_release(s->lock_fd);
    dlc_buf_fini(&s->ca_pem);
    explicit_bzero(s, sizeof *s);
    dlc_free(s);
}

/* --- watching --------------------------------------------------------------------------------------------------------
 */

/* Later and later when it does not help: at once, then after 0.5, 1, 2 ... s. */
static dlc_err restart(dlc_nats_server *s, bool *restarted)
{
    double wait_s = s->n_restarts == 0 ? 0 : 0.25 * (double)(1 << s->n_restarts);

    if (dlc_now_s() < s->spawned_s + wait_s)
        return DLC_OK;
    if (s->n_restarts >= GIVE_UP_AFTER)
        return not_started(s, "was started again and again and does not answer");
    s->n_restarts++;
    DLC_TRY(spawn(s));
    *restarted = true;
    return DLC_OK;
}

dlc_err dlc_nats_server_watch(dlc_nats_server *s, bool *restarted)
{
    double now_s = dlc_now_s();

    *restarted = false;
    if (now_s > s->pruned_s + PRUNE_INTERVAL_S) {
        dlc__nats_prune_logs(s->folder);
        s->pruned_s = now_s;
    }
    if (s->pid > 0 && dlc__nats_has_ended(s->pid))
        s->pid = 0;
    if (s->pid == 0)
        return restart(s, restarted);
    if (dlc_wire_is_connected(s->wire)) {
        s->heard_s = now_s;
        s->n_restarts = 0;
    } else if (now_s > s->heard_s + s->silence_s) {
        dlc__nats_end(s->pid, 0); /* a server that hangs does not listen to SIGTERM either */
        s->pid = 0;
        return restart(s, restarted);
    }
    return DLC_OK;
}

/* --- what it is ------------------------------------------------------------------------------------------------------
 */

const struct dlc_join_url *dlc_nats_server_lead_url(const dlc_nats_server *s)
{
    return &s->lead_url;
}

const struct dlc_join_url *dlc_nats_server_island_url(const dlc_nats_server *s)
{
    return &s->island_url;
}

const char *dlc_nats_server_ca_pem(const dlc_nats_server *s)
{
    return s->lead_url.tls ? s->ca_pem.data : NULL;
}

const char *dlc_nats_server_sys_secret(const dlc_nats_server *s)
{
    return s->secrets.sys;
}

long dlc_nats_server_pid(const dlc_nats_server *s)
{
    return (long)s->pid;
}
