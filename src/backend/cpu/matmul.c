#include "backend/cpu/matmul.h"

#include "backend/cpu/cpu.h"

static dlc_err open_builtin(struct dlc_cpu *cpu)
{
    /* Without vectors it is the reference, and should say so. */
    return cpu->kernels.matmul == dlc_matmul_ref ? DLC_ENOTFOUND : DLC_OK;
}

static void multiply_builtin(struct dlc_cpu *cpu, int worker, const struct dlc_product *part)
{
    cpu->kernels.matmul(part, dlc_cpu_scratch(cpu, worker));
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

static const struct dlc_matmul_lib builtin = { "builtin", open_builtin, close_nothing, multiply_builtin };
static const struct dlc_matmul_lib ref = { "ref", open_ref, close_nothing, multiply_ref };

const struct dlc_matmul_lib *const dlc_matmul_libs[] = { &builtin, &ref, NULL };
