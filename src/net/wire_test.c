#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/net_test.h"
#ifdef DLC_HAVE_NATS
#include "net/connect_limits.h"
#endif

static dlc_nats_server *server; /* one for all tests here, over TLS */

static struct dlc_wire_options options_of(bool lead)
{
    return net_options(lead ? dlc_nats_server_lead_url(server) : dlc_nats_server_island_url(server),
                       dlc_nats_server_ca_pem(server));
}

static int set_up(void **state)
{
    struct dlc_nats_server_options options = { .run = RUN, .loopback = true };

    if (net_begin(state) != 0)
        return -1;
    options.folder = net_scratch("server");
    if (dlc_wire_is_built() && dlc_nats_server_start(&server, &options) != DLC_OK)
        server = NULL; /* net_needs_server skips, or the first test fails */
    return 0;
}

static int tear_down(void **state)
{
    dlc_nats_server_stop(server);
    return net_end(state);
}

static void begin(void)
{
    net_needs_server();
    if (!server)
        fail_msg("server: %s", dlc_err_text());
}

static void a_build_without_it_says_so(void **state)
{
    dlc_wire *w;
    struct dlc_wire_options options = { .host = "127.0.0.1", .port = 1, .run = RUN };

    (void)state;
    if (dlc_wire_is_built())
        skip();
    assert_int_equal(dlc_wire_connect(&w, &options), DLC_EFAIL);
    assert_non_null(strstr(dlc_err_text(), "libnats-dev"));
}

/* --- messages --------------------------------------------------------------------------------------------------------
 */

static void expect_next(dlc_wire_sub *sub, const char *subject, const char *text)
{
    struct dlc_wire_msg m;
    bool got;

    if (dlc_wire_next(sub, &m, &got, 5000) != DLC_OK || !got)
        fail_msg("nothing at %s", subject);
    assert_string_equal(m.subject, subject);
    assert_int_equal(m.size_bytes, strlen(text));
    assert_memory_equal(m.bytes, text, m.size_bytes);
    dlc_wire_msg_free(&m);
}

static void questions_find_answers(void **state)
{
    struct dlc_wire_options lead_options, isle_options;
    dlc_wire *lead, *isle;
    dlc_wire_sub *questions, *answers;
    struct dlc_wire_msg m;
    char subject[128];
    bool got;

    (void)state;
    begin();
    lead_options = options_of(true);
    isle_options = options_of(false);
    lead = net_connect(&lead_options);
    isle = net_connect(&isle_options);
    assert_int_equal(dlc_wire_max_payload(isle), 1 << 20);
    assert_int_equal(strncmp(dlc_wire_inbox(isle), "_I." RUN ".", strlen("_I." RUN ".")), 0);
    assert_int_equal(strncmp(dlc_wire_inbox(lead), "_L." RUN ".", strlen("_L." RUN ".")), 0);
    assert_int_equal(dlc_wire_subscribe(&questions, lead, "dlc." RUN ".c.>"), DLC_OK);
    snprintf(subject, sizeof subject, "%s.>", dlc_wire_inbox(isle));
    assert_int_equal(dlc_wire_subscribe(&answers, isle, subject), DLC_OK);

    snprintf(subject, sizeof subject, "%s.7.8", dlc_wire_inbox(isle));
    assert_int_equal(dlc_wire_publish(isle, "dlc." RUN ".c.q", subject, "why", 3), DLC_OK);
    assert_int_equal(dlc_wire_next(questions, &m, &got, 5000), DLC_OK);
    assert_true(got && m.reply);
    assert_string_equal(m.reply, subject);
    assert_int_equal(dlc_wire_publish(lead, m.reply, NULL, "so", 2), DLC_OK);
    dlc_wire_msg_free(&m);
    expect_next(answers, subject, "so");
    assert_int_equal(dlc_wire_next(answers, &m, &got, 0), DLC_OK);
    assert_false(got);

    /* Nobody listens there: that is said, and the subscription goes on. */
    assert_int_equal(dlc_wire_publish(isle, "dlc." RUN ".d.nobody", subject, "why", 3), DLC_OK);
    assert_int_equal(dlc_wire_next(answers, &m, &got, 5000), DLC_OK);
    assert_true(got && m.no_responders);
    dlc_wire_msg_free(&m);
    assert_int_equal(dlc_wire_publish(lead, subject, NULL, "still", 5), DLC_OK);
    expect_next(answers, subject, "still");

    assert_int_equal(dlc_wire_request(isle, "dlc." RUN ".d.b", "x", 1, &m, &got, 5000), DLC_OK);
    assert_true(got && m.no_responders);
    dlc_wire_msg_free(&m);
    assert_int_equal(dlc_wire_request(isle, "dlc." RUN ".c.q", "x", 1, &m, &got, 100), DLC_OK);
    assert_false(got); /* somebody listens and does not answer */
    dlc_wire_close(lead);
    dlc_wire_close(isle);
}

static void what_is_too_long_is_refused_here(void **state)
{
    struct dlc_wire_options options;
    size_t n = (1 << 20) + 1;
    char *bytes = calloc(1, n);
    dlc_wire *w;

    (void)state;
    begin();
    options = options_of(true);
    w = net_connect(&options);
    assert_int_equal(dlc_wire_publish(w, "dlc." RUN ".s.x", NULL, bytes, n - 1), DLC_OK);
    assert_int_equal(dlc_wire_publish(w, "dlc." RUN ".s.x", NULL, bytes, n), DLC_EFAIL);
    assert_non_null(strstr(dlc_err_text(), "1048577"));
    dlc_wire_close(w);
    free(bytes);
}

/* --- ends of waits ---------------------------------------------------------------------------------------------------
 */

static void *wait_for_ever(void *self)
{
    struct dlc_wire_msg m;
    bool got;

    while (dlc_wire_next(self, &m, &got, 100000) == DLC_OK)
        dlc_wire_msg_free(&m);
    return NULL;
}

static void stopping_ends_every_wait(void **state)
{
    struct dlc_wire_options options;
    pthread_t threads[3];
    dlc_wire *w;
    double began_s;

    (void)state;
    begin();
    options = options_of(true);
    w = net_connect(&options);
    for (int i = 0; i < 3; i++) {
        dlc_wire_sub *sub;

        assert_int_equal(dlc_wire_subscribe(&sub, w, "dlc." RUN ".c.>"), DLC_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_ever, sub), 0);
    }
    net_sleep_ms(50);
    began_s = dlc_now_s();
    dlc_wire_stop(w);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    if (dlc_now_s() - began_s > 5)
        fail_msg("took %.1f s", dlc_now_s() - began_s);
    assert_int_equal(dlc_wire_publish(w, "dlc." RUN ".s.x", NULL, "x", 1), DLC_EPEER);
    dlc_wire_close(w);
}

struct flood {
    dlc_wire *w;
    atomic_bool stop;
};

static void *flood(void *self)
{
    struct flood *f = self;
    static const char bytes[512];

    while (!atomic_load(&f->stop))
        if (dlc_wire_publish(f->w, "dlc." RUN ".c.flood", NULL, bytes, sizeof bytes) != DLC_OK)
            break;
    return NULL;
}

/* The library frees a subscription while its reading thread puts a message there: died within seconds. */
static void closing_under_traffic_is_safe(void **state)
{
    struct dlc_wire_options options;
    struct flood f = { 0 };
    pthread_t thread;

    (void)state;
    begin();
    options = options_of(true);
    f.w = net_connect(&options);
    assert_int_equal(pthread_create(&thread, NULL, flood, &f), 0);
    for (int i = 0; i < 15; i++) {
        dlc_wire *w = net_connect(&options);
        dlc_wire_sub *sub;

        assert_int_equal(dlc_wire_subscribe(&sub, w, "dlc." RUN ".c.>"), DLC_OK);
        net_sleep_ms(10);
        dlc_wire_close(w);
    }
    atomic_store(&f.stop, true);
    pthread_join(thread, NULL);
    dlc_wire_close(f.w);
}

/* --- breaks ----------------------------------------------------------------------------------------------------------
 */

struct states {
    atomic_int n_up, n_down;
};

static void on_state(void *self, bool connected)
{
    struct states *s = self;

    atomic_fetch_add(connected ? &s->n_up : &s->n_down, 1);
}

static void wait_for_state(const dlc_wire *w, bool connected)
{
    for (int i = 0; i < 2000 && dlc_wire_is_connected(w) != connected; i++)
        net_sleep_ms(10);
    if (dlc_wire_is_connected(w) != connected)
        fail_msg("not %s after 20 s", connected ? "connected" : "disconnected");
}

/* What is published while there is no connection must not come when it has long been overtaken. */
static void nothing_comes_late(void **state)
{
    struct states states = { 0 };
    struct dlc_wire_options options;
    struct dlc_wire_msg m;
    dlc_wire *w;
    dlc_wire_sub *sub;
    bool restarted = false, got;
    double began_s;

    (void)state;
    begin();
    options = options_of(true);
    options.on_state = on_state;
    options.self = &states;
    w = net_connect(&options);
    assert_int_equal(dlc_wire_subscribe(&sub, w, "dlc." RUN ".c.>"), DLC_OK);
    kill((pid_t)dlc_nats_server_pid(server), SIGKILL);
    wait_for_state(w, false);
    began_s = dlc_now_s();
    assert_int_equal(dlc_wire_publish(w, "dlc." RUN ".c.late", NULL, "late", 4), DLC_EPEER);
    assert_int_equal(dlc_wire_request(w, "dlc." RUN ".c.late", "late", 4, &m, &got, 5000), DLC_EPEER);
    if (dlc_now_s() - began_s > 1)
        fail_msg("saying that there is no connection took %.1f s", dlc_now_s() - began_s);
    while (!restarted)
        assert_int_equal(dlc_nats_server_watch(server, &restarted), DLC_OK);
    wait_for_state(w, true);
    assert_int_equal(atomic_load(&states.n_down), 1);
    assert_int_equal(atomic_load(&states.n_up), 1);
    assert_int_equal(dlc_wire_publish(w, "dlc." RUN ".c.new", NULL, "new", 3), DLC_OK);
    expect_next(sub, "dlc." RUN ".c.new", "new"); /* subscribed again by itself */
    dlc_wire_close(w);
}

static void connect_fails(const struct dlc_wire_options *options, const char *words, double within_s, const char *why)
{
    double began_s = dlc_now_s();
    dlc_wire *w;
    dlc_err err = dlc_wire_connect(&w, options);

    if (err != DLC_EPEER || w || !strstr(dlc_err_text(), words))
        fail_msg("%s: %d, %s", why, err, dlc_err_text());
    if (strstr(dlc_err_text(), options->secret))
        fail_msg("%s: the secret is in the message: %s", why, dlc_err_text());
    if (dlc_now_s() - began_s > within_s)
        fail_msg("%s: took %.1f s", why, dlc_now_s() - began_s);
}

#define INFO_REST "\"version\":\"2.9.10\",\"proto\":1,\"max_payload\":1048576,\"headers\":true"

/* The library has no limit for the handshake: without connect_limits.c this does not end. */
static void a_stalled_handshake_ends(void **state)
{
    struct dlc_wire_options options;
    struct fake fake;

    (void)state;
    begin();
#ifdef DLC_HAVE_NATS
    dlc_handshake_limit_ms = 1000;
    fake_begin(&fake, "INFO {" INFO_REST ",\"tls_required\":true}\r\n", MANNER_SILENT);
    options = options_of(false);
    options.port = fake.port;
    connect_fails(&options, "TLS", 8, "a peer that is silent in the handshake");
    fake_end(&fake);
    dlc_handshake_limit_ms = 10000;
#else
    (void)options;
    (void)fake;
#endif
}

/* Without SetSecure the library obeys the server and sends CONNECT with the secret in clear. */
static void a_server_without_tls_is_told_nothing(void **state)
{
    struct dlc_wire_options options;
    struct fake fake;

    (void)state;
    begin();
    fake_begin(&fake, "INFO {" INFO_REST ",\"auth_required\":true}\r\n", MANNER_SILENT);
    options = options_of(false);
    options.port = fake.port;
    connect_fails(&options, "TLS", 8, "a fake server");
    net_sleep_ms(100);
    if (fake.got.len > 0)
        fail_msg("it was told %zu bytes: %s", fake.got.len, fake.got.data);
    fake_end(&fake);
}

static void connecting_tells_what_is_wrong(void **state)
{
    struct dlc_wire_options options;
    struct fake fake;

    (void)state;
    begin();
    options = options_of(false);
    options.secret = "0123456789";
    connect_fails(&options, "refuses the secret", 8, "a wrong secret");
    options = options_of(false);
    options.run = "other";
    connect_fails(&options, "certificate", 8, "another run's certificate");
    fake_begin(&fake, "", MANNER_CLOSE);
    options = options_of(false);
    options.port = fake.port;
    fake_end(&fake);
    connect_fails(&options, "nobody answers", 8, "nothing listens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_build_without_it_says_so),
        cmocka_unit_test(questions_find_answers),
        cmocka_unit_test(what_is_too_long_is_refused_here),
        cmocka_unit_test(stopping_ends_every_wait),
        cmocka_unit_test(closing_under_traffic_is_safe),
        cmocka_unit_test(nothing_comes_late),
        cmocka_unit_test(a_stalled_handshake_ends),
        cmocka_unit_test(a_server_without_tls_is_told_nothing),
        cmocka_unit_test(connecting_tells_what_is_wrong),
    };

    return cmocka_run_group_tests_name("wire", tests, set_up, tear_down);
}
