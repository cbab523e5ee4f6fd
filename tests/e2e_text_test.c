/* From text to a sample, as a person would type it; and the same bits again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "history.h"
#include "runner.h"
#include "scene.h"

static int set_up(void **state)
{
    int rc = runner_begin(state);

    if (rc == 0)
        scene_prepare();
    return rc;
}

/* The object that a command with --json prints. */
static json_t *result_of(const char *args)
{
    struct child c = { 0 };
    struct dlc_buf text = { 0 };
    json_t *v = NULL;
    int status;

    child_start(&c, "%s --json", args);
    status = child_wait(&c);
    child_text(&text, c.out_path);
    if (status != 0 || dlc_json_parse(&v, text.data, text.len, args) != DLC_OK)
        child_fail(&c, "status %d, printed %s", status, text.data);
    dlc_buf_fini(&text);
    return v;
}

static double real_of(const json_t *v, const char *key)
{
    double x;

    if (dlc_json_get_real(&x, v, key, "result") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return x;
}

static void from_text_to_a_sample(void **state)
{
    static struct history h;
    json_t *trained, *held, *sample;
    double ppl, loss;

    (void)state;
    trained = result_of(TINY " --out tour --optim.lr 0.01 --data.val_tokens 0");
    assert_int_equal(real_of(trained, "step"), TINY_STEPS);
    assert_int_equal(real_of(trained, "tokens"), TINY_STEPS * TINY_ISLANDS * TINY_BATCH * 32);
    assert_true(real_of(trained, "outer/bytes") > 0 && real_of(trained, "dp/ratio_f32") > 3);
    held = result_of("eval tour --data data --threads 1");
    ppl = real_of(held, "ppl");
    loss = real_of(held, "loss");
    if (!(ppl > 1.5 && ppl < 200)) /* 400 by guessing */
        fail_msg("perplexity %g of a vocabulary of 400", ppl);
    assert_true(fabs(ppl - exp(loss)) < 1e-9 * ppl);
    assert_true(real_of(held, "bpb") > 0.2 && real_of(held, "bpb") < loss / log(2));
    /* What train reports is what eval finds in the checkpoint. */
    if (fabs(real_of(trained, "val/loss") - loss) > 1e-6 * loss)
        fail_msg("train says %.9g, eval %.9g", real_of(trained, "val/loss"), loss);
    sample = result_of("generate tour --prompt document --tokens 20 --seed 3 --threads 1");
    assert_true(real_of(sample, "tokens") >= 1 && real_of(sample, "tokens") <= 20);
    assert_true(strlen(json_string_value(json_object_get(sample, "text"))) > 0);
    history_read(&h, "tour");
    assert_int_equal(h.n_losses, TINY_STEPS);
    assert_int_equal(h.n_outer, TINY_STEPS / TINY_H);
    assert_true(h.loss[TINY_STEPS - 1] < h.loss[0] - 0.5);
    history_is_complete("tour", TINY_STEPS * TINY_ISLANDS * TINY_BATCH);
    json_decref(trained);
    json_decref(held);
    json_decref(sample);
    runner_no_children("after the tour");
}

static void a_finished_run_says_so_and_changes_nothing(void **state)
{
    static struct history before, after;
    struct dlc_buf err = { 0 };

    (void)state;
    history_read(&before, "tour");
    assert_int_equal(run_to_end(&err, "train --out tour"), 0);
    if (!strstr(err.data, "is finished"))
        fail_msg("%s", err.data);
    history_read(&after, "tour");
    assert_int_equal(after.n_records, before.n_records);
    assert_int_equal(after.n_losses, before.n_losses);
    history_same(&before, &after, "a finished run, started once more");
    dlc_buf_fini(&err);
}

static const struct {
    const char *name, *flags, *why;
} same_rows[] = {
    { "diloco", "--optim.lr 0.01", "the plain thing" },
    { "nesterov", "--outer.momentum 0.9 --outer.codec bf16 --outer.drop 0.3", "outer state, codec, drops" },
    { "adam", "--outer.optimizer adam --train.batch 4 --train.micro_batch 2", "two arrays of state, accumulation" },
    { "dp", "--method dp", "gradients every step" },
    { "single", "--method single --islands 1", "one worker" },
    { "odd", "--steps 38 --train.checkpoint_every 3 --train.keep 1", "a shorter last round" },
    { "bf16", "--train.precision bf16", "rounded products" },
};

static void the_same_run_gives_the_same_bits(void **state)
{
    static struct history first, second, inproc;

    (void)state;
    for (size_t i = 0; i < sizeof same_rows / sizeof *same_rows; i++) {
        const char *name = same_rows[i].name, *flags = same_rows[i].flags;

        run_expecting(0, TINY " --out %s-1 %s", name, flags);
        run_expecting(0, TINY " --out %s-2 %s", name, flags);
        run_expecting(0, TINY " --out %s-3 %s --exchange.kind inproc", name, flags);
        history_read(&first, in_scratch("%s-1", name) + strlen(runner_scratch()) + 1);
        history_read(&second, in_scratch("%s-2", name) + strlen(runner_scratch()) + 1);
        history_read(&inproc, in_scratch("%s-3", name) + strlen(runner_scratch()) + 1);
        assert_true(first.n_records > 0);
        history_same(&first, &second, name);
        history_same(&first, &inproc, in_scratch("%s, local and inproc", name));
        assert_true(first.n_losses >= 38);
    }
    runner_no_children("after all of them");
}

/* The largest seed is as good as any, after a resume too. */
static void every_seed_can_be_resumed(void **state)
{
    (void)state;
    run_expecting(0, TINY " --out large-seed --steps 5 --seed 18446744073709551615");
    run_expecting(0, "train --out large-seed --seed 18446744073709551615");
}

/* The test can fail: another seed is another run. */
static void another_seed_gives_other_bits(void **state)
{
    static struct history first, other;

    (void)state;
    run_expecting(0, TINY " --out seed-2 --seed 2");
    history_read(&first, "diloco-1");
    history_read(&other, "seed-2");
    for (int i = 0; i < first.n_records; i++)
        assert_string_not_equal(first.theta[i], other.theta[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_text_to_a_sample),
        cmocka_unit_test(a_finished_run_says_so_and_changes_nothing),
        cmocka_unit_test(the_same_run_gives_the_same_bits),
        cmocka_unit_test(every_seed_can_be_resumed),
        cmocka_unit_test(another_seed_gives_other_bits),
    };

    return runner_main("e2e text", tests, set_up);
}
