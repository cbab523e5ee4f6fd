#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "ckpt/ckpt_test_util.h"
#include "ckpt/gguf.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[DLC_PATH_MAX];

    assert_int_equal(dlc_path_join(path, folder, name), DLC_OK);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    return test_make_folder(folder, sizeof folder, "gguf");
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static void put(struct dlc_buf *b, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++, v >>= 8)
        assert_int_equal(dlc_buf_append(b, &(unsigned char){ (unsigned char)v }, 1), DLC_OK);
}

static void put_text(struct dlc_buf *b, const char *text)
{
    put(b, strlen(text), 8);
    assert_int_equal(dlc_buf_append(b, text, strlen(text)), DLC_OK);
}

static void pad(struct dlc_buf *b, size_t n)
{
    while (b->len % n != 0)
        put(b, 0, 1);
}

/* A small file with all that has lengths and counts. Where things stand in it: */
enum {
    VERSION = 4,
    N_TENSORS = 8,
    N_PAIRS = 16,
    KEY1 = 24, /* "general.alignment", u32 */
    TYPE1 = 49,
    ALIGNMENT = 53,
    KEY2 = 57, /* "t", text "hi" */
    TYPE2 = 66,
    TEXT2 = 70,
    KEY3 = 80, /* "a", two texts "x" and "" */
    TYPE3 = 89,
    ELEMENT3 = 93,
    COUNT3 = 97,
    TEXT3 = 105,
    NAME1 = 122, /* "p", q8_0 [2][32] */
    DIMS1 = 131,
    INNER1 = 135,
    OUTER1 = 143,
    GGML1 = 151,
    OFFSET1 = 155,
    NAME2 = 163, /* "q", f32 [3] */
    DIMS2 = 172,
    INNER2 = 176,
    GGML2 = 184,
    OFFSET2 = 188,
    DATA1 = 224,
    DATA2 = 320,
    END = 332,
};

static void build(struct dlc_buf *b)
{
    dlc_buf_clear(b);
    put(b, 0x46554747, 4);
    put(b, 3, 4);
    put(b, 2, 8);
    put(b, 3, 8);
    put_text(b, "general.alignment");
    put(b, 4, 4);
    put(b, 32, 4);
    put_text(b, "t");
    put(b, 8, 4);
    put_text(b, "hi");
    put_text(b, "a");
    put(b, 9, 4);
    put(b, 8, 4);
    put(b, 2, 8);
    put_text(b, "x");
    put_text(b, "");
    assert_int_equal(b->len, NAME1);
    put_text(b, "p");
    put(b, 2, 4);
    put(b, 32, 8);
    put(b, 2, 8);
    put(b, 8, 4);
    put(b, 0, 8);
    assert_int_equal(b->len, NAME2);
    put_text(b, "q");
    put(b, 1, 4);
    put(b, 3, 8);
    put(b, 0, 4);
    put(b, 96, 8);
    pad(b, 32);
    assert_int_equal(b->len, DATA1);
    for (int i = 0; i < 68; i++)
        put(b, (uint64_t)i, 1);
    pad(b, 32);
    assert_int_equal(b->len, DATA2);
    put(b, 0x3f800000, 4);
    put(b, 0x40000000, 4);
    put(b, 0xbf800000, 4);
    assert_int_equal(b->len, END);
}

static void a_small_file_is_read(void **state)
{
    struct dlc_buf b = { 0 };
    const struct dlc_gguf_tensor *t;
    struct dlc_gguf_array texts;
    struct dlc_gguf_text text;
    dlc_gguf_file *f;
    float values[64];

    (void)state;
    build(&b);
    if (dlc_gguf_parse(&f, b.data, b.len, "x") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_int_equal(dlc_gguf_get_text(&text, f, "t"), DLC_OK);
    assert_true(dlc_gguf_text_is(text, "hi") && !dlc_gguf_text_is(text, "h"));
    assert_int_equal(dlc_gguf_get_texts(&texts, f, "a"), DLC_OK);
    assert_int_equal(texts.n, 2);
    assert_true(dlc_gguf_text_is(dlc_gguf_next_text(&texts), "x"));
    assert_true(dlc_gguf_text_is(dlc_gguf_next_text(&texts), ""));
    assert_int_equal(dlc_gguf_n_tensors(f), 2);
    t = dlc_gguf_find(f, "p");
    assert_ptr_equal(t, dlc_gguf_tensor_at(f, 0));
    assert_true(t->n_dims == 2 && t->dims[0] == 2 && t->dims[1] == 32 && t->type == DLC_STORED_Q8_0);
    assert_true(t->n_values == 64 && t->size_bytes == 68 && t->data == b.data + DATA1);
    t = dlc_gguf_find(f, "q");
    dlc_stored_decode(values, t->type, t->data, t->n_values);
    assert_true(values[0] == 1 && values[1] == 2 && values[2] == -1);
    assert_null(dlc_gguf_find(f, "r"));
    dlc_gguf_close(f);
    dlc_buf_fini(&b);
}

struct patch {
    size_t at;
    uint64_t value;
    size_t n;
};

static const struct {
    const char *why;
    struct patch patches[2];
    const char *text;
} hostile[] = {
    { "magic", { { 0, 'g', 1 } }, "not a GGUF file" },
    { "version 0", { { VERSION, 0, 4 } }, "GGUF version 0; 2 and 3" },
    { "version 1", { { VERSION, 1, 4 } }, "GGUF version 1; 2 and 3" },
    { "version 4", { { VERSION, 4, 4 } }, "GGUF version 4; 2 and 3" },
    { "the other byte order", { { VERSION, 0x03000000, 4 } }, "big-endian" },
    { "tensors without end", { { N_TENSORS, 1ull << 63, 8 } }, "9223372036854775808 tensors cannot stand" },
    { "more tensors than bytes", { { N_TENSORS, 13, 8 } }, "13 tensors cannot stand in 332 bytes" },
    { "pairs without end", { { N_PAIRS, 1ull << 63, 8 } }, "9223372036854775808 keys" },
    { "all bits of the counts", { { N_PAIRS, UINT64_MAX, 8 }, { N_TENSORS, UINT64_MAX, 8 } }, "cannot stand" },
    { "one pair too many", { { N_PAIRS, 4, 8 } }, "x: " },
    { "one tensor too many", { { N_TENSORS, 3, 8 } }, "x: " },
    { "key of 2^63 bytes", { { KEY1, 1ull << 63, 8 } }, "a key of 9223372036854775808 bytes" },
    { "key longer than the file", { { KEY1, 301, 8 } }, "a key of 301 bytes; 300 are left" },
    { "empty key", { { KEY1, 0, 8 } }, "key 0 is empty" },
    { "zero byte in a key", { { KEY2 + 8, 0, 1 } }, "a zero byte" },
    { "a key twice", { { KEY2 + 8, 'a', 1 } }, "the key \"a\" appears twice" },
    { "type of a value", { { TYPE1, 13, 4 } }, "key \"general.alignment\": a value of type 13" },
    { "text of 2^63 bytes", { { TEXT2, 1ull << 63, 8 } }, "a text of 9223372036854775808 bytes" },
    { "text longer than the file", { { TEXT2, 255, 8 } }, "a text of 255 bytes; 254 are left" },
    { "array of arrays", { { ELEMENT3, 9, 4 } }, "key \"a\": an array of type 9" },
    { "array of an unknown type", { { ELEMENT3, 77, 4 } }, "key \"a\": an array of type 77" },
    { "array without end", { { COUNT3, 1ull << 61, 8 } }, "an array of 2305843009213693952 values" },
    { "numbers without end", { { ELEMENT3, 10, 4 }, { COUNT3, (1ull << 61) + 1, 8 } }, "2305843009213693953 values" },
    { "texts of an array", { { TEXT3, 1ull << 40, 8 } }, "a text in an array of 1099511627776 bytes" },
    { "alignment 0", { { ALIGNMENT, 0, 4 } }, "general.alignment is 0, which is not a power of two" },
    { "alignment 48", { { ALIGNMENT, 48, 4 } }, "general.alignment is 48" },
    { "alignment not a u32", { { TYPE1, 5, 4 } }, "general.alignment is not a u32" },
    { "alignment of another file", { { ALIGNMENT, 64, 4 } }, "tensor \"q\" begins at 96, 128 is where it has to" },
    { "alignment beyond the file",
      { { ALIGNMENT, 1u << 31, 4 } },
      "cut off: tensor \"p\" has 68 bytes from 0 on, there are 0" },
    { "empty name", { { NAME2, 0, 8 } }, "the name of a tensor has 0 bytes" },
    { "name of 64 bytes", { { NAME2, 64, 8 } }, "the name of a tensor has 64 bytes" },
    { "name of 2^63 bytes", { { NAME2, 1ull << 63, 8 } }, "the name of a tensor of 9223372036854775808 bytes" },
    { "zero byte in a name", { { NAME2 + 8, 0, 1 } }, "a zero byte" },
    { "a name twice", { { NAME2 + 8, 'p', 1 } }, "two tensors are called \"p\"" },
    { "five dimensions", { { DIMS2, 5, 4 } }, "5 dimensions, at most 4" },
    { "all bits of the dimensions", { { DIMS2, UINT32_MAX, 4 } }, "4294967295 dimensions" },
    { "dimension 0", { { INNER2, 0, 8 } }, "a dimension is 0" },
    { "negative dimension", { { INNER2, UINT64_MAX, 8 } }, "multiply to more than 2^63" },
    { "dimensions that wrap around", { { INNER1, 1ull << 32, 8 }, { OUTER1, 1ull << 32, 8 } }, "more than 2^63" },
    { "bytes that wrap around", { { INNER2, 1ull << 62, 8 } }, "more than 2^63 bytes" },
    { "rows that are no blocks", { { INNER1, 33, 8 } }, "rows of 33 values, but q8_0 has blocks of 32" },
    { "a type without name", { { GGML1, 4, 4 } }, "is of type 4 (another one)" },
    { "a type that is not read", { { GGML1, 12, 4 } }, "is of type 12 (Q4_K); F32, F16, BF16 and Q8_0 are read" },
    { "a type far out", { { GGML1, UINT32_MAX, 4 } }, "is of type 4294967295" },
    { "first not at 0", { { OFFSET1, 32, 8 } }, "tensor \"p\" begins at 32, 0 is where it has to" },
    { "overlap", { { OFFSET2, 64, 8 } }, "tensor \"q\" begins at 64, 96 is" },
    { "hole", { { OFFSET2, 128, 8 } }, "tensor \"q\" begins at 128, 96 is" },
    { "order", { { OFFSET1, 96, 8 }, { OFFSET2, 0, 8 } }, "tensor \"p\" begins at 96, 0 is" },
    { "offset of 2^64", { { OFFSET2, UINT64_MAX, 8 } }, "begins at 18446744073709551615" },
    { "more data than there is", { { INNER2, 4, 8 } }, "cut off: tensor \"q\" has 16 bytes from 96 on, there are 108" },
};

static void hostile_files_are_refused_in_one_line(void **state)
{
    struct dlc_buf b = { 0 };
    dlc_gguf_file *f;

    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        dlc_err err;

        build(&b);
        for (size_t k = 0; k < 2; k++)
            for (size_t byte = 0; byte < hostile[i].patches[k].n; byte++)
                b.data[hostile[i].patches[k].at + byte] = (char)(hostile[i].patches[k].value >> (8 * byte));
        err = dlc_gguf_parse(&f, b.data, b.len, "x");
        if (err != DLC_EINPUT || f != NULL || strncmp(dlc_err_text(), "x: ", 3) != 0 ||
            !strstr(dlc_err_text(), hostile[i].text))
            fail_msg("%s: error %d, text: %s", hostile[i].why, err, err ? dlc_err_text() : "");
    }
    dlc_buf_fini(&b);
}

static void every_cut_is_refused_and_no_changed_bit_breaks_the_reader(void **state)
{
    struct dlc_buf b = { 0 };
    dlc_gguf_file *f;

    (void)state;
    build(&b);
    for (size_t cut = 0; cut < END; cut++) {
        char *exact = malloc(cut ? cut : 1); /* a read beyond it is seen by the sanitizer */

        memcpy(exact, b.data, cut);
        if (dlc_gguf_parse(&f, exact, cut, "x") != DLC_EINPUT)
            fail_msg("%zu of %d bytes were taken", cut, END);
        free(exact);
    }
    for (size_t bit = 0; bit < 8 * END; bit++) {
        char *changed = malloc(END);

        memcpy(changed, b.data, END);
        changed[bit / 8] = (char)(changed[bit / 8] ^ 1 << bit % 8);
        if (dlc_gguf_parse(&f, changed, END, "x") == DLC_OK)
            dlc_gguf_close(f); /* a name or a value may change and stay legal */
        else
            assert_null(f);
        free(changed);
    }
    dlc_buf_fini(&b);
}

static void put_value(struct dlc_buf *b, const char *key, unsigned type, uint64_t bits, size_t n)
{
    put_text(b, key);
    put(b, type, 4);
    put(b, bits, n);
}

/* One pair of each type. */
static void build_values(struct dlc_buf *b)
{
    float single = 0.25f;
    double wide = -2.5;
    uint64_t bits;

    put(b, 0x46554747, 4);
    put(b, 2, 4); /* the same layout */
    put(b, 0, 8);
    put(b, 14, 8);
    put_value(b, "u8", 0, 200, 1);
    put_value(b, "i8", 1, 200, 1);
    put_value(b, "u16", 2, 60000, 2);
    put_value(b, "i16", 3, 60000, 2);
    put_value(b, "u32", 4, 4000000000, 4);
    put_value(b, "i32", 5, 4000000000, 4);
    memcpy(&bits, &single, 4);
    put_value(b, "f32", 6, bits & UINT32_MAX, 4);
    put_value(b, "yes", 7, 1, 1);
    put_text(b, "text");
    put(b, 8, 4);
    put_text(b, "a\"b");
    put_value(b, "u64", 10, UINT64_MAX, 8);
    put_value(b, "i64", 11, UINT64_MAX, 8);
    memcpy(&bits, &wide, 8);
    put_value(b, "f64", 12, bits, 8);
    put_text(b, "list");
    put(b, 9, 4);
    put(b, 1, 4); /* i8 */
    put(b, 3, 8);
    put(b, 0x80ff05, 3);
    put_text(b, "empty");
    put(b, 9, 4);
    put(b, 8, 4);
    put(b, 0, 8);
}

static void values_are_read_by_kind(void **state)
{
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = { { "u8", 200 },         { "i8", -56 },         { "u16", 60000 }, { "i16", -5536 },
                     { "u32", 4000000000 }, { "i32", -294967296 }, { "i64", -1 },    { "u64", INT64_MAX } };
    static const char *const others[] = { "f32", "yes", "text", "list", "none" };
    struct dlc_gguf_array list;
    struct dlc_gguf_text text;
    struct dlc_buf b = { 0 };
    dlc_gguf_file *f;
    bool yes = false;
    int64_t v;
    double real;

    (void)state;
    build_values(&b);
    if (dlc_gguf_parse(&f, b.data, b.len, "x") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        assert_int_equal(dlc_gguf_get_int(&v, f, integers[i].key, INT64_MIN, INT64_MAX), DLC_OK);
        assert_int_equal(v, integers[i].value);
        assert_int_equal(dlc_gguf_get_real(&real, f, integers[i].key), DLC_OK);
        assert_true(real == (double)integers[i].value);
        assert_int_equal(dlc_gguf_get_text(&text, f, integers[i].key), DLC_EINPUT);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(dlc_gguf_get_int(&v, f, others[i], INT64_MIN, INT64_MAX), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "x: \"none\" is missing, an integer is needed");
    assert_int_equal(dlc_gguf_get_int(&v, f, "u8", 0, 100), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "x: \"u8\" is 200, it must lie in 0..100");
    assert_int_equal(dlc_gguf_get_real(&real, f, "f32"), DLC_OK);
    assert_true(real == 0.25);
    assert_int_equal(dlc_gguf_get_real(&real, f, "f64"), DLC_OK);
    assert_true(real == -2.5);
    assert_int_equal(dlc_gguf_get_real(&real, f, "yes"), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "x: \"yes\" is of another kind, a number is needed");
    assert_int_equal(dlc_gguf_get_bool(&yes, f, "yes"), DLC_OK);
    assert_true(yes);
    assert_int_equal(dlc_gguf_get_bool(&yes, f, "u8"), DLC_EINPUT);
    assert_int_equal(dlc_gguf_get_text(&text, f, "text"), DLC_OK);
    assert_true(dlc_gguf_text_is(text, "a\"b"));
    assert_int_equal(dlc_gguf_get_ints(&list, f, "list"), DLC_OK);
    assert_int_equal(list.n, 3);
    assert_int_equal(dlc_gguf_next_int(&list), 5);
    assert_int_equal(dlc_gguf_next_int(&list), -1);
    assert_int_equal(dlc_gguf_next_int(&list), -128);
    assert_int_equal(dlc_gguf_get_texts(&list, f, "list"), DLC_EINPUT);
    assert_int_equal(dlc_gguf_get_texts(&list, f, "empty"), DLC_OK);
    assert_int_equal(list.n, 0);
    assert_true(dlc_gguf_has(f, "u8") && !dlc_gguf_has(f, "u"));
    dlc_gguf_close(f);
    dlc_buf_fini(&b);
}

/* ---- writing ---- */

static const struct dlc_gguf_write_tensor tensors[] = {
    { "m", DLC_STORED_Q8_0, 2, { 3, 64 } },
    { "n", DLC_STORED_F32, 1, { 7 } },
    { "h", DLC_STORED_F16, 2, { 5, 3 } },
    { "b", DLC_STORED_BF16, 3, { 2, 1, 3 } },
};
enum { N_WRITTEN = sizeof tensors / sizeof *tensors };

static dlc_err read_values(float *out, void *arg, size_t index)
{
    const struct dlc_gguf_write_tensor *t = &tensors[index];
    uint64_t n = 1;

    if (arg && index == *(size_t *)arg)
        return dlc_fail(DLC_EIO, "values are gone");
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    for (uint64_t i = 0; i < n; i++)
        out[i] = (float)(i % 64) - 31.75f; /* exact in every type but q8_0 */
    return DLC_OK;
}

static dlc_err write_all(void *path)
{
    const struct dlc_tensor_source source = { read_values, NULL };
    struct dlc_gguf_pairs p = { 0 };
    dlc_err err;

    dlc_gguf_put_text(&p, "general.architecture", "llama");
    dlc_gguf_put_u32(&p, "u", 7);
    dlc_gguf_put_f32(&p, "f", 0.5f);
    dlc_gguf_put_bool(&p, "b", true);
    dlc_gguf_put_i32s(&p, "i", (const int32_t[]){ -1, 2 }, 2);
    dlc_gguf_put_texts(&p, "t", 2);
    dlc_gguf_put_element(&p, "", 0);
    dlc_gguf_put_element(&p, "two", 3);
    err = dlc_gguf_write(path, &p, tensors, N_WRITTEN, &source);
    dlc_gguf_pairs_fini(&p);
    return err;
}

static dlc_err open_all(void *path)
{
    dlc_gguf_file *f;

    DLC_TRY(dlc_gguf_open(&f, path));
    dlc_gguf_close(f);
    return DLC_OK;
}

static void what_was_written_is_read(void **state)
{
    const char *path = in_folder("written");
    struct dlc_gguf_array list;
    struct dlc_gguf_text text;
    dlc_gguf_file *f;
    float expected[192], values[192];
    double real;
    int64_t v;

    (void)state;
    assert_int_equal(write_all((void *)(uintptr_t)path), DLC_OK);
    if (dlc_gguf_open(&f, path) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_int_equal(dlc_gguf_get_text(&text, f, "general.architecture"), DLC_OK);
    assert_true(dlc_gguf_text_is(text, "llama"));
    assert_int_equal(dlc_gguf_get_int(&v, f, "u", 7, 7), DLC_OK);
    assert_int_equal(dlc_gguf_get_real(&real, f, "f"), DLC_OK);
    assert_true(real == 0.5);
    assert_int_equal(dlc_gguf_get_ints(&list, f, "i"), DLC_OK);
    assert_true(list.n == 2 && dlc_gguf_next_int(&list) == -1 && dlc_gguf_next_int(&list) == 2);
    assert_int_equal(dlc_gguf_get_texts(&list, f, "t"), DLC_OK);
    assert_true(dlc_gguf_text_is(dlc_gguf_next_text(&list), ""));
    assert_true(dlc_gguf_text_is(dlc_gguf_next_text(&list), "two"));
    for (size_t i = 0; i < N_WRITTEN; i++) {
        const struct dlc_gguf_tensor *t = dlc_gguf_tensor_at(f, i);

        assert_string_equal(t->name, tensors[i].name);
        assert_int_equal((uintptr_t)t->data % 32, 0);
        assert_int_equal(t->n_dims, tensors[i].n_dims);
        assert_memory_equal(t->dims, tensors[i].dims, (size_t)t->n_dims * sizeof *t->dims);
        assert_int_equal(read_values(expected, NULL, i), DLC_OK);
        dlc_stored_decode(values, t->type, t->data, t->n_values);
        for (uint64_t k = 0; k < t->n_values; k++)
            if (fabsf(values[k] - expected[k]) > (t->type == DLC_STORED_Q8_0 ? 0.15f : 0))
                fail_msg("%s: value %d is %g, not %g", t->name, (int)k, (double)values[k], (double)expected[k]);
    }
    dlc_gguf_close(f);
}

static void failures_leave_nothing_and_keep_the_old(void **state)
{
    size_t gone = 2;
    const struct dlc_tensor_source source = { read_values, &gone };
    const struct dlc_gguf_pairs none = { 0 };
    char path[DLC_PATH_MAX];
    struct test_full_disk disk;
    struct dlc_buf b = { 0 };
    int n_files;

    (void)state;
    assert_int_equal(dlc_path_join(path, folder, "kept"), DLC_OK);
    assert_int_equal(dlc_file_write_atomic(path, "old", 3), DLC_OK);
    n_files = test_count_files(folder);
    assert_int_equal(dlc_gguf_write(path, &none, tensors, N_WRITTEN, &source), DLC_EIO);
    assert_string_equal(dlc_err_text(), "values are gone");
    assert_int_equal(dlc_file_read(&b, path, 100), DLC_OK);
    assert_string_equal(b.data, "old");
    assert_int_equal(test_count_files(folder), n_files);
    assert_int_equal(dlc_gguf_write(in_folder("no/such/folder"), &none, tensors, 0, &source), DLC_EIO);

    test_full_disk_begin(&disk, in_folder("full"));
    test_full_disk_fill(&disk);
    assert_int_equal(dlc_path_join(path, disk.folder, "f"), DLC_OK);
    assert_int_equal(write_all(path), DLC_EIO);
    assert_non_null(strstr(dlc_err_text(), disk.reason));
    test_full_disk_end(&disk);
    dlc_buf_fini(&b);
}

static void any_allocation_may_fail(void **state)
{
    char path[DLC_PATH_MAX];

    (void)state;
    assert_int_equal(dlc_path_join(path, folder, "walk"), DLC_OK);
    assert_true(test_walk_allocations(write_all, path) > 3);
    assert_true(test_walk_allocations(open_all, path) > 4);
}

static void things_that_are_not_files_are_refused(void **state)
{
    dlc_gguf_file *f;

    (void)state;
    assert_int_equal(dlc_gguf_open(&f, in_folder("none")), DLC_ENOTFOUND);
    assert_int_equal(dlc_gguf_open(&f, folder), DLC_EINPUT);
    assert_int_equal(dlc_file_write_atomic(in_folder("empty"), "", 0), DLC_OK);
    assert_int_equal(dlc_gguf_open(&f, in_folder("empty")), DLC_EINPUT);
    dlc_gguf_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_file_is_read),
        cmocka_unit_test(hostile_files_are_refused_in_one_line),
        cmocka_unit_test(every_cut_is_refused_and_no_changed_bit_breaks_the_reader),
        cmocka_unit_test(values_are_read_by_kind),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(failures_leave_nothing_and_keep_the_old),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(things_that_are_not_files_are_refused),
    };

    return cmocka_run_group_tests_name("gguf", tests, make_folder, remove_folder);
}
