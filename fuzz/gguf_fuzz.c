/* GGUF: whatever the bytes are, they are refused with a text, or all tensors and texts can be read to their end. The
 * same bytes are then taken as a model, and their tokenizer as one that can be run. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "ckpt/gguf_model.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int ok)
{
    if (!ok)
        abort();
}

static void read_tensors(const dlc_gguf_file *f, size_t size)
{
    for (size_t i = 0; i < dlc_gguf_n_tensors(f); i++) {
        const struct dlc_gguf_tensor *t = dlc_gguf_tensor_at(f, i);
        float *values;

        require(dlc_gguf_find(f, t->name) == t && t->size_bytes <= size && t->n_values <= size);
        values = malloc(t->n_values * sizeof *values);
        require(values != NULL);
        dlc_stored_decode(values, t->type, t->data, t->n_values);
        free(values);
    }
}

static void read_texts(const dlc_gguf_file *f, size_t size)
{
    struct dlc_gguf_array texts;
    size_t sum = 0;

    if (dlc_gguf_get_texts(&texts, f, "tokenizer.ggml.tokens") != DLC_OK)
        return;
    for (uint64_t i = 0; i < texts.n; i++) {
        struct dlc_gguf_text text = dlc_gguf_next_text(&texts);

        for (size_t k = 0; k < text.n; k++)
            sum += text.bytes[k] != 0;
    }
    require(sum <= size);
}

static void read_model(const uint8_t *data, size_t size)
{
    struct dlc_buf json = { 0 };
    struct dlc_model_content content;
    dlc_tokenizer *t;
    dlc_gguf_model *m;
    float *values;

    if (dlc_gguf_model_parse(&m, data, size, "fuzz") != DLC_OK) {
        require(m == NULL && dlc_err_text()[0] != '\0');
        return;
    }
    content = dlc_gguf_model_content(m);
    values = malloc((size_t)content.config.vocab_size * (size_t)content.config.d_model * sizeof *values);
    require(values != NULL && content.tensors.read(values, content.tensors.arg, 0) == DLC_OK); /* the embedding */
    free(values);
    if (dlc_gguf_model_tokenizer(&json, m) == DLC_OK) {
        require(dlc_tokenizer_parse(&t, json.data, json.len, "again") == DLC_OK);
        dlc_tokenizer_destroy(t);
    }
    dlc_buf_fini(&json);
    dlc_gguf_model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dlc_gguf_file *f;

    if (dlc_gguf_parse(&f, data, size, "fuzz") != DLC_OK) {
        require(f == NULL && dlc_err_text()[0] != '\0');
        return 0;
    }
    read_tensors(f, size);
    read_texts(f, size);
    dlc_gguf_close(f);
    read_model(data, size);
    return 0;
}
