/* The bytes of a file as a stream, decompressed when it begins like gzip or zstd (whatever its name). Fixed memory. */
#ifndef DLC_DATA_READER_H
#define DLC_DATA_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct dlc_reader dlc_reader;

/* `name` is what errors call the file. DLC_EINPUT when it cannot be opened. */
dlc_err dlc_reader_open(dlc_reader **out, const char *path, const char *name);
void dlc_reader_close(dlc_reader *r); /* accepts NULL */

/* Fills out[size_bytes] as far as there is something: *n smaller than asked means the end. DLC_EINPUT with the offset
 * in the file for damaged or truncated compression. */
dlc_err dlc_reader_read(size_t *n, dlc_reader *r, char *out, size_t size_bytes);

uint64_t dlc_reader_consumed(const dlc_reader *r); /* bytes of the file so far, for progress */
const char *dlc_reader_name(const dlc_reader *r);

#endif
