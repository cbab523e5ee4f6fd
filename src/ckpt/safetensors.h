/* safetensors files: the container of everything with tensors in it (models, outer state, island state). */
#ifndef DLC_CKPT_SAFETENSORS_H
#define DLC_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ckpt/stored.h"
#include "tensor/dtype.h"

#define DLC_ST_MAX_DIMS 4

/* What the format's own reader demands is checked on open (docs/formats/checkpoint.md): header length against the file,
 * JSON with no duplicate keys, no holes, no overlaps, no trailing bytes, sizes that multiply without overflow. The file
 * is mapped: it may be replaced meanwhile (renamed over), but not be cut. */
typedef struct dlc_st_file dlc_st_file;

struct dlc_st_tensor {
    const char *name;
    const char *dtype_name; /* "F32", "BF16", "F16", "I64", ... as in the file */
    int n_dims;
    uint64_t dims[DLC_ST_MAX_DIMS];
    uint64_t n_values;
    const void *data; /* in the mapped file, valid until close; may be unaligned in a file that others wrote */
    uint64_t size_bytes;
};

/* DLC_EINPUT with the reason, DLC_ENOTFOUND, DLC_EIO, DLC_ENOMEM; *out is NULL then. */
dlc_err dlc_st_open(dlc_st_file **out, const char *path);
/* The same over bytes that stay the caller's and must outlive the file; `where` names them in errors. */
dlc_err dlc_st_parse(dlc_st_file **out, const void *bytes, size_t size_bytes, const char *where);
void dlc_st_close(dlc_st_file *f); /* accepts NULL */

size_t dlc_st_n_tensors(const dlc_st_file *f);
const struct dlc_st_tensor *dlc_st_tensor_at(const dlc_st_file *f, size_t index); /* in the order of the data */
const struct dlc_st_tensor *dlc_st_find(const dlc_st_file *f, const char *name);  /* NULL when missing */
const char *dlc_st_metadata(const dlc_st_file *f, const char *key);               /* NULL when missing */

/* n_values of a tensor as f32 (F32, BF16, F16); DLC_EINPUT when the name is missing, the count or the dtype differs. */
dlc_err dlc_st_read_f32(float *out, const dlc_st_file *f, const char *name, uint64_t n_values);

/* Writing: describe the tensors, hand over f32 data; stored as F32, BF16 or F16 (rounded to nearest even; a value that
 * would become infinite is DLC_EINPUT). The bytes are those of the format's own library: order by dtype and name,
 * "format": "pt" in the metadata. Atomic, durable. */
struct dlc_st_write_tensor {
    const char *name;
    dlc_dtype dtype; /* of the file */
    int n_dims;
    uint64_t dims[DLC_ST_MAX_DIMS];
    const float *data;
};
struct dlc_st_meta {
    const char *key, *value;
};
dlc_err dlc_st_write(const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                     const struct dlc_st_meta *metadata, size_t n_metadata);
/* The same, atomic but not durable (dlc_file_writer_place). */
dlc_err dlc_st_place(const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                     const struct dlc_st_meta *metadata, size_t n_metadata);
/* dlc_st_write without data in memory: they are read one tensor at a time, with the tensor's place in `tensors` as index.
 */
dlc_err dlc_st_write_from(const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                          const struct dlc_st_meta *metadata, size_t n_metadata,
                          const struct dlc_tensor_source *source);

#endif
