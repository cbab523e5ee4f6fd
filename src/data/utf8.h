/* UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef DLC_DATA_UTF8_H
#define DLC_DATA_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the longest well-formed beginning of text[n]. */
size_t dlc_utf8_valid_prefix(const char *text, size_t n);

/* Bytes that belong to no well-formed character. */
uint64_t dlc_utf8_count_invalid(const char *text, size_t n);

#endif
