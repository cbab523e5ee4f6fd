/* The one seam to libraries that multiply matrices.
 *
 * ops_matmul.c cuts a product into tiles of the output; a library multiplies one in the
 * calling thread and starts no threads of its own, so nothing spins against the pool. The inner dimension is never
 * divided between threads. Libraries may allocate when a shape is new to them, outside what dlc_mem_n_allocs counts. */
#ifndef DLC_BACKEND_CPU_MATMUL_H
#define DLC_BACKEND_CPU_MATMUL_H

#include "backend/cpu/kernels.h"

struct dlc_cpu;

struct dlc_matmul_lib {
    const char *name;

    /* Called once by the device; DLC_ENOTFOUND when the library cannot serve this instruction set (it is passed over).
     * May set cpu->lib_state. close is called for what open returned DLC_OK for. */
    dlc_err (*open)(struct dlc_cpu *cpu);
    void (*close)(struct dlc_cpu *cpu);

    /* Called at the same time by all workers, for different outputs. Cannot fail. */
    void (*multiply)(struct dlc_cpu *cpu, int worker, const struct dlc_product *part);
};

/* In order of preference; ends with NULL. Libraries that were not found at build time are not in it. The last two are
 * "builtin" (ours, by the kernels of the instruction set) and "ref". */
extern const struct dlc_matmul_lib *const dlc_matmul_libs[];

extern const struct dlc_matmul_lib dlc_matmul_onednn, dlc_matmul_onednn_primitives, dlc_matmul_openblas;

/* What a library hands on when it cannot do a product itself (bf16 without the instructions for it). */
void dlc_matmul_builtin(struct dlc_cpu *cpu, int worker, const struct dlc_product *part);

#endif
