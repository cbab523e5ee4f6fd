/* diloco bench, as typed. Figures are looked at for their presence and sign, never for their size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "cli/run_diloco_test.h"

#define TINY "bench --seconds 0.01 --vocab 64 --batch 2 --seq 16 --threads 2 "

static void mistakes_are_one_line(void **state)
{
    static const struct {
        const char *args, *text, *why;
        int status;
    } rows[] = {
        { "--preset nana", "no preset is called \"nana\"; there are: nano micro", "preset mistyped", 2 },
        { "--preset nano --preset x", "no preset is called \"x\"; there are: nano micro", "the second preset", 2 },
        { "--preset", "--preset needs a value", "no preset", 2 },
        { "--only steps", "did you mean step?", "part mistyped", 2 },
        { "--only everything", "must be one of peaks | ops | step | decode", "no such part", 2 },
        { "--precision f16", "did you mean", "a precision that is not there", 2 },
        { "--isa z80", "instruction set \"z80\" is unknown", "no such instruction set", 2 },
        { "--batch -1", "--batch", "less than nothing", 2 },
        { "--seq 1e9", "must lie in 0..1048576", "longer than any", 2 },
        { "--seconds 0", "--seconds", "no time at all", 2 },
        { "--threads many", "--threads", "no number", 2 },
        { "--vocab 16777217", "--vocab", "larger than any", 2 },
        { "--prest nano", "did you mean --preset?", "flag mistyped", 2 },
        { "nano", "'nano' is one word too many", "a stray word", 2 },
        { "--preset 400m --batch 100000", "MiB are available; take a smaller --batch", "more than any memory", 1 },
    };
    struct dlc_buf text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char args[200];
        int status;

        snprintf(args, sizeof args, "bench %s", rows[i].args);
        status = run_diloco(&text, ".", "", args, ERRORS);
        if (status != rows[i].status || !strstr(text.data, rows[i].text) ||
            strchr(text.data, '\n') != text.data + text.len - 1)
            fail_msg("%s: diloco %s: status %d (expected %d), '%s' not in: %s", rows[i].why, args, status,
                     rows[i].status, rows[i].text, text.data);
    }
    dlc_buf_fini(&text);
}

static json_t *result(const char *args)
{
    struct dlc_buf text = { 0 };
    json_t *v;

    if (run_diloco(&text, ".", "", args, RESULTS) != 0)
        fail_msg("diloco %s: %s", args, text.data);
    if (dlc_json_parse(&v, text.data, text.len, args) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    dlc_buf_fini(&text);
    return v;
}

/* What a member is: 's'tring, 'i'nteger above zero, 'n'umber above zero, 'r'eal of any sign, 'a'rray of some, '?'
 * number above zero or null. */
struct member {
    const char *name;
    char type;
};

static bool fits(const json_t *v, char type)
{
    switch (type) {
    case 's': return json_is_string(v) && json_string_length(v) > 0;
    case 'i': return json_is_integer(v) && json_integer_value(v) > 0;
    case 'n': return json_is_number(v) && json_number_value(v) > 0;
    case 'r': return json_is_number(v);
    case 'a': return json_is_array(v) && json_array_size(v) > 0;
    case 'o': return json_is_object(v);
    case '?': return json_is_null(v) || fits(v, 'n');
    default: return false;
    }
}

static void check_object(const json_t *v, const struct member *members, size_t n, const char *where)
{
    for (size_t i = 0; i < n; i++)
        if (!fits(json_object_get(v, members[i].name), members[i].type)) {
            char *text = dlc_json_dump(v);

            fail_msg("%s: \"%s\" is not '%c' in %s", where, members[i].name, members[i].type, text);
        }
}

#define CHECK(v, members, where) check_object(v, members, sizeof(members) / sizeof *(members), where)

static const struct member machine[] = { { "cpu", 's' }, { "cores", 'i' }, { "isa", 's' }, { "matmul", 's' } };
static const struct member peaks[] = {
    { "threads", 'i' },      { "f32_gflops", 'n' },    { "bf16_gflops", '?' },
    { "f32_gflops_1", 'n' }, { "bf16_gflops_1", '?' }, { "read_gbs", 'n' },
    { "triad_gbs", 'n' },    { "in_place_gbs", 'n' },  { "array_bytes", 'i' },
};
static const struct member op[] = {
    { "op", 's' },    { "shape", 's' },   { "preset", 's' }, { "precision", 's' },
    { "calls", 'i' }, { "seconds", 'n' }, { "roof", 's' },   { "roof_share", 'n' },
};
static const struct member step[] = {
    { "preset", 's' },
    { "n_params", 'i' },
    { "vocab", 'i' },
    { "batch", 'i' },
    { "seq", 'i' },
    { "precision", 's' },
    { "threads", 'i' },
    { "tokens_per_s", 'n' },
    { "tokens_per_s_best", 'n' },
    { "step_seconds", 'a' },
    { "mfu", 'n' },
    { "mfu_roof", 's' },
    { "peak_rss_bytes", '?' },
    { "planned_bytes", 'o' },
    { "profile", 'a' },
    { "profile_rest_seconds", 'r' },
};
static const struct member planned[] = {
    { "params", 'i' }, { "grads", 'i' }, { "moments", 'i' }, { "activations", 'i' }, { "scratch", 'i' },
};
static const struct member profile[] = { { "op", 's' }, { "calls", 'i' }, { "seconds", 'n' } };
static const struct member decode[] = {
    { "preset", 's' },       { "n_params", 'i' },          { "vocab", 'i' },
    { "positions", 'i' },    { "precision", 's' },         { "threads", 'i' },
    { "tokens_per_s", 'n' }, { "tokens_per_s_best", 'n' }, { "weight_bytes_per_token", 'n' },
    { "weight_gbs", 'n' },   { "read_share", 'n' },
};

static void check_ops(const json_t *ops)
{
    const json_t *v;
    size_t i;

    json_array_foreach(ops, i, v)
    {
        const char *roof = json_string_value(json_object_get(v, "roof"));

        CHECK(v, op, "ops");
        if (strcmp(roof, "f32") == 0 || strcmp(roof, "bf16") == 0)
            assert_true(fits(json_object_get(v, "gflops"), 'n'));
        else
            assert_true(fits(json_object_get(v, "gbs"), 'n'));
    }
}

static void check_steps(const json_t *steps)
{
    const json_t *v, *row;
    size_t i, j;

    json_array_foreach(steps, i, v)
    {
        CHECK(v, step, "steps");
        CHECK(json_object_get(v, "planned_bytes"), planned, "planned_bytes");
        assert_true(json_array_size(json_object_get(v, "step_seconds")) >= 5);
        json_array_foreach(json_object_get(v, "profile"), j, row) CHECK(row, profile, "profile");
    }
}

static void everything_has_its_fields(void **state)
{
    json_t *v = result(TINY "--preset nano --preset micro --precision f32 --json"), *decodes;
    const json_t *first;

    (void)state;
    CHECK(json_object_get(v, "machine"), machine, "machine");
    CHECK(json_object_get(v, "peaks"), peaks, "peaks");
    assert_true(json_array_size(json_object_get(v, "ops")) > 20);
    check_ops(json_object_get(v, "ops"));
    assert_int_equal(json_array_size(json_object_get(v, "steps")), 2);
    check_steps(json_object_get(v, "steps"));
    decodes = json_object_get(v, "decode");
    assert_int_equal(json_array_size(decodes), 2);
    CHECK(json_array_get(decodes, 1), decode, "decode");

    first = json_array_get(json_object_get(v, "steps"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "preset")), "nano");
    assert_string_equal(json_string_value(json_object_get(first, "precision")), "f32");
    assert_int_equal(json_integer_value(json_object_get(first, "vocab")), 64);
    assert_int_equal(json_integer_value(json_object_get(first, "batch")), 2);
    assert_int_equal(json_integer_value(json_object_get(first, "seq")), 16);
    assert_int_equal(json_integer_value(json_object_get(first, "threads")), 2);
    json_decref(v);
}

static void parts_not_asked_for_are_absent(void **state)
{
    static const struct {
        const char *only, *member;
    } rows[] = { { "peaks", "peaks" }, { "ops", "ops" }, { "step", "steps" }, { "decode", "decode" } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char args[200];
        json_t *v;

        snprintf(args, sizeof args, TINY "--preset nano --precision bf16 --json --only %s", rows[i].only);
        v = result(args);
        if (json_object_size(v) != 2 || !json_object_get(v, "machine") || !json_object_get(v, rows[i].member))
            fail_msg("--only %s: %zu members, %s", rows[i].only, json_object_size(v), dlc_json_dump(v));
        check_ops(json_object_get(v, "ops"));
        check_steps(json_object_get(v, "steps"));
        json_decref(v);
    }
}

static void people_get_tables(void **state)
{
    static const char *const expected[] = {
        "kernels ref, matrix products by ref",
        "f32 multiply-add",
        "Operations of a step, nano in bf16",
        "matmul_nt",
        "tokens/s median",
        "MFU ",
        "planned: parameters ",
        "(rest)",
        "Generating",
    };
    struct dlc_buf text = { 0 };

    (void)state;
    assert_int_equal(run_diloco(&text, ".", "", TINY "--preset nano --precision bf16 --isa ref --quiet", BOTH), 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (!strstr(text.data, expected[i]))
            fail_msg("'%s' is not in: %s", expected[i], text.data);
    assert_null(strstr(text.data, "measuring")); /* --quiet */
    dlc_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_one_line),
        cmocka_unit_test(everything_has_its_fields),
        cmocka_unit_test(parts_not_asked_for_are_absent),
        cmocka_unit_test(people_get_tables),
    };

    return cmocka_run_group_tests_name("bench-cli", tests, NULL, NULL);
}
