/* A backend whose operations are timed: a table of operations that book their time and hand on to the real ones.
 *
 * Between dlc_timed_begin and dlc_timed_end the backend's table is this one (nothing else may change dlc_backend.ops);
 * whoever computes with the backend notices nothing, and its results have the same bits. Outside nothing is timed and
 * nothing costs. From one thread. */
#ifndef DLC_BENCH_TIMED_H
#define DLC_BENCH_TIMED_H

#include <stddef.h>

#include "backend/backend.h"

/* What bounds an operation; the last three are bandwidths (peaks.h). */
typedef enum { DLC_ROOF_F32, DLC_ROOF_BF16, DLC_ROOF_READ, DLC_ROOF_TRIAD, DLC_ROOF_IN_PLACE } dlc_roof;

enum { DLC_TIMED_MAX_SIZES = 6, DLC_TIMED_MAX_ROWS = 128 };

/* One operation with one shape. */
struct dlc_timed_row {
    int op; /* dlc_timed_op_name */
    dlc_roof roof;
    size_t sizes[DLC_TIMED_MAX_SIZES];
    double amount; /* FLOPs or bytes of one call, ops_list.h */
    int n_calls;
    double seconds; /* of all calls */
    double best_s;  /* of one call, ever */
};

/* rows and n_rows are for reading. Shapes beyond DLC_TIMED_MAX_ROWS are not booked. */
struct dlc_timed {
    struct dlc_ops ops; /* first: the backend's table is a pointer to it */
    const struct dlc_ops *inner;
    dlc_backend *be;
    struct dlc_timed_row rows[DLC_TIMED_MAX_ROWS];
    size_t n_rows;
};

void dlc_timed_begin(struct dlc_timed *t, dlc_backend *be); /* zero-initialise *t once; rows stay from before */
void dlc_timed_end(struct dlc_timed *t);
void dlc_timed_clear(struct dlc_timed *t); /* calls and seconds to 0; shapes and best_s stay */

const char *dlc_timed_op_name(int op);
void dlc_timed_shape(char *out, size_t size, const struct dlc_timed_row *row); /* "R=4096 N=256 K=256" */

#endif
