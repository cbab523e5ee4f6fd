/* One island: takes assignments, trains alone for the steps of a round, hands in its outer gradient.
 *
 * Driven from outside and never blocking: messages go in through dlc_island_on_message, dlc_island_work does one unit
 * of work (about one inner step). The same code runs under virtual time with a toy trainer, in one process with all
 * islands, and in a process of its own (island_main.h). What it trains is behind a table: a real model (trainer.h), or
 * anything with parameters and gradients. */
#ifndef DLC_ISLAND_ISLAND_H
#define DLC_ISLAND_ISLAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "exchange/exchange.h"
#include "outer/codecs/codec.h"
#include "outer/policy.h"

/* What an island trains. `self` is the implementation. Inner state is what AdamW keeps. States are kept under the outer
 * step they belong to; a state once saved is complete or absent. */
struct dlc_trainer_ops {
    size_t (*n_params)(void *self);
    float *(*params)(void *self); /* [N] */
    float *(*grads)(void *self);  /* [N] */

    /* The caller wrote into params(). */
    void (*params_changed)(void *self);

    /* Gradient of inner step `step` (whole run, from 0) on samples [offset, offset + batch) of the lease, mean over
     * tokens. *loss: mean loss in nats. */
    dlc_err (*gradient)(void *self, double *loss, const struct dlc_ranges *lease, uint64_t offset, int64_t step);
    int (*batch)(void *self); /* samples an inner step takes */

    /* One optimizer step with the gradients there are. *norm: their global norm; when not finite nothing changed. */
    void (*apply)(void *self, double *norm, double *lr, int64_t step);

    /* The inner state after outer step state_step; 0: fresh. own_params: its parameters too. */
    dlc_err (*load)(void *self, uint64_t state_step, bool own_params, int *n_skipped);
    /* Saves it; of older ones only `base_step` stays: the one this round began with, to which an island goes back whose
     * contribution was not let in. */
    dlc_err (*save)(void *self, uint64_t state_step, uint64_t base_step, int n_skipped);

    /* A stop in mid-round: everything after n_done steps of this assignment; and back, *n_done 0 when there is none
     * that fits the assignment exactly. NULL: not kept, the round starts again. */
    dlc_err (*save_paused)(void *self, const struct dlc_message *assignment, int64_t n_done, int n_skipped);
    dlc_err (*load_paused)(void *self, const struct dlc_message *assignment, int64_t *n_done, int *n_skipped);

    /* Samples from `offset` of the lease on come next: they may be fetched already. NULL: nothing to fetch. */
    void (*prefetch)(void *self, const struct dlc_ranges *lease, uint64_t offset);
    /* Seconds spent waiting for samples so far. NULL: none. */
    double (*data_s)(void *self);
    /* The outer steps whose inner states can be loaded, newest first, 0: none. NULL: nobody asked, those that should. */
    dlc_err (*held)(void *self, uint64_t states[2]);
};

struct dlc_island_config {
    int index;
    uint32_t incarnation;
    bool lockstep; /* gradients are averaged every inner step */
    const struct dlc_codec *codec;
    dlc_nonfinite nonfinite;
    int nonfinite_max;  /* skip: at most this many steps in the whole run */
    int progress_every; /* inner steps between progress messages; the last step of a round always, and one a second */
};

typedef struct dlc_island dlc_island;

/* Says HELLO at once. trainer and endpoint stay the caller's. */
dlc_err dlc_island_create(dlc_island **out, const struct dlc_island_config *config, const struct dlc_trainer_ops *ops,
                          void *trainer, dlc_endpoint *endpoint);
void dlc_island_destroy(dlc_island *isl); /* accepts NULL */

/* DLC_EPEER with the coordinator's reason: this island was dismissed, and may leave. */
dlc_err dlc_island_on_message(dlc_island *isl, const struct dlc_message *m);

/* Leaves in order: says so, keeps nothing of the round, and what it was lent is free at once. Between two calls of
 * dlc_island_work. */
dlc_err dlc_island_leave(dlc_island *isl, const char *reason);

/* True while dlc_island_work would do something; otherwise a message is awaited. */
bool dlc_island_has_work(const dlc_island *isl);
dlc_err dlc_island_work(dlc_island *isl);

/* The run is over, it was paused, left or was dismissed: leave. */
bool dlc_island_may_leave(const dlc_island *isl);

#endif
