/* The operations of the backend table as data: arrays, shapes worth trying, tolerance, how to call it, and what is
 * right in double precision. One list serves the conformance test, the gradient check and the benchmark. */
#ifndef DLC_BACKEND_CONFORMANCE_H
#define DLC_BACKEND_CONFORMANCE_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"

enum { MAX_ARRAYS = 10, MAX_DIMS = 7, MAX_SHAPES = 12 };

/* OUT is overwritten (holds NaN before), ADD is added to or changed in place, IN must stay, INDEX is int32 below
 * `limit`, OUT16 is a bf16 output. With the flag `bf16` of a shape arrays marked IN16 and ADD16 are handed over in
 * bf16.
 */
enum array_kind { OUT, ADD, IN, IN16, INDEX, OUT16, ADD16 };

struct array_spec {
    const char *name;
    enum array_kind kind;
    size_t n;
    double scale, shift; /* values are normal(shift, scale) */
    size_t limit;
};

struct shape {
    size_t d[MAX_DIMS];
    const char *why;
    int bf16, small; /* small: finite differences are affordable */
};

struct op {
    const char *name;
    int same_bits_any_threads;
    double tolerance;                                         /* |got - right| <= tolerance (|right| + rms of right) */
    int (*arrays)(struct array_spec *specs, const size_t *d); /* returns how many */
    void (*prepare)(double **a, int32_t **index, const size_t *d);     /* inputs that follow from others; may be NULL */
    void (*right)(double **a, int32_t **index, const size_t *d);       /* in double */
    void (*run)(dlc_backend *be, void **a, const size_t *d, int bf16); /* what is tested */
    struct shape shapes[MAX_SHAPES];
};

extern const struct op conformance_ops[];
extern const size_t conformance_n_ops;

const struct op *conformance_op(const char *name);

double conformance_nearest_bf16(double x);

#endif
