/* What a kind of device gives to the registry (backend.c). One constant struct of these each. */
#ifndef DLC_BACKEND_DEVICE_H
#define DLC_BACKEND_DEVICE_H

#include "backend/backend.h"

struct dlc_device {
    const char *name; /* "cpu" */

    /* `isa` is what the user asked for. DLC_ENOTFOUND when this kind of device does not know that word: the next one in
     * the registry is asked. Any other error is final. */
    dlc_err (*create)(dlc_backend **out, const char *isa, int n_threads);
    void (*destroy)(dlc_backend *be);

    dlc_err (*alloc)(dlc_backend *be, void **out, size_t size_bytes, const char *purpose);
    void (*free)(dlc_backend *be, void *p, size_t size_bytes);
};

extern const struct dlc_device dlc_device_cpu;

#endif
