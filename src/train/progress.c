#include "train/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"

#define LINE_EVERY_S 10.0     /* not on a terminal */
#define LINE_EVERY_TTY_S 0.25 /* on one */

struct row { /* of one inner step, until every island has reported it */
    int64_t step;
    int n_reported;
    double *loss, *norm, *seconds; /* [islands]; NaN: not reported */
    double lr;
};

struct times {                 /* seconds */
    double inner, data, outer; /* in inner steps, of that waiting for samples; between rounds */
};

struct dlc_progress {
    const struct dlc_config *config;
    const struct dlc_traffic *traffic;
    char path[DLC_PATH_MAX];
    FILE *file;
    bool quiet, tty, recording;
    size_t n_params;
    int64_t first_step; /* steps below are in the file */

    struct row *rows; /* open ones, a ring of n_rows by step */
    size_t n_rows;
    double *values; /* the rows' arrays */

    double began_s, last_line_s, last_waiting_s;
    int64_t began_step;
    bool line_open; /* a rewritten line stands on the terminal */
    double loss, tok_per_s, lr;
    struct dlc_eval_result last_eval;
    bool has_eval;
    uint64_t outer_step, n_rounds;
    struct times round, run; /* of all islands together; round: contributions since the last outer step */
};

/* Enough open rows for islands a whole round apart. */
static size_t open_rows(const struct dlc_config *c)
{
    int64_t in_round = c->outer.steps < c->train.steps ? c->outer.steps : c->train.steps;

    return (size_t)in_round + 2;
}

static void clear_row(struct row *r, int k)
{
    r->step = -1;
    r->n_reported = 0;
    for (int i = 0; i < k; i++)
        r->loss[i] = NAN;
}

static dlc_err allocate(dlc_progress *p)
{
    int k = p->config->train.islands;
    size_t per_row = 3 * (size_t)k;

    p->n_rows = open_rows(p->config);
    p->rows = dlc_calloc(p->n_rows, sizeof *p->rows);
    p->values = dlc_calloc(p->n_rows * per_row, sizeof *p->values);
    if (!p->rows || !p->values)
        return DLC_ENOMEM;
    for (size_t i = 0; i < p->n_rows; i++) {
        p->rows[i].loss = p->values + i * per_row;
        p->rows[i].norm = p->rows[i].loss + k;
        p->rows[i].seconds = p->rows[i].norm + k;
        clear_row(&p->rows[i], k);
    }
    return DLC_OK;
}

dlc_err dlc_progress_create(dlc_progress **out, const struct dlc_config *config, const char *run_folder,
                            const struct dlc_traffic *traffic, int64_t first_step, bool quiet)
{
    dlc_progress *p = dlc_calloc(1, sizeof *p);
    dlc_err err;

    *out = NULL;
    if (!p)
        return DLC_ENOMEM;
    *p =
        (dlc_progress){ .config = config,
                        .traffic = traffic,
                        .quiet = quiet,
                        .recording = true,
                        .tty = isatty(STDERR_FILENO) == 1,
                        .n_params = dlc_model_n_params(&config->model.shape),
                        .first_step = first_step,
                        .outer_step = (uint64_t)(first_step / config->outer.steps),
                        .began_s = dlc_now_s(),
                        .began_step = first_step,
                        .n_rounds = (uint64_t)((config->train.steps + config->outer.steps - 1) / config->outer.steps) };
    DLC_TRY_TO(fail, dlc_path_join(p->path, run_folder, "metrics.jsonl"));
    DLC_TRY_TO(fail, allocate(p));
    p->file = fopen(p->path, "ae");
    if (!p->file) {
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be opened", p->path);
        goto fail;
    }
    *out = p;
    return DLC_OK;
fail:
    dlc_progress_destroy(p);
    return err;
}

void dlc_progress_destroy(dlc_progress *p)
{
    if (!p)
        return;
    if (p->line_open)
        (void)!write(STDERR_FILENO, "\n", 1);
    if (p->file)
        fclose(p->file);
    dlc_free(p->rows);
    dlc_free(p->values);
    dlc_free(p);
}

void dlc_progress_set_recording(dlc_progress *p, bool recording)
{
    p->recording = recording;
}

/* --- metrics.jsonl -------------------------------------------------------------------------------------------------
 */

/* Takes the reference. */
static dlc_err write_row(dlc_progress *p, json_t *row)
{
    char *text = row ? json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    dlc_err err = DLC_OK;

    json_decref(row);
    if (!text)
        return dlc_fail(DLC_ENOMEM, "out of memory: a row of %s", p->path);
    if (!p->recording)
        err = DLC_OK;
    else if (fprintf(p->file, "%s\n", text) < 0 || fflush(p->file) != 0)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", p->path);
    free(text); /* jansson's */
    return err;
}

/* A number, or null where it is not finite: JSON has no NaN. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static uint64_t tokens_a_step(const dlc_progress *p)
{
    const struct dlc_config *c = p->config;

    return (uint64_t)c->train.islands * (uint64_t)c->train.batch * (uint64_t)c->model.shape.context;
}

/* Bytes that data parallelism would have sent and received by now, all islands together. */
static uint64_t dp_bytes(const dlc_progress *p, int64_t step, int bytes_per_value)
{
    return (uint64_t)step * (uint64_t)p->config->train.islands * 2 * p->n_params * (uint64_t)bytes_per_value;
}

static struct dlc_traffic total_traffic(const dlc_progress *p)
{
    struct dlc_traffic sum = { 0 };

    for (int i = 0; i < p->config->train.islands; i++) {
        sum.bytes_up += p->traffic[i].bytes_up;
        sum.bytes_down += p->traffic[i].bytes_down;
    }
    return sum;
}

/* --- for people ----------------------------------------------------------------------------------------------------
 */

static void left_text(char out[24], const dlc_progress *p, int64_t step)
{
    double done = (double)(step - p->began_step), left = (double)(p->config->train.steps - step);
    double s = done > 0 ? left * (dlc_now_s() - p->began_s) / done : 0;

    if (done <= 0)
        snprintf(out, 24, "?");
    else if (s >= 3600)
        snprintf(out, 24, "%dh%02dm", (int)(s / 3600), (int)(s / 60) % 60);
    else
        snprintf(out, 24, "%dm%02ds", (int)(s / 60), (int)s % 60);
}

static void show(dlc_progress *p, const char *text)
{
    char line[512];
    int n = snprintf(line, sizeof line, p->tty ? "\r\033[K%s" : "%s\n", text);

    if (n > 0)
        (void)!write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    p->line_open = p->tty;
}

/* One island alone sends nothing to anybody else. */
static void traffic_text(char out[80], const dlc_progress *p, int64_t step)
{
    struct dlc_traffic sum = total_traffic(p);
    char sent[DLC_UNITS_TEXT], dp[DLC_UNITS_TEXT];

    out[0] = '\0';
    if (p->config->train.islands == 1)
        return;
    dlc_format_bytes(sent, (double)(sum.bytes_up + sum.bytes_down));
    dlc_format_bytes(dp, (double)dp_bytes(p, step, 4));
    snprintf(out, 80, " | sent %s, data parallel %s", sent, dp);
}

static void show_step(dlc_progress *p, int64_t step, bool now)
{
    char left[24], traffic[80], line[400];
    double every_s = p->tty ? LINE_EVERY_TTY_S : LINE_EVERY_S;

    if (p->quiet || (!now && dlc_now_s() - p->last_line_s < every_s))
        return;
    p->last_line_s = dlc_now_s();
    left_text(left, p, step);
    traffic_text(traffic, p, step);
    snprintf(line, sizeof line,
             "step %lld/%lld (%.0f%%) | loss %.4f | lr %.2e | %.3gk tok/s | left %s | outer %llu/%llu%s",
             (long long)step, (long long)p->config->train.steps, 100.0 * (double)step / (double)p->config->train.steps,
             p->loss, p->lr, p->tok_per_s * 1e-3, left, (unsigned long long)p->outer_step,
             (unsigned long long)p->n_rounds, traffic);
    show(p, line);
}

void dlc_progress_waiting(dlc_progress *p, const int *islands, int n, double seconds)
{
    char line[400];
    int at;

    if (p->quiet || dlc_now_s() - p->last_waiting_s < (p->tty ? 1 : LINE_EVERY_S))
        return;
    p->last_waiting_s = dlc_now_s();
    at = snprintf(line, sizeof line,
                  "outer step %llu: waiting for %d island%s since %.0f s:", (unsigned long long)p->outer_step + 1, n,
                  n == 1 ? "" : "s", seconds);
    for (int i = 0; i < n && i < 16; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, " %d", islands[i]);
    show(p, line);
}

/* --- steps ---------------------------------------------------------------------------------------------------------
 */

static dlc_err finish_row(dlc_progress *p, struct row *r)
{
    int k = p->config->train.islands;
    double loss = 0, norm = 0, tok_per_s = 0;
    double tokens = (double)p->config->train.batch * p->config->model.shape.context;
    int64_t step = r->step + 1;
    dlc_err err;

    for (int i = 0; i < k; i++) {
        loss += r->loss[i] / k;
        norm += r->norm[i] / k;
        tok_per_s += r->seconds[i] > 0 ? tokens / r->seconds[i] : 0;
    }
    p->loss = loss;
    p->lr = r->lr;
    p->tok_per_s = tok_per_s;
    err = write_row(p, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:f}", "step", (json_int_t)step, "tokens",
                                 (json_int_t)(tokens_a_step(p) * (uint64_t)step), "train/loss", number(loss),
                                 "train/lr", number(r->lr), "train/grad_norm", number(norm), "train/tok_per_sec",
                                 number(tok_per_s), "time", dlc_wall_s()));
    clear_row(r, k);
    if (step > p->first_step)
        p->first_step = step;
    show_step(p, step, step == p->config->train.steps);
    return err;
}

static dlc_err report(dlc_progress *p, int island, int64_t step, double loss, double norm, double seconds, double lr)
{
    struct row *r = &p->rows[(size_t)step % p->n_rows];

    if (r->step != step) { /* rows left over from a round that was given up */
        clear_row(r, p->config->train.islands);
        r->step = step;
    }
    r->n_reported += isnan(r->loss[island]) && r->loss[island] != r->loss[island];
    r->loss[island] = loss;
    r->norm[island] = norm;
    r->seconds[island] = seconds;
    r->lr = lr;
    return r->n_reported == p->config->train.islands ? finish_row(p, r) : DLC_OK;
}

dlc_err dlc_progress_step(dlc_progress *p, int island, const struct dlc_message *m)
{
    int64_t every = p->config->train.log_every;

    /* Others are signs of life only; and what an island trains a second time is in the file already. */
    if (m->step < p->first_step || ((m->step + 1) % every != 0 && m->step + 1 != p->config->train.steps) || m->step < 0)
        return DLC_OK;
    return report(p, island, m->step, m->loss, m->grad_norm, m->seconds, m->lr);
}

json_t *dlc_progress_to_json(const dlc_progress *p)
{
    json_t *rows = json_array();

    for (size_t i = 0; rows && i < p->n_rows; i++) {
        const struct row *r = &p->rows[i];

        for (int k = 0; r->step >= p->first_step && k < p->config->train.islands; k++) {
            if (!isnan(r->loss[k]))
                json_array_append_new(rows, json_pack("[iIffff]", k, (json_int_t)r->step, r->loss[k], r->norm[k],
                                                      r->seconds[k], r->lr));
        }
    }
    return json_pack("{s:I, s:o}", "first_step", (json_int_t)p->first_step, "rows", rows);
}

dlc_err dlc_progress_from_json(dlc_progress *p, const json_t *saved, const char *where)
{
    json_t *rows;

    DLC_TRY(dlc_json_get_array(&rows, saved, "rows", where));
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        int island;
        json_int_t step;
        double v[4];

        if (json_unpack(row, "[iIFFFF]", &island, &step, &v[0], &v[1], &v[2], &v[3]) != 0 || island < 0 ||
            island >= p->config->train.islands || step < 0)
            return dlc_fail(DLC_EINPUT, "%s: row %zu is not one of ours", where, i);
        DLC_TRY(report(p, island, step, v[0], v[1], v[2], v[3]));
    }
    return DLC_OK;
}

/* --- where the time went --------------------------------------------------------------------------------------------
 */

static void add_times(struct times *sum, const struct times *t)
{
    sum->inner += t->inner;
    sum->data += t->data;
    sum->outer += t->outer;
}

void dlc_progress_contribution(dlc_progress *p, const struct dlc_message *m)
{
    add_times(&p->round, &(struct times){ m->seconds, m->data_s, m->outer_s });
}

static double data_share(const struct times *t)
{
    return t->inner > 0 ? t->data / t->inner : NAN;
}

/* Of the islands' time, what was not an inner step. */
static double outer_share(const struct times *t)
{
    return t->inner > 0 ? t->outer / (t->inner + t->outer) : NAN;
}

/* --- outer steps, validation, the end -------------------------------------------------------------------------------
 */

dlc_err dlc_progress_outer(dlc_progress *p, const struct dlc_record *r, double wait_s)
{
    struct dlc_traffic sum = total_traffic(p);
    struct times round = p->round;
    int contributing = 0;

    for (size_t i = 0; i < r->n_members; i++)
        contributing += r->members[i].fate == DLC_MEMBER_SUMMED || r->members[i].fate == DLC_MEMBER_CARRIED;
    p->outer_step = r->t;
    add_times(&p->run, &round);
    p->round = (struct times){ 0 };
    return write_row(p, json_pack("{s:I, s:I, s:I, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:f, s:f}", "step",
                                  (json_int_t)r->step, "tokens", (json_int_t)r->n_tokens, "outer/step",
                                  (json_int_t)r->t, "outer/islands_alive", r->n_alive, "outer/islands_contributing",
                                  contributing, "outer/bytes_up", (json_int_t)sum.bytes_up, "outer/bytes_down",
                                  (json_int_t)sum.bytes_down, "outer/wait_s", number(wait_s), "outer/time_share",
                                  number(outer_share(&round)), "train/data_wait_share", number(data_share(&round)),
                                  "outer/delta_norm", r->delta_norm, "time", dlc_wall_s()));
}

dlc_err dlc_progress_eval(dlc_progress *p, uint64_t outer_step, int64_t step, const struct dlc_eval_result *e)
{
    char line[200];

    p->last_eval = *e;
    p->has_eval = true;
    if (!p->quiet) {
        snprintf(line, sizeof line,
                 "outer step %llu, step %lld: validation loss %.4f, perplexity %.2f, %.4f bits a byte",
                 (unsigned long long)outer_step, (long long)step, e->loss, e->ppl, e->bpb);
        show(p, line);
        if (p->tty)
            (void)!write(STDERR_FILENO, "\n", 1);
        p->line_open = false;
    }
    return write_row(p, json_pack("{s:I, s:I, s:o, s:o, s:o}", "step", (json_int_t)step, "outer/step",
                                  (json_int_t)outer_step, "val/loss", number(e->loss), "val/ppl", number(e->ppl),
                                  "val/bpb", number(e->bpb)));
}

static double ratio(uint64_t dp, uint64_t ours)
{
    return ours ? (double)dp / (double)ours : 0;
}

static void say_memory(const struct dlc_memory_use *m)
{
    const double mb = 1024.0 * 1024.0;

    if (m->island_peak)
        dlc_info("memory at most: an island %.1f MB (predicted %.1f), coordinator %.1f MB (predicted %.1f)",
                 (double)m->island_peak / mb, (double)m->island_planned / mb, (double)m->own_peak / mb,
                 (double)m->own_planned / mb);
    else if (m->own_peak)
        dlc_info("memory at most: %.1f MB (predicted %.1f)", (double)m->own_peak / mb, (double)m->own_planned / mb);
}

/* What is known of the memory, into the last row. */
static int add_memory(json_t *row, const struct dlc_memory_use *m)
{
    const struct {
        const char *key;
        size_t bytes;
    } rows[] = {
        { "memory/island_planned", m->island_planned },
        { "memory/island_peak", m->island_peak },
        { "memory/coordinator_planned", m->own_planned },
        { "memory/coordinator_peak", m->own_peak },
    };
    int rc = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        rc |= json_object_set_new(row, rows[i].key,
                                  rows[i].bytes ? json_integer((json_int_t)rows[i].bytes) : json_null());
    return rc;
}

static void say_summary(dlc_progress *p, const struct dlc_record *last, uint64_t ours, uint64_t dp4, uint64_t dp2)
{
    char sent[DLC_UNITS_TEXT], f32[DLC_UNITS_TEXT], bf16[DLC_UNITS_TEXT];

    dlc_format_bytes(sent, (double)ours);
    dlc_format_bytes(f32, (double)dp4);
    dlc_format_bytes(bf16, (double)dp2);
    if (p->line_open)
        (void)!write(STDERR_FILENO, "\n", 1);
    p->line_open = false;
    if (p->has_eval)
        dlc_info("done: %lld steps, %llu tokens, validation perplexity %.2f (loss %.4f, %.4f bits a byte)",
                 (long long)last->step, (unsigned long long)last->n_tokens, p->last_eval.ppl, p->last_eval.loss,
                 p->last_eval.bpb);
    else
        dlc_info("done: %lld steps, %llu tokens", (long long)last->step, (unsigned long long)last->n_tokens);
    if (p->run.inner > 0)
        dlc_info("time of the islands: %.2f %% in outer steps, %.3f %% waiting for data", 100 * outer_share(&p->run),
                 100 * data_share(&p->run));
    if (ours && p->config->train.method == DLC_METHOD_DILOCO)
        dlc_info("sent and received %s by all islands; data parallelism: %s in f32 (%.0fx), %s in bf16 (%.0fx)", sent,
                 f32, ratio(dp4, ours), bf16, ratio(dp2, ours));
    else if (ours && p->config->train.islands > 1)
        dlc_info("sent and received %s by all islands", sent);
}

dlc_err dlc_progress_summary(dlc_progress *p, const struct dlc_record *last, const struct dlc_memory_use *memory,
                             bool json)
{
    static const char *const methods[] = { "diloco", "dp", "single" };
    struct dlc_traffic sum = total_traffic(p);
    bool alone = p->config->train.islands == 1;
    uint64_t ours = alone ? 0 : sum.bytes_up + sum.bytes_down; /* one island sends nothing to anybody else */
    uint64_t dp4 = alone ? 0 : dp_bytes(p, last->step, 4), dp2 = dp4 / 2;
    const struct dlc_eval_result *e = &p->last_eval;
    json_t *row =
        json_pack("{s:I, s:b, s:s, s:i, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "step",
                  (json_int_t)last->step, "final", 1, "method", methods[p->config->train.method], "islands",
                  p->config->train.islands, "tokens", (json_int_t)last->n_tokens, "outer/step", (json_int_t)last->t,
                  "val/loss", p->has_eval ? number(e->loss) : json_null(), "val/ppl",
                  p->has_eval ? number(e->ppl) : json_null(), "val/bpb", p->has_eval ? number(e->bpb) : json_null(),
                  "outer/bytes", (json_int_t)ours, "dp/bytes_f32", (json_int_t)dp4, "dp/bytes_bf16", (json_int_t)dp2,
                  "dp/ratio_f32", ours ? json_real(ratio(dp4, ours)) : json_null(), "dp/ratio_bf16",
                  ours ? json_real(ratio(dp2, ours)) : json_null(), "outer/time_share", number(outer_share(&p->run)),
                  "train/data_wait_share", number(data_share(&p->run)));

    if (row && add_memory(row, memory) != 0) {
        json_decref(row);
        row = NULL;
    }
    if (!p->quiet) {
        say_summary(p, last, ours, dp4, dp2);
        say_memory(memory);
    }
    if (json && row) {
        char *text = json_dumps(row, JSON_REAL_PRECISION(17));

        if (text)
            puts(text);
        free(text);
    }
    return write_row(p, row);
}
