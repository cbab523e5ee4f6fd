#include "data/utf8.h"

#include <string.h>

/* Length of the well-formed character at s[n], n >= 1; 0 when there is none. */
static size_t character(const unsigned char *s, size_t n)
{
    unsigned lead = s[0], low = 0x80, high = 0xbf; /* range of the second byte */
    size_t len;

    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    len = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    if (len > n || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return len;
}

size_t dlc_utf8_valid_prefix(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t i = 0, len;

    while (i < n) {
        while (n - i >= 8) { /* most text is ASCII most of the time */
            uint64_t eight;

            memcpy(&eight, s + i, 8);
            if (eight & 0x8080808080808080u)
                break;
            i += 8;
        }
        if (i == n)
            break;
        len = character(s + i, n - i);
        if (len == 0)
            break;
        i += len;
    }
    return i;
}

uint64_t dlc_utf8_count_invalid(const char *text, size_t n)
{
    uint64_t count = 0;
    size_t i = dlc_utf8_valid_prefix(text, n);

    while (i < n) {
        count++;
        i++;
        i += dlc_utf8_valid_prefix(text + i, n - i);
    }
    return count;
}
