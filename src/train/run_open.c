/* A run's beginning: new, or from its history. */
#include "train/run.h"

#include <string.h>

#include "base/log.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/model_folder.h"
#include "data/tokenizer.h"
#include "island/island_main.h"
#include "train/paused.h"

#define TOKENIZER_MAX_BYTES ((size_t)256 << 20)

/* --- configuration -------------------------------------------------------------------------------------------------
 */

static void say_lines(const struct dlc_buf *said)
{
    for (const char *line = said->data, *end; line && (end = strchr(line, '\n')) != NULL; line = end + 1)
        dlc_info("%.*s", (int)(end - line), line);
}

/* run.ini keeps where the data is in a form that holds from any folder. */
static dlc_err make_path_absolute(char path[DLC_PATH_MAX])
{
    char *absolute = realpath(path, NULL);
    size_t n = absolute ? strlen(absolute) : DLC_PATH_MAX;

    if (n < DLC_PATH_MAX)
        memcpy(path, absolute, n + 1);
    free(absolute);
    return n < DLC_PATH_MAX ? DLC_OK : dlc_fail_errno(DLC_EINPUT, "%s", path);
}

static dlc_err write_ini(const struct dlc_run *run)
{
    struct dlc_buf ini = { 0 };
    char path[DLC_PATH_MAX];
    dlc_err err;

    DLC_TRY(dlc_path_join(path, run->config->train.out, "run.ini"));
    err = dlc_config_write_ini(&ini, run->config);
    if (err == DLC_OK)
        err = dlc_file_write_atomic(path, ini.data, ini.len);
    dlc_buf_fini(&ini);
    return err;
}

/* A run folder with history: what it began with counts. Keys that do not change the result may be given anew. */
static dlc_err take_history(struct dlc_run *run)
{
    struct dlc_config frozen;
    char path[DLC_PATH_MAX];
    int threads;

    DLC_TRY(dlc_path_join(path, run->config->train.out, "run.ini"));
    dlc_config_default(&frozen);
    DLC_TRY(dlc_config_read_ini(&frozen, path));
    threads = frozen.system.threads;
    if (dlc_config_is_given(run->config, "data.path"))
        DLC_TRY(make_path_absolute(run->config->data.path));
    DLC_TRY(dlc_config_resume(&frozen, run->config, run->config->train.out));
    *run->config = frozen;
    DLC_TRY(dlc_run_identity_read(&run->identity, run->config->train.out));
    DLC_TRY(dlc_dataset_open(&run->data, run->config->data.path, run->config->model.shape.context,
                             run->config->data.deal, run->config->train.seed));
    run->config->model.shape.vocab_size = dlc_dataset_info(run->data)->vocab_size;
    DLC_TRY(dlc_run_identity_check(&run->identity, run->config->train.out, run->config, run->data));
    if (run->config->system.threads != threads)
        dlc_info("system.threads = %d, it was %d: results may differ in their last bits", run->config->system.threads,
                 threads);
    return DLC_OK;
}

static dlc_err check_supply(const struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    uint64_t wanted = (uint64_t)c->train.islands * (uint64_t)c->train.steps * (uint64_t)c->train.batch, windows = 0;

    for (int i = 0; i < dlc_dataset_n_pools(run->data); i++)
        windows += dlc_dataset_pool_windows(run->data, i);
    if ((uint64_t)c->train.islands * (uint64_t)c->train.batch > windows)
        return dlc_fail(
            DLC_EINPUT,
            "%s has %llu windows of %d tokens, %d islands want %llu in a single step; prepare more text, or "
            "take fewer islands, a smaller --batch or a smaller model.context",
            c->data.path, (unsigned long long)windows, c->model.shape.context, c->train.islands,
            (unsigned long long)c->train.islands * (unsigned long long)c->train.batch);
    if (wanted > windows)
        dlc_info("data: %llu windows of %d tokens; the run reads them %.1f times", (unsigned long long)windows,
                 c->model.shape.context, (double)wanted / (double)windows);
    return DLC_OK;
}

/* The context of the data is known only after the configuration is resolved, and the data is asked for that first. */
static dlc_err open_data(struct dlc_run *run, struct dlc_buf *said)
{
    struct dlc_config *c = run->config;

    DLC_TRY(dlc_dataset_open(&run->data, c->data.path, 1, c->data.deal, c->train.seed));
    DLC_TRY(dlc_config_resolve(c, dlc_dataset_info(run->data), said));
    return dlc_dataset_set_context(run->data, c->model.shape.context, c->data.deal, c->data.path);
}

static dlc_err make_new(struct dlc_run *run)
{
    struct dlc_buf said = { 0 };
    dlc_err err;

    if (run->config->data.path[0] == '\0') /* the folder has a run.ini, of a start that was cut off */
        return dlc_fail(DLC_EUSAGE,
                        "--data FOLDER, made by diloco prepare, is missing; %s has no history that names it",
                        run->config->train.out);
    DLC_TRY(make_path_absolute(run->config->data.path));
    err = open_data(run, &said);
    if (err == DLC_OK)
        say_lines(&said);
    dlc_buf_fini(&said);
    if (err != DLC_OK)
        return err;
    DLC_TRY(check_supply(run));
    return dlc_run_identity_new(&run->identity, run->config, run->data);
}

/* run.json is written last: from then on the run has history. */
static dlc_err write_identity(const struct dlc_run *run)
{
    DLC_TRY(write_ini(run));
    return dlc_run_identity_write(run->config->train.out, &run->identity);
}

/* --- parts ---------------------------------------------------------------------------------------------------------
 */

static struct dlc_coord_config core_config_of(const struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    struct dlc_coord_config core = {
        .seed = c->train.seed,
        .n_islands = c->train.islands,
        .n_params = dlc_model_n_params(&c->model.shape),
        .total_steps = c->train.steps,
        .H = c->outer.steps,
        .batch = c->train.batch,
        .tokens_per_sample = c->model.shape.context,
        .n_pools = dlc_dataset_n_pools(run->data),
        .uniform_weights = c->outer.weights == DLC_WEIGHTS_UNIFORM,
        .drop = c->train.method == DLC_METHOD_DILOCO ? c->outer.drop : 0,
        .opt = { .kind = c->outer.optimizer,
                 .lr = c->outer.lr,
                 .momentum = c->outer.momentum,
                 .beta2 = c->outer.beta2,
                 .eps = c->outer.eps },
        .codec = dlc_codec_of(c),
        .lockstep = c->train.method == DLC_METHOD_DP,
        .wait_for_all = true, /* a dead island is started again and does its round again */
        .min_islands = c->train.islands,
        .quorum = c->train.islands,
        .nonfinite_rollbacks_max = c->train.nonfinite == DLC_NONFINITE_ROLLBACK ? c->train.nonfinite_max : 0,
        .publish_before_commit = true, /* coordinator and islands die together */
    };

    if (c->train.method != DLC_METHOD_DILOCO) /* one worker, or all as one: the outer step takes its parameters over */
        core.opt = (struct dlc_outer_opt){ .kind = DLC_OUTER_SGD, .lr = 1.0 };
    memcpy(core.run, run->identity.run_id, sizeof core.run);
    return core;
}

static dlc_err open_exchange(struct dlc_run *run)
{
    struct dlc_exchange_size size = dlc_exchange_size_of(run->config);

    if (run->config->exchange.kind == DLC_EXCHANGE_INPROC) {
        DLC_TRY(dlc_inproc_create(&run->inproc, &size, NULL));
        run->hub = dlc_inproc_hub(run->inproc);
    } else {
        DLC_TRY(dlc_local_create(&run->local, &size, run->config->train.out));
        run->hub = dlc_local_hub(run->local);
    }
    for (int i = 0; i < 2; i++)
        run->theta[i] = run->hub->ops->theta(run->hub, i);
    return DLC_OK;
}

static dlc_err open_saver(struct dlc_run *run)
{
    size_t size_bytes = run->core_config.n_params * sizeof(float);
    char path[DLC_PATH_MAX];

    for (int i = 0; i < dlc_outer_opt_n_state(run->core_config.opt.kind); i++)
        DLC_TRY(dlc_arena_alloc((void **)&run->state[i], size_bytes, "outer optimizer"));
    run->saver = (struct dlc_saver){ .config = run->config,
                                     .run_folder = run->config->train.out,
                                     .n_state = dlc_outer_opt_n_state(run->core_config.opt.kind),
                                     .state = { run->state[0], run->state[1] },
                                     .eot = dlc_dataset_info(run->data)->eot,
                                     .traffic = run->hub->traffic };
    DLC_TRY(dlc_path_join(path, run->config->data.path, "tokenizer.json"));
    return dlc_file_exists(path) ? dlc_file_read(&run->saver.tokenizer_json, path, TOKENIZER_MAX_BYTES) : DLC_OK;
}

/* As many windows at once as the islands compute, and no more than there are. */
struct dlc_model_options dlc_run_eval_options(const struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    struct dlc_model_options options = { .max_batch = c->train.micro_batch, .max_seq = c->model.shape.context };
    struct dlc_val_set val;

    if (dlc_dataset_info(run->data)->n_val_tokens >= 2 &&
        dlc_dataset_val_set(&val, run->data, (uint64_t)c->data.val_tokens) == DLC_OK &&
        val.n_windows < (uint64_t)options.max_batch)
        options.max_batch = (int)val.n_windows;
    return options;
}

static dlc_err open_evaluator(struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    struct dlc_model_options options = dlc_run_eval_options(run);
    struct dlc_evaluator_options how = { .split = DLC_SPLIT_VAL,
                                         .max_tokens = (uint64_t)c->data.val_tokens,
                                         .batch = options.max_batch,
                                         .context = c->model.shape.context };

    if (dlc_dataset_info(run->data)->n_val_tokens < 2) {
        dlc_info("no validation: %s has no validation tokens", c->data.path);
        return DLC_OK;
    }
    DLC_TRY(dlc_model_create(&run->eval_model, &c->model.shape, &options, run->backend));
    return dlc_evaluator_create(&run->evaluator, run->eval_model, run->data, &how);
}

/* --- theta(0), or theta(t) of the newest checkpoint ------------------------------------------------------------------
 */

/* A model to start from does not bring its shape along: the run's keys say it, and must say the same. */
static dlc_err check_shape(const struct dlc_model_config *ours, const char *folder)
{
    struct dlc_model_config theirs;

    DLC_TRY(dlc_model_folder_config(&theirs, folder));
    const struct {
        const char *name;
        int theirs, ours;
    } rows[] = {
        { "vocabulary", theirs.vocab_size, ours->vocab_size },
        { "model.layers", theirs.n_layers, ours->n_layers },
        { "model.d_model", theirs.d_model, ours->d_model },
        { "model.heads", theirs.n_heads, ours->n_heads },
        { "model.kv_heads", theirs.n_kv_heads, ours->n_kv_heads },
        { "model.head_dim", theirs.head_dim, ours->head_dim },
        { "model.d_ffn", theirs.d_ffn, ours->d_ffn },
        { "model.tie_embeddings", theirs.tie_embeddings, ours->tie_embeddings },
        { "model.qk_norm", theirs.qk_norm, ours->qk_norm },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].theirs != rows[i].ours)
            return dlc_fail(DLC_EINPUT, "train.init_from: %s has %s = %d, this run has %d", folder, rows[i].name,
                            rows[i].theirs, rows[i].ours);
    }
    return DLC_OK;
}

static dlc_err first_parameters(struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    char folder[DLC_PATH_MAX];

    if (!c->train.init_from[0]) {
        dlc_model_init_params_by(run->theta[0], &c->model.shape, c->train.seed, run->backend->pool);
        return DLC_OK;
    }
    DLC_TRY(dlc_model_folder_resolve(folder, c->train.init_from));
    DLC_TRY(check_shape(&c->model.shape, folder));
    return dlc_model_folder_params(run->theta[0], &c->model.shape, folder);
}

/* Writes into the run folder, and so comes after what can fail for a new run: that leaves an empty folder. */
static dlc_err open_core(struct dlc_run *run, bool old)
{
    json_t *saved = NULL;
    uint64_t t;
    dlc_err err;

    if (!old)
        DLC_TRY(first_parameters(run));
    DLC_TRY(dlc_saver_restore(&run->saver, run->identity.run_id, &t, &saved, &run->last, run->theta));
    if (t == 0) {
        if (old)
            DLC_TRY(first_parameters(run));
        return dlc_coord_create(&run->core, &run->core_config, run->theta, run->state, run->backend->pool);
    }
    err =
        dlc_coord_resume(&run->core, &run->core_config, run->theta, run->state, run->backend->pool, saved, &run->last,
                         NULL);
    json_decref(saved);
    if (err == DLC_OK)
        dlc_info("%s: goes on after outer step %llu of %llu, step %lld of %lld", run->config->train.out,
                 (unsigned long long)t, (unsigned long long)dlc_coord_n_rounds(&run->core_config),
                 (long long)run->last.step, (long long)run->config->train.steps);
    return err;
}

static dlc_err open_progress(struct dlc_run *run)
{
    const struct dlc_config *c = run->config;
    int64_t step = run->last.step;
    json_t *paused;
    dlc_err err;

    DLC_TRY(dlc_paused_read(&paused, c->train.out, run->last.t, c->train.islands, run->core_config.lockstep));
    err = paused ? dlc_json_get_int(&step, paused, "first_step", 0, INT64_MAX, "paused.json") : DLC_OK;
    if (step < run->last.step) /* of the last row, which is not there after every step */
        step = run->last.step;
    if (err == DLC_OK)
        err = dlc_metrics_trim(c->train.out, step);
    if (err == DLC_OK)
        err = dlc_progress_create(&run->progress, c, c->train.out, run->hub->traffic, step, run->options.quiet);
    if (err == DLC_OK && paused)
        err = dlc_progress_from_json(run->progress, paused, "paused.json");
    json_decref(paused);
    return err;
}

static dlc_err check_is_empty(const char *out)
{
    struct dlc_names names;
    dlc_err err = dlc_list_folder(&names, out);

    if (err == DLC_OK && names.n > 1) /* the lock is ours */
        err = dlc_fail(DLC_EUSAGE, "%s %s and --fresh wants a new or empty folder; give another --out or move it away",
                       out, dlc_run_has_history(out) ? "has history" : "is not empty");
    dlc_names_free(&names);
    return err;
}

/* Outer steps of a run that nothing names any more: a new run among them would hide or replace them. */
static dlc_err check_no_orphans(const char *out)
{
    static const char *const kept[] = { "records.jsonl", "latest" };
    char path[DLC_PATH_MAX];

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        uint64_t size = 0;

        DLC_TRY(dlc_path_join(path, out, kept[i]));
        if (dlc_file_exists(path))
            DLC_TRY(dlc_file_size(&size, path));
        if (size > 0) /* a start that failed leaves an empty one */
            return dlc_fail(DLC_EINPUT,
                            "%s has %s of an earlier run but no run.json, without which it cannot go on; put that file "
                            "back, or give another --out",
                            out, kept[i]);
    }
    return DLC_OK;
}

static dlc_err open_folder(struct dlc_run *run)
{
    const char *out = run->config->train.out;
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_mkdir_p(out));
    DLC_TRY(dlc_path_join(path, out, "lock"));
    DLC_TRY(dlc_lock_take(&run->lock_fd, path));
    if (run->options.fresh)
        return check_is_empty(out);
    return dlc_run_has_history(out) ? DLC_OK : check_no_orphans(out);
}

dlc_err dlc_run_open(struct dlc_run *run, struct dlc_config *config, const struct dlc_train_options *options)
{
    bool old;

    *run = (struct dlc_run){ .config = config, .options = *options, .lock_fd = -1 };
    DLC_TRY(open_folder(run));
    old = dlc_run_has_history(config->train.out);
    DLC_TRY(old ? take_history(run) : make_new(run));
    DLC_TRY(dlc_backend_create(&run->backend, config->system.isa, 0));
    DLC_TRY(dlc_run_say_plan(run));
    run->core_config = core_config_of(run);
    DLC_TRY(open_exchange(run));
    DLC_TRY(open_saver(run));
    DLC_TRY(open_evaluator(run));
    DLC_TRY(open_core(run, old));
    /* Only now: a start that failed leaves no history and changes none. The islands read what was given anew there. */
    DLC_TRY(old ? write_ini(run) : write_identity(run));
    return open_progress(run);
}

void dlc_run_close(struct dlc_run *run)
{
    dlc_processes_destroy(run->processes);
    dlc_run_inproc_close(run);
    dlc_progress_destroy(run->progress);
    dlc_coordinator_destroy(run->coordinator);
    dlc_coord_destroy(run->core);
    dlc_evaluator_destroy(run->evaluator);
    dlc_model_destroy(run->eval_model);
    dlc_saver_fini(&run->saver);
    for (int i = 0; i < 2; i++)
        dlc_arena_free(run->state[i], run->core_config.n_params * sizeof(float));
    dlc_local_destroy(run->local);
    dlc_inproc_destroy(run->inproc);
    dlc_backend_destroy(run->backend);
    dlc_dataset_close(run->data);
    dlc_record_fini(&run->last);
    dlc_lock_release(run->lock_fd);
}
