/* The system's random numbers, for identities and secrets; what a run computes with is seeded (rng.h). */
#ifndef DLC_BASE_RANDOM_H
#define DLC_BASE_RANDOM_H

#include <stddef.h>

#include "base/err.h"

dlc_err dlc_random_bytes(void *out, size_t n);

/* 2 n hexadecimal digits and a final zero. */
dlc_err dlc_random_hex(char *out, size_t n);

#endif
