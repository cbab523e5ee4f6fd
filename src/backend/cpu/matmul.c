/* The libraries in order of preference, and the two of our own. */
#include "backend/cpu/matmul.h"

#include "backend/cpu/cpu.h"

void dlc_matmul_builtin(struct dlc_cpu *cpu, int worker, const struct dlc_product *part)
{
    cpu->kernels.matmul(part, dlc_cpu_scratch(cpu, worker));
}

/* Without vectors it is the reference, and should say so. */
static dlc_err open_builtin(struct dlc_cpu *cpu)
{
    return cpu->kernels.matmul == dlc_matmul_ref ? DLC_ENOTFOUND : DLC_OK;
}

static dlc_err open_ref(struct dlc_cpu *cpu)
{
    (void)cpu;
    return DLC_OK;
}

static void multiply_ref(struct dlc_cpu *cpu, int worker, const struct dlc_product *part)
{
    (void)cpu, (void)worker;
    dlc_matmul_ref(part, NULL);
}

static void close_nothing(struct dlc_cpu *cpu)
{
    (void)cpu;
}

static const struct dlc_matmul_lib builtin = { "builtin", open_builtin, close_nothing, dlc_matmul_builtin };
static const struct dlc_matmul_lib ref = { "ref", open_ref, close_nothing, multiply_ref };

const struct dlc_matmul_lib *const dlc_matmul_libs[] = {
#ifdef DLC_HAVE_ONEDNN
    &dlc_matmul_onednn,
    &dlc_matmul_onednn_primitives,
#endif
#ifdef DLC_HAVE_OPENBLAS
    &dlc_matmul_openblas,
#endif
    &builtin,
    &ref,
    NULL,
};
