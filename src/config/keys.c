#include "config/keys.h"

#include <string.h>

#include "config/nearest.h"

#define AT(field) .offset = offsetof(struct dlc_config, field), .size_bytes = sizeof(((struct dlc_config *)0)->field)
#define INT(field, low, high) .type = DLC_KEY_INT, AT(field), .min = (low), .max = (high)
#define INT64(field, low, high) .type = DLC_KEY_INT64, AT(field), .min = (low), .max = (high)
#define REAL(field, low, high) .type = DLC_KEY_REAL, AT(field), .min = (low), .max = (high)
#define BOOL(field) .type = DLC_KEY_BOOL, AT(field)
#define ENUM(field, names) .type = DLC_KEY_ENUM, AT(field), .choices = (names)
#define TEXT(field) .type = DLC_KEY_TEXT, AT(field)

static const char *const deals[] = { "iid", "source", NULL };
static const char *const methods[] = { "diloco", "dp", "single", NULL };
static const char *const precisions[] = { "f32", "bf16", NULL };
static const char *const recomputes[] = { "off", "layers", NULL };
static const char *const nonfinites[] = { "stop", "skip", "rollback", NULL };
static const char *const schedules[] = { "cosine", "linear", "wsd", "constant", NULL };
static const char *const optimizers[] = { "nesterov", "sgd", "sgdm", "adam", NULL };
static const char *const weights[] = { "tokens", "uniform", NULL };
static const char *const codecs[] = { "f32", "bf16", NULL };
static const char *const exchanges[] = { "local", "inproc", "nats", NULL };
static const char *const lates[] = { "drop", "next", NULL };
static const char *const aggregates[] = { "mean", "trimmed", "median", NULL };
static const char *const isas[] = { "auto", "ref", "avx2", "avx512", "avx512bf16", "amx", NULL };

static const struct dlc_key keys[] = {
    { "model.preset", "preset", TEXT(model.preset), .list = dlc_model_preset_names, .fallback = "nano",
      .help = "a known shape; gives every model key that is not set itself" },
    { "model.layers", NULL, INT(model.shape.n_layers, 1, 1024), .help = "transformer blocks" },
    { "model.d_model", NULL, INT(model.shape.d_model, 1, 65536), .help = "width of the residual stream" },
    { "model.heads", NULL, INT(model.shape.n_heads, 1, 1024), .help = "attention heads" },
    { "model.kv_heads", NULL, INT(model.shape.n_kv_heads, 1, 1024), .help = "key/value heads; divides model.heads" },
    { "model.head_dim", NULL, INT(model.shape.head_dim, 2, 1024), .help = "width of one head; even" },
    { "model.d_ffn", NULL, INT(model.shape.d_ffn, 1, 262144), .help = "width inside the feed-forward block" },
    { "model.context", NULL, INT(model.shape.context, 1, 1048576), .help = "tokens of a training sequence" },
    { "model.rope_theta", NULL, REAL(model.shape.rope_theta, 1, 1e12), .help = "base of the rotary positions" },
    { "model.norm_eps", NULL, REAL(model.shape.norm_eps, 1e-12, 0.1), .help = "epsilon inside RMSNorm" },
    { "model.tie_embeddings", NULL, BOOL(model.shape.tie_embeddings),
      .help = "one matrix for input and output tokens" },
    { "model.qk_norm", NULL, BOOL(model.shape.qk_norm), .help = "RMSNorm on queries and keys; exported as Qwen3" },
    { "model.init_std", NULL, REAL(model.shape.init_std, 1e-6, 1),
      .help = "standard deviation of the initial matrices" },

    { "data.path", "data", TEXT(data.path), .fallback = "", .help = "folder made by diloco prepare" },
    { "data.deal", NULL, ENUM(data.deal, deals), .fallback = "iid",
      .help = "what islands draw from: everything, or one source label each (non-iid)" },
    { "data.val_tokens", NULL, INT64(data.val_tokens, 0, 1e15), .fallback = "131072",
      .help = "validation uses at most this many tokens; 0: all" },

    { "train.out", "out", TEXT(train.out), .fallback = "", .help = "the run folder; one with history is resumed" },
    { "train.method", "method", ENUM(train.method, methods), .fallback = "diloco",
      .help = "diloco; dp: gradients averaged every step; single: one worker" },
    { "train.islands", "islands", INT(train.islands, 1, 1024), .fallback = "1",
      .help = "islands, each with a replica" },
    { "train.steps", "steps", INT64(train.steps, 1, 1e12), .fallback = "1000",
      .help = "inner steps per island, the whole run" },
    { "train.batch", "batch", INT(train.batch, 1, 1e6), .fallback = "16",
      .help = "sequences per island and inner step" },
    { "train.micro_batch", NULL, INT(train.micro_batch, 1, 1e6), .may_be_auto = true, .fallback = "auto",
      .help = "sequences computed at once; divides train.batch" },
    { "train.seed", "seed", .type = DLC_KEY_UINT64, AT(train.seed), .min = 0, .max = 0x1p64, .fallback = "1",
      .help = "of initial parameters, sample order and simulated drops" },
    { "train.precision", NULL, ENUM(train.precision, precisions), .fallback = "f32",
      .help = "of matrix products; parameters and sums stay f32" },
    { "train.nonfinite", NULL, ENUM(train.nonfinite, nonfinites), .fallback = "stop",
      .help = "when a loss is NaN or infinite" },
    { "train.nonfinite_max", NULL, INT(train.nonfinite_max, 0, 1e9), .fallback = "10",
      .help = "skip and rollback: at most so many times, then stop" },
    { "train.eval_every", NULL, INT(train.eval_every, 1, 1e9), .fallback = "1",
      .help = "outer steps between validations" },
    { "train.log_every", NULL, INT(train.log_every, 1, 1e9), .may_be_auto = true, .fallback = "auto",
      .help = "inner steps between progress records" },
    { "train.checkpoint_every", NULL, INT(train.checkpoint_every, 1, 1e9), .fallback = "1",
      .help = "outer steps between checkpoints" },
    { "train.keep", NULL, INT(train.keep, 1, 1e6), .fallback = "2", .help = "complete checkpoints kept" },
    { "train.init_from", NULL, TEXT(train.init_from), .fallback = "",
      .help = "model or run folder to start from; empty: random parameters" },

    { "optim.lr", "lr", REAL(optim.lr, 0, 100), .may_be_auto = true, .fallback = "auto",
      .help = "peak rate of the inner AdamW; auto: by model size" },
    { "optim.beta1", NULL, REAL(optim.beta1, 0, 0.999999), .fallback = "0.9", .help = "AdamW, mean of gradients" },
    { "optim.beta2", NULL, REAL(optim.beta2, 0, 0.999999), .fallback = "0.95", .help = "AdamW, mean of their squares" },
    { "optim.eps", NULL, REAL(optim.eps, 1e-30, 1), .fallback = "1e-8", .help = "AdamW, added to the root" },
    { "optim.weight_decay", NULL, REAL(optim.weight_decay, 0, 100), .fallback = "0.1", .help = "on matrices only" },
    { "optim.clip", NULL, REAL(optim.clip, 0, 1e9), .fallback = "1",
      .help = "largest global gradient norm; 0: no clipping" },
    { "optim.schedule", NULL, ENUM(optim.schedule, schedules), .fallback = "cosine",
      .help = "of the rate after the warm-up" },
    { "optim.warmup", NULL, INT64(optim.warmup, 0, 1e12), .may_be_auto = true, .fallback = "auto",
      .help = "inner steps of linear warm-up" },
    { "optim.min_ratio", NULL, REAL(optim.min_ratio, 0, 1), .fallback = "0.1",
      .help = "last rate, as a part of the peak" },
    { "optim.decay_fraction", NULL, REAL(optim.decay_fraction, 0, 1), .fallback = "0.2",
      .help = "wsd: part of the run over which the rate falls" },

    { "outer.steps", NULL, INT64(outer.steps, 1, 1e9), .fallback = "500",
      .help = "H, inner steps between exchanges; shortened for short runs when not set" },
    { "outer.optimizer", NULL, ENUM(outer.optimizer, optimizers), .fallback = "nesterov",
      .help = "takes the outer step" },
    { "outer.lr", NULL, REAL(outer.lr, 0, 100), .may_be_auto = true, .fallback = "auto",
      .help = "outer rate; auto: 0.7 with momentum, 1 without, 0.1 for adam" },
    { "outer.momentum", NULL, REAL(outer.momentum, 0, 0.9999), .may_be_auto = true, .fallback = "auto",
      .help = "outer momentum (adam: beta1); auto: 0.9, less for few exchanges or small H" },
    { "outer.beta2", NULL, REAL(outer.beta2, 0, 0.999999), .fallback = "0.95", .help = "outer adam" },
    { "outer.eps", NULL, REAL(outer.eps, 1e-30, 10), .fallback = "0.1", .help = "outer adam" },
    { "outer.weights", NULL, ENUM(outer.weights, weights), .fallback = "tokens",
      .help = "of contributions in the mean: tokens trained on, or all alike" },
    { "outer.drop", NULL, REAL(outer.drop, 0, 0.99), .fallback = "0",
      .help = "probability that a contribution is lost (simulation)" },
    { "outer.codec", NULL, ENUM(outer.codec, codecs), .fallback = "f32",
      .help = "number format of contributions on the way" },
    { "outer.min_islands", "min-islands", INT(outer.min_islands, 1, 1024), .fallback = "1",
      .help = "coordinate: a round begins with at least so many islands" },
    { "outer.quorum", "quorum", INT(outer.quorum, 1, 1024), .fallback = "1",
      .help = "coordinate: a round may close without the late ones once so many have contributed" },
    { "outer.late", "late", ENUM(outer.late, lates), .fallback = "drop",
      .help = "coordinate: what comes after its round was closed is dropped, or counts in the next one" },
    { "outer.late_weight", NULL, REAL(outer.late_weight, 0, 1), .fallback = "0.5",
      .help = "late = next: its weight in the mean is multiplied by this" },
    { "outer.aggregate", "aggregate", ENUM(outer.aggregate, aggregates), .fallback = "mean",
      .help = "of contributions; trimmed and median bear some islands that send nonsense" },
    { "outer.refusals_max", NULL, INT(outer.refusals_max, 1, 1e6), .fallback = "3",
      .help = "coordinate: an island is sent away after so many refused contributions in a row" },

    { "exchange.kind", "exchange", ENUM(exchange.kind, exchanges), .fallback = "local",
      .help = "local: islands are processes; inproc: all in one process; nats: machines, see diloco coordinate" },
    { "exchange.max_islands", NULL, INT(exchange.max_islands, 1, 1024), .fallback = "64",
      .help = "coordinate: how many different islands the run may ever see" },
    { "exchange.patience", NULL, REAL(exchange.patience_s, 1, 1e9), .fallback = "3600",
      .help = "seconds that an island waits for a lost coordinator before it leaves" },

    { "system.threads", NULL, INT(system.threads, 1, 1024), .may_be_auto = true, .fallback = "auto",
      .help = "per island; auto: cores / islands" },
    { "system.pin", NULL, BOOL(system.pin), .fallback = "false",
      .help = "bind each thread of the islands to a core of its own" },
    { "system.isa", NULL, TEXT(system.isa), .choices = isas, .fallback = "auto",
      .help = "instruction set of the kernels" },
    { "system.recompute", NULL, ENUM(system.recompute, recomputes), .fallback = "off",
      .help = "layers: keep only what passes between layers; far less memory, a third more compute, the same bits" },
    { "system.memory_limit_mb", NULL, INT64(system.memory_limit_mb, 16, 1e12), .may_be_auto = true, .fallback = "auto",
      .help = "MiB for the whole run; auto: what the machine has available" },
};

_Static_assert(sizeof keys / sizeof *keys <= 64 * DLC_CONFIG_GIVEN_WORDS, "one bit of dlc_config.given for each key");

const struct dlc_key *dlc_config_keys(size_t *n)
{
    *n = sizeof keys / sizeof *keys;
    return keys;
}

static bool same_name(const char *a, const char *b, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (a[i] != b[i] && !(a[i] == '_' && b[i] == '-'))
            return false;
    return a[length] == '\0';
}

const struct dlc_key *dlc_config_find_key(const char *name, size_t length)
{
    const struct dlc_key *found = NULL;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (same_name(keys[i].name, name, length) || (keys[i].flag && same_name(keys[i].flag, name, length)))
            return &keys[i];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!same_name(strchr(keys[i].name, '.') + 1, name, length))
            continue;
        if (found)
            return NULL; /* several sections have it */
        found = &keys[i];
    }
    return found;
}

const char *dlc_config_nearest_key(const char *name)
{
    struct dlc_nearest nearest = dlc_nearest_start(name);

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *bare = strchr(keys[i].name, '.') + 1;

        if (keys[i].flag)
            dlc_nearest_offer(&nearest, keys[i].flag, keys[i].flag);
        dlc_nearest_offer(&nearest, keys[i].name, keys[i].name);
        dlc_nearest_offer(&nearest, bare, keys[i].name);
    }
    return dlc_nearest_result(&nearest);
}
