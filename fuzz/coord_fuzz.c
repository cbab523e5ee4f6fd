/* The coordinator's saved state, and in its member "round" the open round: an error, or a run that goes on to its end with every sample accounted for. The record
 * beside it is made to fit, since no fuzzer finds digests. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "outer/coord.h"

#define N 2
#define ISLANDS 2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct dlc_coord_config config = { .run = "0123456789abcdef0123456789abcdef",
                                                .seed = 3,
                                                .n_islands = ISLANDS,
                                                .n_params = N,
                                                .total_steps = 30,
                                                .H = 5,
                                                .batch = 2,
                                                .tokens_per_sample = 10,
                                                .n_pools = 1,
                                                .drop = 0.2,
                                                .opt = { .kind = DLC_OUTER_SGD, .lr = 0.5 },
                                                .codec = &dlc_codec_f32,
                                                .wait_for_all = true,
                                                .min_islands = ISLANDS,
                                                .quorum = ISLANDS,
                                                .publish_before_commit = true };

struct island {
    struct dlc_assignment assignment;
    bool assigned;
};

static void give(dlc_coord *c, const struct dlc_event *ev, struct island islands[ISLANDS])
{
    struct dlc_action a;
    dlc_err err = dlc_coord_event(c, 0, ev);

    while (dlc_coord_next_action(c, &a)) {
        if (a.kind == DLC_ACTION_ASSIGN)
            islands[a.island] = (struct island){ a.assignment, true };
        if (a.kind == DLC_ACTION_CLOSED && err == DLC_OK)
            err = dlc_coord_event(c, 0, &(struct dlc_event){ .kind = DLC_EVENT_COMMITTED, .t = a.t });
    }
    if (err != DLC_OK) /* a state that was let in carries a whole run */
        abort();
}

/* Near the last sample that there can be, leases are refused in order and the run cannot end. */
static bool has_samples_left(const dlc_coord *c)
{
    struct dlc_ledger_totals t;

    dlc_ledger_totals(&t, dlc_coord_ledger(c), 0);
    return t.next < (uint64_t)1 << 59;
}

static void run_to_the_end(dlc_coord *c)
{
    struct island islands[ISLANDS] = { { .assigned = false } };
    struct dlc_ledger_totals t;
    float payload[N];

    for (int i = 0; i < ISLANDS; i++)
        give(c, &(struct dlc_event){ .kind = DLC_EVENT_HELLO, .island = i, .incarnation = UINT32_MAX }, islands);
    for (int k = 0; k < 40 * ISLANDS && !dlc_coord_is_finished(c); k++) {
        struct island *isl = &islands[k % ISLANDS];
        struct dlc_event ev = { .kind = DLC_EVENT_CONTRIBUTION,
                                .island = k % ISLANDS,
                                .incarnation = UINT32_MAX,
                                .t = isl->assignment.t,
                                .attempt = isl->assignment.attempt,
                                .payload = payload,
                                .payload_bytes = sizeof payload };

        if (!isl->assigned)
            continue;
        isl->assigned = false;
        memcpy(payload, dlc_coord_theta(c), sizeof payload);
        give(c, &ev, islands);
    }
    dlc_ledger_totals(&t, dlc_coord_ledger(c), 0);
    if (!dlc_coord_is_finished(c) || t.leased != 0 || t.free_below_next + t.consumed + t.discarded != t.next)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float values[2][N] = { { 1, 2 }, { 1, 2 } }, *theta[2] = { values[0], values[1] }, *state[2] = { NULL, NULL };
    struct dlc_record last = { .theta = dlc_sha256(values[0], sizeof values[0]), .outer = dlc_sha256("", 0) };
    json_t *saved = NULL;
    dlc_coord *c;

    if (dlc_json_parse(&saved, (const char *)data, size, "fuzz") != DLC_OK)
        return 0;
    memcpy(last.run, config.run, sizeof last.run);
    last.t = (uint64_t)json_integer_value(json_object_get(saved, "t"));
    if (dlc_coord_resume(&c, &config, theta, state, NULL, saved, last.t ? &last : NULL,
                         json_object_get(saved, "round")) == DLC_OK) {
        if (!dlc_coord_is_finished(c) && has_samples_left(c))
            run_to_the_end(c);
        dlc_coord_destroy(c);
    }
    json_decref(saved);
    return 0;
}
