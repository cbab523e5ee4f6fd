#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "history.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "runner.h"

#define FILE_MAX_BYTES ((size_t)64 << 20)
#define RANGES_MAX 8192

struct range {
    int64_t pool, start, count;
};

struct ranges {
    size_t n;
    struct range items[RANGES_MAX];
};

/* Calls fn for each line of the file, parsed. Every line must be whole. */
static void each_line(const char *path, void (*fn)(json_t *line, int number, const char *path, void *self), void *self)
{
    struct dlc_buf text = { 0 };
    json_error_t error;
    int number = 0;

    if (dlc_file_read(&text, path, FILE_MAX_BYTES) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    for (char *line = text.data, *end; line < text.data + text.len; line = end + 1) {
        json_t *v;

        end = strchr(line, '\n');
        if (!end)
            fail_msg("%s: line %d is torn: %.60s", path, number + 1, line);
        v = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, &error);
        if (!v)
            fail_msg("%s: line %d: %s: %.60s", path, number + 1, error.text, line);
        fn(v, ++number, path, self);
        json_decref(v);
    }
    dlc_buf_fini(&text);
}

static const char *text_of(const json_t *v, const char *key)
{
    const char *text = json_string_value(json_object_get(v, key));

    if (!text)
        fail_msg("no text \"%s\"", key);
    return text;
}

static int64_t integer_of(const json_t *v, const char *key)
{
    if (!json_is_integer(json_object_get(v, key)))
        fail_msg("no integer \"%s\"", key);
    return json_integer_value(json_object_get(v, key));
}

/* --- records --------------------------------------------------------------------------------------------- */

struct chain {
    struct history *h;
    char hash[65];
    struct ranges *used;
};

static void check_hash(json_t *record, const char *hash, const char *path, int number)
{
    char *text, hex[DLC_SHA256_HEX];
    struct dlc_sha256 digest;

    json_object_del(record, "hash");
    text = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    assert_non_null(text);
    digest = dlc_sha256(text, strlen(text));
    dlc_sha256_to_hex(hex, &digest);
    if (strcmp(hex, hash) != 0)
        fail_msg("%s: record %d says its hash is %s, it is %s", path, number, hash, hex);
    free(text);
}

static void add_ranges(struct ranges *to, const json_t *list)
{
    size_t i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        assert_true(to->n < RANGES_MAX);
        to->items[to->n++] =
            (struct range){ json_integer_value(json_array_get(item, 0)), json_integer_value(json_array_get(item, 1)),
                            json_integer_value(json_array_get(item, 2)) };
    }
}

static void take_record(json_t *record, int number, const char *path, void *self)
{
    struct chain *c = self;
    struct history *h = c->h;
    char hash[65];
    size_t i;
    json_t *member;

    if (integer_of(record, "t") != number)
        fail_msg("%s: line %d is of outer step %lld", path, number, (long long)integer_of(record, "t"));
    if (number > 1 && strcmp(text_of(record, "prev"), c->hash) != 0)
        fail_msg("%s: record %d does not follow the one before it", path, number);
    snprintf(hash, sizeof hash, "%s", text_of(record, "hash"));
    snprintf(c->hash, sizeof c->hash, "%s", hash);
    snprintf(h->theta[h->n_records++], sizeof h->theta[0], "%s", text_of(record, "theta"));
    assert_true(h->n_records < HISTORY_MAX);
    json_array_foreach(json_object_get(record, "members"), i, member)
        add_ranges(c->used, json_object_get(member, "ranges"));
    add_ranges(c->used, json_object_get(record, "discarded"));
    check_hash(record, hash, path, number);
}

static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    if (x->pool != y->pool)
        return x->pool < y->pool ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static void check_disjoint(struct ranges *r, const char *run)
{
    qsort(r->items, r->n, sizeof r->items[0], by_place);
    for (size_t i = 1; i < r->n; i++) {
        const struct range *a = &r->items[i - 1], *b = &r->items[i];

        if (a->pool == b->pool && a->start + a->count > b->start)
            fail_msg("%s: samples [%lld, %lld) and [%lld, %lld) of pool %lld overlap: consumed twice", run,
                     (long long)a->start, (long long)(a->start + a->count), (long long)b->start,
                     (long long)(b->start + b->count), (long long)a->pool);
    }
}

static void read_records(struct history *h, struct ranges *used, const char *run)
{
    struct chain chain = { .h = h, .used = used };

    used->n = 0;
    h->n_records = 0;
    each_line(in_scratch("%s/records.jsonl", run), take_record, &chain);
    check_disjoint(used, run);
}

void history_is_complete(const char *run, uint64_t n_samples)
{
    static struct history h;
    static struct ranges used;
    int64_t next = 0;

    read_records(&h, &used, run);
    for (size_t i = 0; i < used.n; i++) {
        assert_int_equal(used.items[i].pool, 0);
        if (used.items[i].start != next)
            fail_msg("%s: samples [%lld, %lld) are in no record", run, (long long)next, (long long)used.items[i].start);
        next += used.items[i].count;
    }
    if ((uint64_t)next != n_samples)
        fail_msg("%s: %lld samples are consumed, expected %llu", run, (long long)next, (unsigned long long)n_samples);
}

int history_lines(const char *run)
{
    struct dlc_buf text = { 0 };
    const char *path = in_scratch("%s/records.jsonl", run);
    int n = 0;

    if (!dlc_file_exists(path) || dlc_file_read(&text, path, FILE_MAX_BYTES) != DLC_OK)
        return 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.data[i] == '\n';
    dlc_buf_fini(&text);
    return n;
}

/* --- metrics --------------------------------------------------------------------------------------------- */

static void take_row(json_t *row, int number, const char *path, void *self)
{
    struct history *h = self;

    (void)number;
    (void)path;
    assert_true(h->n_losses < HISTORY_MAX && h->n_outer < HISTORY_MAX && h->n_val < HISTORY_MAX);
    if (json_object_get(row, "train/loss")) {
        h->loss_step[h->n_losses] = integer_of(row, "step");
        h->loss[h->n_losses++] = json_number_value(json_object_get(row, "train/loss"));
    } else if (json_object_get(row, "outer/islands_alive")) {
        h->outer_t[h->n_outer++] = integer_of(row, "outer/step");
    } else if (json_object_get(row, "val/loss") && !json_object_get(row, "final")) {
        h->val_t[h->n_val] = integer_of(row, "outer/step");
        h->val_loss[h->n_val++] = json_number_value(json_object_get(row, "val/loss"));
    }
}

void history_read(struct history *h, const char *run)
{
    static struct ranges used;

    *h = (struct history){ 0 };
    read_records(h, &used, run);
    each_line(in_scratch("%s/metrics.jsonl", run), take_row, h);
}

static void same_losses(const struct history *a, const struct history *b, const char *what)
{
    for (int i = 0; i < a->n_losses && i < b->n_losses; i++) {
        if (a->loss_step[i] != b->loss_step[i])
            fail_msg("%s: metrics row %d with train/loss is of step %lld, expected %lld", what, i,
                     (long long)b->loss_step[i], (long long)a->loss_step[i]);
        if (memcmp(&a->loss[i], &b->loss[i], sizeof a->loss[i]) != 0)
            fail_msg("%s: train/loss of step %lld is %.17g, expected %.17g", what, (long long)a->loss_step[i],
                     b->loss[i], a->loss[i]);
    }
    if (a->n_losses != b->n_losses)
        fail_msg("%s: %d rows with train/loss, expected %d", what, b->n_losses, a->n_losses);
}

static void same_val(const struct history *a, const struct history *b, const char *what)
{
    for (int i = 0; i < a->n_val && i < b->n_val; i++) {
        if (a->val_t[i] != b->val_t[i] || memcmp(&a->val_loss[i], &b->val_loss[i], sizeof a->val_loss[i]) != 0)
            fail_msg("%s: row %d with val/loss is of outer step %lld, %.17g; expected %lld, %.17g", what, i,
                     (long long)b->val_t[i], b->val_loss[i], (long long)a->val_t[i], a->val_loss[i]);
    }
    if (a->n_val != b->n_val)
        fail_msg("%s: %d rows with val/loss, expected %d", what, b->n_val, a->n_val);
}

void history_same(const struct history *a, const struct history *b, const char *what)
{
    if (a->n_records != b->n_records)
        fail_msg("%s: %d records, expected %d", what, b->n_records, a->n_records);
    for (int i = 0; i < a->n_records; i++) {
        if (strcmp(a->theta[i], b->theta[i]) != 0)
            fail_msg("%s: theta(%d) is %.12s, expected %.12s", what, i + 1, b->theta[i], a->theta[i]);
    }
    same_losses(a, b, what);
    for (int i = 0; i < a->n_outer && i < b->n_outer; i++) {
        if (a->outer_t[i] != b->outer_t[i])
            fail_msg("%s: metrics row %d of an outer step is of step %lld, expected %lld", what, i,
                     (long long)b->outer_t[i], (long long)a->outer_t[i]);
    }
    if (a->n_outer != b->n_outer)
        fail_msg("%s: %d rows of outer steps, expected %d", what, b->n_outer, a->n_outer);
    same_val(a, b, what);
}
