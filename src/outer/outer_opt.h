/* The outer optimizer: from theta(t-1) and the mean outer gradient to theta(t).
 *
 * Kinds, with delta the mean outer gradient, eta = lr, mu = momentum (torch.optim.SGD's and Adam's forms):
 *   sgd       theta -= eta delta
 *   sgdm      buf = mu buf + delta;  theta -= eta buf
 *   nesterov  buf = mu buf + delta;  theta -= eta (delta + mu buf)      (arXiv 2401.09135 eq. 4; the paper's choice)
 *   adam      m = mu m + (1-mu) delta; v = b2 v + (1-b2) delta^2; theta -= eta m^ / (sqrt(v^) + eps), bias-corrected
 * State is f32, arithmetic double, each value rounded once. No weight decay and no clipping here: both act inside. */
#ifndef DLC_OUTER_OUTER_OPT_H
#define DLC_OUTER_OUTER_OPT_H

#include <stddef.h>
#include <stdint.h>

typedef enum { DLC_OUTER_NESTEROV, DLC_OUTER_SGD, DLC_OUTER_SGDM, DLC_OUTER_ADAM } dlc_outer_kind;

struct dlc_outer_opt {
    dlc_outer_kind kind;
    double lr, momentum; /* momentum: mu; Adam's beta1 */
    double beta2, eps;   /* Adam */
};

const char *dlc_outer_kind_name(dlc_outer_kind kind);

/* How many f32 arrays of N values the kind keeps: 0 (sgd), 1 (momentum) or 2 (Adam's m and v), zero at the start. */
int dlc_outer_opt_n_state(dlc_outer_kind kind);

/* n values: theta_new (may be theta_old's array), state[0..n_state-1] updated in place, delta the mean outer gradient.
 * `t` counts outer steps from 1 (Adam's bias correction). */
void dlc_outer_opt_step(const struct dlc_outer_opt *opt, float *theta_new, const float *theta_old,
                        float *const state[2], const double *delta, size_t n, uint64_t t);

#endif
