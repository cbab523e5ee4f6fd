/* The table of presets in the help: what a shape costs before anything is allocated. */
#include "cli/help.h"
#include "config/rules.h"
#include "model/model.h"

#define BATCH 16 /* the default of train.batch */

struct cost {
    int vocab_size;
    double params_m, memory_mib, mflops_per_token;
};

/* Memory of one island: the replica, AdamW's two moments and the parameters the round began with. */
static dlc_err cost_of(struct cost *out, struct dlc_model_config *shape, const char *preset, const dlc_backend *be)
{
    struct dlc_model_options options = { .training = true, .precision = DLC_PRECISION_F32 };
    struct dlc_model_memory m;
    double n;

    DLC_TRY(dlc_model_preset(shape, preset));
    out->vocab_size = shape->vocab_size = shape->d_model < 512 ? 4096 : 32000;
    options.max_seq = shape->context;
    options.max_batch = dlc_rule_micro_batch(BATCH, shape->context);
    dlc_model_memory_plan(&m, shape, &options, be);
    n = (double)dlc_model_n_params(shape);
    out->params_m = n / 1e6;
    out->memory_mib = ((double)(m.params + m.grads + m.activations + m.scratch) + 3 * 4 * n) / (1 << 20);
    out->mflops_per_token = dlc_model_flops_per_token(shape, shape->context) / 1e6;
    return DLC_OK;
}

static dlc_err rows(struct dlc_buf *out, const char *format, const dlc_backend *be)
{
    for (const char *const *name = dlc_model_preset_names(); *name; name++) {
        struct dlc_model_config shape = { 0 };
        struct cost cost;

        DLC_TRY(cost_of(&cost, &shape, *name, be));
        DLC_TRY(dlc_buf_printf(out, format, *name, shape.n_layers, shape.d_model, shape.n_heads, shape.d_ffn,
                               shape.context, cost.vocab_size, cost.params_m, cost.memory_mib,
                               cost.mflops_per_token < 100 ? 1 : 0, cost.mflops_per_token));
    }
    return DLC_OK;
}

dlc_err dlc_help_presets(struct dlc_buf *out, bool markdown)
{
    const char *format = markdown ? "| `%s` | %d | %d | %d | %d | %d | %d | %.3g M | %.0f MiB | %.*f M |\n"
                                  : "  %-8s %6d %7d %5d %5d %7d %7d %9.3g M %8.0f MiB %11.*f M\n";
    dlc_backend *be;
    dlc_err err;

    DLC_TRY(dlc_backend_create(&be, "ref", 1));
    if (markdown)
        err = dlc_buf_printf(out, "| preset | layers | d_model | heads | d_ffn | context | with vocabulary | "
                                  "parameters | memory of an island | "
                                  "FLOPs a token |\n|---|---|---|---|---|---|---|---|---|---|\n");
    else
        err = dlc_buf_printf(out, "  %-8s %6s %7s %5s %5s %7s %7s %11s %12s %13s\n", "", "layers", "d_model", "heads",
                             "d_ffn", "context", "vocab", "parameters", "memory", "FLOPs/token");
    if (err == DLC_OK)
        err = rows(out, format, be);
    dlc_backend_destroy(be);
    if (err == DLC_OK)
        err = dlc_buf_printf(out,
                             "%sMemory: one island in f32 with batch %d; the coordinator needs about 4 bytes x "
                             "parameters x (islands + 3) more.\n",
                             markdown ? "\n" : "  ", BATCH);
    return err;
}
