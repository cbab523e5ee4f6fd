#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include "base/cgroup.h"

static int affinity_cores(void)
{
#ifdef __linux__
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (int)n;
}

static void take_quota(void *arg, const char *folder, int version)
{
    int *cores = arg, quota = dlc__cgroup_cores(folder, version);

    if (quota > 0 && quota < *cores)
        *cores = quota;
}

int dlc_n_cores(void)
{
    int cores = affinity_cores();

    dlc_cgroup_walk("cpu", take_quota, &cores);
    return cores;
}
