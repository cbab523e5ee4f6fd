#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/ckpt_test_util.h"
#include "ckpt/safetensors.h"

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
    return test_make_folder(folder, sizeof folder, "safetensors");
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

/* length | header | data_bytes zeros. */
static void build(struct dlc_buf *b, uint64_t length, const char *header, size_t header_bytes, size_t data_bytes)
{
    unsigned char le[8];

    for (int i = 0; i < 8; i++)
        le[i] = (unsigned char)(length >> (8 * i));
    dlc_buf_clear(b);
    assert_int_equal(dlc_buf_append(b, le, 8), DLC_OK);
    assert_int_equal(dlc_buf_append(b, header, header_bytes), DLC_OK);
    for (size_t i = 0; i < data_bytes; i++)
        assert_int_equal(dlc_buf_append(b, "", 1), DLC_OK);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* All refused. `length` 0 stands for the header's own length. */
static const struct {
    const char *why, *header;
    uint64_t length;
    size_t data_bytes;
    const char *text; /* part of the message */
} hostile[] = {
    { "length 2^63", "{}", 1ull << 63, 0, "header of 9223372036854775808 bytes" },
    { "length 2^64-1: adding 8 overflows", "{}", UINT64_MAX, 0, "at most 100000000" },
    { "one above the limit", "{}", 100000001, 0, "at most 100000000" },
    { "longer than the file", "{}", 3, 0, "cut off: header of 3 bytes, the file has 2" },
    { "cuts the JSON", "{\"a\":1}", 4, 0, "not valid JSON" },
    { "empty header", "", 0, 0, "header is empty" },
    { "not JSON", "hello", 0, 0, "not valid JSON" },
    { "an array", "[]", 0, 0, "not a JSON object" },
    { "a number", "7", 0, 0, "not valid JSON" },
    { "two values", "{}{}", 0, 0, "not valid JSON" },
    { "not UTF-8", "{\"a\xff\":1}", 0, 0, "not valid JSON" },
    { "overlong UTF-8", "{\"\xc0\xaf\":1}", 0, 0, "not valid JSON" },
    { "NUL in a name", "{\"a\\u0000b\":" T("U8", "[1]", "[0,1]") "}", 0, 1, "not valid JSON" },
    { "duplicate tensor", "{\"a\":" T("U8", "[1]", "[0,1]") ",\"a\":" T("U8", "[1]", "[0,1]") "}", 0, 1, "duplicate" },
    { "duplicate dtype", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 0, 1,
      "duplicate" },
    { "duplicate metadata", "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, 0, "duplicate" },
    { "metadata not an object", "{\"__metadata__\":[]}", 0, 0, "__metadata__ is not an object" },
    { "metadata value not text", "{\"__metadata__\":{\"a\":1}}", 0, 0, "__metadata__ \"a\" is not a string" },
    { "tensor is a number", "{\"a\":1}", 0, 0, "tensor \"a\": its description is not an object" },
    { "no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 0, 1, "\"dtype\" is missing" },
    { "dtype not text", "{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,1]}}", 0, 1, "\"dtype\" is missing" },
    { "unknown dtype", "{\"a\":" T("F128", "[1]", "[0,16]") "}", 0, 16, "dtype \"F128\" is not known" },
    { "dtype in small letters", "{\"a\":" T("f32", "[1]", "[0,4]") "}", 0, 4, "dtype \"f32\" is not known" },
    { "dtype of another size", "{\"a\":" T("BF16", "[2]", "[0,8]") "}", 0, 8, "need 4 bytes" },
    { "no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 0, 1, "\"shape\" is missing" },
    { "shape a number", "{\"a\":" T("U8", "1", "[0,1]") "}", 0, 1, "\"shape\" is missing or not an array" },
    { "negative dim", "{\"a\":" T("U8", "[-1]", "[0,1]") "}", 0, 1, "entry 0 of \"shape\"" },
    { "two negative dims", "{\"a\":" T("U8", "[-1,-1]", "[0,1]") "}", 0, 1, "entry 0 of \"shape\"" },
    { "fractional dim", "{\"a\":" T("U8", "[1.0]", "[0,1]") "}", 0, 1, "entry 0 of \"shape\"" },
    { "dim of 2^63", "{\"a\":" T("U8", "[9223372036854775808]", "[0,1]") "}", 0, 1, "not valid JSON" },
    { "five dims", "{\"a\":" T("U8", "[1,1,1,1,1]", "[0,1]") "}", 0, 1, "5 entries, at most 4" },
    { "product 2^64 wraps to 0", "{\"a\":" T("U8", "[4294967296,4294967296]", "[0,0]") "}", 0, 0,
      "more than 2^64 values" },
    { "zero does not hide an overflow", "{\"a\":" T("U8", "[4294967296,4294967296,0]", "[0,0]") "}", 0, 0,
      "2^64 values" },
    { "bits wrap to 0", "{\"a\":" T("F32", "[576460752303423488]", "[0,0]") "}", 0, 0, "2^64 bits" },
    { "half a byte", "{\"a\":" T("F4", "[3]", "[0,1]") "}", 0, 1, "not whole bytes" },
    { "no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0, 1, "\"data_offsets\" is missing" },
    { "one offset", "{\"a\":" T("U8", "[1]", "[0]") "}", 0, 1, "1 entries, exactly 2" },
    { "three offsets", "{\"a\":" T("U8", "[1]", "[0,1,2]") "}", 0, 1, "3 entries, exactly 2" },
    { "negative offset", "{\"a\":" T("U8", "[1]", "[-1,0]") "}", 0, 1, "entry 0 of \"data_offsets\"" },
    { "end before begin", "{\"a\":" T("U8", "[1]", "[1,0]") "}", 0, 1, "data_offsets 1..0" },
    { "size differs from the shape", "{\"a\":" T("F32", "[2]", "[0,4]") "}", 0, 4, "need 8 bytes" },
    { "does not begin at 0", "{\"a\":" T("U8", "[1]", "[1,2]") "}", 0, 2, "hole" },
    { "hole", "{\"a\":" T("U8", "[1]", "[0,1]") ",\"b\":" T("U8", "[1]", "[2,3]") "}", 0, 3, "hole" },
    { "overlap", "{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", 0, 3, "overlap" },
    { "same place twice", "{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[0,2]") "}", 0, 2, "overlap" },
    { "empty tensor inside another", "{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[0]", "[1,1]") "}", 0, 2,
      "overlap" },
    { "data cut off", "{\"a\":" T("U8", "[4]", "[0,4]") "}", 0, 3, "cut off: tensor \"a\" ends at 4" },
    { "offsets far outside", "{\"a\":" T("U8", "[1152921504606846976]", "[0,1152921504606846976]") "}", 0, 8,
      "cut off" },
    { "trailing byte", "{\"a\":" T("U8", "[4]", "[0,4]") "}", 0, 5, "1 bytes follow the last tensor" },
    { "data without tensors", "{}", 0, 8, "8 bytes follow" },
    { "line break and escape in a name", "{\"a\\n\\u001b[2J\":1}", 0, 0, "tensor \"a??[2J\"" },
};

static void hostile_files_are_refused_in_one_line(void **state)
{
    struct dlc_buf b = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        size_t n = strlen(hostile[i].header);
        dlc_st_file *f = (dlc_st_file *)&b; /* anything but NULL */
        dlc_err err;

        build(&b, hostile[i].length ? hostile[i].length : n, hostile[i].header, n, hostile[i].data_bytes);
        err = dlc_st_parse(&f, b.data, b.len, "dir/x.safetensors");
        if (err != DLC_EINPUT || f || strncmp(dlc_err_text(), "dir/x.safetensors: ", 19) != 0 ||
            strchr(dlc_err_text(), '\n') || !strstr(dlc_err_text(), hostile[i].text))
            fail_msg("%s: error %d, text: %s", hostile[i].why, err, dlc_err_text());
    }
    for (size_t n = 0; n < 8; n++) {
        dlc_st_file *f;

        assert_int_equal(dlc_st_parse(&f, "\2\0\0\0\0\0\0\0", n, "x"), DLC_EINPUT);
    }
    dlc_buf_fini(&b);
}

static void deep_nesting_is_refused(void **state)
{
    enum { DEPTH = 1000000 };
    struct dlc_buf b = { 0 }, nest = { 0 };
    dlc_st_file *f;

    (void)state;
    assert_int_equal(dlc_buf_printf(&nest, "{\"a\":"), DLC_OK);
    for (int i = 0; i < DEPTH; i++)
        assert_int_equal(dlc_buf_append(&nest, "[", 1), DLC_OK);
    build(&b, nest.len, nest.data, nest.len, 0);
    assert_int_equal(dlc_st_parse(&f, b.data, b.len, "x"), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "depth"));
    dlc_buf_fini(&nest);
    dlc_buf_fini(&b);
}

static const struct {
    const char *why, *header;
    size_t data_bytes, n_tensors;
} legal[] = {
    { "no tensors", "{}", 0, 0 },
    { "only metadata", "{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0 },
    { "white space around", " \n{ } \t ", 0, 0 },
    { "scalar", "{\"a\":" T("F32", "[]", "[0,4]") "}", 4, 1 },
    { "zero-sized dim beside others at the same place",
      "{\"b\":" T("F32", "[0,7]", "[4,4]") ",\"a\":" T("F32", "[1]", "[0,4]") ",\"c\":" T("F32", "[0]", "[0,0]") "}", 4,
      3 },
    { "header not in the order of the data", "{\"a\":" T("U8", "[1]", "[1,2]") ",\"b\":" T("U8", "[1]", "[0,1]") "}", 2,
      2 },
    { "unknown member", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":[]}}", 1, 1 },
    { "two half-byte values", "{\"a\":" T("F4", "[2]", "[0,1]") "}", 1, 1 },
    { "dtypes that only other programs use",
      "{\"a\":" T("F64", "[1]", "[0,8]") ",\"b\":" T("BOOL", "[1]", "[8,9]") ",\"c\":" T("F8_E4M3", "[1]",
                                                                                         "[9,10]") "}",
      10, 3 },
    { "empty name", "{\"\":" T("U8", "[1]", "[0,1]") "}", 1, 1 },
};

static void legal_oddities_are_read(void **state)
{
    struct dlc_buf b = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        size_t n = strlen(legal[i].header);
        dlc_st_file *f;

        build(&b, n, legal[i].header, n, legal[i].data_bytes);
        if (dlc_st_parse(&f, b.data, b.len, "x") != DLC_OK)
            fail_msg("%s: %s", legal[i].why, dlc_err_text());
        assert_int_equal(dlc_st_n_tensors(f), legal[i].n_tensors);
        for (size_t k = 0; k < legal[i].n_tensors; k++) {
            const struct dlc_st_tensor *t = dlc_st_tensor_at(f, k);

            assert_ptr_equal(dlc_st_find(f, t->name), t);
        }
        assert_null(dlc_st_find(f, "missing"));
        dlc_st_close(f);
    }
    dlc_buf_fini(&b);
}

static const float six[] = { 1.0f, -2.5f, 3.14159274f, 0.0f, 1e-30f, 65504.0f };
static const struct dlc_st_write_tensor sample[] = {
    { "b", DLC_F32, 2, { 1, 3 }, (const float[]){ 1, 2, 3 } },
    { "a", DLC_BF16, 1, { 2 }, (const float[]){ 1.5f, -2 } },
    { "c", DLC_F32, 0, { 0 }, (const float[]){ 0.25f } },
    { "A", DLC_F32, 2, { 0, 4 }, NULL },
};
enum { N_SAMPLE = sizeof sample / sizeof *sample };

/* What the format's own library (safetensors 0.8 for Python) writes for the same tensors. */
static const char sample_bytes[] =
    "\x00\x01\x00\x00\x00\x00\x00\x00{\"__metadata__\":{\"format\":\"pt\"},\"A\":{\"dtype\":\"F32\",\"shape\":[0,4],"
    "\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]},\"c\":{\"dtype\":"
    "\"F32\","
    "\"shape\":[],\"data_offsets\":[12,16]},\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[16,20]}}   "
    "\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00\x80>\xc0?\x00\xc0";

static void bytes_are_those_of_the_reference_library(void **state)
{
    struct dlc_buf b = { 0 };
    const char *path = in_folder("same");

    (void)state;
    assert_int_equal(dlc_st_write(path, sample, N_SAMPLE, NULL, 0), DLC_OK);
    assert_int_equal(dlc_file_read(&b, path, 1000), DLC_OK);
    assert_int_equal(b.len, sizeof sample_bytes - 1);
    assert_memory_equal(b.data, sample_bytes, b.len);
    dlc_buf_fini(&b);
}

static void written_values_come_back(void **state)
{
    const struct dlc_st_meta meta[] = { { "diloco", "outer \"state\"" }, { "t", "40" } };
    const struct dlc_st_write_tensor tensors[] = { { "f", DLC_F32, 1, { 6 }, six },
                                                   { "h", DLC_BF16, 2, { 2, 3 }, six },
                                                   { "half", DLC_F16, 1, { 6 }, six } };
    const char *path = in_folder("values");
    const struct dlc_st_tensor *t;
    float back[6];
    dlc_st_file *f;

    (void)state;
    assert_int_equal(dlc_st_write(path, tensors, 3, meta, 2), DLC_OK);
    assert_int_equal(dlc_st_open(&f, path), DLC_OK);
    assert_string_equal(dlc_st_metadata(f, "format"), "pt");
    assert_string_equal(dlc_st_metadata(f, "diloco"), "outer \"state\"");
    assert_null(dlc_st_metadata(f, "none"));
    t = dlc_st_find(f, "h");
    assert_string_equal(t->dtype_name, "BF16");
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->size_bytes, 12);
    assert_int_equal((uintptr_t)dlc_st_find(f, "f")->data % 8, 0); /* what we write can be used in place */
    assert_int_equal(dlc_st_read_f32(back, f, "f", 6), DLC_OK);
    assert_memory_equal(back, six, sizeof six);
    assert_int_equal(dlc_st_read_f32(back, f, "h", 6), DLC_OK);
    for (int i = 0; i < 6; i++)
        assert_true(back[i] == dlc_bf16_to_f32(dlc_f32_to_bf16(six[i])));
    assert_string_equal(dlc_st_find(f, "half")->dtype_name, "F16");
    assert_int_equal(dlc_st_read_f32(back, f, "half", 6), DLC_OK);
    for (int i = 0; i < 6; i++)
        assert_true(back[i] == dlc_f16_to_f32(dlc_f32_to_f16(six[i])));
    dlc_st_close(f);
}

struct row_source {
    const float *rows[2];
    int n_calls;
    size_t fails_at;
};

static dlc_err read_row(float *out, void *arg, size_t index)
{
    struct row_source *s = arg;

    s->n_calls++;
    if (index == s->fails_at)
        return dlc_fail(DLC_EIO, "row %zu is gone", index);
    memcpy(out, s->rows[index], sizeof six);
    return DLC_OK;
}

static void tensors_that_come_one_by_one_give_the_same_bytes(void **state)
{
    static const float other[] = { 6, 5, 4, 3, 2, 65519.0f };
    struct dlc_st_write_tensor t[] = { { "h", DLC_F16, 2, { 2, 3 }, other }, { "f", DLC_F32, 1, { 6 }, six } };
    struct row_source s = { { other, six }, 0, 2 };
    const struct dlc_tensor_source source = { read_row, &s };
    struct dlc_buf a = { 0 }, b = { 0 };

    (void)state;
    assert_int_equal(dlc_st_write(in_folder("whole"), t, 2, NULL, 0), DLC_OK);
    assert_int_equal(dlc_file_read(&a, in_folder("whole"), 10000), DLC_OK);
    t[0].data = t[1].data = NULL;
    assert_int_equal(dlc_st_write_from(in_folder("parts"), t, 2, NULL, 0, &source), DLC_OK);
    assert_int_equal(dlc_file_read(&b, in_folder("parts"), 10000), DLC_OK);
    assert_int_equal(s.n_calls, 2);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    s.fails_at = 1;
    assert_int_equal(dlc_st_write_from(in_folder("torn"), t, 2, NULL, 0, &source), DLC_EIO);
    assert_string_equal(dlc_err_text(), "row 1 is gone");
    assert_false(dlc_file_exists(in_folder("torn")));
    dlc_buf_fini(&a);
    dlc_buf_fini(&b);
}

static void a_value_beyond_f16_is_not_written_as_infinity(void **state)
{
    static const float large[] = { 1, 65520 };
    const struct dlc_st_write_tensor t = { "a", DLC_F16, 1, { 2 }, large };

    (void)state;
    assert_int_equal(dlc_st_write(in_folder("large"), &t, 1, NULL, 0), DLC_EINPUT);
    assert_string_equal(dlc_err_text(), "tensor \"a\" has the value 65520, which f16 cannot hold; f32 can");
    assert_false(dlc_file_exists(in_folder("large")));
}

static void f16_is_read_from_any_alignment(void **state)
{
    static const char header[] = "{\"a\":" T("F16", "[3]", "[0,6]") ",\"i\":" T("I64", "[1]", "[6,14]") "}";
    struct dlc_buf b = { 0 };
    dlc_st_file *f;
    float v[3];

    (void)state;
    for (size_t pad = 0; pad < 8; pad++) {
        char padded[sizeof header + 8];
        int n = snprintf(padded, sizeof padded, "%s%*s", header, (int)pad, "");

        build(&b, (uint64_t)n, padded, (size_t)n, 14);
        memcpy(b.data + 8 + n, "\x00\x3c\x00\xc0\x01\x00", 6);
        assert_int_equal(dlc_st_parse(&f, b.data, b.len, "x"), DLC_OK);
        assert_int_equal(dlc_st_read_f32(v, f, "a", 3), DLC_OK);
        assert_true(v[0] == 1.0f && v[1] == -2.0f && v[2] == 0x1p-24f);
        assert_int_equal(dlc_st_read_f32(v, f, "i", 1), DLC_EINPUT);
        assert_string_equal(dlc_err_text(), "x: tensor \"i\" is I64, only F32, BF16 and F16 can be used here");
        assert_int_equal(dlc_st_read_f32(v, f, "a", 2), DLC_EINPUT);
        assert_string_equal(dlc_err_text(), "x: tensor \"a\" has 3 values, 2 are needed");
        assert_int_equal(dlc_st_read_f32(v, f, "b", 2), DLC_EINPUT);
        assert_string_equal(dlc_err_text(), "x: tensor \"b\" is missing");
        dlc_st_close(f);
    }
    dlc_buf_fini(&b);
}

static void every_cut_is_refused_and_no_changed_byte_breaks_the_reader(void **state)
{
    const size_t n = sizeof sample_bytes - 1;
    dlc_st_file *f;

    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        char *exact = malloc(cut ? cut : 1); /* a read beyond it is seen by the sanitizer */

        memcpy(exact, sample_bytes, cut);
        assert_int_equal(dlc_st_parse(&f, exact, cut, "x"), DLC_EINPUT);
        free(exact);
    }
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit++) {
            char changed[sizeof sample_bytes];

            memcpy(changed, sample_bytes, n);
            changed[at] = (char)(changed[at] ^ (1 << bit));
            if (dlc_st_parse(&f, changed, n, "x") == DLC_OK)
                dlc_st_close(f); /* a name or a value may change and stay legal */
            else
                assert_null(f);
        }
    }
}

static void things_that_are_not_files_are_refused(void **state)
{
    dlc_st_file *f;

    (void)state;
    assert_int_equal(dlc_st_open(&f, in_folder("none")), DLC_ENOTFOUND);
    assert_non_null(strstr(dlc_err_text(), "No such file"));
    assert_int_equal(dlc_st_open(&f, folder), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "a folder, expected a file"));
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(dlc_st_open(&f, in_folder("pipe")), DLC_EINPUT); /* and does not wait */
    assert_int_equal(dlc_file_write_atomic(in_folder("empty"), "", 0), DLC_OK);
    assert_int_equal(dlc_st_open(&f, in_folder("empty")), DLC_EINPUT);
    dlc_st_close(NULL);
}

static void wrong_descriptions_are_not_written(void **state)
{
    static const struct {
        const char *why;
        struct dlc_st_write_tensor t[2];
        const char *text;
    } rows[] = {
        { "two of a name", { { "a", DLC_F32, 1, { 1 }, six }, { "a", DLC_BF16, 1, { 1 }, six } }, "two tensors" },
        { "metadata's name",
          { { "__metadata__", DLC_F32, 1, { 1 }, six }, { "a", DLC_F32, 1, { 1 }, six } },
          "two tensors" },
        { "five dims", { { "a", DLC_F32, 5, { 1 }, six }, { "b", DLC_F32, 1, { 1 }, six } }, "5 dimensions" },
        { "overflow",
          { { "a", DLC_F32, 2, { 1ull << 32, 1ull << 32 }, six }, { "b", DLC_F32, 1, { 1 }, six } },
          "2^64" },
        { "too many bytes",
          { { "a", DLC_F32, 1, { 1ull << 62 }, six }, { "b", DLC_F32, 1, { 1 }, six } },
          "2^63 bytes" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (dlc_st_write(in_folder("wrong"), rows[i].t, 2, NULL, 0) != DLC_EUSAGE ||
            !strstr(dlc_err_text(), rows[i].text))
            fail_msg("%s: %s", rows[i].why, dlc_err_text());
        assert_false(dlc_file_exists(in_folder("wrong")));
    }
    assert_int_equal(dlc_st_write(in_folder("no/such/folder"), sample, N_SAMPLE, NULL, 0), DLC_EIO);
    assert_non_null(strstr(dlc_err_text(), "No such file"));
}

static dlc_err write_sample(void *arg)
{
    return dlc_st_write(arg, sample, N_SAMPLE, NULL, 0);
}

static dlc_err open_sample(void *arg)
{
    dlc_st_file *f;

    DLC_TRY(dlc_st_open(&f, arg));
    dlc_st_close(f);
    return DLC_OK;
}

static void any_allocation_may_fail(void **state)
{
    char path[DLC_PATH_MAX];
    struct dlc_names names;

    (void)state;
    assert_int_equal(mkdir(in_folder("oom"), 0755), 0);
    snprintf(path, sizeof path, "%s", in_folder("oom/f"));
    assert_true(test_walk_allocations(write_sample, path) >= 10);
    assert_true(test_walk_allocations(open_sample, path) >= 4);
    assert_int_equal(dlc_list_folder(&names, in_folder("oom")), DLC_OK);
    assert_int_equal(names.n, 1); /* no temporary left */
    dlc_names_free(&names);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    struct dlc_buf b = { 0 };
    struct test_full_disk disk;
    char path[DLC_PATH_MAX];
    int n_files;

    (void)state;
    test_full_disk_begin(&disk, in_folder("full"));
    assert_int_equal(dlc_path_join(path, disk.folder, "f"), DLC_OK);
    assert_int_equal(dlc_st_write(path, sample, N_SAMPLE, NULL, 0), DLC_OK);
    test_full_disk_fill(&disk);
    n_files = test_count_files(disk.folder);
    assert_int_equal(dlc_st_write(path, sample, N_SAMPLE, NULL, 0), DLC_EIO);
    if (!strstr(dlc_err_text(), path) || !strstr(dlc_err_text(), disk.reason))
        fail_msg("%s", dlc_err_text());
    assert_int_equal(dlc_file_read(&b, path, 1000), DLC_OK);
    assert_memory_equal(b.data, sample_bytes, b.len);
    assert_int_equal(test_count_files(disk.folder), n_files); /* no temporary left */
    dlc_buf_fini(&b);
    test_full_disk_end(&disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_files_are_refused_in_one_line),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(legal_oddities_are_read),
        cmocka_unit_test(bytes_are_those_of_the_reference_library),
        cmocka_unit_test(written_values_come_back),
        cmocka_unit_test(tensors_that_come_one_by_one_give_the_same_bytes),
        cmocka_unit_test(a_value_beyond_f16_is_not_written_as_infinity),
        cmocka_unit_test(f16_is_read_from_any_alignment),
        cmocka_unit_test(every_cut_is_refused_and_no_changed_byte_breaks_the_reader),
        cmocka_unit_test(things_that_are_not_files_are_refused),
        cmocka_unit_test(wrong_descriptions_are_not_written),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
    };

    return cmocka_run_group_tests_name("safetensors", tests, make_folder, remove_folder);
}
