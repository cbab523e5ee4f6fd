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

#include "base/rss.h"
#include "runner.h"
#include "scene.h"

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

static int set_up(void **state)
{
    if (runner_begin(state) != 0)
        return -1;
    scene_write_text("text.jsonl", 1, 3000000);
    run_expecting(0, "prepare text.jsonl --out data --vocab-size 4096 --val-fraction 0.1 --threads 1");
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

/* Shapes in which each part weighs most somewhere. A matrix library packs operands in memory of its own that comes and
 * goes, up to 9 MB a thread for some shapes of validation: the coordinator is compared where it is large beside that. */
static void the_prediction_is_what_it_takes(void **state)
{
    static const struct {
        const char *args;
        bool coordinator;
        const char *why;
    } rows[] = {
        { "--preset mini --islands 2 --batch 8", false, "two islands: the exchange" },
        { "--preset mini --batch 16", false, "activations" },
        { "--preset small --batch 2", false, "parameters" },
        { "--preset small --batch 2 --train.precision bf16", false, "copies in bf16" },
        { "--preset small --batch 4 --islands 2", true, "parameters and the exchange" },
        { "--preset small --batch 4 --islands 2 --outer.optimizer adam --outer.codec bf16", true,
          "two arrays of outer state, halved contributions" },
        { "--preset small --batch 4 --islands 3 --method dp", true, "gradients in the exchange" },
    };

    (void)state;
    if (IS_SANITIZED || !has_huge_pages() || dlc_rss_peak_bytes(0) == 0)
        skip();
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct dlc_buf out = { 0 };
        struct child c = { 0 };
        json_t *row;

        child_start(&c, "train --data data --out %zu %s --system.threads 1 --steps 3 --outer.steps 1 --data.val_tokens "
                        "4096 --json --quiet", r, rows[r].args);
        if (child_wait(&c) != 0)
            child_fail(&c, "%s", rows[r].why);
        row = json_loads(child_text(&out, c.out_path), 0, NULL);
        if (!row)
            child_fail(&c, "%s: no JSON on standard output", rows[r].why);
        compare(&c, row, "island", rows[r].why);
        if (rows[r].coordinator)
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
