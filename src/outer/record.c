#include "outer/record.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

static const char *const fate_names[] = { "summed", "dropped", "refused", "late", "carried" };

#define N_FATES (sizeof fate_names / sizeof *fate_names)

void dlc_record_fini(struct dlc_record *r)
{
    for (size_t i = 0; i < r->n_members; i++)
        dlc_ranges_fini(&r->members[i].ranges);
    dlc_free(r->members);
    dlc_ranges_fini(&r->discarded);
    *r = (struct dlc_record){ 0 };
}

dlc_err dlc_record_copy(struct dlc_record *to, const struct dlc_record *from)
{
    struct dlc_record r = *from;
    dlc_err err;

    dlc_record_fini(to);
    r.discarded = (struct dlc_ranges){ 0 };
    r.members = dlc_calloc(from->n_members + 1, sizeof *r.members);
    if (!r.members)
        return DLC_ENOMEM;
    for (size_t i = 0; i < from->n_members; i++) {
        r.members[i] = from->members[i];
        r.members[i].ranges = (struct dlc_ranges){ 0 };
    }
    *to = r;
    err = dlc_ranges_copy(&to->discarded, &from->discarded);
    for (size_t i = 0; err == DLC_OK && i < from->n_members; i++)
        err = dlc_ranges_copy(&to->members[i].ranges, &from->members[i].ranges);
    if (err != DLC_OK)
        dlc_record_fini(to);
    return err;
}

static json_t *digest_to_json(const struct dlc_sha256 *d)
{
    char hex[DLC_SHA256_HEX];

    dlc_sha256_to_hex(hex, d);
    return json_string(hex);
}

static json_t *members_to_json(const struct dlc_record *r)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < r->n_members; i++) {
        const struct dlc_record_member *m = &r->members[i];
        json_t *item = json_pack("{s:i, s:s, s:I, s:o, s:o}", "island", m->island, "fate", fate_names[m->fate],
                                 "weight", (json_int_t)m->weight, "ranges", dlc_ranges_to_json(&m->ranges), "payload",
                                 digest_to_json(&m->payload));

        if (json_array_append_new(list, item) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *to_json(const struct dlc_record *r)
{
    return json_pack("{s:s, s:I, s:i, s:I, s:i, s:I, s:f, s:o, s:o, s:o, s:o, s:o}", "run", r->run, "t",
                     (json_int_t)r->t, "fragment", r->fragment, "step", (json_int_t)r->step, "alive", r->n_alive,
                     "tokens", (json_int_t)r->n_tokens, "delta_norm", r->delta_norm, "theta", digest_to_json(&r->theta),
                     "outer", digest_to_json(&r->outer), "members", members_to_json(r), "discarded",
                     dlc_ranges_to_json(&r->discarded), "prev", digest_to_json(&r->prev));
}

static dlc_err hash_of(struct dlc_sha256 *out, const json_t *without_hash)
{
    char *text = without_hash ? dlc_json_dump(without_hash) : NULL;

    if (!text)
        return dlc_fail(DLC_ENOMEM, "out of memory: outer record");
    *out = dlc_sha256(text, strlen(text));
    dlc_free(text);
    return DLC_OK;
}

dlc_err dlc_record_seal(struct dlc_record *r)
{
    json_t *v;
    dlc_err err;

    if (!isfinite(r->delta_norm)) /* JSON has no such numbers */
        return dlc_fail(DLC_EFAIL, "outer step %llu: the outer gradient's norm is not finite",
                        (unsigned long long)r->t);
    v = to_json(r);
    err = hash_of(&r->hash, v);
    json_decref(v);
    return err;
}

dlc_err dlc_record_to_line(char **out, const struct dlc_record *r)
{
    json_t *v = to_json(r);

    *out = NULL;
    if (v && json_object_set_new(v, "hash", digest_to_json(&r->hash)) == 0)
        *out = dlc_json_dump(v);
    json_decref(v);
    return *out ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory: outer record");
}

static dlc_err get_digest(struct dlc_sha256 *out, const json_t *v, const char *key, const char *where)
{
    const char *hex;

    DLC_TRY(dlc_json_get_string(&hex, v, key, where));
    if (dlc_sha256_from_hex(out, hex) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "%s: \"%s\"", where, key);
    return DLC_OK;
}

static dlc_err get_member(struct dlc_record_member *m, const json_t *v, const char *where)
{
    const char *fate;
    int64_t island, weight;
    size_t k;

    DLC_TRY(dlc_json_get_int(&island, v, "island", 0, 1000000, where));
    DLC_TRY(dlc_json_get_int(&weight, v, "weight", 0, INT64_MAX, where));
    DLC_TRY(dlc_json_get_string(&fate, v, "fate", where));
    for (k = 0; k < N_FATES && strcmp(fate, fate_names[k]) != 0; k++)
        ;
    if (k == N_FATES)
        return dlc_fail(DLC_EINPUT, "%s: \"fate\" is '%.20s'", where, fate);
    m->island = (int)island;
    m->weight = (uint64_t)weight;
    m->fate = (dlc_member_fate)k;
    DLC_TRY(get_digest(&m->payload, v, "payload", where));
    return dlc_ranges_from_json(&m->ranges, json_object_get(v, "ranges"), where);
}

static dlc_err get_members(struct dlc_record *r, const json_t *v, const char *where)
{
    json_t *list;

    DLC_TRY(dlc_json_get_array(&list, v, "members", where));
    if (json_array_size(list) > 1000000)
        return dlc_fail(DLC_EINPUT, "%s: %zu members", where, json_array_size(list));
    r->members = dlc_calloc(json_array_size(list) + 1, sizeof *r->members);
    if (!r->members)
        return DLC_ENOMEM;
    for (size_t i = 0; i < json_array_size(list); i++) {
        r->n_members++;
        DLC_TRY(get_member(&r->members[i], json_array_get(list, i), where));
        if (i > 0 && r->members[i].island <= r->members[i - 1].island)
            return dlc_fail(DLC_EINPUT, "%s: members are not in island order", where);
    }
    return DLC_OK;
}

static dlc_err from_json(struct dlc_record *r, const json_t *v, const char *where)
{
    const char *run;
    int64_t t, fragment, step, alive, tokens;

    DLC_TRY(dlc_json_get_string(&run, v, "run", where));
    if (strlen(run) != DLC_RUN_ID_SIZE - 1)
        return dlc_fail(DLC_EINPUT, "%s: \"run\" is not a run id of %d digits", where, DLC_RUN_ID_SIZE - 1);
    memcpy(r->run, run, DLC_RUN_ID_SIZE);
    DLC_TRY(dlc_json_get_int(&t, v, "t", 1, INT64_MAX, where));
    DLC_TRY(dlc_json_get_int(&fragment, v, "fragment", 0, 1000000, where));
    DLC_TRY(dlc_json_get_int(&step, v, "step", 0, INT64_MAX, where));
    DLC_TRY(dlc_json_get_int(&alive, v, "alive", 0, 1000000, where));
    DLC_TRY(dlc_json_get_int(&tokens, v, "tokens", 0, INT64_MAX, where));
    DLC_TRY(dlc_json_get_real(&r->delta_norm, v, "delta_norm", where));
    r->t = (uint64_t)t;
    r->fragment = (int)fragment;
    r->step = step;
    r->n_alive = (int)alive;
    r->n_tokens = (uint64_t)tokens;
    DLC_TRY(get_digest(&r->theta, v, "theta", where));
    DLC_TRY(get_digest(&r->outer, v, "outer", where));
    DLC_TRY(get_digest(&r->prev, v, "prev", where));
    DLC_TRY(get_digest(&r->hash, v, "hash", where));
    DLC_TRY(dlc_ranges_from_json(&r->discarded, json_object_get(v, "discarded"), where));
    return get_members(r, v, where);
}

/* The hash is that of the text as it came; a record that would be written differently holds something that is not
 * understood here, and writing it again would break the chain. */
static dlc_err check_hash(const struct dlc_record *r, json_t *v, const char *where)
{
    struct dlc_record again = *r; /* borrows the lists */
    struct dlc_sha256 hash;

    json_object_del(v, "hash");
    DLC_TRY(hash_of(&hash, v));
    if (!dlc_sha256_equal(&hash, &r->hash))
        return dlc_fail(DLC_EINPUT, "%s: the outer record of step %llu does not match its own hash", where,
                        (unsigned long long)r->t);
    DLC_TRY(dlc_record_seal(&again));
    if (!dlc_sha256_equal(&again.hash, &r->hash))
        return dlc_fail(DLC_EINPUT,
                        "%s: the outer record of step %llu has members that this program does not know; use the "
                        "program that wrote it",
                        where, (unsigned long long)r->t);
    return DLC_OK;
}

dlc_err dlc_record_from_line(struct dlc_record *out, const char *line, size_t size_bytes, const char *where)
{
    json_t *v = NULL;
    dlc_err err;

    *out = (struct dlc_record){ 0 };
    DLC_TRY_TO(fail, dlc_json_parse(&v, line, size_bytes, where));
    DLC_TRY_TO(fail, from_json(out, v, where));
    DLC_TRY_TO(fail, check_hash(out, v, where));
    json_decref(v);
    return DLC_OK;
fail:
    json_decref(v);
    dlc_record_fini(out);
    return err;
}
