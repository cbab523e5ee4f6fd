/* Reading of GGUF. The file is mapped and never copied; every rule is checked before the first value is handed out, so
 * that whoever holds a dlc_gguf_file can walk its arrays and tensors without looking at lengths again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/file.h"
#include "base/mem.h"
#include "ckpt/gguf.h"
#include "ckpt/gguf_internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensors are little-endian in the file and are used in place");

#define MAX_LENGTH ((uint64_t)1 << 30) /* of a text or an array; the limit of the format's own reader */
#define MIN_PAIR_BYTES 14              /* key length, one byte of key, type, the smallest value */
#define MIN_TENSOR_BYTES 25            /* name length, one byte of name, dimensions, type, offset */

size_t dlc__gguf_value_bytes(uint32_t type)
{
    static const unsigned char sizes[DLC__GGUF_N_TYPES] = {
        [DLC__GGUF_U8] = 1,  [DLC__GGUF_I8] = 1,  [DLC__GGUF_U16] = 2, [DLC__GGUF_I16] = 2,
        [DLC__GGUF_U32] = 4, [DLC__GGUF_I32] = 4, [DLC__GGUF_F32] = 4, [DLC__GGUF_BOOL] = 1,
        [DLC__GGUF_U64] = 8, [DLC__GGUF_I64] = 8, [DLC__GGUF_F64] = 8,
    };

    return type < DLC__GGUF_N_TYPES ? sizes[type] : 0;
}

static dlc_err cut_off(const dlc_gguf_file *f, const char *what)
{
    return dlc_fail(DLC_EINPUT, "%s: cut off in %s", f->where, what);
}

/* ---- pairs ---- */

static bool get_text(struct dlc_gguf_text *out, struct dlc_cursor *c)
{
    uint64_t n = dlc_get_u64(c);

    *out = (struct dlc_gguf_text){ .n = n };
    if (!dlc_cursor_ok(c) || n > MAX_LENGTH || n > c->left)
        return false;
    out->bytes = (const char *)dlc_cursor_take(c, n);
    return true;
}

static dlc_err bad_text(const dlc_gguf_file *f, const struct dlc_cursor *c, uint64_t n, const char *what)
{
    if (!dlc_cursor_ok(c))
        return cut_off(f, what);
    return dlc_fail(DLC_EINPUT,
                    "%s: %s of %" PRIu64 " bytes; %zu are left in the file, at most %" PRIu64 " are allowed", f->where,
                    what, n, c->left, MAX_LENGTH);
}

static dlc_err read_array(struct dlc__gguf_pair *p, struct dlc_cursor *c, const dlc_gguf_file *f)
{
    struct dlc_gguf_text text;
    size_t size;

    p->is_array = true;
    p->type = dlc_get_u32(c);
    p->n = dlc_get_u64(c);
    p->at = c->at;
    size = dlc__gguf_value_bytes(p->type);
    if (!dlc_cursor_ok(c))
        return cut_off(f, "an array");
    if (size == 0 && p->type != DLC__GGUF_TEXT)
        return dlc_fail(DLC_EINPUT,
                        "%s: key \"%.*s\": an array of type %" PRIu32 "; numbers, booleans and texts are read",
                        f->where, (int)p->key.n, p->key.bytes, p->type);
    if (p->n > MAX_LENGTH || p->n > c->left / (size ? size : 8))
        return dlc_fail(DLC_EINPUT, "%s: key \"%.*s\": an array of %" PRIu64 " values; %zu bytes are left in the file",
                        f->where, (int)p->key.n, p->key.bytes, p->n, c->left);
    if (size > 0) {
        dlc_cursor_take(c, p->n * size);
        return DLC_OK;
    }
    for (uint64_t i = 0; i < p->n; i++)
        if (!get_text(&text, c))
            return bad_text(f, c, text.n, "a text in an array");
    return DLC_OK;
}

static dlc_err read_value(struct dlc__gguf_pair *p, struct dlc_cursor *c, const dlc_gguf_file *f)
{
    struct dlc_gguf_text text;

    p->n = 1;
    p->at = c->at;
    if (p->type == DLC__GGUF_ARRAY)
        return read_array(p, c, f);
    if (p->type == DLC__GGUF_TEXT)
        return get_text(&text, c) ? DLC_OK : bad_text(f, c, text.n, "a text");
    if (dlc__gguf_value_bytes(p->type) == 0)
        return dlc_fail(DLC_EINPUT, "%s: key \"%.*s\": a value of type %" PRIu32 ", which is unknown", f->where,
                        (int)p->key.n, p->key.bytes, p->type);
    if (!dlc_cursor_take(c, dlc__gguf_value_bytes(p->type)))
        return cut_off(f, "a value");
    if (p->type == DLC__GGUF_BOOL && *p->at > 1)
        return dlc_fail(DLC_EINPUT, "%s: key \"%.*s\": a boolean of %u", f->where, (int)p->key.n, p->key.bytes, *p->at);
    return DLC_OK;
}

static int compare_texts(struct dlc_gguf_text a, struct dlc_gguf_text b)
{
    int c = memcmp(a.bytes, b.bytes, a.n < b.n ? a.n : b.n);

    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int by_key(const void *a, const void *b)
{
    return compare_texts(((const struct dlc__gguf_pair *)a)->key, ((const struct dlc__gguf_pair *)b)->key);
}

static dlc_err read_pairs(dlc_gguf_file *f, struct dlc_cursor *c)
{
    f->pairs = dlc_calloc(f->n_pairs, sizeof *f->pairs);
    if (!f->pairs)
        return DLC_ENOMEM;
    for (uint64_t i = 0; i < f->n_pairs; i++) {
        struct dlc__gguf_pair *p = &f->pairs[i];

        if (!get_text(&p->key, c))
            return bad_text(f, c, p->key.n, "a key");
        if (p->key.n == 0 || p->key.n > 65535 || memchr(p->key.bytes, 0, p->key.n))
            return dlc_fail(DLC_EINPUT, "%s: key %" PRIu64 " is empty, has more than 65535 bytes or a zero byte",
                            f->where, i);
        p->type = dlc_get_u32(c);
        if (!dlc_cursor_ok(c))
            return cut_off(f, "a key");
        DLC_TRY(read_value(p, c, f));
    }
    if (f->n_pairs > 1)
        qsort(f->pairs, f->n_pairs, sizeof *f->pairs, by_key);
    for (uint64_t i = 1; i < f->n_pairs; i++)
        if (by_key(&f->pairs[i - 1], &f->pairs[i]) == 0)
            return dlc_fail(DLC_EINPUT, "%s: the key \"%.*s\" appears twice", f->where, (int)f->pairs[i].key.n,
                            f->pairs[i].key.bytes);
    return DLC_OK;
}

const struct dlc__gguf_pair *dlc__gguf_find_pair(const dlc_gguf_file *f, const char *key)
{
    struct dlc__gguf_pair wanted = { .key = { key, strlen(key) } };

    return f->n_pairs ? bsearch(&wanted, f->pairs, f->n_pairs, sizeof *f->pairs, by_key) : NULL;
}

/* ---- tensors ---- */

static bool find_type(dlc_stored *out, uint32_t type)
{
    static const struct {
        uint32_t number;
        dlc_stored type;
    } known[] = { { DLC__GGML_F32, DLC_STORED_F32 },
                  { DLC__GGML_F16, DLC_STORED_F16 },
                  { DLC__GGML_Q8_0, DLC_STORED_Q8_0 },
                  { DLC__GGML_BF16, DLC_STORED_BF16 } };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *out = known[i].type;
        if (known[i].number == type)
            return true;
    }
    return false;
}

static const char *type_name(uint32_t type)
{
    static const char *const names[] = {
        [2] = "Q4_0",  [3] = "Q4_1",  [6] = "Q5_0",  [7] = "Q5_1",  [9] = "Q8_1",    [10] = "Q2_K",   [11] = "Q3_K",
        [12] = "Q4_K", [13] = "Q5_K", [14] = "Q6_K", [15] = "Q8_K", [20] = "IQ4_NL", [23] = "IQ4_XS", [39] = "MXFP4"
    };

    return type < sizeof names / sizeof *names && names[type] ? names[type] : "another one";
}

/* n_values and size_bytes from dims and type. */
static dlc_err measure(struct dlc_gguf_tensor *t, const char *where)
{
    uint64_t row = t->n_dims ? t->dims[t->n_dims - 1] : 1, block = dlc_stored_block_values(t->type), n_bytes;

    t->n_values = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (t->dims[i] == 0 || __builtin_mul_overflow(t->n_values, t->dims[i], &t->n_values) || t->n_values > INT64_MAX)
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\": a dimension is 0, or they multiply to more than 2^63",
                            where, t->name);
    if (row % block != 0)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\": rows of %" PRIu64 " values, but %s has blocks of %" PRIu64,
                        where, t->name, row, dlc_stored_name(t->type), block);
    if (__builtin_mul_overflow(t->n_values / block, (uint64_t)dlc_stored_block_bytes(t->type), &n_bytes) ||
        n_bytes > INT64_MAX)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\": more than 2^63 bytes", where, t->name);
    t->size_bytes = n_bytes;
    return DLC_OK;
}

/* Everything but its data; *offset as the file has it. */
static dlc_err read_tensor(struct dlc_gguf_tensor *t, uint64_t *offset, struct dlc_cursor *c, const dlc_gguf_file *f)
{
    struct dlc_gguf_text name;
    uint32_t n_dims, type;

    if (!get_text(&name, c))
        return bad_text(f, c, name.n, "the name of a tensor");
    if (name.n == 0 || name.n >= sizeof t->name || memchr(name.bytes, 0, name.n))
        return dlc_fail(DLC_EINPUT, "%s: the name of a tensor has %zu bytes or a zero byte; 1..%zu are allowed",
                        f->where, name.n, sizeof t->name - 1);
    memcpy(t->name, name.bytes, name.n); /* ends in a zero: the memory is zeroed */
    n_dims = dlc_get_u32(c);
    if (dlc_cursor_ok(c) && n_dims > DLC_GGUF_MAX_DIMS)
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\": %" PRIu32 " dimensions, at most %d are read", f->where, t->name,
                        n_dims, DLC_GGUF_MAX_DIMS);
    t->n_dims = (int)(n_dims % (DLC_GGUF_MAX_DIMS + 1));
    for (int i = t->n_dims - 1; i >= 0; i--)
        t->dims[i] = dlc_get_u64(c);
    type = dlc_get_u32(c);
    *offset = dlc_get_u64(c);
    if (!dlc_cursor_ok(c))
        return cut_off(f, "the description of a tensor");
    if (!find_type(&t->type, type))
        return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\" is of type %" PRIu32 " (%s); F32, F16, BF16 and Q8_0 are read",
                        f->where, t->name, type, type_name(type));
    return measure(t, f->where);
}

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp((*(const struct dlc_gguf_tensor *const *)a)->name, (*(const struct dlc_gguf_tensor *const *)b)->name);
}

/* The data are relative to the first aligned place behind the descriptions. Every tensor begins where the one before
 * ended, rounded up: that leaves no room for holes or overlaps. */
static dlc_err place_tensors(dlc_gguf_file *f, const uint64_t *offsets, const unsigned char *data, uint64_t data_bytes)
{
    uint64_t expected = 0;

    for (uint64_t i = 0; i < f->n_tensors; i++) {
        struct dlc_gguf_tensor *t = &f->tensors[i];

        if (offsets[i] != expected)
            return dlc_fail(DLC_EINPUT, "%s: tensor \"%s\" begins at %" PRIu64 ", %" PRIu64 " is where it has to",
                            f->where, t->name, offsets[i], expected);
        if (expected > data_bytes || t->size_bytes > data_bytes - expected)
            return dlc_fail(DLC_EINPUT,
                            "%s: cut off: tensor \"%s\" has %" PRIu64 " bytes from %" PRIu64 " on, there are %" PRIu64,
                            f->where, t->name, t->size_bytes, expected, data_bytes);
        t->data = data + expected;
        expected += t->size_bytes;
        expected += (f->alignment - expected % f->alignment) % f->alignment;
    }
    return DLC_OK;
}

static dlc_err index_names(dlc_gguf_file *f)
{
    f->by_name = dlc_calloc(f->n_tensors, sizeof *f->by_name);
    if (!f->by_name)
        return DLC_ENOMEM;
    for (uint64_t i = 0; i < f->n_tensors; i++)
        f->by_name[i] = &f->tensors[i];
    if (f->n_tensors > 1)
        qsort(f->by_name, f->n_tensors, sizeof *f->by_name, by_tensor_name);
    for (uint64_t i = 1; i < f->n_tensors; i++)
        if (by_tensor_name(&f->by_name[i - 1], &f->by_name[i]) == 0)
            return dlc_fail(DLC_EINPUT, "%s: two tensors are called \"%s\"", f->where, f->by_name[i]->name);
    return DLC_OK;
}

static dlc_err read_tensors(dlc_gguf_file *f, struct dlc_cursor *c, size_t file_bytes)
{
    uint64_t *offsets = dlc_calloc(f->n_tensors, sizeof *offsets), skip;
    dlc_err err = DLC_ENOMEM;

    f->tensors = dlc_calloc(f->n_tensors, sizeof *f->tensors);
    if (!offsets || !f->tensors)
        goto done;
    for (uint64_t i = 0; i < f->n_tensors; i++)
        DLC_TRY_TO(done, read_tensor(&f->tensors[i], &offsets[i], c, f));
    DLC_TRY_TO(done, index_names(f));
    skip = (f->alignment - (file_bytes - c->left) % f->alignment) % f->alignment;
    skip = skip < c->left ? skip : c->left;
    err = place_tensors(f, offsets, c->at + skip, c->left - skip);
done:
    dlc_free(offsets);
    return err;
}

/* ---- the file ---- */

static dlc_err read_alignment(dlc_gguf_file *f)
{
    const struct dlc__gguf_pair *p = dlc__gguf_find_pair(f, "general.alignment");
    struct dlc_cursor c;

    f->alignment = DLC__GGUF_ALIGNMENT;
    if (!p)
        return DLC_OK;
    if (p->is_array || p->type != DLC__GGUF_U32)
        return dlc_fail(DLC_EINPUT, "%s: general.alignment is not a u32", f->where);
    c = dlc_cursor(p->at, 4);
    f->alignment = dlc_get_u32(&c);
    if (f->alignment == 0 || (f->alignment & (f->alignment - 1)) != 0)
        return dlc_fail(DLC_EINPUT, "%s: general.alignment is %" PRIu64 ", which is not a power of two", f->where,
                        f->alignment);
    return DLC_OK;
}

static dlc_err check_version(uint32_t version, const char *where)
{
    if (version == 2 || version == 3)
        return DLC_OK;
    if ((version & 0xffff) == 0 && version != 0)
        return dlc_fail(DLC_EINPUT, "%s: a big-endian GGUF file; only little-endian ones are read", where);
    return dlc_fail(DLC_EINPUT, "%s: GGUF version %" PRIu32 "; 2 and 3 are read", where, version);
}

static dlc_err parse_into(dlc_gguf_file *f, const void *bytes, size_t size_bytes)
{
    struct dlc_cursor c = dlc_cursor(bytes, size_bytes);
    uint32_t magic = dlc_get_u32(&c), version = dlc_get_u32(&c);
    uint64_t n_tensors = dlc_get_u64(&c), n_pairs = dlc_get_u64(&c);

    if (size_bytes < 4 || magic != DLC__GGUF_MAGIC)
        return dlc_fail(DLC_EINPUT, "%s: not a GGUF file: it does not begin with \"GGUF\"", f->where);
    if (size_bytes >= 8)
        DLC_TRY(check_version(version, f->where));
    if (!dlc_cursor_ok(&c))
        return cut_off(f, "its first 24 bytes");
    if (n_pairs > c.left / MIN_PAIR_BYTES || n_tensors > c.left / MIN_TENSOR_BYTES)
        return dlc_fail(DLC_EINPUT, "%s: %" PRIu64 " keys and %" PRIu64 " tensors cannot stand in %zu bytes", f->where,
                        n_pairs, n_tensors, size_bytes);
    f->n_pairs = n_pairs;
    f->n_tensors = n_tensors;
    DLC_TRY(read_pairs(f, &c));
    DLC_TRY(read_alignment(f));
    return read_tensors(f, &c, size_bytes);
}

dlc_err dlc_gguf_parse(dlc_gguf_file **out, const void *bytes, size_t size_bytes, const char *where)
{
    dlc_gguf_file *f = dlc_calloc(1, sizeof *f);
    dlc_err err = DLC_ENOMEM;

    *out = NULL;
    if (!f)
        return DLC_ENOMEM;
    f->where = dlc_strdup(where);
    if (f->where)
        err = parse_into(f, bytes, size_bytes);
    if (err != DLC_OK) {
        dlc_gguf_close(f);
        return err;
    }
    *out = f;
    return DLC_OK;
}

dlc_err dlc_gguf_open(dlc_gguf_file **out, const char *path)
{
    struct dlc_file_map map;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_file_map_open(&map, path));
    err = dlc_gguf_parse(out, map.data, map.size_bytes, path);
    if (err != DLC_OK) {
        dlc_file_map_close(&map);
        return err;
    }
    (*out)->map = map;
    return DLC_OK;
}

void dlc_gguf_close(dlc_gguf_file *f)
{
    if (!f)
        return;
    dlc_file_map_close(&f->map);
    dlc_free(f->pairs);
    dlc_free(f->tensors);
    dlc_free(f->by_name);
    dlc_free(f->where);
    dlc_free(f);
}

const char *dlc_gguf_where(const dlc_gguf_file *f)
{
    return f->where;
}

size_t dlc_gguf_n_tensors(const dlc_gguf_file *f)
{
    return f->n_tensors;
}

const struct dlc_gguf_tensor *dlc_gguf_tensor_at(const dlc_gguf_file *f, size_t index)
{
    return &f->tensors[index];
}

const struct dlc_gguf_tensor *dlc_gguf_find(const dlc_gguf_file *f, const char *name)
{
    struct dlc_gguf_tensor wanted;
    const struct dlc_gguf_tensor *key = &wanted, **found;

    if (f->n_tensors == 0 || strlen(name) >= sizeof wanted.name)
        return NULL;
    memcpy(wanted.name, name, strlen(name) + 1);
    found = bsearch(&key, f->by_name, f->n_tensors, sizeof *f->by_name, by_tensor_name);
    return found ? *found : NULL;
}
