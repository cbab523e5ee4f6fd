/* The outer optimizers against closed forms and against PyTorch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "outer/outer_opt.h"

#define N_VALUES 3
#define N_ROUNDS 4

static void assert_near(double got, double expected, double bound, const char *what)
{
    if (!(fabs(got - expected) <= bound))
        fail_msg("%s: %.17g, expected %.17g within %.3g", what, got, expected, bound);
}

static const struct dlc_outer_opt sgd = { .kind = DLC_OUTER_SGD, .lr = 0.7 };
static const struct dlc_outer_opt sgdm = { .kind = DLC_OUTER_SGDM, .lr = 0.7, .momentum = 0.9 };
static const struct dlc_outer_opt nesterov = { .kind = DLC_OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9 };
static const struct dlc_outer_opt adam = {
    .kind = DLC_OUTER_ADAM, .lr = 0.05, .momentum = 0.9, .beta2 = 0.95, .eps = 1e-8
};

/* What torch 2.13 gives in f64 from theta = (1, -2, 0.5) with the gradients below: torch.optim.SGD(lr=0.7),
 * SGD(lr=0.7, momentum=0.9), SGD(lr=0.7, momentum=0.9, nesterov=True), Adam(lr=0.05, betas=(0.9, 0.95), eps=1e-8);
 * repr() of the parameters after each step. */
static const double deltas[N_ROUNDS][N_VALUES] = {
    { 0.5, -1.25, 3e-3 }, { -0.75, 2.0, 1e-3 }, { 0.1, 0.1, -4e-3 }, { 1.5, -0.3, 0.0 }
};
static const struct {
    const struct dlc_outer_opt *opt;
    double theta[N_ROUNDS][N_VALUES];
} torch[] = {
    { &sgd,
      { { 0.65, -1.125, 0.4979 },
        { 1.175, -2.525, 0.49720000000000003 },
        { 1.105, -2.5949999999999998, 0.5 },
        { 0.05500000000000005, -2.385, 0.5 } } },
    { &sgdm,
      { { 0.65, -1.125, 0.4979 },
        { 0.86, -1.7375, 0.49531000000000003 },
        { 0.979, -2.35875, 0.495779 },
        { 0.036100000000000056, -2.707875, 0.4962011 } } },
    { &nesterov,
      { { 0.3350000000000001, -0.33750000000000013, 0.49601 },
        { 1.049, -2.2887500000000003, 0.492979 },
        { 1.0860999999999998, -2.917875, 0.4962011 },
        { -0.81251, -3.0220875, 0.49658099 } } },
    { &adam,
      { { 0.950000001, -1.9500000004, 0.4500001666661111 },
        { 0.9623256547517732, -1.9637302422852325, 0.4060022832212359 },
        { 0.9683625979619055, -1.9758345553375072, 0.4101718223888909 },
        { 0.9465168131722524, -1.9820502733352487, 0.41363179325915855 } } },
};

static void agrees_with_torch(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof torch / sizeof *torch; k++) {
        float theta[N_VALUES] = { 1, -2, 0.5f }, s0[N_VALUES] = { 0 }, s1[N_VALUES] = { 0 };
        float *const arrays[2] = { s0, s1 };

        for (uint64_t t = 1; t <= N_ROUNDS; t++) {
            dlc_outer_opt_step(torch[k].opt, theta, theta, arrays, deltas[t - 1], N_VALUES, t);
            for (int i = 0; i < N_VALUES; i++) /* theta and state are rounded to f32 in each round */
                assert_near(theta[i], torch[k].theta[t - 1][i], 1e-6, dlc_outer_kind_name(torch[k].opt->kind));
        }
    }
}

/* With the same delta in every round: buf(t) = delta (1 - mu^t) / (1 - mu). */
static void identical_rounds_have_a_closed_form(void **state)
{
    static const struct {
        const struct dlc_outer_opt *opt;
        double moved[3]; /* after rounds 1, 2 and 3, in units of eta delta */
        const char *why;
    } rows[] = {
        { &sgd, { 1, 2, 3 }, "no memory" },
        { &sgdm, { 1, 1 + 1.9, 1 + 1.9 + 2.71 }, "1, 1 + mu, 1 + mu + mu^2" },
        { &nesterov, { 1.9, 1.9 + 2.71, 1.9 + 2.71 + 3.439 }, "the first step moves by eta (1 + mu)" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        double delta[1] = { 0.25 };
        float theta[1] = { 3 }, buf[1] = { 0 };
        float *const arrays[2] = { buf, NULL };

        for (uint64_t t = 1; t <= 3; t++) {
            dlc_outer_opt_step(rows[k].opt, theta, theta, arrays, delta, 1, t);
            assert_near(theta[0], 3 - 0.7 * 0.25 * rows[k].moved[t - 1], 1e-6, rows[k].why);
        }
    }
}

/* After many rounds each step moves by eta delta / (1 - mu), with or without Nesterov's look ahead. */
static void the_long_run_gain(void **state)
{
    static const struct {
        const struct dlc_outer_opt *opt;
        double gain;
    } rows[] = { { &sgd, 0.7 }, { &sgdm, 7 }, { &nesterov, 7 } };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        double delta[1] = { 1e-3 };
        float theta[1], buf[1] = { 0 };
        float *const arrays[2] = { buf, NULL };

        for (uint64_t t = 1; t <= 300; t++) {
            theta[0] = 0;
            dlc_outer_opt_step(rows[k].opt, theta, theta, arrays, delta, 1, t);
        }
        assert_near(theta[0], -rows[k].gain * 1e-3, 1e-8, dlc_outer_kind_name(rows[k].opt->kind));
    }
}

/* Old minus new is minimised: islands that went down push theta down. Each kind, each sign. */
static void the_sign(void **state)
{
    static const struct dlc_outer_opt *const all[] = { &sgd, &sgdm, &nesterov, &adam };

    (void)state;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        for (int sign = -1; sign <= 1; sign += 2) {
            float old[1] = { 1 }, island[1] = { 1 + 0.1f * (float)sign }, new[1], s0[1] = { 0 }, s1[1] = { 0 };
            float *const arrays[2] = { s0, s1 };
            double delta[1] = { (double)old[0] - (double)island[0] };

            dlc_outer_opt_step(all[k], new, old, arrays, delta, 1, 1);
            if ((new[0] - old[0]) * (float)sign <= 0)
                fail_msg("%s: the island moved %+.1f, theta %+.3g", dlc_outer_kind_name(all[k]->kind), 0.1 * sign,
                         (double)(new[0] - old[0]));
        }
    }
}

/* theta_new may be theta_old's array, and a separate one gives the same; theta_old then stays. */
static void in_place_or_not(void **state)
{
    static const struct dlc_outer_opt *const all[] = { &sgd, &sgdm, &nesterov, &adam };

    (void)state;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        float a[N_VALUES] = { 1, -2, 0.5f }, b[N_VALUES] = { 1, -2, 0.5f }, c[N_VALUES];
        float sa[2][N_VALUES] = { { 0 } }, sb[2][N_VALUES] = { { 0 } };

        dlc_outer_opt_step(all[k], a, a, (float *const[2]){ sa[0], sa[1] }, deltas[0], N_VALUES, 1);
        dlc_outer_opt_step(all[k], c, b, (float *const[2]){ sb[0], sb[1] }, deltas[0], N_VALUES, 1);
        assert_memory_equal(a, c, sizeof a);
        assert_memory_equal(sa, sb, sizeof sa);
        assert_true(b[0] == 1 && b[1] == -2 && b[2] == 0.5f);
    }
}

static void kinds_and_their_state(void **state)
{
    static const struct {
        dlc_outer_kind kind;
        const char *name;
        int n_state;
    } rows[] = { { DLC_OUTER_SGD, "sgd", 0 },
                 { DLC_OUTER_SGDM, "sgdm", 1 },
                 { DLC_OUTER_NESTEROV, "nesterov", 1 },
                 { DLC_OUTER_ADAM, "adam", 2 } };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        assert_string_equal(dlc_outer_kind_name(rows[k].kind), rows[k].name);
        assert_int_equal(dlc_outer_opt_n_state(rows[k].kind), rows[k].n_state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_torch), cmocka_unit_test(identical_rounds_have_a_closed_form),
        cmocka_unit_test(the_long_run_gain), cmocka_unit_test(the_sign),
        cmocka_unit_test(in_place_or_not),   cmocka_unit_test(kinds_and_their_state),
    };

    return cmocka_run_group_tests_name("outer_opt", tests, NULL, NULL);
}
