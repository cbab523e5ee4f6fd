/* What this machine can do: arithmetic in registers, streams over memory. */
#ifndef DLC_BENCH_PEAKS_H
#define DLC_BENCH_PEAKS_H

#include <stddef.h>

#include "base/err.h"
#include "base/pool.h"
#include "bench/kernels/peak.h"

struct dlc_peaks {
    int n_threads;
    double f32_flops, f32_flops_1;   /* a second, all threads and one; a multiply-add is 2 */
    double bf16_flops, bf16_flops_1; /* 0: the machine has no bf16 products */
    double read, triad, in_place;    /* bytes a second, all threads: bytes read and written, a line that is fetched only
                                      * to be overwritten not counted; 0: not measured */
    size_t array_bytes;              /* of each of the arrays streamed over */
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

/* The same for memory, over three arrays of array_bytes; far larger than the caches, or it is those that are measured.
 */
dlc_err dlc_peaks_memory(struct dlc_peaks *out, dlc_pool *pool, double seconds, size_t array_bytes);

#endif
