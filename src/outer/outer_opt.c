#include "outer/outer_opt.h"

#include <math.h>

const char *dlc_outer_kind_name(dlc_outer_kind kind)
{
    static const char *const names[] = { "nesterov", "sgd", "sgdm", "adam" };

    return names[kind];
}

int dlc_outer_opt_n_state(dlc_outer_kind kind)
{
    static const int n[] = {
        [DLC_OUTER_NESTEROV] = 1, [DLC_OUTER_SGD] = 0, [DLC_OUTER_SGDM] = 1, [DLC_OUTER_ADAM] = 2
    };

    return n[kind];
}

static void sgd(const struct dlc_outer_opt *o, float *theta_new, const float *theta_old, const double *delta, size_t n)
{
    for (size_t i = 0; i < n; i++)
        theta_new[i] = (float)((double)theta_old[i] - o->lr * delta[i]);
}

static void momentum(const struct dlc_outer_opt *o, float *theta_new, const float *theta_old, float *buf,
                     const double *delta, size_t n)
{
    double direct = o->kind == DLC_OUTER_NESTEROV ? 1.0 : 0.0;
    double through = o->kind == DLC_OUTER_NESTEROV ? o->momentum : 1.0;

    for (size_t i = 0; i < n; i++) {
        double b = o->momentum * (double)buf[i] + delta[i];

        buf[i] = (float)b;
        theta_new[i] = (float)((double)theta_old[i] - o->lr * (direct * delta[i] + through * b));
    }
}

static void adam(const struct dlc_outer_opt *o, float *theta_new, const float *theta_old, float *m, float *v,
                 const double *delta, size_t n, uint64_t t)
{
    double bias1 = 1 - pow(o->momentum, (double)t), bias2 = 1 - pow(o->beta2, (double)t);

    for (size_t i = 0; i < n; i++) {
        double mi = o->momentum * (double)m[i] + (1 - o->momentum) * delta[i];
        double vi = o->beta2 * (double)v[i] + (1 - o->beta2) * delta[i] * delta[i];

        m[i] = (float)mi;
        v[i] = (float)vi;
        theta_new[i] = (float)((double)theta_old[i] - o->lr * (mi / bias1) / (sqrt(vi / bias2) + o->eps));
    }
}

void dlc_outer_opt_step(const struct dlc_outer_opt *opt, float *theta_new, const float *theta_old,
                        float *const state[2], const double *delta, size_t n, uint64_t t)
{
    switch (opt->kind) {
    case DLC_OUTER_SGD: sgd(opt, theta_new, theta_old, delta, n); break;
    case DLC_OUTER_SGDM:
    case DLC_OUTER_NESTEROV: momentum(opt, theta_new, theta_old, state[0], delta, n); break;
    case DLC_OUTER_ADAM: adam(opt, theta_new, theta_old, state[0], state[1], delta, n, t); break;
    }
}
