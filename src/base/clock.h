/* Time. Durations come from the monotonic clock; wall time is for people and log files only. */
#ifndef DLC_BASE_CLOCK_H
#define DLC_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t dlc_now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline double dlc_now_s(void)
{
    return (double)dlc_now_ns() * 1e-9;
}

static inline double dlc_wall_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

#endif
