/* A stop in mid-round: each island's paused.safetensors and, written last, paused.json with the rows of metrics that
 * wait for some islands. Without paused.json the islands' files are of a stop that was cut off, and count for nothing:
 * the round starts again. It stays until the round is committed or the next stop begins. */
#ifndef DLC_TRAIN_PAUSED_H
#define DLC_TRAIN_PAUSED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* rows: dlc_progress_to_json, changed here. t: the last committed outer step. */
dlc_err dlc_paused_write(const char *run_folder, json_t *rows, uint64_t t);
dlc_err dlc_paused_remove(const char *run_folder); /* durable */

/* What an earlier stop after outer step t left: *rows (new reference) and the islands' files, or NULL and no files.
 * all_alike: islands that stand at different inner steps are of no use (one of them died during the stop). */
dlc_err dlc_paused_read(json_t **rows, const char *run_folder, uint64_t t, int n_islands, bool all_alike);

#endif
