/* The planner's answers as tables for people. */
#include <math.h>

#include "base/units.h"
#include "plan/plan.h"

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static dlc_err setup_lines(struct dlc_buf *out, const struct dlc_plan_setup *s)
{
    char step[DLC_UNITS_TEXT], down[DLC_UNITS_TEXT], up[DLC_UNITS_TEXT], latency[DLC_UNITS_TEXT], hub[DLC_UNITS_TEXT],
        params[DLC_UNITS_TEXT];

    dlc_format_count(params, s->n_params);
    dlc_format_duration(step, s->step_s);
    dlc_format_duration(latency, s->link.latency_s);
    dlc_format_rate(down, s->link.down_bits_per_s);
    dlc_format_rate(up, s->link.up_bits_per_s);
    dlc_format_rate(hub, s->link.hub_bits_per_s);
    DLC_TRY(dlc_buf_printf(out, "%s parameters, %d island%s, %s an inner step; links %s down, %s up, %s one way",
                           params, s->n_islands, plural(s->n_islands), step, down, up, latency));
    if (s->link.hub_bits_per_s > 0)
        DLC_TRY(dlc_buf_printf(out, ", coordinator %s", hub));
    return dlc_buf_printf(out, ", payload gets %.3g %%\n", 100 * s->link.efficiency);
}

/* "int4", or "bf16/f32" for up and down. */
static void codec_text(char out[16], const struct dlc_plan_way *way)
{
    if (way->up == way->down)
        snprintf(out, 16, "%s", way->up->name);
    else
        snprintf(out, 16, "%s/%s", way->up->name, way->down->name);
}

/* Small parts keep two digits, and what is lost of nearly all stays visible. */
static void percent(char out[16], double part)
{
    const char *form = part < 0.0995 ? "%.2g %%" : part < 0.9995 ? "%.1f %%" : part < 0.99995 ? "%.2f %%" : "%.0f %%";

    snprintf(out, 16, form, 100 * part);
}

static void name_text(char out[32], const struct dlc_plan_way *way, const struct dlc_plan_abilities *can)
{
    snprintf(out, 32, "%s%s", way->name, dlc_plan_trainable(way, can) ? "" : " *");
}

static dlc_err way_line(struct dlc_buf *out, const struct dlc_plan_way *way, const struct dlc_plan_setup *s)
{
    char name[32], codec[16], used[16], step[DLC_UNITS_TEXT], up[DLC_UNITS_TEXT], down[DLC_UNITS_TEXT],
        peak[DLC_UNITS_TEXT], link[DLC_UNITS_TEXT], budget[DLC_UNITS_TEXT], memory[DLC_UNITS_TEXT];
    struct dlc_plan_prediction p;

    dlc_plan_predict(&p, way, s);
    name_text(name, way, &s->can);
    codec_text(codec, way);
    percent(used, p.utilisation);
    dlc_format_duration(step, p.step_s);
    dlc_format_bytes(up, p.up_bytes);
    dlc_format_bytes(down, p.down_bytes);
    dlc_format_rate(peak, p.peak_bits_per_s);
    dlc_format_rate(link, p.link_for_95_bits_per_s);
    dlc_format_duration(budget, p.budget_s);
    dlc_format_bytes(memory, p.memory_bytes);
    return dlc_buf_printf(out, "%-22s %-9s %10s %8s %9s %9s %11s %11s %11s %9s\n", name, codec, step, used, up, down,
                          peak, link, budget, memory);
}

static dlc_err notes(struct dlc_buf *out, const struct dlc_plan_way *ways, const struct dlc_plan_setup *s)
{
    char tokens[DLC_UNITS_TEXT], memory[DLC_UNITS_TEXT];
    bool planned = false;

    dlc_format_count(tokens, s->n_tokens);
    dlc_format_bytes(memory, dlc_plan_hub_memory_bytes(&ways[2], s));
    DLC_TRY(dlc_buf_printf(out,
                           "\nup, down: an island's in a round of %d inner steps, also under data parallelism. "
                           "peak: the link that lets an\nexchange end in its window (one step; with overlap, the "
                           "steps that hide it; eager, the round).\n95 %% at: the link down, up in proportion. ",
                           s->H));
    if (s->n_tokens > 0)
        DLC_TRY(dlc_buf_printf(out, "budget: %s tokens. ", tokens));
    DLC_TRY(dlc_buf_printf(out,
                           "memory: an island's, f32, %s activations.\n"
                           "The coordinator carries %d times the up and down of an island and keeps %s under DiLoCo.\n",
                           s->activation_bytes > 0 ? "with" : "without", s->n_islands, memory));
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++)
        planned = planned || !dlc_plan_trainable(&ways[i], &s->can);
    return planned
               ? dlc_buf_printf(out, "* planned: predicted, but this version of diloco cannot train this way yet.\n")
               : DLC_OK;
}

dlc_err dlc_plan_text(struct dlc_buf *out, const struct dlc_plan_setup *s)
{
    struct dlc_plan_way ways[DLC_PLAN_N_WAYS];

    dlc_plan_ways(ways, s);
    DLC_TRY(setup_lines(out, s));
    DLC_TRY(dlc_buf_printf(out, "outer.steps %d, %d fragment%s, overlap %d\n\n", s->H, s->fragments,
                           plural(s->fragments), s->overlap));
    DLC_TRY(dlc_buf_printf(out, "%-22s %-9s %10s %8s %9s %9s %11s %11s %11s %9s\n", "", "codec", "inner step",
                           "computes", "up", "down", "peak", "95 % at", "budget", "memory"));
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++)
        DLC_TRY(way_line(out, &ways[i], s));
    return notes(out, ways, s);
}

static dlc_err found_line(struct dlc_buf *out, const struct dlc_plan_found *f, const struct dlc_plan_setup *s)
{
    char name[32], used[16], step[DLC_UNITS_TEXT], up[DLC_UNITS_TEXT], down[DLC_UNITS_TEXT];

    name_text(name, &f->way, &s->can);
    percent(used, f->prediction.utilisation);
    dlc_format_duration(step, f->prediction.step_s);
    dlc_format_bytes(up, f->prediction.up_bytes);
    dlc_format_bytes(down, f->prediction.down_bytes);
    return dlc_buf_printf(out, "%-22s %-6s %11d %10d %8d %10s %9s %9s %9s\n", name, f->way.up->name, f->way.H,
                          f->way.fragments, f->way.overlap, step, used, up, down);
}

static bool is_among(const struct dlc_plan_codec *codec, const struct dlc_plan_found *found, int n)
{
    for (int i = 0; i < n; i++)
        if (found[i].way.up == codec)
            return true;
    return false;
}

/* The codecs that need rounds longer than those that were searched. */
static dlc_err unserved(struct dlc_buf *out, const struct dlc_plan_found *found, int n)
{
    bool begun = false;

    for (int i = 0; i < DLC_PLAN_N_CODECS; i++) {
        if (is_among(&dlc_plan_codecs[i], found, n))
            continue;
        if (!begun)
            DLC_TRY(dlc_buf_printf(out, "no outer.steps up to %d reach it with:", DLC_PLAN_FIND_MAX_H));
        DLC_TRY(dlc_buf_printf(out, " %s", dlc_plan_codecs[i].name));
        begun = true;
    }
    return begun ? dlc_buf_printf(out, "\n") : DLC_OK;
}

dlc_err dlc_plan_found_text(struct dlc_buf *out, const struct dlc_plan_found *found, int n,
                            const struct dlc_plan_setup *s, double target)
{
    bool planned = false;

    DLC_TRY(setup_lines(out, s));
    DLC_TRY(dlc_buf_printf(out, "the shortest rounds that compute at least %.4g %% of the time\n\n", 100 * target));
    DLC_TRY(dlc_buf_printf(out, "%-22s %-6s %11s %10s %8s %10s %9s %9s %9s\n", "", "codec", "outer.steps", "fragments",
                           "overlap", "inner step", "computes", "up", "down"));
    for (int i = 0; i < n; i++) {
        DLC_TRY(found_line(out, &found[i], s));
        planned = planned || !dlc_plan_trainable(&found[i].way, &s->can);
    }
    DLC_TRY(unserved(out, found, n));
    DLC_TRY(
        dlc_buf_printf(out,
                       "\nShorter rounds are better for the model. Published: 4 bits and more cost nothing, 2 bits and "
                       "top-k need error\nfeedback, overlap up to 5 costs below 0.2 %% of loss, outer.steps 1000 "
                       "against 50 costs 2.9 %% of perplexity.\n"));
    if (planned)
        DLC_TRY(dlc_buf_printf(out, "* planned: this version of diloco cannot train this way yet.\n"));
    return DLC_OK;
}
