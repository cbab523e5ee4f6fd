/* Creation of the CPU device: which instructions the machine has, which kernels and library that gives. */
#include "backend/cpu/cpu.h"

#include <string.h>
#ifdef DLC_HAVE_AVX512
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "backend/device.h"
#include "base/mem.h"

static const char *const isa_names[] = { "ref", "avx2", "avx512", "avx512bf16", "amx" };
enum { N_ISAS = sizeof isa_names / sizeof *isa_names };

const char *dlc_cpu_isa_name(dlc_isa isa)
{
    return isa_names[isa];
}

#ifdef DLC_HAVE_AVX512
/* Tiles of bf16. They have to be asked for: their registers are large, and the system saves them only for those who do.
 */
static int has_amx(void)
{
#ifdef __linux__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    unsigned a, b, c, d;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 22 /* amx-bf16 */) || !(d & 1u << 24 /* amx-tile */))
        return 0;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}
#endif

dlc_isa dlc_cpu_best_isa(void)
{
    dlc_isa best = DLC_ISA_REF;

#ifdef DLC_HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        best = DLC_ISA_AVX2;
#endif
#ifdef DLC_HAVE_AVX512
    if (best == DLC_ISA_AVX2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        best = __builtin_cpu_supports("avx512bf16") ? DLC_ISA_AVX512BF16 : DLC_ISA_AVX512;
    if (best == DLC_ISA_AVX512BF16 && has_amx())
        best = DLC_ISA_AMX;
#endif
    return best;
}

static void fill_kernels(struct dlc_kernels *k, dlc_isa isa)
{
    (void)isa;
    dlc_kernels_ref(k);
#ifdef DLC_HAVE_AVX2
    if (isa >= DLC_ISA_AVX2)
        dlc_kernels_avx2(k);
#endif
#ifdef DLC_HAVE_AVX512
    if (isa >= DLC_ISA_AVX512)
        dlc_kernels_avx512(k);
#endif
}

static dlc_err choose_isa(dlc_isa *out, const char *name)
{
    dlc_isa best = dlc_cpu_best_isa();
    int i = 0;

    *out = best;
    if (strcmp(name, "auto") == 0)
        return DLC_OK;
    while (i < N_ISAS && strcmp(name, isa_names[i]) != 0)
        i++;
    if (i == N_ISAS)
        return DLC_ENOTFOUND;
    if (i > (int)best)
        return dlc_fail(DLC_EUSAGE, "instruction set %s: this machine or this build has %s at most; use auto", name,
                        isa_names[best]);
    *out = (dlc_isa)i;
    return DLC_OK;
}

static dlc_err choose_matmul(struct dlc_cpu *cpu, const char *name)
{
    int any = strcmp(name, "auto") == 0;

    for (size_t i = 0; dlc_matmul_libs[i]; i++) {
        const struct dlc_matmul_lib *lib = dlc_matmul_libs[i];
        dlc_err err;

        if (!any && strcmp(name, lib->name) != 0)
            continue;
        err = lib->open(cpu);
        if (err == DLC_ENOTFOUND)
            continue;
        if (err == DLC_OK)
            cpu->lib = lib;
        return err;
    }
    return dlc_fail(DLC_EUSAGE, "matrix products by \"%s\": not in this build or not on this machine; use auto", name);
}

/* What the largest operation needs: attention tiles grow with the head dimension, builtin products have fixed panels.
 */
static size_t worker_floats(void)
{
    return (size_t)8 * DLC_ATTENTION_TILE * (DLC_MAX_HEAD_DIM + DLC_ATTENTION_TILE);
}

enum { DG_FLOATS = 1 << 22 };

static dlc_err alloc_scratch(struct dlc_cpu *cpu)
{
    cpu->worker_floats = worker_floats();
    cpu->dg_floats = DG_FLOATS;
    cpu->arena_bytes = (cpu->worker_floats * (size_t)cpu->n_threads + DG_FLOATS) * sizeof(float);
    DLC_TRY(dlc_arena_alloc(&cpu->arena, cpu->arena_bytes, "working memory of the kernels"));
    cpu->worker_scratch = cpu->arena;
    cpu->dg_blocks = cpu->worker_scratch + cpu->worker_floats * (size_t)cpu->n_threads;
    return DLC_OK;
}

static void destroy(dlc_backend *be)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);

    if (cpu->lib)
        cpu->lib->close(cpu);
    dlc_arena_free(cpu->arena, cpu->arena_bytes);
    dlc_pool_destroy(be->pool);
    dlc_free(cpu);
}

dlc_err dlc_cpu_create(dlc_backend **out, const char *isa, const char *matmul, int n_threads)
{
    struct dlc_cpu *cpu;
    dlc_isa chosen;
    dlc_err err;

    *out = NULL;
    DLC_TRY(choose_isa(&chosen, isa));
    cpu = dlc_calloc(1, sizeof *cpu);
    if (!cpu)
        return DLC_ENOMEM;
    cpu->isa = chosen;
    cpu->plain_only = strcmp(isa, "ref") == 0;
    cpu->n_threads = n_threads < 1 ? dlc_n_cores() : n_threads;
    cpu->be.impl = cpu;
    fill_kernels(&cpu->kernels, chosen);
    cpu->ops.abi = DLC_BACKEND_ABI;
    dlc_cpu_ops_matmul(&cpu->ops);
    dlc_cpu_ops_rows(&cpu->ops);
    dlc_cpu_ops_attention(&cpu->ops);
    dlc_cpu_ops_flat(&cpu->ops);
    dlc_cpu_ops_decode(&cpu->ops);
    DLC_TRY_TO(fail, dlc_pool_create(&cpu->be.pool, cpu->n_threads));
    DLC_TRY_TO(fail, alloc_scratch(cpu));
    DLC_TRY_TO(fail, choose_matmul(cpu, matmul));
    cpu->be.device = "cpu";
    cpu->be.isa = isa_names[chosen];
    cpu->be.matmul = cpu->lib->name;
    cpu->be.ops = &cpu->ops;
    cpu->be.driver = &dlc_device_cpu;
    *out = &cpu->be;
    return DLC_OK;
fail:
    destroy(&cpu->be);
    return err;
}

static dlc_err create(dlc_backend **out, const char *isa, int n_threads)
{
    return dlc_cpu_create(out, isa, "auto", n_threads);
}

static dlc_err alloc(dlc_backend *be, void **out, size_t size_bytes, const char *purpose)
{
    (void)be;
    return dlc_arena_alloc(out, size_bytes, purpose);
}

static void release(dlc_backend *be, void *p, size_t size_bytes)
{
    (void)be;
    dlc_arena_free(p, size_bytes);
}

const struct dlc_device dlc_device_cpu = { "cpu", create, destroy, alloc, release };

void dlc_cpu_each(struct dlc_cpu *cpu, dlc_part_fn *fn, void *arg, size_t n, size_t grain, size_t n_values)
{
    enum { PART_VALUES = 4096 }; /* about what one core does while another wakes up */
    size_t most = (size_t)cpu->n_threads * DLC_PARTS_PER_THREAD, n_parts = n_values / PART_VALUES;
    size_t n_grains = (n + grain - 1) / grain;

    if (n == 0)
        return;
    if (cpu->n_threads == 1 || n_parts < 1)
        n_parts = 1;
    if (n_parts > most)
        n_parts = most;
    dlc_pool_each(cpu->be.pool, fn, arg, n, (n_grains + n_parts - 1) / n_parts * grain);
}
