/* The coordinator: the core (outer/coord.h) joined with a hub. Turns messages into the core's events and carries out
 * its actions; averages gradients in lockstep; counts bulk bytes. What must last, be shown or be restarted is somebody
 * else's, behind callbacks: the run (run.h), or a test under virtual time. One thread. */
#ifndef DLC_TRAIN_COORDINATOR_H
#define DLC_TRAIN_COORDINATOR_H

#include "exchange/exchange.h"
#include "outer/coord.h"

struct dlc_coordinator_callbacks {
    void *self;

    /* Makes record t durable together with everything needed to go on after it. Called in order, once a step; an error
     * ends the run. After it the hub publishes. theta: theta(t) [N]; saved: dlc_coord_to_json. All are borrowed. */
    dlc_err (*commit)(void *self, const struct dlc_record *record, const json_t *saved, const float *theta);

    /* The rest may be NULL.
     * opened: makes the open round durable (dlc_coord_resume's `round`), in place of the one before; comes before its
     * assignments go out. An error ends the run. Where this is NULL a new coordinator opens the round anew. */
    dlc_err (*opened)(void *self, const json_t *round);
    void (*dismissed)(void *self, int island, const char *reason);
    void (*progress)(void *self, int island, const struct dlc_message *m);
    void (*contribution)(void *self, int island, const struct dlc_message *m); /* came in; before the core sees it */
    void (*refused)(void *self, int island, uint64_t t, const char *reason);
    void (*suspect)(void *self, int island, double waited_s); /* restart it: the hub will report it lost */
    dlc_err (*lost)(void *self, int island); /* its connection closed; start it again, or an error ends the run */
};

typedef struct dlc_coordinator dlc_coordinator;

/* core, hub and pool (may be NULL) stay the caller's. */
dlc_err dlc_coordinator_create(dlc_coordinator **out, dlc_coord *core, const struct dlc_coord_config *config,
                               dlc_hub *hub, dlc_pool *pool, const struct dlc_coordinator_callbacks *callbacks);
void dlc_coordinator_destroy(dlc_coordinator *c); /* accepts NULL */

/* Takes one message, waiting until deadline_ns at most (0: not at all), and does all that follows from it.
 * *idle true: nothing had come. DLC_EPEER, DLC_EFAIL, ...: the run cannot go on, with the reason in the text. */
dlc_err dlc_coordinator_poll(dlc_coordinator *c, bool *idle, int64_t deadline_ns);

bool dlc_coordinator_is_finished(const dlc_coordinator *c); /* the last record is durable, islands were told to leave */

/* Asks every island to stop after its inner step and to save where it is. Islands that are not there count as paused.
 */
dlc_err dlc_coordinator_pause(dlc_coordinator *c);
bool dlc_coordinator_is_paused(const dlc_coordinator *c);
bool dlc_coordinator_is_connected(const dlc_coordinator *c, int island); /* it has said HELLO, and is not lost */
bool dlc_coordinator_has_left(const dlc_coordinator *c, int island); /* it paused, and ends by itself */

/* For a restarted island: its messages carry this incarnation from now on. */
void dlc_coordinator_set_incarnation(dlc_coordinator *c, int island, uint32_t incarnation);

#endif
