/* Outer records: a line and back, what the hash covers, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "outer/record.h"

static struct dlc_sha256 digest(const char *text)
{
    return dlc_sha256(text, strlen(text));
}

static void add(struct dlc_ranges *r, int pool, uint64_t start, uint64_t count)
{
    assert_int_equal(dlc_ranges_add(r, (struct dlc_range){ pool, start, count }), DLC_OK);
}

static struct dlc_record example(void)
{
    struct dlc_record r = { .run = "00112233445566778899aabbccddeeff",
                            .t = 7,
                            .step = 3500,
                            .n_alive = 3,
                            .n_tokens = 123456789,
                            .delta_norm = 0.1,
                            .theta = digest("theta"),
                            .outer = digest("outer"),
                            .prev = digest("prev"),
                            .n_members = 3 };

    r.members = dlc_calloc(3, sizeof *r.members);
    assert_non_null(r.members);
    r.members[0] =
        (struct dlc_record_member){ .island = 0, .fate = DLC_MEMBER_SUMMED, .weight = 4000, .payload = digest("0") };
    r.members[1] = (struct dlc_record_member){ .island = 2, .fate = DLC_MEMBER_LATE };
    r.members[2] = (struct dlc_record_member){ .island = 5, .fate = DLC_MEMBER_REFUSED, .payload = digest("5") };
    add(&r.members[0].ranges, 0, 0, 100);
    add(&r.members[0].ranges, 1, 40, 60);
    add(&r.discarded, 0, 100, 8);
    assert_int_equal(dlc_record_seal(&r), DLC_OK);
    return r;
}

static void a_line_and_back(void **state)
{
    struct dlc_record r = example(), back;
    char *line, *again;

    (void)state;
    assert_int_equal(dlc_record_to_line(&line, &r), DLC_OK);
    assert_null(strchr(line, '\n'));
    if (dlc_record_from_line(&back, line, strlen(line), "line") != DLC_OK)
        fail_msg("%s", dlc_err_text());
    assert_string_equal(back.run, r.run);
    assert_int_equal(back.t, 7);
    assert_int_equal(back.step, 3500);
    assert_int_equal(back.n_alive, 3);
    assert_int_equal(back.n_tokens, 123456789);
    assert_true(back.delta_norm == 0.1);
    assert_true(dlc_sha256_equal(&back.theta, &r.theta) && dlc_sha256_equal(&back.outer, &r.outer));
    assert_true(dlc_sha256_equal(&back.prev, &r.prev) && dlc_sha256_equal(&back.hash, &r.hash));
    assert_int_equal(back.n_members, 3);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(back.members[k].island, r.members[k].island);
        assert_int_equal(back.members[k].fate, r.members[k].fate);
        assert_int_equal(back.members[k].weight, r.members[k].weight);
        assert_int_equal(dlc_ranges_count(&back.members[k].ranges), dlc_ranges_count(&r.members[k].ranges));
    }
    assert_int_equal(dlc_ranges_count(&back.discarded), 8);
    assert_int_equal(dlc_record_to_line(&again, &back), DLC_OK);
    assert_string_equal(line, again);
    dlc_free(line);
    dlc_free(again);
    dlc_record_fini(&r);
    dlc_record_fini(&back);
}

/* docs/formats/records.md: the hash is SHA-256 of the line without its "hash" member. */
static void the_hash_is_of_the_line_without_it(void **state)
{
    struct dlc_record r = example();
    struct dlc_sha256 hash;
    char *line, *at, *end;

    (void)state;
    assert_int_equal(dlc_record_to_line(&line, &r), DLC_OK);
    at = strstr(line, "\"hash\":\"");
    assert_non_null(at);
    end = at + strlen("\"hash\":\"\",") + 64;
    memmove(at, end, strlen(end) + 1);
    hash = digest(line);
    assert_true(dlc_sha256_equal(&hash, &r.hash));
    dlc_free(line);
    dlc_record_fini(&r);
}

static void set_run(struct dlc_record *r)
{
    r->run[31] = 'e';
}
static void set_t(struct dlc_record *r)
{
    r->t++;
}
static void set_fragment(struct dlc_record *r)
{
    r->fragment++;
}
static void set_step(struct dlc_record *r)
{
    r->step++;
}
static void set_alive(struct dlc_record *r)
{
    r->n_alive++;
}
static void set_tokens(struct dlc_record *r)
{
    r->n_tokens++;
}
static void set_norm(struct dlc_record *r)
{
    r->delta_norm = nextafter(r->delta_norm, 1);
}
static void set_theta(struct dlc_record *r)
{
    r->theta.bytes[31] ^= 1;
}
static void set_outer(struct dlc_record *r)
{
    r->outer.bytes[0] ^= 0x80;
}
static void set_prev(struct dlc_record *r)
{
    r->prev.bytes[5] ^= 1;
}
static void set_island(struct dlc_record *r)
{
    r->members[2].island++;
}
static void set_fate(struct dlc_record *r)
{
    r->members[1].fate = DLC_MEMBER_DROPPED;
}
static void set_weight(struct dlc_record *r)
{
    r->members[0].weight++;
}
static void set_payload(struct dlc_record *r)
{
    r->members[0].payload.bytes[9] ^= 1;
}
static void set_range(struct dlc_record *r)
{
    r->members[0].ranges.items[1].count++;
}
static void set_pool(struct dlc_record *r)
{
    r->members[0].ranges.items[1].pool++;
}
static void set_discarded(struct dlc_record *r)
{
    r->discarded.items[0].start++;
}
static void set_n_members(struct dlc_record *r)
{
    r->n_members--;
}

static void every_field_is_in_the_hash(void **state)
{
    static const struct {
        void (*change)(struct dlc_record *r);
        const char *what;
    } rows[] = {
        { set_run, "run" },
        { set_t, "t" },
        { set_fragment, "fragment" },
        { set_step, "step" },
        { set_alive, "alive" },
        { set_tokens, "tokens" },
        { set_norm, "delta_norm" },
        { set_theta, "theta" },
        { set_outer, "outer" },
        { set_prev, "prev" },
        { set_island, "island" },
        { set_fate, "fate" },
        { set_weight, "weight" },
        { set_payload, "payload" },
        { set_range, "range" },
        { set_pool, "pool" },
        { set_discarded, "discarded" },
        { set_n_members, "members" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct dlc_record r = example();
        struct dlc_sha256 before = r.hash;

        rows[k].change(&r);
        assert_int_equal(dlc_record_seal(&r), DLC_OK);
        if (dlc_sha256_equal(&before, &r.hash))
            fail_msg("%s changed and the hash did not", rows[k].what);
        dlc_record_fini(&r);
    }
}

/* Any one character of a line changed: refused, or (a space, an escape) the same record. */
static void a_tampered_line_is_refused(void **state)
{
    struct dlc_record r = example(), back;
    char *line, *again;
    size_t n;
    int n_refused = 0;

    (void)state;
    assert_int_equal(dlc_record_to_line(&line, &r), DLC_OK);
    n = strlen(line);
    for (size_t i = 0; i < n; i++) {
        char was = line[i];

        for (int bit = 0; bit < 8; bit += 3) {
            line[i] = (char)(was ^ (1 << bit));
            if (dlc_record_from_line(&back, line, n, "line") != DLC_OK) {
                n_refused++;
                continue;
            }
            line[i] = was;
            assert_int_equal(dlc_record_to_line(&again, &back), DLC_OK);
            assert_string_equal(line, again);
            dlc_free(again);
            dlc_record_fini(&back);
        }
        line[i] = was;
    }
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(dlc_record_from_line(&back, line, cut, "line"), DLC_EINPUT);
    assert_true(n_refused > 100);
    dlc_free(line);
    dlc_record_fini(&r);
}

/* --- hostile JSON, with a hash that is right ---------------------------------------------------------------------- */

/* The line with `value` (JSON text; NULL: taken out) for the member `key`, hashed again. */
static char *forge(const char *key, const char *value)
{
    struct dlc_record r = example();
    char *line, *text, hex[DLC_SHA256_HEX];
    struct dlc_sha256 hash;
    json_t *v;

    assert_int_equal(dlc_record_to_line(&line, &r), DLC_OK);
    assert_int_equal(dlc_json_parse(&v, line, strlen(line), "line"), DLC_OK);
    json_object_del(v, "hash");
    json_object_del(v, key);
    if (value)
        json_object_set_new(v, key, json_loads(value, JSON_DECODE_ANY, NULL));
    text = dlc_json_dump(v);
    hash = digest(text);
    dlc_free(text);
    dlc_sha256_to_hex(hex, &hash);
    if (strcmp(key, "hash") != 0)
        json_object_set_new(v, "hash", json_string(hex));
    text = dlc_json_dump(v);
    json_decref(v);
    dlc_free(line);
    dlc_record_fini(&r);
    return text;
}

#define MEMBER(island, ranges)                                                                                         \
    "{\"island\":" island ",\"fate\":\"late\",\"weight\":0,\"ranges\":" ranges                                         \
    ",\"payload\":\"0000000000000000000000000000000000000000000000000000000000000000\"}"

static void hostile_lines_are_refused(void **state)
{
    static const struct {
        const char *key, *value, *why;
    } rows[] = {
        { "run", NULL, "no run" },
        { "run", "\"short\"", "a run id that is too short" },
        { "run", "\"00112233445566778899aabbccddeeff0\"", "a run id that is too long" },
        { "t", "0", "records begin with 1" },
        { "t", "-1", "negative" },
        { "t", "7.0", "not an integer" },
        { "t", "\"7\"", "a string" },
        { "fragment", "-1", "negative" },
        { "step", "-1", "negative" },
        { "alive", "1e3", "a real" },
        { "tokens", "-5", "negative" },
        { "delta_norm", "\"0.1\"", "a string" },
        { "theta", "\"00\"", "a digest that is too short" },
        { "theta", "\"ZZ00000000000000000000000000000000000000000000000000000000000000\"", "not hexadecimal" },
        { "theta", "\"AA00000000000000000000000000000000000000000000000000000000000000\"",
          "capitals are another text" },
        { "outer", "null", "null" },
        { "prev", "[]", "an array" },
        { "hash", NULL, "no hash" },
        { "hash", "\"0000000000000000000000000000000000000000000000000000000000000000\"", "another hash" },
        { "members", NULL, "no members" },
        { "members", "{}", "not an array" },
        { "members", "[null]", "a member that is no object" },
        { "members", "[{}]", "an empty member" },
        { "members", "[" MEMBER("-1", "[]") "]", "a negative island" },
        { "members", "[" MEMBER("0", "[[0,0]]") "]", "a range that is too short" },
        { "members", "[" MEMBER("0", "[[0,0,1],[0,1,1]]") "]", "two ranges that are one" },
        { "members", "[" MEMBER("1", "[]") "," MEMBER("0", "[]") "]", "members out of order" },
        { "members", "[" MEMBER("1", "[]") "," MEMBER("1", "[]") "]", "a member twice" },
        { "members", "[{\"island\":0,\"fate\":\"lucky\",\"weight\":0,\"ranges\":[],\"payload\":\"\"}]",
          "no such fate" },
        { "discarded", "[[0,0,-1]]", "a negative count" },
        { "novelty", "1", "a member that is not known" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char *line = forge(rows[k].key, rows[k].value);
        struct dlc_record r;

        if (dlc_record_from_line(&r, line, strlen(line), "records.jsonl line 7") != DLC_EINPUT ||
            !strstr(dlc_err_text(), "records.jsonl line 7"))
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        assert_null(r.members);
        dlc_free(line);
    }
}

static void what_is_no_object_is_refused(void **state)
{
    static const char *const lines[] = {
        "", " ", "null", "[]", "7", "{", "{}", "{}{}", "\xff\xfe", "{\"t\":1,\"t\":2}"
    };

    (void)state;
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        struct dlc_record r;

        if (dlc_record_from_line(&r, lines[k], strlen(lines[k]), "line") != DLC_EINPUT)
            fail_msg("'%s' was taken", lines[k]);
    }
}

static void a_norm_that_is_no_number_cannot_be_sealed(void **state)
{
    struct dlc_record r = example();

    (void)state;
    r.delta_norm = NAN;
    assert_int_equal(dlc_record_seal(&r), DLC_EFAIL);
    r.delta_norm = INFINITY;
    assert_int_equal(dlc_record_seal(&r), DLC_EFAIL);
    dlc_record_fini(&r);
}

static void out_of_memory_leaves_nothing_behind(void **state)
{
    struct dlc_record r = example(), back;
    char *line;
    dlc_err err = DLC_ENOMEM;

    (void)state;
    assert_int_equal(dlc_record_to_line(&line, &r), DLC_OK);
    for (uint64_t n = 1; err != DLC_OK; n++) {
        dlc_mem_fail_at(n);
        err = dlc_record_from_line(&back, line, strlen(line), "line");
        dlc_mem_fail_at(0);
        if ((err != DLC_OK && err != DLC_ENOMEM) || n > 10000)
            fail_msg("allocation %llu: code %d, %s", (unsigned long long)n, (int)err, dlc_err_text());
    }
    dlc_free(line);
    dlc_record_fini(&r);
    dlc_record_fini(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_and_back),
        cmocka_unit_test(the_hash_is_of_the_line_without_it),
        cmocka_unit_test(every_field_is_in_the_hash),
        cmocka_unit_test(a_tampered_line_is_refused),
        cmocka_unit_test(hostile_lines_are_refused),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(a_norm_that_is_no_number_cannot_be_sealed),
        cmocka_unit_test(out_of_memory_leaves_nothing_behind),
    };

    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
