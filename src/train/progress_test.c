/* What a person sees of a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "train/progress.h"

static char folder[] = "/tmp/diloco-progress-XXXXXX";

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

static struct dlc_config config_of(int islands)
{
    struct dlc_config c;

    dlc_config_default(&c);
    c.model.shape = (struct dlc_model_config){ .vocab_size = 8,
                                               .n_layers = 1,
                                               .d_model = 4,
                                               .n_heads = 1,
                                               .n_kv_heads = 1,
                                               .head_dim = 4,
                                               .d_ffn = 4,
                                               .context = 4,
                                               .rope_theta = 1e4,
                                               .norm_eps = 1e-5 };
    c.train.islands = islands;
    c.train.steps = 100;
    c.outer.steps = 30;
    c.train.log_every = 1;
    c.train.batch = 1;
    return c;
}

/* Standard error goes to a file while `what` runs. */
static void catch_words(struct dlc_buf *out, void (*what)(const struct dlc_config *config, int64_t first_step),
                        const struct dlc_config *config, int64_t first_step)
{
    char path[DLC_PATH_MAX];
    int usual = dup(STDERR_FILENO), file;

    assert_int_equal(dlc_path_join(path, folder, "words"), DLC_OK);
    file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);
    assert_true(usual >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    what(config, first_step);
    dup2(usual, STDERR_FILENO);
    close(file);
    close(usual);
    dlc_buf_fini(out);
    assert_int_equal(dlc_file_read(out, path, 1 << 20), DLC_OK);
}

/* Every island reports the next step. */
static void one_step(const struct dlc_config *config, int64_t first_step)
{
    struct dlc_traffic traffic[2] = { { 1500, 0 }, { 0, 500 } };
    struct dlc_message m = {
        .kind = DLC_MSG_PROGRESS, .step = first_step, .loss = 2, .lr = 0.1, .grad_norm = 1, .seconds = 1
    };
    dlc_progress *p;

    assert_int_equal(dlc_progress_create(&p, config, folder, traffic, first_step, false), DLC_OK);
    for (int i = 0; i < config->train.islands; i++)
        assert_int_equal(dlc_progress_step(p, i, &m), DLC_OK);
    dlc_progress_destroy(p);
}

static void a_step_line_says_what_is_so(void **state)
{
    static const struct {
        int islands;
        int64_t first_step;
        const char *has, *has_not, *why;
    } rows[] = {
        { 2, 0, "outer 0/4 | sent 2 kB, data parallel ", NULL, "a new run" },
        { 1, 0, "outer 0/4", "sent", "one island sends nothing to anybody" },
        { 2, 60, "step 61/100 (61%)", "outer 0/4", "resumed: two outer steps are done" },
        { 2, 60, "outer 2/4", NULL, "resumed: two outer steps are done" },
        { 2, 75, "outer 2/4", NULL, "resumed in mid-round" },
    };
    struct dlc_buf words = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_config config = config_of(rows[i].islands);

        catch_words(&words, one_step, &config, rows[i].first_step);
        if (!strstr(words.data, rows[i].has) || (rows[i].has_not && strstr(words.data, rows[i].has_not)))
            fail_msg("%s: %s", rows[i].why, words.data);
    }
    dlc_buf_fini(&words);
}

static void finish_without_validation(const struct dlc_config *config, int64_t first_step)
{
    struct dlc_traffic traffic[2] = { { 0, 0 } };
    struct dlc_record last = { .t = 4, .step = 100, .n_tokens = 400 };
    dlc_progress *p;

    assert_int_equal(dlc_progress_create(&p, config, folder, traffic, first_step, false), DLC_OK);
    assert_int_equal(dlc_progress_summary(p, &last, &(struct dlc_memory_use){ 0 }, false), DLC_OK);
    dlc_progress_destroy(p);
}

static void a_run_without_validation_says_that_it_is_done(void **state)
{
    struct dlc_config config = config_of(1);
    struct dlc_buf words = { 0 };

    (void)state;
    catch_words(&words, finish_without_validation, &config, 100);
    assert_string_equal(words.data, "done: 100 steps, 400 tokens\n");
    dlc_buf_fini(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_line_says_what_is_so),
        cmocka_unit_test(a_run_without_validation_says_that_it_is_done),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
