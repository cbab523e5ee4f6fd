/* safetensors: whatever the bytes are, they are refused with a text, or every tensor can be found and read to its end.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dlc_st_file *f;

    if (dlc_st_parse(&f, data, size, "fuzz") != DLC_OK) {
        require(f == NULL && dlc_err_text()[0] != '\0');
        return 0;
    }
    for (size_t i = 0; i < dlc_st_n_tensors(f); i++) {
        const struct dlc_st_tensor *t = dlc_st_tensor_at(f, i);
        const unsigned char *bytes = t->data;
        unsigned sum = 0;

        require(dlc_st_find(f, t->name) == t && t->size_bytes <= size);
        for (uint64_t k = 0; k < t->size_bytes; k++)
            sum += bytes[k];
        require(sum <= 255 * size);
        if (t->size_bytes > 0 && t->n_values <= size) {
            float *values = malloc(t->n_values * sizeof *values);

            if (values && dlc_st_read_f32(values, f, t->name, t->n_values) != DLC_OK)
                require(dlc_err_text()[0] != '\0');
            free(values);
        }
    }
    (void)dlc_st_metadata(f, "format");
    dlc_st_close(f);
    return 0;
}
