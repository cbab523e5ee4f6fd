#include "cli/verbs.h"

#include <string.h>

#include "config/nearest.h"

static const struct dlc_verb *const verbs[] = {
    &dlc_verb_prepare,  &dlc_verb_train, &dlc_verb_coordinate, &dlc_verb_join,   &dlc_verb_status,
    &dlc_verb_eval,     &dlc_verb_generate, &dlc_verb_export,  &dlc_verb_import, &dlc_verb_plan,
    &dlc_verb_link,     &dlc_verb_bench,    &dlc_verb_doctor,     NULL,
};

const struct dlc_verb *const *dlc_verbs(void)
{
    return verbs;
}

const struct dlc_verb *dlc_verb_find(const char *name)
{
    for (size_t i = 0; verbs[i]; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return strcmp(name, dlc_verb_island.name) == 0 ? &dlc_verb_island : NULL;
}

const char *dlc_verb_nearest(const char *name)
{
    struct dlc_nearest nearest = dlc_nearest_start(name);

    for (size_t i = 0; verbs[i]; i++)
        dlc_nearest_offer(&nearest, verbs[i]->name, verbs[i]->name);
    return dlc_nearest_result(&nearest);
}
