#include "config/rules.h"

#include <math.h>

static double clamp(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A power law through two measured points: 2e-3 for 0.53 M parameters (of 2e-3 and 4e-3 the better one under DiLoCo:
 * 60.7 and 62.0 perplexity, four islands, H 50) and 4e-4 for 150 M (Douillard et al., arXiv 2311.08105, table 5).
 * Clipped to the range in which such rates were tried. */
double dlc_rule_inner_lr(size_t n_params)
{
    const double n0 = 0.53e6, lr0 = 2e-3, n1 = 150e6, lr1 = 4e-4;
    double power = log(lr1 / lr0) / log(n1 / n0);
    double lr = clamp(lr0 * pow((double)n_params / n0, power), 3e-4, 4e-3);
    double unit = pow(10, floor(log10(lr)) - 1);

    return round(lr / unit) /
           round(1 / unit); /* a quotient of whole numbers: exactly the double that "0.0021" reads as */
}

int64_t dlc_rule_warmup(int64_t steps)
{
    return smaller(larger(10, smaller(steps / 10, 1000)), larger(1, steps / 2));
}

/* DiLoCo's 500 belongs to 128 rounds. With a handful of exchanges the outer optimizer never gets going: at 1,000 steps
 * 20 rounds of 50 are what the small-scale measurements below were made with. */
int64_t dlc_rule_outer_steps(int64_t steps)
{
    int64_t h = steps / 20;

    if (h >= 500)
        return 500;
    h -= h > 100 ? h % 50 : h % 10; /* a round figure, never longer */
    return smaller(larger(h, 10), steps);
}

/* Outer momentum 0.9 acts like an outer rate ten times larger once it has settled, which takes tens of rounds, and is
 * far too strong when H is small. Validation perplexity of a 0.53 M model, four islands, 1,000 inner steps, outer rate
 * 0.7:
 *
 *     H = 50 (20 rounds)     0.9: 71.2    0.6: 60.7    (one island alone: 74.8)
 *     H = 10 (100 rounds)    0.9: 123     0.3: 61.1
 *     H = 500, 128 rounds    0.9 is the best of arXiv 2311.08105
 *
 * and with this program on the demo's corpus, 0.53 M parameters, four islands, outer rate 0.7 (docs/results/demo.md):
 *
 *     H = 32 (20 rounds of 1,024 tokens a step)   0.6: 90.0                  (one island alone: 108.3)
 *     H = 20 (16 rounds of 2,048 tokens a step)   0.5: 139.5    0.3: 141.0   (one island alone: 156.5)
 */
double dlc_rule_outer_momentum(int64_t rounds, int64_t h)
{
    if (rounds >= 100 && h >= 250)
        return 0.9;
    if (h >= 32)
        return 0.6;
    if (h >= 16)
        return 0.5;
    return h >= 10 ? 0.3 : 0.0;
}

/* 0.7 without momentum would throw away three tenths of every round. Adam with the eps of 0.1 that DiLoCo found necessary
 * divides small outer gradients by about 0.1: 0.1 makes that a rate near 1. */
double dlc_rule_outer_lr(double momentum, bool adam)
{
    if (adam)
        return 0.1;
    return momentum > 0 ? 0.7 : 1.0;
}

bool dlc_rule_momentum_is_harmful(double momentum, int64_t rounds, int64_t h)
{
    return momentum > dlc_rule_outer_momentum(rounds, h) + 0.25;
}

int dlc_rule_micro_batch(int batch, int context)
{
    int n = batch;

    while (n > 1 && (batch % n != 0 || (int64_t)n * context > 4096))
        n--;
    return n;
}

int dlc_rule_log_every(int64_t steps, int64_t h)
{
    return (int)larger(1, smaller(smaller(steps / 100, h), 1000));
}

int64_t dlc_rule_rounds(int64_t steps, int64_t h)
{
    return steps / h + (steps % h != 0);
}

int dlc_rule_context(int context, uint64_t n_tokens)
{
    int fits = 1;

    if (n_tokens > (uint64_t)context)
        return context;
    if (n_tokens < 2)
        return 0;
    while ((uint64_t)fits * 2 < n_tokens)
        fits *= 2;
    return fits;
}
