/* The printable stand-ins of the 256 bytes in tokenizer.json. Bytes that are printable in Latin-1 stand for themselves,
 * the 68 others (controls, space, 0x7f-0xa0, 0xad) are numbered upwards from U+0100 in byte order; so a space reads
 * U+0120. Every byte has one stand-in, all of them are one or two bytes of UTF-8. */
#ifndef DLC_DATA_BYTEMAP_H
#define DLC_DATA_BYTEMAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

int dlc_bytemap_code_point(unsigned char byte);

/* Stand-ins of `bytes` appended to `text` as UTF-8. */
dlc_err dlc_bytemap_append(struct dlc_buf *text, const char *bytes, size_t n);

/* The bytes that `text` (UTF-8) stands for, appended to `bytes`; *ok false when a character stands for no byte. */
dlc_err dlc_bytemap_decode(struct dlc_buf *bytes, bool *ok, const char *text, size_t n);

#endif
