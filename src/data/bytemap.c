#include "data/bytemap.h"

#include <stdint.h>

#define FIRST_STAND_IN 0x100

static bool stands_for_itself(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* How many bytes below `byte` do not stand for themselves. */
static int rank_of_hidden(int byte)
{
    if (byte <= 0x20)
        return byte;
    if (byte <= 0xa0)
        return byte - 0x7f + 0x21;
    return 0xa0 - 0x7f + 0x21 + 1; /* 0xad, the soft hyphen */
}

static int byte_of_rank(int rank)
{
    if (rank <= 0x20)
        return rank;
    return rank < 0x21 + 0x22 ? rank - 0x21 + 0x7f : 0xad;
}

int dlc_bytemap_code_point(unsigned char byte)
{
    return stands_for_itself(byte) ? byte : FIRST_STAND_IN + rank_of_hidden(byte);
}

dlc_err dlc_bytemap_append(struct dlc_buf *text, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int c = dlc_bytemap_code_point((unsigned char)bytes[i]);
        char utf8[2] = { (char)c, 0 };
        size_t len = 1;

        if (c >= 0x80) {
            utf8[0] = (char)(0xc0 | c >> 6);
            utf8[1] = (char)(0x80 | (c & 0x3f));
            len = 2;
        }
        DLC_TRY(dlc_buf_append(text, utf8, len));
    }
    return DLC_OK;
}

/* The byte behind the code point, -1 when there is none. */
static int byte_of(int c)
{
    if (c < FIRST_STAND_IN)
        return stands_for_itself(c) ? c : -1;
    return c - FIRST_STAND_IN <= 67 ? byte_of_rank(c - FIRST_STAND_IN) : -1;
}

dlc_err dlc_bytemap_decode(struct dlc_buf *bytes, bool *ok, const char *text, size_t n)
{
    *ok = false;
    DLC_TRY(dlc_buf_reserve(bytes, n));
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)text[i], byte;
        char one;

        if (c >= 0x80) {
            if (c >= 0xe0 || i + 1 == n)
                return DLC_OK;
            c = (c & 0x1f) << 6 | (text[++i] & 0x3f);
        }
        byte = byte_of(c);
        if (byte < 0)
            return DLC_OK;
        one = (char)byte;
        DLC_TRY(dlc_buf_append(bytes, &one, 1));
    }
    *ok = true;
    return DLC_OK;
}
