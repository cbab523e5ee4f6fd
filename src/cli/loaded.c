#include "cli/loaded.h"

#include <inttypes.h>
#include <string.h>

#include "ckpt/model_folder.h"
#include "config/memory.h"

static dlc_err check_memory(const struct dlc_loaded *l, size_t needed_bytes)
{
    int64_t available = dlc_memory_available_mb(), needed = (int64_t)(needed_bytes >> 20);

    if (available > 0 && needed > available)
        return dlc_fail(DLC_ENOMEM, "%s needs %" PRId64 " MiB to compute, %" PRId64 " MiB are available", l->folder,
                        needed, available);
    return DLC_OK;
}

static dlc_err open_folder(struct dlc_loaded *l, const struct dlc_load_options *o)
{
    DLC_TRY(dlc_model_folder_config(&l->config, l->folder));
    DLC_TRY(dlc_model_config_check(&l->config));
    return dlc_backend_create(&l->backend, o->isa, o->threads);
}

static dlc_err load_model(struct dlc_loaded *l, int *batch, const struct dlc_load_options *o)
{
    struct dlc_model_options options = { .precision = DLC_PRECISION_F32 };
    struct dlc_model_memory m;

    DLC_TRY(open_folder(l, o));
    options.max_seq = o->context ? o->context : l->config.context;
    options.max_batch = o->max_tokens / options.max_seq > 1 ? o->max_tokens / options.max_seq : 1;
    *batch = options.max_batch;
    dlc_model_memory_plan(&m, &l->config, &options, l->backend);
    DLC_TRY(check_memory(l, m.params + m.grads + m.activations + m.scratch));
    DLC_TRY(dlc_model_create(&l->model, &l->config, &options, l->backend));
    DLC_TRY(dlc_model_folder_params(dlc_model_params(l->model), &l->config, l->folder));
    dlc_model_params_changed(l->model);
    return DLC_OK;
}

static dlc_precision choose_precision(const char *name, const dlc_model_tensors *tensors)
{
    if (strcmp(name, "auto") == 0)
        return dlc_model_tensors_dtype(tensors) == DLC_BF16 ? DLC_PRECISION_BF16 : DLC_PRECISION_F32;
    return strcmp(name, "bf16") == 0 ? DLC_PRECISION_BF16 : DLC_PRECISION_F32;
}

static dlc_err fill_decoder(struct dlc_loaded *l, dlc_model_tensors *tensors, const struct dlc_load_options *o)
{
    dlc_precision precision = choose_precision(o->precision, tensors);
    struct dlc_tensor_source source = dlc_model_tensors_source(tensors);
    struct dlc_decoder_memory m;

    dlc_decoder_memory_plan(&m, &l->config, precision, l->config.context);
    DLC_TRY(check_memory(l, m.weights + m.cache + m.scratch + m.loading));
    DLC_TRY(dlc_decoder_create_alone(&l->decoder, &l->config, precision, l->backend, l->config.context));
    return dlc_decoder_load(l->decoder, source.read, source.arg);
}

static dlc_err load_decoder(struct dlc_loaded *l, const struct dlc_load_options *o)
{
    dlc_model_tensors *tensors;
    dlc_err err;

    DLC_TRY(open_folder(l, o));
    DLC_TRY(dlc_model_tensors_open(&tensors, &l->config, l->folder));
    err = fill_decoder(l, tensors, o);
    dlc_model_tensors_close(tensors);
    return err;
}

static dlc_err load_tokenizer(struct dlc_loaded *l)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, l->folder, "tokenizer.json"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    DLC_TRY(dlc_tokenizer_load(&l->tokenizer, path));
    if (dlc_tokenizer_vocab_size(l->tokenizer) <= l->config.vocab_size)
        return DLC_OK;
    return dlc_fail(DLC_EINPUT, "%s: %d tokens, but the model beside it knows %d; they do not belong together", path,
                    dlc_tokenizer_vocab_size(l->tokenizer), l->config.vocab_size);
}

dlc_err dlc_loaded_init(struct dlc_loaded *out, int *batch, const char *path, const struct dlc_load_options *options)
{
    memset(out, 0, sizeof *out);
    DLC_TRY(dlc_model_folder_resolve(out->folder, path));
    DLC_TRY(load_model(out, batch, options));
    return load_tokenizer(out);
}

dlc_err dlc_loaded_init_decoder(struct dlc_loaded *out, const char *path, const struct dlc_load_options *options)
{
    memset(out, 0, sizeof *out);
    DLC_TRY(dlc_model_folder_resolve(out->folder, path));
    DLC_TRY(load_decoder(out, options));
    return load_tokenizer(out);
}

void dlc_loaded_fini(struct dlc_loaded *l)
{
    dlc_tokenizer_destroy(l->tokenizer);
    dlc_decoder_destroy(l->decoder);
    dlc_model_destroy(l->model);
    dlc_backend_destroy(l->backend);
    memset(l, 0, sizeof *l);
}
