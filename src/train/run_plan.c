/* What a run needs, before it is allocated. Where each figure comes from stands beside it; e2e_memory_test.c compares
 * the sums with what the kernel counts. */
#include "train/run.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rss.h"
#include "island/island_main.h"

/* oneDNN's f32 products pack blocks of both operands, a thread, and free them afterwards; islands keep the room for the
 * next product (train/processes.c), the coordinator does not (cli/cmd_train.c). So many columns of one operand and so
 * many rows of the other at most, this deep: gemm_info.cpp there. Its bf16 products and the builtin ones keep their
 * panels in memory that is planned elsewhere. */
#define ONEDNN_COLUMNS ((size_t)10000)
#define ONEDNN_ROWS ((size_t)384)
#define ONEDNN_DEPTH ((size_t)256)
/* Working memory of the kernels as far as it is touched, a thread: a huge page. */
#define KERNELS_BYTES ((size_t)2 << 20)

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

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t packed_bytes(size_t n_columns, size_t depth)
{
    return (smaller(n_columns, ONEDNN_COLUMNS) + ONEDNN_ROWS) * smaller(depth, ONEDNN_DEPTH) * sizeof(float);
}

/* The head, cut by its columns, or the widest product of a layer. */
static size_t kernels_bytes(const struct dlc_run *run, dlc_precision precision, int n_threads)
{
    const struct dlc_model_config *shape = &run->config->model.shape;
    size_t n = (size_t)n_threads;
    size_t head = packed_bytes((size_t)shape->vocab_size / n, (size_t)shape->d_model);
    size_t layer = packed_bytes((size_t)shape->d_ffn, ONEDNN_DEPTH);

    return n * (KERNELS_BYTES + (packs(run->backend, precision) ? (head > layer ? head : layer) : 0));
}

static size_t island_kernels_bytes(const struct dlc_run *run)
{
    return kernels_bytes(run, run->config->train.precision, run->config->system.threads);
}

/* A small product of each kind, so that what the library of matrix products makes for itself the first time (code, the
 * pages of it that are read) is there when the process is measured. */
static dlc_err warm_up(dlc_backend *be)
{
    enum { N = 128 };
    float *x = dlc_calloc((size_t)2 * N * N, sizeof *x), *y = x + (size_t)N * N;

    if (!x)
        return DLC_ENOMEM;
    be->ops->matmul_nt(be, y, x, x, N, N, N, DLC_F32, 0);
    be->ops->matmul_nn(be, y, x, x, N, N, N, DLC_F32, 0);
    be->ops->matmul_tn(be, y, x, x, N, N, N, DLC_F32, 1);
    dlc_free(x);
    return DLC_OK;
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
    if (c->exchange.kind == DLC_EXCHANGE_NATS) /* the update; contributions are files, mapped while a round closes */
        p->shared = 2 * array + size.slot_bytes;
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
        p->coordinator += kernels_bytes(run, DLC_PRECISION_F32, dlc_pool_n_threads(run->backend->pool));
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
    if (c->exchange.kind == DLC_EXCHANGE_NATS) {
        dlc_info("memory: here %.1f MB (parameters and update %.1f, outer optimizer %.1f, validation %.1f, the rest the "
                 "program) and %.1f MB for each island while a round closes; an island takes some %.1f MB on its machine",
                 mb(total), mb(p->shared), mb(p->outer_state), mb(p->evaluation),
                 mb(dlc_exchange_size_of(c).slot_bytes),
                 mb(p->process + p->island + p->shared + p->outer_state + dlc_exchange_size_of(c).slot_bytes));
        return;
    }
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
    size_t k = c->exchange.kind == DLC_EXCHANGE_NATS ? 0 : (size_t)c->train.islands, total; /* processes here */
    bool one_process = c->exchange.kind == DLC_EXCHANGE_INPROC;
    struct plan p;

    DLC_TRY(warm_up(run->backend));
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
