/* What a storm is about: made-up text, prepared; a model that takes a millisecond a step; the command lines. */
#ifndef DLC_CHAOS_SCENE_SETUP_H
#define DLC_CHAOS_SCENE_SETUP_H

#include <stddef.h>
#include <stdint.h>

#include "actors.h"

struct storm_config;

#define SCENE_CONTEXT 32 /* tokens of a sample */

/* folder/text.txt and folder/data. */
dlc_err scene_make_data(const char *program, const char *folder);
/* Seconds of one inner step of one island alone. */
dlc_err scene_step_seconds(double *out, const char *program, const char *folder);

dlc_err scene_start_coordinator(struct actor *a, const struct storm_config *config, const char *program,
                                const char *folder, int port, int64_t H);
dlc_err scene_start_island(struct actor *a, const char *program, const char *folder, int number, const char *url);
/* From what the coordinator printed; false: not there yet. */
bool scene_join_url(char *out, size_t size, const char *coordinator_out);
/* Where each island's name stands in islands.json; index[i] = i where it is not. */
void scene_read_indices(int *index, int n, const char *run_folder);
dlc_err scene_free_port(int *out);
/* Whether the program knows the verb. */
bool scene_has_verb(const char *program, const char *verb, const char *folder);

#endif
