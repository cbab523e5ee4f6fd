/* Resident memory of a process, as the kernel counts it. 0 where that cannot be found out. */
#ifndef DLC_BASE_RSS_H
#define DLC_BASE_RSS_H

#include <stddef.h>

size_t dlc_rss_now_bytes(void);
/* The most a process ever had (VmHWM); pid 0: this one. Shared pages count once in each process that touched them. */
size_t dlc_rss_peak_bytes(long pid);

#endif
