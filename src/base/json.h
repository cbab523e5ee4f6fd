/* jansson with the project's habits: duplicate keys refused, missing or mistyped members reported with the file's name,
 * the key and what was found. `where` is the file (or message) named in errors. Borrowed references throughout. */
#ifndef DLC_BASE_JSON_H
#define DLC_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* *out is the caller's (json_decref). DLC_EINPUT with line and column. */
dlc_err dlc_json_parse(json_t **out, const char *text, size_t size_bytes, const char *where);
/* json_loadb for those who need other flags. Everybody parses through here: jansson overlooks some failed allocations
 * and gives text with parts missing, or calls them a syntax error; that is NULL with *out_of_memory set instead. */
json_t *dlc_json_load(const char *text, size_t size_bytes, size_t flags, json_error_t *error, bool *out_of_memory);
dlc_err dlc_json_read_file(json_t **out, const char *path, size_t max_bytes);

/* Compact text with sorted keys, so that equal values give equal bytes; any value, not only objects. Free with
 * dlc_free. NULL: out of memory. */
char *dlc_json_dump(const json_t *value);
char *dlc_json_dump_indented(const json_t *value); /* two spaces, in insertion order, no final newline */
/* The indented text, written atomically with a final newline. */
dlc_err dlc_json_write_file(const char *path, const json_t *value);

/* Members of an object; DLC_EINPUT when missing, of another type or out of range. */
dlc_err dlc_json_get_int(int64_t *out, const json_t *object, const char *key, int64_t min, int64_t max,
                         const char *where);
dlc_err dlc_json_get_real(double *out, const json_t *object, const char *key, const char *where); /* integers too */
dlc_err dlc_json_get_string(const char **out, const json_t *object, const char *key, const char *where);
dlc_err dlc_json_get_bool(int *out, const json_t *object, const char *key, const char *where);
dlc_err dlc_json_get_array(json_t **out, const json_t *object, const char *key, const char *where);
dlc_err dlc_json_get_object(json_t **out, const json_t *object, const char *key, const char *where);

#endif
