/* Reads what a run left behind, without the program's own code, and holds it to the rules. Needs cmocka.h before. */
#ifndef DLC_TESTS_HISTORY_H
#define DLC_TESTS_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#define HISTORY_MAX 512

struct history {
    int n_records;
    char theta[HISTORY_MAX][65]; /* of record t at t - 1 */
    int n_losses;                /* rows of metrics.jsonl that have train/loss */
    double loss[HISTORY_MAX];
    int64_t loss_step[HISTORY_MAX];
    int n_outer, n_val; /* rows with outer/islands_alive; rows with val/loss that are no summary */
    int64_t outer_t[HISTORY_MAX], val_t[HISTORY_MAX];
    double val_loss[HISTORY_MAX];
};

/* Fails the test unless the records form a valid chain of steps 1, 2, ... and no sample is consumed twice. */
void history_read(struct history *h, const char *run);
/* Every sample 0 .. n - 1 of pool 0 is in exactly one record. */
void history_is_complete(const char *run, uint64_t n_samples);
/* The same parameters after every outer step and the same training losses, bit for bit; validation too. */
void history_same(const struct history *expected, const struct history *got, const char *what);

/* Lines of records.jsonl; 0 when there is none. */
int history_lines(const char *run);

#endif
