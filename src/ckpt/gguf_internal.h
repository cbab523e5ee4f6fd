/* What reading and writing of GGUF share. */
#ifndef DLC_CKPT_GGUF_INTERNAL_H
#define DLC_CKPT_GGUF_INTERNAL_H

#include "base/file.h"
#include "ckpt/gguf.h"

#define DLC__GGUF_MAGIC 0x46554747u /* "GGUF" */
#define DLC__GGUF_VERSION 3
#define DLC__GGUF_ALIGNMENT 32

enum dlc__gguf_type {
    DLC__GGUF_U8,
    DLC__GGUF_I8,
    DLC__GGUF_U16,
    DLC__GGUF_I16,
    DLC__GGUF_U32,
    DLC__GGUF_I32,
    DLC__GGUF_F32,
    DLC__GGUF_BOOL,
    DLC__GGUF_TEXT,
    DLC__GGUF_ARRAY,
    DLC__GGUF_U64,
    DLC__GGUF_I64,
    DLC__GGUF_F64,
    DLC__GGUF_N_TYPES
};

/* Numbers of the tensor types that are used here. */
enum { DLC__GGML_F32 = 0, DLC__GGML_F16 = 1, DLC__GGML_Q8_0 = 8, DLC__GGML_BF16 = 30 };

struct dlc__gguf_pair {
    struct dlc_gguf_text key;
    uint32_t type; /* of an array: of its elements */
    bool is_array;
    uint64_t n; /* elements; 1 for a single value */
    const unsigned char *at;
};

struct dlc_gguf_file {
    char *where;
    struct dlc__gguf_pair *pairs; /* by key, once all are read */
    uint64_t n_pairs;
    struct dlc_gguf_tensor *tensors;
    const struct dlc_gguf_tensor **by_name;
    uint64_t n_tensors;
    uint64_t alignment;
    struct dlc_file_map map; /* zeros when the bytes are the caller's */
};

/* Bytes of a single value; 0 for texts, arrays and what is unknown. */
size_t dlc__gguf_value_bytes(uint32_t type);
/* NULL when missing. */
const struct dlc__gguf_pair *dlc__gguf_find_pair(const dlc_gguf_file *f, const char *key);

#endif
