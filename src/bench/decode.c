/* Generation: one token after another, which reads every weight for each. */
#include "base/clock.h"
#include "base/mem.h"
#include "bench/bench.h"

enum { WARM_UP_TOKENS = 8, MIN_TOKENS = 16, MAX_TOKENS = 4096 };

/* A token costs the whole model but the rows of an untied embedding that are not its own. */
static double weight_bytes(const struct dlc_bench_case *c)
{
    size_t looked_up = c->model.tie_embeddings ? 0 : (size_t)c->model.vocab_size * (size_t)c->model.d_model;

    return (double)((c->n_params - looked_up) * (c->precision == DLC_PRECISION_BF16 ? 2 : 4));
}

static double one_token(dlc_decoder *decoder, const struct dlc_bench_case *c)
{
    int32_t token = (int32_t)(dlc_decoder_position(decoder) * 7919 % c->model.vocab_size);
    double begin = dlc_now_s();

    if (!dlc_decoder_step(decoder, token)) {
        dlc_decoder_reset(decoder);
        (void)dlc_decoder_step(decoder, token);
    }
    return dlc_now_s() - begin;
}

static dlc_err time_tokens(struct dlc_bench_decode *out, dlc_decoder *decoder, double seconds)
{
    double *times = dlc_calloc(2 * MAX_TOKENS, sizeof *times), begin = dlc_now_s();
    size_t n = 0;

    if (!times)
        return DLC_ENOMEM;
    for (int i = 0; i < WARM_UP_TOKENS; i++)
        one_token(decoder, &out->c);
    while (n < MAX_TOKENS && (n < MIN_TOKENS || dlc_now_s() - begin < seconds))
        times[n++] = one_token(decoder, &out->c);
    out->median_s = dlc_bench_median(&out->best_s, times, n, times + MAX_TOKENS);
    dlc_free(times);
    return DLC_OK;
}

dlc_err dlc_bench_measure_decode(struct dlc_bench_decode *out, const struct dlc_bench_case *c, dlc_backend *be,
                                 double seconds)
{
    struct dlc_model_options options = { .max_batch = 1, .max_seq = 1, .precision = c->precision };
    struct dlc_param *table = NULL;
    dlc_decoder *decoder = NULL;
    dlc_model *model = NULL;
    size_t n_table;
    dlc_err err;

    *out = (struct dlc_bench_decode){ .c = *c, .weight_bytes = weight_bytes(c) };
    DLC_TRY_TO(done, dlc_model_params_table(&table, &n_table, &c->model));
    DLC_TRY_TO(done, dlc_model_create(&model, &c->model, &options, be));
    dlc_bench_init_params(dlc_model_params(model), table, n_table, c->model.init_std);
    dlc_model_params_changed(model);
    DLC_TRY_TO(done, dlc_decoder_create(&decoder, model, c->seq));
    err = time_tokens(out, decoder, seconds);
done:
    dlc_decoder_destroy(decoder);
    dlc_model_destroy(model);
    dlc_free(table);
    return err;
}
