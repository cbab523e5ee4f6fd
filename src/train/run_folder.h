/* A run folder: who the run is, its records, its metrics, its lock. docs/formats/checkpoint.md lists the files. */
#ifndef DLC_TRAIN_RUN_FOLDER_H
#define DLC_TRAIN_RUN_FOLDER_H

#include <stdbool.h>

#include "base/file.h"
#include "config/config.h"
#include "data/dataset.h"
#include "outer/record.h"

/* run.json: what must never change. */
struct dlc_run_identity {
    char run_id[DLC_RUN_ID_SIZE];
    uint64_t seed;
    struct dlc_sha256 data_digest, tokenizer_digest;
    struct dlc_sha256 config_digest; /* of dlc_config_frozen_text */
};

/* A fresh random run id (from the system's random numbers). */
dlc_err dlc_run_identity_new(struct dlc_run_identity *out, const struct dlc_config *config, const dlc_dataset *data);
dlc_err dlc_run_identity_write(const char *run_folder, const struct dlc_run_identity *identity);
dlc_err dlc_run_identity_read(struct dlc_run_identity *out, const char *run_folder);
/* DLC_EINPUT when the data, or what run.ini says, is not what the run began with. */
dlc_err dlc_run_identity_check(const struct dlc_run_identity *identity, const char *run_folder,
                               const struct dlc_config *config, const dlc_dataset *data);

bool dlc_run_has_history(const char *run_folder); /* run.json is there */

/* The records of records.jsonl, chain and hashes checked: DLC_EINPUT with the line that breaks it. A last line without
 * its end (a crash while appending) is left out. The caller frees with dlc_records_free. */
struct dlc_records {
    struct dlc_record *items; /* items[i] is of outer step i + 1 */
    size_t n;
};
dlc_err dlc_records_read(struct dlc_records *out, const char *run_folder, const char *run_id);
void dlc_records_free(struct dlc_records *records);

/* Makes the file hold exactly the first n records (atomic), so that the next append continues the chain. */
dlc_err dlc_records_truncate(const char *run_folder, const struct dlc_records *records, size_t n);
/* The line of record t, as it stands in the file; free with dlc_free. DLC_ENOTFOUND: there is none. */
dlc_err dlc_record_line_read(char **out, const char *run_folder, uint64_t t);
dlc_err dlc_records_append(const char *run_folder, const struct dlc_record *record); /* durable on return */

/* metrics.jsonl without the lines of inner steps at or beyond `step` (they are trained again) and without a torn end.
 */
dlc_err dlc_metrics_trim(const char *run_folder, int64_t step);

/* Which rows of outer step t are in metrics.jsonl: a kill between the step's record and a row leaves the row out. */
struct dlc_metrics_rows {
    bool outer, val, final;
};
dlc_err dlc_metrics_find(struct dlc_metrics_rows *out, const char *run_folder, uint64_t t);

#endif
