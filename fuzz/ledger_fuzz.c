/* The ledger and token ranges as JSON: an error, or something that adds up, is written as it was read, and can be used.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "outer/ledger.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_ranges(const json_t *v)
{
    struct dlc_ranges r = { 0 }, back = { 0 };
    json_t *written;

    if (dlc_ranges_from_json(&r, v, "fuzz") == DLC_OK) {
        written = dlc_ranges_to_json(&r);
        if (dlc_ranges_from_json(&back, written, "written") != DLC_OK ||
            dlc_ranges_count(&r) != dlc_ranges_count(&back))
            abort();
        json_decref(written);
    }
    dlc_ranges_fini(&r);
    dlc_ranges_fini(&back);
}

static void check_sums(const dlc_ledger *l)
{
    for (int pool = 0; pool < dlc_ledger_n_pools(l); pool++) {
        struct dlc_ledger_totals t;

        dlc_ledger_totals(&t, l, pool);
        if (t.free_below_next + t.leased + t.consumed + t.discarded != t.next)
            abort();
    }
}

/* Hands out, takes back and uses what there is. */
static void use(dlc_ledger *l)
{
    for (int island = 0; island < 3; island++) {
        struct dlc_ranges all = { 0 };

        if (dlc_ledger_lease(l, &all, island, 0, 5) == DLC_OK)
            check_sums(l);
        all.n = 0;
        if (dlc_ledger_leased_by(l, &all, island) != DLC_OK || dlc_ledger_consume(l, island, &all) != DLC_OK ||
            (all.n > 0 && dlc_ledger_return(l, island, &all) == DLC_OK))
            abort();
        check_sums(l);
        dlc_ranges_fini(&all);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *v = NULL, *written;
    dlc_ledger *l, *back;

    if (dlc_json_parse(&v, (const char *)data, size, "fuzz") != DLC_OK)
        return 0;
    try_ranges(v);
    if (dlc_ledger_from_json(&l, v, "fuzz") == DLC_OK) {
        check_sums(l);
        written = dlc_ledger_to_json(l);
        if (dlc_ledger_from_json(&back, written, "written") != DLC_OK)
            abort();
        use(l);
        dlc_ledger_destroy(l);
        dlc_ledger_destroy(back);
        json_decref(written);
    }
    json_decref(v);
    return 0;
}
