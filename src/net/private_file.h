/* Files that hold secrets: mode 0600 from their first byte on, in a folder of mode 0700. */
#ifndef DLC_NET_PRIVATE_FILE_H
#define DLC_NET_PRIVATE_FILE_H

#include <stddef.h>

#include "base/err.h"

/* The folder, made when missing, and nobody else's: DLC_EINPUT when it belongs to another user. */
dlc_err dlc__private_folder(const char *path);
/* Replaced as a whole and durably, as dlc_file_write_atomic does. */
dlc_err dlc__private_write(const char *path, const void *data, size_t size_bytes);

#endif
