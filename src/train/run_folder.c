#include "train/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/random.h"

#define RECORDS_MAX_BYTES ((size_t)1 << 32)
#define METRICS_MAX_BYTES ((size_t)1 << 32)

static dlc_err digest_config(struct dlc_sha256 *out, const struct dlc_config *config)
{
    struct dlc_buf text = { 0 };
    dlc_err err = dlc_config_frozen_text(&text, config);

    if (err == DLC_OK)
        *out = dlc_sha256(text.data, text.len);
    dlc_buf_fini(&text);
    return err;
}

dlc_err dlc_run_identity_new(struct dlc_run_identity *out, const struct dlc_config *config, const dlc_dataset *data)
{
    *out = (struct dlc_run_identity){ .seed = config->train.seed,
                                      .data_digest = dlc_dataset_info(data)->digest,
                                      .tokenizer_digest = dlc_dataset_info(data)->tokenizer_digest };
    DLC_TRY(dlc_random_hex(out->run_id, (DLC_RUN_ID_SIZE - 1) / 2));
    return digest_config(&out->config_digest, config);
}

dlc_err dlc_run_identity_write(const char *run_folder, const struct dlc_run_identity *identity)
{
    char path[DLC_PATH_MAX], data[DLC_SHA256_HEX], tokenizer[DLC_SHA256_HEX], config[DLC_SHA256_HEX],
        seed[24];
    json_t *v;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, run_folder, "run.json"));
    dlc_sha256_to_hex(data, &identity->data_digest);
    dlc_sha256_to_hex(tokenizer, &identity->tokenizer_digest);
    dlc_sha256_to_hex(config, &identity->config_digest);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)identity->seed); /* JSON numbers do not reach that far */
    v = json_pack("{s:s, s:i, s:s, s:s, s:s, s:s}", "run", identity->run_id, "version", 1, "seed", seed, "data_sha256", data,
                  "tokenizer_sha256", tokenizer, "config_sha256", config);
    err = v ? dlc_json_write_file(path, v) : dlc_fail(DLC_ENOMEM, "out of memory: run.json");
    json_decref(v);
    return err;
}

static dlc_err read_seed(uint64_t *out, const json_t *v, const char *path)
{
    const char *text;
    char *end;

    DLC_TRY(dlc_json_get_string(&text, v, "seed", path));
    *out = strtoull(text, &end, 10);
    return end > text && !*end ? DLC_OK : dlc_fail(DLC_EINPUT, "%s: \"seed\" is '%.40s', not a number", path, text);
}

static dlc_err read_digest(struct dlc_sha256 *out, const json_t *v, const char *key, const char *path)
{
    const char *hex;

    DLC_TRY(dlc_json_get_string(&hex, v, key, path));
    if (dlc_sha256_from_hex(out, hex) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "%s: \"%s\"", path, key);
    return DLC_OK;
}

dlc_err dlc_run_identity_read(struct dlc_run_identity *out, const char *run_folder)
{
    char path[DLC_PATH_MAX];
    const char *run;
    int64_t version;
    json_t *v = NULL;
    dlc_err err;

    *out = (struct dlc_run_identity){ .seed = 0 };
    DLC_TRY(dlc_path_join(path, run_folder, "run.json"));
    DLC_TRY(dlc_json_read_file(&v, path, 1 << 20));
    DLC_TRY_TO(done, dlc_json_get_int(&version, v, "version", 1, 1, path));
    DLC_TRY_TO(done, dlc_json_get_string(&run, v, "run", path));
    if (strlen(run) != DLC_RUN_ID_SIZE - 1) {
        err = dlc_fail(DLC_EINPUT, "%s: \"run\" is not a run id", path);
        goto done;
    }
    memcpy(out->run_id, run, DLC_RUN_ID_SIZE);
    DLC_TRY_TO(done, read_seed(&out->seed, v, path));
    DLC_TRY_TO(done, read_digest(&out->data_digest, v, "data_sha256", path));
    DLC_TRY_TO(done, read_digest(&out->tokenizer_digest, v, "tokenizer_sha256", path));
    err = read_digest(&out->config_digest, v, "config_sha256", path);
done:
    json_decref(v);
    return err;
}

dlc_err dlc_run_identity_check(const struct dlc_run_identity *identity, const char *run_folder,
                               const struct dlc_config *config, const dlc_dataset *data)
{
    const struct dlc_dataset_info *info = dlc_dataset_info(data);
    char was[DLC_SHA256_HEX], is[DLC_SHA256_HEX];
    struct dlc_sha256 config_digest;

    DLC_TRY(digest_config(&config_digest, config));
    if (!dlc_sha256_equal(&config_digest, &identity->config_digest))
        return dlc_fail(DLC_EINPUT, "%s/run.ini is not what the run began with: a key was changed by hand; put it back, or "
                        "begin another run with train.init_from", run_folder);
    if (dlc_sha256_equal(&identity->data_digest, &info->digest))
        return DLC_OK;
    dlc_sha256_to_hex(was, &identity->data_digest);
    dlc_sha256_to_hex(is, &info->digest);
    return dlc_fail(DLC_EINPUT,
                    "%s was trained on data %.12s, this is %.12s; give the data it began with, or another --out",
                    run_folder, was, is);
}

bool dlc_run_has_history(const char *run_folder)
{
    char path[DLC_PATH_MAX];

    return dlc_path_join(path, run_folder, "run.json") == DLC_OK && dlc_file_exists(path);
}

/* --- records -------------------------------------------------------------------------------------------------------
 */

static dlc_err add_record(struct dlc_records *records, size_t *cap, struct dlc_record *r)
{
    if (records->n == *cap) {
        size_t more = *cap ? 2 * *cap : 64;
        struct dlc_record *items = dlc_realloc(records->items, more * sizeof *items);

        if (!items)
            return DLC_ENOMEM;
        records->items = items;
        *cap = more;
    }
    records->items[records->n++] = *r;
    return DLC_OK;
}

static dlc_err check_link(const struct dlc_records *records, const struct dlc_record *r, const char *run_id,
                          const char *where)
{
    static const struct dlc_sha256 none;
    const struct dlc_sha256 *prev = records->n ? &records->items[records->n - 1].hash : &none;

    if (strcmp(r->run, run_id) != 0)
        return dlc_fail(DLC_EINPUT, "%s: is of run %s, the folder's run is %s", where, r->run, run_id);
    if (r->t != records->n + 1)
        return dlc_fail(DLC_EINPUT, "%s: is outer step %llu, expected %zu", where, (unsigned long long)r->t,
                        records->n + 1);
    if (!dlc_sha256_equal(&r->prev, prev))
        return dlc_fail(DLC_EINPUT, "%s: does not continue the record before it: the chain is broken", where);
    return DLC_OK;
}

static dlc_err read_line(struct dlc_records *records, size_t *cap, const char *line, size_t n, const char *run_id,
                         const char *where)
{
    struct dlc_record r;
    dlc_err err;

    DLC_TRY(dlc_record_from_line(&r, line, n, where));
    err = check_link(records, &r, run_id, where);
    if (err == DLC_OK)
        err = add_record(records, cap, &r);
    if (err != DLC_OK)
        dlc_record_fini(&r);
    return err;
}

dlc_err dlc_records_read(struct dlc_records *out, const char *run_folder, const char *run_id)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX], where[DLC_PATH_MAX + 32];
    size_t cap = 0;
    dlc_err err;

    *out = (struct dlc_records){ 0 };
    DLC_TRY(dlc_path_join(path, run_folder, "records.jsonl"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    DLC_TRY_TO(done, dlc_file_read(&text, path, RECORDS_MAX_BYTES));
    for (char *line = text.data, *end; err == DLC_OK && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        snprintf(where, sizeof where, "%s line %zu", path, out->n + 1);
        err = read_line(out, &cap, line, (size_t)(end - line), run_id, where);
    }
done:
    dlc_buf_fini(&text);
    if (err != DLC_OK)
        dlc_records_free(out);
    return err;
}

void dlc_records_free(struct dlc_records *records)
{
    for (size_t i = 0; i < records->n; i++)
        dlc_record_fini(&records->items[i]);
    dlc_free(records->items);
    *records = (struct dlc_records){ 0 };
}

dlc_err dlc_records_truncate(const char *run_folder, const struct dlc_records *records, size_t n)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX], *line;
    dlc_err err = DLC_OK;

    DLC_TRY(dlc_path_join(path, run_folder, "records.jsonl"));
    for (size_t i = 0; err == DLC_OK && i < n; i++) {
        err = dlc_record_to_line(&line, &records->items[i]);
        if (err == DLC_OK)
            err = dlc_buf_printf(&text, "%s\n", line);
        dlc_free(line);
    }
    if (err == DLC_OK)
        err = dlc_file_write_atomic(path, text.data ? text.data : "", text.len);
    dlc_buf_fini(&text);
    return err;
}

dlc_err dlc_record_line_read(char **out, const char *run_folder, uint64_t t)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX], *line, *end;
    dlc_err err;

    *out = NULL;
    DLC_TRY(dlc_path_join(path, run_folder, "records.jsonl"));
    err = dlc_file_read(&text, path, RECORDS_MAX_BYTES);
    line = err == DLC_OK ? text.data : NULL;
    for (uint64_t i = 1; line && i < t; i++) {
        end = strchr(line, '\n');
        line = end ? end + 1 : NULL;
    }
    end = line && t > 0 ? strchr(line, '\n') : NULL;
    if (err == DLC_OK && !end)
        err = dlc_fail(DLC_ENOTFOUND, "%s: there is no record of outer step %llu", path, (unsigned long long)t);
    if (err == DLC_OK) {
        *end = '\0';
        *out = dlc_strdup(line);
        err = *out ? DLC_OK : DLC_ENOMEM;
    }
    dlc_buf_fini(&text);
    return err;
}

dlc_err dlc_records_append(const char *run_folder, const struct dlc_record *record)
{
    char path[DLC_PATH_MAX], *line;
    dlc_err err;

    DLC_TRY(dlc_path_join(path, run_folder, "records.jsonl"));
    DLC_TRY(dlc_record_to_line(&line, record));
    err = dlc_file_append_line(path, line, true);
    dlc_free(line);
    return err;
}

/* --- metrics -------------------------------------------------------------------------------------------------------
 */

static bool is_before(const char *line, size_t n, int64_t step)
{
    bool out_of_memory;
    json_t *v = dlc_json_load(line, n, 0, NULL, &out_of_memory);
    const json_t *s = json_object_get(v, "step");
    bool before = json_is_integer(s) && json_integer_value(s) <= step;

    json_decref(v);
    return before;
}

dlc_err dlc_metrics_trim(const char *run_folder, int64_t step)
{
    struct dlc_buf text = { 0 }, kept = { 0 };
    char path[DLC_PATH_MAX];
    dlc_err err;

    DLC_TRY(dlc_path_join(path, run_folder, "metrics.jsonl"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    DLC_TRY_TO(done, dlc_file_read(&text, path, METRICS_MAX_BYTES));
    for (char *line = text.data, *end; err == DLC_OK && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        if (is_before(line, (size_t)(end - line), step))
            err = dlc_buf_append(&kept, line, (size_t)(end - line) + 1);
    }
    if (err == DLC_OK && kept.len != text.len)
        err = dlc_file_write_atomic(path, kept.data ? kept.data : "", kept.len);
done:
    dlc_buf_fini(&text);
    dlc_buf_fini(&kept);
    return err;
}

static void note_row(struct dlc_metrics_rows *out, const json_t *row, uint64_t t)
{
    if (json_integer_value(json_object_get(row, "outer/step")) != (json_int_t)t)
        return;
    if (json_object_get(row, "final"))
        out->final = true;
    else if (json_object_get(row, "val/loss"))
        out->val = true;
    else
        out->outer = true;
}

dlc_err dlc_metrics_find(struct dlc_metrics_rows *out, const char *run_folder, uint64_t t)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX];
    dlc_err err;

    *out = (struct dlc_metrics_rows){ 0 };
    DLC_TRY(dlc_path_join(path, run_folder, "metrics.jsonl"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    err = dlc_file_read(&text, path, METRICS_MAX_BYTES);
    for (char *line = text.data, *end; err == DLC_OK && line && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        bool out_of_memory;
        json_t *row = dlc_json_load(line, (size_t)(end - line), 0, NULL, &out_of_memory);

        note_row(out, row, t);
        json_decref(row);
    }
    dlc_buf_fini(&text);
    return err;
}
