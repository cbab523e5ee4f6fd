/* What an island trains in earnest: a model on samples of a dataset with AdamW, its inner state kept in files.
 *
 * Files, in the island's own folder (run/islands/03/):
 *   inner-000040.safetensors   inner state after outer step 40: exp_avg, exp_avg_sq and, where a contribution may be
 *                              lost (outer.drop), params; all [N] in the order of the parameter table. Metadata: run,
 *                              island, outer_step, adam_step, n_skipped
 *   paused.safetensors         the same with params, in the middle of a round; metadata names the assignment exactly */
#ifndef DLC_ISLAND_TRAINER_H
#define DLC_ISLAND_TRAINER_H

#include "backend/backend.h"
#include "config/config.h"
#include "data/dataset.h"
#include "island/island.h"

typedef struct dlc_trainer dlc_trainer;

/* config is resolved. config, data and backend stay the caller's. folder: the island's own; made when missing.
 * Everything big is allocated here. */
dlc_err dlc_trainer_create(dlc_trainer **out, const struct dlc_config *config, const char *run_id, int island,
                           const char *folder, const dlc_dataset *data, dlc_backend *backend);
void dlc_trainer_destroy(dlc_trainer *t); /* accepts NULL */

/* For dlc_island_create, with the trainer as `self`. */
extern const struct dlc_trainer_ops dlc_trainer_ops;

/* Bytes that a trainer of this configuration allocates, by purpose, before anything is allocated. */
struct dlc_trainer_memory {
    size_t params, grads, moments, activations, scratch;
};
void dlc_trainer_memory_plan(struct dlc_trainer_memory *out, const struct dlc_config *config,
                             const dlc_backend *backend);

/* "inner-000040.safetensors" joined to the island's folder, and the folder itself ("<run>/islands/03"). */
dlc_err dlc_inner_state_path(char out[DLC_PATH_MAX], const char *island_folder, uint64_t outer_step);
dlc_err dlc_island_folder(char out[DLC_PATH_MAX], const char *run_folder, int island);

#endif
