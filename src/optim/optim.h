/* Inner optimizer (AdamW), gradient clipping and learning-rate schedules. */
#ifndef DLC_OPTIM_OPTIM_H
#define DLC_OPTIM_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "model/model.h"

typedef enum { DLC_SCHEDULE_COSINE, DLC_SCHEDULE_LINEAR, DLC_SCHEDULE_WSD, DLC_SCHEDULE_CONSTANT } dlc_schedule_kind;

struct dlc_schedule {
    dlc_schedule_kind kind;
    double lr;             /* peak */
    double min_ratio;      /* the rate falls to min_ratio * lr (cosine, linear, wsd) at step total_steps, the one
                            * after the last, as in llm.c: no step is spent at a rate of 0 */
    double decay_fraction; /* wsd: the share of all steps over which the rate falls, by 1 - sqrt */
    int64_t warmup_steps;  /* linear: step s (from 0) has lr * (s + 1) / warmup_steps, as in llm.c */
    int64_t total_steps;   /* of the whole run, not of a round */
};

/* The rate of step s, 0 <= s; from total_steps on the final rate. A run that ends within its warm-up never falls. */
double dlc_schedule_lr(const struct dlc_schedule *schedule, int64_t step);

struct dlc_adamw_config {
    double beta1, beta2, eps, weight_decay, clip; /* clip: largest global gradient norm; 0 turns clipping off */
};

/* One AdamW update of a whole replica. `step` counts from 1 (bias correction). Decay on tensors of the table marked so.
 * grads are left as they are. m, v [N] are the island's own and survive rounds.
 * Returns the gradient's global norm before clipping; when it is not finite nothing is changed. */
double dlc_adamw_step(dlc_backend *be, float *params, float *m, float *v, const float *grads,
                      const struct dlc_param *table, size_t n_table, const struct dlc_adamw_config *config, double lr,
                      int64_t step);

#endif
