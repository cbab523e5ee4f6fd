#include "bench/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The text behind "key : " in a file of such lines; 0: none. */
static int find_line(char *out, size_t size, const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    char line[512];
    int found = 0;

    while (f && !found && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');

        if (strncmp(line, key, strlen(key)) != 0 || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = 1;
    }
    if (f)
        fclose(f);
    return found;
}

void dlc_machine_cpu(char *out, size_t size)
{
    struct utsname u;

    if (find_line(out, size, "/proc/cpuinfo", "model name"))
        return;
    snprintf(out, size, "%s", uname(&u) == 0 ? u.machine : "unknown");
}

size_t dlc_machine_cache_bytes(void)
{
#ifdef _SC_LEVEL3_CACHE_SIZE
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);

    return bytes > 0 ? (size_t)bytes : 0;
#else
    return 0;
#endif
}

size_t dlc_machine_peak_rss_bytes(void)
{
    struct rusage usage;
    char text[64];

    if (find_line(text, sizeof text, "/proc/self/status", "VmHWM"))
        return (size_t)strtoull(text, NULL, 10) * 1024;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (size_t)usage.ru_maxrss * 1024 : 0;
}

void dlc_machine_reset_peak_rss(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");

    if (!f)
        return;
    fputs("5", f); /* Linux: the peak becomes what is resident now */
    fclose(f);
}
