#include "outer/ledger.h"

#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

/* Below `next` every sample belongs to one held range or is consumed. Held ranges are few (free leftovers, one or two
 * leases an island), so a sorted array with linear search is enough and easy to check. */

enum holder { FREE = -1, DISCARDED = -2, HOLDER_MAX = 1000000 }; /* >= 0: leased by that island */

#define SAMPLES_MAX ((json_int_t)1 << 60) /* of a pool; no sum of two can overflow */

struct held {
    uint64_t start, count;
    int holder;
};

struct pool {
    uint64_t next;
    struct held *held; /* ascending, disjoint */
    size_t n, cap;
};

struct dlc_ledger {
    int n_pools;
    struct pool *pools;
};

void dlc_ranges_fini(struct dlc_ranges *r)
{
    dlc_free(r->items);
    *r = (struct dlc_ranges){ 0 };
}

dlc_err dlc_ranges_add(struct dlc_ranges *r, struct dlc_range range)
{
    struct dlc_range *last = r->n ? &r->items[r->n - 1] : NULL;

    if (last && last->pool == range.pool && last->start + last->count == range.start) {
        last->count += range.count;
        return DLC_OK;
    }
    if (r->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 4;
        struct dlc_range *items = dlc_realloc(r->items, cap * sizeof *items);

        if (!items)
            return DLC_ENOMEM;
        r->items = items;
        r->cap = cap;
    }
    r->items[r->n++] = range;
    return DLC_OK;
}

dlc_err dlc_ranges_copy(struct dlc_ranges *to, const struct dlc_ranges *from)
{
    to->n = 0;
    for (size_t i = 0; i < from->n; i++)
        DLC_TRY(dlc_ranges_add(to, from->items[i]));
    return DLC_OK;
}

uint64_t dlc_ranges_count(const struct dlc_ranges *r)
{
    uint64_t total = 0;

    for (size_t i = 0; i < r->n; i++)
        total += r->items[i].count;
    return total;
}

json_t *dlc_ranges_to_json(const struct dlc_ranges *r)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < r->n; i++) {
        json_t *item =
            json_pack("[iII]", r->items[i].pool, (json_int_t)r->items[i].start, (json_int_t)r->items[i].count);

        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

dlc_err dlc_ranges_from_json(struct dlc_ranges *out, const json_t *value, const char *where)
{
    uint64_t total = 0;

    out->n = 0;
    if (!json_is_array(value))
        return dlc_fail(DLC_EINPUT, "%s: token ranges should be an array", where);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        json_int_t v[3] = { 0 };

        if (!json_is_array(item) || json_array_size(item) != 3)
            return dlc_fail(DLC_EINPUT, "%s: token range %zu should be [pool, start, count]", where, i);
        for (size_t k = 0; k < 3; k++) {
            const json_t *number = json_array_get(item, k);

            v[k] = json_integer_value(number);
            if (!json_is_integer(number) || v[k] < (k == 2) || v[k] > (k == 0 ? 1000000 : SAMPLES_MAX))
                return dlc_fail(DLC_EINPUT, "%s: token range %zu has a value out of range", where, i);
        }
        total += (uint64_t)v[2];
        if (total > (uint64_t)SAMPLES_MAX)
            return dlc_fail(DLC_EINPUT, "%s: token ranges of more samples than there can be", where);
        DLC_TRY(dlc_ranges_add(out, (struct dlc_range){ (int)v[0], (uint64_t)v[1], (uint64_t)v[2] }));
    }
    return DLC_OK;
}

dlc_err dlc_ledger_create(dlc_ledger **out, int n_pools)
{
    dlc_ledger *l = dlc_calloc(1, sizeof *l);

    *out = NULL;
    if (!l)
        return DLC_ENOMEM;
    l->n_pools = n_pools;
    l->pools = dlc_calloc((size_t)n_pools, sizeof *l->pools);
    if (!l->pools) {
        dlc_free(l);
        return DLC_ENOMEM;
    }
    *out = l;
    return DLC_OK;
}

void dlc_ledger_destroy(dlc_ledger *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->n_pools; i++)
        dlc_free(l->pools[i].held);
    dlc_free(l->pools);
    dlc_free(l);
}

int dlc_ledger_n_pools(const dlc_ledger *l)
{
    return l->n_pools;
}

static dlc_err room_for(struct pool *p, size_t extra)
{
    size_t cap = p->n + extra;
    struct held *held;

    if (cap <= p->cap)
        return DLC_OK;
    cap = cap < 16 ? 16 : 2 * cap;
    held = dlc_realloc(p->held, cap * sizeof *held);
    if (!held)
        return DLC_ENOMEM;
    p->held = held;
    p->cap = cap;
    return DLC_OK;
}

/* Cuts held range i at `at` (inside it) into two. Room for one more was made. */
static void split(struct pool *p, size_t i, uint64_t at)
{
    struct held *h = &p->held[i];
    uint64_t left = at - h->start;

    memmove(h + 1, h, (p->n - i) * sizeof *h);
    p->n++;
    h[0].count = left;
    h[1].start = at;
    h[1].count -= left;
}

static void remove_at(struct pool *p, size_t i)
{
    memmove(&p->held[i], &p->held[i + 1], (p->n - i - 1) * sizeof *p->held);
    p->n--;
}

/* Neighbours with the same holder become one range. */
static void join_neighbours(struct pool *p)
{
    size_t w = 0;

    for (size_t i = 0; i < p->n; i++) {
        struct held *last = w ? &p->held[w - 1] : NULL;

        if (last && last->holder == p->held[i].holder && last->start + last->count == p->held[i].start)
            last->count += p->held[i].count;
        else
            p->held[w++] = p->held[i];
    }
    p->n = w;
}

static dlc_err lease_from_held(struct pool *p, struct dlc_ranges *out, int island, int pool, uint64_t *wanted)
{
    for (size_t i = 0; i<p->n && * wanted> 0; i++) {
        if (p->held[i].holder != FREE)
            continue;
        if (p->held[i].count > *wanted)
            split(p, i, p->held[i].start + *wanted);
        DLC_TRY(dlc_ranges_add(out, (struct dlc_range){ pool, p->held[i].start, p->held[i].count }));
        p->held[i].holder = island;
        *wanted -= p->held[i].count;
    }
    return DLC_OK;
}

dlc_err dlc_ledger_lease(dlc_ledger *l, struct dlc_ranges *out, int island, int pool, uint64_t count)
{
    struct pool *p;

    if (island < 0 || pool < 0 || pool >= l->n_pools)
        return dlc_fail(DLC_EFAIL, "lease for island %d from pool %d of %d", island, pool, l->n_pools);
    p = &l->pools[pool];
    if (count > (uint64_t)SAMPLES_MAX - p->next)
        return dlc_fail(DLC_EFAIL, "lease of %llu samples from pool %d after %llu", (unsigned long long)count, pool,
                        (unsigned long long)p->next);
    DLC_TRY(room_for(p, 2));
    DLC_TRY(lease_from_held(p, out, island, pool, &count));
    if (count > 0) {
        DLC_TRY(dlc_ranges_add(out, (struct dlc_range){ pool, p->next, count }));
        p->held[p->n++] = (struct held){ p->next, count, island };
        p->next += count;
    }
    join_neighbours(p);
    return DLC_OK;
}

static bool leased_wholly(const struct pool *p, int island, uint64_t start, uint64_t count)
{
    uint64_t end = start + count;

    for (size_t i = 0; i < p->n && start < end; i++) {
        const struct held *h = &p->held[i];

        if (h->start + h->count <= start)
            continue;
        if (h->start > start || h->holder != island)
            return false;
        start = h->start + h->count;
    }
    return start >= end;
}

/* `keep`: the range stays held by `holder`; otherwise it becomes consumed (no longer held). */
static void move_range(struct pool *p, int island, uint64_t start, uint64_t count, bool keep, int holder)
{
    uint64_t end = start + count;

    for (size_t i = 0; i < p->n; i++) {
        if (p->held[i].holder != island || p->held[i].start + p->held[i].count <= start || p->held[i].start >= end)
            continue;
        if (p->held[i].start < start) {
            split(p, i, start);
            continue; /* the right part comes next */
        }
        if (p->held[i].start + p->held[i].count > end)
            split(p, i, end);
        if (keep)
            p->held[i].holder = holder;
        else
            remove_at(p, i--);
    }
}

static dlc_err move_ranges(dlc_ledger *l, int island, const struct dlc_ranges *ranges, bool keep, int holder)
{
    for (size_t i = 0; i < ranges->n; i++) {
        const struct dlc_range *r = &ranges->items[i];

        if (island < 0 || r->pool < 0 || r->pool >= l->n_pools ||
            !leased_wholly(&l->pools[r->pool], island, r->start, r->count))
            return dlc_fail(DLC_EFAIL, "island %d does not hold samples %llu..+%llu of pool %d", island,
                            (unsigned long long)r->start, (unsigned long long)r->count, r->pool);
        for (size_t k = 0; k < i; k++) {
            const struct dlc_range *q = &ranges->items[k];

            if (q->pool == r->pool && q->start < r->start + r->count && r->start < q->start + q->count)
                return dlc_fail(DLC_EFAIL, "island %d names samples %llu..+%llu of pool %d twice", island,
                                (unsigned long long)r->start, (unsigned long long)r->count, r->pool);
        }
        DLC_TRY(room_for(&l->pools[r->pool], 2 * ranges->n));
    }
    for (size_t i = 0; i < ranges->n; i++) {
        struct pool *p = &l->pools[ranges->items[i].pool];

        move_range(p, island, ranges->items[i].start, ranges->items[i].count, keep, holder);
        join_neighbours(p);
    }
    return DLC_OK;
}

dlc_err dlc_ledger_take(dlc_ledger *l, int island, const struct dlc_ranges *ranges)
{
    for (size_t i = 0; i < ranges->n; i++) {
        const struct dlc_range *r = &ranges->items[i];
        struct pool *p = r->pool >= 0 && r->pool < l->n_pools ? &l->pools[r->pool] : NULL;

        if (!p || island < 0 || r->start > (uint64_t)SAMPLES_MAX || r->count > (uint64_t)SAMPLES_MAX - r->start)
            return dlc_fail(DLC_EFAIL, "samples %llu..+%llu of pool %d for island %d: there are no such samples",
                            (unsigned long long)r->start, (unsigned long long)r->count, r->pool, island);
        DLC_TRY(room_for(p, 3));
        if (r->start + r->count > p->next) {
            p->held[p->n++] = (struct held){ p->next, r->start + r->count - p->next, FREE };
            p->next = r->start + r->count;
        }
        join_neighbours(p);
        if (!leased_wholly(p, FREE, r->start, r->count))
            return dlc_fail(DLC_EFAIL, "samples %llu..+%llu of pool %d for island %d are not free",
                            (unsigned long long)r->start, (unsigned long long)r->count, r->pool, island);
        move_range(p, FREE, r->start, r->count, true, island);
        join_neighbours(p);
    }
    return DLC_OK;
}

dlc_err dlc_ledger_return(dlc_ledger *l, int island, const struct dlc_ranges *ranges)
{
    return move_ranges(l, island, ranges, true, FREE);
}

dlc_err dlc_ledger_consume(dlc_ledger *l, int island, const struct dlc_ranges *ranges)
{
    return move_ranges(l, island, ranges, false, 0);
}

dlc_err dlc_ledger_discard(dlc_ledger *l, int island, const struct dlc_ranges *ranges)
{
    return move_ranges(l, island, ranges, true, DISCARDED);
}

dlc_err dlc_ledger_leased_by(const dlc_ledger *l, struct dlc_ranges *out, int island)
{
    for (int pool = 0; pool < l->n_pools; pool++) {
        const struct pool *p = &l->pools[pool];

        for (size_t i = 0; i < p->n; i++) {
            if (p->held[i].holder == island)
                DLC_TRY(dlc_ranges_add(out, (struct dlc_range){ pool, p->held[i].start, p->held[i].count }));
        }
    }
    return DLC_OK;
}

void dlc_ledger_totals(struct dlc_ledger_totals *out, const dlc_ledger *l, int pool)
{
    const struct pool *p = &l->pools[pool];

    *out = (struct dlc_ledger_totals){ .next = p->next, .consumed = p->next };
    for (size_t i = 0; i < p->n; i++) {
        uint64_t *to = p->held[i].holder == FREE        ? &out->free_below_next
                       : p->held[i].holder == DISCARDED ? &out->discarded
                                                        : &out->leased;

        *to += p->held[i].count;
        out->consumed -= p->held[i].count;
    }
}

static json_t *held_to_json(const struct pool *p)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < p->n; i++) {
        const struct held *h = &p->held[i];
        json_t *item = json_pack("[IIi]", (json_int_t)h->start, (json_int_t)h->count, h->holder);

        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *dlc_ledger_to_json(const dlc_ledger *l)
{
    json_t *pools = json_array();

    for (int k = 0; pools && k < l->n_pools; k++) {
        json_t *entry =
            json_pack("{s:I, s:o}", "next", (json_int_t)l->pools[k].next, "held", held_to_json(&l->pools[k]));

        if (json_array_append_new(pools, entry) != 0) {
            json_decref(pools);
            return NULL;
        }
    }
    return pools;
}

static dlc_err held_from_json(struct pool *p, const json_t *list, const char *where)
{
    uint64_t below = 0;

    DLC_TRY(room_for(p, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t v[3] = { 0 };
        bool integers = json_array_size(item) == 3;

        for (size_t k = 0; k < 3; k++) {
            integers &= json_is_integer(json_array_get(item, k));
            v[k] = json_integer_value(json_array_get(item, k));
        }
        if (!integers || v[0] < (json_int_t)below || v[0] > SAMPLES_MAX || v[1] < 1 || v[1] > SAMPLES_MAX ||
            (uint64_t)v[0] + (uint64_t)v[1] > p->next || v[2] < DISCARDED || v[2] > HOLDER_MAX)
            return dlc_fail(DLC_EINPUT, "%s: held range %zu is out of order or out of range", where, i);
        p->held[p->n++] = (struct held){ (uint64_t)v[0], (uint64_t)v[1], (int)v[2] };
        below = (uint64_t)v[0] + (uint64_t)v[1];
    }
    join_neighbours(p);
    return DLC_OK;
}

dlc_err dlc_ledger_from_json(dlc_ledger **out, const json_t *value, const char *where)
{
    dlc_ledger *l = NULL;
    dlc_err err = DLC_OK;

    *out = NULL;
    if (!json_is_array(value) || json_array_size(value) == 0 || json_array_size(value) > 1000000)
        return dlc_fail(DLC_EINPUT, "%s: the ledger should be an array of pools", where);
    DLC_TRY(dlc_ledger_create(&l, (int)json_array_size(value)));
    for (int k = 0; k < l->n_pools; k++) {
        const json_t *entry = json_array_get(value, (size_t)k);
        json_t *held;
        int64_t next;

        DLC_TRY_TO(fail, dlc_json_get_int(&next, entry, "next", 0, SAMPLES_MAX, where));
        DLC_TRY_TO(fail, dlc_json_get_array(&held, entry, "held", where));
        l->pools[k].next = (uint64_t)next;
        DLC_TRY_TO(fail, held_from_json(&l->pools[k], held, where));
    }
    *out = l;
    return DLC_OK;
fail:
    dlc_ledger_destroy(l);
    return err;
}
