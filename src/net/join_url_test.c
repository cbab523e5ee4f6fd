#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "net/join_url.h"

#define PIN "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
#define SECRET "5ecre7"

static void good_ones_come_back(void **state)
{
    static const struct {
        const char *text, *user, *secret, *host, *run, *why;
        int port;
        bool tls;
    } rows[] = {
        { "nats+tls://isle:abc@10.0.0.7:4222/7f3a?pin=" PIN, "isle", "abc", "10.0.0.7", "7f3a", "as printed", 4222, true },
        { "nats+tls://isle:abc@[2001:db8::7]:4222/r?pin=" PIN, "isle", "abc", "2001:db8::7", "r", "IPv6", 4222, true },
        { "nats://isle:abc@host-1.example.org:1/A_b-9", "isle", "abc", "host-1.example.org", "A_b-9", "insecure", 1,
          false },
        { "nats://u%2B:p%40%3A%2Fx@h:65535/r", "u+", "p@:/x", "h", "r", "a secret with every separator in it", 65535,
          false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_join_url url;
        struct dlc_buf text = { 0 };

        if (dlc_join_url_parse(&url, rows[i].text) != DLC_OK)
            fail_msg("%s: %s", rows[i].why, dlc_err_text());
        assert_string_equal(url.user, rows[i].user);
        assert_string_equal(url.secret, rows[i].secret);
        assert_string_equal(url.host, rows[i].host);
        assert_string_equal(url.run, rows[i].run);
        assert_int_equal(url.port, rows[i].port);
        assert_int_equal(url.tls, rows[i].tls);
        for (int k = 0; rows[i].tls && k < DLC_SHA256_BYTES; k++)
            assert_int_equal(url.pin.bytes[k], k);
        assert_int_equal(dlc_join_url_format(&text, &url), DLC_OK);
        assert_string_equal(text.data, rows[i].text);
        dlc_buf_fini(&text);
    }
}

static void bad_ones_name_the_part(void **state)
{
    static const struct {
        const char *text, *part, *why;
    } rows[] = {
        { "", "beginning", "empty" },
        { "http://isle:" SECRET "@h:1/r", "beginning", "another protocol" },
        { "nats+tls://", "secret", "nothing after the beginning" },
        { "nats+tls://h:4222/r?pin=" PIN, "secret", "no user" },
        { "nats+tls://isle@h:4222/r?pin=" PIN, "secret", "no secret" },
        { "nats+tls://isle:@h:4222/r?pin=" PIN, "secret", "an empty one" },
        { "nats+tls://:" SECRET "@h:4222/r?pin=" PIN, "user", "an empty user" },
        { "nats+tls://isle:" SECRET "%2@h:4222/r?pin=" PIN, "secret", "half an escape" },
        { "nats+tls://isle:" SECRET "%00@h:4222/r?pin=" PIN, "secret", "a zero byte" },
        { "nats+tls://isle:" SECRET " @h:4222/r?pin=" PIN, "secret", "a blank" },
        { "nats+tls://isle:" SECRET "@:4222/r?pin=" PIN, "host", "no host" },
        { "nats+tls://isle:" SECRET "@a b:4222/r?pin=" PIN, "host", "a blank in it" },
        { "nats+tls://isle:" SECRET "@[10.0.0.1]:4222/r?pin=" PIN, "host", "brackets without IPv6" },
        { "nats+tls://isle:" SECRET "@[::1:4222/r?pin=" PIN, "host", "no second bracket" },
        { "nats+tls://isle:" SECRET "@[::1]4222/r?pin=" PIN, "port", "no colon" },
        { "nats+tls://isle:" SECRET "@h/r?pin=" PIN, "port", "no port" },
        { "nats+tls://isle:" SECRET "@h:0/r?pin=" PIN, "port", "port 0" },
        { "nats+tls://isle:" SECRET "@h:65536/r?pin=" PIN, "port", "one too many" },
        { "nats+tls://isle:" SECRET "@h:99999999999999999999/r?pin=" PIN, "port", "no overflow" },
        { "nats+tls://isle:" SECRET "@h:-1/r?pin=" PIN, "port", "a sign" },
        { "nats+tls://isle:" SECRET "@h:4222", "run", "no run" },
        { "nats+tls://isle:" SECRET "@h:4222/?pin=" PIN, "run", "an empty run" },
        { "nats+tls://isle:" SECRET "@h:4222/a.b?pin=" PIN, "run", "a dot would be another subject" },
        { "nats+tls://isle:" SECRET "@h:4222/*?pin=" PIN, "run", "a wildcard" },
        { "nats+tls://isle:" SECRET "@h:4222/123456789012345678901234567890123?pin=" PIN, "run", "33 characters" },
        { "nats+tls://isle:" SECRET "@h:4222/r", "pin", "TLS without a pin would trust anybody" },
        { "nats+tls://isle:" SECRET "@h:4222/r?pin=" PIN "A", "pin", "too long" },
        { "nats+tls://isle:" SECRET "@h:4222/r?pin=AAEC", "pin", "cut off" },
        { "nats+tls://isle:" SECRET "@h:4222/r?pin=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9", "pin", "bits left over" },
        { "nats://isle:" SECRET "@h:4222/r?pin=" PIN, "end", "a pin that nobody would look at" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_join_url url;
        dlc_err err = dlc_join_url_parse(&url, rows[i].text);

        if (err != DLC_EUSAGE || !strstr(dlc_err_text(), rows[i].part))
            fail_msg("%s (%s): %d, %s", rows[i].text, rows[i].why, err, dlc_err_text());
        if (strstr(dlc_err_text(), SECRET))
            fail_msg("%s: the message has the secret in it: %s", rows[i].why, dlc_err_text());
        assert_int_equal(url.port, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones_come_back),
        cmocka_unit_test(bad_ones_name_the_part),
    };

    return cmocka_run_group_tests_name("join_url", tests, NULL, NULL);
}
