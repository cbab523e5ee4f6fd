#include "net/nats_config.h"

#include <inttypes.h>
#include <string.h>

/* A text in double quotes, as the server reads it; paths may hold anything. */
static dlc_err quoted(struct dlc_buf *out, const char *folder, const char *name)
{
    const char *parts[] = { folder, name ? "/" : "", name ? name : "" };

    DLC_TRY(dlc_buf_printf(out, "\""));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (const char *at = parts[i]; *at; at++) {
            unsigned char c = (unsigned char)*at;

            if (c < ' ' || c == 127)
                DLC_TRY(dlc_buf_printf(out, "\\x%02X", c));
            else
                DLC_TRY(dlc_buf_printf(out, c == '"' || c == '\\' ? "\\%c" : "%c", c));
        }
    return dlc_buf_printf(out, "\"");
}

static dlc_err path_line(struct dlc_buf *out, const char *key, const char *folder, const char *name)
{
    DLC_TRY(dlc_buf_printf(out, "%s: ", key));
    DLC_TRY(quoted(out, folder, name));
    return dlc_buf_printf(out, "\n");
}

/* Limits: chunks are far below max_payload, which is also what servers have by default. The server's own pings stay slow:
 * they wait behind bulk on a slow link. 60 s to write: an island at 1 Mbit/s with some megabytes under way is healthy. */
static dlc_err general(struct dlc_buf *out, const struct dlc__nats_config *c)
{
    DLC_TRY(dlc_buf_printf(out, "server_name: \"%s\"\n", c->server_name));
    DLC_TRY(dlc_buf_printf(out, strchr(c->bind_host, ':') ? "listen: \"[%s]:%d\"\n" : "listen: \"%s:%d\"\n", c->bind_host,
                           c->port));
    DLC_TRY(path_line(out, "pid_file", c->folder, "nats.pid"));
    DLC_TRY(path_line(out, "logfile", c->folder, "nats.log"));
    return dlc_buf_printf(out, "logfile_size_limit: 8MB\n"
                               "max_payload: 1MB\n"
                               "max_pending: 32MB\n"
                               "max_connections: 512\n"
                               "max_subscriptions: 1024\n"
                               "max_control_line: 4KB\n"
                               "write_deadline: \"60s\"\n"
                               "ping_interval: \"30s\"\n"
                               "ping_max: 3\n");
}

static dlc_err tls(struct dlc_buf *out, const char *folder)
{
    DLC_TRY(dlc_buf_printf(out, "tls {\n"));
    DLC_TRY(path_line(out, "  cert_file", folder, "server.pem"));
    DLC_TRY(path_line(out, "  key_file", folder, "server.key"));
    return dlc_buf_printf(out, "  timeout: 5\n}\n");
}

static dlc_err jetstream(struct dlc_buf *out, const struct dlc__nats_config *c)
{
    DLC_TRY(dlc_buf_printf(out, "jetstream {\n"));
    DLC_TRY(path_line(out, "  store_dir", c->folder, "js"));
    return dlc_buf_printf(out, "  max_mem: 16MB\n  max_file: %" PRIu64 "\n%s}\n", c->max_file_bytes,
                          c->sync_always ? "  sync_interval: always\n" : "");
}

/* Two accounts besides the server's own: with exactly one that is also the system account, versions before 2.9.23 let
 * everybody in (CVE-2023-47090).
 *
 * lead: coordinators. isle: islands and whoever has the join line; asks (c, d), answers what the leader asked (_L), hears
 * the leader's packets (s), questions for its own bytes (g) and answers to its own questions (_I). sys: hears who comes and
 * goes. */
static dlc_err accounts(struct dlc_buf *out, const struct dlc__nats_config *c)
{
    const char *r = c->run;

    DLC_TRY(dlc_buf_printf(out,
                           "accounts {\n"
                           "  DLC {\n"
                           "    jetstream: { max_mem: 16MB, max_file: %" PRIu64 ", max_streams: 64, max_consumers: 64 }\n"
                           "    users: [\n"
                           "      { user: lead, password: \"%s\", permissions: {\n"
                           "          publish: { allow: [ \"dlc.%s.>\", \"_I.%s.>\", \"$JS.API.>\" ] }\n"
                           "          subscribe: { allow: [ \"dlc.%s.>\", \"_L.%s.>\" ] } } }\n",
                           c->max_file_bytes, c->lead_secret, r, r, r, r));
    DLC_TRY(dlc_buf_printf(out,
                           "      { user: isle, password: \"%s\", permissions: {\n"
                           "          publish: { allow: [ \"dlc.%s.c.>\", \"dlc.%s.d.>\", \"_L.%s.>\" ] }\n"
                           "          subscribe: { allow: [ \"dlc.%s.s.>\", \"dlc.%s.g.>\", \"_I.%s.>\" ] } } }\n"
                           "    ]\n"
                           "  }\n",
                           c->isle_secret, r, r, r, r, r, r));
    return dlc_buf_printf(out,
                          "  SYS {\n"
                          "    users: [ { user: sys, password: \"%s\", permissions: {\n"
                          "          publish: { deny: [ \">\" ] }\n"
                          "          subscribe: { allow: [ \"$SYS.ACCOUNT.DLC.>\" ] } } } ]\n"
                          "  }\n"
                          "}\n"
                          "system_account: SYS\n",
                          c->sys_secret);
}

dlc_err dlc__nats_config_format(struct dlc_buf *out, const struct dlc__nats_config *config)
{
    DLC_TRY(general(out, config));
    if (config->tls)
        DLC_TRY(tls(out, config->folder));
    DLC_TRY(jetstream(out, config));
    return accounts(out, config);
}
