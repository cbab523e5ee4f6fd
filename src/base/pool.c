#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define SPINS 100      /* some microseconds: longer than the gap between two kernels */
#define YIELD_NS 50000 /* far shorter than a time slice */
#define LINE 128       /* bytes that processors fetch together */

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

    /* Written by the caller for each job, read by all. */
    _Alignas(LINE) _Atomic unsigned generation; /* moves by one for every job of either kind */
    _Atomic int stop;

    /* A job for every worker. */
    _Atomic unsigned run_generation; /* moves by one for each */
    void (*fn)(void *, int, int);
    void *arg;

    /* A divided job. Stays as it is until all of its parts are done. */
    dlc_part_fn *part_fn;
    void *part_arg;
    size_t n, grain, n_parts;

    _Alignas(LINE) _Atomic size_t n_left;   /* parts that nobody has taken */
    _Alignas(LINE) _Atomic size_t n_undone; /* parts, or workers of a job for every worker, that have not finished */
    _Alignas(LINE) _Atomic int n_asleep;    /* workers that must be woken: they look once more after they are counted */
    _Atomic int caller_asleep;
};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static bool has_job(dlc_pool *p, unsigned seen)
{
    return atomic_load_explicit(&p->generation, memory_order_acquire) != seen;
}

static bool all_done(dlc_pool *p, unsigned unused)
{
    (void)unused;
    return atomic_load_explicit(&p->n_undone, memory_order_acquire) == 0;
}

/* True as soon as `ready`; false when that did not come in time. Spinning covers the gap between two kernels. Giving
 * the core away in between covers the case of more threads than cores, this pool's or other processes': whoever is
 * waited for may be waiting for this very core. On two cores, four threads or two pools of two waited 100 us a job
 * without. */
static bool spin(dlc_pool *p, bool (*ready)(dlc_pool *, unsigned), unsigned seen)
{
    int64_t give_up_ns;

    for (int i = 0; i < SPINS; i++) {
        if (ready(p, seen))
            return true;
        pause_cpu();
    }
    give_up_ns = dlc_now_ns() + YIELD_NS;
    do {
        sched_yield();
        if (ready(p, seen))
            return true;
    } while (dlc_now_ns() < give_up_ns);
    return false;
}

/* Whoever goes to sleep first says so and then looks again; whoever has news first publishes it and then looks for
 * sleepers. Both in the one order of sequentially consistent operations: one of them sees the other. */
static void wait_for_job(dlc_pool *p, unsigned seen)
{
    if (spin(p, has_job, seen))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_asleep, 1);
    while (atomic_load(&p->generation) == seen)
        pthread_cond_wait(&p->start, &p->lock);
    atomic_fetch_sub(&p->n_asleep, 1);
    pthread_mutex_unlock(&p->lock);
}

static void finish(dlc_pool *p, size_t n_done)
{
    if (atomic_fetch_sub(&p->n_undone, n_done) != n_done || atomic_load(&p->caller_asleep) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
}

/* Whoever lowers n_left has a part of the job that is there now, whichever that is: the job cannot be replaced before
 * the part is done. Its description may only be read from then on. A worker may come late and find no part, or one of
 * a later job than the one it was woken for. */
static bool take_part(dlc_pool *p, struct dlc_part *part)
{
    size_t left = atomic_load_explicit(&p->n_left, memory_order_relaxed);

    do {
        if (left == 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->n_left, &left, left - 1, memory_order_acquire,
                                                    memory_order_relaxed));
    part->begin = (p->n_parts - left) * p->grain;
    part->end = left == 1 ? p->n : part->begin + p->grain;
    return true;
}

/* Parts are reported together: until then the job is the same one. */
static void do_parts(dlc_pool *p, int worker)
{
    struct dlc_part part = { .worker = worker };
    size_t n_done = 0;

    for (; take_part(p, &part); n_done++)
        p->part_fn(p->part_arg, part);
    if (n_done > 0)
        finish(p, n_done);
}

/* Generations of divided jobs may be missed, when others have done all parts; those of jobs for every worker cannot. */
static void *worker_main(void *arg)
{
    struct worker *w = arg;
    dlc_pool *p = w->pool;
    unsigned seen = 0, run_seen = 0;

    for (;;) {
        wait_for_job(p, seen);
        seen = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (atomic_load_explicit(&p->stop, memory_order_relaxed))
            return NULL;
        if (atomic_load_explicit(&p->run_generation, memory_order_acquire) != run_seen) {
            run_seen++;
            p->fn(p->arg, w->index, p->n_threads);
            finish(p, 1);
        }
        do_parts(p, w->index);
    }
}

static void publish_job(dlc_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_asleep) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for_workers(dlc_pool *p)
{
    if (spin(p, all_done, 0))
        return;
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->caller_asleep, 1);
    while (atomic_load(&p->n_undone) != 0)
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->caller_asleep, 0);
    pthread_mutex_unlock(&p->lock);
}

dlc_err dlc_pool_create(dlc_pool **out, int n_threads)
{
    void *memory;
    dlc_pool *p;

    *out = NULL;
    DLC_TRY(dlc_arena_alloc(&memory, sizeof *p, "pool of threads")); /* aligned, which dlc_alloc is not */
    p = memory;
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
    dlc_arena_free(p, sizeof *p);
}

int dlc_pool_n_threads(const dlc_pool *p)
{
    return p->n_threads;
}

void dlc_pool_run(dlc_pool *p, void (*fn)(void *arg, int worker, int n_workers), void *arg)
{
    if (!p || p->n_threads == 1) {
        fn(arg, 0, 1);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->n_undone, (size_t)p->n_threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->run_generation, 1, memory_order_release);
    publish_job(p);
    fn(arg, 0, p->n_threads);
    wait_for_workers(p);
}

void dlc_pool_each(dlc_pool *p, dlc_part_fn *fn, void *arg, size_t n, size_t grain)
{
    size_t n_parts = (n + grain - 1) / grain;

    if (!p || p->n_threads == 1 || n_parts <= 1) {
        for (size_t i = 0; i < n; i += grain)
            fn(arg, (struct dlc_part){ .begin = i, .end = n - i < grain ? n : i + grain });
        return;
    }
    p->part_fn = fn;
    p->part_arg = arg;
    p->n = n;
    p->grain = grain;
    p->n_parts = n_parts;
    atomic_store_explicit(&p->n_undone, n_parts, memory_order_relaxed);
    atomic_store_explicit(&p->n_left, n_parts, memory_order_release);
    publish_job(p);
    do_parts(p, 0);
    wait_for_workers(p);
}

/* --- cores of their own ------------------------------------------------------------------------------------------ */

#ifdef __linux__

/* The index-th core of the set, counted round. */
static int core_at(const cpu_set_t *set, int index)
{
    int left = index % CPU_COUNT(set), core = 0;

    while (!CPU_ISSET(core, set) || left-- > 0)
        core++;
    return core;
}

static dlc_err pin_thread(pthread_t thread, const cpu_set_t *allowed, int index)
{
    int core = core_at(allowed, index), rc;
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(core, &one);
    rc = pthread_setaffinity_np(thread, sizeof one, &one);
    return rc == 0 ? DLC_OK : dlc_fail(DLC_EFAIL, "a thread cannot be bound to core %d: %s", core, strerror(rc));
}

dlc_err dlc_pool_pin(dlc_pool *p, int first)
{
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return dlc_fail_errno(DLC_EFAIL, "the cores of this process are not known");
    for (int i = 0; i < p->n_started; i++)
        DLC_TRY(pin_thread(p->workers[i].thread, &allowed, first + i + 1));
    return pin_thread(pthread_self(), &allowed, first);
}

#else

dlc_err dlc_pool_pin(dlc_pool *p, int first)
{
    (void)p;
    (void)first;
    return dlc_fail(DLC_EFAIL, "this system does not bind threads to cores");
}

#endif
