#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"

#define SPINS 2000 /* some microseconds: longer than the gap between two kernels, far shorter than a time slice */

struct worker {
    dlc_pool *pool;
    pthread_t thread;
    int index;
};

struct dlc_pool {
    int n_threads;
    struct worker *workers; /* n_threads - 1 of them */
    int n_started;

    pthread_mutex_t lock; /* guards the sleep of both conditions */
    pthread_cond_t start, done;
    _Atomic unsigned generation; /* moves by one for every job */
    _Atomic int n_running;
    _Atomic int stop;

    void (*fn)(void *, int, int);
    void *arg;
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static unsigned wait_for_job(dlc_pool *p, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen)
            return seen + 1;
        pause_cpu();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->generation, memory_order_acquire) == seen)
        pthread_cond_wait(&p->start, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return seen + 1;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    dlc_pool *p = w->pool;
    unsigned seen = 0;

    for (;;) {
        seen = wait_for_job(p, seen);
        if (atomic_load(&p->stop))
            return NULL;
        p->fn(p->arg, w->index, p->n_threads);
        if (atomic_fetch_sub_explicit(&p->n_running, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void publish_job(dlc_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

dlc_err dlc_pool_create(dlc_pool **out, int n_threads)
{
    dlc_pool *p = dlc_calloc(1, sizeof *p);

    *out = NULL;
    if (!p)
        return DLC_ENOMEM;
    p->n_threads = n_threads < 1 ? 1 : n_threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    p->workers = dlc_calloc((size_t)p->n_threads, sizeof *p->workers);
    if (!p->workers) {
        dlc_pool_destroy(p);
        return DLC_ENOMEM;
    }
    for (int i = 0; i < p->n_threads - 1; i++) {
        p->workers[i] = (struct worker){ .pool = p, .index = i + 1 };
        if (pthread_create(&p->workers[i].thread, NULL, worker_main, &p->workers[i]) != 0) {
            dlc_pool_destroy(p);
            return dlc_fail(DLC_EFAIL, "thread %d of %d cannot be started", i + 2, n_threads);
        }
        p->n_started++;
    }
    *out = p;
    return DLC_OK;
}

void dlc_pool_destroy(dlc_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, 1);
    publish_job(p);
    for (int i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    dlc_free(p->workers);
    dlc_free(p);
}

int dlc_pool_n_threads(const dlc_pool *p)
{
    return p->n_threads;
}

static void wait_for_workers(dlc_pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->n_running, memory_order_acquire) == 0)
            return;
        pause_cpu();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->n_running, memory_order_acquire) != 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void dlc_pool_run(dlc_pool *p, void (*fn)(void *arg, int worker, int n_workers), void *arg)
{
    if (p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->n_running, p->n_threads - 1, memory_order_relaxed);
    publish_job(p);
    fn(arg, 0, p->n_threads);
    wait_for_workers(p);
}

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

/* Quota in whole cores, rounded up; 0 when there is none. cgroup v2, then v1. */
static int cgroup_cores(void)
{
    long long quota = -1, period = -1;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");

    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2)
            quota = -1;
        fclose(f);
    } else {
        f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r");
        if (f) {
            if (fscanf(f, "%lld", &quota) != 1)
                quota = -1;
            fclose(f);
        }
        f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
        if (f) {
            if (fscanf(f, "%lld", &period) != 1)
                period = -1;
            fclose(f);
        }
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int dlc_n_cores(void)
{
    int cores = affinity_cores(), quota = cgroup_cores();

    return quota > 0 && quota < cores ? quota : cores;
}
