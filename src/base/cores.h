/* How many cores this process may use. */
#ifndef DLC_BASE_CORES_H
#define DLC_BASE_CORES_H

/* The affinity mask of the calling thread and the quota of its control group (and of every group above it, version 1
 * or 2), rounded up; at least 1. */
int dlc_n_cores(void);

#endif
