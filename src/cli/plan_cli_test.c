/* diloco plan, as typed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/run_diloco_test.h"

static char folder[] = "/tmp/dlc-plan-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static int diloco(struct dlc_buf *text, const char *args, const char *redirect)
{
    return run_diloco(text, folder, "", args, redirect);
}

#define MODEL "plan --params 1e9 --step-time 2 "

static void statuses_and_texts(void **state)
{
    static const struct {
        const char *args, *redirect;
        int status;
        const char *text, *why;
    } rows[] = {
        { MODEL "--islands 8 --link 100mbit", RESULTS, 0, "outer.steps 500, 8 fragments, overlap 5",
          "the tour's line" },
        { MODEL, RESULTS, 0, "* planned: predicted, but this version", "what is not there yet is said" },
        { MODEL "--outer.steps 3", RESULTS, 0, "outer.steps 3, 3 fragments, overlap 0", "defaults fit a short round" },
        { MODEL "--outer.steps 20", RESULTS, 0, "outer.steps 20, 8 fragments, overlap 2", "the overlap that fits" },
        { MODEL "--layers 24 --outer.steps 100", RESULTS, 0, "8 fragments", "three layers each" },
        { "plan --preset 150m --flops 5e12 --tokens 3e9", RESULTS, 0, "151 million parameters", "a preset" },
        { "plan --preset 150m --flops 5e12 --tokens 3e9", RESULTS, 0, "budget: 3 billion tokens", "its budget" },
        { "plan --preset nano --d-model 128 --step-time 1", RESULTS, 0, "1.16 million", "a preset, changed" },
        { "plan --layers 12 --d-model 768 --vocab-size 50257 --step-time 1", RESULTS, 0, "124 million",
          "GPT-2's shape" },
        { MODEL "--find 0.95", RESULTS, 0, "reach it with: f32", "what does not serve is said" },
        { MODEL "--link 1bit --find 0.95", ERRORS, 1, "nothing computes 95 % of the time", "nothing to be found" },
        { "plan --paper-table streaming", RESULTS, 0, "569.0 (569.0)", "the paper's table" },
        { "plan --paper-table wall-clock", RESULTS, 0, "62281.3", "the other paper's model" },
        { "plan", ERRORS, 2, "the model is missing", "nothing given" },
        { "plan --params 1e9", ERRORS, 2, "give one of --step-time TIME and --flops X", "no speed" },
        { MODEL "--flops 1e12", ERRORS, 2, "give one of --step-time TIME and --flops X", "two speeds" },
        { "plan --params 1e9 --flops 1e12", ERRORS, 2, "needs --batch-tokens", "a step of unknown size" },
        { MODEL "--tokens 1e9", ERRORS, 2, "needs --batch-tokens", "a budget of unknown steps" },
        { MODEL "--preset nano", ERRORS, 2, "--params and --preset", "two models" },
        { MODEL "--heads 4", ERRORS, 2, "only --layers", "half a shape" },
        { "plan --preset nana --step-time 1", ERRORS, 2, "no preset is called", "preset mistyped" },
        { "plan --layers 4 --d-model 100 --heads 3 --step-time 1", ERRORS, 2, "3 heads do not divide", "heads" },
        { MODEL "--link 100", ERRORS, 2, "--link: '100' is no rate", "no unit" },
        { MODEL "--link-up 1mb", ERRORS, 2, "--link-up: '1mb' is no rate", "bits or bytes" },
        { MODEL "--hub fast", ERRORS, 2, "--hub: 'fast' is no rate", "no number" },
        { MODEL "--latency -1", ERRORS, 2, "--latency: '-1' is no duration", "negative" },
        { "plan --params 1e9 --step-time 0", ERRORS, 2, "--step-time", "no time at all" },
        { MODEL "--efficiency 0", ERRORS, 2, "--efficiency", "nothing gets through" },
        { MODEL "--codec int5", ERRORS, 2, "did you mean int", "codec mistyped" },
        { MODEL "--fragments 8 --overlap 63", ERRORS, 2, "overlap 63 must be below", "two fragments in flight" },
        { MODEL "--fragments 501", ERRORS, 2, "501 fragments: must lie in 1..500", "more than steps" },
        { MODEL "--find 1", ERRORS, 2, "--find", "no link is endless" },
        { MODEL "--paper-table steaming", ERRORS, 2, "did you mean streaming?", "table mistyped" },
        { MODEL "word", ERRORS, 2, "one word too many", "a stray word" },
        { MODEL "--svg none/plan.svg", ERRORS, 1, "none/plan.svg", "a picture that cannot be written" },
    };
    struct dlc_buf text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = diloco(&text, rows[i].args, rows[i].redirect);

        if (status != rows[i].status || !strstr(text.data, rows[i].text))
            fail_msg("%s: diloco %s: status %d (expected %d), '%s' not in: %s", rows[i].why, rows[i].args, status,
                     rows[i].status, rows[i].text, text.data);
        if (status != 0) /* one line */
            assert_ptr_equal(strchr(text.data, '\n'), text.data + text.len - 1);
    }
    dlc_buf_fini(&text);
}

static json_t *result(const char *args)
{
    struct dlc_buf text = { 0 };
    json_t *v;

    assert_int_equal(diloco(&text, args, RESULTS), 0);
    if (dlc_json_parse(&v, text.data, text.len, args) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    dlc_buf_fini(&text);
    return v;
}

static double real_of(const json_t *rows, size_t i, const char *key)
{
    double v;

    if (dlc_json_get_real(&v, json_array_get(rows, i), key, "row") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return v;
}

static void flags_reach_the_formulas(void **state)
{
    json_t *report =
        result(MODEL "--islands 4 --link 100mbit --link-up 50mbit --hub 200mbit --latency 500ms "
                     "--efficiency 1 --overhead 3 --outer.steps 100 --codec bf16 --codec-down int8 --json");
    json_t *rows = json_object_get(report, "methods");
    double exchange_s = 16e9 / 50e6 + 8e9 / 50e6 + 1 + 3; /* the coordinator gives each island 50 Mbit/s */

    (void)state;
    assert_int_equal(json_array_size(rows), 7);
    assert_true(fabs(real_of(rows, 2, "exchange_s") - exchange_s) < 1e-6);
    assert_true(fabs(real_of(rows, 2, "utilisation") - 200 / (200 + exchange_s)) < 1e-9);
    assert_true(real_of(rows, 2, "bytes_up") == 2e9 && real_of(rows, 2, "bytes_down") == 1e9);
    json_decref(report);

    report = result("plan --params 1e6 --flops 6e9 --batch-tokens 1000 --tokens 1e6 --islands 2 --json");
    rows = json_object_get(report, "methods");
    assert_true(fabs(real_of(rows, 2, "step_s") * real_of(rows, 2, "utilisation") - 1) < 1e-9); /* 6 N tokens / flops */
    assert_true(fabs(real_of(rows, 2, "budget_s") - 500 * real_of(rows, 2, "step_s")) < 1e-6);
    json_decref(report);
}

static void what_train_can_do_is_asked_of_its_keys(void **state)
{
    json_t *report = result(MODEL "--json"), *rows = json_object_get(report, "methods");

    (void)state;
    assert_true(json_is_true(json_object_get(json_array_get(rows, 0), "trainable")));
    assert_true(json_is_true(json_object_get(json_array_get(rows, 2), "trainable")));
    json_decref(report);
    report = result(MODEL "--codec bf16 --json");
    rows = json_object_get(report, "methods");
    assert_true(json_is_true(json_object_get(json_array_get(rows, 2), "trainable")));
    json_decref(report);
}

static void the_search_in_json(void **state)
{
    json_t *report = result(MODEL "--layers 24 --islands 8 --link 100mbit --find 0.95 --json");
    json_t *rows = json_object_get(report, "found");

    (void)state;
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++)
        assert_true(real_of(rows, i, "utilisation") >= 0.95);
    json_decref(report);
}

static void a_picture_is_written(void **state)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX];

    (void)state;
    assert_int_equal(diloco(&text, MODEL "--svg plan.svg", RESULTS), 0);
    assert_non_null(strstr(text.data, "DiLoCo"));
    assert_int_equal(dlc_path_join(path, folder, "plan.svg"), DLC_OK);
    assert_int_equal(dlc_file_read(&text, path, 1 << 20), DLC_OK);
    assert_int_equal(strncmp(text.data, "<svg ", 5), 0);
    dlc_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_and_texts),
        cmocka_unit_test(flags_reach_the_formulas),
        cmocka_unit_test(what_train_can_do_is_asked_of_its_keys),
        cmocka_unit_test(the_search_in_json),
        cmocka_unit_test(a_picture_is_written),
    };

    return cmocka_run_group_tests_name("plan-cli", tests, make_folder, remove_folder);
}
