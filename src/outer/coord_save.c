/* The core's state as JSON, and back. */
#include "outer/coord_internal.h"

#include <string.h>

#include "base/json.h"

json_t *dlc__ring_to_json(const struct dlc__ring *r)
{
    json_t *list = json_array();
    size_t size = dlc__ring_size(r), first = r->n - size;

    for (size_t i = 0; list && i < size; i++) {
        if (json_array_append_new(list, json_real(r->values[(first + i) % DLC_RING])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

dlc_err dlc__ring_from_json(struct dlc__ring *r, const json_t *list, const char *key, const char *where)
{
    if (!json_is_array(list) || json_array_size(list) > DLC_RING)
        return dlc_fail(DLC_EINPUT, "%s: \"%s\" should be an array of at most %d numbers", where, key, DLC_RING);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_number(v) || json_number_value(v) < 0)
            return dlc_fail(DLC_EINPUT, "%s: entry %zu of \"%s\" is not a number from 0", where, i, key);
        dlc__ring_add(r, json_number_value(v));
    }
    return DLC_OK;
}

/* At work on round t, which is closed: its contribution may still come. */
static json_t *late_to_json(const struct dlc__island *isl)
{
    return json_pack("{s:I, s:I, s:o}", "attempt", (json_int_t)isl->attempt, "incarnation",
                     (json_int_t)isl->incarnation, "lease", dlc_ranges_to_json(&isl->lease));
}

static json_t *islands_to_json(const dlc_coord *c)
{
    json_t *list = json_array();

    for (int i = 0; list && i < c->cfg.n_islands; i++) {
        const struct dlc__island *isl = &c->islands[i];
        json_t *item = json_pack("{s:I, s:b, s:o}", "state_step", (json_int_t)isl->state_step, "own_params",
                                 (int)isl->own_params, "pending", dlc_ranges_to_json(&isl->pending));

        if (isl->state == DLC_ISLAND_LATE && json_object_set_new(item, "late", late_to_json(isl)) != 0) {
            json_decref(item);
            item = NULL;
        }
        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

dlc_err dlc__coord_save(dlc_coord *c)
{
    json_t *v = json_pack("{s:s, s:I, s:I, s:i, s:o, s:o, s:o}", "run", c->cfg.run, "t", (json_int_t)c->t, "tokens",
                          (json_int_t)c->n_tokens, "rollbacks", c->n_rollbacks, "norms", dlc__ring_to_json(&c->norms),
                          "islands", islands_to_json(c), "ledger", dlc_ledger_to_json(c->ledger));

    if (!v)
        return dlc_fail(DLC_ENOMEM, "out of memory: coordinator's state");
    json_decref(c->saved);
    c->saved = v;
    return DLC_OK;
}

json_t *dlc_coord_to_json(const dlc_coord *c)
{
    return json_incref(c->saved);
}

static dlc_err late_from_json(struct dlc__island *isl, const json_t *v, int64_t t, const char *where)
{
    int64_t attempt, incarnation;

    if (!v)
        return DLC_OK;
    if (t == 0)
        return dlc_fail(DLC_EINPUT, "%s: an island is late for outer step 0", where);
    DLC_TRY(dlc_json_get_int(&attempt, v, "attempt", 1, UINT32_MAX, where));
    DLC_TRY(dlc_json_get_int(&incarnation, v, "incarnation", 0, UINT32_MAX, where));
    DLC_TRY(dlc_ranges_from_json(&isl->lease, json_object_get(v, "lease"), where));
    isl->attempt = (uint32_t)attempt;
    isl->incarnation = (uint32_t)incarnation;
    isl->state = DLC_ISLAND_LATE;
    isl->gone = isl->unheard = true;
    return DLC_OK;
}

static dlc_err island_from_json(struct dlc__island *isl, const json_t *v, int64_t t, const char *where)
{
    int64_t state_step;
    int own_params;

    DLC_TRY(dlc_json_get_int(&state_step, v, "state_step", 0, t, where));
    DLC_TRY(dlc_json_get_bool(&own_params, v, "own_params", where));
    if (own_params && state_step == 0)
        return dlc_fail(DLC_EINPUT, "%s: an island that has not trained has no parameters of its own", where);
    isl->state_step = (uint64_t)state_step;
    isl->own_params = own_params;
    DLC_TRY(dlc_ranges_from_json(&isl->pending, json_object_get(v, "pending"), where));
    return late_from_json(isl, json_object_get(v, "late"), t, where);
}

/* Between rounds the leases are exactly what the islands have pending or are late with: one that nobody knows of would never end. */
static dlc_err check_leases(const dlc_coord *c, const json_t *ledger, const char *where)
{
    struct dlc_ledger_totals totals = { 0 };
    uint64_t leased = 0;
    dlc_ledger *probe;
    dlc_err err = DLC_OK;

    DLC_TRY(dlc_ledger_from_json(&probe, ledger, where));
    for (int i = 0; err == DLC_OK && i < c->cfg.n_islands; i++) {
        err = dlc_ledger_return(probe, i, &c->islands[i].pending);
        if (err == DLC_OK)
            err = dlc_ledger_return(probe, i, &c->islands[i].lease);
    }
    if (err == DLC_EFAIL)
        err = dlc_fail_context(DLC_EINPUT, "%s", where);
    for (int k = 0; k < dlc_ledger_n_pools(probe); k++) {
        dlc_ledger_totals(&totals, probe, k);
        leased += totals.leased;
    }
    dlc_ledger_destroy(probe);
    if (err == DLC_OK && leased > 0)
        err = dlc_fail(DLC_EINPUT, "%s: %llu samples are leased to nobody", where, (unsigned long long)leased);
    return err;
}

static dlc_err from_json(dlc_coord *c, const json_t *saved, const char *where)
{
    json_t *islands;
    const char *run;
    int64_t t, tokens, rollbacks;

    DLC_TRY(dlc_json_get_string(&run, saved, "run", where));
    if (strcmp(run, c->cfg.run) != 0)
        return dlc_fail(DLC_EINPUT, "%s: belongs to run %.40s, this is run %s", where, run, c->cfg.run);
    DLC_TRY(dlc_json_get_int(&t, saved, "t", 0, (int64_t)dlc_coord_n_rounds(&c->cfg), where));
    DLC_TRY(dlc_json_get_int(&tokens, saved, "tokens", 0, INT64_MAX / 2, where));
    DLC_TRY(dlc_json_get_int(&rollbacks, saved, "rollbacks", 0, INT32_MAX, where));
    c->t = (uint64_t)t;
    c->n_tokens = (uint64_t)tokens;
    c->n_rollbacks = (int)rollbacks;
    DLC_TRY(dlc__ring_from_json(&c->norms, json_object_get(saved, "norms"), "norms", where));
    DLC_TRY(dlc_json_get_array(&islands, saved, "islands", where));
    if (json_array_size(islands) != (size_t)c->cfg.n_islands)
        return dlc_fail(DLC_EINPUT, "%s: %zu islands, the run has %d", where, json_array_size(islands),
                        c->cfg.n_islands);
    for (int i = 0; i < c->cfg.n_islands; i++)
        DLC_TRY(island_from_json(&c->islands[i], json_array_get(islands, (size_t)i), t, where));
    dlc_ledger_destroy(c->ledger);
    c->ledger = NULL;
    DLC_TRY(dlc_ledger_from_json(&c->ledger, json_object_get(saved, "ledger"), where));
    if (dlc_ledger_n_pools(c->ledger) != c->cfg.n_pools)
        return dlc_fail(DLC_EINPUT, "%s: the ledger has %d pools, the data %d", where, dlc_ledger_n_pools(c->ledger),
                        c->cfg.n_pools);
    return check_leases(c, json_object_get(saved, "ledger"), where);
}

static dlc_err take_record(dlc_coord *c, const struct dlc_record *last, const char *where)
{
    uint64_t t = last ? last->t : 0;
    struct dlc_sha256 outer;

    c->theta_digest = dlc_sha256(c->theta[c->t & 1], c->cfg.n_params * sizeof(float));
    if (t != c->t)
        return dlc_fail(DLC_EINPUT, "%s: is of outer step %llu, the record beside it of %llu", where,
                        (unsigned long long)c->t, (unsigned long long)t);
    if (!last)
        return DLC_OK;
    if (strcmp(last->run, c->cfg.run) != 0)
        return dlc_fail(DLC_EINPUT, "%s: the record beside it is of run %s, this is run %s", where, last->run,
                        c->cfg.run);
    if (!dlc_sha256_equal(&c->theta_digest, &last->theta))
        return dlc_fail(DLC_EINPUT, "%s: the parameters are not those that the record of outer step %llu names", where,
                        (unsigned long long)t);
    DLC_TRY(dlc__coord_digest_state(&outer, c));
    if (!dlc_sha256_equal(&outer, &last->outer))
        return dlc_fail(DLC_EINPUT, "%s: the outer optimizer's state is not the one that the record of step %llu names",
                        where, (unsigned long long)t);
    return dlc_record_copy(&c->record, last);
}

dlc_err dlc_coord_resume(dlc_coord **out, const struct dlc_coord_config *config, float *const theta[2],
                         float *const state[2], dlc_pool *pool, const json_t *saved, const struct dlc_record *last,
                         const json_t *round)
{
    static const char where[] = "saved state of the coordinator";
    dlc_coord *c;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_coord_create(&c, config, theta, state, pool));
    if (saved)
        DLC_TRY_TO(fail, from_json(c, saved, where));
    DLC_TRY_TO(fail, take_record(c, last, where));
    if (c->t == dlc_coord_n_rounds(config))
        c->round = DLC_ROUND_FINISHED;
    DLC_TRY_TO(fail, dlc__coord_save(c));
    if (round)
        DLC_TRY_TO(fail, dlc__coord_take_round(c, round));
    for (int i = 0; i < config->n_islands; i++) {
        if (c->islands[i].state == DLC_ISLAND_LATE && config->codec->params)
            DLC_TRY_TO(fail, dlc__coord_release_late(c, i)); /* what it began from, theta(t-1), is not there any more */
    }
    *out = c;
    return DLC_OK;
fail:
    dlc_coord_destroy(c);
    return err;
}
