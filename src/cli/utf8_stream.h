/* Bytes that arrive in any pieces, out again as whole UTF-8 characters: what is not UTF-8 becomes U+FFFD, as Unicode
 * recommends one for each ill-formed part. */
#ifndef DLC_CLI_UTF8_STREAM_H
#define DLC_CLI_UTF8_STREAM_H

#include <stddef.h>

#include "base/buf.h"

struct dlc_utf8_stream {
    unsigned char held[4]; /* the beginning of a character */
    size_t n_held;
};

/* Appends the characters that are complete now. */
dlc_err dlc_utf8_stream_feed(struct dlc_buf *out, struct dlc_utf8_stream *stream, const char *bytes, size_t n);
/* No more bytes will come. */
dlc_err dlc_utf8_stream_end(struct dlc_buf *out, struct dlc_utf8_stream *stream);

#endif
