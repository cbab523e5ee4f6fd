#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

/* jansson's memory is the program's: counted, and failed by tests. Blocks made before are malloc's as well. */
__attribute__((constructor)) static void use_base_memory(void)
{
    json_set_alloc_funcs(dlc_alloc, dlc_free);
}

dlc_err dlc_json_parse(json_t **out, const char *text, size_t size_bytes, const char *where)
{
    uint64_t failed_before = dlc_mem_n_failed();
    json_error_t e;

    *out = json_loadb(text, size_bytes, JSON_REJECT_DUPLICATES, &e);
    if (dlc_mem_n_failed() != failed_before) { /* jansson calls it a syntax error, or leaves a character out */
        json_decref(*out);
        *out = NULL;
        return dlc_fail(DLC_ENOMEM, "out of memory: JSON of %s (%zu bytes)", where, size_bytes);
    }
    if (!*out)
        return dlc_fail(DLC_EINPUT, "%s: not valid JSON, line %d column %d: %s", where, e.line, e.column, e.text);
    return DLC_OK;
}

dlc_err dlc_json_read_file(json_t **out, const char *path, size_t max_bytes)
{
    struct dlc_buf b = { 0 };
    dlc_err err;

    *out = NULL;
    DLC_TRY_TO(done, dlc_file_read(&b, path, max_bytes));
    err = dlc_json_parse(out, b.data, b.len, path);
done:
    dlc_buf_fini(&b);
    return err;
}

/* NULL rather than a text with something left out, which jansson may give when an allocation fails. */
static char *whole_text(const json_t *value, size_t flags)
{
    uint64_t failed_before = dlc_mem_n_failed();
    char *text = json_dumps(value, flags | JSON_REAL_PRECISION(17));

    if (text && dlc_mem_n_failed() != failed_before) {
        dlc_free(text);
        text = NULL;
    }
    return text;
}

char *dlc_json_dump(const json_t *value)
{
    char *text = whole_text(value, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text)
        dlc_fail(DLC_ENOMEM, "out of memory: JSON text");
    return text;
}

dlc_err dlc_json_write_file(const char *path, const json_t *value)
{
    struct dlc_buf b = { 0 };
    char *text = whole_text(value, JSON_INDENT(2));
    dlc_err err;

    if (!text)
        return dlc_fail(DLC_ENOMEM, "out of memory: JSON text of %s", path);
    err = dlc_buf_printf(&b, "%s\n", text);
    dlc_free(text);
    if (err == DLC_OK)
        err = dlc_file_write_atomic(path, b.data, b.len);
    dlc_buf_fini(&b);
    return err;
}

static const char *type_name(const json_t *v)
{
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    case JSON_NULL: return "null";
    }
    return "something else";
}

static dlc_err mistyped(const json_t *v, const char *key, const char *expected, const char *where)
{
    return dlc_fail(DLC_EINPUT, "%s: \"%s\" should be %s, found %s", where, key, expected, type_name(v));
}

dlc_err dlc_json_get_int(int64_t *out, const json_t *object, const char *key, int64_t min, int64_t max, const char *where)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_integer(v))
        return mistyped(v, key, "an integer", where);
    *out = json_integer_value(v);
    if (*out < min || *out > max)
        return dlc_fail(DLC_EINPUT, "%s: \"%s\" is %lld, must lie in %lld..%lld", where, key, (long long)*out,
                        (long long)min, (long long)max);
    return DLC_OK;
}

dlc_err dlc_json_get_real(double *out, const json_t *object, const char *key, const char *where)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_number(v))
        return mistyped(v, key, "a number", where);
    *out = json_number_value(v);
    return DLC_OK;
}

dlc_err dlc_json_get_string(const char **out, const json_t *object, const char *key, const char *where)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_string(v))
        return mistyped(v, key, "a string", where);
    *out = json_string_value(v);
    return DLC_OK;
}

dlc_err dlc_json_get_bool(int *out, const json_t *object, const char *key, const char *where)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_boolean(v))
        return mistyped(v, key, "true or false", where);
    *out = json_is_true(v);
    return DLC_OK;
}

dlc_err dlc_json_get_array(json_t **out, const json_t *object, const char *key, const char *where)
{
    *out = json_object_get(object, key);
    return json_is_array(*out) ? DLC_OK : mistyped(*out, key, "an array", where);
}

dlc_err dlc_json_get_object(json_t **out, const json_t *object, const char *key, const char *where)
{
    *out = json_object_get(object, key);
    return json_is_object(*out) ? DLC_OK : mistyped(*out, key, "an object", where);
}
