#include "net/join_url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#define PIN_TEXT_SIZE 43 /* 32 bytes as base64url, without padding */

static const char base64url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* Whatever is wrong: the part is named and the text never quoted, the secret may stand anywhere in it. */
static dlc_err wrong(const char *part, const char *what)
{
    return dlc_fail(DLC_EUSAGE,
                    "join line: %s %s; it looks like nats+tls://isle:SECRET@HOST:PORT/RUN?pin=PIN, as printed by "
                    "'diloco coordinate'",
                    part, what);
}

/* --- pieces ----------------------------------------------------------------------------------------------------------
 */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_unreserved(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("-._~", c));
}

/* The n characters at `text`, %XX decoded; what comes out are printable characters without blanks. */
static bool decode(char *out, size_t size, const char *text, size_t n)
{
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)text[i];

        if (c == '%') {
            if (i + 2 >= n || hex_value(text[i + 1]) < 0 || hex_value(text[i + 2]) < 0)
                return false;
            c = hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]);
            i += 2;
        }
        if (c <= ' ' || c >= 127 || used + 1 >= size)
            return false;
        out[used++] = (char)c;
    }
    out[used] = '\0';
    return used > 0;
}

static dlc_err encode(struct dlc_buf *out, const char *text)
{
    for (; *text; text++)
        DLC_TRY(dlc_buf_printf(out, is_unreserved(*text) ? "%c" : "%%%02X", (unsigned char)*text));
    return DLC_OK;
}

static bool parse_pin(struct dlc_sha256 *out, const char *text)
{
    unsigned bits = 0, n_bits = 0;
    size_t used = 0;

    if (strlen(text) != PIN_TEXT_SIZE)
        return false;
    for (; *text; text++) {
        const char *at = strchr(base64url, *text);

        if (!at)
            return false;
        bits = bits << 6 | (unsigned)(at - base64url);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out->bytes[used++] = (unsigned char)(bits >> n_bits);
            bits &= (1u << n_bits) - 1;
        }
    }
    return bits == 0; /* one text a pin */
}

static dlc_err format_pin(struct dlc_buf *out, const struct dlc_sha256 *pin)
{
    char text[PIN_TEXT_SIZE + 1];
    unsigned bits = 0, n_bits = 0;
    size_t used = 0;

    for (size_t i = 0; i < DLC_SHA256_BYTES; i++) {
        bits = bits << 8 | pin->bytes[i];
        for (n_bits += 8; n_bits >= 6;) {
            n_bits -= 6;
            text[used++] = base64url[bits >> n_bits & 63];
        }
        bits &= (1u << n_bits) - 1;
    }
    text[used++] = base64url[bits << (6 - n_bits) & 63];
    text[used] = '\0';
    return dlc_buf_append(out, text, used);
}

static bool is_run(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '_')
            return false;
    return n > 0 && n < sizeof((struct dlc_join_url *)0)->run;
}

static bool is_host(const char *text)
{
    struct in6_addr six;

    if (strchr(text, ':'))
        return inet_pton(AF_INET6, text, &six) == 1;
    for (const char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr(".-_", *at))
            return false;
    return *text && *text != '-' && *text != '.';
}

static bool parse_port(int *out, const char *text, size_t n)
{
    int port = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (text[i] - '0');
        if (port > 65535)
            return false;
    }
    *out = port;
    return n > 0 && port > 0;
}

/* --- the whole -------------------------------------------------------------------------------------------------------
 */

/* isle:SECRET@ */
static dlc_err parse_user(struct dlc_join_url *out, const char **at)
{
    size_t n = strcspn(*at, "/?#"), colon;
    const char *end = memchr(*at, '@', n);

    if (!end)
        return wrong("the secret", "is missing");
    colon = strcspn(*at, ":@");
    if (!decode(out->user, sizeof out->user, *at, colon))
        return wrong("the user", "is empty, too long or has characters that do not belong there");
    if ((*at)[colon] != ':')
        return wrong("the secret", "is missing");
    if (!decode(out->secret, sizeof out->secret, *at + colon + 1, (size_t)(end - *at) - colon - 1))
        return wrong("the secret", "is empty, too long or has characters that do not belong there");
    *at = end + 1;
    return DLC_OK;
}

/* HOST:PORT or [IPV6]:PORT */
static dlc_err parse_host(struct dlc_join_url *out, const char **at)
{
    size_t n = strcspn(*at, "/?#"), n_host;
    const char *text = *at, *after;
    bool brackets = n > 0 && text[0] == '[';

    if (brackets) {
        after = memchr(text, ']', n);
        if (!after)
            return wrong("the host", "begins with '[' and does not end with ']'");
        n_host = (size_t)(after - ++text);
        after++;
    } else {
        after = memchr(text, ':', n);
        n_host = after ? (size_t)(after - text) : n;
        after = after ? after : text + n;
    }
    if (n_host == 0 || n_host >= sizeof out->host)
        return wrong("the host", n_host ? "is too long" : "is missing");
    memcpy(out->host, text, n_host);
    out->host[n_host] = '\0';
    if (!is_host(out->host) || brackets != (strchr(out->host, ':') != NULL))
        return wrong("the host", "is neither a name nor an address (IPv6 stands in brackets)");
    if (*after != ':' || !parse_port(&out->port, after + 1, (size_t)(*at + n - after) - 1))
        return wrong("the port", "is missing or not a number from 1 to 65535");
    *at += n;
    return DLC_OK;
}

/* /RUN and, with TLS, ?pin=PIN */
static dlc_err parse_run(struct dlc_join_url *out, const char *at)
{
    size_t n;

    if (*at != '/')
        return wrong("the run's name", "is missing");
    n = strcspn(++at, "?#");
    if (!is_run(at, n))
        return wrong("the run's name", "is empty, longer than 32 or has other characters than letters, digits, - and _");
    memcpy(out->run, at, n);
    out->run[n] = '\0';
    at += n;
    if (!out->tls && *at)
        return wrong("the end", "is more than a run's name, which belongs to nats+tls:// only");
    if (!out->tls)
        return DLC_OK;
    if (strncmp(at, "?pin=", 5) != 0)
        return wrong("the pin", "is missing");
    if (!parse_pin(&out->pin, at + 5))
        return wrong("the pin", "is not 43 characters of base64url; was the line cut?");
    return DLC_OK;
}

dlc_err dlc_join_url_parse(struct dlc_join_url *out, const char *text)
{
    struct dlc_join_url url = { 0 };

    memset(out, 0, sizeof *out);
    url.tls = strncmp(text, "nats+tls://", 11) == 0;
    if (!url.tls && strncmp(text, "nats://", 7) != 0)
        return wrong("the beginning", "is neither nats+tls:// nor nats://");
    text += url.tls ? 11 : 7;
    DLC_TRY(parse_user(&url, &text));
    DLC_TRY(parse_host(&url, &text));
    DLC_TRY(parse_run(&url, text));
    *out = url;
    return DLC_OK;
}

dlc_err dlc_join_url_format(struct dlc_buf *out, const struct dlc_join_url *url)
{
    DLC_TRY(dlc_buf_printf(out, "%s", url->tls ? "nats+tls://" : "nats://"));
    DLC_TRY(encode(out, url->user));
    DLC_TRY(dlc_buf_printf(out, ":"));
    DLC_TRY(encode(out, url->secret));
    DLC_TRY(dlc_buf_printf(out, strchr(url->host, ':') ? "@[%s]:%d/%s" : "@%s:%d/%s", url->host, url->port, url->run));
    if (!url->tls)
        return DLC_OK;
    DLC_TRY(dlc_buf_printf(out, "?pin="));
    return format_pin(out, &url->pin);
}
