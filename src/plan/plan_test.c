/* The planner's formulas against a schedule played step by step, against the paper's simulator and against numbers
 * worked out by hand; the search; the reports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "base/mem.h"
#include "plan/plan.h"
#include "plan/simulator.h"

static const struct dlc_plan_codec *codec(const char *name)
{
    const struct dlc_plan_codec *c = dlc_plan_codec_find(name);

    assert_non_null(c);
    return c;
}

/* 1e9 parameters in f32 over 100 Mbit/s: 320 s each way. */
static struct dlc_plan_setup usual_setup(void)
{
    return (struct dlc_plan_setup){
        .n_params = 1e9,
        .n_islands = 8,
        .step_s = 2,
        .tokens_per_step = 1e5,
        .n_tokens = 2e10,
        .H = 500,
        .fragments = 8,
        .overlap = 5,
        .up = codec("f32"),
        .down = codec("f32"),
        .link = { .down_bits_per_s = 100e6, .up_bits_per_s = 100e6, .efficiency = 1 },
        .can = { .codec = { true, true } },
    };
}

static void near(double got, double expected, double tolerance, const char *what)
{
    if (!(fabs(got - expected) <= tolerance * fabs(expected)))
        fail_msg("%s: %.9g, expected %.9g", what, got, expected);
}

static void numbers_worked_out_by_hand(void **state)
{
    struct dlc_plan_setup s = usual_setup();
    struct dlc_plan_way ways[DLC_PLAN_N_WAYS];
    static const struct {
        double utilisation, up_bytes, down_bytes, peak_bits_per_s, memory_bytes;
        const char *why;
    } rows[DLC_PLAN_N_WAYS] = {
        { 2 / 642.0, 2e12, 2e12, 64e9 / 2, 24e9, "data parallel f32: 4 GB up, then down, every step" },
        { 2 / 322.0, 1e12, 1e12, 32e9 / 2, 20e9, "data parallel bf16: half of it" },
        { 1000 / 1640.0, 4e9, 4e9, 64e9 / 2, 28e9, "DiLoCo: as much, once in 500 steps" },
        { 1000 / 1640.0, 4e9, 4e9, 8e9 / 2, 21e9, "streaming: the same mean, an eighth of the peak" },
        { 1, 0.5e9, 0.5e9, 1e9 / 10, 20.125e9, "an eighth of 4 bit takes 10 s: hidden by 5 steps" },
        { 1, 4e9, 4e9, 64e9 / 1000, 32e9, "eager: 640 s hidden behind 1000 s" },
        { 1000 / (1000 + 0.21875e9 * 9 / 100e6), 0.21875e9 / 8, 0.21875e9, 0.21875e9 * 9 / 2, 24e9 + 0.21875e9 * 9 / 8,
          "top-k: eight contributions come down" },
    };

    (void)state;
    assert_int_equal(dlc_plan_check(&s), DLC_OK);
    dlc_plan_ways(ways, &s);
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++) {
        struct dlc_plan_prediction p;

        dlc_plan_predict(&p, &ways[i], &s);
        near(p.utilisation, rows[i].utilisation, 1e-12, rows[i].why);
        near(p.step_s, 2 / rows[i].utilisation, 1e-12, rows[i].why);
        near(p.up_bytes, rows[i].up_bytes, 1e-12, rows[i].why);
        near(p.down_bytes, rows[i].down_bytes, 1e-12, rows[i].why);
        near(p.peak_bits_per_s, rows[i].peak_bits_per_s, 1e-12, rows[i].why);
        near(p.memory_bytes, rows[i].memory_bytes, 1e-12, rows[i].why);
        near(p.budget_s, 2e10 / 8e5 * 2 / rows[i].utilisation, 1e-12, rows[i].why);
    }
    near(dlc_plan_hub_memory_bytes(&ways[2], &s), 12e9 + 8 * 4e9, 1e-12, "the coordinator's memory");
}

static void the_link_is_what_it_is_made_of(void **state)
{
    struct dlc_plan_setup s = usual_setup();
    struct dlc_plan_way ways[DLC_PLAN_N_WAYS];
    struct dlc_plan_prediction p;
    static const struct {
        struct dlc_plan_link link;
        double exchange_s;
        const char *why;
    } rows[] = {
        { { 100e6, 10e6, 0, 0, 1, 0 }, 320 + 3200, "slower up than down" },
        { { 100e6, 100e6, 0.5, 0, 1, 0 }, 641, "latency there and back" },
        { { 100e6, 100e6, 0, 0, 0.5, 0 }, 1280, "half of the link is headers" },
        { { 100e6, 100e6, 0, 0, 1, 7 }, 647, "coding and merging" },
        { { 100e6, 100e6, 0, 400e6, 1, 0 }, 1280, "eight islands share the coordinator's 400 Mbit/s" },
        { { 100e6, 100e6, 0, 8e9, 1, 0 }, 640, "a coordinator that is no hindrance" },
        { { 100e6, 10e6, 0, 400e6, 1, 0 }, 640 + 3200, "the coordinator is narrow one way, the island the other" },
    };

    (void)state;
    dlc_plan_ways(ways, &s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        s.link = rows[i].link;
        dlc_plan_predict(&p, &ways[2], &s);
        near(p.exchange_s, rows[i].exchange_s, 1e-12, rows[i].why);
        near(p.utilisation, 1000 / (1000 + rows[i].exchange_s), 1e-12, rows[i].why);
    }
    s.link = (struct dlc_plan_link){ 100e6, 100e6, 0.5, 0, 1, 8 };
    dlc_plan_predict(&p, &ways[3], &s);
    near(p.exchange_s, 640 / 8.0 + 1 + 1, 1e-12, "a fragment has the whole latency and its part of the overhead");
}

/* Steps and exchanges as they would happen, for H/P whole: fragment p leaves at the end of step n H + p H/P and has to
 * be there tau steps later. Utilisation over rounds that are no longer influenced by the start. */
static double played(int H, int P, int tau, double step_s, double exchange_s)
{
    double now = 0, arrives = 0, begin = 0;
    int due = -1, every = H / P, n = 20 * H;

    for (int step = 1; step <= n; step++) {
        if (step == 10 * H + 1)
            begin = now;
        now += step_s;
        if (step == due)
            now = fmax(now, arrives);
        if (step % every == 0) {
            arrives = now + exchange_s;
            due = step + tau;
            if (tau == 0)
                now = arrives;
        }
    }
    return 10 * H * step_s / (now - begin);
}

static void formulas_equal_the_schedule_played(void **state)
{
    static const struct {
        int H, P, tau;
        const char *why;
    } rows[] = {
        { 100, 1, 0, "DiLoCo" },
        { 1, 1, 0, "every step" },
        { 96, 8, 0, "streaming" },
        { 96, 8, 1, "overlap of a step" },
        { 96, 8, 11, "the most there is" },
        { 50, 1, 49, "nearly the round" },
        { 6, 3, 1, "short" },
    };
    static const double rates[] = { 1e6, 100e6, 1e9, 20e9, 1e12 };
    struct dlc_plan_setup s = usual_setup();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
            struct dlc_plan_way way = { "", DLC_PLAN_DILOCO, rows[i].H, rows[i].P, rows[i].tau, s.up, s.down };
            struct dlc_plan_prediction p;

            s.link = (struct dlc_plan_link){ rates[r], rates[r], 0.05, 0, 0.9, 1 };
            dlc_plan_predict(&p, &way, &s);
            near(p.utilisation, played(rows[i].H, rows[i].P, rows[i].tau, s.step_s, p.exchange_s), 1e-9, rows[i].why);
        }
    }
}

/* The paper has one all-reduce where we have two transfers: here the way down is infinitely fast. Its layers are sent
 * while the backward pass goes on and wanted only when the forward pass comes to them, so that between none and all of
 * one more step hides a transfer: the simulator lies between our tau and our tau + 1. */
static void formulas_bracket_the_papers_simulator(void **state)
{
    static const struct {
        dlc_sim_kind kind;
        int fragments, overlap;
        const char *codec, *why;
    } rows[] = {
        { DLC_SIM_DILOCO, 1, 0, "bf16", "DiLoCo" },
        { DLC_SIM_STREAMING, 16, 0, "bf16", "streaming" },
        { DLC_SIM_STREAMING, 16, 1, "bf16", "with overlap" },
        { DLC_SIM_STREAMING, 16, 1, "int4", "with overlap and 4 bits" },
    };
    struct dlc_plan_setup s = usual_setup();

    (void)state;
    s.step_s = 0.8;
    s.n_params = 1e10;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (double rate = 0.05e9; rate < 500e9; rate *= 1.5) {
            struct dlc_plan_way way = {
                "", DLC_PLAN_DILOCO, 100, rows[i].fragments, rows[i].overlap, codec(rows[i].codec), codec(rows[i].codec)
            };
            struct dlc_sim sim = { rows[i].kind, 1e10, 48, 0.8, 100, rows[i].overlap, codec(rows[i].codec)->bits };
            double ours, with_a_step_more, theirs;

            s.link = (struct dlc_plan_link){ 1e18, rate, 0, 0, 1, 0 };
            ours = dlc_plan_utilisation(&way, &s, 1);
            way.overlap++;
            with_a_step_more = dlc_plan_utilisation(&way, &s, 1);
            assert_int_equal(dlc_sim_utilisation(&theirs, &sim, rate), DLC_OK);
            if (theirs < ours - 0.005 || theirs > with_a_step_more + 0.005)
                fail_msg("%s at %g Gbit/s: the simulator %.4f, not in %.4f..%.4f", rows[i].why, rate / 1e9, theirs,
                         ours, with_a_step_more);
        }
    }
}

static void the_link_for_a_utilisation_gives_it(void **state)
{
    static const double targets[] = { 0.05, 0.5, 0.95, 0.99 };
    struct dlc_plan_setup s = usual_setup();
    struct dlc_plan_way ways[DLC_PLAN_N_WAYS];
    struct dlc_plan_prediction p;

    (void)state;
    s.link.latency_s = 1e-3;
    dlc_plan_ways(ways, &s);
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++) {
        for (size_t t = 0; t < sizeof targets / sizeof *targets; t++)
            near(dlc_plan_utilisation(&ways[i], &s, dlc_plan_factor_for(&ways[i], &s, targets[t])), targets[t], 1e-9,
                 ways[i].name);
        dlc_plan_predict(&p, &ways[i], &s);
        near(p.link_for_95_bits_per_s, 100e6 * dlc_plan_factor_for(&ways[i], &s, 0.95), 1e-12, ways[i].name);
    }
    s.link.latency_s = 0.06; /* 120 ms a step of 2 s: data parallelism never gets beyond 94 % */
    assert_true(isinf(dlc_plan_factor_for(&ways[0], &s, 0.95)));
    assert_true(isfinite(dlc_plan_factor_for(&ways[2], &s, 0.95)));
}

static void settings_that_cannot_hold_are_refused(void **state)
{
    static const struct {
        int H, fragments, overlap;
        double n_params, step_s, tokens, tokens_per_step, efficiency;
        const char *text, *why;
    } rows[] = {
        { 500, 8, 63, 1e9, 2, 0, 0, 1, "overlap 63 must be below outer.steps / fragments = 500 / 8 = 62.5", "tau" },
        { 500, 501, 0, 1e9, 2, 0, 0, 1, "501 fragments: must lie in 1..500", "more fragments than steps" },
        { 0, 1, 0, 1e9, 2, 0, 0, 1, "outer.steps is 0", "no steps" },
        { 500, 8, -1, 1e9, 2, 0, 0, 1, "overlap -1", "negative" },
        { 1, 1, 1, 1e9, 2, 0, 0, 1, "overlap 1 must be below", "the round itself" },
        { 500, 8, 5, 0, 2, 0, 0, 1, "the number of parameters is 0", "no model" },
        { 500, 8, 5, NAN, 2, 0, 0, 1, "the number of parameters is", "not a number" },
        { 500, 8, 5, 1e9, 0, 0, 0, 1, "the time of an inner step", "no time" },
        { 500, 8, 5, 1e9, 2, 1e9, 0, 1, "a budget of tokens needs the tokens", "tokens of unknown steps" },
        { 500, 8, 5, 1e9, 2, 0, 0, 1.5, "the efficiency of the link is 1.5", "more than all" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_plan_setup s = usual_setup();

        s.H = rows[i].H;
        s.fragments = rows[i].fragments;
        s.overlap = rows[i].overlap;
        s.n_params = rows[i].n_params;
        s.step_s = rows[i].step_s;
        s.n_tokens = rows[i].tokens;
        s.tokens_per_step = rows[i].tokens_per_step;
        s.link.efficiency = rows[i].efficiency;
        if (dlc_plan_check(&s) != DLC_EUSAGE || !strstr(dlc_err_text(), rows[i].text))
            fail_msg("%s: '%s' not in: %s", rows[i].why, rows[i].text, dlc_err_text());
    }
}

static void what_can_be_trained_is_told_apart(void **state)
{
    static const bool today[DLC_PLAN_N_WAYS] = { true, false, true, false, false, false, false };
    struct dlc_plan_setup s = usual_setup();
    struct dlc_plan_way ways[DLC_PLAN_N_WAYS];

    (void)state;
    dlc_plan_ways(ways, &s);
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++)
        if (dlc_plan_trainable(&ways[i], &s.can) != today[i])
            fail_msg("%s with %s: trainable %d", ways[i].name, ways[i].up->name, !today[i]);
    s.can = (struct dlc_plan_abilities){ true, true, true, true, { true, true, true, true, true, true } };
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++)
        assert_int_equal(dlc_plan_trainable(&ways[i], &s.can), i != 1); /* gradients in bf16 stay planned */
    s.can.error_feedback = false;
    assert_false(dlc_plan_trainable(&ways[6], &s.can));
    assert_null(dlc_plan_codec_find("f31"));
}

/* Whatever is found reaches the target, no shorter round with the same codec does, and every codec is there that can.
 */
static void the_search_finds_the_shortest_rounds(void **state)
{
    static const double targets[] = { 0.5, 0.9, 0.95, 0.999 }, rates[] = { 1e6, 20e6, 100e6, 10e9 };
    struct dlc_plan_found found[DLC_PLAN_MAX_FOUND];
    struct dlc_plan_setup s = usual_setup();
    int n;

    (void)state;
    s.link.latency_s = 0.05;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
            s.link.down_bits_per_s = s.link.up_bits_per_s = rates[r];
            dlc_plan_find(found, &n, &s, targets[t], 12);
            for (int i = 0; i < n; i++) {
                struct dlc_plan_way way = found[i].way;
                struct dlc_plan_setup as_found = s;

                as_found.H = way.H;
                as_found.fragments = way.fragments;
                as_found.overlap = way.overlap;
                assert_int_equal(dlc_plan_check(&as_found), DLC_OK);
                assert_true(found[i].prediction.utilisation >= targets[t]);
                assert_true(way.H >= 1 && way.H <= DLC_PLAN_FIND_MAX_H);
                if (--way.H > way.fragments * way.overlap && dlc_plan_utilisation(&way, &s, 1) >= targets[t])
                    fail_msg("%s %s: %d steps reach %.3f as well", way.name, way.up->name, way.H, targets[t]);
            }
        }
    }
}

static bool contains(const struct dlc_plan_found *found, int n, const char *codec_name, int H, int fragments, int tau)
{
    for (int i = 0; i < n; i++)
        if (strcmp(found[i].way.up->name, codec_name) == 0 && found[i].way.H == H &&
            found[i].way.fragments == fragments && found[i].way.overlap == tau)
            return true;
    return false;
}

static void known_searches(void **state)
{
    struct dlc_plan_found found[DLC_PLAN_MAX_FOUND];
    struct dlc_plan_setup s = usual_setup();
    int n;

    (void)state;
    /* 640 s in f32 want 640 / (2 (1 / 0.8 - 1)) = 1280 steps; 4 bits an eighth of that. */
    dlc_plan_find(found, &n, &s, 0.8, 1);
    assert_true(contains(found, n, "f32", 1280, 1, 0));
    assert_true(contains(found, n, "int4", 160, 1, 0));
    /* Over one fragment of 640 s, 5 steps hide 10 s: 630 / 0.5. */
    assert_true(contains(found, n, "f32", 1260, 1, 5));
    /* Not with 2000 steps. */
    dlc_plan_find(found, &n, &s, 0.95, 1);
    for (int i = 0; i < n; i++)
        assert_string_not_equal(found[i].way.up->name, "f32");
    /* A link that carries nothing. */
    s.link.down_bits_per_s = s.link.up_bits_per_s = 1;
    dlc_plan_find(found, &n, &s, 0.95, 12);
    assert_int_equal(n, 0);
    /* A link that is no hindrance: a round of one step, and overlap has nothing to gain. */
    s.link.down_bits_per_s = s.link.up_bits_per_s = 1e18;
    dlc_plan_find(found, &n, &s, 0.95, 12);
    assert_int_equal(n, DLC_PLAN_N_CODECS);
    for (int i = 0; i < n; i++)
        assert_int_equal(found[i].way.H, 1);
}

static void reports_say_what_was_predicted(void **state)
{
    struct dlc_plan_setup s = usual_setup();
    struct dlc_buf text = { 0 };
    json_t *report, *methods, *row;
    const char *method;
    double v;

    (void)state;
    assert_int_equal(dlc_plan_json(&text, &s), DLC_OK);
    assert_int_equal(dlc_json_parse(&report, text.data, text.len, "report"), DLC_OK);
    assert_int_equal(dlc_json_get_array(&methods, report, "methods", "report"), DLC_OK);
    assert_int_equal(json_array_size(methods), DLC_PLAN_N_WAYS);
    row = json_array_get(methods, 2);
    assert_int_equal(dlc_json_get_string(&method, row, "method", "row"), DLC_OK);
    assert_string_equal(method, "DiLoCo");
    assert_int_equal(dlc_json_get_real(&v, row, "utilisation", "row"), DLC_OK);
    near(v, 1000 / 1640.0, 1e-12, "in the report");
    json_decref(report);

    dlc_buf_clear(&text);
    assert_int_equal(dlc_plan_text(&text, &s), DLC_OK);
    assert_non_null(strstr(text.data, "61.0 %"));
    assert_non_null(strstr(text.data, "streaming + overlap *  int4"));
    assert_non_null(strstr(text.data, "* planned:"));
    dlc_buf_clear(&text);
    s.can = (struct dlc_plan_abilities){ true, true, true, true, { true, true, true, true, true, true } };
    s.link.latency_s = 10; /* forbids 95 % to data parallelism */
    s.n_tokens = 0;
    assert_int_equal(dlc_plan_json(&text, &s), DLC_OK);
    assert_non_null(strstr(text.data, "\"link_for_95_bits_per_s\": null"));
    assert_non_null(strstr(text.data, "\"budget_s\": null"));
    dlc_buf_fini(&text);
}

/* Every curve is inside the plot, rises, and the picture loads nothing. */
static void the_picture_is_self_contained(void **state)
{
    struct dlc_plan_setup s = usual_setup();
    struct dlc_buf svg = { 0 };
    int n_curves = 0;

    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        s.link.latency_s = slow ? 1e5 : 0.05; /* a latency with which nothing blocking works */
        dlc_buf_clear(&svg);
        assert_int_equal(dlc_plan_svg(&svg, &s), DLC_OK);
        for (const char *at = svg.data; (at = strstr(at, "points=\"")); at++) {
            double x, y, x_before = -1, y_before = 1e9;
            int used;

            for (const char *p = at + 8; sscanf(p, "%lf,%lf%n", &x, &y, &used) == 2; p += used) {
                if (x < x_before || y > y_before || x < 64 || x > 664.05 || y < 55.9 || y > 436.1)
                    fail_msg("curve %d goes through %g,%g after %g,%g", n_curves, x, y, x_before, y_before);
                x_before = x;
                y_before = y;
            }
            assert_true(x_before > 663.9);
            n_curves++;
        }
        assert_null(strstr(svg.data, "nan"));
        assert_null(strstr(svg.data, "inf"));
        assert_null(strstr(svg.data, "href"));
        assert_null(strstr(svg.data, "url("));
    }
    assert_int_equal(n_curves, 2 * DLC_PLAN_N_WAYS);
    assert_non_null(strstr(svg.data, "</svg>"));
    dlc_buf_fini(&svg);
}

static dlc_err all_reports(struct dlc_buf *out, const struct dlc_plan_setup *s)
{
    struct dlc_plan_found found[DLC_PLAN_MAX_FOUND];
    int n;

    dlc_plan_find(found, &n, s, 0.9, 4);
    DLC_TRY(dlc_plan_text(out, s));
    DLC_TRY(dlc_plan_json(out, s));
    DLC_TRY(dlc_plan_found_text(out, found, n, s, 0.9));
    DLC_TRY(dlc_plan_found_json(out, found, n, s, 0.9));
    return dlc_plan_svg(out, s);
}

static void no_memory_is_reported(void **state)
{
    struct dlc_plan_setup s = usual_setup();
    dlc_err err = DLC_ENOMEM;
    uint64_t n;

    (void)state;
    for (n = 1; err == DLC_ENOMEM && n < 5000; n++) {
        struct dlc_buf out = { 0 };

        dlc_mem_fail_at(n);
        err = all_reports(&out, &s);
        dlc_mem_fail_at(0);
        dlc_buf_fini(&out);
    }
    assert_int_equal(err, DLC_OK);
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_worked_out_by_hand),
        cmocka_unit_test(the_link_is_what_it_is_made_of),
        cmocka_unit_test(formulas_equal_the_schedule_played),
        cmocka_unit_test(formulas_bracket_the_papers_simulator),
        cmocka_unit_test(the_link_for_a_utilisation_gives_it),
        cmocka_unit_test(settings_that_cannot_hold_are_refused),
        cmocka_unit_test(what_can_be_trained_is_told_apart),
        cmocka_unit_test(the_search_finds_the_shortest_rounds),
        cmocka_unit_test(known_searches),
        cmocka_unit_test(reports_say_what_was_predicted),
        cmocka_unit_test(the_picture_is_self_contained),
        cmocka_unit_test(no_memory_is_reported),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
