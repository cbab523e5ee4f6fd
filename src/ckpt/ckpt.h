/* Checkpoints of a run: checkpoints/outer-000040/ is a model folder plus whatever files the run adds (outer state, one
 * file an island), with manifest.json written last. A checkpoint without a valid manifest does not exist.
 *
 * Life of one: dlc_ckpt_begin makes checkpoints/.partial-outer-000040/, the caller puts files there, dlc_ckpt_commit
 * hashes them, writes the manifest, makes all durable and renames the folder into place. Then dlc_ckpt_set_latest moves
 * run/latest. Cut off anywhere, the previous checkpoint is still whole and still named by `latest`. */
#ifndef DLC_CKPT_CKPT_H
#define DLC_CKPT_CKPT_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

/* Empty folder to fill. A partial one of an earlier crash is removed first. */
dlc_err dlc_ckpt_begin(char out_folder[DLC_PATH_MAX], const char *run_folder, uint64_t outer_step);

/* manifest.json: {"outer_step", "files": {name: {"bytes", "sha256"}}, "info": <info>}. `info` is borrowed; may be NULL.
 * Files added by hard link keep their inode. Replaces nothing: a complete checkpoint of the same step is DLC_EFAIL. */
dlc_err dlc_ckpt_commit(const char *run_folder, uint64_t outer_step, const json_t *info);
void dlc_ckpt_abort(const char *run_folder, uint64_t outer_step);

/* Full check: every file of the manifest is there with its size and hash, no other differences matter. *info (may be
 * NULL) gets a new reference. DLC_EINPUT names the first file that does not match. */
dlc_err dlc_ckpt_verify(const char *folder, json_t **info);

dlc_err dlc_ckpt_set_latest(const char *run_folder, uint64_t outer_step);

/* The newest complete checkpoint: `latest` first, then by number; each skipped one is warned about with the reason.
 * DLC_ENOTFOUND when the run has none. */
dlc_err dlc_ckpt_find(char out_folder[DLC_PATH_MAX], uint64_t *outer_step, const char *run_folder);

/* Deletes all but the newest `keep` complete ones (keep >= 1) and partial leftovers; never what `latest` names. */
dlc_err dlc_ckpt_retain(const char *run_folder, int keep);

#endif
