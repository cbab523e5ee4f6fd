/* What people type about a link. */
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "link/relay.h"

/* Digits up to the end: 1 to 65535, or 0 where it is allowed. */
static bool parse_port(int *out, const char *text, bool zero)
{
    size_t n = strspn(text, "0123456789");
    long port = n > 0 && n < 6 && text[n] == '\0' ? strtol(text, NULL, 10) : -1;

    *out = (int)port;
    return port <= 65535 && port >= (zero ? 0 : 1);
}

static dlc_err no_address(const char *where, const char *text)
{
    return dlc_fail(DLC_EUSAGE, "%s: '%.80s' is no address; write HOST:PORT, as in 127.0.0.1:5222 or [::1]:5222", where,
                    text);
}

dlc_err dlc_link_parse_address(struct dlc_link_address *out, const char *text, bool zero_port, const char *where)
{
    const char *colon = strrchr(text, ':'), *begin = text, *end = colon;

    if (!colon || colon == text)
        return no_address(where, text);
    if (*text == '[') {
        begin = text + 1;
        end = colon - 1;
        if (*end != ']' || end <= begin)
            return no_address(where, text);
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return no_address(where, text); /* an IPv6 address without brackets ends anywhere */
    }
    if ((size_t)(end - begin) >= sizeof out->host)
        return dlc_fail(DLC_EUSAGE, "%s: the host has %td characters, at most %zu are taken", where, end - begin,
                        sizeof out->host - 1);
    if (!parse_port(&out->port, colon + 1, zero_port))
        return dlc_fail(DLC_EUSAGE, "%s: '%.80s': the port must be %d..65535", where, text, zero_port ? 0 : 1);
    memcpy(out->host, begin, (size_t)(end - begin));
    out->host[end - begin] = '\0';
    return DLC_OK;
}

dlc_err dlc_link_parse_loss(double *out, const char *text, const char *where)
{
    size_t n = strspn(text, "0123456789.");
    char *end = NULL;
    double v = n > 0 ? strtod(text, &end) : -1;
    bool percent = n > 0 && strcmp(text + n, "%") == 0;

    if (percent)
        v /= 100;
    if (n == 0 || end != text + n || (!percent && text[n] != '\0') || !(v >= 0 && v < 1))
        return dlc_fail(DLC_EUSAGE, "%s: '%.80s' is no probability below 1; write 0.5%% or 0.005", where, text);
    *out = v;
    return DLC_OK;
}

dlc_err dlc_link_parse_cut(struct dlc_link_cut *out, const char *text, const char *where)
{
    const char *at = strchr(text, '@');
    char how_long[40];
    struct dlc_link_cut cut;

    if (!at || (size_t)(at - text) >= sizeof how_long)
        return dlc_fail(DLC_EUSAGE, "%s: '%.80s' is no cut; write how long and when, as in 30s@120s", where, text);
    memcpy(how_long, text, (size_t)(at - text));
    how_long[at - text] = '\0';
    DLC_TRY(dlc_parse_duration(&cut.for_s, how_long, where));
    DLC_TRY(dlc_parse_duration(&cut.at_s, at + 1, where));
    if (cut.for_s == 0)
        return dlc_fail(DLC_EUSAGE, "%s: '%.80s' takes no time", where, text);
    *out = cut;
    return DLC_OK;
}
