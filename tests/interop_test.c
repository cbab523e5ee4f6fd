/* A run folder's checkpoint in Hugging Face's tools: they load it as it is and find the same tokens and the same loss.
 * Skipped where python3 (or PYTHON) has no torch and transformers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "runner.h"
#include "scene.h"
#include "tree.h"

static char source_folder[1024]; /* meson runs tests there */

static const char *python(void)
{
    return getenv("PYTHON") && *getenv("PYTHON") ? getenv("PYTHON") : "python3";
}

/* What their tools say about the latest checkpoint of each run. One process: loading them takes long. */
static json_t *what_transformers_says(const char *runs)
{
    char command[4 * DLC_PATH_MAX];
    struct dlc_buf err = { 0 };
    json_t *v;

    snprintf(
        command, sizeof command,
        "cd '%s' && TRANSFORMERS_OFFLINE=1 HF_HUB_OFFLINE=1 '%s' '%s/tests/reference/load_checkpoint.py' data 32 %s "
        ">theirs.json 2>their-errors",
        runner_scratch(), python(), source_folder, runs);
    if (system(command) != 0)
        fail_msg("%s", child_text(&err, in_scratch("their-errors")));
    if (dlc_json_read_file(&v, in_scratch("theirs.json"), 1 << 20) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return v;
}

static double real_of(const json_t *v, const char *key)
{
    double x;

    if (dlc_json_get_real(&x, v, key, "result") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return x;
}

static const struct {
    const char *name, *flags, *model_class;
} rows[] = {
    { "tied", "", "LlamaForCausalLM" },
    { "untied", "--model.tie_embeddings false --model.kv_heads 2 --train.precision bf16", "LlamaForCausalLM" },
    { "qk-norm", "--model.qk_norm true", "Qwen3ForCausalLM" },
};

static json_t *eval(const char *run)
{
    struct child c = { 0 };
    json_t *v;

    child_start(&c, "eval %s --data data --json --threads 1", run);
    assert_int_equal(child_wait(&c), 0);
    if (dlc_json_read_file(&v, c.out_path, 1 << 20) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return v;
}

static void compare(const char *run, const json_t *ours, const json_t *theirs, const char *model_class)
{
    assert_non_null(theirs);
    print_message("    %s: loss %.9g here, %.9g there\n", run, real_of(ours, "loss"), real_of(theirs, "loss"));
    assert_int_equal(real_of(ours, "tokens"), real_of(theirs, "tokens"));
    if (!(fabs(real_of(ours, "loss") - real_of(theirs, "loss")) <= 1e-5 * real_of(theirs, "loss")))
        fail_msg("%s: loss %.9g, transformers says %.9g", run, real_of(ours, "loss"), real_of(theirs, "loss"));
    assert_string_equal(json_string_value(json_object_get(theirs, "class")), model_class);
    assert_true(json_is_true(json_object_get(theirs, "no_missing_keys")));
    /* Their tokenizer on the text of the shards gives the shards' tokens back. */
    assert_true(real_of(theirs, "documents_compared") >= 10);
    assert_int_equal(real_of(theirs, "documents_that_differ"), 0);
}

static void transformers_finds_the_same_loss(void **state)
{
    char runs[200] = "";
    json_t *theirs, *ours;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_expecting(0, TINY " --out %s %s --optim.lr 0.01", rows[i].name, rows[i].flags);
        snprintf(runs + strlen(runs), sizeof runs - strlen(runs), " %s", rows[i].name);
    }
    theirs = what_transformers_says(runs);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ours = eval(rows[i].name);
        compare(rows[i].name, ours, json_object_get(theirs, rows[i].name), rows[i].model_class);
        json_decref(ours);
    }
    json_decref(theirs);
}

static int set_up(void **state)
{
    if (runner_begin(state) != 0)
        return -1;
    scene_prepare();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_finds_the_same_loss) };
    char command[DLC_PATH_MAX];

    assert_non_null(getcwd(source_folder, sizeof source_folder));
    snprintf(command, sizeof command, "'%s' -c 'import torch, transformers' >/dev/null 2>&1", python());
    if (system(command) != 0) {
        printf("skipped: %s has no torch and transformers\n", python());
        return 77;
    }
    return runner_main("interop", tests, set_up);
}
