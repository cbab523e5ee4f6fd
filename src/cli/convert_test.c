/* diloco export and diloco import, as typed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <unistd.h>

#include "base/json.h"
#include "cli/model_folder_test.h"
#include "cli/run_diloco_test.h"

static char folder[] = "/tmp/dlc-convert-XXXXXX";

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

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || make_model(folder, "m", "tests/fixtures/tokenizer/gpt2.json", 700) != DLC_OK ||
        make_model(folder, "bare", NULL, 100) != DLC_OK ||
        make_model(folder, "small", "tests/fixtures/tokenizer/gpt2.json", 699) != DLC_OK)
        return -1;
    return dlc_mkdir_p(in_folder("full/of")) == DLC_OK && dlc_file_write_atomic(in_folder("note"), "mine", 4) == DLC_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static void must(const char *args)
{
    struct dlc_buf text = { 0 };

    if (diloco(&text, args, BOTH) != 0)
        fail_msg("diloco %s: %s", args, text.data);
    dlc_buf_fini(&text);
}

static void expect_same_file(const char *a, const char *b)
{
    struct dlc_buf text_a = { 0 }, text_b = { 0 };

    assert_int_equal(dlc_file_read(&text_a, in_folder(a), 10 << 20), DLC_OK);
    assert_int_equal(dlc_file_read(&text_b, in_folder(b), 10 << 20), DLC_OK);
    if (text_a.len != text_b.len || memcmp(text_a.data, text_b.data, text_a.len) != 0)
        fail_msg("%s and %s differ", a, b);
    dlc_buf_fini(&text_a);
    dlc_buf_fini(&text_b);
}

/* GGUF has no word for how a model was initialised. */
static void expect_same_config(const char *a, const char *b)
{
    json_t *config_a, *config_b;

    assert_int_equal(dlc_json_read_file(&config_a, in_folder(a), 1 << 20), DLC_OK);
    assert_int_equal(dlc_json_read_file(&config_b, in_folder(b), 1 << 20), DLC_OK);
    assert_int_equal(json_object_del(config_a, "initializer_range"), 0);
    assert_int_equal(json_object_del(config_b, "initializer_range"), 0);
    assert_true(json_equal(config_a, config_b));
    json_decref(config_a);
    json_decref(config_b);
}

static void f32_there_and_back_changes_nothing(void **state)
{
    (void)state;
    must("export m --out there.gguf");
    must("import there.gguf --out back");
    expect_same_file("m/model.safetensors", "back/model.safetensors");
    expect_same_config("m/config.json", "back/config.json");
    expect_same_file("m/tokenizer_config.json", "back/tokenizer_config.json");
    must("export m --out copy --format hf");
    expect_same_file("m/model.safetensors", "copy/model.safetensors");
    expect_same_file("m/config.json", "copy/config.json");
    expect_same_file("m/tokenizer.json", "copy/tokenizer.json");
    must("export back --out there.gguf"); /* a GGUF file may be replaced */
}

/* A second time through the same type: nothing is lost any more. */
static void other_types_are_rounded_once(void **state)
{
    static const char *const types[] = { "bf16", "f16", "q8_0" };
    char args[256];

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(args, sizeof args, "export m --out 1-%s.gguf --dtype %s", types[i], types[i]);
        must(args);
        snprintf(args, sizeof args, "import 1-%s.gguf --out 1-%s", types[i], types[i]);
        must(args);
        snprintf(args, sizeof args, "export 1-%s --out 2-%s.gguf --dtype %s", types[i], types[i], types[i]);
        must(args);
        snprintf(args, sizeof args, "import 2-%s.gguf --out 2-%s", types[i], types[i]);
        must(args);
        snprintf(args, sizeof args, "1-%s/model.safetensors", types[i]);
        snprintf(args + 100, sizeof args - 100, "2-%s/model.safetensors", types[i]);
        expect_same_file(args, args + 100);
    }
    must("export m --out half --format hf --dtype f16");
    must("import half --out half-back");
    expect_same_file("half-back/model.safetensors", "1-f16/model.safetensors");
}

static void results_are_said(void **state)
{
    struct dlc_buf text = { 0 };
    json_t *v;

    (void)state;
    assert_int_equal(diloco(&text, "export m --out said.gguf --dtype f16 --json", RESULTS), 0);
    assert_int_equal(dlc_json_parse(&v, text.data, text.len, "stdout"), DLC_OK);
    assert_string_equal(json_string_value(json_object_get(v, "path")), "said.gguf");
    assert_string_equal(json_string_value(json_object_get(v, "format")), "gguf");
    assert_string_equal(json_string_value(json_object_get(v, "dtype")), "f16");
    assert_true(json_integer_value(json_object_get(v, "parameters")) > 700 * 16);
    assert_true(json_is_true(json_object_get(v, "tokenizer")));
    json_decref(v);
    assert_int_equal(diloco(&text, "import said.gguf --out said", RESULTS), 0);
    assert_non_null(strstr(text.data, "said: Llama in f32, "));
    assert_int_equal(diloco(&text, "export bare --out bare.gguf", BOTH), 0);
    assert_non_null(strstr(text.data, "warning: bare.gguf has no tokenizer"));
    assert_int_equal(diloco(&text, "import bare.gguf --out bare-back", ERRORS), 0);
    assert_string_equal(text.data, "");
    dlc_buf_fini(&text);
}

static void what_goes_wrong_is_said_and_nothing_is_lost(void **state)
{
    static const struct {
        const char *args;
        int status;
        const char *text, *why;
    } rows[] = {
        { "export m --format hf", 2, "--out is missing: diloco export MODEL", "nowhere to write" },
        { "export m --out x", 2, "--format is missing: hf or gguf", "as what" },
        { "export m --out x --format onnx", 2, "--format: 'onnx' is unknown", "unknown format" },
        { "export m --out x.gguf --dtype q4_0", 2, "did you mean q8_0?", "unknown type" },
        { "export m --out x --format hf --dtype q8_0", 2, "q8_0 is for --format gguf", "a type of GGUF only" },
        { "export m --out full --format hf", 2, "--out full has files in it", "a folder in use" },
        { "export m --out m --format hf", 2, "--out m has files in it", "onto itself" },
        { "export m --out note --format hf", 2, "--out note is a file", "a file in the way" },
        { "export m --out note --format gguf", 2, "--out note is there and no GGUF file", "somebody's file" },
        { "export m --out full --format gguf", 2, "--out full is a folder", "a folder for a file" },
        { "export m --out no/folder/x.gguf", 1, "No such file", "no such folder" },
        { "export none --out x.gguf", 4, "none: no such folder or file", "no model" },
        { "export note --out x.gguf", 4, "note: not a GGUF file", "no model in it" },
        { "export small --out x.gguf", 4, "its tokenizer has 700 tokens, the model knows 699", "of two models" },
        { "import m", 2, "--out is missing: diloco import", "nowhere to write" },
        { "import m --out full", 2, "--out full has files in it", "a folder in use" },
        { "import note --out x", 4, "note: not a GGUF file", "not a model" },
        { "import full --out x", 4, "neither a model folder", "no model in it" },
        { "import m more --out x", 2, "one word too many", "two models" },
    };
    struct dlc_buf text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = diloco(&text, rows[i].args, ERRORS);

        if (status != rows[i].status || !strstr(text.data, rows[i].text))
            fail_msg("%s: diloco %s: status %d, %s", rows[i].why, rows[i].args, status, text.data);
        assert_false(dlc_file_exists(in_folder("x")));
        assert_false(dlc_file_exists(in_folder("x.gguf")));
    }
    assert_int_equal(dlc_file_read(&text, in_folder("note"), 100), DLC_OK);
    assert_string_equal(text.data, "mine");
    dlc_buf_fini(&text);
}

/* Other people's folders: more than one token that ends a text, a template that begins one. */
static void begin_and_end_tokens_stay_apart(void **state)
{
    static const char *const ids[] = { "bos_token_id", "eos_token_id" };
    json_t *config, *tokenizer, *post;

    (void)state;
    must("export m --out theirs --format hf");
    assert_int_equal(dlc_json_read_file(&config, in_folder("theirs/config.json"), 1 << 20), DLC_OK);
    assert_int_equal(json_object_set_new(config, ids[0], json_integer(0)), 0);
    assert_int_equal(json_object_set_new(config, ids[1], json_pack("[i,i]", 5, 6)), 0);
    assert_int_equal(dlc_json_write_file(in_folder("theirs/config.json"), config), DLC_OK);
    json_decref(config);
    assert_int_equal(dlc_json_read_file(&tokenizer, in_folder("theirs/tokenizer.json"), 1 << 20), DLC_OK);
    post = json_pack("{s:s, s:[{s:s}, {s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}]}",
                     "type", "Sequence", "processors", "type", "ByteLevel", "type", "TemplateProcessing", "single",
                     "SpecialToken", "id", "<|endoftext|>", "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair",
                     "special_tokens", "<|endoftext|>", "id", "<|endoftext|>", "ids", 0, "tokens", "<|endoftext|>");
    assert_int_equal(json_object_set_new(tokenizer, "post_processor", post), 0);
    assert_int_equal(dlc_json_write_file(in_folder("theirs/tokenizer.json"), tokenizer), DLC_OK);
    json_decref(tokenizer);
    must("export theirs --out theirs.gguf");
    must("import theirs.gguf --out ours");
    assert_int_equal(dlc_json_read_file(&config, in_folder("ours/config.json"), 1 << 20), DLC_OK);
    assert_int_equal(json_integer_value(json_object_get(config, ids[0])), 0);
    assert_int_equal(json_integer_value(json_object_get(config, ids[1])), 5);
    json_decref(config);
    assert_int_equal(dlc_json_read_file(&config, in_folder("ours/tokenizer_config.json"), 1 << 20), DLC_OK);
    assert_true(json_is_true(json_object_get(config, "add_bos_token")));
    assert_string_equal(json_string_value(json_object_get(config, "bos_token")), "<|endoftext|>");
    json_decref(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_there_and_back_changes_nothing),
        cmocka_unit_test(other_types_are_rounded_once),
        cmocka_unit_test(results_are_said),
        cmocka_unit_test(what_goes_wrong_is_said_and_nothing_is_lost),
        cmocka_unit_test(begin_and_end_tokens_stay_apart),
    };

    return cmocka_run_group_tests_name("convert", tests, set_up, tear_down);
}
