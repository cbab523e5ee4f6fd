/* One island on a bench: what it takes, what it says, and what it does about losses that are not finite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "island/island.h"

#define N 2
#define BATCH 2

/* --- a trainer that adds one to every parameter per step, and an endpoint that keeps what was said ---------------- */

struct bench {
    float params[N], grads[N], theta[2][N], slot[N];
    double bad_loss_at, bad_norm_at; /* inner steps; -1: never */
    int64_t paused_n_done;           /* what load_paused gives */
    int n_applied, n_loaded, n_saved, n_paused;
    uint64_t loaded, saved, kept;
    struct dlc_message said[64];
    size_t n_said;
    dlc_island *island;
};

struct endpoint {
    dlc_endpoint base;
    struct bench *b;
};

static size_t n_params(void *self)
{
    (void)self;
    return N;
}
static float *params(void *self)
{
    return ((struct bench *)self)->params;
}
static float *grads(void *self)
{
    return ((struct bench *)self)->grads;
}
static void changed(void *self)
{
    (void)self;
}
static int batch(void *self)
{
    (void)self;
    return BATCH;
}

static dlc_err gradient(void *self, double *loss, const struct dlc_ranges *lease, uint64_t offset, int64_t step)
{
    struct bench *b = self;

    assert_true(offset + BATCH <= dlc_ranges_count(lease));
    *loss = (double)step == b->bad_loss_at ? NAN : 1.0;
    b->grads[0] = (float)step;
    return DLC_OK;
}

static void apply(void *self, double *norm, double *lr, int64_t step)
{
    struct bench *b = self;

    *lr = 0.5;
    *norm = (double)step == b->bad_norm_at ? INFINITY : 1.0;
    if (!isfinite(*norm))
        return;
    b->n_applied++;
    b->params[0] += 1;
    b->params[1] += 1;
}

static dlc_err load(void *self, uint64_t state_step, bool own_params, int *n_skipped)
{
    struct bench *b = self;

    (void)own_params;
    b->n_loaded++;
    b->loaded = state_step;
    *n_skipped = 0;
    return DLC_OK;
}

static dlc_err save(void *self, uint64_t state_step, uint64_t base_step, int n_skipped)
{
    struct bench *b = self;

    (void)n_skipped;
    b->n_saved++;
    b->saved = state_step;
    b->kept = base_step;
    return DLC_OK;
}

static dlc_err save_paused(void *self, const struct dlc_message *assignment, int64_t n_done, int n_skipped)
{
    struct bench *b = self;

    (void)assignment, (void)n_skipped;
    b->n_paused++;
    b->paused_n_done = n_done;
    return DLC_OK;
}

static dlc_err load_paused(void *self, const struct dlc_message *assignment, int64_t *n_done, int *n_skipped)
{
    (void)assignment;
    *n_done = ((struct bench *)self)->paused_n_done;
    *n_skipped = 0;
    return DLC_OK;
}

static dlc_err held(void *self, uint64_t states[2])
{
    (void)self;
    states[0] = 7;
    states[1] = 5;
    return DLC_OK;
}

static const struct dlc_trainer_ops trainer = { n_params, params, grads, changed,     gradient,   batch,
                                                apply,    load,   save,  save_paused, load_paused,
                                                .held = held };

static dlc_err say(dlc_endpoint *ep, const struct dlc_message *m)
{
    struct bench *b = ((struct endpoint *)ep)->b;

    assert_true(b->n_said < 64);
    b->said[b->n_said++] = *m;
    return DLC_OK;
}

static void *slot(dlc_endpoint *ep)
{
    return ((struct endpoint *)ep)->b->slot;
}
static const float *theta(dlc_endpoint *ep, uint64_t t)
{
    return ((struct endpoint *)ep)->b->theta[t & 1];
}
static const float *mean(dlc_endpoint *ep)
{
    return ((struct endpoint *)ep)->b->slot;
}

static const struct dlc_endpoint_ops endpoint_ops = { say, slot, theta, mean };
static struct endpoint endpoint = { .base = { &endpoint_ops } };

static void open_with(struct bench *b, struct dlc_island_config cfg)
{
    memset(b, 0, sizeof *b);
    b->bad_loss_at = b->bad_norm_at = -1;
    for (int k = 0; k < 2; k++)
        b->theta[k][0] = b->theta[k][1] = 10.0f * (float)(k + 1);
    endpoint.b = b;
    cfg.index = 4;
    cfg.incarnation = 2;
    cfg.codec = &dlc_codec_f32;
    cfg.progress_every = 1;
    assert_int_equal(dlc_island_create(&b->island, &cfg, &trainer, b, &endpoint.base), DLC_OK);
    assert_int_equal(b->said[0].kind, DLC_MSG_HELLO);
    assert_int_equal(b->said[0].incarnation, 2);
    assert_true(b->said[0].states_known && b->said[0].states[0] == 7 && b->said[0].states[1] == 5);
    b->n_said = 0;
}

static void open_plain(struct bench *b)
{
    open_with(b, (struct dlc_island_config){ .lockstep = false });
}

static dlc_err hear(struct bench *b, const struct dlc_message *m)
{
    return dlc_island_on_message(b->island, m);
}

/* An assignment of n_steps for outer step t that starts from theta(t-1) as it is. */
static dlc_err assign(struct bench *b, uint64_t t, uint32_t attempt, int64_t n_steps, uint64_t state_step)
{
    struct dlc_range lease = { 0, 100, (uint64_t)n_steps * BATCH };
    struct dlc_message m = { .kind = DLC_MSG_ASSIGN,
                             .t = t,
                             .attempt = attempt,
                             .first_step = (int64_t)(t - 1) * n_steps,
                             .n_steps = n_steps,
                             .state_step = state_step,
                             .ranges = { .items = &lease, .n = 1 },
                             .digest = dlc_sha256(b->theta[(t - 1) & 1], sizeof b->theta[0]) };

    return hear(b, &m);
}

static void work(struct bench *b)
{
    for (int k = 0; k < 100 && dlc_island_has_work(b->island); k++)
        assert_int_equal(dlc_island_work(b->island), DLC_OK);
}

static const struct dlc_message *last_said(const struct bench *b)
{
    assert_true(b->n_said > 0);
    return &b->said[b->n_said - 1];
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

static void a_round(void **state)
{
    struct bench b;
    struct dlc_sha256 digest;

    (void)state;
    open_plain(&b);
    assert_false(dlc_island_has_work(b.island));
    assert_int_equal(assign(&b, 1, 1, 3, 0), DLC_OK);
    work(&b);
    assert_int_equal(b.n_said, 4); /* three inner steps and the contribution */
    for (int k = 0; k < 3; k++) {
        assert_int_equal(b.said[k].kind, DLC_MSG_PROGRESS);
        assert_int_equal(b.said[k].step, k);
    }
    digest = dlc_sha256(b.slot, sizeof b.slot);
    assert_int_equal(last_said(&b)->kind, DLC_MSG_CONTRIBUTION);
    assert_int_equal(last_said(&b)->size_bytes, sizeof b.slot);
    assert_memory_equal(&last_said(&b)->digest, &digest, sizeof digest);
    assert_true(b.slot[0] == 13); /* theta(0) and three steps */
    assert_true(b.n_saved == 1 && b.saved == 1 && b.kept == 0);

    assert_int_equal(assign(&b, 2, 1, 3, 1), DLC_OK); /* from what it holds: nothing to load */
    assert_int_equal(b.n_loaded, 1);
    work(&b);
    assert_true(b.slot[0] == 23 && b.saved == 2 && b.kept == 1);
    assert_int_equal(assign(&b, 3, 1, 3, 1), DLC_OK); /* it was not let in: back to the state before */
    assert_true(b.n_loaded == 2 && b.loaded == 1);
    dlc_island_destroy(b.island);
}

static void assignments_that_make_no_sense_are_refused(void **state)
{
    static const struct {
        uint64_t t;
        int64_t n_steps;
        uint64_t samples;
        const char *why;
    } rows[] = {
        { 0, 3, 6, "outer steps begin with 1" }, { 1, 0, 0, "no steps" },          { 1, -1, 6, "negative" },
        { 1, 3, 5, "a sample too few" },         { 1, 3, 7, "a sample too many" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_range lease = { 0, 0, rows[k].samples };
        struct dlc_message m = { .kind = DLC_MSG_ASSIGN,
                                 .t = rows[k].t,
                                 .attempt = 1,
                                 .n_steps = rows[k].n_steps,
                                 .ranges = { .items = &lease, .n = 1 } };
        struct bench b;

        open_plain(&b);
        if (hear(&b, &m) != DLC_EPEER || dlc_island_has_work(b.island))
            fail_msg("%s: taken", rows[k].why);
        dlc_island_destroy(b.island);
    }
}

static void what_is_stale_changes_nothing(void **state)
{
    struct bench b;

    (void)state;
    open_plain(&b);
    assert_int_equal(assign(&b, 2, 2, 3, 0), DLC_OK);
    assert_int_equal(dlc_island_work(b.island), DLC_OK);
    assert_int_equal(assign(&b, 2, 2, 3, 0), DLC_OK); /* twice */
    assert_int_equal(assign(&b, 2, 1, 3, 0), DLC_OK); /* an earlier attempt */
    assert_int_equal(assign(&b, 1, 9, 3, 0), DLC_OK); /* an earlier step */
    work(&b);
    assert_true(b.slot[0] == 20 + 3 && b.n_applied == 3);
    assert_int_equal(assign(&b, 2, 3, 3, 0), DLC_OK); /* a new attempt: all of it again */
    work(&b);
    assert_int_equal(b.n_applied, 6);
    dlc_island_destroy(b.island);
}

static void damaged_theta_is_asked_for_again(void **state)
{
    struct bench b;

    (void)state;
    open_plain(&b);
    {
        struct dlc_range lease = { 0, 0, 4 };
        struct dlc_message m = {
            .kind = DLC_MSG_ASSIGN, .t = 1, .attempt = 1, .n_steps = 2, .ranges = { .items = &lease, .n = 1 }
        };

        assert_int_equal(hear(&b, &m), DLC_OK); /* the digest is another one */
        assert_int_equal(last_said(&b)->kind, DLC_MSG_RESUPPLY);
        assert_int_equal(last_said(&b)->t, 1);
        assert_false(dlc_island_has_work(b.island));
    }
    assert_int_equal(assign(&b, 1, 1, 2, 0), DLC_OK); /* the same one is taken now */
    assert_true(dlc_island_has_work(b.island));
    dlc_island_destroy(b.island);
}

/* --- losses that are not finite ----------------------------------------------------------------------------------- */

static void nonfinite_policies(void **state)
{
    static const struct {
        dlc_nonfinite policy;
        int max;
        double bad_loss_at, bad_norm_at;
        dlc_message_kind last;
        int n_applied;
        const char *why;
    } rows[] = {
        { DLC_NONFINITE_STOP, 0, -1, -1, DLC_MSG_CONTRIBUTION, 4, "all is well" },
        { DLC_NONFINITE_STOP, 0, 2, -1, DLC_MSG_NONFINITE, 2, "the loss" },
        { DLC_NONFINITE_STOP, 0, -1, 2, DLC_MSG_NONFINITE, 2, "the gradient" },
        { DLC_NONFINITE_ROLLBACK, 0, -1, 2, DLC_MSG_NONFINITE, 2, "the coordinator decides" },
        { DLC_NONFINITE_SKIP, 1, -1, 2, DLC_MSG_CONTRIBUTION, 3, "one step is left out" },
        { DLC_NONFINITE_SKIP, 1, 2, -1, DLC_MSG_CONTRIBUTION, 3, "also when only the loss is bad" },
        { DLC_NONFINITE_SKIP, 1, 1, 2, DLC_MSG_NONFINITE, 1, "two are one too many" },
        { DLC_NONFINITE_SKIP, 0, 0, -1, DLC_MSG_NONFINITE, 0, "none is allowed" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct bench b;

        open_with(&b, (struct dlc_island_config){ .nonfinite = rows[k].policy, .nonfinite_max = rows[k].max });
        b.bad_loss_at = rows[k].bad_loss_at;
        b.bad_norm_at = rows[k].bad_norm_at;
        assert_int_equal(assign(&b, 1, 1, 4, 0), DLC_OK);
        work(&b);
        if (last_said(&b)->kind != rows[k].last || b.n_applied != rows[k].n_applied)
            fail_msg("%s: message %d, %d steps applied", rows[k].why, (int)last_said(&b)->kind, b.n_applied);
        if (rows[k].last == DLC_MSG_CONTRIBUTION)
            assert_true(b.slot[0] == 10 + (float)rows[k].n_applied);
        dlc_island_destroy(b.island);
    }
}

/* --- stopping ----------------------------------------------------------------------------------------------------- */

static void a_stop_keeps_what_was_done(void **state)
{
    static const struct {
        bool lockstep;
        int n_work;
        int64_t kept; /* -1: nothing */
        const char *why;
    } rows[] = {
        { false, 0, -1, "nothing is done yet" },
        { false, 2, 2, "after two steps" },
        { false, 4, -1, "the contribution is in" },
        { true, 1, -1, "the first gradient is out and changed nothing" },
        { true, 3, 1, "one mean was applied, the second gradient is out" },
        { true, 4, 2, "between two steps" },
    };
    static const struct dlc_message pause = { .kind = DLC_MSG_PAUSE };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct bench b;

        open_with(&b, (struct dlc_island_config){ .lockstep = rows[k].lockstep });
        assert_int_equal(assign(&b, 1, 1, 4, 0), DLC_OK);
        for (int w = 0; w < rows[k].n_work; w++) { /* in lockstep every second one is the mean */
            struct dlc_message m = { .kind = DLC_MSG_MEAN, .t = 1, .attempt = 1, .step = w / 2 };

            assert_int_equal(rows[k].lockstep && w % 2 ? hear(&b, &m) : dlc_island_work(b.island), DLC_OK);
        }
        assert_int_equal(hear(&b, &pause), DLC_OK);
        work(&b);
        assert_true(dlc_island_may_leave(b.island));
        assert_int_equal(last_said(&b)->kind, DLC_MSG_PAUSED);
        if (b.n_paused != (rows[k].kept >= 0) || (b.n_paused && b.paused_n_done != rows[k].kept))
            fail_msg("%s: kept %d times, %d steps", rows[k].why, b.n_paused, (int)b.paused_n_done);
        b.n_said = 0;
        assert_int_equal(assign(&b, 2, 1, 4, 0), DLC_OK); /* sent before it was known */
        assert_int_equal(hear(&b, &pause), DLC_OK);
        assert_true(dlc_island_may_leave(b.island) && b.n_said == 0 && !dlc_island_has_work(b.island));
        dlc_island_destroy(b.island);
    }
}

static void a_stopped_round_goes_on(void **state)
{
    static const struct {
        uint32_t attempt;
        int64_t n_done;
        dlc_err err;
        int n_applied;
        const char *why;
    } rows[] = {
        { 1, 0, DLC_OK, 4, "nothing was kept" },
        { 1, 3, DLC_OK, 1, "the last step is left" },
        { 2, 3, DLC_OK, 4, "the round started again: all of it, as everybody" },
        { 1, 4, DLC_EINPUT, 0, "a kept state that is past the end" },
        { 1, 1000000, DLC_EINPUT, 0, "far past it" },
        { 1, -1, DLC_EINPUT, 0, "before the beginning" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct bench b;

        open_plain(&b);
        b.paused_n_done = rows[k].n_done;
        if (assign(&b, 1, rows[k].attempt, 4, 0) != rows[k].err)
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        if (rows[k].err == DLC_OK)
            work(&b);
        if (b.n_applied != rows[k].n_applied)
            fail_msg("%s: %d steps", rows[k].why, b.n_applied);
        dlc_island_destroy(b.island);
    }
}

static void messages_that_are_not_for_islands(void **state)
{
    static const struct dlc_message hello = { .kind = DLC_MSG_HELLO }, finish = { .kind = DLC_MSG_FINISH },
                                    mean_of_nothing = { .kind = DLC_MSG_MEAN, .t = 1, .attempt = 1 };
    struct bench b;

    (void)state;
    open_plain(&b);
    assert_int_equal(hear(&b, &hello), DLC_EPEER);
    assert_int_equal(hear(&b, &mean_of_nothing), DLC_OK);
    assert_int_equal(b.n_applied, 0);
    assert_int_equal(hear(&b, &finish), DLC_OK);
    assert_true(dlc_island_may_leave(b.island));
    dlc_island_destroy(b.island);
}

static void leaving_in_order(void **state)
{
    struct bench b;

    (void)state;
    open_plain(&b);
    assert_int_equal(assign(&b, 3, 2, 4, 0), DLC_OK);
    assert_int_equal(dlc_island_work(b.island), DLC_OK);
    b.n_said = 0;
    assert_int_equal(dlc_island_leave(b.island, "the machine is needed"), DLC_OK);
    assert_int_equal(b.said[0].kind, DLC_MSG_LEAVE);
    assert_true(b.said[0].incarnation == 2 && b.said[0].t == 3 && b.said[0].attempt == 2);
    assert_string_equal(b.said[0].text, "the machine is needed");
    assert_true(dlc_island_may_leave(b.island) && !dlc_island_has_work(b.island));
    assert_int_equal(assign(&b, 4, 1, 4, 0), DLC_OK);
    assert_int_equal(dlc_island_leave(b.island, "again"), DLC_OK);
    assert_int_equal(b.n_said, 1);
    dlc_island_destroy(b.island);
}

static void being_dismissed(void **state)
{
    struct dlc_message m = { .kind = DLC_MSG_DISMISS, .code = DLC_EPEER, .text = "3 contributions were refused" };
    struct bench b;

    (void)state;
    open_plain(&b);
    assert_int_equal(hear(&b, &m), DLC_EPEER);
    assert_non_null(strstr(dlc_err_text(), "3 contributions were refused"));
    assert_true(dlc_island_may_leave(b.island));
    dlc_island_destroy(b.island);
}

static void an_assignment_of_another_life_is_not_taken(void **state)
{
    static const struct {
        uint32_t incarnation;
        bool taken;
    } rows[] = { { 0, true }, { 2, true }, { 1, false }, { 3, false } };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_range lease = { 0, 100, BATCH };
        struct dlc_message m = { .kind = DLC_MSG_ASSIGN, .incarnation = rows[k].incarnation, .t = 1, .attempt = 1,
                                 .n_steps = 1, .ranges = { .items = &lease, .n = 1 } };
        struct bench b;

        open_plain(&b);
        m.digest = dlc_sha256(b.theta[0], sizeof b.theta[0]);
        assert_int_equal(hear(&b, &m), DLC_OK);
        assert_int_equal(dlc_island_has_work(b.island), rows[k].taken);
        dlc_island_destroy(b.island);
    }
}

/* What a HELLO would say from then on. */
static void a_contribution_says_which_states_are_held(void **state)
{
    struct bench b;

    (void)state;
    open_plain(&b);
    assert_int_equal(assign(&b, 9, 1, 1, 7), DLC_OK);
    assert_int_equal(dlc_island_work(b.island), DLC_OK);
    assert_int_equal(b.said[b.n_said - 1].kind, DLC_MSG_CONTRIBUTION);
    assert_true(b.said[b.n_said - 1].states[0] == 9 && b.said[b.n_said - 1].states[1] == 7);
    dlc_island_destroy(b.island);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round),
        cmocka_unit_test(assignments_that_make_no_sense_are_refused),
        cmocka_unit_test(what_is_stale_changes_nothing),
        cmocka_unit_test(damaged_theta_is_asked_for_again),
        cmocka_unit_test(nonfinite_policies),
        cmocka_unit_test(a_stop_keeps_what_was_done),
        cmocka_unit_test(a_stopped_round_goes_on),
        cmocka_unit_test(messages_that_are_not_for_islands),
        cmocka_unit_test(leaving_in_order),
        cmocka_unit_test(being_dismissed),
        cmocka_unit_test(an_assignment_of_another_life_is_not_taken),
        cmocka_unit_test(a_contribution_says_which_states_are_held),
    };

    return cmocka_run_group_tests_name("island", tests, NULL, NULL);
}
