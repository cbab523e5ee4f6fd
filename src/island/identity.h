/* Who an island of a served run is, kept in island.json of its folder: an identity drawn once, the run it belongs to,
 * and how often it was started. */
#ifndef DLC_ISLAND_IDENTITY_H
#define DLC_ISLAND_IDENTITY_H

#include <stdint.h>

#include "base/err.h"

struct dlc_identity {
    char identity[33]; /* 32 hexadecimal digits */
    char run[33];
    char name[64]; /* as the coordinator knows it; "" before the first welcome */
    uint32_t incarnation;
};

/* Reads the folder's identity, or makes one for the run, and counts this start: durable on return. DLC_EINPUT: the folder
 * belongs to an island of another run, or is damaged. The folder exists and is locked. */
dlc_err dlc_identity_begin(struct dlc_identity *out, const char *folder, const char *run);

dlc_err dlc_identity_write(const struct dlc_identity *identity, const char *folder);

#endif
