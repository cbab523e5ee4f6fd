#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void dlc_buf_fini(struct dlc_buf *b)
{
    dlc_free(b->data);
    *b = (struct dlc_buf){ 0 };
}

void dlc_buf_clear(struct dlc_buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

dlc_err dlc_buf_reserve(struct dlc_buf *b, size_t extra)
{
    size_t need, cap;
    char *data;

    if (__builtin_add_overflow(b->len, extra, &need) || __builtin_add_overflow(need, (size_t)1, &need))
        return dlc_fail(DLC_ENOMEM, "buffer of %zu + %zu bytes", b->len, extra);
    if (need <= b->cap)
        return DLC_OK;
    cap = b->cap < 64 ? 64 : b->cap + b->cap / 2;
    if (cap < need)
        cap = need;
    data = dlc_realloc(b->data, cap);
    if (!data)
        return DLC_ENOMEM;
    b->data = data;
    b->cap = cap;
    return DLC_OK;
}

dlc_err dlc_buf_append(struct dlc_buf *b, const void *bytes, size_t n)
{
    DLC_TRY(dlc_buf_reserve(b, n));
    if (n)
        memcpy(b->data + b->len, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
    return DLC_OK;
}

dlc_err dlc_buf_printf(struct dlc_buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return dlc_fail(DLC_EFAIL, "text cannot be formatted: %s", fmt);
    DLC_TRY(dlc_buf_reserve(b, (size_t)n));
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return DLC_OK;
}
