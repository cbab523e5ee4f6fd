/* How a run stands, as one JSON object: asked of its coordinator, or read from its folder. */
#ifndef DLC_TRAIN_STATUS_H
#define DLC_TRAIN_STATUS_H

#include <jansson.h>

#include "base/err.h"

/* url: of a served run (the join line's). DLC_EPEER: nobody answers, or what fails on the way. New reference. */
dlc_err dlc_status_ask(json_t **out, const char *url, double timeout_s);

/* A run folder, also of a run that is not at work. New reference. */
dlc_err dlc_status_folder(json_t **out, const char *run_folder);

#endif
