/* What both ends of the nats exchange need of threads and time. */
#ifndef DLC_EXCHANGE_NATS_THREAD_H
#define DLC_EXCHANGE_NATS_THREAD_H

#include <pthread.h>
#include <stdint.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

#define DLC_MS_NS 1000000LL
#define DLC_S_NS 1000000000LL

static inline void dlc_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
}

static inline void dlc_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t at_ns)
{
    struct timespec ts = { .tv_sec = at_ns / DLC_S_NS, .tv_nsec = at_ns % DLC_S_NS };

    (void)pthread_cond_timedwait(cond, mutex, &ts);
}

static inline int64_t dlc_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Not 0. */
static inline dlc_err dlc_draw_session(uint64_t *out)
{
    do {
        if (getrandom(out, sizeof *out, 0) != (ssize_t)sizeof *out)
            return dlc_fail_errno(DLC_EFAIL, "no random numbers");
    } while (*out == 0);
    return DLC_OK;
}

#endif
