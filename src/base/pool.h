/* A pool of threads for dividing loops. One per process, made by whoever owns the process and passed down.
 *
 * The caller is worker 0. Work is divided into contiguous parts in a fixed way, which depends on the sizes only; the
 * parts are taken by whoever is free, so that nobody waits for a thread whose core is slow or busy with something else.
 * What is written must depend on the part, never on the worker: then results are the same on every run.
 *
 * Waiting threads spin for some microseconds, then keep giving their core to others for some more, and then sleep: they
 * take no cores from other islands on the machine, and more threads than cores do no harm. A job that finds all workers
 * waiting awake costs some 0.1 us: no lock is taken and nobody is woken.
 *
 * No job may be started from inside a job. Errors cannot be returned by jobs: kernels cannot fail. */
#ifndef DLC_BASE_POOL_H
#define DLC_BASE_POOL_H

#include <stddef.h>

#include "base/cores.h"
#include "base/err.h"

typedef struct dlc_pool dlc_pool;

/* n_threads >= 1, the calling thread included; 1 starts no thread. */
dlc_err dlc_pool_create(dlc_pool **out, int n_threads);
void dlc_pool_destroy(dlc_pool *pool); /* accepts NULL */
int dlc_pool_n_threads(const dlc_pool *pool);

/* Items [begin, end) of a divided job. `worker` is the thread that does them, below dlc_pool_n_threads: for memory of
 * its own, two parts at the same time have two workers. */
struct dlc_part {
    size_t begin, end;
    int worker;
};

typedef void dlc_part_fn(void *arg, struct dlc_part part);

/* Divides n items into parts of `grain` >= 1 items, the last may be shorter, calls fn once for each part and returns
 * when all are done. Parts are begun in order, each by the first worker that is free; the calling thread takes parts,
 * too, and waits for parts that others have begun, but for no worker that has begun none: one that sleeps, or whose
 * core is taken away, holds nobody up. Writes of all parts are seen by the caller. pool NULL: on the calling thread. */
void dlc_pool_each(dlc_pool *pool, dlc_part_fn *fn, void *arg, size_t n, size_t grain);

/* Calls fn(arg, worker, n_workers) exactly once in every worker's thread and returns when all are done, the slowest
 * included: for what is about threads. pool NULL: on the calling thread. */
void dlc_pool_run(dlc_pool *pool, void (*fn)(void *arg, int worker, int n_workers), void *arg);

/* Binds each worker to one core: worker w, the calling thread being 0, to number (first + w) of those that the process
 * may use, counted round when there are fewer. Pools with different `first` share no core as long as there are enough.
 * DLC_EFAIL where the system does not do it, with the reason. */
dlc_err dlc_pool_pin(dlc_pool *pool, int first);

/* The part [begin, end) of n items that `worker` of n_workers does; parts are multiples of `grain` but the last. */
static inline void dlc_pool_part(size_t *begin, size_t *end, size_t n, size_t grain, int worker, int n_workers)
{
    size_t blocks = (n + grain - 1) / grain, w = (size_t)worker, k = (size_t)n_workers;
    size_t b = blocks * w / k * grain, e = blocks * (w + 1) / k * grain;

    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

#endif
