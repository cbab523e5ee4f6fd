/* From what the user typed to a list of files, in a fixed order: inputs as typed, folders depth first with their names
 * sorted bytewise. */
#ifndef DLC_DATA_INPUTS_H
#define DLC_DATA_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DLC_LABEL_BYTES 104 /* with the final zero */

struct dlc_input {
    char *path;
    char label[DLC_LABEL_BYTES]; /* source of its documents */
    uint64_t size_bytes;
    bool jsonl;
    bool named; /* typed or matched by a glob: trouble with it is an error, not a file to leave out */
};

struct dlc_inputs {
    struct dlc_input *items;
    size_t n, cap;
    uint64_t total_bytes;
    uint64_t n_other; /* files in folders that are neither .txt nor .jsonl (.gz, .zst) */
    uint64_t n_empty; /* in folders */
    uint64_t n_again; /* reached a second time: a link, or named twice */
};

/* `spool`: where standard input is written to when "-" is among the inputs (it is read twice). The caller removes it.
 * DLC_ENOTFOUND, DLC_EINPUT with the name; folders that are reached a second time through links are left out with a
 * warning. On failure nothing is left to free. */
dlc_err dlc_inputs_find(struct dlc_inputs *out, const char *const *names, size_t n, const char *spool);
void dlc_inputs_free(struct dlc_inputs *inputs);

/* A label that can stand in JSON and in a line of text: UTF-8 without control characters, cut to size, never empty. */
void dlc_label_set(char out[DLC_LABEL_BYTES], const char *text, size_t n);

#endif
