/* The ledger: which samples are free, leased, consumed or set aside.
 *
 * Every pool (dataset.h) is an endless sequence of samples 0, 1, 2, ...; epoch e of a pool with n windows is
 * [e n, e n + n).
 * A sample is in exactly one state:
 *     free       never handed out, or handed back          (at or above `next`, or in a free range below it)
 *     leased     an island is training on it
 *     consumed   a committed outer record used it           (below `next`, neither free nor leased nor set aside)
 *     discarded  set aside by the rollback policy: it led to a non-finite loss; named in a record
 * Leases take the lowest free samples first. So the same sequence of leases, returns and commits gives the same ranges.
 * Plain data behind small functions: no I/O, no clock. */
#ifndef DLC_OUTER_LEDGER_H
#define DLC_OUTER_LEDGER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct dlc_range {
    int pool;
    uint64_t start, count; /* samples [start, start + count) */
};

struct dlc_ranges {
    struct dlc_range *items;
    size_t n, cap;
};
void dlc_ranges_fini(struct dlc_ranges *r);
dlc_err dlc_ranges_add(struct dlc_ranges *r, struct dlc_range range); /* joins with the last one when they touch */
dlc_err dlc_ranges_copy(struct dlc_ranges *to, const struct dlc_ranges *from);
uint64_t dlc_ranges_count(const struct dlc_ranges *r);
/* As JSON: [[pool, start, count], ...]. */
json_t *dlc_ranges_to_json(const struct dlc_ranges *r); /* new reference; NULL out of memory */
dlc_err dlc_ranges_from_json(struct dlc_ranges *out, const json_t *value, const char *where); /* hostile input: fine */

typedef struct dlc_ledger dlc_ledger;

dlc_err dlc_ledger_create(dlc_ledger **out, int n_pools);
void dlc_ledger_destroy(dlc_ledger *ledger); /* accepts NULL */
int dlc_ledger_n_pools(const dlc_ledger *ledger);

/* `count` samples of `pool` for `island`, appended to *out in ascending order. */
dlc_err dlc_ledger_lease(dlc_ledger *ledger, struct dlc_ranges *out, int island, int pool, uint64_t count);

/* These very samples, from free to leased by `island`: a lease that was handed out before. DLC_EFAIL when some of them are
 * not free; the ledger is good for nothing then. */
dlc_err dlc_ledger_take(dlc_ledger *ledger, int island, const struct dlc_ranges *ranges);

/* From leased by `island` to free, consumed or discarded. DLC_EFAIL, and nothing changes, when any part of the ranges
 * is not leased by it or named twice: a double count or a stranger's range never gets in. */
dlc_err dlc_ledger_return(dlc_ledger *ledger, int island, const struct dlc_ranges *ranges);
dlc_err dlc_ledger_consume(dlc_ledger *ledger, int island, const struct dlc_ranges *ranges);
dlc_err dlc_ledger_discard(dlc_ledger *ledger, int island, const struct dlc_ranges *ranges);

/* Everything that `island` has leased, appended to *out. */
dlc_err dlc_ledger_leased_by(const dlc_ledger *ledger, struct dlc_ranges *out, int island);

struct dlc_ledger_totals {
    uint64_t next;      /* first never handed out */
    uint64_t free_below_next, leased, consumed, discarded; /* they sum to `next` */
};
void dlc_ledger_totals(struct dlc_ledger_totals *out, const dlc_ledger *ledger, int pool);

json_t *dlc_ledger_to_json(const dlc_ledger *ledger); /* new reference; NULL out of memory */
dlc_err dlc_ledger_from_json(dlc_ledger **out, const json_t *value, const char *where); /* hostile input is refused */

#endif
