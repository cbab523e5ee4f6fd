#include "cli/utf8_stream.h"

#include <stdbool.h>
#include <string.h>

/* Length of the character that begins with `first`; 0: none does. */
static size_t length_of(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* May `byte` stand behind held[0..n)? The second byte's range leaves out overlong forms, surrogates and what lies above
 * U+10FFFF (Unicode, table 3-7). */
static bool continues(const unsigned char *held, size_t n, unsigned char byte)
{
    unsigned char low = 0x80, high = 0xbf;

    if (n == 1 && held[0] == 0xe0)
        low = 0xa0;
    else if (n == 1 && held[0] == 0xed)
        high = 0x9f;
    else if (n == 1 && held[0] == 0xf0)
        low = 0x90;
    else if (n == 1 && held[0] == 0xf4)
        high = 0x8f;
    return byte >= low && byte <= high;
}

dlc_err dlc_utf8_stream_end(struct dlc_buf *out, struct dlc_utf8_stream *s)
{
    bool cut = s->n_held > 0;

    s->n_held = 0;
    return cut ? dlc_buf_append(out, "\xef\xbf\xbd", 3) : DLC_OK;
}

static dlc_err feed_byte(struct dlc_buf *out, struct dlc_utf8_stream *s, unsigned char byte)
{
    if (s->n_held > 0 && !continues(s->held, s->n_held, byte))
        DLC_TRY(dlc_utf8_stream_end(out, s));
    s->held[s->n_held++] = byte;
    if (length_of(s->held[0]) == 0)
        return dlc_utf8_stream_end(out, s);
    if (s->n_held < length_of(s->held[0]))
        return DLC_OK;
    s->n_held = 0;
    return dlc_buf_append(out, s->held, length_of(s->held[0]));
}

dlc_err dlc_utf8_stream_feed(struct dlc_buf *out, struct dlc_utf8_stream *s, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        DLC_TRY(feed_byte(out, s, (unsigned char)bytes[i]));
    return DLC_OK;
}
