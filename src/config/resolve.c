/* From what was given to a complete, consistent configuration. Every choice and every doubt is one line of `said`. */
#include <inttypes.h>

#include "base/cores.h"
#include "base/cores.h"
#include "config/config.h"
#include "config/keys.h"
#include "config/memory.h"
#include "config/rules.h"

static dlc_err resolve_context(struct dlc_config *config, const struct dlc_dataset_info *data, struct dlc_buf *said)
{
    int context = config->model.shape.context, fits;

    if (dlc_config_is_given(config, "model.context"))
        return DLC_OK; /* dlc_dataset_open has the last word and names the largest that works */
    fits = dlc_rule_context(context, data->n_train_tokens);
    if (fits == context || fits == 0)
        return DLC_OK;
    config->model.shape.context = fits;
    return dlc_buf_printf(said,
                          "model.context = %d: the preset's %d is more than the %" PRIu64 " training tokens fill\n",
                          fits, context, data->n_train_tokens);
}

static dlc_err resolve_model(struct dlc_config *config, const struct dlc_dataset_info *data, struct dlc_buf *said)
{
    DLC_TRY(dlc_config_apply_preset(config));
    config->model.shape.vocab_size = data->vocab_size;
    DLC_TRY(resolve_context(config, data, said));
    return dlc_model_config_check(&config->model.shape);
}

static dlc_err resolve_islands(struct dlc_config *config)
{
    if (config->train.method != DLC_METHOD_SINGLE || config->train.islands == 1)
        return DLC_OK;
    return dlc_fail(DLC_EUSAGE,
                    "train.method = single is one worker, but train.islands = %d; leave it out, or take method "
                    "diloco or dp",
                    config->train.islands);
}

static dlc_err resolve_batch(struct dlc_config *config, struct dlc_buf *said)
{
    int batch = config->train.batch, micro = config->train.micro_batch;

    if (micro == DLC_AUTO) {
        micro = config->train.micro_batch = dlc_rule_micro_batch(batch, config->model.shape.context);
        if (micro != batch)
            return dlc_buf_printf(said, "train.micro_batch = %d: gradients of %d parts are summed for a batch of %d\n",
                                  micro, batch / micro, batch);
        return DLC_OK;
    }
    if (batch % micro == 0)
        return DLC_OK;
    return dlc_fail(DLC_EUSAGE, "train.micro_batch = %d does not divide train.batch = %d; %d does", micro, batch,
                    dlc_rule_micro_batch(batch, config->model.shape.context));
}

static dlc_err resolve_inner(struct dlc_config *config, struct dlc_buf *said)
{
    size_t n_params = dlc_model_n_params(&config->model.shape);
    int64_t steps = config->train.steps;

    if (config->optim.lr == DLC_AUTO) {
        config->optim.lr = dlc_rule_inner_lr(n_params);
        DLC_TRY(
            dlc_buf_printf(said, "optim.lr = %g: for %.3g M parameters\n", config->optim.lr, (double)n_params / 1e6));
    }
    if (config->optim.warmup == DLC_AUTO) {
        config->optim.warmup = dlc_rule_warmup(steps);
        DLC_TRY(
            dlc_buf_printf(said, "optim.warmup = %" PRId64 ": for %" PRId64 " steps\n", config->optim.warmup, steps));
    }
    if (config->optim.warmup > steps)
        return dlc_fail(DLC_EUSAGE, "optim.warmup = %" PRId64 " is longer than the run (train.steps = %" PRId64 ")",
                        config->optim.warmup, steps);
    return DLC_OK;
}

static dlc_err resolve_rounds(struct dlc_config *config, struct dlc_buf *said)
{
    int64_t steps = config->train.steps, *h = &config->outer.steps;

    if (!dlc_config_is_given(config, "outer.steps")) {
        int64_t usual = *h;

        *h = dlc_rule_outer_steps(steps);
        if (*h != usual)
            return dlc_buf_printf(said,
                                  "outer.steps = %" PRId64 ": a run of %" PRId64 " steps would have only %" PRId64
                                  " exchange%s with DiLoCo's %" PRId64 "\n",
                                  *h, steps, dlc_rule_rounds(steps, usual),
                                  dlc_rule_rounds(steps, usual) == 1 ? "" : "s", usual);
    } else if (*h > steps && config->train.method == DLC_METHOD_DILOCO) {
        return dlc_buf_printf(said,
                              "warning: outer.steps = %" PRId64 " is longer than the run (%" PRId64
                              " steps): one exchange, at the end\n",
                              *h, steps);
    }
    return DLC_OK;
}

/* For "single" and "dp" nothing is exchanged in rounds; outer.steps only says how often there is a validation. */
static dlc_err say_unused(const struct dlc_config *config, struct dlc_buf *said)
{
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    for (size_t i = 0; i < n; i++)
        if (strncmp(keys[i].name, "outer.", 6) == 0 && strcmp(keys[i].name, "outer.steps") != 0 &&
            dlc_config_is_given(config, keys[i].name))
            DLC_TRY(dlc_buf_printf(said, "warning: %s has no effect with train.method = %s\n", keys[i].name,
                                   config->train.method == DLC_METHOD_DP ? "dp" : "single"));
    return DLC_OK;
}

static dlc_err resolve_momentum(struct dlc_config *config, struct dlc_buf *said)
{
    int64_t h = config->outer.steps, rounds = dlc_rule_rounds(config->train.steps, h);
    double rule = dlc_rule_outer_momentum(rounds, h), *momentum = &config->outer.momentum;
    bool given = *momentum != DLC_AUTO;
    const char *plural = rounds == 1 ? "" : "s";

    if (config->outer.optimizer == DLC_OUTER_SGD || config->outer.optimizer == DLC_OUTER_ADAM) {
        if (!given)
            *momentum = config->outer.optimizer == DLC_OUTER_ADAM ? 0.9 : 0.0;
        return DLC_OK;
    }
    if (!given) {
        *momentum = rule;
        if (config->train.method == DLC_METHOD_DILOCO && rule != 0.9)
            return dlc_buf_printf(said,
                                  "outer.momentum = %g: %" PRId64 " exchange%s of %" PRId64
                                  " steps; DiLoCo's 0.9 is for 100 and more of 250 and more\n",
                                  rule, rounds, plural, h);
        return DLC_OK;
    }
    if (config->train.method == DLC_METHOD_DILOCO && dlc_rule_momentum_is_harmful(*momentum, rounds, h))
        return dlc_buf_printf(said,
                              "warning: outer.momentum = %g is known to spoil models with %" PRId64
                              " exchange%s of %" PRId64 " steps; %g is the rule\n",
                              *momentum, rounds, plural, h, rule);
    return DLC_OK;
}

static dlc_err resolve_outer(struct dlc_config *config, struct dlc_buf *said)
{
    DLC_TRY(resolve_rounds(config, said));
    DLC_TRY(resolve_momentum(config, said));
    if (config->outer.lr == DLC_AUTO)
        config->outer.lr = dlc_rule_outer_lr(config->outer.momentum, config->outer.optimizer == DLC_OUTER_ADAM);
    if (config->train.method != DLC_METHOD_DILOCO)
        DLC_TRY(say_unused(config, said));
    if (config->train.log_every == DLC_AUTO)
        config->train.log_every = dlc_rule_log_every(config->train.steps, config->outer.steps);
    return DLC_OK;
}

static dlc_err resolve_system(struct dlc_config *config, struct dlc_buf *said)
{
    int cores = dlc_n_cores(), islands = config->train.islands;

    if (config->system.threads == DLC_AUTO) {
        config->system.threads = cores / islands > 1 ? cores / islands : 1;
        DLC_TRY(dlc_buf_printf(said, "system.threads = %d: %d core%s for %d island%s\n", config->system.threads, cores,
                               cores == 1 ? "" : "s", islands, islands == 1 ? "" : "s"));
    } else if ((int64_t)config->system.threads * islands > cores) {
        DLC_TRY(dlc_buf_printf(said, "system.threads = %d: %d island%s of that take turns on %d core%s\n",
                               config->system.threads, islands, islands == 1 ? "" : "s", cores, cores == 1 ? "" : "s"));
    }
    if (config->system.memory_limit_mb == DLC_AUTO) {
        int64_t mb = dlc_memory_available_mb();

        config->system.memory_limit_mb = mb > 16 ? mb : 16;
    }
    return DLC_OK;
}

dlc_err dlc_config_resolve(struct dlc_config *config, const struct dlc_dataset_info *data, struct dlc_buf *said)
{
    DLC_TRY(resolve_model(config, data, said));
    DLC_TRY(resolve_islands(config));
    DLC_TRY(resolve_batch(config, said));
    DLC_TRY(resolve_inner(config, said));
    DLC_TRY(resolve_outer(config, said));
    return resolve_system(config, said);
}
