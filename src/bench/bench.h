/* Measures this machine and our own code on it: peaks, every operation of a training step, whole steps, generation.
 *
 * No data and no model are needed: tokens are random, and so are parameters. */
#ifndef DLC_BENCH_BENCH_H
#define DLC_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "bench/peaks.h"
#include "bench/timed.h"
#include "model/model.h"

enum dlc_bench_section {
    DLC_BENCH_PEAKS = 1,
    DLC_BENCH_OPS = 2,
    DLC_BENCH_STEP = 4,
    DLC_BENCH_DECODE = 8,
    DLC_BENCH_ALL = 15,
};

struct dlc_bench_options {
    unsigned sections; /* DLC_BENCH_... */
    const char *const *presets;
    size_t n_presets;
    int vocab, batch, seq;   /* 0: by the size of the preset, see dlc_bench_case_init */
    bool f32, bf16;          /* neither: f32, and bf16 where the kernels in use have instructions for it */
    const char *isa;         /* as dlc_backend_create; peaks are the machine's whatever is forced here */
    int threads;             /* 0: all cores */
    double seconds;          /* about how long in all; a step that takes long is measured 5 times all the same */
    int64_t available_bytes; /* of memory; 0: unknown */
};

/* One model in one precision. */
struct dlc_bench_case {
    const char *preset;
    struct dlc_model_config model;
    size_t n_params; /* N */
    int batch, seq, n_threads;
    dlc_precision precision;
};

/* Default vocabulary 4096 for d_model below 512, else 32000; batch 16 or 4; seq the preset's context, at most 256. */
dlc_err dlc_bench_case_init(struct dlc_bench_case *out, const struct dlc_bench_options *options, const char *preset,
                            dlc_precision precision);

struct dlc_bench_step {
    struct dlc_bench_case c;
    double *seconds; /* [n] of the timed steps, in order */
    size_t n;
    double median_s, best_s; /* 0: no timed steps were asked for */
    size_t peak_rss_bytes;   /* highest since this case began, everything of the process included; 0: unknown */
    struct dlc_model_memory planned;
    size_t planned_moments;

    /* Of the fastest of some more steps, in which operations were timed. */
    struct dlc_timed_row *rows; /* [n_rows] calls and seconds of one step */
    size_t n_rows;
    double profile_s, zero_s; /* the whole step, and zeroing the gradients, which is no operation of the table */
    struct dlc_peaks peaks;   /* the machine's, with memory as it was between these steps, if asked for */
};

struct dlc_bench_decode {
    struct dlc_bench_case c; /* batch 1; seq: positions of the cache, filled again and again */
    double median_s, best_s; /* of one token */
    double weight_bytes;     /* read for each token */
};

struct dlc_bench_result {
    unsigned sections;
    char cpu[80], isa[16], matmul[32];
    int cores;
    struct dlc_peaks peaks; /* what was needed of them, even if not asked for */
    struct dlc_bench_step *steps;
    size_t n_steps;
    struct dlc_bench_decode *decodes;
    size_t n_decodes;
};

/* Runs what is asked; says on the log what it is at. DLC_EUSAGE for options that make no sense, DLC_ENOMEM when a model
 * does not fit available_bytes, both before anything is measured. *out is to be freed in any case. */
dlc_err dlc_bench_run(struct dlc_bench_result *out, const struct dlc_bench_options *options);
void dlc_bench_result_fini(struct dlc_bench_result *result);

/* One object, or tables for people. */
dlc_err dlc_bench_json(struct dlc_buf *out, const struct dlc_bench_result *result);
dlc_err dlc_bench_text(struct dlc_buf *out, const struct dlc_bench_result *result);

/* What both reports compute alike. The roof of a call or case: bf16 stands for f32 where the machine has no bf16
 * products, since the arithmetic is f32 there. */
double dlc_bench_roof(const struct dlc_peaks *peaks, dlc_roof *roof); /* FLOPs or bytes a second; *roof: what it was */
const char *dlc_bench_roof_name(dlc_roof roof);                       /* "f32", "bf16", "read", "triad", "in_place" */
/* 6 N tokens/s over the peak: attention's products not counted. */
double dlc_bench_mfu(const struct dlc_bench_step *s, double tokens_per_s, dlc_roof *roof);
static inline double dlc_bench_tokens_per_s(const struct dlc_bench_case *c, double step_s)
{
    return step_s > 0 ? (double)c->batch * c->seq / step_s : 0;
}

/* The profiled step by operation, longest first, and zero_grads. Returns the seconds that are in none. */
enum { DLC_BENCH_MAX_OPS = DLC_TIMED_MAX_ROWS + 1 };
struct dlc_bench_op_time {
    const char *op;
    int n_calls;
    double seconds;
};
double dlc_bench_profile(struct dlc_bench_op_time out[DLC_BENCH_MAX_OPS], size_t *n, const struct dlc_bench_step *step);
const char *dlc_bench_precision_name(dlc_precision precision); /* "f32", "bf16" */

/* The parts, for bench.c. `seconds` is what each may take. */
struct dlc_bench_step_options {
    double seconds;
    bool timed;         /* also steps without timers inside */
    size_t array_bytes; /* of the arrays for bandwidth; 0: not measured, and no memory touched but the step's */
};
dlc_err dlc_bench_measure_step(struct dlc_bench_step *out, const struct dlc_bench_case *c, dlc_backend *be,
                               const struct dlc_bench_step_options *options);
dlc_err dlc_bench_measure_decode(struct dlc_bench_decode *out, const struct dlc_bench_case *c, dlc_backend *be,
                                 double seconds);
/* Bytes that the two will allocate. */
size_t dlc_bench_step_bytes(const struct dlc_bench_case *c, const dlc_backend *be);

/* Numbers around `std` for matrices, ones for norms: quick, the same every time, good for nothing but timing. */
void dlc_bench_init_params(float *params, const struct dlc_param *table, size_t n_table, double std);
double dlc_bench_median(double *out_best, const double *values, size_t n, double *scratch); /* n > 0; scratch [n] */

#endif
