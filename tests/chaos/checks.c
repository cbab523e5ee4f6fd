#include "checks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ckpt/ckpt.h"

void chaos_findings_fini(struct chaos_findings *f)
{
    dlc_buf_fini(&f->wrong);
}

/* --- the folder ------------------------------------------------------------------------------------------ */

static int by_place(const void *a, const void *b)
{
    const struct dlc_range *x = a, *y = b;

    if (x->pool != y->pool)
        return x->pool < y->pool ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static dlc_err add(struct dlc_ranges *all, const struct dlc_ranges *more)
{
    for (size_t i = 0; i < more->n; i++)
        DLC_TRY(dlc_ranges_add(all, more->items[i]));
    return DLC_OK;
}

/* Ranges of the whole history; what each record says of all tokens so far must be what its ranges add up to. */
static dlc_err collect(struct chaos_findings *f, struct dlc_ranges *all, const struct dlc_records *records,
                       int tokens_per_sample)
{
    for (size_t i = 0; i < records->n; i++) {
        const struct dlc_record *r = &records->items[i];

        for (size_t m = 0; m < r->n_members; m++) {
            f->n_samples += dlc_ranges_count(&r->members[m].ranges);
            DLC_TRY(add(all, &r->members[m].ranges));
        }
        DLC_TRY(add(all, &r->discarded));
        if (r->n_tokens != f->n_samples * (uint64_t)tokens_per_sample)
            DLC_TRY(dlc_buf_printf(&f->wrong,
                                   "record %" PRIu64 " counts %" PRIu64 " tokens, its samples make %" PRIu64 "\n", r->t,
                                   r->n_tokens, f->n_samples * (uint64_t)tokens_per_sample));
        f->n_tokens = r->n_tokens;
    }
    return DLC_OK;
}

static dlc_err check_ledger(struct chaos_findings *f, const struct dlc_records *records, int tokens_per_sample)
{
    struct dlc_ranges all = { 0 };
    dlc_err err = collect(f, &all, records, tokens_per_sample);
    uint64_t next = 0;
    int pool = -1;

    if (err == DLC_OK && all.n > 0)
        qsort(all.items, all.n, sizeof all.items[0], by_place);
    for (size_t i = 0; err == DLC_OK && i < all.n; i++) {
        const struct dlc_range *r = &all.items[i];

        next = r->pool == pool ? next : 0;
        pool = r->pool;
        if (r->start < next)
            err = dlc_buf_printf(&f->wrong, "samples [%" PRIu64 ", %" PRIu64 ") of pool %d are in two records\n",
                                 r->start, next, r->pool);
        else
            f->n_unused_samples += r->start - next;
        if (r->start + r->count > next)
            next = r->start + r->count;
    }
    dlc_ranges_fini(&all);
    return err;
}

/* The newest checkpoint is whole, and its record is the one in the chain. */
static dlc_err check_checkpoint(struct chaos_findings *f, const struct dlc_records *records, const char *run_folder)
{
    char folder[DLC_PATH_MAX];
    json_t *info = NULL;
    const char *line;
    uint64_t t;
    dlc_err err = dlc_ckpt_find(folder, &t, run_folder);
    struct dlc_record kept;

    if (err == DLC_OK)
        err = dlc_ckpt_verify(folder, &info);
    if (err == DLC_OK)
        err = dlc_json_get_string(&line, info, "record", folder);
    if (err == DLC_OK)
        err = dlc_record_from_line(&kept, line, strlen(line), folder);
    json_decref(info);
    if (err != DLC_OK)
        return err == DLC_ENOMEM ? err : dlc_buf_printf(&f->wrong, "no checkpoint: %s\n", dlc_err_text());
    if (t == 0 || t > records->n || !dlc_sha256_equal(&kept.hash, &records->items[t - 1].hash))
        err = dlc_buf_printf(&f->wrong, "checkpoint %" PRIu64 " is not of the history of %zu records\n", t, records->n);
    dlc_record_fini(&kept);
    return err;
}

dlc_err chaos_check_folder(struct chaos_findings *f, struct dlc_records *records, const char *run_folder,
                           int tokens_per_sample)
{
    struct dlc_run_identity identity;
    dlc_err err;

    *f = (struct chaos_findings){ 0 };
    *records = (struct dlc_records){ 0 };
    DLC_TRY(dlc_run_identity_read(&identity, run_folder));
    err = dlc_records_read(records, run_folder, identity.run_id); /* chain and hashes */
    if (err == DLC_ENOMEM)
        return err;
    if (err != DLC_OK)
        return dlc_buf_printf(&f->wrong, "%s\n", dlc_err_text());
    f->n_records = records->n;
    DLC_TRY(check_ledger(f, records, tokens_per_sample));
    return records->n ? check_checkpoint(f, records, run_folder) : dlc_buf_printf(&f->wrong, "no record\n");
}

dlc_err chaos_check_theta(struct chaos_findings *f, const struct dlc_records *records, uint64_t t, const char *theta,
                          const char *who)
{
    char expected[DLC_SHA256_HEX];

    if (t == 0 || t > records->n)
        return dlc_buf_printf(&f->wrong, "%s stands at outer step %" PRIu64 " of %zu\n", who, t, records->n);
    dlc_sha256_to_hex(expected, &records->items[t - 1].theta);
    if (strcmp(expected, theta) == 0)
        return DLC_OK;
    return dlc_buf_printf(&f->wrong, "%s has theta(%" PRIu64 ") %.12s, the record %.12s\n", who, t, theta, expected);
}

/* --- times and shares ------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Sorts. NaN: none. */
static double median(double *v, size_t n)
{
    if (n == 0)
        return NAN;
    qsort(v, n, sizeof *v, by_size);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Whether the island had a fault at any time in [from, to]. */
static bool had_fault(const struct chaos_fault *faults, size_t n, int island, double from_s, double to_s)
{
    for (size_t i = 0; i < n; i++)
        if (faults[i].island == island && faults[i].at_s <= to_s && faults[i].at_s + faults[i].for_s >= from_s)
            return true;
    return false;
}

static void count_fates(struct chaos_findings *f, const struct dlc_record *r, uint64_t *n_summed)
{
    *n_summed = 0;
    for (size_t m = 0; m < r->n_members; m++) {
        *n_summed += r->members[m].fate == DLC_MEMBER_SUMMED;
        f->n_late += r->members[m].fate == DLC_MEMBER_LATE;
        f->n_refused += r->members[m].fate == DLC_MEMBER_REFUSED;
        f->n_dropped += r->members[m].fate == DLC_MEMBER_DROPPED;
    }
}

static void measure_shares(struct chaos_findings *f, const struct dlc_records *records,
                           const struct chaos_commit *commits, size_t n_commits, const struct chaos_fault *faults,
                           size_t n_faults)
{
    double alive = 0, running = 0, steps = 0, used = 0;
    size_t n_storm = 0;
    uint64_t n_summed;

    for (size_t i = 0; i < records->n; i++) {
        const struct dlc_record *r = &records->items[i];
        double n_steps = (double)(r->step - (i ? records->items[i - 1].step : 0));
        double from_s = i > 0 && i <= n_commits ? commits[i - 1].at_s : -INFINITY;

        count_fates(f, r, &n_summed);
        alive += r->n_alive > 0 ? (double)n_summed / r->n_alive : 0;
        if (i >= n_commits || commits[i].at_s < 0)
            continue;
        n_storm++;
        running += commits[i].n_running > 0 ? fmin(1, (double)n_summed / commits[i].n_running) : 0;
        for (size_t m = 0; m < r->n_members; m++) {
            if (had_fault(faults, n_faults, r->members[m].island, from_s, commits[i].at_s))
                continue;
            steps += n_steps;
            used += r->members[m].fate == DLC_MEMBER_SUMMED ? n_steps : 0;
        }
    }
    f->contributing_of_alive = records->n ? alive / (double)records->n : NAN;
    f->contributing_of_running = n_storm ? running / (double)n_storm : NAN;
    f->survivors_steps_used = steps > 0 ? used / steps : NAN;
}

static void measure_rounds(struct chaos_findings *f, double *v, const struct chaos_commit *commits, size_t n_commits)
{
    size_t n = 0;

    for (size_t i = 1; i < n_commits; i++) {
        if (commits[i].at_s < 0)
            continue;
        v[n++] = commits[i].at_s - commits[i - 1].at_s;
        f->longest_stop_s = fmax(f->longest_stop_s, v[n - 1]);
    }
    f->round_median_s = median(v, n);
}

static void measure_recovery(struct chaos_findings *f, double *v, const struct chaos_commit *commits, size_t n_commits,
                             const struct chaos_fault *faults, size_t n_faults)
{
    size_t n = 0;

    for (size_t i = 0; i < n_faults; i++) {
        size_t k = 0;

        if (faults[i].kind != CHAOS_KILL_ISLAND)
            continue;
        while (k < n_commits && commits[k].at_s < faults[i].at_s)
            k++;
        if (k < n_commits) /* else the run ended; that is another finding */
            v[n++] = (commits[k].at_s - faults[i].at_s) / f->round_median_s;
    }
    f->recovery_median_rounds = median(v, n);
    f->recovery_worst_rounds = n ? v[n - 1] : NAN;
}

dlc_err chaos_measure(struct chaos_findings *f, const struct dlc_records *records, const struct chaos_commit *commits,
                      size_t n_commits, const struct chaos_fault *faults, size_t n_faults)
{
    double *v = dlc_alloc((n_commits + n_faults) * sizeof *v);

    if (!v)
        return DLC_ENOMEM;
    measure_shares(f, records, commits, n_commits, faults, n_faults);
    measure_rounds(f, v, commits, n_commits);
    measure_recovery(f, v, commits, n_commits, faults, n_faults);
    dlc_free(v);
    return DLC_OK;
}
