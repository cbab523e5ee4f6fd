/* Control groups: where the limits of this process stand. A limit may be set on its own group or on any one above it,
 * and the tightest counts. */
#ifndef DLC_BASE_CGROUP_H
#define DLC_BASE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Calls fn(arg, folder, version) for the folder of this process's group and for each one above it, for the controller
 * named ("cpu", "memory"): version 2 of the hierarchy, and version 1 where that is mounted. A process in a container
 * that sees its own group as the root of the mount is right, too: folders that are not there are passed over. */
typedef void (*dlc_cgroup_visit)(void *arg, const char *folder, int version);
void dlc_cgroup_walk(const char *controller, dlc_cgroup_visit fn, void *arg);

/* The same with other places for /proc/self/cgroup and /sys/fs/cgroup: for tests. */
void dlc__cgroup_walk_at(const char *proc_file, const char *mount, const char *controller, dlc_cgroup_visit fn,
                         void *arg);

/* The first `n` (1 or 2) whole numbers of folder/name. false: there is no such file, or it has other words ("max"). */
bool dlc_cgroup_numbers(int64_t *out, int n, const char *folder, const char *name);

/* The quota of a folder in whole cores, rounded up; 0: none. */
int dlc__cgroup_cores(const char *folder, int version);

#endif
