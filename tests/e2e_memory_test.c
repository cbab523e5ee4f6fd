/* The memory a run announces is the memory it takes: what the kernel counts as the most of an island and of the
 * coordinator is within 5 % of the prediction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/rss.h"
#include "runner.h"

#define TOLERANCE 0.05

/* Sanitizers take memory of their own, and where nobody counts it (no /proc) there is nothing to compare. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#elif defined(__has_feature)
#define IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define IS_SANITIZED false
#endif

/* The plan counts large blocks in whole huge pages. Where the system gives none, only pages that were touched are
 * resident, some percent less. */
static bool has_huge_pages(void)
{
    char text[128] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");

    if (f) {
        if (!fgets(text, sizeof text, f))
            text[0] = '\0';
        fclose(f);
    }
    return text[0] && !strstr(text, "[never]");
}

/* Words of random letters: enough different pairs for the whole vocabulary. */
static void write_text(const char *name, size_t size_bytes)
{
    struct dlc_rng rng = { .seed = 1 };
    struct dlc_buf text = { 0 };

    while (text.len < size_bytes) {
        assert_int_equal(dlc_buf_printf(&text, "{\"text\":\""), DLC_OK);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(dlc_buf_printf(&text, "%c",
                                            dlc_rng_below(&rng, 6) ? 'a' + (int)dlc_rng_below(&rng, 26) : ' '),
                             DLC_OK);
        assert_int_equal(dlc_buf_printf(&text, "\"}\n"), DLC_OK);
    }
    assert_int_equal(dlc_file_write_atomic(in_scratch("%s", name), text.data, text.len), DLC_OK);
    dlc_buf_fini(&text);
}

static int set_up(void **state)
{
    if (runner_begin(state) != 0)
        return -1;
    write_text("text.jsonl", 1000000);
    run_expecting(0, "prepare text.jsonl --out v4096 --vocab-size 4096 --val-fraction 0.1 --threads 1");
    run_expecting(0, "prepare text.jsonl --out v2048 --vocab-size 2048 --val-fraction 0.1 --threads 1");
    return 0;
}

static void compare(const struct child *c, const json_t *row, const char *who, const char *why)
{
    char planned_key[64], peak_key[64];
    double planned, peak;

    snprintf(planned_key, sizeof planned_key, "memory/%s_planned", who);
    snprintf(peak_key, sizeof peak_key, "memory/%s_peak", who);
    planned = (double)json_integer_value(json_object_get(row, planned_key));
    peak = (double)json_integer_value(json_object_get(row, peak_key));
    if (planned <= 0 || peak <= 0 || fabs(planned / peak - 1) > TOLERANCE)
        child_fail(c, "%s: %s, %.1f MB predicted, %.1f MB at most", why, who, planned / (1 << 20), peak / (1 << 20));
}

/* Shapes in which each part weighs most somewhere. */
static void the_prediction_is_what_it_takes(void **state)
{
    static const struct {
        const char *args, *why;
    } rows[] = {
        { "--data v2048 --preset nano --islands 4 --batch 8 --data.val_tokens 65536", "the demo: libraries" },
        { "--data v4096 --preset nano --batch 8 --system.threads 2 --data.val_tokens 65536", "two threads" },
        { "--data v4096 --preset micro --islands 2 --batch 8 --data.val_tokens 16384", "micro" },
        { "--data v4096 --preset mini --islands 2 --batch 8", "two islands: the exchange" },
        { "--data v4096 --preset mini --batch 16", "activations" },
        { "--data v4096 --preset small --batch 2", "parameters" },
        { "--data v4096 --preset small --batch 2 --train.precision bf16", "copies in bf16" },
        { "--data v4096 --preset small --batch 4 --islands 2", "parameters and the exchange" },
        { "--data v4096 --preset small --batch 4 --islands 2 --outer.optimizer adam --outer.codec bf16",
          "two arrays of outer state, halved contributions" },
        { "--data v4096 --preset small --batch 4 --islands 3 --method dp", "gradients in the exchange" },
    };

    (void)state;
    if (IS_SANITIZED || !has_huge_pages() || dlc_rss_peak_bytes(0) == 0)
        skip();
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct dlc_buf out = { 0 };
        struct child c = { 0 };
        json_t *row;

        child_start(&c,
                    "train --out %zu --system.threads 1 --steps 2 --outer.steps 1 --data.val_tokens 1024 --json "
                    "--quiet %s",
                    r, rows[r].args);
        if (child_wait(&c) != 0)
            child_fail(&c, "%s", rows[r].why);
        row = json_loads(child_text(&out, c.out_path), 0, NULL);
        if (!row)
            child_fail(&c, "%s: no JSON on standard output", rows[r].why);
        compare(&c, row, "island", rows[r].why);
        compare(&c, row, "coordinator", rows[r].why);
        json_decref(row);
        dlc_buf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prediction_is_what_it_takes),
    };

    return runner_main("e2e-memory", tests, set_up);
}
