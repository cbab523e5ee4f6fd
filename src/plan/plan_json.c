/* The planner's answers as JSON. Units are in the names; what is unknown or never reached is null. */
#include <math.h>

#include "base/json.h"
#include "base/mem.h"
#include "plan/plan.h"

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *setup_json(const struct dlc_plan_setup *s)
{
    return json_pack("{s:f, s:i, s:f, s:f, s:f, s:i, s:i, s:i, s:f, s:f, s:o, s:f, s:f, s:f}", "params", s->n_params,
                     "islands", s->n_islands, "step_s", s->step_s, "tokens_per_step", s->tokens_per_step, "tokens",
                     s->n_tokens, "outer_steps", s->H, "fragments", s->fragments, "overlap", s->overlap,
                     "link_down_bits_per_s", s->link.down_bits_per_s, "link_up_bits_per_s", s->link.up_bits_per_s,
                     "coordinator_bits_per_s", number(s->link.hub_bits_per_s > 0 ? s->link.hub_bits_per_s : INFINITY),
                     "latency_s", s->link.latency_s, "efficiency", s->link.efficiency, "overhead_s",
                     s->link.overhead_s);
}

static json_t *way_json(const struct dlc_plan_way *way, const struct dlc_plan_prediction *p,
                        const struct dlc_plan_setup *s)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "method",
                     way->name, "codec_up", way->up->name, "codec_down", way->down->name, "outer_steps", way->H,
                     "fragments", way->fragments, "overlap", way->kind == DLC_PLAN_EAGER ? way->H : way->overlap,
                     "trainable", dlc_plan_trainable(way, &s->can), "utilisation", number(p->utilisation), "step_s",
                     number(p->step_s), "exchange_s", number(p->exchange_s), "stall_s", number(p->stall_s), "bytes_up",
                     number(p->up_bytes), "bytes_down", number(p->down_bytes), "peak_bits_per_s",
                     number(p->peak_bits_per_s), "link_for_95_bits_per_s", number(p->link_for_95_bits_per_s),
                     "budget_s", number(p->budget_s), "memory_bytes", number(p->memory_bytes));
}

/* Takes the references; NULL stands for what could not be made. */
static dlc_err append(struct dlc_buf *out, json_t *report, const char *key, json_t *rows)
{
    char *text = NULL;
    dlc_err err;

    if (report && rows && json_object_set(report, key, rows) == 0)
        text = dlc_json_dump_indented(report);
    err = text ? dlc_buf_printf(out, "%s\n", text) : dlc_fail(DLC_ENOMEM, "out of memory: JSON of a plan");
    dlc_free(text);
    json_decref(rows);
    json_decref(report);
    return err;
}

/* Takes the reference; *rows becomes NULL when memory runs out. */
static void add_row(json_t **rows, json_t *row)
{
    if (json_array_append_new(*rows, row) == 0)
        return;
    json_decref(*rows);
    *rows = NULL;
}

dlc_err dlc_plan_json(struct dlc_buf *out, const struct dlc_plan_setup *s)
{
    struct dlc_plan_way ways[DLC_PLAN_N_WAYS];
    json_t *rows = json_array();

    dlc_plan_ways(ways, s);
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++) {
        struct dlc_plan_prediction p;

        dlc_plan_predict(&p, &ways[i], s);
        add_row(&rows, way_json(&ways[i], &p, s));
    }
    return append(out,
                  json_pack("{s:o, s:f}", "setup", setup_json(s), "coordinator_memory_bytes",
                            dlc_plan_hub_memory_bytes(&ways[2], s)),
                  "methods", rows);
}

dlc_err dlc_plan_found_json(struct dlc_buf *out, const struct dlc_plan_found *found, int n,
                            const struct dlc_plan_setup *s, double target)
{
    json_t *rows = json_array();

    for (int i = 0; i < n; i++)
        add_row(&rows, way_json(&found[i].way, &found[i].prediction, s));
    return append(out, json_pack("{s:o, s:f}", "setup", setup_json(s), "target", target), "found", rows);
}
