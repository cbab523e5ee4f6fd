/* What a run needs, before it is allocated. Where each figure comes from stands beside it; e2e_memory_test.c compares
 * the sums with what the kernel counts. */
#include "train/run.h"

#include <string.h>

#include "base/log.h"
#include "base/pool.h"
#include "base/rss.h"
#include "island/island_main.h"

/* What a matrix library allocates for itself, a thread: oneDNN packs its rows of one f32 operand, up to 512 columns,
 * and blocks of the other. In an island the C library keeps that for the next product, and some more; in the
 * coordinator it gives it back (cli/cmd_train.c). Measured. oneDNN's bf16 products and the builtin ones keep their
 * panels in memory that is planned elsewhere. */
#define ONEDNN_F32_KEPT_BYTES ((size_t)9 << 20)
#define ONEDNN_F32_BLOCK_BYTES ((size_t)3 << 20)
#define ONEDNN_F32_COLUMNS 512
/* Working memory of the kernels and of the primitives they compile, as far as it is touched. */
#define KERNELS_BYTES ((size_t)4 << 20)

struct plan {
    size_t process, island, coordinator; /* of each process on its own */
    size_t shared, seen_by_island;       /* the exchange: in all, and what one island touches */
    struct dlc_trainer_memory trainer;
    size_t evaluation, outer_state;
};

static bool packs(const dlc_backend *backend, dlc_precision precision)
{
    return strcmp(backend->matmul, "onednn") == 0 && precision == DLC_PRECISION_F32;
}

static size_t island_kernels_bytes(const struct dlc_run *run)
{
    return KERNELS_BYTES + (packs(run->backend, run->config->train.precision)
                                ? (size_t)run->config->system.threads * ONEDNN_F32_KEPT_BYTES
                                : 0);
}

static size_t coordinator_kernels_bytes(const struct dlc_run *run)
{
    struct dlc_model_options options = dlc_run_eval_options(run);
    size_t rows = (size_t)options.max_batch * (size_t)options.max_seq;
    size_t width = (size_t)run->config->model.shape.d_ffn;

    if (!packs(run->backend, DLC_PRECISION_F32))
        return KERNELS_BYTES;
    width = width < ONEDNN_F32_COLUMNS ? width : ONEDNN_F32_COLUMNS;
    return KERNELS_BYTES + (size_t)dlc_pool_n_threads(run->backend->pool) * ONEDNN_F32_BLOCK_BYTES +
           rows * width * sizeof(float);
}

static size_t evaluation_bytes(const struct dlc_run *run)
{
    struct dlc_model_options options = dlc_run_eval_options(run);
    struct dlc_model_memory eval;

    if (dlc_dataset_info(run->data)->n_val_tokens < 2)
        return 0;
    dlc_model_memory_plan(&eval, &run->config->model.shape, &options, run->backend);
    return eval.activations + eval.scratch; /* theta is read where it stands */
}

static void plan_exchange(struct plan *p, const struct dlc_config *c)
{
    struct dlc_exchange_size size = dlc_exchange_size_of(c);
    size_t array = size.n_params * sizeof(float), mean = size.lockstep ? array : 0;
    bool one_round = c->train.steps <= c->outer.steps; /* theta(1) is never sent back */

    p->shared = 2 * array + mean + (size_t)size.n_islands * size.slot_bytes;
    p->seen_by_island = (one_round ? 1 : 2) * array + mean + size.slot_bytes;
}

static void make_plan(struct plan *p, const struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    size_t n = dlc_model_n_params(&c->model.shape);
    const struct dlc_trainer_memory *t = &p->trainer;
    dlc_outer_kind optimizer = c->train.method == DLC_METHOD_DILOCO ? c->outer.optimizer : DLC_OUTER_SGD;

    dlc_trainer_memory_plan(&p->trainer, c, run->backend);
    plan_exchange(p, c);
    p->process = dlc_rss_now_bytes();
    p->evaluation = evaluation_bytes(run);
    p->outer_state = n * sizeof(float) * (size_t)dlc_outer_opt_n_state(optimizer);
    p->island = t->params + t->grads + t->moments + t->activations + t->scratch + island_kernels_bytes(run);
    p->coordinator = p->process + p->outer_state + p->evaluation;
    if (p->evaluation)
        p->coordinator += coordinator_kernels_bytes(run);
}

static double mb(size_t bytes)
{
    return (double)bytes / (1024.0 * 1024.0);
}

static void say(const struct plan *p, const struct dlc_run *run, size_t total)
{
    const struct dlc_config *c = run->config;
    const struct dlc_trainer_memory *t = &p->trainer;

    dlc_info(
        "model: %zu parameters, vocabulary %d, context %d, %.3g FLOPs a token; instruction set %s, matrix products %s",
        dlc_model_n_params(&c->model.shape), c->model.shape.vocab_size, c->model.shape.context,
        dlc_model_flops_per_token(&c->model.shape, c->model.shape.context), run->backend->isa, run->backend->matmul);
    dlc_info("memory: %.1f MB = %d x %.1f MB (parameters %.1f, gradients %.1f, moments %.1f, activations %.1f, scratch "
             "%.1f, kernels %.1f, the program %.1f) + exchange %.1f + coordinator %.1f (outer optimizer %.1f, "
             "validation %.1f, the rest the program)",
             mb(total), c->train.islands, mb(p->process + p->island), mb(t->params), mb(t->grads), mb(t->moments),
             mb(t->activations), mb(t->scratch), mb(island_kernels_bytes(run)), mb(p->process), mb(p->shared),
             mb(p->coordinator), mb(p->outer_state), mb(p->evaluation));
}

dlc_err dlc_run_say_plan(struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    size_t k = (size_t)c->train.islands, total;
    bool one_process = c->exchange.kind == DLC_EXCHANGE_INPROC;
    struct plan p;

    make_plan(&p, run);
    total = k * (one_process ? p.island : p.process + p.island) + p.shared + p.coordinator;
    run->memory.own_planned = one_process ? total : p.coordinator + p.shared;
    run->memory.island_planned = one_process ? 0 : p.process + p.island + p.seen_by_island;
    say(&p, run, total);
    if (c->system.memory_limit_mb > 0 && mb(total) > (double)c->system.memory_limit_mb)
        return dlc_fail(
            DLC_EFAIL,
            "this run needs %.0f MB, %lld MB are allowed (system.memory_limit_mb); take a smaller model, fewer "
            "islands or a smaller train.micro_batch",
            mb(total), (long long)c->system.memory_limit_mb);
    return DLC_OK;
}
