/* What a storm showed, as one JSON object. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "storm.h"

#define START_S 3.0 /* of a life: until everything is allocated */

struct judged {
    json_t *checks;
    bool held;
};

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* A value against its bound; a bound of 0 holds nobody. What could not be measured does not hold. */
static void hold(struct judged *j, const char *name, double value, double bound, bool at_least)
{
    bool ok = at_least ? value >= bound : value <= bound;

    if (bound == 0)
        return;
    json_array_append_new(j->checks, json_pack("{s:s, s:o, s:o, s:b}", "check", name, "value", number(value),
                                               at_least ? "at_least" : "at_most", number(bound), "held", (int)ok));
    j->held = j->held && ok;
}

/* A count that must be exactly so large. */
static void expect(struct judged *j, const char *name, double value, double expected)
{
    json_array_append_new(j->checks, json_pack("{s:s, s:o, s:o, s:b}", "check", name, "value", number(value),
                                               "expected", number(expected), "held", (int)(value == expected)));
    j->held = j->held && value == expected;
}

static json_t *faults_json(const struct storm *s)
{
    int n[CHAOS_N_KINDS] = { 0 };
    json_t *v = json_object();

    for (size_t i = 0; i < s->n_begun; i++)
        n[s->faults[i].kind]++;
    for (int k = 0; k < CHAOS_N_KINDS; k++)
        if (n[k])
            json_object_set_new(v, chaos_kind_name((chaos_kind)k), json_integer(n[k]));
    return v;
}

/* The largest growth in a life of those whose name begins so; NaN: none was long enough. */
static struct chaos_growth most_growth(const struct storm *s, const char *prefix)
{
    struct chaos_growth most = { .known = false, .rss_bytes = NAN, .n_fds = NAN };

    for (size_t i = 0; i < s->n_lives; i++) {
        struct chaos_growth g = chaos_growth(&s->lives[i], START_S);

        if (strncmp(s->lives[i].who, prefix, strlen(prefix)) != 0 || !g.known)
            continue;
        most.known = true;
        most.rss_bytes = fmax(most.rss_bytes, g.rss_bytes);
        most.n_fds = fmax(most.n_fds, g.n_fds);
    }
    return most;
}

static json_t *growth_json(struct judged *j, const struct storm *s, const char *who)
{
    struct chaos_growth g = most_growth(s, who);
    char name[64];

    if (g.known) {
        snprintf(name, sizeof name, "%s: growth of memory, bytes", who);
        hold(j, name, g.rss_bytes, s->config->most_growth_bytes, false);
        snprintf(name, sizeof name, "%s: growth of descriptors", who);
        hold(j, name, g.n_fds, s->config->most_growth_fds, false);
    }
    return json_pack("{s:o, s:o}", "rss_bytes", number(g.rss_bytes), "descriptors", number(g.n_fds));
}

static int n_surprises(const struct storm *s)
{
    int n = s->coordinator.n_surprises;

    for (int i = 0; i < s->config->plan.n_islands; i++)
        n += s->islands[i].n_surprises;
    return n;
}

static void judge(struct judged *j, const struct storm *s)
{
    const struct chaos_findings *f = &s->findings;
    const struct storm_config *c = s->config;
    uint64_t on_lease = (uint64_t)c->plan.n_islands * (uint64_t)s->H * 2 * 2; /* of this round and the one before */

    j->held = f->wrong.len == 0;
    hold(j, "faults", (double)s->n_begun, c->least_faults, true);
    hold(j, "survivors' steps used", f->survivors_steps_used, c->least_steps_used, true);
    hold(j, "contributing over alive", f->contributing_of_alive, c->least_contributing, true);
    hold(j, "recovery after a kill, rounds", f->recovery_worst_rounds, c->most_recovery_rounds, false);
    hold(j, "longest stop, seconds", f->longest_stop_s, c->most_stop_s, false);
    hold(j, "samples below the highest one, in no record", (double)f->n_unused_samples, (double)on_lease, false);
    expect(j, "processes that ended by themselves", n_surprises(s), 0);
    expect(j, "processes that did not leave in order", s->n_unclean, 0);
    expect(j, "processes left over", s->n_left_over, 0);
}

static json_t *make(struct judged *j, const struct storm *s)
{
    const struct chaos_findings *f = &s->findings;
    json_t *growth, *v = json_object();

    judge(j, s);
    growth = json_object();
    json_object_set_new(growth, "coordinator", growth_json(j, s, "coordinator"));
    json_object_set_new(growth, "island", growth_json(j, s, "island"));
    json_object_update_new(v, json_pack("{s:s, s:I, s:i, s:f, s:I, s:o}", "storm", s->config->name, "seed",
                                        (json_int_t)s->seed, "islands", s->config->plan.n_islands, "seconds",
                                        s->config->plan.duration_s, "outer.steps", (json_int_t)s->H, "faults",
                                        faults_json(s)));
    json_object_update_new(v,
                           json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "records", (json_int_t)f->n_records,
                                     "samples", (json_int_t)f->n_samples, "tokens", (json_int_t)f->n_tokens,
                                     "unused_samples", (json_int_t)f->n_unused_samples, "late", (json_int_t)f->n_late,
                                     "refused", (json_int_t)f->n_refused, "dropped", (json_int_t)f->n_dropped));
    json_object_update_new(v, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "round_median_s",
                                        number(f->round_median_s), "longest_stop_s", number(f->longest_stop_s),
                                        "recovery_median_rounds", number(f->recovery_median_rounds),
                                        "recovery_worst_rounds", number(f->recovery_worst_rounds),
                                        "contributing_of_alive", number(f->contributing_of_alive),
                                        "contributing_of_running", number(f->contributing_of_running),
                                        "survivors_steps_used", number(f->survivors_steps_used)));
    json_object_update_new(v, json_pack("{s:i, s:i, s:o, s:I, s:I}", "islands_whose_theta_was_compared",
                                        s->n_theta_seen, "surprises", n_surprises(s), "growth", growth,
                                        "server_folder_early_bytes", (json_int_t)s->store_early_bytes,
                                        "server_folder_late_bytes", (json_int_t)s->store_late_bytes));
    json_object_set_new(v, "checks", j->checks);
    json_object_set_new(v, "wrong", json_string(f->wrong.len ? f->wrong.data : ""));
    json_object_set_new(v, "held", json_boolean(j->held));
    return v;
}

dlc_err storm_report(struct dlc_buf *out, bool *held, const struct storm *s)
{
    struct judged j = { .checks = json_array(), .held = true };
    json_t *v = make(&j, s);
    char *text = v ? dlc_json_dump_indented(v) : NULL;
    dlc_err err = text ? dlc_buf_printf(out, "%s\n", text) : dlc_fail(DLC_ENOMEM, "out of memory: report of a storm");

    *held = j.held;
    dlc_free(text);
    json_decref(v);
    return err;
}
