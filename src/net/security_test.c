/* Who gets in, and what who is in may do, against the configuration that coordinate generates. docs/security.md says what
 * is promised. The configurations of CVE-2023-47090 are the negative control: the same questions that find every door
 * of ours shut must find theirs open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/nats_child.h"
#include "net/net_test.h"
#include "net/probe.h"

static dlc_nats_server *server; /* ours, TLS */
static struct raw silent;       /* opened first, looked at last: it says nothing */
static double silent_since_s;

static int set_up(void **state)
{
    struct dlc_nats_server_options options = { .run = RUN, .loopback = true };

    if (net_begin(state) != 0)
        return -1;
    options.folder = net_scratch("server");
    if (dlc_wire_is_built() && dlc_nats_server_start(&server, &options) == DLC_OK) {
        raw_open(&silent, dlc_nats_server_lead_url(server)->port, true);
        silent_since_s = dlc_now_s();
    }
    return 0;
}

static int tear_down(void **state)
{
    if (server)
        raw_close(&silent);
    dlc_nats_server_stop(server);
    return net_end(state);
}

static void begin(void)
{
    net_needs_server();
    if (!server)
        fail_msg("server: %s", dlc_err_text());
}

/* --- getting in ------------------------------------------------------------------------------------------------------
 */

enum way { WAY_IN, WAY_CLOSED, WAY_NOTHING };

/* Says `text` and asks for a PONG, which only those get who are in. */
static enum way try_way(int port, bool tls, const char *text)
{
    struct dlc_buf got = { 0 };
    struct raw r;
    bool closed = true, in;

    if (raw_open(&r, port, tls)) {
        raw_send(&r, text);
        raw_send(&r, "PING\r\n");
        raw_read(&r, &got, "PONG", 4.0, &closed);
    }
    raw_close(&r);
    in = got.data && strstr(got.data, "PONG");
    dlc_buf_fini(&got);
    return in ? WAY_IN : closed ? WAY_CLOSED : WAY_NOTHING;
}

static const char *connect_text(const char *user, const char *secret)
{
    static char text[400];

    snprintf(text, sizeof text, "CONNECT {\"verbose\":false,\"user\":\"%s\",\"pass\":\"%s\"}\r\n", user, secret);
    return text;
}

static void only_the_secret_opens(void **state)
{
    const char *isle, *lead, *sys;
    int port;

    (void)state;
    begin();
    port = dlc_nats_server_lead_url(server)->port;
    isle = dlc_nats_server_island_url(server)->secret;
    lead = dlc_nats_server_lead_url(server)->secret;
    sys = dlc_nats_server_sys_secret(server);

    /* Otherwise every row below would pass for the wrong reason. */
    assert_int_equal(try_way(port, true, connect_text("isle", isle)), WAY_IN);
    assert_int_equal(try_way(port, true, connect_text("lead", lead)), WAY_IN);
    assert_int_equal(try_way(port, true, connect_text("sys", sys)), WAY_IN);

    const struct {
        const char *user, *secret, *why;
    } wrong[] = {
        { "isle", "", "no secret" },       { "isle", "0000", "a wrong one" }, { "lead", isle, "an island as the leader" },
        { "sys", isle, "an island as the system" }, { "isle", lead, "the other secret" }, { "", "", "empty user" },
        { "", isle, "no user" },           { "root", isle, "another user" }, { "$G", "", "an account's name" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (try_way(port, true, connect_text(wrong[i].user, wrong[i].secret)) != WAY_CLOSED)
            fail_msg("%s: not closed", wrong[i].why);
}

static void nothing_else_opens(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "CONNECT {\"verbose\":false}\r\n", "no secret at all" },
        { "CONNECT {}\r\n", "an empty CONNECT" },
        { "", "PING alone" },
        { "SUB dlc." RUN ".> 1\r\n", "SUB before CONNECT" },
        { "SUB > 1\r\n", "SUB of everything" },
        { "PUB dlc." RUN ".c.intruder 2\r\nhi\r\n", "PUB before CONNECT" },
        { "CONNECT {\"account\":\"DLC\"}\r\n", "an account by name" },
        { "CONNECT {\"account\":\"DLC\",\"new_account\":true}\r\n", "a new account" },
        { "CONNECT {\"account\":\"$G\"}\r\n", "the global account" },
        { "CONNECT {\"account\":\"SYS\",\"user\":\"sys\"}\r\n", "the system account" },
        { "CONNECT {\"jwt\":\"x\",\"sig\":\"x\"}\r\n", "a token of another kind" },
        { "CONNECT {\"nkey\":\"U\",\"sig\":\"\"}\r\n", "an nkey" },
        { "CONNECT {\"no_responders\":true,\"headers\":true,\"echo\":false}\r\n", "what libraries send" },
        { "INFO {}\r\n+OK\r\n", "as a server" },
        { "GET / HTTP/1.1\r\n\r\n", "HTTP" },
    };
    struct dlc_wire_options options;
    dlc_wire *lead;
    dlc_wire_sub *all;
    struct dlc_wire_msg m;
    bool got;

    (void)state;
    begin();
    options = net_options(dlc_nats_server_lead_url(server), dlc_nats_server_ca_pem(server));
    lead = net_connect(&options);
    assert_int_equal(dlc_wire_subscribe(&all, lead, "dlc." RUN ".>"), DLC_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (try_way(options.port, true, rows[i].text) != WAY_CLOSED)
            fail_msg("%s: not closed", rows[i].why);
    assert_int_equal(dlc_wire_next(all, &m, &got, 200), DLC_OK);
    if (got)
        fail_msg("a stranger's message arrived at %s", m.subject);
    dlc_wire_close(lead);
}

/* The right secret over plain TCP: closed before the server has read it. */
static void without_tls_nobody_gets_in(void **state)
{
    const struct dlc_join_url *url;

    (void)state;
    begin();
    url = dlc_nats_server_island_url(server);
    assert_int_equal(try_way(url->port, false, connect_text("isle", url->secret)), WAY_CLOSED);
    assert_int_equal(try_way(url->port, false, "CONNECT {\"tls_required\":false}\r\n"), WAY_CLOSED);
}

static void insecure_still_wants_the_secret(void **state)
{
    dlc_nats_server *s;
    int port;

    (void)state;
    net_needs_server();
    s = net_server(NULL, true);
    port = dlc_nats_server_lead_url(s)->port;
    assert_int_equal(try_way(port, false, connect_text("isle", dlc_nats_server_island_url(s)->secret)), WAY_IN);
    assert_int_equal(try_way(port, false, "CONNECT {}\r\n"), WAY_CLOSED);
    assert_int_equal(try_way(port, false, connect_text("isle", "wrong")), WAY_CLOSED);
    assert_int_equal(try_way(port, false, connect_text("", "")), WAY_CLOSED);
    dlc_nats_server_stop(s);
}

/* --- the negative control --------------------------------------------------------------------------------------------
 */

/* A server with the text as its configuration, at any port, without TLS. */
static pid_t foreign_server(int *port, const char *name, const char *text)
{
    struct dlc_buf config = { 0 }, ports = { 0 };
    const char *folder = net_scratch("%s", name);
    char program[DLC_PATH_MAX], path[DLC_PATH_MAX];
    pid_t pid;

    assert_int_equal(dlc_mkdir_p(folder), DLC_OK);
    assert_int_equal(dlc_buf_printf(&config, "listen: \"127.0.0.1:-1\"\nports_file_dir: \"%s\"\n%s\n", folder, text), DLC_OK);
    assert_int_equal(dlc_path_join(path, folder, "nats.conf"), DLC_OK);
    assert_int_equal(dlc_file_write_atomic(path, config.data, config.len), DLC_OK);
    assert_int_equal(dlc__nats_find(program, NULL), DLC_OK);
    assert_int_equal(dlc__nats_spawn(&pid, program, folder, -1), DLC_OK);
    snprintf(path, sizeof path, "%s/nats-server_%ld.ports", folder, (long)pid);
    *port = 0;
    for (int i = 0; i < 1000 && *port == 0; i++) {
        const char *colon;

        net_sleep_ms(10);
        if (dlc_file_read(&ports, path, 4096) == DLC_OK && ports.data && (colon = strrchr(ports.data, ':')))
            *port = (int)strtol(colon + 1, NULL, 10);
    }
    dlc_buf_fini(&config);
    dlc_buf_fini(&ports);
    if (*port == 0)
        fail_msg("%s did not start", name);
    return pid;
}

/* CVE-2023-47090 was closed in 2.9.23 and 2.10.2. */
static bool has_the_hole(int port)
{
    struct dlc_join_url url = { .host = "127.0.0.1", .port = port, .run = RUN };
    struct dlc_probe_result result;
    struct dlc_buf none = { 0 };
    int minor = 0, patch = 0;

    if (dlc_probe(&result, &none, &url, 5.0) != DLC_OK || sscanf(result.server_version, "2.%d.%d", &minor, &patch) != 2)
        fail_msg("version: %s", dlc_err_text());
    return minor < 9 || (minor == 9 && patch < 23) || (minor == 10 && patch < 2);
}

static void the_holes_are_seen_where_they_are(void **state)
{
    static const struct {
        const char *name, *text;
        bool open;
    } rows[] = {
        { "hole-a", "authorization { users: [ { user: a, password: b } ] }\naccounts { $SYS { users: [ { user: s, "
                    "password: p } ] } }", true },
        { "hole-b", "accounts { $SYS { users: [ { user: s, password: p } ] } }", true },
        { "hole-c", "accounts { DLC { users: [ { user: s, password: p } ] } }\nsystem_account: DLC", true },
        { "shut", "accounts { DLC { users: [ { user: a, password: b } ] }\nSYS { users: [ { user: s, password: p } ] } }\n"
                  "system_account: SYS", false },
    };

    (void)state;
    net_needs_server();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int port;
        pid_t pid = foreign_server(&port, rows[i].name, rows[i].text);
        enum way way = try_way(port, false, "CONNECT {\"verbose\":false}\r\n");
        bool hole = has_the_hole(port);

        dlc__nats_end(pid, 0);
        if (rows[i].open && !hole) {
            print_message("%s: this version of nats-server has it no longer\n", rows[i].name);
            continue;
        }
        if ((way == WAY_IN) != rows[i].open)
            fail_msg("%s: %s", rows[i].name, way == WAY_IN ? "open" : "shut");
    }
}

/* --- what who is in may do -------------------------------------------------------------------------------------------
 */

static void island_and_lead(dlc_wire **isle, dlc_wire **lead)
{
    struct dlc_wire_options as_lead, as_isle;

    begin();
    as_lead = net_options(dlc_nats_server_lead_url(server), dlc_nats_server_ca_pem(server));
    as_isle = net_options(dlc_nats_server_island_url(server), dlc_nats_server_ca_pem(server));
    as_isle.name = "isle-3/control";
    *lead = net_connect(&as_lead);
    *isle = net_connect(&as_isle);
}

static bool arrives(dlc_wire_sub *sub, int timeout_ms)
{
    struct dlc_wire_msg m;
    bool got;

    assert_int_equal(dlc_wire_next(sub, &m, &got, timeout_ms), DLC_OK);
    dlc_wire_msg_free(&m);
    return got;
}

/* What the server said no to, or nothing: it is told in a callback, a moment later. */
static bool was_refused(dlc_wire *w, uint64_t before)
{
    for (int i = 0; i < 300 && dlc_wire_n_refused(w) == before; i++)
        net_sleep_ms(10);
    return dlc_wire_n_refused(w) > before;
}

static void islands_publish_what_is_theirs(void **state)
{
    static const struct {
        const char *subject, *why;
        bool allowed;
    } rows[] = {
        { "dlc." RUN ".c.join", "a question", true },
        { "dlc." RUN ".c.p.0123", "a packet", true },
        { "dlc." RUN ".d.b", "a question for bytes", true },
        { "_L." RUN ".1.2", "an answer to the leader", true },
        { "dlc." RUN ".s.p.0123", "a packet as the leader", false },
        { "dlc." RUN ".g.0123", "a question to another island", false },
        { "dlc." RUN ".log", "a record", false },
        { "dlc." RUN ".lease", "the lease", false },
        { "dlc.other.c.join", "another run", false },
        { "_I." RUN ".1.2", "an answer to an island", false },
        { "_INBOX.x", "any inbox", false },
        { "$SYS.REQ.SERVER.PING", "the system", false },
        { "$JS.API.INFO", "JetStream", false },
    };
    dlc_wire *isle, *lead;
    dlc_wire_sub *all, *answers;

    (void)state;
    island_and_lead(&isle, &lead);
    assert_int_equal(dlc_wire_subscribe(&all, lead, "dlc." RUN ".>"), DLC_OK);
    assert_int_equal(dlc_wire_subscribe(&answers, lead, "_L." RUN ".>"), DLC_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t before = dlc_wire_n_refused(isle);
        bool arrived;

        assert_int_equal(dlc_wire_publish(isle, rows[i].subject, NULL, "x", 1), DLC_OK);
        if (!rows[i].allowed && !was_refused(isle, before))
            fail_msg("%s (%s): not refused", rows[i].subject, rows[i].why);
        arrived = arrives(rows[i].subject[0] == '_' ? answers : all, rows[i].allowed ? 5000 : 20);
        if (arrived != rows[i].allowed)
            fail_msg("%s (%s): %s", rows[i].subject, rows[i].why, arrived ? "arrived" : "did not arrive");
    }
    dlc_wire_close(isle);
    dlc_wire_close(lead);
}

static void islands_hear_what_is_theirs(void **state)
{
    static const struct {
        const char *pattern, *subject, *why;
        bool allowed;
    } rows[] = {
        { "dlc." RUN ".s.p.0123", "dlc." RUN ".s.p.0123", "the leader's packets", true },
        { "dlc." RUN ".g.0123", "dlc." RUN ".g.0123", "questions for its own bytes", true },
        { "_I." RUN ".0123.>", "_I." RUN ".0123.4", "answers", true },
        { ">", "dlc." RUN ".s.x", "everything", false },
        { "dlc.>", "dlc." RUN ".s.x", "every run", false },
        { "dlc." RUN ".c.>", "dlc." RUN ".c.x", "what others say to the leader", false },
        { "dlc." RUN ".log", "dlc." RUN ".log", "records as they are written", false },
    };
    dlc_wire *isle, *lead;

    (void)state;
    island_and_lead(&isle, &lead);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t before = dlc_wire_n_refused(isle);
        dlc_wire_sub *sub;
        bool arrived;

        assert_int_equal(dlc_wire_subscribe(&sub, isle, rows[i].pattern), DLC_OK);
        if (!rows[i].allowed && !was_refused(isle, before))
            fail_msg("%s (%s): not refused", rows[i].pattern, rows[i].why);
        assert_int_equal(dlc_wire_publish(lead, rows[i].subject, NULL, "x", 1), DLC_OK);
        arrived = arrives(sub, rows[i].allowed ? 5000 : 100);
        if (arrived != rows[i].allowed)
            fail_msg("%s (%s): %s", rows[i].pattern, rows[i].why, arrived ? "heard" : "not heard");
    }
    for (const char *const *at = (const char *const[]){ "_L." RUN ".>", "$SYS.>", "$JS.EVENT.>", "_INBOX.>", NULL }; *at;
         at++) {
        uint64_t before = dlc_wire_n_refused(isle);
        dlc_wire_sub *sub;

        assert_int_equal(dlc_wire_subscribe(&sub, isle, *at), DLC_OK);
        if (!was_refused(isle, before))
            fail_msg("%s: not refused", *at);
    }
    dlc_wire_close(isle);
    dlc_wire_close(lead);
}

static bool ask(struct dlc_buf *out, dlc_wire *w, const char *subject, const char *text, int timeout_ms)
{
    struct dlc_wire_msg m;
    bool got = false;

    dlc_buf_clear(out);
    if (dlc_wire_request(w, subject, text, strlen(text), &m, &got, timeout_ms) != DLC_OK)
        return false;
    got = got && !m.no_responders;
    if (got)
        assert_int_equal(dlc_buf_append(out, m.bytes, m.size_bytes), DLC_OK);
    dlc_wire_msg_free(&m);
    return got;
}

/* The log of records, in JetStream, is the leader's alone. */
static void islands_leave_the_log_alone(void **state)
{
    static const char *const harm[] = {
        "$JS.API.STREAM.PURGE.DLC_LOG", "$JS.API.STREAM.DELETE.DLC_LOG", "$JS.API.STREAM.MSG.DELETE.DLC_LOG",
        "$JS.API.STREAM.INFO.DLC_LOG",  "$JS.API.STREAM.MSG.GET.DLC_LOG", "$JS.API.CONSUMER.CREATE.DLC_LOG",
        "$JS.API.STREAM.CREATE.MINE",   "$JS.API.STREAM.UPDATE.DLC_LOG", "dlc." RUN ".log",
    };
    struct dlc_buf answer = { 0 };
    dlc_wire *isle, *lead;

    (void)state;
    island_and_lead(&isle, &lead);
    if (!ask(&answer, lead, "$JS.API.STREAM.CREATE.DLC_LOG",
             "{\"name\":\"DLC_LOG\",\"subjects\":[\"dlc." RUN ".log\"],\"storage\":\"file\",\"retention\":\"limits\","
             "\"max_bytes\":1048576,\"num_replicas\":1}", 5000) || strstr(answer.data, "\"error\""))
        fail_msg("the leader cannot make the log: %s", answer.data ? answer.data : "no answer");
    if (!ask(&answer, lead, "dlc." RUN ".log", "record", 5000) || !strstr(answer.data, "\"seq\":1"))
        fail_msg("the leader cannot append: %s", answer.data ? answer.data : "no answer");
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++)
        if (ask(&answer, isle, harm[i], "{\"seq\":1}", 150))
            fail_msg("%s: an island is answered %s", harm[i], answer.data);
    if (!ask(&answer, lead, "$JS.API.STREAM.INFO.DLC_LOG", "", 5000) || !strstr(answer.data, "\"messages\":1,"))
        fail_msg("the log: %s", answer.data ? answer.data : "no answer");
    dlc_buf_fini(&answer);
    dlc_wire_close(isle);
    dlc_wire_close(lead);
}

/* The third user hears at once who is gone, and can say nothing. */
static void the_system_user_only_listens(void **state)
{
    struct dlc_wire_options options;
    struct dlc_wire_msg m;
    dlc_wire *isle, *lead, *sys;
    dlc_wire_sub *gone, *all;
    uint64_t before;
    bool got = false;

    (void)state;
    island_and_lead(&isle, &lead);
    options = net_options(dlc_nats_server_lead_url(server), dlc_nats_server_ca_pem(server));
    options.user = "sys";
    options.secret = dlc_nats_server_sys_secret(server);
    sys = net_connect(&options);
    assert_int_equal(dlc_wire_subscribe(&gone, sys, "$SYS.ACCOUNT.DLC.DISCONNECT"), DLC_OK);
    dlc_wire_close(isle);
    for (int i = 0; i < 20 && !got; i++) {
        assert_int_equal(dlc_wire_next(gone, &m, &got, 5000), DLC_OK);
        if (got && !memmem(m.bytes, m.size_bytes, "isle-3/control", 14))
            got = false; /* of an earlier test */
        dlc_wire_msg_free(&m);
    }
    assert_true(got);
    before = dlc_wire_n_refused(sys);
    assert_int_equal(dlc_wire_publish(sys, "$SYS.REQ.SERVER.PING", NULL, "", 0), DLC_OK);
    assert_true(was_refused(sys, before));
    before = dlc_wire_n_refused(sys);
    assert_int_equal(dlc_wire_subscribe(&all, sys, "dlc." RUN ".>"), DLC_OK);
    assert_true(was_refused(sys, before));
    dlc_wire_close(sys);
    dlc_wire_close(lead);
}

/* --- secrets ---------------------------------------------------------------------------------------------------------
 */

static void expect_without(const char *path, const char *const secrets[3], bool required)
{
    struct dlc_buf text = { 0 };
    FILE *file = fopen(path, "rb"); /* /proc's files say that they are empty */
    char bytes[4096];
    size_t n;

    if (!file && !required)
        return;
    if (!file)
        fail_msg("%s cannot be read", path);
    while ((n = fread(bytes, 1, sizeof bytes, file)) > 0)
        assert_int_equal(dlc_buf_append(&text, bytes, n), DLC_OK);
    fclose(file);
    if (required && text.len == 0)
        fail_msg("%s is empty, so it proves nothing", path);
    for (int i = 0; i < 3; i++)
        if (text.len > 0 && memmem(text.data, text.len, secrets[i], strlen(secrets[i])))
            fail_msg("%s has secret %d in it", path, i);
    dlc_buf_fini(&text);
}

/* Also after wrong secrets, refused publishes and breaks, with our own standard error as witness. */
static void secrets_are_nowhere(void **state)
{
    const char *secrets[3], *errors = net_scratch("errors"), *folder = net_scratch("secrets");
    struct dlc_wire_options options;
    dlc_nats_server *s;
    dlc_wire *w, *none;
    FILE *file;
    int old = dup(2);
    long pid;

    (void)state;
    net_needs_server();
    file = fopen(errors, "w");
    fputs("it is written here\n", file);
    fflush(file);
    dup2(fileno(file), 2);
    s = net_server(folder, false);
    pid = dlc_nats_server_pid(s);
    secrets[0] = dlc_nats_server_lead_url(s)->secret;
    secrets[1] = dlc_nats_server_island_url(s)->secret;
    secrets[2] = dlc_nats_server_sys_secret(s);
    options = net_options(dlc_nats_server_island_url(s), dlc_nats_server_ca_pem(s));
    w = net_connect(&options);
    (void)dlc_wire_publish(w, "dlc." RUN ".log", NULL, "x", 1);
    options.user = "lead"; /* with the island's secret */
    assert_int_equal(dlc_wire_connect(&none, &options), DLC_EPEER);
    assert_null(strstr(dlc_err_text(), options.secret));
    try_way(options.port, false, connect_text("isle", options.secret));
    net_sleep_ms(100);
    expect_without(net_scratch("secrets/nats.log"), secrets, true);
    expect_without(net_scratch("secrets/nats.out"), secrets, false);
    for (const char *const *at = (const char *const[]){ "cmdline", "environ", "comm", NULL }; *at; at++) {
        char path[64];

        snprintf(path, sizeof path, "/proc/%ld/%s", pid, *at);
        expect_without(path, secrets, true);
        snprintf(path, sizeof path, "/proc/self/%s", *at);
        expect_without(path, secrets, true);
    }
    dlc_wire_close(w);
    dup2(old, 2);
    close(old);
    fclose(file);
    expect_without(errors, secrets, true);
    dlc_nats_server_stop(s);
}

static void silence_is_cut_off(void **state)
{
    struct dlc_buf got = { 0 };
    bool closed;

    (void)state;
    begin();
    raw_read(&silent, &got, NULL, 15.0, &closed);
    if (!closed)
        fail_msg("still open after %.1f s of silence", dlc_now_s() - silent_since_s);
    assert_true(!got.data || !strstr(got.data, "PONG"));
    dlc_buf_fini(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_secret_opens),
        cmocka_unit_test(nothing_else_opens),
        cmocka_unit_test(without_tls_nobody_gets_in),
        cmocka_unit_test(insecure_still_wants_the_secret),
        cmocka_unit_test(the_holes_are_seen_where_they_are),
        cmocka_unit_test(islands_publish_what_is_theirs),
        cmocka_unit_test(islands_hear_what_is_theirs),
        cmocka_unit_test(islands_leave_the_log_alone),
        cmocka_unit_test(the_system_user_only_listens),
        cmocka_unit_test(secrets_are_nowhere),
        cmocka_unit_test(silence_is_cut_off),
    };

    return cmocka_run_group_tests_name("security", tests, set_up, tear_down);
}
