#include "train/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "island/island_main.h"

struct dlc_run_inproc {
    dlc_backend *backend; /* shared: islands take turns */
    int n;
    struct {
        dlc_trainer *trainer;
        dlc_island *island;
    } items[];
};

dlc_err dlc_run_inproc_open(struct dlc_run *run)
{
    int n = run->config->train.islands;
    struct dlc_run_inproc *all = dlc_calloc(1, sizeof *all + (size_t)n * sizeof all->items[0]);
    char folder[DLC_PATH_MAX];

    if (!all)
        return DLC_ENOMEM;
    run->islands = all;
    all->n = n;
    DLC_TRY(dlc_backend_create(&all->backend, run->config->system.isa, run->config->system.threads));
    dlc_island_pin(run->config, 0, all->backend);
    for (int i = 0; i < n; i++) {
        struct dlc_island_config c = dlc_island_config_of(run->config, i, 1);

        DLC_TRY(dlc_island_folder(folder, run->config->train.out, i));
        DLC_TRY(dlc_trainer_create(&all->items[i].trainer, run->config, run->identity.run_id, i, folder, run->data,
                                   all->backend));
        dlc_coordinator_set_incarnation(run->coordinator, i, 1);
        DLC_TRY(dlc_island_create(&all->items[i].island, &c, &dlc_trainer_ops, all->items[i].trainer,
                                  dlc_inproc_endpoint(run->inproc, i)));
    }
    return DLC_OK;
}

void dlc_run_inproc_close(struct dlc_run *run)
{
    struct dlc_run_inproc *all = run->islands;

    for (int i = 0; all && i < all->n; i++) {
        dlc_island_destroy(all->items[i].island);
        dlc_trainer_destroy(all->items[i].trainer);
    }
    if (all)
        dlc_backend_destroy(all->backend);
    dlc_free(all);
    run->islands = NULL;
}

static dlc_err serve(struct dlc_run *run, int i, bool *idle)
{
    dlc_island *island = run->islands->items[i].island;
    struct dlc_message m;
    bool got = true;
    dlc_err err;

    while (got) {
        DLC_TRY(dlc_inproc_island_recv(run->inproc, i, &m, &got));
        if (!got)
            break;
        *idle = false;
        err = dlc_island_on_message(island, &m);
        dlc_message_fini(&m);
        if (err != DLC_OK)
            return err;
    }
    if (!dlc_island_has_work(island))
        return DLC_OK;
    *idle = false;
    return dlc_island_work(island);
}

dlc_err dlc_run_inproc_work(struct dlc_run *run, bool *idle)
{
    dlc_inproc_set_now(run->inproc, dlc_now_ns());
    for (int i = 0; i < run->islands->n; i++)
        DLC_TRY(serve(run, i, idle));
    return DLC_OK;
}
