/* The ledger against a naive model: an array that says of each sample what it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "outer/ledger.h"

#define POOLS 3
#define SAMPLES 3000
#define ISLANDS 5

enum { FREE = -1, DISCARDED = -2, CONSUMED = -3 }; /* >= 0: leased by that island */

struct model {
    int state[POOLS][SAMPLES];
    uint64_t next[POOLS];
};

static void model_init(struct model *m)
{
    memset(m, 0, sizeof *m);
    for (int p = 0; p < POOLS; p++) {
        for (int k = 0; k < SAMPLES; k++)
            m->state[p][k] = FREE;
    }
}

/* Sample by sample: the lowest free one first. */
static void model_lease(struct model *m, struct dlc_ranges *out, int island, int pool, uint64_t count)
{
    for (uint64_t k = 0; count > 0; k++) {
        assert_true(k < SAMPLES);
        if (m->state[pool][k] != FREE)
            continue;
        m->state[pool][k] = island;
        assert_int_equal(dlc_ranges_add(out, (struct dlc_range){ pool, k, 1 }), DLC_OK);
        if (k >= m->next[pool])
            m->next[pool] = k + 1;
        count--;
    }
}

static bool model_may_move(const struct model *m, int island, const struct dlc_ranges *r)
{
    static unsigned char seen[POOLS][SAMPLES];

    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < r->n; i++) {
        for (uint64_t k = r->items[i].start; k < r->items[i].start + r->items[i].count; k++) {
            int pool = r->items[i].pool;

            if (island < 0 || pool < 0 || pool >= POOLS || k >= SAMPLES || m->state[pool][k] != island ||
                seen[pool][k]++)
                return false;
        }
    }
    return true;
}

static void model_move(struct model *m, const struct dlc_ranges *r, int to)
{
    for (size_t i = 0; i < r->n; i++) {
        for (uint64_t k = 0; k < r->items[i].count; k++)
            m->state[r->items[i].pool][r->items[i].start + k] = to;
    }
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

static void assert_same_ranges(const struct dlc_ranges *a, const struct dlc_ranges *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        assert_int_equal(a->items[i].pool, b->items[i].pool);
        assert_int_equal(a->items[i].start, b->items[i].start);
        assert_int_equal(a->items[i].count, b->items[i].count);
    }
}

static void check_totals(const dlc_ledger *l, const struct model *m)
{
    for (int p = 0; p < POOLS; p++) {
        uint64_t count[4] = { 0 }; /* free, discarded, consumed, leased */
        struct dlc_ledger_totals t;

        for (uint64_t k = 0; k < m->next[p]; k++)
            count[m->state[p][k] >= 0 ? 3 : -1 - m->state[p][k]]++;
        dlc_ledger_totals(&t, l, p);
        assert_int_equal(t.next, m->next[p]);
        assert_int_equal(t.free_below_next, count[0]);
        assert_int_equal(t.discarded, count[1]);
        assert_int_equal(t.consumed, count[2]);
        assert_int_equal(t.leased, count[3]);
        assert_int_equal(t.free_below_next + t.leased + t.consumed + t.discarded, t.next);
    }
}

static void check_leases(const dlc_ledger *l, const struct model *m)
{
    for (int island = 0; island < ISLANDS; island++) {
        struct dlc_ranges got = { 0 }, expected = { 0 };

        for (int p = 0; p < POOLS; p++) {
            for (uint64_t k = 0; k < m->next[p]; k++) {
                if (m->state[p][k] == island)
                    assert_int_equal(dlc_ranges_add(&expected, (struct dlc_range){ p, k, 1 }), DLC_OK);
            }
        }
        assert_int_equal(dlc_ledger_leased_by(l, &got, island), DLC_OK);
        assert_same_ranges(&got, &expected);
        dlc_ranges_fini(&got);
        dlc_ranges_fini(&expected);
    }
}

/* Through text and back: the same text again, and the ledger that came back is used from here on. */
static void round_trip(dlc_ledger **l)
{
    json_t *v = dlc_ledger_to_json(*l), *parsed, *again;
    char *text = dlc_json_dump(v), *text_again;
    dlc_ledger *back;

    assert_int_equal(dlc_json_parse(&parsed, text, strlen(text), "text"), DLC_OK);
    if (dlc_ledger_from_json(&back, parsed, "ledger") != DLC_OK)
        fail_msg("%s: %s", dlc_err_text(), text);
    again = dlc_ledger_to_json(back);
    text_again = dlc_json_dump(again);
    assert_string_equal(text, text_again);
    json_decref(v);
    json_decref(parsed);
    json_decref(again);
    dlc_free(text);
    dlc_free(text_again);
    dlc_ledger_destroy(*l);
    *l = back;
}

/* --- random sequences --------------------------------------------------------------------------------------------- */

/* Part of what an island has leased, in pieces, in any order; now and then something it has not. */
static void pick(struct dlc_ranges *out, const dlc_ledger *l, struct dlc_rng *rng, int island)
{
    struct dlc_ranges all = { 0 };
    bool spoil = dlc_rng_below(rng, 6) == 0;

    assert_int_equal(dlc_ledger_leased_by(l, &all, island), DLC_OK);
    for (size_t i = all.n; i-- > 0;) {
        struct dlc_range r = all.items[i];
        uint64_t skip = dlc_rng_below(rng, r.count), n = 1 + dlc_rng_below(rng, r.count - skip);

        if (dlc_rng_below(rng, 3) == 0)
            continue;
        if (n > 2 && dlc_rng_below(rng, 2)) { /* two pieces, the later one first */
            assert_int_equal(dlc_ranges_add(out, (struct dlc_range){ r.pool, r.start + skip + n / 2, n - n / 2 }),
                             DLC_OK);
            n /= 2;
        }
        assert_int_equal(dlc_ranges_add(out, (struct dlc_range){ r.pool, r.start + skip, n }), DLC_OK);
    }
    if (spoil) {
        struct dlc_range r = { (int)dlc_rng_below(rng, POOLS + 1), dlc_rng_below(rng, 200),
                               1 + dlc_rng_below(rng, 20) };

        assert_int_equal(dlc_ranges_add(out, r), DLC_OK);
    }
    dlc_ranges_fini(&all);
}

static void one_step(dlc_ledger *l, struct model *m, struct dlc_rng *rng, int *n_refused)
{
    static dlc_err (*const moves[3])(dlc_ledger *, int, const struct dlc_ranges *) = { dlc_ledger_return,
                                                                                       dlc_ledger_consume,
                                                                                       dlc_ledger_discard };
    static const int to[3] = { FREE, CONSUMED, DISCARDED };
    int island = (int)dlc_rng_below(rng, ISLANDS), which = (int)dlc_rng_below(rng, 3);
    struct dlc_ranges a = { 0 }, b = { 0 };

    if (dlc_rng_below(rng, 2)) {
        int pool = (int)dlc_rng_below(rng, POOLS);
        uint64_t count = dlc_rng_below(rng, 12);

        assert_int_equal(dlc_ledger_lease(l, &a, island, pool, count), DLC_OK);
        model_lease(m, &b, island, pool, count);
        assert_same_ranges(&a, &b);
    } else {
        bool may;

        pick(&a, l, rng, island);
        may = model_may_move(m, island, &a);
        assert_int_equal(moves[which](l, island, &a), may ? DLC_OK : DLC_EFAIL);
        if (may)
            model_move(m, &a, to[which]);
        *n_refused += !may;
    }
    dlc_ranges_fini(&a);
    dlc_ranges_fini(&b);
}

static void random_sequences_follow_the_model(void **state)
{
    static struct model m;
    int n_refused = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct dlc_rng rng = { .seed = seed };
        dlc_ledger *l;

        model_init(&m);
        assert_int_equal(dlc_ledger_create(&l, POOLS), DLC_OK);
        for (int step = 0; step < 150; step++) {
            one_step(l, &m, &rng, &n_refused);
            check_totals(l, &m);
            check_leases(l, &m);
            round_trip(&l);
        }
        dlc_ledger_destroy(l);
    }
    assert_true(n_refused > 100);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

#define LIST(...)                                                                                                      \
    (struct dlc_range[])                                                                                               \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define RANGES(...)                                                                                                    \
    (struct dlc_ranges)                                                                                                \
    {                                                                                                                  \
        .items = LIST(__VA_ARGS__), .n = sizeof(LIST(__VA_ARGS__)) / sizeof(struct dlc_range)                          \
    }

/* Island 1 holds 0..9 of pool 0, island 2 holds 10..19; 20..29 went to island 1 and are consumed. */
static dlc_ledger *example(void)
{
    struct dlc_ranges out = { 0 };
    dlc_ledger *l;

    assert_int_equal(dlc_ledger_create(&l, 1), DLC_OK);
    assert_int_equal(dlc_ledger_lease(l, &out, 1, 0, 10), DLC_OK);
    assert_int_equal(dlc_ledger_lease(l, &out, 2, 0, 10), DLC_OK);
    assert_int_equal(dlc_ledger_lease(l, &out, 1, 0, 10), DLC_OK);
    assert_int_equal(dlc_ledger_consume(l, 1, &RANGES({ 0, 20, 10 })), DLC_OK);
    dlc_ranges_fini(&out);
    return l;
}

static void what_an_island_does_not_hold_does_not_move(void **state)
{
    const struct {
        int island;
        struct dlc_ranges ranges;
        const char *why;
    } rows[] = {
        { 1, RANGES({ 0, 20, 10 }), "consumed a second time" },
        { 1, RANGES({ 0, 10, 10 }), "a stranger's range" },
        { 1, RANGES({ 0, 5, 10 }), "partly a stranger's" },
        { 1, RANGES({ 0, 0, 5 }, { 0, 4, 2 }), "two ranges that overlap" },
        { 1, RANGES({ 0, 0, 10 }, { 0, 0, 10 }), "the same range twice" },
        { 1, RANGES({ 0, 0, 10 }, { 0, 30, 1 }), "one that is held and one that was never handed out" },
        { 1, RANGES({ 1, 0, 1 }), "a pool that is not there" },
        { 1, RANGES({ -1, 0, 1 }), "a negative pool" },
        { 1, RANGES({ 0, UINT64_MAX - 3, 3 }), "beyond every sample" },
        { 3, RANGES({ 0, 0, 1 }), "an island that holds nothing" },
        { -1, RANGES({ 0, 0, 1 }), "nobody" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        dlc_ledger *l = example();
        json_t *before = dlc_ledger_to_json(l), *after;

        if (dlc_ledger_consume(l, rows[k].island, &rows[k].ranges) != DLC_EFAIL ||
            dlc_ledger_return(l, rows[k].island, &rows[k].ranges) != DLC_EFAIL ||
            dlc_ledger_discard(l, rows[k].island, &rows[k].ranges) != DLC_EFAIL)
            fail_msg("%s: let through", rows[k].why);
        after = dlc_ledger_to_json(l);
        if (!json_equal(before, after))
            fail_msg("%s: refused, and yet the ledger changed", rows[k].why);
        json_decref(before);
        json_decref(after);
        dlc_ledger_destroy(l);
    }
}

static void leases_that_make_no_sense(void **state)
{
    dlc_ledger *l = example();
    struct dlc_ranges out = { 0 };

    (void)state;
    assert_int_equal(dlc_ledger_lease(l, &out, 1, 1, 5), DLC_EFAIL);
    assert_int_equal(dlc_ledger_lease(l, &out, 1, -1, 5), DLC_EFAIL);
    assert_int_equal(dlc_ledger_lease(l, &out, -1, 0, 5), DLC_EFAIL);
    assert_int_equal(dlc_ledger_lease(l, &out, 1, 0, UINT64_MAX), DLC_EFAIL);
    assert_int_equal(dlc_ledger_lease(l, &out, 1, 0, 0), DLC_OK);
    assert_int_equal(out.n, 0);
    dlc_ranges_fini(&out);
    dlc_ledger_destroy(l);
}

static void hostile_ledgers_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "{}", "not an array" },
        { "[]", "no pools" },
        { "[1]", "a pool that is no object" },
        { "[{\"next\":5}]", "no held ranges" },
        { "[{\"held\":[]}]", "no next" },
        { "[{\"next\":-1,\"held\":[]}]", "negative" },
        { "[{\"next\":1152921504606846977,\"held\":[]}]", "more samples than there can be" },
        { "[{\"next\":1.5,\"held\":[]}]", "no integer" },
        { "[{\"next\":5,\"held\":[[0,6,0]]}]", "beyond next" },
        { "[{\"next\":5,\"held\":[[0,0,0]]}]", "empty" },
        { "[{\"next\":5,\"held\":[[0,-1,0]]}]", "negative length" },
        { "[{\"next\":5,\"held\":[[-1,2,0]]}]", "negative start" },
        { "[{\"next\":5,\"held\":[[0,3,0],[2,2,1]]}]", "overlapping" },
        { "[{\"next\":5,\"held\":[[3,1,0],[0,1,1]]}]", "out of order" },
        { "[{\"next\":5,\"held\":[[0,1,-3]]}]", "no such holder" },
        { "[{\"next\":5,\"held\":[[0,1,1000001]]}]", "an island beyond all" },
        { "[{\"next\":5,\"held\":[[0,1]]}]", "too short" },
        { "[{\"next\":5,\"held\":[[0,1,0,0]]}]", "too long" },
        { "[{\"next\":5,\"held\":[[\"0\",1,0]]}]", "a string for a number" },
        { "[{\"next\":5,\"held\":[[0,1,null]]}]", "null for a holder" },
        { "[{\"next\":5,\"held\":[{}]}]", "an object for a range" },
        { "[{\"next\":9223372036854775807,\"held\":[[9223372036854775807,9223372036854775807,0]]}]", "sums overflow" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        dlc_ledger *l;
        json_t *v;

        assert_int_equal(dlc_json_parse(&v, rows[k].text, strlen(rows[k].text), "row"), DLC_OK);
        if (dlc_ledger_from_json(&l, v, "saved.json") != DLC_EINPUT || !strstr(dlc_err_text(), "saved.json"))
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        assert_null(l);
        json_decref(v);
    }
}

static void hostile_ranges_are_refused(void **state)
{
    static const struct {
        const char *text;
        bool good;
        const char *why;
    } rows[] = {
        { "[]", true, "none" },
        { "[[0,0,1],[1,5,7]]", true, "two" },
        { "{}", false, "not an array" },
        { "[[0,0]]", false, "too short" },
        { "[[0,0,1,1]]", false, "too long" },
        { "[[0,0,0]]", false, "empty" },
        { "[[0,-1,1]]", false, "negative" },
        { "[[-1,0,1]]", false, "negative pool" },
        { "[[1000001,0,1]]", false, "pool beyond all" },
        { "[[0,0,\"1\"]]", false, "a string" },
        { "[[0,0,1.0]]", false, "a real" },
        { "[[0,1152921504606846977,1]]", false, "start beyond all" },
        { "[[0,0,1152921504606846976],[1,0,1]]", false, "more in all than there can be" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_ranges r = { 0 };
        json_t *v, *back;

        assert_int_equal(dlc_json_parse(&v, rows[k].text, strlen(rows[k].text), "row"), DLC_OK);
        if ((dlc_ranges_from_json(&r, v, "row") == DLC_OK) != rows[k].good)
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        back = dlc_ranges_to_json(&r);
        assert_true(!rows[k].good || json_equal(back, v));
        json_decref(v);
        json_decref(back);
        dlc_ranges_fini(&r);
    }
}

/* Without memory there is no text, never a text with something missing: a lease left out would read as consumed. */
static void out_of_memory_loses_no_range(void **state)
{
    dlc_ledger *l = example();
    json_t *whole = dlc_ledger_to_json(l);
    bool done = false;

    (void)state;
    for (uint64_t n = 1; !done; n++) {
        json_t *v;

        dlc_mem_fail_at(n);
        v = dlc_ledger_to_json(l);
        dlc_mem_fail_at(0);
        assert_true(!v || json_equal(v, whole));
        done = v != NULL;
        json_decref(v);
        assert_true(n < 1000);
    }
    json_decref(whole);
    dlc_ledger_destroy(l);
}

static void a_lease_that_was_handed_out_before_is_taken_again(void **state)
{
    static const struct {
        uint64_t start, count;
        dlc_err expected;
        const char *why;
    } rows[] = {
        { 0, 5, DLC_OK, "free, below next" },
        { 20, 5, DLC_OK, "right at next" },
        { 30, 5, DLC_OK, "beyond: what is skipped is free" },
        { 15, 10, DLC_OK, "across next" },
        { 8, 4, DLC_EFAIL, "partly leased" },
        { 10, 5, DLC_EFAIL, "leased" },
        { (uint64_t)1 << 60, 2, DLC_EFAIL, "beyond the last sample" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_ranges all = { 0 }, mine = { 0 }, wanted = { 0 };
        struct dlc_ledger_totals t;
        dlc_ledger *l;

        assert_int_equal(dlc_ledger_create(&l, 1), DLC_OK);
        assert_int_equal(dlc_ledger_lease(l, &all, 1, 0, 10), DLC_OK);
        assert_int_equal(dlc_ledger_lease(l, &mine, 2, 0, 5), DLC_OK); /* 10 .. 14 stay leased */
        assert_int_equal(dlc_ledger_lease(l, &all, 1, 0, 5), DLC_OK);
        assert_int_equal(dlc_ledger_return(l, 1, &all), DLC_OK);
        assert_int_equal(dlc_ranges_add(&wanted, (struct dlc_range){ 0, rows[k].start, rows[k].count }), DLC_OK);
        if (dlc_ledger_take(l, 3, &wanted) != rows[k].expected)
            fail_msg("%s", rows[k].why);
        dlc_ledger_totals(&t, l, 0);
        if (rows[k].expected == DLC_OK) {
            assert_int_equal(t.leased, 5 + rows[k].count);
            assert_int_equal(t.leased + t.free_below_next, t.next);
            assert_int_equal(dlc_ledger_consume(l, 3, &wanted), DLC_OK);
        }
        dlc_ranges_fini(&all);
        dlc_ranges_fini(&mine);
        dlc_ranges_fini(&wanted);
        dlc_ledger_destroy(l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_sequences_follow_the_model),
        cmocka_unit_test(what_an_island_does_not_hold_does_not_move),
        cmocka_unit_test(leases_that_make_no_sense),
        cmocka_unit_test(hostile_ledgers_are_refused),
        cmocka_unit_test(hostile_ranges_are_refused),
        cmocka_unit_test(out_of_memory_loses_no_range),
        cmocka_unit_test(a_lease_that_was_handed_out_before_is_taken_again),
    };

    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
