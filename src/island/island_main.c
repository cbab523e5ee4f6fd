#include "island/island_main.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

#include "base/log.h"
#include "base/pool.h"
#include "exchange/local.h"
#include "island/trainer.h"

const struct dlc_codec *dlc_codec_of(const struct dlc_config *config)
{
    /* In lockstep the contribution is only there for the record, and must be exact. */
    if (config->train.method == DLC_METHOD_DP)
        return &dlc_codec_f32;
    return config->outer.codec == DLC_CODEC_BF16 ? &dlc_codec_bf16 : &dlc_codec_f32;
}

struct dlc_outer_opt dlc_outer_opt_of(const struct dlc_config *c)
{
    if (c->train.method != DLC_METHOD_DILOCO) /* one worker, or all as one: the outer step takes its parameters over */
        return (struct dlc_outer_opt){ .kind = DLC_OUTER_SGD, .lr = 1.0 };
    return (struct dlc_outer_opt){ .kind = c->outer.optimizer,
                                   .lr = c->outer.lr,
                                   .momentum = c->outer.momentum,
                                   .beta2 = c->outer.beta2,
                                   .eps = c->outer.eps };
}

struct dlc_exchange_size dlc_exchange_size_of(const struct dlc_config *config)
{
    bool lockstep = config->train.method == DLC_METHOD_DP;
    size_t n = dlc_model_n_params(&config->model.shape), slot = dlc_codec_of(config)->size_bytes(n);

    if (lockstep && slot < n * sizeof(float))
        slot = n * sizeof(float);
    return (struct dlc_exchange_size){
        .n_islands = dlc_config_n_identities(config), .n_params = n, .slot_bytes = slot, .lockstep = lockstep
    };
}

struct dlc_island_config dlc_island_config_of(const struct dlc_config *config, int index, uint32_t incarnation)
{
    return (struct dlc_island_config){ .index = index,
                                       .incarnation = incarnation,
                                       .lockstep = config->train.method == DLC_METHOD_DP,
                                       .codec = dlc_codec_of(config),
                                       .nonfinite = config->train.nonfinite,
                                       .nonfinite_max = config->train.nonfinite_max,
                                       .progress_every = config->train.log_every };
}

void dlc_island_pin(const struct dlc_config *config, int index, dlc_backend *backend)
{
    if (config->system.pin && dlc_pool_pin(backend->pool, index * config->system.threads) != DLC_OK)
        dlc_warn("system.pin has no effect on island %d: %s", index, dlc_err_text());
}

/* Dies with its coordinator even while it computes; the closed socket would be seen only after the inner step. */
static dlc_err die_with_parent(long parent)
{
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if ((long)getppid() != parent) /* it was faster */
        return dlc_fail(DLC_EPEER, "the coordinator (process %ld) is gone", parent);
    return DLC_OK;
}

static dlc_err serve(dlc_island *isl, dlc_local_endpoint *ep)
{
    struct dlc_message m;
    bool got;
    dlc_err err;

    while (!dlc_island_may_leave(isl)) {
        DLC_TRY(dlc_local_endpoint_recv(ep, &m, &got, !dlc_island_has_work(isl)));
        if (got) {
            err = dlc_island_on_message(isl, &m);
            dlc_message_fini(&m);
            if (err != DLC_OK)
                return err;
            continue;
        }
        DLC_TRY(dlc_island_work(isl));
    }
    return DLC_OK;
}

/* False: nobody is left to hear it, or it does not fit into a message. */
static bool report_failure(dlc_local_endpoint *ep, const struct dlc_island_args *args, dlc_err err)
{
    struct dlc_message m = { .kind = DLC_MSG_FAILED, .incarnation = args->incarnation, .code = err };
    dlc_endpoint *base = dlc_local_endpoint_base(ep);
    char text[1024];
    bool sent;

    snprintf(text, sizeof text, "%s", dlc_err_text());
    snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof m.text - 1, text);
    sent = err != DLC_EPEER && base->ops->send(base, &m) == DLC_OK && strlen(text) < sizeof m.text;
    (void)dlc_fail(err, "%s", text); /* the first failure is the one that counts */
    return sent;
}

struct parts {
    dlc_dataset *data;
    dlc_backend *backend;
    dlc_trainer *trainer;
    dlc_island *island;
};

static dlc_err open_data(dlc_dataset **out, const struct dlc_config *config, const struct dlc_island_args *args)
{
    DLC_TRY(dlc_dataset_open_checked(out, config->data.path, config->model.shape.context, config->data.deal, config->train.seed));
    if (dlc_sha256_equal(&dlc_dataset_info(*out)->digest, &args->data_digest))
        return DLC_OK;
    return dlc_fail(DLC_EINPUT, "%s is not the data that the run began with: it was prepared anew", config->data.path);
}

static dlc_err build(struct parts *p, const struct dlc_config *config, const struct dlc_island_args *args,
                     dlc_local_endpoint *ep)
{
    struct dlc_island_config island_config = dlc_island_config_of(config, args->index, args->incarnation);
    char folder[DLC_PATH_MAX];

    DLC_TRY(dlc_island_folder(folder, args->run_folder, args->index));
    DLC_TRY(open_data(&p->data, config, args));
    DLC_TRY(dlc_backend_create(&p->backend, config->system.isa, config->system.threads));
    dlc_island_pin(config, args->index, p->backend);
    DLC_TRY(dlc_trainer_create(&p->trainer, config, args->run_id, args->index, folder, p->data, p->backend));
    return dlc_island_create(&p->island, &island_config, &dlc_trainer_ops, p->trainer, dlc_local_endpoint_base(ep));
}

static void tear_down(struct parts *p)
{
    dlc_island_destroy(p->island);
    dlc_trainer_destroy(p->trainer);
    dlc_backend_destroy(p->backend);
    dlc_dataset_close(p->data);
}

dlc_err dlc_island_main(struct dlc_config *config, const struct dlc_island_args *args, bool *reported)
{
    struct dlc_exchange_size size;
    dlc_local_endpoint *ep;
    struct parts parts = { 0 };
    dlc_err err;

    *reported = false;
    DLC_TRY(die_with_parent(args->parent));
    config->model.shape.vocab_size = args->vocab_size;
    size = dlc_exchange_size_of(config);
    DLC_TRY(dlc_local_attach(&ep, &size, args->index, args->socket_fd, args->memory_fd));
    err = build(&parts, config, args, ep);
    if (err == DLC_OK)
        err = serve(parts.island, ep);
    if (err != DLC_OK)
        *reported = report_failure(ep, args, err);
    tear_down(&parts);
    dlc_local_detach(ep);
    return err;
}
