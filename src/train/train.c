#include "train/train.h"

#include "base/mem.h"
#include "base/signals.h"
#include "train/run.h"

dlc_err dlc_train(struct dlc_config *config, const struct dlc_train_options *options)
{
    struct dlc_run *run = dlc_calloc(1, sizeof *run);
    dlc_err err;

    if (!run)
        return DLC_ENOMEM;
    dlc_signals_catch();
    err = dlc_run_open(run, config, options);
    if (err == DLC_OK)
        err = dlc_run_loop(run);
    dlc_run_close(run);
    dlc_free(run);
    return err;
}
