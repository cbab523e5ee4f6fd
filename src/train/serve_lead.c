/* Leading a served run: the lease before anything else, then the log beside the run folder. What is made known stands on
 * this disk first, then in the log, and only then do islands hear of it. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/run.h"
#include "train/serve_internal.h"

/* --- the lease ---------------------------------------------------------------------------------------------------- */

static dlc_err read_fence(uint64_t *out, const char *path)
{
    json_t *v;
    int64_t last = 0;
    dlc_err err = DLC_OK;

    if (dlc_file_exists(path)) {
        DLC_TRY(dlc_json_read_file(&v, path, 4096));
        err = dlc_json_get_int(&last, v, "fence", 0, INT64_MAX - 2, path);
        json_decref(v);
    }
    *out = (uint64_t)last;
    return err;
}

static dlc_err write_fence(const char *path, uint64_t fence)
{
    json_t *v = json_pack("{s:I}", "fence", (json_int_t)fence);
    dlc_err err = v ? dlc_json_write_file(path, v) : dlc_fail(DLC_ENOMEM, "out of memory: %s", path);

    json_decref(v);
    return err;
}

dlc_err serve__take_lease(dlc_serve *s, const char *folder)
{
    struct dlc_leader_options options = { .url = &s->lead_url,
                                          .ca_pem = s->ca_pem.len ? s->ca_pem.data : NULL,
                                          .run_folder = s->run->config->train.out,
                                          .seen_seq = s->run->options.serve.seen_lease };
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, folder, "fence.json"));
    DLC_TRY(read_fence(&options.fence, path));
    DLC_TRY(dlc_leader_take(&s->leader, &options));
    return write_fence(path, dlc_leader_fence(s->leader));
}

bool dlc_serve_leads(dlc_serve *s)
{
    return !dlc_leader_is_lost(s->leader);
}

/* --- what is appended --------------------------------------------------------------------------------------------- */

static dlc_err append(dlc_serve *s, json_t *entry)
{
    return dlc_leader_append(s->leader, entry, serve__watch, s);
}

dlc_err serve__log_island(dlc_serve *s, int index)
{
    return append(s, dlc_entry_island(dlc_leader_fence(s->leader), index,
                                      dlc_roster_island_to_json(&s->roster.islands[index])));
}

static dlc_err append_round(dlc_serve *s, const json_t *round)
{
    return append(s, dlc_entry_round(dlc_leader_fence(s->leader), round));
}

dlc_err dlc_serve_keep_round(dlc_serve *s, const json_t *round)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, s->run->config->train.out, "round.json"));
    DLC_TRY(dlc_json_write_file(path, round));
    return append_round(s, round);
}

dlc_err dlc_serve_read_round(json_t **out, const char *run_folder, uint64_t t)
{
    char path[DLC_PATH_MAX];
    json_t *v = NULL;
    int64_t of;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_path_join(path, run_folder, "round.json"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    DLC_TRY(dlc_json_read_file(&v, path, (size_t)64 << 20));
    err = dlc_json_get_int(&of, v, "t", 1, INT64_MAX, path);
    if (err == DLC_OK && (uint64_t)of == t + 1)
        *out = json_incref(v);
    json_decref(v);
    return err;
}

static bool is_summed(const struct dlc_record *r)
{
    for (size_t i = 0; i < r->n_members; i++) {
        if (r->members[i].weight > 0)
            return true;
    }
    return false;
}

static dlc_err append_record(dlc_serve *s, const char *line, const struct dlc_sha256 *update)
{
    return append(s, dlc_entry_record(dlc_leader_fence(s->leader), line, update));
}

dlc_err dlc_serve_keep_record(dlc_serve *s, const struct dlc_record *record)
{
    dlc_hub *hub = dlc_serve_hub(s);
    size_t size = s->run->core_config.codec->size_bytes(s->run->core_config.n_params);
    struct dlc_sha256 update;
    char *line;
    dlc_err err;

    if (is_summed(record))
        update = dlc_sha256(hub->ops->update(hub, record->t), size);
    DLC_TRY(dlc_record_to_line(&line, record));
    err = append_record(s, line, is_summed(record) ? &update : NULL);
    dlc_free(line);
    return err;
}

/* --- before the first word ---------------------------------------------------------------------------------------- */

static dlc_err hash_here(struct dlc_sha256 *out, const dlc_serve *s, uint64_t t)
{
    struct dlc_record r = { .t = 0 };
    char *line;
    dlc_err err;

    DLC_TRY(dlc_record_line_read(&line, s->run->config->train.out, t));
    err = dlc_record_from_line(&r, line, strlen(line), "records.jsonl");
    *out = r.hash;
    dlc_record_fini(&r);
    dlc_free(line);
    return err;
}

/* What islands may have heard of ends with the log's last record: history here must reach it, and be the same there. */
static dlc_err check_history(const dlc_serve *s, const struct dlc_run_log *says, uint64_t t)
{
    const char *folder = s->run->config->train.out;
    struct dlc_sha256 here;

    if (says->t == 0)
        return DLC_OK;
    if (says->t > t)
        return dlc_fail(DLC_EPEER,
                        "%s ends with outer step %llu, the run went on to %llu: missing here are the steps from %llu on. Go on "
                        "where they are, in another coordinator's folder",
                        folder, (unsigned long long)t, (unsigned long long)says->t, (unsigned long long)t + 1);
    DLC_TRY(hash_here(&here, s, says->t));
    if (!dlc_sha256_equal(&here, &says->record))
        return dlc_fail(DLC_EPEER,
                        "%s: its outer step %llu is not the run's: another coordinator took over before it was made known. "
                        "Go on in that one's folder",
                        folder, (unsigned long long)says->t);
    if (t > says->t + 1)
        dlc_warn("the run's log on the NATS server ends with outer step %llu, this folder with %llu: the server has lost "
                 "some, they are all here",
                 (unsigned long long)says->t, (unsigned long long)t);
    return DLC_OK;
}

static dlc_err take_islands(dlc_serve *s, const struct dlc_run_log *says)
{
    for (int i = 0; i < s->roster.max; i++) {
        char key[24];
        const json_t *island;

        snprintf(key, sizeof key, "%d", i);
        island = json_object_get(says->islands, key);
        if (island)
            DLC_TRY(dlc_roster_put(&s->roster, i, island, "the run's log"));
        else if (i >= s->roster.n)
            break;
    }
    return DLC_OK;
}

/* Cut off between the disk and the log, or the log is new. */
static dlc_err make_up(dlc_serve *s, const struct dlc_run_log *says, uint64_t t)
{
    json_t *round;
    char *line;
    dlc_err err = DLC_OK;

    if (t > says->t) {
        DLC_TRY(dlc_record_line_read(&line, s->run->config->train.out, t));
        err = append_record(s, line, NULL);
        dlc_free(line);
        DLC_TRY(err);
    }
    for (int i = 0; i < s->roster.n; i++) {
        char key[24];
        json_t *here = dlc_roster_island_to_json(&s->roster.islands[i]);
        bool same;

        snprintf(key, sizeof key, "%d", i);
        same = here && json_equal(json_object_get(says->islands, key), here);
        json_decref(here);
        if (!same)
            DLC_TRY(serve__log_island(s, i));
    }
    DLC_TRY(dlc_serve_read_round(&round, s->run->config->train.out, t));
    if (round && !json_equal(round, says->round))
        err = append_round(s, round);
    json_decref(round);
    return err;
}

dlc_err dlc_serve_lead(dlc_serve *s)
{
    uint64_t t = dlc_coord_t(s->run->core);
    const struct dlc_run_log *says = dlc_leader_log(s->leader);

    DLC_TRY(dlc_leader_begin(s->leader, t));
    DLC_TRY(check_history(s, says, t));
    DLC_TRY(take_islands(s, says));
    return make_up(s, says, t);
}
