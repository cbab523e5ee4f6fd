/* The one seam to libraries that multiply matrices.
 *
 * ops_matmul.c cuts a product into parts of the output, one a worker of our pool; a library multiplies one part in the
 * calling thread and starts no threads. The inner dimension is never divided between threads. */
#ifndef DLC_BACKEND_CPU_MATMUL_H
#define DLC_BACKEND_CPU_MATMUL_H

#include "backend/cpu/kernels.h"

struct dlc_cpu;

struct dlc_matmul_lib {
    const char *name;

    /* Called once by the device; DLC_ENOTFOUND when this machine cannot use the library (it is then passed over). May set
     * cpu->lib_state. */
    dlc_err (*open)(struct dlc_cpu *cpu);
    void (*close)(struct dlc_cpu *cpu);

    /* Called at the same time by all workers, for different outputs. Cannot fail. */
    void (*multiply)(struct dlc_cpu *cpu, int worker, const struct dlc_product *part);
};

/* In order of preference; ends with NULL. Libraries that were not found at build time are not in it. The last two are
 * "builtin" (ours, by the kernels of the instruction set) and "ref". */
extern const struct dlc_matmul_lib *const dlc_matmul_libs[];

#endif
