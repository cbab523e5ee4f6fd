#include "train/run_log.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"

void dlc_run_log_fini(struct dlc_run_log *v)
{
    json_decref(v->round);
    json_decref(v->islands);
    *v = (struct dlc_run_log){ .seq = 0 };
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

json_t *dlc_entry_epoch(uint64_t fence, const char *holder, uint64_t t)
{
    return json_pack("{s:s, s:I, s:s, s:I}", "kind", "epoch", "fence", (json_int_t)fence, "holder", holder, "t",
                     (json_int_t)t);
}

json_t *dlc_entry_record(uint64_t fence, const char *line, const struct dlc_sha256 *update)
{
    char hex[DLC_SHA256_HEX] = "";

    if (update)
        dlc_sha256_to_hex(hex, update);
    return json_pack("{s:s, s:I, s:s, s:s}", "kind", "record", "fence", (json_int_t)fence, "record", line, "update", hex);
}

json_t *dlc_entry_round(uint64_t fence, const json_t *round)
{
    return json_pack("{s:s, s:I, s:O}", "kind", "round", "fence", (json_int_t)fence, "round",
                     (json_t *)(uintptr_t)round);
}

json_t *dlc_entry_island(uint64_t fence, int index, json_t *island)
{
    return json_pack("{s:s, s:I, s:i, s:o}", "kind", "island", "fence", (json_int_t)fence, "index", index, "island",
                     island);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static dlc_err take_record(struct dlc_run_log *v, const json_t *entry, const char *run_id)
{
    struct dlc_record r = { .t = 0 };
    const char *line;
    dlc_err err;

    DLC_TRY(dlc_json_get_string(&line, entry, "record", "log"));
    err = dlc_record_from_line(&r, line, strlen(line), "log");
    if (err == DLC_OK && strcmp(r.run, run_id) != 0)
        err = dlc_fail(DLC_EINPUT, "log: a record of another run, %s", r.run);
    /* The same again: its writer led again and could not know that it was stored. */
    if (err == DLC_OK && v->t > 0 && !(r.t == v->t && dlc_sha256_equal(&r.hash, &v->record)) &&
        (r.t != v->t + 1 || !dlc_sha256_equal(&r.prev, &v->record)))
        err = dlc_fail(DLC_EPEER, "the run's log is broken: record %llu in it does not follow record %llu",
                       (unsigned long long)r.t, (unsigned long long)v->t);
    if (err == DLC_OK) {
        v->t = r.t;
        v->record = r.hash;
    }
    dlc_record_fini(&r);
    return err;
}

static dlc_err take_round(struct dlc_run_log *v, const json_t *entry)
{
    json_t *round;

    DLC_TRY(dlc_json_get_object(&round, entry, "round", "log"));
    json_decref(v->round);
    v->round = json_incref(round);
    return DLC_OK;
}

static dlc_err take_island(struct dlc_run_log *v, const json_t *entry)
{
    char key[24];
    int64_t index;
    json_t *island;

    DLC_TRY(dlc_json_get_int(&index, entry, "index", 0, 1000000, "log"));
    DLC_TRY(dlc_json_get_object(&island, entry, "island", "log"));
    snprintf(key, sizeof key, "%lld", (long long)index);
    if (!v->islands)
        v->islands = json_object();
    if (!v->islands || json_object_set(v->islands, key, island) != 0)
        return dlc_fail(DLC_ENOMEM, "out of memory: log");
    return DLC_OK;
}

static dlc_err take_entry(struct dlc_run_log *v, const json_t *entry, const char *run_id)
{
    const char *kind;
    int64_t fence;

    DLC_TRY(dlc_json_get_string(&kind, entry, "kind", "log"));
    DLC_TRY(dlc_json_get_int(&fence, entry, "fence", 1, INT64_MAX - 1, "log"));
    if ((uint64_t)fence > v->fence)
        v->fence = (uint64_t)fence;
    if (strcmp(kind, "record") == 0)
        return take_record(v, entry, run_id);
    if (strcmp(kind, "round") == 0)
        return take_round(v, entry);
    return strcmp(kind, "island") == 0 ? take_island(v, entry) : DLC_OK;
}

dlc_err dlc_run_log_take(struct dlc_run_log *v, const char *text, size_t size_bytes, const char *run_id)
{
    json_t *entry;
    dlc_err err = dlc_json_parse(&entry, text, size_bytes, "log");

    if (err == DLC_OK) {
        err = take_entry(v, entry, run_id);
        json_decref(entry);
    }
    if (err != DLC_EINPUT)
        return err;
    dlc_warn("an entry of the run's log is passed over: %s", dlc_err_text());
    return DLC_OK;
}

dlc_err dlc_run_log_read(struct dlc_run_log *v, dlc_runlog *log, const char *run_id)
{
    struct dlc_buf entry = { 0 };
    bool got = true;
    dlc_err err = DLC_OK;

    while (err == DLC_OK && got) {
        err = dlc_runlog_next(log, &v->seq, &entry, &got);
        if (err == DLC_OK && got)
            err = dlc_run_log_take(v, entry.len ? entry.data : "", entry.len, run_id);
    }
    dlc_buf_fini(&entry);
    return err;
}
