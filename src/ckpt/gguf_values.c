/* Values of a GGUF file by key. Lengths were checked when it was opened. */
#include <inttypes.h>
#include <string.h>

#include "base/cursor.h"
#include "ckpt/gguf_internal.h"

bool dlc_gguf_has(const dlc_gguf_file *f, const char *key)
{
    return dlc__gguf_find_pair(f, key) != NULL;
}

static dlc_err wrong_kind(const dlc_gguf_file *f, const char *key, const char *expected)
{
    return dlc_fail(DLC_EINPUT, "%s: \"%s\" is %s, %s is needed", f->where, key,
                    dlc__gguf_find_pair(f, key) ? "of another kind" : "missing", expected);
}

static bool is_integer(uint32_t type)
{
    return dlc__gguf_value_bytes(type) > 0 && type != DLC__GGUF_F32 && type != DLC__GGUF_F64 && type != DLC__GGUF_BOOL;
}

static int64_t integer_at(const unsigned char *at, uint32_t type)
{
    size_t n = dlc__gguf_value_bytes(type);
    struct dlc_cursor c = dlc_cursor(at, n);
    uint64_t bits = dlc_get_uint(&c, n);
    bool is_signed = type == DLC__GGUF_I8 || type == DLC__GGUF_I16 || type == DLC__GGUF_I32 || type == DLC__GGUF_I64;

    if (is_signed && n < 8 && bits >> (8 * n - 1)) /* extend the sign */
        bits |= UINT64_MAX << (8 * n);
    return !is_signed && bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
}

dlc_err dlc_gguf_get_int(int64_t *out, const dlc_gguf_file *f, const char *key, int64_t min, int64_t max)
{
    const struct dlc__gguf_pair *p = dlc__gguf_find_pair(f, key);

    if (!p || p->is_array || !is_integer(p->type))
        return wrong_kind(f, key, "an integer");
    *out = integer_at(p->at, p->type);
    if (*out < min || *out > max)
        return dlc_fail(DLC_EINPUT, "%s: \"%s\" is %" PRId64 ", it must lie in %" PRId64 "..%" PRId64, f->where, key,
                        *out, min, max);
    return DLC_OK;
}

dlc_err dlc_gguf_get_real(double *out, const dlc_gguf_file *f, const char *key)
{
    const struct dlc__gguf_pair *p = dlc__gguf_find_pair(f, key);
    float single;

    if (!p || p->is_array || dlc__gguf_value_bytes(p->type) == 0 || p->type == DLC__GGUF_BOOL)
        return wrong_kind(f, key, "a number");
    if (p->type == DLC__GGUF_F64) {
        memcpy(out, p->at, sizeof *out);
    } else if (p->type == DLC__GGUF_F32) {
        memcpy(&single, p->at, sizeof single);
        *out = single;
    } else {
        *out = (double)integer_at(p->at, p->type);
    }
    return DLC_OK;
}

dlc_err dlc_gguf_get_bool(bool *out, const dlc_gguf_file *f, const char *key)
{
    const struct dlc__gguf_pair *p = dlc__gguf_find_pair(f, key);

    if (!p || p->is_array || p->type != DLC__GGUF_BOOL)
        return wrong_kind(f, key, "a boolean");
    *out = *p->at != 0;
    return DLC_OK;
}

static struct dlc_gguf_text text_at(const unsigned char *at)
{
    struct dlc_cursor c = dlc_cursor(at, 8);

    return (struct dlc_gguf_text){ .n = dlc_get_u64(&c), .bytes = (const char *)at + 8 };
}

dlc_err dlc_gguf_get_text(struct dlc_gguf_text *out, const dlc_gguf_file *f, const char *key)
{
    const struct dlc__gguf_pair *p = dlc__gguf_find_pair(f, key);

    if (!p || p->is_array || p->type != DLC__GGUF_TEXT)
        return wrong_kind(f, key, "a text");
    *out = text_at(p->at);
    return DLC_OK;
}

static dlc_err get_array(struct dlc_gguf_array *out, const dlc_gguf_file *f, const char *key, bool texts)
{
    const struct dlc__gguf_pair *p = dlc__gguf_find_pair(f, key);

    if (!p || !p->is_array || (texts ? p->type != DLC__GGUF_TEXT : !is_integer(p->type)))
        return wrong_kind(f, key, texts ? "an array of texts" : "an array of integers");
    *out = (struct dlc_gguf_array){ .n = p->n, .at = p->at, .type = p->type };
    return DLC_OK;
}

dlc_err dlc_gguf_get_texts(struct dlc_gguf_array *out, const dlc_gguf_file *f, const char *key)
{
    return get_array(out, f, key, true);
}

dlc_err dlc_gguf_get_ints(struct dlc_gguf_array *out, const dlc_gguf_file *f, const char *key)
{
    return get_array(out, f, key, false);
}

struct dlc_gguf_text dlc_gguf_next_text(struct dlc_gguf_array *array)
{
    struct dlc_gguf_text text = text_at(array->at);

    array->at += 8 + text.n;
    return text;
}

int64_t dlc_gguf_next_int(struct dlc_gguf_array *array)
{
    int64_t v = integer_at(array->at, array->type);

    array->at += dlc__gguf_value_bytes(array->type);
    return v;
}

bool dlc_gguf_text_is(struct dlc_gguf_text text, const char *other)
{
    return text.n == strlen(other) && memcmp(text.bytes, other, text.n) == 0;
}
