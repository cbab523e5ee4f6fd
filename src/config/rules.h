/* Rules for the keys that are "auto". Each is a function of plain numbers with its evidence beside it (rules.c), so
 * that a test can hold them as a table and docs can quote them. */
#ifndef DLC_CONFIG_RULES_H
#define DLC_CONFIG_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Peak rate of the inner AdamW for a model of n parameters, two digits. */
double dlc_rule_inner_lr(size_t n_params);

/* Inner steps of warm-up for a run of so many. */
int64_t dlc_rule_warmup(int64_t steps);

/* H for a run of `steps` inner steps when the user did not choose: 500, or less so that a short run still has about 20
 * exchanges; at least 10, never more than `steps`. */
int64_t dlc_rule_outer_steps(int64_t steps);

/* Nesterov or plain outer momentum for `rounds` exchanges with H inner steps each. */
double dlc_rule_outer_momentum(int64_t rounds, int64_t h);
/* Outer rate: DiLoCo's 0.7 with momentum; without any, 1, which is the plain mean of the islands. */
double dlc_rule_outer_lr(double momentum, bool adam);

/* True where a momentum is known to ruin the model: far above what the rule gives. */
bool dlc_rule_momentum_is_harmful(double momentum, int64_t rounds, int64_t h);

/* Sequences computed at once: the largest divisor of `batch` with at most 4,096 tokens, at least 1. */
int dlc_rule_micro_batch(int batch, int context);

/* Inner steps between progress records: about 100 in a run, and one in a round at least. */
int dlc_rule_log_every(int64_t steps, int64_t h);

/* Exchanges of a run: a last round may be shorter than H. */
int64_t dlc_rule_rounds(int64_t steps, int64_t h);

/* The longest power of two that n_tokens of text can feed as a context (n + 1 tokens make a window), at most
 * `context`; 0 when there is none. */
int dlc_rule_context(int context, uint64_t n_tokens);

#endif
