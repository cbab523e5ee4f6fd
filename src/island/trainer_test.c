/* The trainer as an island uses it: samples read, gradient, AdamW. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/shard.h"
#include "island/trainer.h"

enum { VOCAB = 61, CONTEXT = 16, N_TOKENS = 5000, BATCH = 4 };

#define must(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != DLC_OK)                                                                                          \
            fail_msg("%s", dlc_err_text());                                                                            \
    } while (0)

static char folder[] = "/tmp/dlc-trainer-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[DLC_PATH_MAX];

    must(dlc_path_join(path, folder, name));
    return path;
}

/* One shard of another program's layout: no meta.json is needed. */
static int make_data(void **state)
{
    unsigned char bytes[DLC_SHARD_HEADER_BYTES + 2 * N_TOKENS];

    (void)state;
    dlc_log_set_level(DLC_LOG_ERROR);
    if (!mkdtemp(folder))
        return -1;
    must(dlc_mkdir_p(in_folder("data")));
    dlc_shard_header_write(bytes, (struct dlc_shard_header){ .width = 2, .n_tokens = N_TOKENS });
    for (int i = 0; i < N_TOKENS; i++) {
        uint16_t token = (uint16_t)(i * i % VOCAB);

        memcpy(bytes + DLC_SHARD_HEADER_BYTES + 2 * i, &token, 2);
    }
    must(dlc_file_write_atomic(in_folder("data/t_train_000000.bin"), bytes, sizeof bytes));
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static struct dlc_config config_of(dlc_precision precision, int micro_batch)
{
    struct dlc_config c;

    dlc_config_default(&c);
    c.model.shape = (struct dlc_model_config){ .vocab_size = VOCAB,
                                               .n_layers = 2,
                                               .d_model = 32,
                                               .n_heads = 2,
                                               .n_kv_heads = 2,
                                               .head_dim = 16,
                                               .d_ffn = 48,
                                               .context = CONTEXT,
                                               .rope_theta = 1e4,
                                               .norm_eps = 1e-5,
                                               .init_std = 0.02,
                                               .tie_embeddings = true };
    c.train.batch = BATCH;
    c.train.micro_batch = micro_batch;
    c.train.precision = precision;
    c.train.steps = 10;
    c.optim.lr = 1e-2;
    c.optim.warmup = 1;
    return c;
}

struct world {
    struct dlc_config config;
    dlc_dataset *data;
    dlc_backend *backend;
    dlc_trainer *trainer;
};

static void world_open(struct world *w, dlc_precision precision, int micro_batch)
{
    const struct dlc_trainer_ops *ops = &dlc_trainer_ops;
    char data[DLC_PATH_MAX];

    must(dlc_path_join(data, folder, "data"));
    w->config = config_of(precision, micro_batch);
    must(dlc_dataset_open(&w->data, data, CONTEXT, DLC_DEAL_IID, 1));
    must(dlc_backend_create(&w->backend, "auto", 2));
    must(dlc_trainer_create(&w->trainer, &w->config, "0123456789abcdef", 0, in_folder("island"), w->data, w->backend));
    dlc_model_init_params(ops->params(w->trainer), &w->config.model.shape, 1);
    ops->params_changed(w->trainer);
}

static void world_close(struct world *w)
{
    dlc_trainer_destroy(w->trainer);
    dlc_backend_destroy(w->backend);
    dlc_dataset_close(w->data);
}

/* One inner step as dlc_island_work takes it. */
static double step(struct world *w, const struct dlc_ranges *lease, int64_t s)
{
    const struct dlc_trainer_ops *ops = &dlc_trainer_ops;
    double loss, norm, lr;

    must(ops->gradient(w->trainer, &loss, lease, (uint64_t)s * BATCH, s));
    ops->apply(w->trainer, &norm, &lr, s);
    assert_true(isfinite(loss) && isfinite(norm));
    return loss;
}

static struct dlc_ranges lease_of(struct dlc_range items[2], uint64_t n_steps)
{
    items[0] = (struct dlc_range){ 0, 3, 6 }; /* the second step's samples lie in both ranges */
    items[1] = (struct dlc_range){ 0, 40, n_steps * BATCH - 6 };
    return (struct dlc_ranges){ .items = items, .n = 2 };
}

/* Loading, both passes, clipping and AdamW: after the first step, which makes what libraries keep for a shape, nothing
 * is allocated any more. */
static void a_step_allocates_nothing(void **state)
{
    static const struct {
        dlc_precision precision;
        int micro_batch;
        const char *why;
    } rows[] = {
        { DLC_PRECISION_F32, BATCH, "f32" },
        { DLC_PRECISION_F32, 2, "f32 in two parts" },
        { DLC_PRECISION_BF16, BATCH, "bf16" },
        { DLC_PRECISION_BF16, 1, "bf16 in four parts" },
    };
    struct dlc_range items[2];
    struct dlc_ranges lease = lease_of(items, 6);

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct world w;
        double first, last = 0;
        uint64_t before;

        world_open(&w, rows[r].precision, rows[r].micro_batch);
        dlc_trainer_ops.prefetch(w.trainer, &lease, 0);
        first = step(&w, &lease, 0);
        before = dlc_mem_n_allocs();
        for (int64_t s = 1; s < 6; s++)
            last = step(&w, &lease, s);
        if (dlc_mem_n_allocs() != before)
            fail_msg("%s: %llu allocations in five steps", rows[r].why,
                     (unsigned long long)(dlc_mem_n_allocs() - before));
        if (!(last < first)) /* it did train */
            fail_msg("%s: loss %g, then %g", rows[r].why, first, last);
        assert_true(dlc_trainer_ops.data_s(w.trainer) > 0);
        world_close(&w);
    }
}

/* Asking for samples beforehand, beyond the lease's end or not at all, changes nothing. */
static void prefetching_changes_no_bit(void **state)
{
    struct dlc_range items[2];
    struct dlc_ranges lease = lease_of(items, 3);
    double losses[2][3];

    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        struct world w;

        world_open(&w, DLC_PRECISION_F32, BATCH);
        for (int64_t s = 0; s < 3; s++) {
            for (uint64_t k = 0; ahead && k < 20; k++)
                dlc_trainer_ops.prefetch(w.trainer, &lease, k);
            losses[ahead][s] = step(&w, &lease, s);
        }
        world_close(&w);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

/* The file is cut off or overwritten while the run goes on: an error that names it, not a crash. */
static void data_that_change_are_an_error(void **state)
{
    struct dlc_range items[2];
    struct dlc_ranges lease = lease_of(items, 6);
    const char *path;
    unsigned char high[2 * N_TOKENS];
    struct world w;
    double loss;
    FILE *f;

    (void)state;
    world_open(&w, DLC_PRECISION_F32, BATCH);
    path = in_folder("data/t_train_000000.bin");
    f = fopen(path, "r+b");
    assert_non_null(f);
    memset(high, 0xff, sizeof high);
    assert_int_equal(fseek(f, DLC_SHARD_HEADER_BYTES, SEEK_SET), 0);
    assert_int_equal(fwrite(high, 1, sizeof high, f), sizeof high);
    fclose(f);
    assert_int_equal(dlc_trainer_ops.gradient(w.trainer, &loss, &lease, 0, 0), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "t_train_000000.bin: has token 65535"));
    assert_int_equal(truncate(path, DLC_SHARD_HEADER_BYTES), 0);
    assert_int_equal(dlc_trainer_ops.gradient(w.trainer, &loss, &lease, 0, 0), DLC_EINPUT);
    assert_non_null(strstr(dlc_err_text(), "cut off"));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(prefetching_changes_no_bit),
        cmocka_unit_test(data_that_change_are_an_error), /* last: it spoils the data */
    };

    return cmocka_run_group_tests_name("trainer", tests, make_data, remove_folder);
}
