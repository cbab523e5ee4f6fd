/* What this machine can do: arithmetic in registers, streams over memory. */
#ifndef DLC_BENCH_PEAKS_H
#define DLC_BENCH_PEAKS_H

#include <stddef.h>

#include "base/err.h"
#include "base/pool.h"
#include "bench/kernels/peak.h"

/* Bytes a second, all threads: read and written both counted, a line that is fetched only to be overwritten not. */
struct dlc_bandwidth {
    double read, triad, in_place;
    size_t array_bytes; /* of each of the arrays streamed over */
};

struct dlc_peaks {
    int n_threads;
    double f32_flops, f32_flops_1;   /* a second, all threads and one; a multiply-add is 2 */
    double bf16_flops, bf16_flops_1; /* 0: the machine has no bf16 products */
    struct dlc_bandwidth memory;     /* zero: not measured */
};

/* Sets of instructions that this machine and this build have, from weak to strong. */
struct dlc_peak_set {
    const char *name;
    const struct dlc_peak_vectors *vectors; /* NULL: the set has only a dot product */
    dlc_peak_flops_fn *dot;                 /* bf16; NULL: none */
};
enum { DLC_PEAK_MAX_SETS = 8 };
size_t dlc_peak_sets(struct dlc_peak_set out[DLC_PEAK_MAX_SETS]);

/* The best of many repetitions over about `seconds`, with the fastest set. Touches no memory. */
void dlc_peaks_arithmetic(struct dlc_peaks *out, dlc_pool *pool, double seconds);

/* Three arrays of array_bytes to stream over; together far larger than the caches, or it is those that are measured. */
struct dlc_streams {
    dlc_pool *pool;
    const struct dlc_peak_vectors *vectors;
    float *a, *b, *c;
    size_t n; /* of each */
};
dlc_err dlc_streams_init(struct dlc_streams *out, dlc_pool *pool, size_t array_bytes);
void dlc_streams_fini(struct dlc_streams *streams); /* accepts zeros */

/* Raises *best to the best of some repetitions over about `seconds`. Memory is faster in some seconds than in others:
 * what is to be compared with it has to be measured in turn with it. */
void dlc_streams_measure(struct dlc_bandwidth *best, const struct dlc_streams *streams, double seconds);

#endif
