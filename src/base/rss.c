#include "base/rss.h"

#include <stdio.h>

static size_t status_bytes(long pid, const char *format)
{
    char path[64], line[256];
    size_t kib = 0;
    FILE *f;

    if (pid > 0)
        snprintf(path, sizeof path, "/proc/%ld/status", pid);
    else
        snprintf(path, sizeof path, "/proc/self/status");
    f = fopen(path, "r");
    if (!f)
        return 0;
    while (kib == 0 && fgets(line, sizeof line, f))
        if (sscanf(line, format, &kib) != 1)
            kib = 0;
    fclose(f);
    return kib * 1024;
}

size_t dlc_rss_now_bytes(void)
{
    return status_bytes(0, "VmRSS: %zu kB");
}

size_t dlc_rss_peak_bytes(long pid)
{
    return status_bytes(pid, "VmHWM: %zu kB");
}
