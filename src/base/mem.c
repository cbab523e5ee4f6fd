#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static _Atomic uint64_t n_allocs;
static _Atomic uint64_t n_failed;
static _Atomic uint64_t fail_countdown;

static int should_fail(void)
{
    uint64_t left = atomic_load_explicit(&fail_countdown, memory_order_relaxed);

    if (left == 0)
        return 0;
    atomic_store_explicit(&fail_countdown, left - 1, memory_order_relaxed);
    return left == 1;
}

static void *counted(void *p, size_t size_bytes)
{
    if (!p)
        dlc_fail(DLC_ENOMEM, "out of memory: %zu bytes", size_bytes);
    atomic_fetch_add_explicit(p ? &n_allocs : &n_failed, 1, memory_order_relaxed);
    return p;
}

void *dlc_alloc(size_t size_bytes)
{
    return counted(should_fail() ? NULL : malloc(size_bytes ? size_bytes : 1), size_bytes);
}

void *dlc_calloc(size_t count, size_t size_bytes)
{
    size_t total;

    if (__builtin_mul_overflow(count, size_bytes, &total)) {
        dlc_fail(DLC_ENOMEM, "out of memory: %zu x %zu bytes", count, size_bytes);
        return NULL;
    }
    return counted(should_fail() ? NULL : calloc(1, total ? total : 1), total);
}

void *dlc_realloc(void *old, size_t size_bytes)
{
    return counted(should_fail() ? NULL : realloc(old, size_bytes ? size_bytes : 1), size_bytes);
}

char *dlc_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = dlc_alloc(n);

    if (copy)
        memcpy(copy, s, n);
    return copy;
}

void dlc_free(void *p)
{
    free(p);
}

dlc_err dlc_arena_alloc(void **out, size_t size_bytes, const char *purpose)
{
    void *p;

    *out = NULL;
    if (size_bytes == 0)
        size_bytes = 1;
    p = should_fail() ? MAP_FAILED : mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        atomic_fetch_add_explicit(&n_failed, 1, memory_order_relaxed);
        return dlc_fail(DLC_ENOMEM, "out of memory: %zu bytes for %s", size_bytes, purpose);
    }
#ifdef MADV_HUGEPAGE
    if (size_bytes >= (size_t)4 << 20)
        (void)madvise(p, size_bytes, MADV_HUGEPAGE); /* a wish: 20 to 70 % more bandwidth where it is granted */
#endif
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    *out = p;
    return DLC_OK;
}

void dlc_arena_free(void *p, size_t size_bytes)
{
    if (p)
        (void)munmap(p, size_bytes ? size_bytes : 1);
}

uint64_t dlc_mem_n_allocs(void)
{
    return atomic_load_explicit(&n_allocs, memory_order_relaxed);
}

uint64_t dlc_mem_n_failed(void)
{
    return atomic_load_explicit(&n_failed, memory_order_relaxed);
}

void dlc_mem_fail_at(uint64_t n)
{
    atomic_store_explicit(&fail_countdown, n, memory_order_relaxed);
}
