#include "base/cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

bool dlc_cgroup_numbers(int64_t *out, int n, const char *folder, const char *name)
{
    char path[DLC_PATH_MAX];
    FILE *f;
    int got = 0;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return false;
    f = fopen(path, "r");
    if (!f)
        return false;
    while (got < n && fscanf(f, "%" SCNd64, &out[got]) == 1)
        got++;
    fclose(f);
    return got == n;
}

int dlc__cgroup_cores(const char *folder, int version)
{
    int64_t v[2]; /* quota and period */
    bool got = version == 2 ? dlc_cgroup_numbers(v, 2, folder, "cpu.max")
                            : dlc_cgroup_numbers(&v[0], 1, folder, "cpu.cfs_quota_us") &&
                                  dlc_cgroup_numbers(&v[1], 1, folder, "cpu.cfs_period_us");

    if (!got || v[0] <= 0 || v[1] <= 0 || v[0] / v[1] > 1000000)
        return 0;
    return (int)((v[0] + v[1] - 1) / v[1]);
}

/* folder = mount + group, then without its last part, down to the mount itself. */
static void climb(const char *mount, const char *group, int version, dlc_cgroup_visit fn, void *arg)
{
    char folder[DLC_PATH_MAX];
    size_t n_mount = strlen(mount), n;

    if (strstr(group, "/..") || snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder)
        return;
    for (n = strlen(folder); n >= n_mount; n--) {
        if (folder[n] != '\0' && folder[n] != '/')
            continue;
        folder[n] = '\0';
        if (n == n_mount || folder[n - 1] != '/')
            fn(arg, folder, version);
    }
}

static bool lists(const char *controllers, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = controllers; (at = strstr(at, name)) != NULL; at += n)
        if ((at == controllers || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* A line is "number:controllers:group"; version 2 has no controllers there. */
static void walk_line(char *line, const char *mount, const char *controller, dlc_cgroup_visit fn, void *arg)
{
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    char below[DLC_PATH_MAX];

    if (!group)
        return;
    controllers++;
    *group++ = '\0';
    if (*controllers == '\0') {
        climb(mount, group, 2, fn, arg);
    } else if (lists(controllers, controller) &&
               snprintf(below, sizeof below, "%s/%s", mount, controller) < (int)sizeof below) {
        climb(below, group, 1, fn, arg); /* "cpu" is a link to "cpu,cpuacct" where both are mounted as one */
    }
}

void dlc__cgroup_walk_at(const char *proc_file, const char *mount, const char *controller, dlc_cgroup_visit fn,
                         void *arg)
{
    FILE *f = fopen(proc_file, "r");
    char line[DLC_PATH_MAX];

    if (!f)
        return;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        walk_line(line, mount, controller, fn, arg);
    }
    fclose(f);
}

void dlc_cgroup_walk(const char *controller, dlc_cgroup_visit fn, void *arg)
{
    dlc__cgroup_walk_at("/proc/self/cgroup", "/sys/fs/cgroup", controller, fn, arg);
}
