/* Utilisation against the rate of the link, a curve a way. Rates on a logarithmic axis of whole decades. */
#include <math.h>

#include "base/units.h"
#include "plan/plan.h"

#define WIDTH 1000
#define HEIGHT 500
#define LEFT 64
#define TOP 56
#define PLOT_W 600
#define PLOT_H 380
#define N_POINTS 240

/* Colours of Okabe and Ito, told apart by colour-blind people too; dashes for those who print in grey. */
static const struct {
    const char *colour, *dashes;
} pens[DLC_PLAN_N_WAYS] = {
    { "#000000", "" }, { "#000000", "6 4" }, { "#d55e00", "" },    { "#0072b2", "9 5" },
    { "#009e73", "" }, { "#cc79a7", "6 4" }, { "#e69f00", "2 3" },
};

struct axis {
    int low, high; /* decades: 10^low .. 10^high bit/s */
};

static double x_of(const struct axis *a, double bits_per_s)
{
    return LEFT + PLOT_W * (log10(bits_per_s) - a->low) / (a->high - a->low);
}

static double y_of(double utilisation)
{
    return TOP + PLOT_H * (1 - utilisation);
}

/* From where the best way begins to work to where the worst one is done; the given link is on it in any case. */
static struct axis axis_of(const struct dlc_plan_way *ways, const struct dlc_plan_setup *s)
{
    double low = s->link.down_bits_per_s, high = low;
    struct axis a;

    for (int i = 0; i < DLC_PLAN_N_WAYS; i++) {
        double begins = s->link.down_bits_per_s * dlc_plan_factor_for(&ways[i], s, 0.05);
        double done = s->link.down_bits_per_s * dlc_plan_factor_for(&ways[i], s, 0.95);

        if (begins > 0 && begins < low)
            low = begins;
        if (isfinite(done) && done > high)
            high = done;
    }
    a.low = (int)floor(log10(low));
    a.high = (int)ceil(log10(high));
    if (a.high <= a.low)
        a.high = a.low + 1;
    return a;
}

static dlc_err text(struct dlc_buf *out, double x, double y, const char *anchor, const char *words)
{
    return dlc_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words);
}

static dlc_err line(struct dlc_buf *out, double x1, double y1, double x2, double y2, const char *colour,
                    const char *dashes, int width)
{
    return dlc_buf_printf(out,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%d\" "
                          "stroke-dasharray=\"%s\"/>\n",
                          x1, y1, x2, y2, colour, width, dashes);
}

static dlc_err grid(struct dlc_buf *out, const struct axis *a)
{
    int every = (a->high - a->low + 7) / 8;

    for (int percent = 0; percent <= 100; percent += 20) {
        char label[16];

        snprintf(label, sizeof label, "%d %%", percent);
        DLC_TRY(line(out, LEFT, y_of(percent / 100.0), LEFT + PLOT_W, y_of(percent / 100.0), "#dddddd", "", 1));
        DLC_TRY(text(out, LEFT - 8, y_of(percent / 100.0) + 4, "end", label));
    }
    for (int d = a->low; d <= a->high; d++) {
        char label[DLC_UNITS_TEXT];
        double x = x_of(a, pow(10, d));

        dlc_format_rate(label, pow(10, d));
        DLC_TRY(line(out, x, TOP, x, TOP + PLOT_H, "#dddddd", "", 1));
        if ((d - a->low) % every == 0)
            DLC_TRY(text(out, x, TOP + PLOT_H + 18, "middle", label));
    }
    return DLC_OK;
}

static dlc_err curve(struct dlc_buf *out, const struct dlc_plan_way *way, int pen, const struct axis *a,
                     const struct dlc_plan_setup *s)
{
    DLC_TRY(dlc_buf_printf(out,
                           "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" points=\"",
                           pens[pen].colour, pens[pen].dashes));
    for (int i = 0; i <= N_POINTS; i++) {
        double rate = pow(10, a->low + (a->high - a->low) * (double)i / N_POINTS);
        double y = y_of(dlc_plan_utilisation(way, s, rate / s->link.down_bits_per_s));

        DLC_TRY(dlc_buf_printf(out, "%s%.1f,%.1f", i ? " " : "", x_of(a, rate), y));
    }
    return dlc_buf_printf(out, "\"/>\n");
}

static dlc_err legend(struct dlc_buf *out, const struct dlc_plan_way *way, int row, const struct dlc_plan_setup *s)
{
    double x = LEFT + PLOT_W + 20, y = TOP + 14 + 24 * row;
    char label[120];

    snprintf(label, sizeof label, "%s%s, %s%s%s: %.3g %%", way->name, dlc_plan_trainable(way, &s->can) ? "" : " *",
             way->up->name, way->up == way->down ? "" : "/", way->up == way->down ? "" : way->down->name,
             100 * dlc_plan_utilisation(way, s, 1));
    DLC_TRY(line(out, x, y, x + 32, y, pens[row].colour, pens[row].dashes, 2));
    return text(out, x + 40, y + 4, "start", label);
}

static dlc_err titles(struct dlc_buf *out, const struct axis *a, const struct dlc_plan_setup *s)
{
    char rate[DLC_UNITS_TEXT], step[DLC_UNITS_TEXT], latency[DLC_UNITS_TEXT], params[DLC_UNITS_TEXT], words[240];
    double x = x_of(a, s->link.down_bits_per_s);

    dlc_format_rate(rate, s->link.down_bits_per_s);
    dlc_format_duration(step, s->step_s);
    dlc_format_count(params, s->n_params);
    dlc_format_duration(latency, s->link.latency_s);
    snprintf(words, sizeof words,
             "%s parameters, %d islands, %s an inner step, %s one way, H %d, %d fragments, overlap %d", params,
             s->n_islands, step, latency, s->H, s->fragments, s->overlap);
    DLC_TRY(text(out, LEFT, 24, "start", words));
    snprintf(words, sizeof words, "link of an island, down (up and the coordinator's in proportion); dotted: %s", rate);
    DLC_TRY(text(out, LEFT + PLOT_W / 2.0, TOP + PLOT_H + 44, "middle", words));
    DLC_TRY(text(out, LEFT, TOP - 10, "start", "compute utilisation"));
    DLC_TRY(text(out, LEFT + PLOT_W + 20, TOP - 10, "start", "at the dotted link"));
    DLC_TRY(
        text(out, LEFT + PLOT_W + 20, TOP + 24 * (DLC_PLAN_N_WAYS + 1), "start", "* planned: cannot be trained yet"));
    return line(out, x, TOP, x, TOP + PLOT_H, "#555555", "2 4", 1);
}

dlc_err dlc_plan_svg(struct dlc_buf *out, const struct dlc_plan_setup *s)
{
    struct dlc_plan_way ways[DLC_PLAN_N_WAYS];
    struct axis a;

    dlc_plan_ways(ways, s);
    a = axis_of(ways, s);
    DLC_TRY(dlc_buf_printf(out,
                           "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                           "font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n"
                           "<title>Compute utilisation against the rate of the link</title>\n"
                           "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                           WIDTH, HEIGHT, WIDTH, HEIGHT));
    DLC_TRY(grid(out, &a));
    DLC_TRY(titles(out, &a, s));
    for (int i = 0; i < DLC_PLAN_N_WAYS; i++) {
        DLC_TRY(curve(out, &ways[i], i, &a, s));
        DLC_TRY(legend(out, &ways[i], i, s));
    }
    return dlc_buf_printf(out, "</svg>\n");
}
