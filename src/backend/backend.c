#include "backend/backend.h"

#include <string.h>

#include "backend/device.h"

/* In the order in which they are asked; a device that was not built is not in the list. */
static const struct dlc_device *const devices[] = { &dlc_device_cpu };

dlc_err dlc_backend_create(dlc_backend **out, const char *isa, int n_threads)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        dlc_err err = devices[i]->create(out, isa, n_threads);

        if (err != DLC_ENOTFOUND)
            return err;
    }
    return dlc_fail(DLC_EUSAGE, "instruction set \"%s\" is unknown; use auto, ref, avx2, avx512, avx512bf16 or amx",
                    isa);
}

void dlc_backend_destroy(dlc_backend *be)
{
    if (be)
        be->driver->destroy(be);
}

dlc_err dlc_backend_alloc(dlc_backend *be, void **out, size_t size_bytes, const char *purpose)
{
    return be->driver->alloc(be, out, size_bytes, purpose);
}

void dlc_backend_free(dlc_backend *be, void *p, size_t size_bytes)
{
    if (p)
        be->driver->free(be, p, size_bytes);
}
