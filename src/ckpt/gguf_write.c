/* Writing of GGUF: the head in one piece, then the tensors, one in memory at a time. */
#include <assert.h>
#include <string.h>

#include "base/cursor.h"
#include "base/file.h"
#include "base/mem.h"
#include "ckpt/gguf.h"
#include "ckpt/gguf_internal.h"

#define CHUNK_VALUES 8192 /* a multiple of every block */

static const uint32_t ggml_types[] = {
    [DLC_STORED_F32] = DLC__GGML_F32,
    [DLC_STORED_BF16] = DLC__GGML_BF16,
    [DLC_STORED_F16] = DLC__GGML_F16,
    [DLC_STORED_Q8_0] = DLC__GGML_Q8_0,
};

static uint64_t padding(uint64_t at)
{
    return (DLC__GGUF_ALIGNMENT - at % DLC__GGUF_ALIGNMENT) % DLC__GGUF_ALIGNMENT;
}

/* ---- pairs ---- */

static dlc_err append_uint(struct dlc_buf *b, uint64_t v, size_t n_bytes)
{
    unsigned char bytes[8];
    struct dlc_cursor c = dlc_cursor(bytes, sizeof bytes);

    dlc_put_uint(&c, v, n_bytes);
    return dlc_buf_append(b, bytes, n_bytes);
}

static dlc_err append_text(struct dlc_buf *b, const char *bytes, size_t n)
{
    DLC_TRY(append_uint(b, n, 8));
    return dlc_buf_append(b, bytes, n);
}

static dlc_err append_pair(struct dlc_buf *b, const char *key, enum dlc__gguf_type type)
{
    DLC_TRY(append_text(b, key, strlen(key)));
    return append_uint(b, type, 4);
}

static void keep_first(struct dlc_gguf_pairs *p, dlc_err err)
{
    if (p->err == DLC_OK)
        p->err = err;
}

static void put_number(struct dlc_gguf_pairs *p, const char *key, enum dlc__gguf_type type, uint64_t bits, size_t n)
{
    keep_first(p, append_pair(&p->bytes, key, type));
    keep_first(p, append_uint(&p->bytes, bits, n));
    p->n++;
}

static void put_array(struct dlc_gguf_pairs *p, const char *key, enum dlc__gguf_type type, uint64_t n)
{
    keep_first(p, append_pair(&p->bytes, key, DLC__GGUF_ARRAY));
    keep_first(p, append_uint(&p->bytes, type, 4));
    keep_first(p, append_uint(&p->bytes, n, 8));
    p->n++;
}

void dlc_gguf_pairs_fini(struct dlc_gguf_pairs *p)
{
    dlc_buf_fini(&p->bytes);
    *p = (struct dlc_gguf_pairs){ 0 };
}

void dlc_gguf_put_u32(struct dlc_gguf_pairs *p, const char *key, uint32_t value)
{
    put_number(p, key, DLC__GGUF_U32, value, 4);
}

void dlc_gguf_put_f32(struct dlc_gguf_pairs *p, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    put_number(p, key, DLC__GGUF_F32, bits, 4);
}

void dlc_gguf_put_bool(struct dlc_gguf_pairs *p, const char *key, bool value)
{
    put_number(p, key, DLC__GGUF_BOOL, value, 1);
}

void dlc_gguf_put_text(struct dlc_gguf_pairs *p, const char *key, const char *value)
{
    keep_first(p, append_pair(&p->bytes, key, DLC__GGUF_TEXT));
    dlc_gguf_put_element(p, value, strlen(value));
    p->n++;
}

void dlc_gguf_put_i32s(struct dlc_gguf_pairs *p, const char *key, const int32_t *values, size_t n)
{
    put_array(p, key, DLC__GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        keep_first(p, append_uint(&p->bytes, (uint32_t)values[i], 4));
}

void dlc_gguf_put_texts(struct dlc_gguf_pairs *p, const char *key, uint64_t n)
{
    put_array(p, key, DLC__GGUF_TEXT, n);
}

void dlc_gguf_put_element(struct dlc_gguf_pairs *p, const char *bytes, size_t n)
{
    keep_first(p, append_text(&p->bytes, bytes, n));
}

/* ---- the file ---- */

static uint64_t count_values(const struct dlc_gguf_write_tensor *t)
{
    uint64_t n = 1;

    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

static uint64_t count_bytes(const struct dlc_gguf_write_tensor *t)
{
    return count_values(t) / dlc_stored_block_values(t->type) * dlc_stored_block_bytes(t->type);
}

static dlc_err append_tensor(struct dlc_buf *b, const struct dlc_gguf_write_tensor *t, uint64_t offset)
{
    assert(t->n_dims >= 1 && t->n_dims <= DLC_GGUF_MAX_DIMS);
    assert(t->dims[t->n_dims - 1] % dlc_stored_block_values(t->type) == 0);
    DLC_TRY(append_text(b, t->name, strlen(t->name)));
    DLC_TRY(append_uint(b, (uint64_t)t->n_dims, 4));
    for (int i = t->n_dims - 1; i >= 0; i--)
        DLC_TRY(append_uint(b, t->dims[i], 8));
    DLC_TRY(append_uint(b, ggml_types[t->type], 4));
    return append_uint(b, offset, 8);
}

static dlc_err make_head(struct dlc_buf *b, const struct dlc_gguf_pairs *pairs,
                         const struct dlc_gguf_write_tensor *tensors, size_t n_tensors)
{
    static const char zeros[DLC__GGUF_ALIGNMENT];
    uint64_t offset = 0;

    DLC_TRY(pairs->err);
    DLC_TRY(append_uint(b, DLC__GGUF_MAGIC, 4));
    DLC_TRY(append_uint(b, DLC__GGUF_VERSION, 4));
    DLC_TRY(append_uint(b, n_tensors, 8));
    DLC_TRY(append_uint(b, pairs->n, 8));
    DLC_TRY(dlc_buf_append(b, pairs->bytes.data, pairs->bytes.len));
    for (size_t i = 0; i < n_tensors; i++) {
        DLC_TRY(append_tensor(b, &tensors[i], offset));
        offset += count_bytes(&tensors[i]);
        offset += padding(offset);
    }
    return dlc_buf_append(b, zeros, padding(b->len));
}

static dlc_err write_tensor(struct dlc_file_writer *w, const struct dlc_gguf_write_tensor *t, const float *values)
{
    static const char zeros[DLC__GGUF_ALIGNMENT];
    unsigned char chunk[CHUNK_VALUES * sizeof(float)];
    uint64_t n = count_values(t);

    for (uint64_t done = 0; done < n && w->err == DLC_OK; done += CHUNK_VALUES) {
        uint64_t now = n - done < CHUNK_VALUES ? n - done : CHUNK_VALUES;

        DLC_TRY(dlc_stored_encode(chunk, t->type, values + done, now, t->name));
        dlc_file_writer_write(w, chunk, now / dlc_stored_block_values(t->type) * dlc_stored_block_bytes(t->type));
    }
    dlc_file_writer_write(w, zeros, padding(count_bytes(t)));
    return DLC_OK;
}

static dlc_err write_tensors(struct dlc_file_writer *w, const struct dlc_gguf_write_tensor *tensors, size_t n_tensors,
                             const struct dlc_tensor_source *source)
{
    uint64_t largest = 0;
    float *values;
    dlc_err err = DLC_OK;

    for (size_t i = 0; i < n_tensors; i++)
        largest = count_values(&tensors[i]) > largest ? count_values(&tensors[i]) : largest;
    values = dlc_calloc(largest, sizeof *values);
    if (!values)
        return DLC_ENOMEM;
    for (size_t i = 0; err == DLC_OK && w->err == DLC_OK && i < n_tensors; i++) {
        err = source->read(values, source->arg, i);
        if (err == DLC_OK)
            err = write_tensor(w, &tensors[i], values);
    }
    dlc_free(values);
    return err;
}

dlc_err dlc_gguf_write(const char *path, const struct dlc_gguf_pairs *pairs,
                       const struct dlc_gguf_write_tensor *tensors, size_t n_tensors,
                       const struct dlc_tensor_source *source)
{
    struct dlc_buf head = { 0 };
    struct dlc_file_writer w;
    dlc_err err;

    DLC_TRY_TO(done, make_head(&head, pairs, tensors, n_tensors));
    DLC_TRY_TO(done, dlc_file_writer_open(&w, path));
    dlc_file_writer_write(&w, head.data, head.len);
    err = write_tensors(&w, tensors, n_tensors, source);
    if (err == DLC_OK)
        err = dlc_file_writer_commit(&w);
    else
        dlc_file_writer_abort(&w);
done:
    dlc_buf_fini(&head);
    return err;
}
