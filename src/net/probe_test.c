#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/addresses.h"
#include "net/net_test.h"
#include "net/probe.h"

static void the_first_line_is_taken_apart(void **state)
{
    static const struct {
        const char *line, *why;
        bool good, tls;
    } rows[] = {
        { "INFO {\"version\":\"2.9.10\",\"server_name\":\"a\",\"max_payload\":1048576,\"tls_required\":true}\r", "ours", true,
          true },
        { "INFO {\"version\":\"2.9.10\",\"max_payload\":100}", "no TLS", true, false },
        { "INFO {\"version\":\"2.9.10\",\"max_payload\":100,\"tls_available\":true}", "TLS when wanted", true, true },
        { "", "nothing", false, false },
        { "INFO ", "no JSON", false, false },
        { "INFO []", "no object", false, false },
        { "INFO {\"version\":\"2.9.10\"}", "no max_payload", false, false },
        { "INFO {\"version\":\"2.9.10\",\"max_payload\":-5}", "a negative one", false, false },
        { "INFO {\"version\":7,\"max_payload\":5}", "version of another type", false, false },
        { "SSH-2.0-OpenSSH_9.2p1", "another service", false, false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_nats_info info;
        dlc_err err = dlc_nats_info_parse(&info, rows[i].line, strlen(rows[i].line));

        if ((err == DLC_OK) != rows[i].good || info.tls != rows[i].tls)
            fail_msg("%s: %d, tls %d, %s", rows[i].why, err, info.tls, dlc_err_text());
    }
}

/* What a message says to somebody's terminal is not the server's to decide. */
static void a_hostile_version_is_harmless(void **state)
{
    static const char line[] = "INFO {\"version\":\"\\u001b[31m2.9.10 and a text that is far longer than any version's\","
                               "\"max_payload\":5}";
    struct dlc_nats_info info;

    (void)state;
    assert_int_equal(dlc_nats_info_parse(&info, line, sizeof line - 1), DLC_OK);
    assert_null(strchr(info.version, '\033'));
    assert_int_equal(strlen(info.version), sizeof info.version - 1);
}

static void probe_fails(const struct dlc_join_url *url, const char *words, const char *why)
{
    struct dlc_probe_result result;
    struct dlc_buf ca_pem = { 0 };
    double began_s = dlc_now_s();
    dlc_err err = dlc_probe(&result, &ca_pem, url, 0.5);

    if (err != DLC_EPEER || !strstr(dlc_err_text(), words))
        fail_msg("%s: %d, %s", why, err, dlc_err_text());
    if (strstr(dlc_err_text(), url->secret))
        fail_msg("%s: the secret is in the message", why);
    if (dlc_now_s() - began_s > 10.0)
        fail_msg("%s: took %.1f s of at most 0.5", why, dlc_now_s() - began_s);
    dlc_buf_fini(&ca_pem);
}

static struct dlc_join_url url_to(int port, bool tls)
{
    struct dlc_join_url url = { .tls = tls, .user = "isle", .secret = "the-secret", .host = "127.0.0.1", .port = port,
                                .run = RUN };

    return url;
}

#define INFO_PLAIN "INFO {\"version\":\"2.9.10\",\"max_payload\":1048576}\r\n"
#define INFO_TLS "INFO {\"version\":\"2.9.10\",\"max_payload\":1048576,\"tls_required\":true}\r\n"

static void every_step_has_its_message(void **state)
{
    static const struct {
        const char *greeting, *words, *why;
        enum manner manner;
        bool tls;
    } rows[] = {
        { "", "closes it at once", "a door that opens and shuts", MANNER_CLOSE, true },
        { "", "says nothing", "accepts and is silent", MANNER_SILENT, true },
        { "HTTP/1.1 400 Bad Request\r\n\r\n", "not a NATS server", "another service", MANNER_CLOSE, true },
        { "INFO no json\r\n", "not a NATS server", "almost", MANNER_CLOSE, true },
        { INFO_PLAIN, "has no TLS", "a server that would take the secret in clear", MANNER_SILENT, true },
        { INFO_TLS, "wants TLS", "the other way round", MANNER_SILENT, false },
        { INFO_TLS, "does not end in time", "stops in the handshake", MANNER_SILENT, true },
        { INFO_TLS, "handshake fails", "closes in the handshake", MANNER_CLOSE, true },
    };

    (void)state;
    if (!dlc_wire_is_built())
        skip();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fake fake;
        struct dlc_join_url url;

        fake_begin(&fake, rows[i].greeting, rows[i].manner);
        url = url_to(fake.port, rows[i].tls);
        probe_fails(&url, rows[i].words, rows[i].why);
        if (fake.got.len > 0 && strstr(fake.got.data, "the-secret"))
            fail_msg("%s: it was told the secret", rows[i].why);
        fake_end(&fake);
    }
}

static void names_and_ports_have_theirs(void **state)
{
    struct dlc_join_url url;
    struct fake fake;

    (void)state;
    if (!dlc_wire_is_built())
        skip();
    fake_begin(&fake, "", MANNER_CLOSE);
    url = url_to(fake.port, true);
    fake_end(&fake); /* now nothing listens there */
    probe_fails(&url, "refused", "a port where nothing listens");
    snprintf(url.host, sizeof url.host, "no..such.host");
    probe_fails(&url, "name is not known", "a name that cannot be one (so that no name server is asked)");
}

static void a_line_without_end_is_cut(void **state)
{
    size_t n = (size_t)DLC_NATS_INFO_MAX_BYTES * 4;
    char *text = malloc(n + 1);
    struct fake fake;
    struct dlc_join_url url;

    (void)state;
    if (!dlc_wire_is_built())
        skip();
    memset(text, 'x', n);
    memcpy(text, "INFO ", 5);
    text[n] = '\0';
    fake_begin(&fake, text, MANNER_SILENT);
    url = url_to(fake.port, true);
    probe_fails(&url, "not a NATS server", "INFO that never ends");
    fake_end(&fake);
    free(text);
}

/* --- against a real one ----------------------------------------------------------------------------------------------
 */

static void a_server_of_ours_is_known_by_its_pin(void **state)
{
    struct dlc_probe_result result;
    struct dlc_buf ca_pem = { 0 };
    struct dlc_join_url url;
    dlc_nats_server *s;

    (void)state;
    net_needs_server();
    s = net_server(NULL, false);
    url = *dlc_nats_server_island_url(s);
    if (dlc_probe(&result, &ca_pem, &url, 5.0) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_string_equal(result.address, "127.0.0.1");
    assert_int_equal(result.max_payload, 1 << 20);
    assert_string_equal(ca_pem.data, dlc_nats_server_ca_pem(s));
    assert_true(result.connect_s > 0 && result.tls_s > 0 && result.server_version[0] == '2');

    snprintf(url.run, sizeof url.run, "other");
    probe_fails(&url, "for another run", "the run's name");
    url = *dlc_nats_server_island_url(s);
    url.pin.bytes[31] ^= 1;
    probe_fails(&url, "(pin)", "one bit of the pin");
    url.tls = false;
    probe_fails(&url, "wants TLS", "no TLS");
    dlc_nats_server_stop(s);
    dlc_buf_fini(&ca_pem);
}

static void addresses_are_reachable_ones(void **state)
{
    struct dlc_address all[32];
    size_t n;

    (void)state;
    assert_int_equal(dlc_addresses_list(all, &n, 32), DLC_OK);
    for (size_t i = 0; i < n; i++) {
        if (dlc_address_is_loopback(all[i].text) || strncmp(all[i].text, "fe80", 4) == 0 ||
            strncmp(all[i].text, "169.254.", 8) == 0)
            fail_msg("%s (%s) is not reachable from elsewhere", all[i].text, all[i].interface);
        if (i > 0 && all[i].default_route && !all[i - 1].default_route)
            fail_msg("%s is the default route's and stands behind %s", all[i].text, all[i - 1].text);
    }
    assert_true(dlc_address_is_loopback("127.3.2.1") && dlc_address_is_loopback("::1") &&
                dlc_address_is_loopback("LocalHost"));
    assert_false(dlc_address_is_loopback("10.0.0.1") || dlc_address_is_loopback("fe80::1") || dlc_address_is_loopback(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_line_is_taken_apart),
        cmocka_unit_test(a_hostile_version_is_harmless),
        cmocka_unit_test(every_step_has_its_message),
        cmocka_unit_test(names_and_ports_have_theirs),
        cmocka_unit_test(a_line_without_end_is_cut),
        cmocka_unit_test(a_server_of_ours_is_known_by_its_pin),
        cmocka_unit_test(addresses_are_reachable_ones),
    };

    return cmocka_run_group_tests_name("probe", tests, net_begin, net_end);
}
