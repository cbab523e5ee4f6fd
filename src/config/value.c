/* Values of keys from text and back. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/keys.h"
#include "config/nearest.h"

#define NUMBER_MAX 64 /* characters of the longest number accepted */

static const char *const *choices_of(const struct dlc_key *key)
{
    return key->list ? key->list() : key->choices;
}

static dlc_err describe_range(struct dlc_buf *out, const struct dlc_key *key)
{
    if (key->type == DLC_KEY_UINT64)
        return dlc_buf_printf(out, "0..%" PRIu64, UINT64_MAX);
    if (key->type == DLC_KEY_REAL)
        return dlc_buf_printf(out, "%g..%g", key->min, key->max);
    DLC_TRY(dlc_buf_printf(out, "%.0f..", key->min));
    return dlc_buf_printf(out, key->max >= 1e8 ? "%g" : "%.0f", key->max);
}

dlc_err dlc_key_describe(struct dlc_buf *out, const struct dlc_key *key)
{
    const char *const *choices = choices_of(key);

    if (choices) {
        for (size_t i = 0; choices[i]; i++)
            DLC_TRY(dlc_buf_printf(out, "%s%s", i ? " | " : "", choices[i]));
        return DLC_OK;
    }
    if (key->type == DLC_KEY_BOOL)
        return dlc_buf_printf(out, "true | false");
    if (key->type == DLC_KEY_TEXT)
        return dlc_buf_printf(out, "text");
    return describe_range(out, key);
}

static dlc_err refuse(const struct dlc_key *key, const char *text, const char *where, const char *why)
{
    struct dlc_buf accepts = { 0 };
    dlc_err err;

    DLC_TRY_TO(done, dlc_key_describe(&accepts, key));
    err = dlc_fail(DLC_EUSAGE, "%s: %s is '%.80s', %s %s%s", where, key->name, text, why, accepts.data,
                   key->may_be_auto ? ", or auto" : "");
done:
    dlc_buf_fini(&accepts);
    return err;
}

/* Copies a number without the underscores between digits; false when it cannot be a plain decimal number (signs,
 * digits, point and exponent only: no hexadecimal, nan or inf). */
static bool plain_number(char out[NUMBER_MAX], const char *text)
{
    size_t n = 0;

    for (size_t i = 0; text[i]; i++) {
        bool digits_around =
            i > 0 && text[i - 1] >= '0' && text[i - 1] <= '9' && text[i + 1] >= '0' && text[i + 1] <= '9';

        if (text[i] == '_' && digits_around)
            continue;
        if (!strchr("0123456789+-.eE", text[i]) || n + 1 >= NUMBER_MAX)
            return false;
        out[n++] = text[i];
    }
    out[n] = '\0';
    return n > 0;
}

static bool parse_real(double *out, const char *text)
{
    char digits[NUMBER_MAX], *end;

    if (!plain_number(digits, text))
        return false;
    *out = strtod(digits, &end);
    return *end == '\0' && isfinite(*out);
}

/* Whole numbers are exact in all their digits; 1e6 and 2.5e3 are taken too. */
static bool parse_whole(int64_t *out, const char *text)
{
    char digits[NUMBER_MAX], *end;
    double real;

    if (!plain_number(digits, text))
        return false;
    errno = 0;
    *out = strtoll(digits, &end, 10);
    if (*end == '\0' && errno == 0)
        return true;
    if (!parse_real(&real, text) || real != floor(real) || fabs(real) > 0x1p53)
        return false;
    *out = (int64_t)real;
    return true;
}

static bool parse_unsigned(uint64_t *out, const char *text)
{
    char digits[NUMBER_MAX], *end;
    int64_t whole;

    if (!plain_number(digits, text) || strchr(digits, '-'))
        return false;
    errno = 0;
    *out = strtoull(digits, &end, 10);
    if (*end == '\0')
        return errno == 0;
    if (!parse_whole(&whole, text) || whole < 0)
        return false;
    *out = (uint64_t)whole;
    return true;
}

static dlc_err set_integer(void *field, const struct dlc_key *key, const char *text, const char *where)
{
    int64_t v;

    if (key->may_be_auto && strcmp(text, "auto") == 0)
        v = DLC_AUTO;
    else if (!parse_whole(&v, text))
        return refuse(key, text, where, "must be a whole number in");
    else if ((double)v < key->min || (double)v > key->max)
        return refuse(key, text, where, "must lie in");
    if (key->type == DLC_KEY_INT64)
        *(int64_t *)field = v;
    else
        *(int *)field = (int)v;
    return DLC_OK;
}

static dlc_err set_unsigned(uint64_t *field, const struct dlc_key *key, const char *text, const char *where)
{
    uint64_t v;

    if (!parse_unsigned(&v, text))
        return refuse(key, text, where, "must be a whole number in");
    *field = v;
    return DLC_OK;
}

static dlc_err set_real(double *field, const struct dlc_key *key, const char *text, const char *where)
{
    double v;

    if (key->may_be_auto && strcmp(text, "auto") == 0)
        v = DLC_AUTO;
    else if (!parse_real(&v, text))
        return refuse(key, text, where, "must be a number in");
    else if (v < key->min || v > key->max)
        return refuse(key, text, where, "must lie in");
    *field = v;
    return DLC_OK;
}

static dlc_err set_bool(bool *field, const struct dlc_key *key, const char *text, const char *where)
{
    static const struct {
        const char *text;
        bool value;
    } words[] = { { "true", true }, { "false", false }, { "yes", true }, { "no", false },
                  { "on", true },   { "off", false },   { "1", true },   { "0", false } };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].text) == 0) {
            *field = words[i].value;
            return DLC_OK;
        }
    }
    return refuse(key, text, where, "must be one of");
}

static int index_of(const char *const *choices, const char *text)
{
    for (int i = 0; choices[i]; i++)
        if (strcmp(choices[i], text) == 0)
            return i;
    return -1;
}

static dlc_err refuse_choice(const struct dlc_key *key, const char *text, const char *where)
{
    struct dlc_nearest nearest = dlc_nearest_start(text);
    const char *const *choices = choices_of(key);
    dlc_err err = refuse(key, text, where, "must be one of");

    for (size_t i = 0; choices[i]; i++)
        dlc_nearest_offer(&nearest, choices[i], choices[i]);
    if (dlc_nearest_result(&nearest))
        err = dlc_fail(err, "%s; did you mean %s?", dlc_err_text(), dlc_nearest_result(&nearest));
    return err;
}

static dlc_err set_enum(void *field, const struct dlc_key *key, const char *text, const char *where)
{
    int value = index_of(key->choices, text);

    if (value < 0)
        return refuse_choice(key, text, where);
    memcpy(field, &value, sizeof value); /* enums of this project have the size of int (asserted in config.c) */
    return DLC_OK;
}

/* run.ini must give the same text back: one line, no space at its ends, no start of a comment in it. */
static const char *unfit_for_ini(const char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return "has a control character";
        if (text[i] == ';' && (i == 0 || text[i - 1] == ' '))
            return "has a ';' that run.ini would take for a comment";
    }
    return n > 0 && (text[0] == ' ' || text[n - 1] == ' ') ? "begins or ends with a space" : NULL;
}

static dlc_err set_text(char *field, const struct dlc_key *key, const char *text, const char *where)
{
    const char *unfit = unfit_for_ini(text);
    size_t n = strlen(text);

    if (unfit)
        return dlc_fail(DLC_EUSAGE, "%s: %s '%.80s' %s", where, key->name, text, unfit);
    if (n >= key->size_bytes && !choices_of(key))
        return dlc_fail(DLC_EUSAGE, "%s: %s has %zu bytes, at most %zu fit", where, key->name, n, key->size_bytes - 1);
    if (choices_of(key) && index_of(choices_of(key), text) < 0)
        return refuse_choice(key, text, where);
    memset(field, 0, key->size_bytes); /* equal configurations are equal bytes */
    memcpy(field, text, n + 1);
    return DLC_OK;
}

dlc_err dlc_key_parse(void *config, const struct dlc_key *key, const char *text, const char *where)
{
    void *field = (char *)config + key->offset;

    switch (key->type) {
    case DLC_KEY_INT:
    case DLC_KEY_INT64: return set_integer(field, key, text, where);
    case DLC_KEY_UINT64: return set_unsigned(field, key, text, where);
    case DLC_KEY_REAL: return set_real(field, key, text, where);
    case DLC_KEY_BOOL: return set_bool(field, key, text, where);
    case DLC_KEY_ENUM: return set_enum(field, key, text, where);
    case DLC_KEY_TEXT: break;
    }
    return set_text(field, key, text, where);
}

/* The shortest decimal text that reads back as the same double. */
static dlc_err format_real(struct dlc_buf *out, double v)
{
    char text[40];

    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return dlc_buf_printf(out, "%s", text);
}

static dlc_err format_integer(struct dlc_buf *out, int64_t v, const struct dlc_key *key)
{
    return key->may_be_auto && v == DLC_AUTO ? dlc_buf_printf(out, "auto") : dlc_buf_printf(out, "%" PRId64, v);
}

dlc_err dlc_key_format(struct dlc_buf *out, const void *config, const struct dlc_key *key)
{
    const void *field = (const char *)config + key->offset;
    int choice;

    switch (key->type) {
    case DLC_KEY_INT: return format_integer(out, *(const int *)field, key);
    case DLC_KEY_INT64: return format_integer(out, *(const int64_t *)field, key);
    case DLC_KEY_UINT64: return dlc_buf_printf(out, "%" PRIu64, *(const uint64_t *)field);
    case DLC_KEY_REAL:
        if (key->may_be_auto && *(const double *)field == DLC_AUTO)
            return dlc_buf_printf(out, "auto");
        return format_real(out, *(const double *)field);
    case DLC_KEY_BOOL: return dlc_buf_printf(out, "%s", *(const bool *)field ? "true" : "false");
    case DLC_KEY_ENUM: memcpy(&choice, field, sizeof choice); return dlc_buf_printf(out, "%s", key->choices[choice]);
    case DLC_KEY_TEXT: break;
    }
    return dlc_buf_printf(out, "%s", (const char *)field);
}
