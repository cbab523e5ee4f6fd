/* GGUF files: the one container that llama.cpp and the programs around it load (docs/formats/gguf.md).
 *
 * A file is a list of key-value pairs, a list of tensors, and their data. This knows nothing about models: gguf_model.h
 * does. */
#ifndef DLC_CKPT_GGUF_H
#define DLC_CKPT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "ckpt/stored.h"

#define DLC_GGUF_MAX_DIMS 4
#define DLC_GGUF_NAME_BYTES 64 /* of tensors, with the final zero */

/* ---- reading ----
 *
 * Everything is checked on open: counts and lengths against the file before anything is allocated, keys and names that
 * appear twice, shapes that multiply without overflow, an alignment that is a power of two, tensors that follow each
 * other without hole or overlap and end inside the file, types that can be decoded. The file is mapped. */
typedef struct dlc_gguf_file dlc_gguf_file;

struct dlc_gguf_text {
    const char *bytes; /* in the file, not zero-terminated */
    size_t n;
};

struct dlc_gguf_tensor {
    char name[DLC_GGUF_NAME_BYTES];
    dlc_stored type;
    int n_dims;
    uint64_t dims[DLC_GGUF_MAX_DIMS]; /* outermost first, as everywhere else here; in the file it is the other way */
    uint64_t n_values;
    const void *data; /* valid until close */
    uint64_t size_bytes;
};

/* DLC_EINPUT with the reason, DLC_ENOTFOUND, DLC_EIO, DLC_ENOMEM; *out is NULL then. */
dlc_err dlc_gguf_open(dlc_gguf_file **out, const char *path);
/* The same over bytes that stay the caller's and must outlive the file; `where` names them in errors. */
dlc_err dlc_gguf_parse(dlc_gguf_file **out, const void *bytes, size_t size_bytes, const char *where);
void dlc_gguf_close(dlc_gguf_file *f); /* accepts NULL */

const char *dlc_gguf_where(const dlc_gguf_file *f);
size_t dlc_gguf_n_tensors(const dlc_gguf_file *f);
const struct dlc_gguf_tensor *dlc_gguf_tensor_at(const dlc_gguf_file *f, size_t index); /* in the order of the file */
const struct dlc_gguf_tensor *dlc_gguf_find(const dlc_gguf_file *f, const char *name);  /* NULL when missing */

/* Values by key. DLC_EINPUT when the key is missing, of another kind or out of range; any width of integer will do for
 * an integer, any number for a real. */
bool dlc_gguf_has(const dlc_gguf_file *f, const char *key);
dlc_err dlc_gguf_get_int(int64_t *out, const dlc_gguf_file *f, const char *key, int64_t min, int64_t max);
dlc_err dlc_gguf_get_real(double *out, const dlc_gguf_file *f, const char *key);
dlc_err dlc_gguf_get_bool(bool *out, const dlc_gguf_file *f, const char *key);
dlc_err dlc_gguf_get_text(struct dlc_gguf_text *out, const dlc_gguf_file *f, const char *key);

/* Arrays of texts or integers, an element after the other: n times dlc_gguf_next_... */
struct dlc_gguf_array {
    uint64_t n;
    const unsigned char *at;
    uint32_t type; /* of the elements, as in the file */
};
dlc_err dlc_gguf_get_texts(struct dlc_gguf_array *out, const dlc_gguf_file *f, const char *key);
dlc_err dlc_gguf_get_ints(struct dlc_gguf_array *out, const dlc_gguf_file *f, const char *key);
struct dlc_gguf_text dlc_gguf_next_text(struct dlc_gguf_array *array);
int64_t dlc_gguf_next_int(struct dlc_gguf_array *array); /* a u64 above 2^63 - 1 is INT64_MAX */

bool dlc_gguf_text_is(struct dlc_gguf_text text, const char *other);

/* ---- writing ----
 *
 * Pairs are gathered in a struct that starts as zeros; an error is kept in it until the file is written.
 *     struct dlc_gguf_pairs p = { 0 };
 *     dlc_gguf_put_text(&p, "general.architecture", "llama");
 *     err = dlc_gguf_write(path, &p, tensors, n, &source);
 *     dlc_gguf_pairs_fini(&p); */
struct dlc_gguf_pairs {
    struct dlc_buf bytes;
    uint64_t n;
    dlc_err err;
};
void dlc_gguf_pairs_fini(struct dlc_gguf_pairs *p);
void dlc_gguf_put_u32(struct dlc_gguf_pairs *p, const char *key, uint32_t value);
void dlc_gguf_put_f32(struct dlc_gguf_pairs *p, const char *key, float value);
void dlc_gguf_put_bool(struct dlc_gguf_pairs *p, const char *key, bool value);
void dlc_gguf_put_text(struct dlc_gguf_pairs *p, const char *key, const char *value);
void dlc_gguf_put_i32s(struct dlc_gguf_pairs *p, const char *key, const int32_t *values, size_t n);
void dlc_gguf_put_texts(struct dlc_gguf_pairs *p, const char *key, uint64_t n); /* n times _put_element follow */
void dlc_gguf_put_element(struct dlc_gguf_pairs *p, const char *bytes, size_t n);

struct dlc_gguf_write_tensor {
    char name[DLC_GGUF_NAME_BYTES];
    dlc_stored type;
    int n_dims;
    uint64_t dims[DLC_GGUF_MAX_DIMS]; /* outermost first */
};
/* Version 3, alignment 32. Values come from `source`, by place in `tensors`; memory for the largest tensor. Atomic and
 * durable: on failure nothing is left and an old file of this name is untouched. */
dlc_err dlc_gguf_write(const char *path, const struct dlc_gguf_pairs *pairs,
                       const struct dlc_gguf_write_tensor *tensors, size_t n_tensors,
                       const struct dlc_tensor_source *source);

#endif
