#include "train/train.h"

dlc_err dlc_train(struct dlc_config *config, const struct dlc_train_options *options)
{
    (void)config;
    (void)options;
    return dlc_fail(DLC_EFAIL, "this build cannot train");
}
