/* The verbs of the program: one file and one row each. */
#ifndef DLC_CLI_VERBS_H
#define DLC_CLI_VERBS_H

#include "cli/options.h"

extern const struct dlc_verb dlc_verb_prepare, dlc_verb_train, dlc_verb_eval, dlc_verb_generate, dlc_verb_export,
    dlc_verb_import, dlc_verb_plan, dlc_verb_bench, dlc_verb_coordinate, dlc_verb_join, dlc_verb_status, dlc_verb_doctor, dlc_verb_link;

extern const struct dlc_verb dlc_verb_island; /* started by train, not by people: in no list */

const struct dlc_verb *const *dlc_verbs(void);          /* NULL-terminated, in the order of a tour */
const struct dlc_verb *dlc_verb_find(const char *name); /* NULL: none */
const char *dlc_verb_nearest(const char *name);         /* NULL: nothing near */

#endif
