#include "config/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

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

static int64_t read_bytes(const char *path)
{
    FILE *f = fopen(path, "r");
    int64_t v = -1;

    if (!f)
        return -1;
    if (fscanf(f, "%" SCNd64, &v) != 1)
        v = -1; /* "max" */
    fclose(f);
    return v;
}

/* What the control group still allows (version 2, then 1); -1 without a limit. */
static int64_t cgroup_mb(void)
{
    int64_t limit = read_bytes("/sys/fs/cgroup/memory.max"), used = read_bytes("/sys/fs/cgroup/memory.current");

    if (limit < 0 || used < 0) {
        limit = read_bytes("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        used = read_bytes("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    }
    if (limit < 0 || used < 0)
        return -1;
    return limit > used ? (limit - used) / MIB : 0;
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
