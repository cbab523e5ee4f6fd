#include "train/run.h"

#include "base/log.h"
#include "island/island_main.h"

static double mb(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

dlc_err dlc_run_say_plan(const struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    size_t n = dlc_model_n_params(&c->model.shape), k = (size_t)c->train.islands;
    struct dlc_exchange_size size = dlc_exchange_size_of(c);
    struct dlc_trainer_memory island;
    struct dlc_model_options eval_options = { .max_batch = c->train.micro_batch, .max_seq = c->model.shape.context };
    struct dlc_model_memory eval;
    size_t an_island, coordinator, total;

    dlc_trainer_memory_plan(&island, c, run->backend);
    dlc_model_memory_plan(&eval, &c->model.shape, &eval_options, run->backend);
    an_island = island.params + island.grads + island.moments + island.activations + island.scratch;
    coordinator = n * sizeof(float) * (size_t)(2 + dlc_outer_opt_n_state(c->outer.optimizer)) +
                  (size.lockstep ? n * sizeof(float) : 0) + k * size.slot_bytes + eval.params + eval.activations +
                  eval.scratch;
    total = k * an_island + coordinator;
    dlc_info(
        "model: %zu parameters, vocabulary %d, context %d, %.3g FLOPs a token; instruction set %s, matrix products %s",
        n, c->model.shape.vocab_size, c->model.shape.context,
        dlc_model_flops_per_token(&c->model.shape, c->model.shape.context), run->backend->isa, run->backend->matmul);
    dlc_info(
        "memory: %.0f MB = %zu x %.1f MB (parameters %.1f, gradients %.1f, moments %.1f, activations %.1f, scratch "
        "%.1f) + coordinator %.1f",
        mb(total), k, mb(an_island), mb(island.params), mb(island.grads), mb(island.moments), mb(island.activations),
        mb(island.scratch), mb(coordinator));
    if (c->system.memory_limit_mb > 0 && mb(total) > (double)c->system.memory_limit_mb)
        return dlc_fail(
            DLC_EFAIL,
            "this run needs %.0f MB, %lld MB are allowed (system.memory_limit_mb); take a smaller model, fewer "
            "islands or a smaller train.micro_batch",
            mb(total), (long long)c->system.memory_limit_mb);
    return DLC_OK;
}
