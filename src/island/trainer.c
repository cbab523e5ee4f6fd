#include "island/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/safetensors.h"
#include "optim/optim.h"
#include "outer/record.h"

struct dlc_trainer {
    const struct dlc_config *config;
    const dlc_dataset *data;
    dlc_backend *backend;
    char run_id[DLC_RUN_ID_SIZE];
    int island;
    char folder[DLC_PATH_MAX];

    dlc_model *model;
    size_t n;
    struct dlc_param *table;
    size_t n_table;
    float *m, *v;              /* [N] each, one arena */
    bool moments_are_zero;     /* never written: nothing to clear, and no page of them is resident */
    int32_t *tokens, *targets; /* [micro_batch][T] */
    double data_s; /* spent waiting for samples so far */
    int64_t adam_step;
    struct dlc_schedule schedule;
    struct dlc_adamw_config adamw;
};

dlc_err dlc_island_folder(char out[DLC_PATH_MAX], const char *run_folder, int island)
{
    int len = snprintf(out, DLC_PATH_MAX, "%s/islands/%02d", run_folder, island);

    return len < DLC_PATH_MAX ? DLC_OK : dlc_fail(DLC_EUSAGE, "path too long: %.60s...", run_folder);
}

dlc_err dlc_inner_state_path(char out[DLC_PATH_MAX], const char *island_folder, uint64_t outer_step)
{
    char name[64];

    snprintf(name, sizeof name, "inner-%06llu.safetensors", (unsigned long long)outer_step);
    return dlc_path_join(out, island_folder, name);
}

static struct dlc_model_options model_options(const struct dlc_config *config)
{
    return (struct dlc_model_options){ .max_batch = config->train.micro_batch,
                                       .max_seq = config->model.shape.context,
                                       .training = true,
                                       .precision = config->train.precision,
                                       .recompute_layers = config->system.recompute == DLC_RECOMPUTE_LAYERS };
}

void dlc_trainer_memory_plan(struct dlc_trainer_memory *out, const struct dlc_config *config,
                             const dlc_backend *backend)
{
    struct dlc_model_options options = model_options(config);
    struct dlc_model_memory model;

    dlc_model_memory_plan(&model, &config->model.shape, &options, backend);
    *out = (struct dlc_trainer_memory){ .params = model.params,
                                        .grads = model.grads,
                                        .moments = 2 * dlc_model_n_params(&config->model.shape) * sizeof(float),
                                        .activations = model.activations,
                                        .scratch = model.scratch };
}

static void set_hyper_parameters(dlc_trainer *t)
{
    const struct dlc_config *c = t->config;

    t->schedule = (struct dlc_schedule){ .kind = c->optim.schedule,
                                         .lr = c->optim.lr,
                                         .min_ratio = c->optim.min_ratio,
                                         .decay_fraction = c->optim.decay_fraction,
                                         .warmup_steps = c->optim.warmup,
                                         .total_steps = c->train.steps };
    t->adamw = (struct dlc_adamw_config){ .beta1 = c->optim.beta1,
                                          .beta2 = c->optim.beta2,
                                          .eps = c->optim.eps,
                                          .weight_decay = c->optim.weight_decay,
                                          .clip = c->optim.clip };
}

static dlc_err allocate(dlc_trainer *t)
{
    struct dlc_model_options options = model_options(t->config);
    const struct dlc_model_config *shape = &t->config->model.shape;
    size_t positions = (size_t)t->config->train.micro_batch * (size_t)shape->context;

    DLC_TRY(dlc_model_params_table(&t->table, &t->n_table, shape));
    DLC_TRY(dlc_model_create(&t->model, shape, &options, t->backend));
    t->n = dlc_model_size(t->model);
    DLC_TRY(dlc_arena_alloc((void **)&t->m, 2 * t->n * sizeof(float), "AdamW's moments"));
    t->v = t->m + t->n;
    t->moments_are_zero = true;
    t->tokens = dlc_calloc(2 * positions, sizeof *t->tokens);
    if (!t->tokens)
        return DLC_ENOMEM;
    t->targets = t->tokens + positions;
    return DLC_OK;
}

dlc_err dlc_trainer_create(dlc_trainer **out, const struct dlc_config *config, const char *run_id, int island,
                           const char *folder, const dlc_dataset *data, dlc_backend *backend)
{
    dlc_trainer *t = dlc_calloc(1, sizeof *t);
    dlc_err err;

    *out = NULL;
    if (!t)
        return DLC_ENOMEM;
    t->config = config;
    t->data = data;
    t->backend = backend;
    t->island = island;
    snprintf(t->run_id, sizeof t->run_id, "%s", run_id);
    snprintf(t->folder, sizeof t->folder, "%s", folder);
    set_hyper_parameters(t);
    DLC_TRY_TO(fail, dlc_mkdir_p(folder));
    DLC_TRY_TO(fail, allocate(t));
    *out = t;
    return DLC_OK;
fail:
    dlc_trainer_destroy(t);
    return err;
}

void dlc_trainer_destroy(dlc_trainer *t)
{
    if (!t)
        return;
    dlc_model_destroy(t->model);
    dlc_arena_free(t->m, 2 * t->n * sizeof(float));
    dlc_free(t->table);
    dlc_free(t->tokens);
    dlc_free(t);
}

static size_t op_n_params(void *self)
{
    return ((dlc_trainer *)self)->n;
}
static float *op_params(void *self)
{
    return dlc_model_params(((dlc_trainer *)self)->model);
}
static float *op_grads(void *self)
{
    return dlc_model_grads(((dlc_trainer *)self)->model);
}
static void op_params_changed(void *self)
{
    dlc_model_params_changed(((dlc_trainer *)self)->model);
}
static int op_batch(void *self)
{
    return ((dlc_trainer *)self)->config->train.batch;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* The sample that stands at `offset` of the lease. */
static uint64_t sample_at(int *pool, const struct dlc_ranges *lease, uint64_t offset)
{
    size_t i = 0;

    while (offset >= lease->items[i].count)
        offset -= lease->items[i++].count;
    *pool = lease->items[i].pool;
    return lease->items[i].start + offset;
}

/* The batch at `offset`, as far as the lease goes: the system reads it while this process computes. */
static void op_prefetch(void *self, const struct dlc_ranges *lease, uint64_t offset)
{
    const dlc_trainer *t = self;
    uint64_t end = offset + (uint64_t)t->config->train.batch, there = dlc_ranges_count(lease);

    for (; offset < end && offset < there; offset++) {
        int pool;
        uint64_t k = sample_at(&pool, lease, offset);

        dlc_dataset_prefetch(t->data, pool, k);
    }
}

static double op_data_s(void *self)
{
    return ((dlc_trainer *)self)->data_s;
}

/* The micro-batch at `offset` of the lease into t->tokens and t->targets. */
static dlc_err load(dlc_trainer *t, const struct dlc_ranges *lease, uint64_t offset)
{
    size_t T = (size_t)t->config->model.shape.context;

    for (int b = 0; b < t->config->train.micro_batch; b++) {
        int pool;
        uint64_t k = sample_at(&pool, lease, offset + (uint64_t)b);

        DLC_TRY(dlc_dataset_sample(t->data, pool, k, t->tokens + (size_t)b * T, t->targets + (size_t)b * T));
    }
    return DLC_OK;
}

/* Every step asks for the samples of the next one before it computes: reading them again takes microseconds then, even
 * when the disk has to be asked. No thread, no second buffer, and nothing that the order of samples depends on. */
static dlc_err op_gradient(void *self, double *loss, const struct dlc_ranges *lease, uint64_t offset, int64_t step)
{
    dlc_trainer *t = self;
    int batch = t->config->train.batch, micro = t->config->train.micro_batch, T = t->config->model.shape.context;
    double positions = (double)batch * (double)T, sum = 0;

    (void)step;
    dlc_model_zero_grads(t->model);
    for (int done = 0; done < batch; done += micro) {
        double began_s = dlc_now_s();

        DLC_TRY(load(t, lease, offset + (uint64_t)done));
        if (done == 0)
            op_prefetch(t, lease, offset + (uint64_t)batch);
        t->data_s += dlc_now_s() - began_s;
        sum += dlc_model_loss_grad(t->model, t->tokens, t->targets, micro, T, (float)(1.0 / positions));
    }
    *loss = sum / positions;
    return DLC_OK;
}

static void op_apply(void *self, double *norm, double *lr, int64_t step)
{
    dlc_trainer *t = self;

    t->moments_are_zero = false;
    *lr = dlc_schedule_lr(&t->schedule, step);
    *norm = dlc_adamw_step(t->backend, dlc_model_params(t->model), t->m, t->v, dlc_model_grads(t->model), t->table,
                           t->n_table, &t->adamw, *lr, t->adam_step + 1);
    if (!isfinite(*norm))
        return;
    t->adam_step++;
    dlc_model_params_changed(t->model);
}

/* --- inner state on disk ------------------------------------------------------------------------------------------ */

enum { META_MAX = 8 };

struct meta {
    struct dlc_st_meta items[META_MAX];
    char values[META_MAX][24];
    size_t n;
};

static void meta_text(struct meta *m, const char *key, const char *value)
{
    m->items[m->n++] = (struct dlc_st_meta){ key, value };
}

static void meta_int(struct meta *m, const char *key, int64_t value)
{
    snprintf(m->values[m->n], sizeof m->values[m->n], "%lld", (long long)value);
    meta_text(m, key, m->values[m->n]);
}

/* A stop's state is the only copy and durable. That of an outer step only has to outlive this process: the coordinator
 * makes it durable with the checkpoint that names it, while the next round goes on; without that checkpoint nobody
 * asks for it after a crash of the machine. */
static dlc_err write_state(const dlc_trainer *t, const char *path, const struct meta *meta, bool with_params,
                           bool durable)
{
    struct dlc_st_write_tensor tensors[3] = {
        { .name = "exp_avg", .dtype = DLC_F32, .n_dims = 1, .dims = { t->n }, .data = t->m },
        { .name = "exp_avg_sq", .dtype = DLC_F32, .n_dims = 1, .dims = { t->n }, .data = t->v },
        { .name = "params", .dtype = DLC_F32, .n_dims = 1, .dims = { t->n }, .data = dlc_model_params(t->model) },
    };

    return (durable ? dlc_st_write : dlc_st_place)(path, tensors, with_params ? 3 : 2, meta->items, meta->n);
}

static dlc_err metadata_int(int64_t *out, const dlc_st_file *f, const char *key, const char *path)
{
    const char *text = dlc_st_metadata(f, key);
    char *end;

    if (!text)
        return dlc_fail(DLC_EINPUT, "%s: has no \"%s\"", path, key);
    *out = strtoll(text, &end, 10);
    if (end == text || *end)
        return dlc_fail(DLC_EINPUT, "%s: \"%s\" is '%.20s', not a number", path, key, text);
    return DLC_OK;
}

static dlc_err check_owner(const dlc_trainer *t, const dlc_st_file *f, const char *path)
{
    const char *run = dlc_st_metadata(f, "run");
    int64_t island = -1;

    if (!run || strcmp(run, t->run_id) != 0)
        return dlc_fail(DLC_EINPUT, "%s: belongs to run %.40s, this is run %s", path, run ? run : "(none)", t->run_id);
    DLC_TRY(metadata_int(&island, f, "island", path));
    if (island != t->island)
        return dlc_fail(DLC_EINPUT, "%s: belongs to island %lld, this is island %d", path, (long long)island,
                        t->island);
    return DLC_OK;
}

static dlc_err read_state(dlc_trainer *t, const dlc_st_file *f, const char *path, bool with_params, int *n_skipped)
{
    int64_t skipped = 0;

    t->moments_are_zero = false;
    DLC_TRY(metadata_int(&t->adam_step, f, "adam_step", path));
    DLC_TRY(metadata_int(&skipped, f, "n_skipped", path));
    *n_skipped = (int)skipped;
    DLC_TRY(dlc_st_read_f32(t->m, f, "exp_avg", t->n));
    DLC_TRY(dlc_st_read_f32(t->v, f, "exp_avg_sq", t->n));
    return with_params ? dlc_st_read_f32(dlc_model_params(t->model), f, "params", t->n) : DLC_OK;
}

static dlc_err op_load(void *self, uint64_t state_step, bool own_params, int *n_skipped)
{
    dlc_trainer *t = self;
    char path[DLC_PATH_MAX];
    dlc_st_file *f = NULL;
    dlc_err err;

    *n_skipped = 0;
    t->adam_step = 0;
    if (state_step == 0) {
        if (!t->moments_are_zero)
            memset(t->m, 0, 2 * t->n * sizeof(float));
        t->moments_are_zero = true;
        return DLC_OK;
    }
    DLC_TRY(dlc_inner_state_path(path, t->folder, state_step));
    DLC_TRY(dlc_st_open(&f, path));
    DLC_TRY_TO(done, check_owner(t, f, path));
    DLC_TRY_TO(done, read_state(t, f, path, own_params, n_skipped));
    if (own_params)
        dlc_model_params_changed(t->model);
done:
    dlc_st_close(f);
    return err;
}

/* Of the states in the folder only two stay; a stop in the middle of the round that is over now is of no more use. */
static dlc_err remove_others(const dlc_trainer *t, uint64_t keep_a, uint64_t keep_b)
{
    struct dlc_names names;
    char path[DLC_PATH_MAX], a[64], b[64];
    dlc_err err = dlc_list_folder(&names, t->folder);

    if (err != DLC_OK)
        return err;
    snprintf(a, sizeof a, "inner-%06llu.safetensors", (unsigned long long)keep_a);
    snprintf(b, sizeof b, "inner-%06llu.safetensors", (unsigned long long)keep_b);
    for (size_t i = 0; err == DLC_OK && i < names.n; i++) {
        const char *name = names.names[i];

        if (strcmp(name, a) == 0 || strcmp(name, b) == 0 ||
            (strncmp(name, "inner-", 6) != 0 && strncmp(name, "paused", 6) != 0))
            continue;
        err = dlc_path_join(path, t->folder, name);
        if (err == DLC_OK)
            err = dlc_remove_tree(path);
    }
    dlc_names_free(&names);
    return err;
}

static dlc_err op_save(void *self, uint64_t state_step, uint64_t base_step, int n_skipped)
{
    dlc_trainer *t = self;
    char path[DLC_PATH_MAX];
    struct meta meta = { .n = 0 };

    DLC_TRY(dlc_inner_state_path(path, t->folder, state_step));
    meta_text(&meta, "run", t->run_id);
    meta_int(&meta, "island", t->island);
    meta_int(&meta, "outer_step", (int64_t)state_step);
    meta_int(&meta, "adam_step", t->adam_step);
    meta_int(&meta, "n_skipped", n_skipped);
    DLC_TRY(write_state(t, path, &meta, t->config->outer.drop > 0, false));
    return remove_others(t, state_step, base_step);
}

static void keep_newest(uint64_t states[2], uint64_t step)
{
    if (step > states[0]) {
        states[1] = states[0];
        states[0] = step;
    } else if (step > states[1] && step != states[0]) {
        states[1] = step;
    }
}

/* Of the two files that there may be; one that does not say it is of this run and island is none. */
static dlc_err op_held(void *self, uint64_t states[2])
{
    dlc_trainer *t = self;
    struct dlc_names names;

    states[0] = states[1] = 0;
    DLC_TRY(dlc_list_folder(&names, t->folder));
    for (size_t i = 0; i < names.n; i++) {
        char path[DLC_PATH_MAX], *end;
        unsigned long long step = 0;
        dlc_st_file *f = NULL;

        if (strncmp(names.names[i], "inner-", 6) == 0)
            step = strtoull(names.names[i] + 6, &end, 10);
        if (step == 0 || strcmp(end, ".safetensors") != 0 || dlc_path_join(path, t->folder, names.names[i]) != DLC_OK)
            continue;
        if (dlc_st_open(&f, path) == DLC_OK && check_owner(t, f, path) == DLC_OK)
            keep_newest(states, step);
        dlc_st_close(f);
    }
    dlc_names_free(&names);
    return DLC_OK;
}

/* --- a stop in mid-round ------------------------------------------------------------------------------------------ */

/* Everything that the work done so far depended on, as text. Free with dlc_free. */
static char *assignment_key(const struct dlc_message *a)
{
    json_t *v =
        json_pack("{s:I, s:I, s:I, s:I, s:b, s:o}", "t", (json_int_t)a->t, "first_step", (json_int_t)a->first_step,
                  "n_steps", (json_int_t)a->n_steps, "state_step", (json_int_t)a->state_step, "own_params",
                  (int)a->own_params, "ranges", dlc_ranges_to_json(&a->ranges));
    char hex[DLC_SHA256_HEX], *text = NULL;

    dlc_sha256_to_hex(hex, &a->digest);
    if (v && json_object_set_new(v, "theta", json_string(hex)) == 0)
        text = dlc_json_dump(v);
    json_decref(v);
    return text;
}

static dlc_err op_save_paused(void *self, const struct dlc_message *assignment, int64_t n_done, int n_skipped)
{
    dlc_trainer *t = self;
    char path[DLC_PATH_MAX], *key = assignment_key(assignment);
    struct meta meta = { .n = 0 };
    dlc_err err;

    if (!key)
        return DLC_ENOMEM;
    DLC_TRY_TO(done, dlc_path_join(path, t->folder, "paused.safetensors"));
    meta_text(&meta, "run", t->run_id);
    meta_text(&meta, "assignment", key);
    meta_int(&meta, "island", t->island);
    meta_int(&meta, "n_done", n_done);
    meta_int(&meta, "adam_step", t->adam_step);
    meta_int(&meta, "n_skipped", n_skipped);
    err = write_state(t, path, &meta, true, true);
done:
    dlc_free(key);
    return err;
}

static dlc_err take_paused(dlc_trainer *t, const dlc_st_file *f, const char *path, const struct dlc_message *assignment,
                           int64_t *n_done, int *n_skipped)
{
    const char *kept = dlc_st_metadata(f, "assignment");
    char *key = assignment_key(assignment);
    bool fits = key && kept && strcmp(kept, key) == 0;

    dlc_free(key);
    if (!key)
        return DLC_ENOMEM;
    if (!fits)
        return DLC_OK;
    DLC_TRY(check_owner(t, f, path));
    DLC_TRY(read_state(t, f, path, true, n_skipped));
    DLC_TRY(metadata_int(n_done, f, "n_done", path));
    dlc_model_params_changed(t->model);
    return DLC_OK;
}

static dlc_err op_load_paused(void *self, const struct dlc_message *assignment, int64_t *n_done, int *n_skipped)
{
    dlc_trainer *t = self;
    char path[DLC_PATH_MAX];
    dlc_st_file *f = NULL;
    dlc_err err;

    *n_done = 0;
    DLC_TRY(dlc_path_join(path, t->folder, "paused.safetensors"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    DLC_TRY(dlc_st_open(&f, path));
    err = take_paused(t, f, path, assignment, n_done, n_skipped);
    dlc_st_close(f);
    return err;
}

const struct dlc_trainer_ops dlc_trainer_ops = {
    .n_params = op_n_params,
    .params = op_params,
    .grads = op_grads,
    .params_changed = op_params_changed,
    .gradient = op_gradient,
    .batch = op_batch,
    .prefetch = op_prefetch,
    .data_s = op_data_s,
    .apply = op_apply,
    .load = op_load,
    .save = op_save,
    .save_paused = op_save_paused,
    .load_paused = op_load_paused,
    .held = op_held,
};
