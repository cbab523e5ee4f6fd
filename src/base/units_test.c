/* Quantities with units: what is accepted, what is refused, how they are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/units.h"

static void rates_are_read(void **state)
{
    static const struct {
        const char *text;
        double bits_per_s;
        const char *why;
    } rows[] = {
        { "100mbit", 100e6, "the usual form" }, { "2.5gbit", 2.5e9, "a fraction" },
        { "56kbit", 56e3, "a modem" },          { "1bit", 1, "the smallest unit" },
        { "1tbit", 1e12, "the largest unit" },  { "100Mbit", 100e6, "upper case" },
        { "10 gbit", 10e9, "a space" },         { "1e2mbit", 100e6, "an exponent" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double v = -1;
        dlc_err err = dlc_parse_rate(&v, rows[i].text, "--link");

        if (err != DLC_OK || fabs(v - rows[i].bits_per_s) > 1e-9 * rows[i].bits_per_s)
            fail_msg("%s: '%s' is %g, expected %g (%s)", rows[i].why, rows[i].text, v, rows[i].bits_per_s,
                     err == DLC_OK ? "no error" : dlc_err_text());
    }
}

static void durations_are_read(void **state)
{
    static const struct {
        const char *text;
        double s;
        const char *why;
    } rows[] = {
        { "80ms", 0.08, "the usual form" },
        { "2.0", 2, "a bare number is seconds" },
        { "0", 0, "none" },
        { "90 s", 90, "a space" },
        { "2min", 120, "minutes" },
        { "1.5H", 5400, "upper case" },
        { "250us", 250e-6, "microseconds" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double v = -1;
        dlc_err err = dlc_parse_duration(&v, rows[i].text, "--latency");

        if (err != DLC_OK || fabs(v - rows[i].s) > 1e-12 + 1e-9 * rows[i].s)
            fail_msg("%s: '%s' is %g, expected %g", rows[i].why, rows[i].text, v, rows[i].s);
    }
}

static void what_is_not_a_quantity_is_refused(void **state)
{
    static const struct {
        dlc_err (*parse)(double *, const char *, const char *);
        const char *text, *why;
    } rows[] = {
        { dlc_parse_rate, "", "nothing" },
        { dlc_parse_rate, "100", "bits, bytes, kilobits?" },
        { dlc_parse_rate, "mbit", "no number" },
        { dlc_parse_rate, "100mb", "bits or bytes?" },
        { dlc_parse_rate, "100mbits", "more behind the unit" },
        { dlc_parse_rate, "100 ", "a space and nothing" },
        { dlc_parse_rate, "100  mbit", "two spaces" },
        { dlc_parse_rate, "0mbit", "a link that carries nothing" },
        { dlc_parse_rate, "-1mbit", "negative" },
        { dlc_parse_rate, "1e30gbit", "no link is that fast" },
        { dlc_parse_rate, "infbit", "not a number" },
        { dlc_parse_rate, "0x10mbit", "hexadecimal" },
        { dlc_parse_rate, "..mbit", "points only" },
        { dlc_parse_duration, "", "nothing" },
        { dlc_parse_duration, "-1", "negative" },
        { dlc_parse_duration, "1e20", "too long" },
        { dlc_parse_duration, "80mss", "more behind the unit" },
        { dlc_parse_duration, "nan", "not a number" },
        { dlc_parse_duration, "1.2.3", "two points" },
        { dlc_parse_duration, "5 ", "a space and nothing" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double v = 7;
        dlc_err err = rows[i].parse(&v, rows[i].text, "--flag");

        if (err != DLC_EUSAGE || v != 7 || !strstr(dlc_err_text(), "--flag: '"))
            fail_msg("%s: '%s' gave error %d, value %g: %s", rows[i].why, rows[i].text, (int)err, v, dlc_err_text());
    }
}

static void quantities_are_written(void **state)
{
    static const struct {
        void (*format)(char *, double);
        double v;
        const char *text, *why;
    } rows[] = {
        { dlc_format_bytes, 0, "0 B", "nothing" },
        { dlc_format_bytes, 999, "999 B", "no fraction of a byte" },
        { dlc_format_bytes, 999.6, "1 kB", "rounds into the next unit" },
        { dlc_format_bytes, 1.5e9, "1.5 GB", "a fraction" },
        { dlc_format_bytes, 123.4e12, "123 TB", "three digits" },
        { dlc_format_bytes, 5e21, "5000 EB", "beyond the last unit" },
        { dlc_format_rate, 100e6, "100 Mbit/s", "a link" },
        { dlc_format_rate, 0.5, "0.5 bit/s", "below the first unit" },
        { dlc_format_rate, INFINITY, "-", "never" },
        { dlc_format_duration, 0, "0 s", "at once" },
        { dlc_format_duration, 0.08, "80 ms", "a delay" },
        { dlc_format_duration, 100, "1.67 min", "minutes" },
        { dlc_format_duration, 864000, "10 days", "days" },
        { dlc_format_duration, 1e9, "31.7 years", "years" },
        { dlc_format_duration, NAN, "-", "unknown" },
        { dlc_format_count, 12, "12", "no word, no space behind it" },
        { dlc_format_count, 151.2e6, "151 million", "a model" },
        { dlc_format_count, 1e12, "1 trillion", "a budget" },
        { dlc_format_count, INFINITY, "-", "endless" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[DLC_UNITS_TEXT];

        rows[i].format(text, rows[i].v);
        if (strcmp(text, rows[i].text) != 0)
            fail_msg("%s: %g is '%s', expected '%s'", rows[i].why, rows[i].v, text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_read),
        cmocka_unit_test(durations_are_read),
        cmocka_unit_test(what_is_not_a_quantity_is_refused),
        cmocka_unit_test(quantities_are_written),
    };

    return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
