#include "train/save.h"

#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/ckpt.h"
#include "ckpt/model_folder.h"
#include "ckpt/safetensors.h"
#include "island/trainer.h"

void dlc_saver_fini(struct dlc_saver *s)
{
    dlc_buf_fini(&s->tokenizer_json);
    dlc_records_free(&s->expected);
}

/* --- writing -------------------------------------------------------------------------------------------------------
 */

static const char *const state_names[2] = { "outer.0", "outer.1" }; /* momentum; or Adam's two moments */

static dlc_err write_outer(const struct dlc_saver *s, const char *folder, uint64_t t)
{
    uint64_t n = dlc_model_n_params(&s->config->model.shape);
    struct dlc_st_write_tensor tensors[2];
    char path[DLC_PATH_MAX], step[24];
    struct dlc_st_meta meta[2] = { { "optimizer", dlc_outer_kind_name(s->config->outer.optimizer) },
                                   { "outer_step", step } };

    snprintf(step, sizeof step, "%llu", (unsigned long long)t);
    for (int i = 0; i < s->n_state; i++)
        tensors[i] = (struct dlc_st_write_tensor){
            .name = state_names[i], .dtype = DLC_F32, .n_dims = 1, .dims = { n }, .data = s->state[i]
        };
    DLC_TRY(dlc_path_join(path, folder, "outer.safetensors"));
    return dlc_st_write(path, tensors, (size_t)s->n_state, meta, 2);
}

static dlc_err island_file(char out[DLC_PATH_MAX], const char *folder, int island)
{
    char name[48];

    snprintf(name, sizeof name, "island-%02d.safetensors", island);
    return dlc_path_join(out, folder, name);
}

/* Islands on other machines keep their inner states themselves. */
static bool islands_are_here(const struct dlc_saver *s)
{
    return s->config->exchange.kind != DLC_EXCHANGE_NATS;
}

/* The inner states that the islands have put on disk; islands without one have not trained yet. */
static dlc_err link_islands(const struct dlc_saver *s, const char *folder, const json_t *saved)
{
    char island_folder[DLC_PATH_MAX], from[DLC_PATH_MAX], to[DLC_PATH_MAX];

    for (int i = 0; islands_are_here(s) && i < s->config->train.islands; i++) {
        const json_t *island = json_array_get(json_object_get(saved, "islands"), (size_t)i);
        uint64_t state_step = (uint64_t)json_integer_value(json_object_get(island, "state_step"));

        if (state_step == 0)
            continue;
        DLC_TRY(dlc_island_folder(island_folder, s->run_folder, i));
        DLC_TRY(dlc_inner_state_path(from, island_folder, state_step));
        DLC_TRY(island_file(to, folder, i));
        DLC_TRY(dlc_link_or_copy(to, from));
    }
    return DLC_OK;
}

static json_t *traffic_to_json(const struct dlc_saver *s)
{
    json_t *list = json_array();

    for (int i = 0; list && i < dlc_config_n_identities(s->config); i++)
        json_array_append_new(list, json_pack("[II]", (json_int_t)s->traffic[i].bytes_up,
                                              (json_int_t)s->traffic[i].bytes_down));
    return list;
}

static dlc_err make_info(json_t **out, const struct dlc_saver *s, const struct dlc_record *record, const json_t *saved)
{
    char *line = NULL;

    *out = NULL;
    DLC_TRY(dlc_record_to_line(&line, record));
    *out = json_pack("{s:s, s:O, s:o}", "record", line, "coordinator", (json_t *)(uintptr_t)saved, "traffic",
                     traffic_to_json(s));
    dlc_free(line);
    return *out ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory: manifest");
}

static dlc_err fill_checkpoint(struct dlc_saver *s, const char *folder, const struct dlc_record *record,
                               const json_t *saved, const float *theta)
{
    DLC_TRY(dlc_model_folder_write(folder, &s->config->model.shape, theta, DLC_F32, s->tokenizer_json.data,
                                   s->tokenizer_json.len, s->eot));
    DLC_TRY(write_outer(s, folder, record->t));
    return link_islands(s, folder, saved);
}

static dlc_err write_checkpoint(struct dlc_saver *s, const struct dlc_record *record, const json_t *saved,
                                const float *theta)
{
    char folder[DLC_PATH_MAX];
    json_t *info = NULL;
    dlc_err err;

    DLC_TRY(dlc_ckpt_begin(folder, s->run_folder, record->t));
    err = fill_checkpoint(s, folder, record, saved, theta);
    if (err == DLC_OK)
        err = make_info(&info, s, record, saved);
    if (err == DLC_OK)
        err = dlc_ckpt_commit(s->run_folder, record->t, info);
    json_decref(info);
    if (err != DLC_OK)
        dlc_ckpt_abort(s->run_folder, record->t);
    return err;
}

/* A step of a history that is trained again: the same record needs nothing, another one replaces the rest, since nobody
 * has the state behind it. */
static dlc_err append_or_compare(struct dlc_saver *s, const struct dlc_record *record)
{
    if (record->t > s->expected.n)
        return dlc_records_append(s->run_folder, record);
    if (dlc_sha256_equal(&s->expected.items[record->t - 1].hash, &record->hash))
        return DLC_OK;
    dlc_warn(
        "outer step %llu comes out differently than it was recorded (another kind of machine, or another number of "
        "threads?); records from here on are replaced",
        (unsigned long long)record->t);
    DLC_TRY(dlc_records_truncate(s->run_folder, &s->expected, (size_t)record->t - 1));
    while (s->expected.n >= record->t)
        dlc_record_fini(&s->expected.items[--s->expected.n]);
    return dlc_records_append(s->run_folder, record);
}

dlc_err dlc_saver_commit(struct dlc_saver *s, const struct dlc_record *record, const json_t *saved, const float *theta,
                         bool last)
{
    bool checkpoint = last || record->t % (uint64_t)s->config->train.checkpoint_every == 0;

    if (checkpoint)
        DLC_TRY(write_checkpoint(s, record, saved, theta));
    DLC_TRY(append_or_compare(s, record));
    if (!checkpoint)
        return DLC_OK;
    DLC_TRY(dlc_ckpt_set_latest(s->run_folder, record->t));
    return dlc_ckpt_retain(s->run_folder, s->config->train.keep);
}

/* --- the way back --------------------------------------------------------------------------------------------------
 */

static dlc_err read_outer(const struct dlc_saver *s, const char *folder)
{
    uint64_t n = dlc_model_n_params(&s->config->model.shape);
    char path[DLC_PATH_MAX];
    dlc_st_file *f;
    dlc_err err = DLC_OK;

    DLC_TRY(dlc_path_join(path, folder, "outer.safetensors"));
    DLC_TRY(dlc_st_open(&f, path));
    for (int i = 0; err == DLC_OK && i < s->n_state; i++)
        err = dlc_st_read_f32(s->state[i], f, state_names[i], n);
    dlc_st_close(f);
    return err;
}

/* A stop in mid-round left paused.safetensors beside the states: it stays; whether it fits is seen when it is used. */
static dlc_err clear_states(const char *island_folder)
{
    struct dlc_names names;
    char path[DLC_PATH_MAX];
    dlc_err err = dlc_mkdir_p(island_folder);

    if (err == DLC_OK)
        err = dlc_list_folder(&names, island_folder);
    if (err != DLC_OK)
        return err;
    for (size_t i = 0; err == DLC_OK && i < names.n; i++) {
        if (strcmp(names.names[i], "paused.safetensors") == 0 || strcmp(names.names[i], "lock") == 0)
            continue;
        err = dlc_path_join(path, island_folder, names.names[i]);
        if (err == DLC_OK)
            err = dlc_remove_tree(path);
    }
    dlc_names_free(&names);
    return err;
}

static dlc_err seed_islands(const struct dlc_saver *s, const char *folder, const json_t *saved)
{
    char island_folder[DLC_PATH_MAX], from[DLC_PATH_MAX], to[DLC_PATH_MAX];

    for (int i = 0; islands_are_here(s) && i < s->config->train.islands; i++) {
        const json_t *island = json_array_get(json_object_get(saved, "islands"), (size_t)i);
        uint64_t state_step = (uint64_t)json_integer_value(json_object_get(island, "state_step"));

        DLC_TRY(dlc_island_folder(island_folder, s->run_folder, i));
        DLC_TRY(clear_states(island_folder));
        if (state_step == 0)
            continue;
        DLC_TRY(island_file(from, folder, i));
        DLC_TRY(dlc_inner_state_path(to, island_folder, state_step));
        DLC_TRY(dlc_link_or_copy(to, from));
    }
    return DLC_OK;
}

static void traffic_from_json(struct dlc_saver *s, const json_t *list)
{
    for (int i = 0; i < dlc_config_n_identities(s->config); i++) {
        const json_t *pair = json_array_get(list, (size_t)i);

        s->traffic[i].bytes_up = (uint64_t)json_integer_value(json_array_get(pair, 0));
        s->traffic[i].bytes_down = (uint64_t)json_integer_value(json_array_get(pair, 1));
    }
}

/* The manifest's record t beside records.jsonl: there already, or the next one; anything else is a damaged folder. */
static dlc_err match_record(struct dlc_saver *s, const struct dlc_record *r, const char *folder)
{
    if (r->t <= s->expected.n) {
        if (dlc_sha256_equal(&s->expected.items[r->t - 1].hash, &r->hash))
            return DLC_OK;
        return dlc_fail(DLC_EINPUT, "%s: its outer step %llu is not the one in records.jsonl", folder,
                        (unsigned long long)r->t);
    }
    if (r->t != s->expected.n + 1)
        return dlc_fail(DLC_EINPUT, "%s: is of outer step %llu, records.jsonl ends with %zu", folder,
                        (unsigned long long)r->t, s->expected.n);
    return dlc_records_append(s->run_folder, r);
}

static dlc_err take_manifest(struct dlc_saver *s, const char *folder, const json_t *info, const char *run_id,
                             struct dlc_record *last)
{
    const char *line;

    DLC_TRY(dlc_json_get_string(&line, info, "record", folder));
    DLC_TRY(dlc_record_from_line(last, line, strlen(line), folder));
    if (strcmp(last->run, run_id) != 0)
        return dlc_fail(DLC_EINPUT, "%s: belongs to run %s, the folder's run is %s", folder, last->run, run_id);
    DLC_TRY(match_record(s, last, folder));
    traffic_from_json(s, json_object_get(info, "traffic"));
    return DLC_OK;
}

static dlc_err load_checkpoint(struct dlc_saver *s, const char *folder, const char *run_id, json_t **saved,
                               struct dlc_record *last, float *const theta[2])
{
    struct dlc_model_config shape;
    json_t *info = NULL, *coordinator;
    dlc_err err;

    DLC_TRY(dlc_ckpt_verify(folder, &info));
    DLC_TRY_TO(done, dlc_json_get_object(&coordinator, info, "coordinator", folder));
    DLC_TRY_TO(done, take_manifest(s, folder, info, run_id, last));
    DLC_TRY_TO(done, dlc_model_folder_config(&shape, folder));
    if (dlc_model_n_params(&shape) != dlc_model_n_params(&s->config->model.shape)) {
        err = dlc_fail(DLC_EINPUT, "%s: %zu parameters, run.ini says %zu", folder, dlc_model_n_params(&shape),
                       dlc_model_n_params(&s->config->model.shape));
        goto done;
    }
    DLC_TRY_TO(done, dlc_model_folder_params(theta[last->t & 1], &s->config->model.shape, folder));
    DLC_TRY_TO(done, read_outer(s, folder));
    DLC_TRY_TO(done, seed_islands(s, folder, coordinator));
    *saved = json_incref(coordinator);
done:
    json_decref(info);
    return err;
}

dlc_err dlc_saver_restore(struct dlc_saver *s, const char *run_id, uint64_t *t, json_t **saved, struct dlc_record *last,
                          float *const theta[2])
{
    char folder[DLC_PATH_MAX], island_folder[DLC_PATH_MAX];
    dlc_err err;

    *t = 0;
    *saved = NULL;
    *last = (struct dlc_record){ 0 };
    DLC_TRY(dlc_records_read(&s->expected, s->run_folder, run_id));
    DLC_TRY(dlc_records_truncate(s->run_folder, &s->expected, s->expected.n)); /* a torn end goes */
    err = dlc_ckpt_find(folder, t, s->run_folder);
    if (err == DLC_ENOTFOUND) {
        if (s->expected.n > 0 && s->config->train.checkpoint_every <= (int64_t)s->expected.n)
            return dlc_fail(DLC_EINPUT,
                            "%s: has %zu outer records and no complete checkpoint; it cannot go on from there",
                            s->run_folder, s->expected.n);
        *t = 0;
        for (int i = 0; islands_are_here(s) && i < s->config->train.islands; i++) {
            DLC_TRY(dlc_island_folder(island_folder, s->run_folder, i));
            DLC_TRY(clear_states(island_folder));
        }
        return DLC_OK;
    }
    if (err != DLC_OK)
        return err;
    return load_checkpoint(s, folder, run_id, saved, last, theta);
}
