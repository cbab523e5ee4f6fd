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

/* manifest.json: {"self_sha256", "outer_step", "files": {name: {"bytes", "sha256"}}, "info": <info>}. `info` is
 * borrowed; may be NULL. Files added by hard link keep their inode. Replaces nothing: a complete checkpoint of the same
 * step is DLC_EFAIL; one that does not verify is no checkpoint and makes way. On any failure the partial folder is
 * removed. */
dlc_err dlc_ckpt_commit(const char *run_folder, uint64_t outer_step, const json_t *info);
void dlc_ckpt_abort(const char *run_folder,
                    uint64_t outer_step); /* keeps the error text; nothing begun: nothing done */

/* Full check: the manifest has its own digest, belongs to the step in the folder's name (where that is outer-N), and
 * every file of it is there with its size and hash; no other differences matter. *info (may be NULL) gets a new
 * reference, or NULL when none was given. DLC_EINPUT names the first file that does not match, DLC_ENOTFOUND: no such
 * folder, DLC_EIO, DLC_ENOMEM. Reads everything, in fixed memory. */
dlc_err dlc_ckpt_verify(const char *folder, json_t **info);

/* The step's checkpoint must be there (DLC_EFAIL), whole or not is not looked at. */
dlc_err dlc_ckpt_set_latest(const char *run_folder, uint64_t outer_step);

/* The newest complete checkpoint. That is what `latest` names, or a newer one when a crash came between the rename and
 * the move of `latest`, or an older one when that is damaged; each skipped one is warned about with the reason.
 * DLC_ENOTFOUND when the run has none; DLC_EINPUT when it has some and none is whole, so that a run with history is not
 * taken for an empty one. Out of memory is an error and never leads to an older one. */
dlc_err dlc_ckpt_find(char out_folder[DLC_PATH_MAX], uint64_t *outer_step, const char *run_folder);

/* Deletes all but the newest `keep` complete ones (keep >= 1) and partial leftovers; never what `latest` names, and no
 * damaged one as long as there is nothing better. Complete is judged by manifest and sizes here, not by hashing. */
dlc_err dlc_ckpt_retain(const char *run_folder, int keep);

#endif
