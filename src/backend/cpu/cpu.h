/* The CPU device, for its own files and its tests. */
#ifndef DLC_BACKEND_CPU_CPU_H
#define DLC_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul.h"
#include "base/pool.h"

enum {
    DLC_MAX_HEAD_DIM = 1024,
    DLC_MAX_BLOCKS = 256, /* sums over rows or values are taken in at most so many blocks, then in order over those */
};

struct dlc_cpu {
    dlc_backend be;
    struct dlc_ops ops;
    struct dlc_kernels kernels;
    const struct dlc_matmul_lib *lib;
    void *lib_state;
    dlc_isa isa;
    int plain_only; /* "ref" was asked for by name: no library either, they use the machine's vectors */
    int n_threads;

    /* Working memory, allocated at creation for the largest need and resident only where it was ever touched: */
    void *arena;
    size_t arena_bytes;
    size_t worker_floats; /* per worker, starting at a multiple of 64 bytes */
    float *worker_scratch;
    float *dg_blocks; /* rmsnorm_bwd: [blocks][C], at most dg_floats */
    size_t dg_floats;
    double sum_blocks[DLC_MAX_BLOCKS]; /* sum_squares */
};

static inline struct dlc_cpu *dlc_cpu_of(dlc_backend *be)
{
    return be->impl;
}

static inline float *dlc_cpu_scratch(const struct dlc_cpu *cpu, int worker)
{
    return cpu->worker_scratch + (size_t)worker * cpu->worker_floats;
}

/* As dlc_backend_create; `matmul` names the library or is "auto" (the first of the list that is there). */
dlc_err dlc_cpu_create(dlc_backend **out, const char *isa, const char *matmul, int n_threads);

/* The strongest set that this machine and this build have. */
dlc_isa dlc_cpu_best_isa(void);
const char *dlc_cpu_isa_name(dlc_isa isa);

enum { DLC_PARTS_PER_THREAD = 4 }; /* who has a slow core leaves parts to the others; at most about so many are made */

/* Divides n items into parts of multiples of `grain` items (dlc_pool_each): as many as DLC_PARTS_PER_THREAD says, or
 * fewer where a part would cost less than handing it out. n_values says how much work there is in all. */
void dlc_cpu_each(struct dlc_cpu *cpu, dlc_part_fn *fn, void *arg, size_t n, size_t grain, size_t n_values);

/* Fill the table; one function a file of operations. */
void dlc_cpu_ops_matmul(struct dlc_ops *ops);
void dlc_cpu_ops_rows(struct dlc_ops *ops);
void dlc_cpu_ops_attention(struct dlc_ops *ops);
void dlc_cpu_ops_flat(struct dlc_ops *ops);
void dlc_cpu_ops_decode(struct dlc_ops *ops);

#endif
