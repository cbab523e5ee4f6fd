#include "config/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cgroup.h"

#define MIB (1 << 20)

/* MemAvailable of /proc/meminfo, in MiB; -1 where there is none. */
static int64_t kernel_mb(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[256];
    int64_t kib = -1;

    if (!f)
        return -1;
    while (kib < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %" SCNd64 " kB", &kib) != 1)
            kib = -1;
    fclose(f);
    return kib < 0 ? -1 : kib / 1024;
}

/* What is left below a group's own limit, into *mb where that is less (-1: no limit so far). */
static void take_limit(void *arg, const char *folder, int version)
{
    int64_t *mb = arg, limit, used, left;

    if (!dlc_cgroup_numbers(&limit, 1, folder, version == 2 ? "memory.max" : "memory.limit_in_bytes") ||
        !dlc_cgroup_numbers(&used, 1, folder, version == 2 ? "memory.current" : "memory.usage_in_bytes"))
        return;
    left = limit > used ? (limit - used) / MIB : 0;
    if (*mb < 0 || left < *mb)
        *mb = left;
}

/* What the control groups still allow; -1 without a limit. */
static int64_t cgroup_mb(void)
{
    int64_t mb = -1;

    dlc_cgroup_walk("memory", take_limit, &mb);
    return mb;
}

static int64_t physical_mb(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && page_bytes > 0 ? (int64_t)pages * (page_bytes / 1024) / 1024 : 0;
}

int64_t dlc_memory_available_mb(void)
{
    int64_t kernel = kernel_mb(), cgroup = cgroup_mb();

    if (kernel < 0)
        kernel = physical_mb();
    return cgroup >= 0 && cgroup < kernel ? cgroup : kernel;
}
