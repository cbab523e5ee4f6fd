#include "base/units.h"

#include <math.h>
#include <stdbool.h>
#include <strings.h>

struct unit {
    const char *name;
    double size;
};

static const struct unit rates[] = { { "bit", 1 },    { "kbit", 1e3 },  { "mbit", 1e6 },
                                     { "gbit", 1e9 }, { "tbit", 1e12 }, { NULL, 0 } };

static const struct unit durations[] = { { "us", 1e-6 }, { "ms", 1e-3 }, { "s", 1 }, { "min", 60 },
                                         { "h", 3600 },  { "", 1 },      { NULL, 0 } };

/* A plain decimal number at the start: no hexadecimal, nan or inf. *rest is what follows it. */
static bool take_number(double *out, const char **rest, const char *text)
{
    size_t n = strspn(text, "0123456789.");
    char *end;

    if (n == 0)
        return false;
    *out = strtod(text, &end);
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return false;
    *rest = end;
    return end != text;
}

/* `text` is a number and one of `units`, and above `low` (or equal) and at most `high`. */
static bool parse(double *out, const char *text, const struct unit *units, double low, double high)
{
    const char *rest;
    double v;

    if (!take_number(&v, &rest, text))
        return false;
    if (*rest == ' ' && rest[1] != '\0')
        rest++;
    for (; units->name; units++) {
        if (strcasecmp(rest, units->name) != 0)
            continue;
        v *= units->size;
        if (!(v >= low && v <= high))
            return false;
        *out = v;
        return true;
    }
    return false;
}

dlc_err dlc_parse_rate(double *out_bits_per_s, const char *text, const char *where)
{
    if (parse(out_bits_per_s, text, rates, 1e-9, 1e18))
        return DLC_OK;
    return dlc_fail(
        DLC_EUSAGE,
        "%s: '%.80s' is no rate; write a number above 0 and bit, kbit, mbit, gbit or tbit (a second), as in "
        "100mbit",
        where, text);
}

dlc_err dlc_parse_duration(double *out_s, const char *text, const char *where)
{
    if (parse(out_s, text, durations, 0, 1e12))
        return DLC_OK;
    return dlc_fail(DLC_EUSAGE, "%s: '%.80s' is no duration; write a number and us, ms, s, min or h, as in 80ms", where,
                    text);
}

/* The largest unit that leaves at least one whole; what rounds up to the next unit is written in that one. */
static void format(char out[DLC_UNITS_TEXT], double v, const struct unit *units)
{
    const struct unit *u = units;

    if (!isfinite(v)) {
        snprintf(out, DLC_UNITS_TEXT, "-");
        return;
    }
    while (u[1].name && v >= 0.9995 * u[1].size)
        u++;
    v /= u->size;
    if (v >= 99.95 && v < 1e6)
        snprintf(out, DLC_UNITS_TEXT, "%.0f %s", v, u->name);
    else
        snprintf(out, DLC_UNITS_TEXT, "%.3g %s", v, u->name);
}

void dlc_format_bytes(char out[DLC_UNITS_TEXT], double bytes)
{
    static const struct unit units[] = { { "B", 1 },     { "kB", 1e3 },  { "MB", 1e6 },  { "GB", 1e9 },
                                         { "TB", 1e12 }, { "PB", 1e15 }, { "EB", 1e18 }, { NULL, 0 } };

    format(out, bytes, units);
}

void dlc_format_rate(char out[DLC_UNITS_TEXT], double bits_per_s)
{
    static const struct unit units[] = { { "bit/s", 1 },     { "kbit/s", 1e3 },  { "Mbit/s", 1e6 }, { "Gbit/s", 1e9 },
                                         { "Tbit/s", 1e12 }, { "Pbit/s", 1e15 }, { NULL, 0 } };

    format(out, bits_per_s, units);
}

void dlc_format_duration(char out[DLC_UNITS_TEXT], double seconds)
{
    static const struct unit units[] = { { "us", 1e-6 },        { "ms", 1e-3 }, { "s", 1 },
                                         { "min", 60 },         { "h", 3600 },  { "days", 86400 },
                                         { "years", 31557600 }, { NULL, 0 } };

    if (seconds == 0)
        snprintf(out, DLC_UNITS_TEXT, "0 s");
    else
        format(out, seconds, units);
}

void dlc_format_count(char out[DLC_UNITS_TEXT], double count)
{
    static const struct unit units[] = { { "", 1 },          { "thousand", 1e3 },  { "million", 1e6 },
                                         { "billion", 1e9 }, { "trillion", 1e12 }, { NULL, 0 } };

    format(out, count, units);
    if (out[strlen(out) - 1] == ' ') /* no word behind it */
        out[strlen(out) - 1] = '\0';
}
