/* A growable byte buffer, and text building on it. Zero-initialise (`struct dlc_buf b = {0};`), dlc_buf_fini at the end.
 * `data` is always followed by a zero byte once something was appended, so text can be used as a C string. */
#ifndef DLC_BASE_BUF_H
#define DLC_BASE_BUF_H

#include <stddef.h>

#include "base/err.h"

struct dlc_buf {
    char *data;
    size_t len;
    size_t cap;
};

void dlc_buf_fini(struct dlc_buf *b);
void dlc_buf_clear(struct dlc_buf *b); /* keeps the memory */

/* On DLC_ENOMEM the buffer keeps what it had. */
dlc_err dlc_buf_reserve(struct dlc_buf *b, size_t extra);
dlc_err dlc_buf_append(struct dlc_buf *b, const void *bytes, size_t n);
dlc_err dlc_buf_printf(struct dlc_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
