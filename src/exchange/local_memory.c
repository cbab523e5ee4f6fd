#include "exchange/local_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define ALIGN ((size_t)4096)

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t total_bytes(const struct dlc_exchange_size *size)
{
    size_t array = aligned(size->n_params * sizeof(float));

    return array * (size->lockstep ? 3 : 2) + (size_t)size->n_islands * aligned(size->slot_bytes);
}

static int make_file(const char *fallback_folder)
{
#ifdef MFD_CLOEXEC
    (void)fallback_folder;
    return memfd_create("diloco exchange", MFD_CLOEXEC);
#else
    char path[DLC_PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/.exchange-XXXXXX", fallback_folder);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
#endif
}

dlc_err dlc_local_memory_create(int *out_fd, const struct dlc_exchange_size *size, const char *fallback_folder)
{
    int fd = make_file(fallback_folder);

    *out_fd = -1;
    if (fd < 0)
        return dlc_fail_errno(DLC_EFAIL, "shared memory cannot be made");
    if (ftruncate(fd, (off_t)total_bytes(size)) != 0) {
        dlc_err err = dlc_fail_errno(DLC_ENOMEM, "shared memory of %zu bytes", total_bytes(size));

        close(fd);
        return err;
    }
    *out_fd = fd;
    return DLC_OK;
}

dlc_err dlc_local_memory_map(struct dlc_local_memory *out, int fd, const struct dlc_exchange_size *size)
{
    size_t array = aligned(size->n_params * sizeof(float)), total = total_bytes(size);
    unsigned char *at;
    struct stat st;

    *out = (struct dlc_local_memory){ 0 };
    if (fstat(fd, &st) != 0)
        return dlc_fail_errno(DLC_EFAIL, "shared memory (descriptor %d)", fd);
    if ((size_t)st.st_size != total)
        return dlc_fail(DLC_EPEER, "shared memory of %lld bytes, expected %zu: coordinator and island do not agree",
                        (long long)st.st_size, total);
    at = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return dlc_fail_errno(DLC_ENOMEM, "shared memory of %zu bytes cannot be mapped", total);
    out->base = at;
    out->size_bytes = total;
    for (int i = 0; i < 2; i++, at += array)
        out->theta[i] = (float *)(void *)at;
    if (size->lockstep) {
        out->mean = (float *)(void *)at;
        at += array;
    }
    out->slots = at;
    out->slot_stride = aligned(size->slot_bytes);
    return DLC_OK;
}

void dlc_local_memory_unmap(struct dlc_local_memory *m)
{
    if (m->base)
        munmap(m->base, m->size_bytes);
    *m = (struct dlc_local_memory){ 0 };
}
