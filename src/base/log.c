#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic int lowest = DLC_LOG_INFO;

void dlc_log_set_level(dlc_log_level lowest_shown)
{
    atomic_store(&lowest, (int)lowest_shown);
}

bool dlc_log_shows(dlc_log_level level)
{
    return (int)level >= atomic_load(&lowest);
}

void dlc_log(dlc_log_level level, const char *fmt, ...)
{
    static const char *const prefix[] = { "debug: ", "", "warning: ", "error: " };
    char line[2048];
    va_list ap;
    int n, head;

    if (!dlc_log_shows(level))
        return;
    head = snprintf(line, sizeof line, "%s", prefix[level]);
    va_start(ap, fmt);
    n = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, ap);
    va_end(ap);
    n = n < 0 ? head : head + n;
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)n + 1); /* one write: lines of several processes do not mix */
}
