#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "golden_fixture.h"

#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "ckpt/safetensors.h"

void golden_assert_ok(dlc_err err, const char *call, int line)
{
    if (err != DLC_OK)
        fail_msg("line %d: %s: %s", line, call, dlc_err_text());
}

void *golden_zeros(size_t count, size_t size_bytes)
{
    void *p = dlc_calloc(count, size_bytes);

    assert_non_null(p);
    return p;
}

static double real(const json_t *object, const char *key)
{
    double v = 0;

    OK(dlc_json_get_real(&v, object, key, "fixture.json"));
    return v;
}

static int integer(const json_t *object, const char *key)
{
    int64_t v = 0;

    OK(dlc_json_get_int(&v, object, key, 0, 1000000, "fixture.json"));
    return (int)v;
}

static bool boolean(const json_t *object, const char *key)
{
    int v = 0;

    OK(dlc_json_get_bool(&v, object, key, "fixture.json"));
    return v != 0;
}

static void reals(double *out, const json_t *array, size_t n)
{
    assert_int_equal(json_array_size(array), n);
    for (size_t i = 0; i < n; i++)
        out[i] = json_number_value(json_array_get(array, i));
}

static void read_model(struct dlc_model_config *out, const json_t *m)
{
    *out = (struct dlc_model_config){
        .vocab_size = integer(m, "vocab_size"),
        .n_layers = integer(m, "n_layers"),
        .d_model = integer(m, "d_model"),
        .n_heads = integer(m, "n_heads"),
        .n_kv_heads = integer(m, "n_kv_heads"),
        .head_dim = integer(m, "head_dim"),
        .d_ffn = integer(m, "d_ffn"),
        .context = integer(m, "context"),
        .rope_theta = real(m, "rope_theta"),
        .norm_eps = real(m, "norm_eps"),
        .tie_embeddings = boolean(m, "tie_embeddings"),
        .qk_norm = boolean(m, "qk_norm"),
        .init_std = 0.02, /* not used: parameters come from the file */
    };
    OK(dlc_model_config_check(out));
}

static void read_run(struct golden_settings *out, const json_t *r)
{
    assert_int_equal(integer(r, "islands"), ISLANDS);
    assert_int_equal(integer(r, "outer_steps"), ROUNDS);
    assert_int_equal(integer(r, "inner_steps"), INNER);
    assert_int_equal(integer(r, "seq_len"), SEQ);
    out->schedule = (struct dlc_schedule){ .kind = DLC_SCHEDULE_COSINE,
                                           .lr = real(r, "lr"),
                                           .min_ratio = real(r, "min_ratio"),
                                           .warmup_steps = integer(r, "warmup_steps"),
                                           .total_steps = STEPS };
    out->adamw = (struct dlc_adamw_config){ .beta1 = real(r, "beta1"),
                                            .beta2 = real(r, "beta2"),
                                            .eps = real(r, "eps"),
                                            .weight_decay = real(r, "weight_decay"),
                                            .clip = real(r, "clip") };
    out->outer = (struct dlc_outer_opt){ .kind = DLC_OUTER_NESTEROV,
                                         .lr = real(r, "outer_lr"),
                                         .momentum = real(r, "outer_momentum") };
}

static void read_json(struct golden_fixture *f)
{
    char path[DLC_PATH_MAX];
    json_t *j = NULL;

    OK(dlc_path_join(path, f->folder, "fixture.json"));
    OK(dlc_json_read_file(&j, path, 1 << 20));
    read_model(&f->settings.model, json_object_get(j, "model"));
    read_run(&f->settings, json_object_get(j, "run"));
    reals(f->settings.weights, json_object_get(j, "weights"), ISLANDS);
    reals(f->lr, json_object_get(j, "lr"), STEPS);
    for (size_t i = 0; i < ISLANDS; i++) {
        f->batch[i] = (int)json_integer_value(json_array_get(json_object_get(j, "batch"), i));
        assert_in_range(f->batch[i], 1, MAX_BATCH);
        reals(f->expected.losses[i], json_array_get(json_object_get(j, "losses"), i), STEPS);
        reals(f->expected.norms[i], json_array_get(json_object_get(j, "grad_norms"), i), STEPS);
    }
    json_decref(j);
}

/* One file that holds the whole model, as the flat array. */
static float *read_params(const struct golden_fixture *f, const char *name)
{
    float *out = golden_zeros(f->n, sizeof *out);
    char path[DLC_PATH_MAX];
    dlc_st_file *file = NULL;

    OK(dlc_path_join(path, f->folder, name));
    OK(dlc_st_open(&file, path));
    assert_int_equal(dlc_st_n_tensors(file), f->n_table);
    for (size_t i = 0; i < f->n_table; i++)
        OK(dlc_st_read_f32(out + f->table[i].offset, file, f->table[i].name, f->table[i].n_values));
    dlc_st_close(file);
    return out;
}

static void read_tokens(struct golden_fixture *f)
{
    char path[DLC_PATH_MAX], name[16];
    dlc_st_file *file = NULL;

    OK(dlc_path_join(path, f->folder, "tokens.safetensors"));
    OK(dlc_st_open(&file, path));
    for (int i = 0; i < ISLANDS; i++) {
        const struct dlc_st_tensor *t;
        size_t n = (size_t)STEPS * (size_t)f->batch[i] * (SEQ + 1);

        snprintf(name, sizeof name, "island%d", i);
        t = dlc_st_find(file, name);
        assert_non_null(t);
        assert_string_equal(t->dtype_name, "I32");
        assert_int_equal(t->n_values, n);
        f->tokens[i] = golden_zeros(n, sizeof(int32_t));
        memcpy(f->tokens[i], t->data, n * sizeof(int32_t));
    }
    dlc_st_close(file);
}

void golden_open(struct golden_fixture *f, const char *variant)
{
    char name[32];

    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "tests/fixtures/golden/%s", variant);
    read_json(f);
    f->n = dlc_model_n_params(&f->settings.model);
    OK(dlc_model_params_table(&f->table, &f->n_table, &f->settings.model));
    f->init = read_params(f, "init.safetensors");
    f->expected.gradient = read_params(f, "grad.safetensors");
    for (int t = 0; t < ROUNDS; t++) {
        snprintf(name, sizeof name, "theta-%d.safetensors", t + 1);
        f->expected.theta[t] = read_params(f, name);
    }
    read_tokens(f);
}

void golden_trajectory_free(struct golden_trajectory *t)
{
    dlc_free(t->gradient);
    for (int i = 0; i < ROUNDS; i++)
        dlc_free(t->theta[i]);
}

void golden_close(struct golden_fixture *f)
{
    golden_trajectory_free(&f->expected);
    for (int i = 0; i < ISLANDS; i++)
        dlc_free(f->tokens[i]);
    dlc_free(f->init);
    dlc_free(f->table);
}

double golden_tensors_apart(const char **worst, const struct golden_fixture *f, const float *a, const float *b)
{
    double largest = 0;

    for (size_t i = 0; i < f->n_table; i++) {
        double apart = 0, scale = 0;

        for (size_t k = f->table[i].offset; k < f->table[i].offset + f->table[i].n_values; k++) {
            double d = fabs((double)a[k] - (double)b[k]);

            apart = d <= apart ? apart : isnan(d) ? INFINITY : d;
            scale = fmax(scale, fabs((double)b[k]));
        }
        if (apart / scale > largest) {
            largest = apart / scale;
            *worst = f->table[i].name;
        }
    }
    return largest;
}

static double lists_apart(const double (*a)[STEPS], const double (*b)[STEPS])
{
    double largest = 0;

    for (int i = 0; i < ISLANDS; i++) {
        for (int s = 0; s < STEPS; s++) {
            double d = fabs(a[i][s] - b[i][s]) / fabs(b[i][s]);

            largest = d <= largest ? largest : isnan(d) ? INFINITY : d;
        }
    }
    return largest;
}

struct golden_distances golden_compare(const struct golden_fixture *f, const struct golden_trajectory *got)
{
    struct golden_distances d = { .worst = "" };

    d.losses = lists_apart(got->losses, f->expected.losses);
    d.norms = lists_apart(got->norms, f->expected.norms);
    d.gradient = golden_tensors_apart(&d.worst, f, got->gradient, f->expected.gradient);
    for (int t = 0; t < ROUNDS; t++)
        d.theta[t] = golden_tensors_apart(&d.worst, f, got->theta[t], f->expected.theta[t]);
    return d;
}
