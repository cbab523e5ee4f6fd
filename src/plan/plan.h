/* The planner: what a set of links will give, before anything is trained.
 *
 * Islands hang on a coordinator (a star, as this program works): an exchange is every island sending its contribution
 * up, the coordinator merging, and the result coming down to every island. With
 *
 *   N parameters, K islands, T seconds an inner step, H inner steps a round, P fragments, tau inner steps of overlap,
 *   b bits a parameter (up, down), W bit/s of an island's link (up, down), l its one-way latency,
 *
 *   one exchange of a fragment   s = (N/P) (b_up / W_up + b_down / W_down) + 2 l + overhead / P
 *   data parallel                P = 1, an exchange every step, nothing hidden:     CU = T / (T + s)
 *   DiLoCo (blocking)            P = 1, an exchange every H steps:                  CU = H T / (H T + s)
 *   streaming                    an exchange every H/P steps                        CU = (H/P) T / ((H/P) T + s)
 *   with overlap                 hidden behind tau steps: only max(0, s - tau T) stops training;  tau < H/P
 *   eager                        P = 1, hidden behind the whole next round: tau = H
 *
 * CU is compute utilisation, compute time / total time. These are the closed forms of arXiv 2501.18512's schedule (and
 * 2502.12996 for eager) with the star's two transfers in place of one all-reduce; simulator.h has the paper's own
 * model.
 *
 *   bytes a round     DP H N b / 8, the others N b / 8, each way
 *   peak link rate    what lets one exchange end inside its window: one inner step when it blocks, tau steps with
 *                     overlap, H steps with eager
 *   time to a budget  tokens / (K tokens a step) inner steps of T / CU each
 *
 * W is the smaller of the island's link and its K-th part of the coordinator's, times `efficiency`: the part of a
 * link's rate that payload gets. docs/internals/planner.md says what is not modelled. Pure functions; only appending
 * fails. */
#ifndef DLC_PLAN_PLAN_H
#define DLC_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define DLC_PLAN_MAX_H 1000000
#define DLC_PLAN_MAX_FRAGMENTS 4096

#define DLC_PLAN_N_CODECS 6

/* How an outer gradient is written. Scales of chunks (below 2 % of the bytes) are not counted. */
struct dlc_plan_codec {
    const char *name;
    double bits;         /* a parameter */
    bool relayed;        /* what is sparse does not stay so when averaged: all K contributions come down as they are */
    bool error_feedback; /* the island keeps what was not sent: 4 bytes a parameter */
};
extern const struct dlc_plan_codec dlc_plan_codecs[DLC_PLAN_N_CODECS]; /* from most to fewest bits */
const struct dlc_plan_codec *dlc_plan_codec_find(const char *name);    /* NULL: unknown */

struct dlc_plan_link {
    double down_bits_per_s, up_bits_per_s;
    double latency_s;      /* one way */
    double hub_bits_per_s; /* the coordinator's, each way, shared by all islands; 0: never the narrow place */
    double efficiency;     /* 0..1 */
    double overhead_s;     /* of exchanging the whole model: coding, merging, writing; what no transfer hides */
};

/* What the program itself can train with by now; the rest is marked as planned. */
struct dlc_plan_abilities {
    bool fragments, overlap, eager, error_feedback;
    bool codec[DLC_PLAN_N_CODECS];
};

struct dlc_plan_setup {
    double n_params;
    int n_islands;
    double step_s;           /* compute of one inner step */
    double tokens_per_step;  /* of an island; 0: unknown */
    double n_tokens;         /* budget of all islands together; 0: none */
    double activation_bytes; /* activations and scratch of an island; 0: unknown */
    int H, fragments, overlap;
    const struct dlc_plan_codec *up, *down; /* of DiLoCo, streaming and eager */
    struct dlc_plan_link link;
    struct dlc_plan_abilities can;
};

/* Sizes that make sense together, or DLC_EUSAGE with the values. Must pass before anything below. */
dlc_err dlc_plan_check(const struct dlc_plan_setup *setup);

typedef enum { DLC_PLAN_DP, DLC_PLAN_DILOCO, DLC_PLAN_EAGER } dlc_plan_kind;

/* One way to train. */
struct dlc_plan_way {
    const char *name;
    dlc_plan_kind kind;
    int H, fragments, overlap; /* DP: 1, 1, 0; eager ignores overlap */
    const struct dlc_plan_codec *up, *down;
};

/* The ways that are compared: data parallel in f32 and bf16, DiLoCo, streaming, streaming + overlap + 4 bit, eager,
 * top-k + 2 bit. */
#define DLC_PLAN_N_WAYS 7
void dlc_plan_ways(struct dlc_plan_way out[DLC_PLAN_N_WAYS], const struct dlc_plan_setup *setup);
bool dlc_plan_trainable(const struct dlc_plan_way *way, const struct dlc_plan_abilities *can);

struct dlc_plan_prediction {
    double step_s;                 /* an inner step with the part of the exchanges that stops training */
    double utilisation;            /* 0..1 */
    double exchange_s, stall_s;    /* one exchange; what of it stops training */
    double up_bytes, down_bytes;   /* of an island in H inner steps (setup's H), so that the ways compare */
    double peak_bits_per_s;        /* of a link that is as fast up as down */
    double link_for_95_bits_per_s; /* down; up and the coordinator's in proportion; INFINITY: latency forbids it */
    double budget_s;               /* NAN without a budget */
    double memory_bytes;           /* of an island */
};
void dlc_plan_predict(struct dlc_plan_prediction *out, const struct dlc_plan_way *way,
                      const struct dlc_plan_setup *setup);

/* Utilisation with the link's rates, up, down and the coordinator's, multiplied by `factor`; and the factor that a
 * utilisation below 1 takes (INFINITY: no link is fast enough). Each is the other's inverse wherever something stalls.
 */
double dlc_plan_utilisation(const struct dlc_plan_way *way, const struct dlc_plan_setup *setup, double factor);
double dlc_plan_factor_for(const struct dlc_plan_way *way, const struct dlc_plan_setup *setup, double utilisation);

/* What the coordinator keeps (parameters before and after, momentum, K contributions). */
double dlc_plan_hub_memory_bytes(const struct dlc_plan_way *way, const struct dlc_plan_setup *setup);

/* The search: for each codec, blocking and with fragments and overlap, the smallest H that reaches the target on the
 * setup's link; of equal H the smaller tau, then the fewer fragments. H up to 2000 and tau up to 5, which is as far as
 * the papers went; P up to `max_fragments`. What no H serves is left out, and overlap that makes no round shorter. */
#define DLC_PLAN_FIND_MAX_H 2000 /* arXiv 2311.08105: H of 50 to 2000 */
#define DLC_PLAN_MAX_FOUND (2 * DLC_PLAN_N_CODECS)
struct dlc_plan_found {
    struct dlc_plan_way way;
    struct dlc_plan_prediction prediction;
};
void dlc_plan_find(struct dlc_plan_found out[DLC_PLAN_MAX_FOUND], int *n, const struct dlc_plan_setup *setup,
                   double target, int max_fragments);

/* Reports, appended to `out`. */
dlc_err dlc_plan_text(struct dlc_buf *out, const struct dlc_plan_setup *setup);
dlc_err dlc_plan_json(struct dlc_buf *out, const struct dlc_plan_setup *setup);
dlc_err dlc_plan_found_text(struct dlc_buf *out, const struct dlc_plan_found *found, int n,
                            const struct dlc_plan_setup *setup, double target);
dlc_err dlc_plan_found_json(struct dlc_buf *out, const struct dlc_plan_found *found, int n,
                            const struct dlc_plan_setup *setup, double target);
/* Utilisation against the link's rate for every way: a picture that needs nothing else. */
dlc_err dlc_plan_svg(struct dlc_buf *out, const struct dlc_plan_setup *setup);

#endif
