#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/prepare.h"
#include "train/evaluate.h"

#define T 16
#define MAX_BATCH 4

static struct {
    char folder[64], data_path[128];
    dlc_dataset *data;
    dlc_backend *backend;
    dlc_model *model;
} shared;

static dlc_err make_data(void)
{
    const char *inputs[1];
    char path[128];
    struct dlc_buf text = { 0 };
    struct dlc_prepare_result result;
    struct dlc_prepare_config c = { .inputs = inputs,
                                    .n_inputs = 1,
                                    .json_key = "text",
                                    .regex = "gpt2",
                                    .vocab_size = 300,
                                    .val_fraction = 0.3,
                                    .shard_tokens = 1 << 20,
                                    .bpe_train_bytes = 1 << 20,
                                    .n_threads = 1 };
    dlc_err err;

    snprintf(path, sizeof path, "%s/text.jsonl", shared.folder);
    for (int i = 0; i < 60; i++)
        DLC_TRY(dlc_buf_printf(&text, "{\"text\": \"document %d says that %d and %d are %d\"}\n", i, i * 7, i * 13,
                               i * 20));
    DLC_TRY(dlc_file_write_atomic(path, text.data, text.len));
    inputs[0] = path;
    c.out = shared.data_path;
    err = dlc_prepare(&result, &c);
    dlc_buf_fini(&text);
    return err;
}

static dlc_err make_model(void)
{
    struct dlc_model_config c = { .vocab_size = dlc_dataset_info(shared.data)->vocab_size,
                                  .n_layers = 1,
                                  .d_model = 16,
                                  .n_heads = 2,
                                  .n_kv_heads = 1,
                                  .head_dim = 8,
                                  .d_ffn = 24,
                                  .context = T,
                                  .rope_theta = 1e4,
                                  .norm_eps = 1e-5,
                                  .tie_embeddings = true,
                                  .init_std = 0.02 };

    DLC_TRY(dlc_backend_create(&shared.backend, "ref", 1));
    DLC_TRY(dlc_model_create(&shared.model, &c, &(struct dlc_model_options){ .max_batch = MAX_BATCH, .max_seq = T },
                             shared.backend));
    dlc_model_init_params(dlc_model_params(shared.model), &c, 3);
    dlc_model_params_changed(shared.model);
    return DLC_OK;
}

static int set_up(void **state)
{
    (void)state;
    dlc_log_set_level(DLC_LOG_WARN);
    snprintf(shared.folder, sizeof shared.folder, "/tmp/dlc-evaluate-XXXXXX");
    if (!mkdtemp(shared.folder))
        return -1;
    snprintf(shared.data_path, sizeof shared.data_path, "%s/data", shared.folder);
    if (make_data() == DLC_OK && dlc_dataset_open(&shared.data, shared.data_path, T, DLC_DEAL_IID, 1) == DLC_OK &&
        make_model() == DLC_OK)
        return 0;
    print_error("%s\n", dlc_err_text());
    return -1;
}

static int tear_down(void **state)
{
    (void)state;
    dlc_model_destroy(shared.model);
    dlc_backend_destroy(shared.backend);
    dlc_dataset_close(shared.data);
    return dlc_remove_tree(shared.folder) == DLC_OK ? 0 : -1;
}

static struct dlc_eval_result evaluate(const struct dlc_evaluator_options *options, const float *params)
{
    struct dlc_eval_result r;
    dlc_evaluator *e;
    uint64_t allocs;

    if (dlc_evaluator_create(&e, shared.model, shared.data, options) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    for (int repeat = 0; repeat < 2; repeat++) { /* starting anew forgets everything */
        dlc_evaluator_start(e, params);
        allocs = dlc_mem_n_allocs();
        for (bool done = false; !done;)
            assert_int_equal(dlc_evaluator_step(e, &done), DLC_OK);
        assert_true(dlc_mem_n_allocs() == allocs);
        r = dlc_evaluator_result(e);
    }
    dlc_evaluator_destroy(e);
    return r;
}

/* One window at a time, the plainest way. */
static void result_is_the_mean_over_the_set(void **state)
{
    struct dlc_val_set set;
    double sum = 0;
    struct dlc_eval_result r;

    (void)state;
    assert_int_equal(dlc_dataset_val_set(&set, shared.data, 0), DLC_OK);
    assert_true(set.n_windows > 2 * MAX_BATCH);
    for (uint64_t i = 0; i < set.n_windows; i++) {
        int32_t tokens[T], targets[T];

        dlc_dataset_val_window(shared.data, &set, i, tokens, targets);
        sum += dlc_model_loss(shared.model, tokens, targets, 1, set.seq_len);
    }
    for (int batch = 1; batch <= MAX_BATCH; batch++) {
        r = evaluate(&(struct dlc_evaluator_options){ .batch = batch, .context = T }, NULL);
        assert_true(r.tokens == set.n_windows * (uint64_t)set.seq_len);
        if (fabs(r.loss * (double)r.tokens - sum) > 1e-6 * sum)
            fail_msg("batch %d: sum %.12g, one by one %.12g", batch, r.loss * (double)r.tokens, sum);
        assert_true(r.ppl == exp(r.loss));
        assert_true(fabs(r.bpb - r.loss * (double)r.tokens / log(2) / set.n_bytes) < 1e-12);
    }
    assert_true(fabs(r.loss - log(dlc_dataset_info(shared.data)->vocab_size)) < 0.2); /* an untrained model guesses */
}

static void fewer_tokens_are_fewer_windows(void **state)
{
    struct dlc_evaluator_options o = { .batch = 2, .context = T, .max_tokens = 3 * T + 5 };

    (void)state;
    assert_int_equal(evaluate(&o, NULL).tokens, 3 * T);
    o.split = DLC_SPLIT_TRAIN;
    assert_int_equal(evaluate(&o, NULL).tokens, 3 * T);
    o.max_tokens = 1; /* never nothing */
    assert_int_equal(evaluate(&o, NULL).tokens, T);
}

static void training_split_counts_bytes_by_its_tokens(void **state)
{
    struct dlc_evaluator_options o = { .split = DLC_SPLIT_TRAIN, .batch = MAX_BATCH, .context = T };
    struct dlc_eval_result r = evaluate(&o, NULL);
    dlc_tokenizer *tokenizer;
    char path[160];
    double bytes;

    (void)state;
    assert_true(isnan(r.bpb)); /* nobody knows the bytes */
    assert_int_equal(r.tokens, dlc_dataset_pool_windows(shared.data, 0) * T);
    snprintf(path, sizeof path, "%s/tokenizer.json", shared.data_path);
    assert_int_equal(dlc_tokenizer_load(&tokenizer, path), DLC_OK);
    o.tokenizer = tokenizer;
    r = evaluate(&o, NULL);
    bytes = r.loss * (double)r.tokens / log(2) / r.bpb;
    assert_true(bytes > (double)r.tokens && bytes < 20.0 * (double)r.tokens);
    assert_true(fabs(bytes - round(bytes)) < 1e-6); /* a whole number */
    dlc_tokenizer_destroy(tokenizer);
}

static void parameters_can_be_handed_over(void **state)
{
    struct dlc_evaluator_options o = { .batch = MAX_BATCH, .context = T };
    size_t n = dlc_model_size(shared.model);
    float *zeros = dlc_calloc(n, sizeof *zeros), *before = dlc_alloc(n * sizeof *before);
    double loss = evaluate(&o, NULL).loss;

    (void)state;
    memcpy(before, dlc_model_params(shared.model), n * sizeof *before);
    assert_true(fabs(evaluate(&o, zeros).loss - log(dlc_dataset_info(shared.data)->vocab_size)) < 1e-6); /* uniform */
    assert_true(evaluate(&o, before).loss == loss); /* same bits again */
    dlc_free(zeros);
    dlc_free(before);
}

static void a_larger_vocabulary_is_refused(void **state)
{
    struct dlc_model_config c = *dlc_model_get_config(shared.model);
    dlc_model *small;
    dlc_evaluator *e;

    (void)state;
    c.vocab_size--;
    assert_int_equal(dlc_model_create(&small, &c, &(struct dlc_model_options){ .max_batch = 1, .max_seq = T },
                                      shared.backend),
                     DLC_OK);
    assert_int_equal(dlc_evaluator_create(&e, small, shared.data,
                                          &(struct dlc_evaluator_options){ .batch = 1, .context = T }),
                     DLC_EINPUT);
    assert_null(e);
    assert_non_null(strstr(dlc_err_text(), "different tokenizers"));
    dlc_model_destroy(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_is_the_mean_over_the_set),
        cmocka_unit_test(fewer_tokens_are_fewer_windows),
        cmocka_unit_test(training_split_counts_bytes_by_its_tokens),
        cmocka_unit_test(parameters_can_be_handed_over),
        cmocka_unit_test(a_larger_vocabulary_is_refused),
    };

    return cmocka_run_group_tests_name("evaluate", tests, set_up, tear_down);
}
