/* The configuration of a run: one plain struct, filled from defaults, run.ini and the command line by one table of keys
 * (keys.c: section, name, type, range, default, help). The same table makes the help and docs/cli.md.
 *
 * Keys are written section.name with underscores ("optim.weight_decay"); '-' is accepted for '_'. A number key whose
 * default depends on others can be "auto" (DLC_AUTO): dlc_config_resolve turns each into a value and says why. */
#ifndef DLC_CONFIG_CONFIG_H
#define DLC_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "data/dataset.h"
#include "model/model.h"
#include "optim/optim.h"
#include "outer/outer_opt.h"
#include "outer/policy.h"

typedef enum { DLC_RECOMPUTE_OFF, DLC_RECOMPUTE_LAYERS } dlc_recompute;
typedef enum { DLC_METHOD_DILOCO, DLC_METHOD_DP, DLC_METHOD_SINGLE } dlc_method;
typedef enum { DLC_WEIGHTS_TOKENS, DLC_WEIGHTS_UNIFORM } dlc_weights;
typedef enum { DLC_CODEC_F32, DLC_CODEC_BF16 } dlc_codec_kind;
typedef enum { DLC_EXCHANGE_LOCAL, DLC_EXCHANGE_INPROC, DLC_EXCHANGE_NATS } dlc_exchange_kind;

#define DLC_AUTO (-1) /* in the number keys marked "auto" below */
#define DLC_CONFIG_GIVEN_WORDS 2

struct dlc_config {
    struct {
        char preset[32];                /* nano; sets the shape keys that are not given themselves */
        struct dlc_model_config shape;  /* model.layers, d_model, heads, kv_heads, head_dim, d_ffn, context, rope_theta,
                                           norm_eps, tie_embeddings, qk_norm, init_std; vocab_size is the data's */
    } model;
    struct {
        char path[DLC_PATH_MAX]; /* data.path (--data): a prepared folder */
        dlc_deal deal;           /* iid | source */
        int64_t val_tokens;      /* validation uses at most this many tokens; 0: all; default 131072 */
    } data;
    struct {
        char out[DLC_PATH_MAX];  /* train.out (--out): the run folder */
        dlc_method method;       /* diloco | dp | single */
        int islands;             /* --islands, K >= 1; default 1; single: 1 */
        int64_t steps;           /* --steps: inner steps per island, the whole run */
        int batch;               /* --batch: sequences per island and inner step */
        int micro_batch;         /* sequences at once; auto: as many as fit well; divides batch -> accumulation */
        uint64_t seed;           /* --seed */
        dlc_precision precision; /* f32 | bf16 */
        dlc_nonfinite nonfinite; /* stop | skip | rollback */
        int nonfinite_max;       /* skip and rollback: at most this many, then stop; default 10 */
        int eval_every;          /* outer steps between validations; 1 */
        int log_every;           /* inner steps between progress records; auto */
        int checkpoint_every;    /* outer steps; 1 */
        int keep;                /* complete checkpoints kept; 2 */
        char init_from[DLC_PATH_MAX]; /* a model folder to start from instead of random parameters; "" none */
    } train;
    struct {
        double lr;               /* --lr: peak of the inner AdamW; auto by model size */
        double beta1, beta2, eps, weight_decay, clip; /* 0.9 0.95 1e-8 0.1 1 */
        dlc_schedule_kind schedule; /* cosine | linear | wsd | constant */
        int64_t warmup;          /* steps; auto */
        double min_ratio;        /* 0.1 */
        double decay_fraction;   /* wsd, 0.2 */
    } optim;
    struct {
        int64_t steps;           /* outer.steps, H; default 500; shortened for short runs, said aloud, when not given */
        dlc_outer_kind optimizer; /* nesterov | sgd | sgdm | adam */
        double lr;               /* auto: 0.7 with momentum, 1 without; adam 0.1 */
        double momentum;         /* auto: 0.9, lower for few rounds or small H (docs/results) */
        double beta2, eps;       /* adam: 0.95, 0.1 */
        dlc_weights weights;     /* tokens | uniform */
        double drop;             /* probability that a contribution is lost (simulation); 0 */
        dlc_codec_kind codec;    /* f32 | bf16 */
        int min_islands, quorum; /* coordinate: to begin a round; to close it without the late; 1 1 */
        dlc_late late;           /* drop | next */
        double late_weight;      /* next: times the weight; 0.5 */
        dlc_aggregate aggregate; /* mean | trimmed | median */
        int refusals_max;        /* in a row, then the island is sent away; 3 */
    } outer;
    struct {
        dlc_exchange_kind kind;  /* local | inproc | nats (diloco coordinate) */
        int max_islands;         /* coordinate: identities the run may ever see; 64 */
        double patience_s;       /* exchange.patience: of an island without a coordinator; 3600 */
    } exchange;
    struct {
        int threads;             /* per island; auto: cores / islands, at least 1 */
        bool pin;                /* island threads bound to cores, island by island */
        char isa[16];            /* auto | ref | avx2 | avx512 | avx512bf16 | amx */
        dlc_recompute recompute; /* off | layers */
        int64_t memory_limit_mb; /* auto: what the machine (cgroup) has available */
    } system;
    uint64_t given[DLC_CONFIG_GIVEN_WORDS]; /* one bit for each row of the table: set by the user, not by a default.
                                               A key set to "auto" does not count as given. */
};

void dlc_config_default(struct dlc_config *config);

/* One key = text; the key by its full name ("optim.lr"), its short flag ("data") or a bare name that only one section
 * has ("momentum"). Numbers are plain decimals; whole numbers may be written 1e6 or 1_000_000. DLC_EUSAGE for an
 * unknown key (names the nearest), a wrong type, a value out of range (names the range); the configuration is unchanged then.
 * `where` is put in front of the message ("run.ini line 12", "--optim.lr"). Records that the key was given. */
dlc_err dlc_config_set(struct dlc_config *config, const char *key, const char *value, const char *where);
bool dlc_config_is_given(const struct dlc_config *config, const char *key);

/* run.ini in, with inih. Errors name file and line. Fuzzed. */
dlc_err dlc_config_read_ini(struct dlc_config *config, const char *path);
dlc_err dlc_config_parse_ini(struct dlc_config *config, const char *text, size_t size_bytes, const char *where);
/* The whole configuration as run.ini text, every key with its value: reading it back gives the same struct. */
dlc_err dlc_config_write_ini(struct dlc_buf *out, const struct dlc_config *config);

/* The preset's shape into every model key that is not given. dlc_config_resolve does it first of all; a caller that
 * needs the context before there is data calls it earlier. Repeating it changes nothing. vocab_size stays. */
dlc_err dlc_config_apply_preset(struct dlc_config *config);

/* Fills every auto from the model's size, the run's length, the data (vocab_size) and the machine, checks what several
 * keys say together, and appends one line to `said` for each thing that was chosen or adjusted. After it the struct is
 * frozen: no auto left. */
dlc_err dlc_config_resolve(struct dlc_config *config, const struct dlc_dataset_info *data, struct dlc_buf *said);

/* How many different islands the run can have: train.islands, or where they come and go exchange.max_islands. */
int dlc_config_n_identities(const struct dlc_config *config);

/* For a run with history: what `given` says anew goes into `frozen` (its run.ini) where it does not change the result;
 * DLC_EUSAGE with both values where it would. */
dlc_err dlc_config_resume(struct dlc_config *frozen, const struct dlc_config *given, const char *run_folder);

/* For an island of a run that is served: what `given` says of this machine and its folders goes into `run`, the run's
 * configuration; DLC_EUSAGE for a key that is the run's alone. */
dlc_err dlc_config_join(struct dlc_config *run, const struct dlc_config *given);

/* "section.name = value" lines of every key that must stay as it was, in the order of the table: what a digest is made of
 * that shows whether somebody changed run.ini by hand. */
dlc_err dlc_config_frozen_text(struct dlc_buf *out, const struct dlc_config *config);

#endif
