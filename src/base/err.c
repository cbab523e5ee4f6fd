#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 1024

static _Thread_local char text[TEXT_MAX];

/* One line, whatever names and values a hostile file put into it: no line breaks, no terminal control. */
static void make_one_line(char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
    }
}

dlc_err dlc_fail(dlc_err code, const char *fmt, ...)
{
    char fresh[TEXT_MAX]; /* the arguments may point into `text` */
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    make_one_line(fresh);
    memcpy(text, fresh, sizeof text);
    return code;
}

dlc_err dlc_fail_errno(dlc_err code, const char *fmt, ...)
{
    int saved = errno;
    char fresh[TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    return dlc_fail(code, "%s: %s", fresh, strerror(saved));
}

dlc_err dlc_fail_context(dlc_err code, const char *fmt, ...)
{
    char context[TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(context, sizeof context, fmt, ap);
    va_end(ap);
    return dlc_fail(code, "%s: %s", context, text);
}

const char *dlc_err_text(void)
{
    return text;
}

int dlc_err_exit_status(dlc_err code)
{
    switch (code) {
    case DLC_OK: return 0;
    case DLC_EUSAGE: return 2;
    case DLC_ESTOPPED: return 3;
    case DLC_EINPUT:
    case DLC_ENOTFOUND: return 4;
    case DLC_EPEER: return 5;
    case DLC_EFAIL:
    case DLC_ENOMEM:
    case DLC_EIO: break;
    }
    return 1;
}
