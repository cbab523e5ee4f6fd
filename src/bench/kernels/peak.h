/* Loops that do one thing as fast as the machine can: the roofs against which operations are judged.
 *
 * Compiled once for each set of instructions (meson.build), in one thread; peaks.c asks the machine and runs them on
 * all. DLC_SET names the set, DLC_PEAK(fma) is dlc_peak_fma_generic, dlc_peak_fma_avx2 ... Nothing in a file that was
 * compiled for a set may be called before the machine was asked for it. */
#ifndef DLC_BENCH_KERNELS_PEAK_H
#define DLC_BENCH_KERNELS_PEAK_H

#include <stddef.h>

#ifndef DLC_SET
#define DLC_SET generic
#endif
#define DLC_PEAK_PASTE(name, set) dlc_peak_##name##_##set
#define DLC_PEAK_NAME(name, set) DLC_PEAK_PASTE(name, set)
#define DLC_PEAK(name) DLC_PEAK_NAME(name, DLC_SET)

/* Multiply-adds in registers, some milliseconds of them; returns how many FLOPs (a multiply-add is 2). *sink gets
 * a sum over all results, so that none can be left out. */
typedef double dlc_peak_flops_fn(float *sink);
enum { DLC_PEAK_FMA_ROUNDS = 1 << 20 };

/* Streams over n floats of arrays aligned to 64 bytes; n is a multiple of DLC_PEAK_GRAIN. */
enum { DLC_PEAK_GRAIN = 1024 };
typedef float dlc_peak_read_fn(const float *a, size_t n);                                    /* sum of a */
typedef void dlc_peak_triad_fn(float *a, const float *b, const float *c, float s, size_t n); /* a = b + s c */
typedef void dlc_peak_in_place_fn(float *a, float s, size_t n);                              /* a = s - a */

struct dlc_peak_vectors {
    dlc_peak_flops_fn *fma; /* *sink: 0 before, then 2 for each sum; a round is one multiply-add for each */
    dlc_peak_read_fn *read;
    dlc_peak_triad_fn *triad;
    dlc_peak_in_place_fn *in_place;
};

extern const struct dlc_peak_vectors dlc_peak_vectors_generic, dlc_peak_vectors_avx2, dlc_peak_vectors_avx512;

/* bf16 products added up in f32. */
dlc_peak_flops_fn dlc_peak_dot_avx512bf16, dlc_peak_dot_amx;

#endif
