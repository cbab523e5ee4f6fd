/* Outer records: the committed facts of a run, one JSON object a line in records.jsonl, each naming the hash of the one
 * before it. hash = SHA-256 of the record's compact JSON with sorted keys, without "hash": docs/formats/records.md. */
#ifndef DLC_OUTER_RECORD_H
#define DLC_OUTER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/err.h"
#include "outer/ledger.h"

#define DLC_RUN_ID_SIZE 33 /* 32 hexadecimal digits and the final zero */

typedef enum {
    DLC_MEMBER_SUMMED,  /* its contribution is in the mean */
    DLC_MEMBER_DROPPED, /* simulated loss: not in the mean; the island goes on from its own parameters */
    DLC_MEMBER_REFUSED, /* arrived and was not let in; its token range went back to the pool */
    DLC_MEMBER_LATE,    /* did not arrive before the round was closed (lost, slow, or it left); its token range went back
                           to the pool, or it stays at its work for the next step (late = next) */
    DLC_MEMBER_CARRIED  /* its contribution to the step before is in this mean, with a smaller weight */
} dlc_member_fate;

struct dlc_record_member {
    int island;
    dlc_member_fate fate;
    uint64_t weight;            /* in the mean; 0 unless summed or carried */
    struct dlc_ranges ranges;   /* consumed by this record; empty unless summed or carried */
    struct dlc_sha256 payload;  /* of the encoded contribution; zero when late */
};

struct dlc_record {
    char run[DLC_RUN_ID_SIZE];
    uint64_t t;        /* outer step, from 1 */
    int fragment;      /* 0: the whole model */
    int64_t step;      /* inner steps of the whole run after this round */
    int n_alive;       /* islands listed in `members` */
    uint64_t n_tokens; /* consumed by all records so far, this one included */
    double delta_norm; /* L2 norm of the mean outer gradient */
    struct dlc_sha256 theta; /* of theta(t)'s bytes */
    struct dlc_sha256 outer; /* of the outer optimizer's state after the step */
    struct dlc_record_member *members; /* in island order */
    size_t n_members;
    struct dlc_ranges discarded; /* set aside by the rollback policy on the way to this step */
    struct dlc_sha256 prev;      /* zero for t = 1 */
    struct dlc_sha256 hash;      /* set by dlc_record_seal */
};

void dlc_record_fini(struct dlc_record *r);

/* *to: an empty record (all zeros), or one to be replaced. */
dlc_err dlc_record_copy(struct dlc_record *to, const struct dlc_record *from);

/* Computes `hash`. */
dlc_err dlc_record_seal(struct dlc_record *r);

/* The line, without '\n'; free with dlc_free. The record must be sealed. */
dlc_err dlc_record_to_line(char **out, const struct dlc_record *r);

/* One line back, its hash checked. Hostile input is refused with `where` in the text. The caller owns *out. */
dlc_err dlc_record_from_line(struct dlc_record *out, const char *line, size_t size_bytes, const char *where);

#endif
