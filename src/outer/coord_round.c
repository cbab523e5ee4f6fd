/* The open round as JSON, and back: what a coordinator needs to go on with the round in which another one died.
 *
 * It says only what changed since the state that was saved with the last record, and is applied to that: leases are taken
 * from what is free there, so no text whatsoever can lend a sample twice. */
#include "outer/coord_internal.h"

#include <string.h>

#include "base/json.h"

static json_t *members_to_json(const dlc_coord *c)
{
    json_t *list = json_array();

    for (int i = 0; list && i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];
        json_t *item;

        if (!isl->member || isl->lease.n == 0)
            continue;
        item = json_pack("{s:i, s:I, s:o}", "island", i, "incarnation", (json_int_t)isl->incarnation, "lease",
                         dlc_ranges_to_json(&isl->lease));
        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *flagged_to_json(const dlc_coord *c, bool released)
{
    json_t *list = json_array();

    for (int i = 0; list && i < c->cfg.n_islands; i++) {
        if (!(released ? c->islands[i].released : c->islands[i].fresh))
            continue;
        if (json_array_append_new(list, json_integer(i)) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *dlc_coord_round_to_json(const dlc_coord *c)
{
    char prev[DLC_SHA256_HEX];

    dlc_sha256_to_hex(prev, &c->record.hash);
    return json_pack("{s:s, s:I, s:s, s:I, s:i, s:o, s:o, s:o, s:o, s:o}", "run", c->cfg.run, "t",
                     (json_int_t)(c->t + 1), "prev", prev, "attempt", (json_int_t)c->attempt, "rollbacks",
                     c->n_rollbacks, "discarded", dlc_ranges_to_json(&c->discarded), "fresh",
                     flagged_to_json(c, false), "released", flagged_to_json(c, true), "arrivals",
                     dlc__ring_to_json(&c->arrivals_s), "members", members_to_json(c));
}

static dlc_err take_flagged(struct dlc_coord *c, const json_t *round, bool released, const char *where)
{
    const char *key = released ? "released" : "fresh";
    json_t *list;

    DLC_TRY(dlc_json_get_array(&list, round, key, where));
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *v = json_array_get(list, k);
        json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;

        if (i < 0 || i >= c->cfg.n_islands)
            return dlc_fail(DLC_EINPUT, "%s: entry %zu of \"%s\" is not an island", where, k, key);
        if (!released)
            DLC_TRY(dlc__coord_forget_state(c, (int)i));
        else if (c->islands[i].state == DLC_ISLAND_LATE)
            DLC_TRY(dlc__coord_release_late(c, (int)i));
    }
    return DLC_OK;
}

static dlc_err as_input(dlc_err err, const char *where)
{
    return err == DLC_EFAIL ? dlc_fail_context(DLC_EINPUT, "%s", where) : err;
}

static dlc_err take_discarded(struct dlc_coord *c, const json_t *round, const char *where)
{
    DLC_TRY(dlc_ranges_from_json(&c->discarded, json_object_get(round, "discarded"), where));
    DLC_TRY(as_input(dlc_ledger_take(c->ledger, 0, &c->discarded), where));
    return as_input(dlc_ledger_discard(c->ledger, 0, &c->discarded), where);
}

static dlc_err take_member(struct dlc_coord *c, const json_t *v, int64_t *last, const char *where)
{
    uint64_t wanted = (uint64_t)dlc__coord_round_steps(&c->cfg, c->t + 1) * (uint64_t)c->cfg.batch;
    struct dlc__island *isl;
    int64_t i, incarnation;

    DLC_TRY(dlc_json_get_int(&i, v, "island", *last + 1, c->cfg.n_islands - 1, where));
    DLC_TRY(dlc_json_get_int(&incarnation, v, "incarnation", 0, UINT32_MAX, where));
    *last = i;
    isl = &c->islands[i];
    if (isl->state == DLC_ISLAND_LATE)
        return dlc_fail(DLC_EINPUT, "%s: island %d is at work on the step before", where, (int)i);
    DLC_TRY(dlc_ranges_from_json(&isl->lease, json_object_get(v, "lease"), where));
    if (dlc_ranges_count(&isl->lease) != wanted)
        return dlc_fail(DLC_EINPUT, "%s: island %d has %llu samples, the round takes %llu", where, (int)i,
                        (unsigned long long)dlc_ranges_count(&isl->lease), (unsigned long long)wanted);
    DLC_TRY(as_input(dlc_ledger_take(c->ledger, (int)i, &isl->lease), where));
    isl->incarnation = (uint32_t)incarnation;
    isl->attempt = c->attempt;
    isl->member = isl->unheard = isl->awaited = true;
    isl->state = DLC_ISLAND_LOST;
    return DLC_OK;
}

static dlc_err take_members(struct dlc_coord *c, const json_t *round, const char *where)
{
    int64_t last = -1;
    json_t *list;

    DLC_TRY(dlc_json_get_array(&list, round, "members", where));
    if (json_array_size(list) == 0)
        return dlc_fail(DLC_EINPUT, "%s: nobody is in it", where);
    for (size_t k = 0; k < json_array_size(list); k++)
        DLC_TRY(take_member(c, json_array_get(list, k), &last, where));
    return DLC_OK;
}

/* Of a round that is over, or of a history that this one is not: nothing to go on with. */
static dlc_err is_next(const struct dlc_coord *c, const json_t *round, bool *next, const char *where)
{
    struct dlc_sha256 prev;
    const char *text;
    int64_t t;

    DLC_TRY(dlc_json_get_string(&text, round, "run", where));
    if (strcmp(text, c->cfg.run) != 0)
        return dlc_fail(DLC_EINPUT, "%s: belongs to run %.40s, this is run %s", where, text, c->cfg.run);
    DLC_TRY(dlc_json_get_int(&t, round, "t", 1, (int64_t)dlc_coord_n_rounds(&c->cfg), where));
    DLC_TRY(dlc_json_get_string(&text, round, "prev", where));
    if (dlc_sha256_from_hex(&prev, text) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "%s: \"prev\"", where);
    *next = (uint64_t)t == c->t + 1 && dlc_sha256_equal(&prev, &c->record.hash);
    return DLC_OK;
}

dlc_err dlc__coord_take_round(struct dlc_coord *c, const json_t *round)
{
    static const char where[] = "saved round of the coordinator";
    int64_t attempt, rollbacks;
    bool next = false;

    DLC_TRY(is_next(c, round, &next, where));
    if (!next)
        return DLC_OK;
    DLC_TRY(dlc_json_get_int(&attempt, round, "attempt", 1, UINT32_MAX - 1, where));
    DLC_TRY(dlc_json_get_int(&rollbacks, round, "rollbacks", c->n_rollbacks, INT32_MAX, where));
    c->attempt = (uint32_t)attempt;
    c->n_rollbacks = (int)rollbacks;
    DLC_TRY(take_flagged(c, round, false, where));
    DLC_TRY(take_flagged(c, round, true, where));
    DLC_TRY(take_discarded(c, round, where));
    DLC_TRY(dlc__ring_from_json(&c->arrivals_s, json_object_get(round, "arrivals"), "arrivals", where));
    DLC_TRY(take_members(c, round, where));
    c->round = DLC_ROUND_TRAINING;
    c->resumed = true;
    c->opened_ns = INT64_MIN;
    return DLC_OK;
}
