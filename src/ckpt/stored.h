/* Number formats of tensors in files, and a tensor at a time on its way between files: whoever converts a model needs
 * memory for one tensor, not for all. */
#ifndef DLC_CKPT_STORED_H
#define DLC_CKPT_STORED_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

typedef enum {
    DLC_STORED_F32 = DLC_F32,
    DLC_STORED_BF16 = DLC_BF16,
    DLC_STORED_F16 = DLC_F16,
    DLC_STORED_Q8_0 /* blocks of 32 along a row: a scale in f16 and 32 signed bytes */
} dlc_stored;

#define DLC_Q8_0_VALUES 32
#define DLC_Q8_0_BYTES 34

const char *dlc_stored_name(dlc_stored type);    /* "f32", "bf16", "f16", "q8_0" */
size_t dlc_stored_block_values(dlc_stored type); /* a row has a multiple of so many: 1, or 32 */
size_t dlc_stored_block_bytes(dlc_stored type);

/* n values, a multiple of a block. bf16 and f16 round to nearest, ties to even. q8_0: scale = largest magnitude / 127,
 * values divided by it and rounded half away from zero (as ggml's reference does, bit for bit); none differs by more
 * than half a scale and the rounding of the scale. DLC_EINPUT with the tensor's name when a finite value would become
 * infinite, or for q8_0 when one is not finite. */
dlc_err dlc_stored_encode(void *out, dlc_stored type, const float *values, size_t n, const char *tensor);
/* Exact. `bytes` may be unaligned. */
void dlc_stored_decode(float *out, dlc_stored type, const void *bytes, size_t n);

/* Where the tensors of a model come from: all values of the one with this index, in whatever order. */
struct dlc_tensor_source {
    dlc_err (*read)(float *out, void *arg, size_t index);
    void *arg;
};

#endif
