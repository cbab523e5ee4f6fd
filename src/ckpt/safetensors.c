/* Reading of safetensors. The file is mapped and never copied; every rule of the format is checked before the first
 * tensor is handed out, so that whoever holds a dlc_st_file can trust each pointer and size in it. */
#include "ckpt/safetensors.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/safetensors_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are little-endian in the file and are used in place");

struct entry {
    struct dlc_st_tensor tensor;
    uint64_t begin, end; /* in the data section */
};

struct dlc_st_file {
    char *where;
    json_t *header;        /* owns the names and dtype names */
    struct entry *entries; /* by place in the file */
    const struct entry **by_name;
    size_t n_entries;
    struct dlc_file_map map; /* zeros when the bytes are the caller's */
};

static const struct dtype {
    const char *name;
    unsigned bits;
} dtypes[] = {
    { "F32", 32 },    { "BF16", 16 },   { "F16", 16 },        { "F64", 64 },        { "I64", 64 },    { "I32", 32 },
    { "I16", 16 },    { "I8", 8 },      { "U64", 64 },        { "U32", 32 },        { "U16", 16 },    { "U8", 8 },
    { "BOOL", 8 },    { "C64", 64 },    { "F8_E4M3", 8 },     { "F8_E5M2", 8 },     { "F8_E8M0", 8 }, { "F4", 4 },
    { "F6_E2M3", 6 }, { "F6_E3M2", 6 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 },
};

static unsigned dtype_bits(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].bits;
    }
    return 0;
}

/* A member that must be an array of integers from 0 on, at most `max` of them (exactly `max` when `exact`). */
static dlc_err read_counts(uint64_t *out, int *n, const json_t *tensor, const char *key, size_t max, int exact,
                           const char *where, const char *name)
{
    const json_t *list = json_object_get(tensor, key);

    if (!json_is_array(list))
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": \"%s\" is missing or not an array", where, name, key);
    if (json_array_size(list) > max || (exact && json_array_size(list) != max))
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": \"%s\" has %zu entries, %s %zu can be read", where, name,
                        key, json_array_size(list), exact ? "exactly" : "at most", max);
    *n = (int)json_array_size(list);
    for (int i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": entry %d of \"%s\" is not an integer from 0 on", where,
                            name, i, key);
        out[i] = (uint64_t)json_integer_value(v);
    }
    return DLC_OK;
}

/* n_values and size_bytes from dims and dtype. */
static dlc_err measure(struct dlc_st_tensor *t, const char *where)
{
    unsigned bits = dtype_bits(t->dtype_name);
    uint64_t total_bits;

    if (bits == 0)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": dtype \"%.40s\" is not known", where, t->name,
                        t->dtype_name);
    t->n_values = 1;
    for (int i = 0; i < t->n_dims; i++) {
        if (__builtin_mul_overflow(t->n_values, t->dims[i], &t->n_values))
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": the shape multiplies to more than 2^64 values", where,
                            t->name);
    }
    if (__builtin_mul_overflow(t->n_values, (uint64_t)bits, &total_bits))
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": %llu values of %u bits are more than 2^64 bits", where,
                        t->name, (unsigned long long)t->n_values, bits);
    if (total_bits % 8 != 0)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": %llu values of %u bits are not whole bytes", where, t->name,
                        (unsigned long long)t->n_values, bits);
    t->size_bytes = total_bits / 8;
    return DLC_OK;
}

static dlc_err read_entry(struct entry *out, const char *name, const json_t *value, const char *where)
{
    uint64_t offsets[2];
    int two;

    out->tensor.name = name;
    if (!json_is_object(value))
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": its description is not an object", where, name);
    out->tensor.dtype_name = json_string_value(json_object_get(value, "dtype"));
    if (!out->tensor.dtype_name)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\": \"dtype\" is missing or not a string", where, name);
    DLC_TRY(read_counts(out->tensor.dims, &out->tensor.n_dims, value, "shape", DLC_ST_MAX_DIMS, 0, where, name));
    DLC_TRY(read_counts(offsets, &two, value, "data_offsets", 2, 1, where, name));
    out->begin = offsets[0];
    out->end = offsets[1];
    DLC_TRY(measure(&out->tensor, where));
    if (out->end < out->begin || out->end - out->begin != out->tensor.size_bytes)
        return dlc_fail(DLC_EINPUT,
                        "%s: tensor \"%.200s\": data_offsets %llu..%llu, but shape and dtype need %llu bytes", where,
                        name, (unsigned long long)out->begin, (unsigned long long)out->end,
                        (unsigned long long)out->tensor.size_bytes);
    return DLC_OK;
}

static dlc_err check_metadata(json_t *metadata, const char *where)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return dlc_fail(DLC_EINPUT, "%s: __metadata__ is not an object", where);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return dlc_fail(DLC_EINPUT, "%s: __metadata__ \"%.200s\" is not a string", where, key);
    }
    return DLC_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct entry *const *)a)->tensor.name, (*(const struct entry *const *)b)->tensor.name);
}

static dlc_err read_entries(dlc_st_file *f)
{
    const char *key;
    json_t *value;

    f->entries = dlc_calloc(json_object_size(f->header), sizeof *f->entries);
    f->by_name = dlc_calloc(json_object_size(f->header), sizeof *f->by_name);
    if (!f->entries || !f->by_name)
        return DLC_ENOMEM;
    json_object_foreach(f->header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            DLC_TRY(check_metadata(value, f->where));
            continue;
        }
        DLC_TRY(read_entry(&f->entries[f->n_entries], key, value, f->where));
        f->n_entries++;
    }
    if (f->n_entries > 1)
        qsort(f->entries, f->n_entries, sizeof *f->entries, by_place);
    for (size_t i = 0; i < f->n_entries; i++)
        f->by_name[i] = &f->entries[i];
    if (f->n_entries > 1)
        qsort(f->by_name, f->n_entries, sizeof *f->by_name, by_name);
    return DLC_OK;
}

/* The tensors fill the data section exactly: no hole, no overlap, nothing after the last. */
static dlc_err place_entries(dlc_st_file *f, const unsigned char *data, uint64_t data_bytes)
{
    uint64_t end = 0;

    for (size_t i = 0; i < f->n_entries; i++) {
        struct entry *e = &f->entries[i];

        if (e->begin != end)
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" begins at %llu, %s the tensor before ends at %llu",
                            f->where, e->tensor.name, (unsigned long long)e->begin,
                            e->begin < end ? "overlap:" : "hole:", (unsigned long long)end);
        end = e->end;
        if (end > data_bytes)
            return dlc_fail(DLC_EINPUT,
                            "%s: cut off: tensor \"%.200s\" ends at %llu of the data, the file has %llu bytes",
                            f->where, e->tensor.name, (unsigned long long)end, (unsigned long long)data_bytes);
        e->tensor.data = data + e->begin;
    }
    if (end != data_bytes)
        return dlc_fail(DLC_EINPUT, "%s: %llu bytes follow the last tensor", f->where,
                        (unsigned long long)(data_bytes - end));
    return DLC_OK;
}

static dlc_err parse_into(dlc_st_file *f, const unsigned char *bytes, size_t size_bytes)
{
    struct dlc_cursor c = dlc_cursor(bytes, size_bytes);
    uint64_t header_bytes = dlc_get_u64(&c);

    if (!dlc_cursor_ok(&c))
        return dlc_fail(DLC_EINPUT, "%s: %zu bytes, a safetensors file has at least 8", f->where, size_bytes);
    if (header_bytes > DLC__ST_MAX_HEADER_BYTES)
        return dlc_fail(DLC_EINPUT, "%s: not a safetensors file: header of %llu bytes, at most %d are allowed",
                        f->where, (unsigned long long)header_bytes, DLC__ST_MAX_HEADER_BYTES);
    if (header_bytes > c.left)
        return dlc_fail(DLC_EINPUT, "%s: cut off: header of %llu bytes, the file has %zu after its length", f->where,
                        (unsigned long long)header_bytes, c.left);
    if (header_bytes == 0)
        return dlc_fail(DLC_EINPUT, "%s: not a safetensors file: its header is empty", f->where);
    DLC_TRY(dlc_json_parse(&f->header, (const char *)c.at, (size_t)header_bytes, f->where));
    if (!json_is_object(f->header))
        return dlc_fail(DLC_EINPUT, "%s: not a safetensors file: its header is not a JSON object", f->where);
    DLC_TRY(read_entries(f));
    return place_entries(f, c.at + header_bytes, c.left - header_bytes);
}

/* The bytes stay the caller's. */
static dlc_err create(dlc_st_file **out, const void *bytes, size_t size_bytes, const char *where)
{
    dlc_st_file *f = dlc_calloc(1, sizeof *f);
    dlc_err err = DLC_ENOMEM;

    *out = NULL;
    if (!f)
        return DLC_ENOMEM;
    f->where = dlc_strdup(where);
    if (f->where)
        err = parse_into(f, bytes, size_bytes);
    if (err != DLC_OK) {
        dlc_st_close(f);
        return err;
    }
    *out = f;
    return DLC_OK;
}

dlc_err dlc_st_parse(dlc_st_file **out, const void *bytes, size_t size_bytes, const char *where)
{
    return create(out, bytes, size_bytes, where);
}

dlc_err dlc_st_open(dlc_st_file **out, const char *path)
{
    struct dlc_file_map map;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_file_map_open(&map, path));
    err = create(out, map.data, map.size_bytes, path);
    if (err != DLC_OK) {
        dlc_file_map_close(&map);
        return err;
    }
    (*out)->map = map;
    return DLC_OK;
}

void dlc_st_close(dlc_st_file *f)
{
    if (!f)
        return;
    dlc_file_map_close(&f->map);
    json_decref(f->header);
    dlc_free(f->entries);
    dlc_free(f->by_name);
    dlc_free(f->where);
    dlc_free(f);
}

size_t dlc_st_n_tensors(const dlc_st_file *f)
{
    return f->n_entries;
}

const struct dlc_st_tensor *dlc_st_tensor_at(const dlc_st_file *f, size_t index)
{
    return &f->entries[index].tensor;
}

const struct dlc_st_tensor *dlc_st_find(const dlc_st_file *f, const char *name)
{
    struct entry wanted = { .tensor.name = name };
    const struct entry *key = &wanted, **found;

    if (f->n_entries == 0)
        return NULL;
    found = bsearch(&key, f->by_name, f->n_entries, sizeof *f->by_name, by_name);
    return found ? &(*found)->tensor : NULL;
}

const char *dlc_st_metadata(const dlc_st_file *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

static bool find_stored(dlc_stored *out, const char *dtype_name)
{
    static const struct {
        const char *name;
        dlc_stored type;
    } known[] = { { "F32", DLC_STORED_F32 }, { "BF16", DLC_STORED_BF16 }, { "F16", DLC_STORED_F16 } };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *out = known[i].type;
        if (strcmp(dtype_name, known[i].name) == 0)
            return true;
    }
    return false;
}

dlc_err dlc_st_read_f32(float *out, const dlc_st_file *f, const char *name, uint64_t n_values)
{
    const struct dlc_st_tensor *t = dlc_st_find(f, name);
    dlc_stored type;

    if (!t)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" is missing", f->where, name);
    if (t->n_values != n_values)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" has %llu values, %llu are needed", f->where, name,
                        (unsigned long long)t->n_values, (unsigned long long)n_values);
    if (!find_stored(&type, t->dtype_name))
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%.200s\" is %s, only F32, BF16 and F16 can be used here", f->where,
                        name, t->dtype_name);
    dlc_stored_decode(out, type, t->data, n_values);
    return DLC_OK;
}
