/* Writing of safetensors: one header, then the tensors one after another in the order of the format's own writer (wide
 * dtypes first, then by name), so that equal contents give equal bytes whoever wrote them. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/file.h"
#include "base/mem.h"
#include "ckpt/safetensors.h"
#include "ckpt/safetensors_internal.h"

struct plan {
    const struct dlc_st_write_tensor **order;
    json_t *header;
    char *text; /* the header, padded with spaces to a multiple of 8 */
    size_t text_bytes;
};

static const char *const dtype_names[] = { [DLC_F32] = "F32", [DLC_BF16] = "BF16", [DLC_F16] = "F16" };

static int by_size_then_name(const void *a, const void *b)
{
    const struct dlc_st_write_tensor *x = *(const struct dlc_st_write_tensor *const *)a;
    const struct dlc_st_write_tensor *y = *(const struct dlc_st_write_tensor *const *)b;

    if (dlc_dtype_size(x->dtype) != dlc_dtype_size(y->dtype))
        return dlc_dtype_size(x->dtype) > dlc_dtype_size(y->dtype) ? -1 : 1;
    return strcmp(x->name, y->name);
}

static dlc_err count_bytes(uint64_t *size_bytes, const struct dlc_st_write_tensor *t, const char *path)
{
    uint64_t n_values = 1;

    if (t->n_dims < 0 || t->n_dims > DLC_ST_MAX_DIMS)
        return dlc_fail(DLC_EUSAGE, "%s: tensor \"%.200s\": %d dimensions, 0..%d can be written", path, t->name,
                        t->n_dims, DLC_ST_MAX_DIMS);
    for (int i = 0; i < t->n_dims; i++) {
        if (__builtin_mul_overflow(n_values, t->dims[i], &n_values))
            return dlc_fail(DLC_EUSAGE, "%s: tensor \"%.200s\": the shape multiplies to more than 2^64", path, t->name);
    }
    if (__builtin_mul_overflow(n_values, (uint64_t)dlc_dtype_size(t->dtype), size_bytes) || *size_bytes > INT64_MAX)
        return dlc_fail(DLC_EUSAGE, "%s: tensor \"%.200s\": more than 2^63 bytes", path, t->name);
    return DLC_OK;
}

static json_t *shape_json(const struct dlc_st_write_tensor *t)
{
    json_t *shape = json_array();
    int failed = 0;

    for (int i = 0; i < t->n_dims; i++)
        failed |= json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    if (failed) {
        json_decref(shape);
        return NULL;
    }
    return shape;
}

static dlc_err add_tensor(json_t *header, uint64_t *end, const struct dlc_st_write_tensor *t, const char *path)
{
    uint64_t begin = *end, size_bytes = 0;
    json_t *entry;

    if (json_object_get(header, t->name)) /* __metadata__ is there already */
        return dlc_fail(DLC_EUSAGE, "%s: two tensors are called \"%.200s\"", path, t->name);
    DLC_TRY(count_bytes(&size_bytes, t, path));
    if (__builtin_add_overflow(begin, size_bytes, end) || *end > INT64_MAX)
        return dlc_fail(DLC_EUSAGE, "%s: more than 2^63 bytes of tensors", path);
    entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype_names[t->dtype], "shape", shape_json(t), "data_offsets",
                      (json_int_t)begin, (json_int_t)*end);
    if (!entry)
        return dlc_fail(DLC_ENOMEM, "%s: out of memory for the header", path);
    if (json_object_set_new(header, t->name, entry) != 0) /* names are the program's own: UTF-8 */
        return dlc_fail(DLC_ENOMEM, "%s: out of memory for the header", path);
    return DLC_OK;
}

static dlc_err add_metadata(json_t *header, const struct dlc_st_meta *metadata, size_t n_metadata, const char *path)
{
    json_t *object = json_pack("{s:s}", "format", "pt"); /* transformers refuses or warns without it */

    if (!object || json_object_set_new(header, "__metadata__", object) != 0)
        return dlc_fail(DLC_ENOMEM, "%s: out of memory for the header", path);
    for (size_t i = 0; i < n_metadata; i++) {
        json_t *value = json_string(metadata[i].value);

        if (!value || json_object_set_new(object, metadata[i].key, value) != 0)
            return dlc_fail(DLC_ENOMEM, "%s: out of memory for the header, or \"%.200s\" is not UTF-8", path,
                            metadata[i].key);
    }
    return DLC_OK;
}

static dlc_err make_text(struct plan *p, const char *path)
{
    size_t n = json_dumpb(p->header, NULL, 0, JSON_COMPACT), padded = (n + 7) / 8 * 8;

    if (n == 0)
        return dlc_fail(DLC_ENOMEM, "%s: out of memory for the header", path);
    if (padded > DLC__ST_MAX_HEADER_BYTES)
        return dlc_fail(DLC_EUSAGE, "%s: the header would have %zu bytes, readers take at most %d", path, padded,
                        DLC__ST_MAX_HEADER_BYTES);
    p->text = dlc_alloc(padded);
    if (!p->text)
        return DLC_ENOMEM;
    memset(p->text, ' ', padded);
    if (json_dumpb(p->header, p->text, padded, JSON_COMPACT) != n)
        return dlc_fail(DLC_ENOMEM, "%s: out of memory for the header", path);
    p->text_bytes = padded;
    return DLC_OK;
}

static dlc_err make_plan(struct plan *p, const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                         const struct dlc_st_meta *metadata, size_t n_metadata)
{
    uint64_t end = 0;

    p->order = dlc_calloc(n_tensors, sizeof *p->order);
    if (!p->order)
        return DLC_ENOMEM;
    for (size_t i = 0; i < n_tensors; i++)
        p->order[i] = &tensors[i];
    if (n_tensors > 1)
        qsort(p->order, n_tensors, sizeof *p->order, by_size_then_name);
    p->header = json_object();
    if (!p->header)
        return dlc_fail(DLC_ENOMEM, "%s: out of memory for the header", path);
    DLC_TRY(add_metadata(p->header, metadata, n_metadata, path));
    for (size_t i = 0; i < n_tensors; i++)
        DLC_TRY(add_tensor(p->header, &end, p->order[i], path));
    return make_text(p, path);
}

static uint64_t count_values(const struct dlc_st_write_tensor *t)
{
    uint64_t n_values = 1;

    for (int i = 0; i < t->n_dims; i++)
        n_values *= t->dims[i];
    return n_values;
}

static dlc_err write_tensor(struct dlc_file_writer *w, const struct dlc_st_write_tensor *t, const float *data)
{
    enum { CHUNK = 8192 };
    dlc_bf16 chunk[CHUNK]; /* or halves */
    uint64_t n_values = count_values(t);

    if (t->dtype == DLC_F32) {
        dlc_file_writer_write(w, data, n_values * sizeof *data);
        return DLC_OK;
    }
    for (uint64_t done = 0; done < n_values && w->err == DLC_OK; done += CHUNK) {
        uint64_t n = n_values - done < CHUNK ? n_values - done : CHUNK;

        DLC_TRY(dlc_stored_encode(chunk, (dlc_stored)t->dtype, data + done, n, t->name));
        dlc_file_writer_write(w, chunk, n * sizeof *chunk);
    }
    return DLC_OK;
}

static dlc_err write_tensors(struct dlc_file_writer *w, const struct plan *p, const struct dlc_st_write_tensor *tensors,
                             size_t n_tensors, const struct dlc_tensor_source *source)
{
    uint64_t largest = 0;
    float *values = NULL;
    dlc_err err = DLC_OK;

    for (size_t i = 0; source && i < n_tensors; i++)
        largest = count_values(&tensors[i]) > largest ? count_values(&tensors[i]) : largest;
    if (source) {
        values = dlc_calloc(largest, sizeof *values);
        if (!values)
            return DLC_ENOMEM;
    }
    for (size_t i = 0; err == DLC_OK && i < n_tensors; i++) {
        const struct dlc_st_write_tensor *t = p->order[i];

        if (source)
            err = source->read(values, source->arg, (size_t)(t - tensors));
        if (err == DLC_OK)
            err = write_tensor(w, t, source ? values : t->data);
    }
    dlc_free(values);
    return err;
}

static dlc_err write_file(const struct plan *p, const char *path, const struct dlc_st_write_tensor *tensors,
                          size_t n_tensors, const struct dlc_tensor_source *source, bool durable)
{
    struct dlc_file_writer w;
    unsigned char length[8];
    struct dlc_cursor c = dlc_cursor(length, sizeof length);
    dlc_err err;

    DLC_TRY(dlc_file_writer_open(&w, path));
    dlc_put_u64(&c, p->text_bytes);
    dlc_file_writer_write(&w, length, sizeof length);
    dlc_file_writer_write(&w, p->text, p->text_bytes);
    err = write_tensors(&w, p, tensors, n_tensors, source);
    if (err != DLC_OK) {
        dlc_file_writer_abort(&w);
        return err;
    }
    return durable ? dlc_file_writer_commit(&w) : dlc_file_writer_place(&w);
}

static dlc_err write_planned(const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                             const struct dlc_st_meta *metadata, size_t n_metadata,
                             const struct dlc_tensor_source *source, bool durable)
{
    struct plan plan = { 0 };
    dlc_err err = make_plan(&plan, path, tensors, n_tensors, metadata, n_metadata);

    if (err == DLC_OK)
        err = write_file(&plan, path, tensors, n_tensors, source, durable);
    dlc_free(plan.text);
    json_decref(plan.header);
    dlc_free(plan.order);
    return err;
}

dlc_err dlc_st_write_from(const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                          const struct dlc_st_meta *metadata, size_t n_metadata, const struct dlc_tensor_source *source)
{
    return write_planned(path, tensors, n_tensors, metadata, n_metadata, source, true);
}

dlc_err dlc_st_place(const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                     const struct dlc_st_meta *metadata, size_t n_metadata)
{
    return write_planned(path, tensors, n_tensors, metadata, n_metadata, NULL, false);
}

dlc_err dlc_st_write(const char *path, const struct dlc_st_write_tensor *tensors, size_t n_tensors,
                     const struct dlc_st_meta *metadata, size_t n_metadata)
{
    return write_planned(path, tensors, n_tensors, metadata, n_metadata, NULL, true);
}
