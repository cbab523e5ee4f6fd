/* diloco prepare and diloco eval, as typed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/model_folder_test.h"
#include "cli/run_diloco_test.h"

static char folder[] = "/tmp/dlc-eval-XXXXXX";
static int vocab_size;

static int diloco(struct dlc_buf *text, const char *args, const char *redirect)
{
    return run_diloco(text, folder, "", args, redirect);
}

static const char *in_folder(const char *name)
{
    static char path[DLC_PATH_MAX];

    assert_int_equal(dlc_path_join(path, folder, name), DLC_OK);
    return path;
}

static int64_t integer(const json_t *v, const char *key)
{
    int64_t n;

    if (dlc_json_get_int(&n, v, key, 0, INT64_MAX, "stdout") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return n;
}

/* The object that `diloco ARGS --json` prints. */
static json_t *result_of(const char *args)
{
    struct dlc_buf text = { 0 };
    json_t *v = NULL;

    if (diloco(&text, args, RESULTS) != 0 || dlc_json_parse(&v, text.data, text.len, "stdout") != DLC_OK) {
        diloco(&text, args, BOTH);
        fail_msg("diloco %s: %s", args, text.data);
    }
    dlc_buf_fini(&text);
    return v;
}

static int set_up(void **state)
{
    struct dlc_buf text = { 0 };
    json_t *v;

    (void)state;
    if (!mkdtemp(folder))
        return -1;
    for (int i = 0; i < 80; i++)
        if (dlc_buf_printf(&text, "{\"text\": \"document %d says that %d and %d are %d\"}\n", i, i * 7, i * 13, i * 20))
            return -1;
    if (dlc_file_write_atomic(in_folder("t.jsonl"), text.data, text.len) != DLC_OK)
        return -1;
    dlc_buf_fini(&text);
    v = result_of("prepare t.jsonl --out d --vocab-size 300 --val-fraction 0.3 --json");
    vocab_size = (int)integer(v, "vocab_size");
    assert_int_equal(integer(v, "documents"), 80);
    assert_true(integer(v, "train_tokens") > integer(v, "val_tokens"));
    json_decref(v);
    return make_model(folder, "m", in_folder("d/tokenizer.json"), vocab_size) == DLC_OK &&
                   make_model(folder, "bare", NULL, vocab_size) == DLC_OK &&
                   make_model(folder, "other", "tests/fixtures/tokenizer/gpt2.json", 1000) == DLC_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static void numbers_agree_with_each_other(void **state)
{
    static const char *const lines[] = { "eval m --data d --json", "eval m --data d --json --split train",
                                         "eval m --data d --json --tokens 40 --context 5" };

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        json_t *v = result_of(lines[i]);
        double loss, ppl, bpb;

        assert_int_equal(dlc_json_get_real(&loss, v, "loss", lines[i]), DLC_OK);
        assert_int_equal(dlc_json_get_real(&ppl, v, "ppl", lines[i]), DLC_OK);
        assert_int_equal(dlc_json_get_real(&bpb, v, "bpb", lines[i]), DLC_OK);
        assert_true(loss > 1 && fabs(ppl - exp(loss)) < 1e-9 * ppl);
        assert_true(bpb > 0 && bpb < loss / log(2)); /* a token has more than one byte */
        if (i == 2)
            assert_int_equal(integer(v, "tokens"), 40);
        json_decref(v);
    }
}

static void text_for_people(void **state)
{
    struct dlc_buf text = { 0 };

    (void)state;
    assert_int_equal(diloco(&text, "eval m --data d", RESULTS), 0);
    assert_non_null(strstr(text.data, "bits per byte"));
    assert_int_equal(diloco(&text, "eval bare --data d", BOTH), 0); /* works, and says what could not be checked */
    assert_non_null(strstr(text.data, "warning: "));
    dlc_buf_fini(&text);
}

static void what_does_not_fit_together_is_refused(void **state)
{
    static const struct {
        const char *args;
        int status;
        const char *text;
    } rows[] = {
        { "eval other --data d", 4, "the tokenizers of other and d differ" },
        { "eval m --data d --context 100000", 4, "100000" },
        { "eval m --data none", 4, "none" },
        { "prepare none.txt --out e", 4, "none.txt" },
    };
    struct dlc_buf text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = diloco(&text, rows[i].args, ERRORS);

        if (status != rows[i].status || !strstr(text.data, rows[i].text))
            fail_msg("diloco %s: status %d, %s", rows[i].args, status, text.data);
    }
    dlc_buf_fini(&text);
}

/* Another program saved the tokenizer again: other bytes, the same tokens. */
static void a_reformatted_tokenizer_is_the_same_one(void **state)
{
    json_t *v;

    (void)state;
    assert_int_equal(make_model(folder, "again", in_folder("d/tokenizer.json"), vocab_size), DLC_OK);
    assert_int_equal(dlc_json_read_file(&v, in_folder("again/tokenizer.json"), 10 << 20), DLC_OK);
    assert_int_equal(json_object_set_new(v, "padding", json_null()), 0);
    assert_int_equal(dlc_json_write_file(in_folder("again/tokenizer.json"), v), DLC_OK);
    json_decref(v);
    json_decref(result_of("eval again --data d --json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_agree_with_each_other),
        cmocka_unit_test(text_for_people),
        cmocka_unit_test(what_does_not_fit_together_is_refused),
        cmocka_unit_test(a_reformatted_tokenizer_is_the_same_one),
    };

    return cmocka_run_group_tests_name("eval", tests, set_up, tear_down);
}
