#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/cert.h"
#include "net/nats_child.h"
#include "net/net_test.h"

static bool same_url(const struct dlc_join_url *a, const struct dlc_join_url *b)
{
    struct dlc_buf x = { 0 }, y = { 0 };
    bool same = dlc_join_url_format(&x, a) == DLC_OK && dlc_join_url_format(&y, b) == DLC_OK && strcmp(x.data, y.data) == 0;

    dlc_buf_fini(&x);
    dlc_buf_fini(&y);
    return same;
}

static void wait_until_gone(pid_t pid)
{
    for (int i = 0; i < 1000; i++) {
        if (kill(pid, 0) != 0 && errno == ESRCH)
            return;
        net_sleep_ms(10);
    }
    fail_msg("process %ld is still there after 10 s", (long)pid);
}

/* A folder whose name needs every kind of quoting; islands keep their join line over restarts. */
static void a_folder_is_used_again(void **state)
{
    const char *folder = net_scratch("a \"folder\" \\with $HOME # {odd}");
    struct dlc_join_url island, lead;
    dlc_nats_server *s;

    (void)state;
    net_needs_server();
    s = net_server(folder, false);
    island = *dlc_nats_server_island_url(s);
    lead = *dlc_nats_server_lead_url(s);
    assert_string_equal(island.host, "127.0.0.1");
    assert_string_equal(island.user, "isle");
    assert_string_not_equal(island.secret, lead.secret);
    assert_string_not_equal(island.secret, dlc_nats_server_sys_secret(s));
    dlc_nats_server_stop(s);
    s = net_server(folder, false);
    if (!same_url(&island, dlc_nats_server_island_url(s)) || !same_url(&lead, dlc_nats_server_lead_url(s)))
        fail_msg("the join line changed; port %d, then %d", island.port, dlc_nats_server_island_url(s)->port);
    dlc_nats_server_stop(s);
}

static void everything_in_it_is_private(void **state)
{
    const char *folder = net_scratch("private");
    struct dlc_names names;
    struct stat st;
    dlc_nats_server *s;

    (void)state;
    net_needs_server();
    umask(0);
    s = net_server(folder, false);
    umask(022);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(dlc_list_folder(&names, folder), DLC_OK);
    assert_true(names.n >= 6);
    for (size_t i = 0; i < names.n; i++) {
        assert_int_equal(stat(net_scratch("private/%s", names.names[i]), &st), 0);
        if ((st.st_mode & 077) != 0 && strcmp(names.names[i], "lock") != 0)
            fail_msg("%s has mode %o", names.names[i], (unsigned)st.st_mode & 07777);
    }
    dlc_names_free(&names);
    dlc_nats_server_stop(s);
}

static void two_on_one_store_are_refused(void **state)
{
    const char *folder = net_scratch("locked");
    struct dlc_nats_server_options options = { .folder = folder, .run = RUN, .loopback = true };
    dlc_nats_server *s, *second;
    dlc_err err;

    (void)state;
    net_needs_server();
    s = net_server(folder, true);
    err = dlc_nats_server_start(&second, &options);
    if (err != DLC_EINPUT)
        fail_msg("%d, %s", err, dlc_err_text());
    assert_null(second);
    dlc_nats_server_stop(s);
}

static void watch_until_restarted(dlc_nats_server *s, const char *why)
{
    double began_s = dlc_now_s();
    bool restarted = false;

    while (!restarted) {
        if (dlc_nats_server_watch(s, &restarted) != DLC_OK)
            fail_msg("%s: %s", why, dlc_err_text());
        if (dlc_now_s() - began_s > 60)
            fail_msg("%s: not restarted within a minute", why);
        net_sleep_ms(20);
    }
}

static void a_killed_one_comes_back(void **state)
{
    dlc_nats_server *s;
    struct dlc_wire_options options;
    struct dlc_wire_msg answer;
    dlc_wire *w;
    pid_t before;
    bool restarted, got = false;

    (void)state;
    net_needs_server();
    s = net_server(NULL, false);
    options = net_options(dlc_nats_server_island_url(s), dlc_nats_server_ca_pem(s));
    w = net_connect(&options);
    assert_int_equal(dlc_nats_server_watch(s, &restarted), DLC_OK);
    assert_false(restarted);
    for (int i = 0; i < 2; i++) {
        before = (pid_t)dlc_nats_server_pid(s);
        kill(before, SIGKILL);
        watch_until_restarted(s, "kill");
        assert_int_not_equal(before, dlc_nats_server_pid(s));
        got = false;
        for (int k = 0; k < 500 && !got; k++) { /* our own connection is back without our doing */
            if (dlc_wire_request(w, "dlc." RUN ".c.x", "", 0, &answer, &got, 1000) != DLC_OK)
                net_sleep_ms(20);
        }
        if (!got || !answer.no_responders)
            fail_msg("after kill %d: no connection: %s", i, dlc_err_text());
        dlc_wire_msg_free(&answer);
    }
    dlc_wire_close(w);
    dlc_nats_server_stop(s);
}

static void a_hanging_one_is_replaced(void **state)
{
    struct dlc_nats_server_options options = { .folder = net_scratch("hangs"), .run = RUN, .insecure = true,
                                               .loopback = true, .silence_s = 1.0 };
    dlc_nats_server *s;
    pid_t before;

    (void)state;
    net_needs_server();
    assert_int_equal(dlc_nats_server_start(&s, &options), DLC_OK);
    before = (pid_t)dlc_nats_server_pid(s);
    kill(before, SIGSTOP);
    watch_until_restarted(s, "SIGSTOP");
    wait_until_gone(before);
    dlc_nats_server_stop(s);
}

/* Killed without a chance to tidy up. */
static void it_never_outlives_us(void **state)
{
    int ends[2];
    pid_t pid, server = 0;

    (void)state;
    net_needs_server();
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        /* A fresh process: the library does not survive a fork. */
        dup2(ends[1], 3);
        execl("/proc/self/exe", "test", "serve", net_scratch("orphan"), (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], &server, sizeof server) != (ssize_t)sizeof server)
        fail_msg("the other process did not start a server");
    close(ends[0]);
    assert_int_equal(kill(server, 0), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    wait_until_gone(server);
}

static int serve(const char *folder)
{
    struct dlc_nats_server_options options = { .folder = folder, .run = RUN, .loopback = true };
    dlc_nats_server *s;
    pid_t server;

    if (dlc_nats_server_start(&s, &options) != DLC_OK)
        return 1;
    server = (pid_t)dlc_nats_server_pid(s);
    if (write(3, &server, sizeof server) != (ssize_t)sizeof server)
        return 1;
    for (;;)
        pause();
}

static int occupied_port(int *fd)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(*fd, 1), 0);
    assert_int_equal(getsockname(*fd, (struct sockaddr *)&at, &size), 0);
    return ntohs(at.sin_port);
}

static void what_cannot_start_says_why(void **state)
{
    char taken[32];
    int fd;
    struct row {
        const char *run, *program, *listen, *words;
        dlc_err code;
    } rows[] = {
        { RUN, "no-such-server", NULL, "nats-server (Debian", DLC_EUSAGE },
        { RUN, "/no/such/nats-server", NULL, "/no/such/nats-server", DLC_EUSAGE },
        { RUN, "true", NULL, "is not a nats-server", DLC_EUSAGE },
        { "a.b", NULL, NULL, "run's name", DLC_EUSAGE },
        { "", NULL, NULL, "run's name", DLC_EUSAGE },
        { RUN, NULL, taken, "address already in use", DLC_EPEER },
        { RUN, NULL, "127.0.0.1:65536", "HOST:PORT", DLC_EUSAGE },
        { RUN, NULL, "127.0.0.1\":1", "neither a name nor an address", DLC_EUSAGE },
    };

    (void)state;
    net_needs_server();
    snprintf(taken, sizeof taken, "127.0.0.1:%d", occupied_port(&fd));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_nats_server_options options = { .folder = net_scratch("bad-%zu", i), .run = rows[i].run,
                                                   .program = rows[i].program, .listen = rows[i].listen };
        dlc_nats_server *s;
        dlc_err err = dlc_nats_server_start(&s, &options);

        if (err != rows[i].code || !strstr(dlc_err_text(), rows[i].words))
            fail_msg("row %zu: %d, %s", i, err, dlc_err_text());
    }
    close(fd);
}

static void islands_get_a_reachable_address(void **state)
{
    static const struct {
        const char *listen, *host, *why;
    } rows[] = {
        { NULL, NULL, "the first that others can reach" },
        { "127.0.0.1", "127.0.0.1", "loopback because it was asked for" },
        { "training.example.org", "training.example.org", "a name: ours behind a router" },
        { "203.0.113.9", "203.0.113.9", "an address that is not this machine's" },
    };

    (void)state;
    net_needs_server();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_nats_server_options options = { .folder = net_scratch("reach-%zu", i), .run = RUN,
                                                   .listen = rows[i].listen };
        dlc_nats_server *s;
        dlc_err err = dlc_nats_server_start(&s, &options);
        const char *host;

        if (err == DLC_EUSAGE && !rows[i].host && strstr(dlc_err_text(), "no address")) {
            print_message("this machine has no network\n");
            continue;
        }
        if (err != DLC_OK)
            fail_msg("%s: %s", rows[i].why, dlc_err_text());
        host = dlc_nats_server_island_url(s)->host;
        if (rows[i].host ? strcmp(host, rows[i].host) != 0 : strncmp(host, "127.", 4) == 0)
            fail_msg("%s: %s", rows[i].why, host);
        dlc_nats_server_stop(s);
    }
}

static void certificates_are_made_once(void **state)
{
    const char *addresses[] = { "127.0.0.1", "::1", "host.example.org" }, *bad[] = { "a,DNS:evil" };
    struct dlc_sha256 first, second;
    struct dlc_buf pem = { 0 };
    struct stat st;

    (void)state;
    assert_int_equal(dlc_cert_make(net_scratch("cert"), RUN, addresses, 3), DLC_OK);
    assert_int_equal(dlc_cert_pin(&first, &pem, net_scratch("cert")), DLC_OK);
    assert_int_equal(dlc_cert_make(net_scratch("cert"), RUN, addresses, 3), DLC_OK);
    assert_int_equal(dlc_cert_pin(&second, &pem, net_scratch("cert")), DLC_OK);
    assert_true(dlc_sha256_equal(&first, &second));
    assert_int_equal(stat(net_scratch("cert/server.key"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(dlc_cert_make(net_scratch("cert2"), RUN, bad, 1), DLC_EUSAGE);

    unlink(net_scratch("cert/server.pem")); /* killed half-way: the whole set is made anew */
    assert_int_equal(dlc_cert_make(net_scratch("cert"), RUN, addresses, 3), DLC_OK);
    assert_int_equal(dlc_cert_pin(&second, &pem, net_scratch("cert")), DLC_OK);
    assert_false(dlc_sha256_equal(&first, &second));
    dlc_buf_fini(&pem);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificates_are_made_once),
        cmocka_unit_test(a_folder_is_used_again),
        cmocka_unit_test(everything_in_it_is_private),
        cmocka_unit_test(two_on_one_store_are_refused),
        cmocka_unit_test(a_killed_one_comes_back),
        cmocka_unit_test(it_never_outlives_us),
        cmocka_unit_test(what_cannot_start_says_why),
        cmocka_unit_test(islands_get_a_reachable_address),
        cmocka_unit_test(a_hanging_one_is_replaced),
    };

    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2]);
    return cmocka_run_group_tests_name("nats_server", tests, net_begin, net_end);
}
