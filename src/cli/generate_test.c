/* diloco generate on a model folder made here: random parameters, a real tokenizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "base/json.h"
#include "cli/model_folder_test.h"
#include "cli/run_diloco_test.h"
#include "data/tokenizer.h"

static char folder[] = "/tmp/dlc-generate-XXXXXX";

#define TOKENIZER "tests/fixtures/tokenizer/gpt2.json"

static int set_up(void **state)
{
    dlc_tokenizer *t;
    int n;

    (void)state;
    if (!mkdtemp(folder) || dlc_tokenizer_load(&t, TOKENIZER) != DLC_OK)
        return -1;
    n = dlc_tokenizer_vocab_size(t);
    dlc_tokenizer_destroy(t);
    if (make_model(folder, "m", TOKENIZER, n + 5) == DLC_OK && make_model(folder, "bare", NULL, n) == DLC_OK &&
        make_model(folder, "small", TOKENIZER, n - 1) == DLC_OK)
        return 0;
    print_error("%s\n", dlc_err_text());
    return -1;
}

static int tear_down(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static int diloco(struct dlc_buf *text, const char *before, const char *args, const char *redirect)
{
    return run_diloco(text, folder, before, args, redirect);
}

static void the_same_seed_gives_the_same_text(void **state)
{
    struct dlc_buf first = { 0 }, text = { 0 };

    (void)state;
    if (diloco(&first, "", "generate m --prompt Hello --tokens 40 --temperature 1 --seed 4", BOTH) != 0)
        fail_msg("%s", first.data);
    assert_int_equal(diloco(&text, "", "generate m --prompt Hello --tokens 40 --temperature 1 --seed 4", BOTH), 0);
    assert_string_equal(first.data, text.data);
    assert_ptr_equal(strstr(text.data, "Hello"), text.data);
    assert_int_equal(diloco(&text, "printf Hello |", "generate m --prompt - --tokens 40 --temperature 1 --seed 4",
                            BOTH),
                     0);
    assert_string_equal(first.data, text.data);
    assert_int_equal(diloco(&text, "", "generate m --prompt Hello --tokens 40 --temperature 1 --seed 5", BOTH), 0);
    assert_string_not_equal(first.data, text.data);
    assert_int_equal(diloco(&first, "", "generate m --prompt Hello --tokens 9 --temperature 0 --seed 4", BOTH), 0);
    assert_int_equal(diloco(&text, "", "generate m --prompt Hello --tokens 9 --temperature 0 --seed 5", BOTH), 0);
    assert_string_equal(first.data, text.data); /* greedy: no draw, no seed */
    dlc_buf_fini(&first);
    dlc_buf_fini(&text);
}

static void any_prompt_gives_valid_json(void **state)
{
    static const struct {
        const char *before, *args, *prompt, *why;
    } rows[] = {
        { "", "--tokens 60", "", "no prompt: from the beginning of a text" },
        { "", "--prompt 'a \"quoted\" \\ word' --tokens 3", "a \"quoted\" \\ word", "characters that JSON escapes" },
        { "printf '\\303\\251\\377z' |", "--prompt - --tokens 3", "\xc3\xa9\xef\xbf\xbd", "not UTF-8" },
        { "seq 200 |", "--prompt - --tokens 5", "1\n2\n", "a prompt far longer than the context" },
    };
    struct dlc_buf text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char args[256];
        const char *prompt;
        json_t *v;
        int64_t tokens;

        snprintf(args, sizeof args, "generate m --json --temperature 1.5 %s", rows[i].args);
        if (diloco(&text, rows[i].before, args, RESULTS) != 0 ||
            dlc_json_parse(&v, text.data, text.len, "stdout") != DLC_OK)
            fail_msg("%s: %s", rows[i].why, text.data);
        assert_int_equal(dlc_json_get_string(&prompt, v, "prompt", "stdout"), DLC_OK);
        if (strncmp(prompt, rows[i].prompt, strlen(rows[i].prompt)) != 0)
            fail_msg("%s: prompt '%s'", rows[i].why, prompt);
        assert_int_equal(dlc_json_get_int(&tokens, v, "tokens", 1, 60, "stdout"), DLC_OK);
        assert_true(json_is_string(json_object_get(v, "text")) && json_is_boolean(json_object_get(v, "ended")));
        json_decref(v);
    }
    dlc_buf_fini(&text);
}

/* A model stored in f32 computes in f32 unless told; a prompt beyond the context comes in chunks in both. */
static void precision_can_be_chosen(void **state)
{
    struct dlc_buf plain = { 0 }, text = { 0 };

    (void)state;
    assert_int_equal(diloco(&plain, "", "generate m --prompt Hello --tokens 40 --temperature 1", BOTH), 0);
    assert_int_equal(diloco(&text, "", "generate m --prompt Hello --tokens 40 --temperature 1 --precision f32", BOTH),
                     0);
    assert_string_equal(plain.data, text.data);
    assert_int_equal(diloco(&plain, "seq 200 |", "generate m --prompt - --tokens 40 --precision bf16", BOTH), 0);
    assert_int_equal(diloco(&text, "seq 200 |", "generate m --prompt - --tokens 40 --precision bf16", BOTH), 0);
    assert_string_equal(plain.data, text.data);
    assert_int_equal(diloco(&text, "", "generate m --precision f16", ERRORS), 2);
    assert_non_null(strstr(text.data, "precision"));
    dlc_buf_fini(&plain);
    dlc_buf_fini(&text);
}

static void folders_that_do_not_fit_are_refused(void **state)
{
    struct dlc_buf text = { 0 };

    (void)state;
    assert_int_equal(diloco(&text, "", "generate bare --prompt x", ERRORS), 4);
    assert_non_null(strstr(text.data, "has no tokenizer.json"));
    assert_int_equal(diloco(&text, "", "generate small --prompt x", ERRORS), 4);
    assert_non_null(strstr(text.data, "do not belong together"));
    assert_int_equal(diloco(&text, "", "generate m --isa z80", ERRORS), 2);
    assert_non_null(strstr(text.data, "z80"));
    dlc_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_text),
        cmocka_unit_test(any_prompt_gives_valid_json),
        cmocka_unit_test(precision_can_be_chosen),
        cmocka_unit_test(folders_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests_name("generate", tests, set_up, tear_down);
}
