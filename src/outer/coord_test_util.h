/* A coordinator's core on a bench: islands are a few calls, time is a number. For the coord_*_test.c. */
#ifndef DLC_OUTER_COORD_TEST_UTIL_H
#define DLC_OUTER_COORD_TEST_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "outer/coord_internal.h"

#define N 4
#define ISLANDS_MAX 8
#define SECOND ((int64_t)1000000000)

struct bench {
    struct dlc_coord_config cfg;
    dlc_coord *c;
    float theta_values[2][N], state_values[2][N];
    float *theta[2], *state[2];
    float slots[ISLANDS_MAX][N];
    uint32_t incarnations[ISLANDS_MAX];
    int64_t now_ns;
    bool auto_commit; /* answers CLOSED with COMMITTED */
    struct dlc_action actions[256]; /* since the last forget() */
    size_t n_actions;
    char *line; /* the last record */
    json_t *round; /* the last one that was opened */
    int n_opened;
};

static inline struct dlc_coord_config bench_config(int n_islands)
{
    return (struct dlc_coord_config){
        .run = "0123456789abcdef0123456789abcdef", .seed = 3, .n_islands = n_islands, .n_params = N, .total_steps = 50,
        .H = 5, .batch = 2, .tokens_per_sample = 10, .n_pools = 1,
        .opt = { .kind = DLC_OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9 }, .codec = &dlc_codec_f32,
        .wait_for_all = true, .min_islands = n_islands, .quorum = n_islands, .publish_before_commit = true };
}

static inline void bench_init(struct bench *b, const struct dlc_coord_config *cfg)
{
    memset(b, 0, sizeof *b);
    b->cfg = *cfg;
    b->auto_commit = true;
    for (int k = 0; k < 2; k++) {
        b->theta[k] = b->theta_values[k];
        b->state[k] = b->state_values[k];
    }
}

static inline void bench_open(struct bench *b, const struct dlc_coord_config *cfg)
{
    bench_init(b, cfg);
    for (int j = 0; j < N; j++)
        b->theta_values[0][j] = 1.0f + (float)j;
    assert_int_equal(dlc_coord_create(&b->c, cfg, b->theta, b->state, NULL), DLC_OK);
}

static inline void bench_close(struct bench *b)
{
    dlc_coord_destroy(b->c);
    dlc_free(b->line);
    json_decref(b->round);
    b->c = NULL;
    b->round = NULL;
    b->line = NULL;
}

static inline void forget(struct bench *b)
{
    b->n_actions = 0;
}

static inline size_t count(const struct bench *b, dlc_action_kind kind, int island)
{
    size_t n = 0;

    for (size_t i = 0; i < b->n_actions; i++)
        n += b->actions[i].kind == kind && (island < 0 || b->actions[i].island == island);
    return n;
}

static inline const struct dlc_action *last_action(const struct bench *b, dlc_action_kind kind)
{
    for (size_t i = b->n_actions; i-- > 0;) {
        if (b->actions[i].kind == kind)
            return &b->actions[i];
    }
    fail_msg("no action of kind %d among %zu", (int)kind, b->n_actions);
    return NULL;
}

static inline dlc_err give(struct bench *b, const struct dlc_event *ev)
{
    struct dlc_action a;
    dlc_err err = dlc_coord_event(b->c, b->now_ns, ev);

    while (dlc_coord_next_action(b->c, &a)) {
        if (a.kind == DLC_ACTION_OPENED) { /* not among the others: tests of what islands are told count those */
            json_decref(b->round);
            b->round = dlc_coord_round_to_json(b->c);
            assert_non_null(b->round);
            b->n_opened++;
            continue;
        }
        assert_true(b->n_actions < 256);
        b->actions[b->n_actions++] = a;
        if (a.kind == DLC_ACTION_CLOSED) {
            dlc_free(b->line);
            assert_int_equal(dlc_record_to_line(&b->line, a.record), DLC_OK);
            if (b->auto_commit)
                err = err ? err : dlc_coord_event(b->c, b->now_ns,
                                                  &(struct dlc_event){ .kind = DLC_EVENT_COMMITTED, .t = a.t });
        }
    }
    return err;
}

/* An event of the island, of the open round and attempt. */
static inline struct dlc_event event_of(const struct bench *b, dlc_event_kind kind, int island)
{
    return (struct dlc_event){ .kind = kind, .island = island, .incarnation = b->incarnations[island],
                               .t = dlc_coord_t(b->c) + 1, .attempt = b->c->attempt };
}

static inline void tell(struct bench *b, dlc_event_kind kind, int island)
{
    struct dlc_event ev = event_of(b, kind, island);

    assert_int_equal(give(b, &ev), DLC_OK);
}

static inline void hello(struct bench *b, int island)
{
    b->incarnations[island]++;
    tell(b, DLC_EVENT_HELLO, island);
}

static inline void hello_all(struct bench *b)
{
    for (int i = 0; i < b->cfg.n_islands; i++)
        hello(b, i);
}

static inline void tick(struct bench *b)
{
    tell(b, DLC_EVENT_TICK, 0);
}

/* The island's contribution: theta(t-1) moved by `by`. */
static inline struct dlc_event contribution_of(struct bench *b, int island, float by)
{
    struct dlc_event ev = event_of(b, DLC_EVENT_CONTRIBUTION, island);

    for (int j = 0; j < N; j++)
        b->slots[island][j] = dlc_coord_theta(b->c)[j] - by;
    ev.payload = b->slots[island];
    ev.payload_bytes = sizeof b->slots[island];
    ev.digest = dlc_sha256(b->slots[island], sizeof b->slots[island]);
    return ev;
}

static inline void contribute(struct bench *b, int island, float by)
{
    struct dlc_event ev = contribution_of(b, island, by);

    assert_int_equal(give(b, &ev), DLC_OK);
}

/* A whole round in which island i moves by (i + 1) / 8. */
static inline void whole_round(struct bench *b)
{
    uint64_t t = dlc_coord_t(b->c) + 1;

    for (int i = 0; i < b->cfg.n_islands && dlc_coord_t(b->c) < t; i++) {
        if (b->c->islands[i].state == DLC_ISLAND_TRAINING)
            contribute(b, i, 0.125f * (float)(i + 1));
    }
    assert_int_equal(dlc_coord_t(b->c), t);
}

static inline struct dlc_ledger_totals totals_of(const struct bench *b)
{
    struct dlc_ledger_totals totals;

    dlc_ledger_totals(&totals, dlc_coord_ledger(b->c), 0);
    return totals;
}

#endif
