/* The judges, on a run folder of `diloco train` and on folders and times made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "../runner.h"
#include "../scene.h"
#include "../tree.h"
#include "actors.h"
#include "base/mem.h"
#include "checks.h"
#include "scene_setup.h"
#include "watch.h"

static int set_up(void **state)
{
    int rc = runner_begin(state);

    if (rc == 0) {
        scene_prepare();
        run_expecting(0, TINY " --out good");
    }
    return rc;
}

static void check(struct chaos_findings *f, struct dlc_records *records, const char *run, int tokens)
{
    if (chaos_check_folder(f, records, in_scratch("%s", run), tokens) != DLC_OK)
        fail_msg("%s", dlc_err_text());
}

static void a_good_run_is_good(void **state)
{
    struct chaos_findings f;
    struct dlc_records records;
    char theta[DLC_SHA256_HEX];

    (void)state;
    check(&f, &records, "good", 32);
    assert_int_equal(f.wrong.len, 0);
    assert_int_equal(f.n_records, TINY_STEPS / TINY_H);
    assert_int_equal(f.n_samples, TINY_STEPS * TINY_BATCH * TINY_ISLANDS);
    assert_int_equal(f.n_tokens, f.n_samples * 32);
    assert_int_equal(f.n_unused_samples, 0);
    dlc_sha256_to_hex(theta, &records.items[3].theta);
    assert_int_equal(chaos_check_theta(&f, &records, 4, theta, "island 0"), DLC_OK);
    assert_int_equal(f.wrong.len, 0);
    assert_int_equal(chaos_check_theta(&f, &records, 5, theta, "island 0"), DLC_OK);
    assert_non_null(strstr(f.wrong.data, "island 0 has theta(5)"));
    assert_int_equal(chaos_check_theta(&f, &records, 99, theta, "island 1"), DLC_OK);
    assert_non_null(strstr(f.wrong.data, "island 1 stands at outer step 99 of 8"));
    dlc_records_free(&records);
    chaos_findings_fini(&f);
}

/* Writes records.jsonl of `run` anew from records, sealed, in one chain. */
static void write_chain(const char *run, struct dlc_records *records)
{
    struct dlc_buf text = { 0 };

    for (size_t i = 0; i < records->n; i++) {
        char *line;

        if (i > 0)
            records->items[i].prev = records->items[i - 1].hash;
        assert_int_equal(dlc_record_seal(&records->items[i]), DLC_OK);
        assert_int_equal(dlc_record_to_line(&line, &records->items[i]), DLC_OK);
        assert_int_equal(dlc_buf_printf(&text, "%s\n", line), DLC_OK);
        dlc_free(line);
    }
    file_write(in_scratch("%s/records.jsonl", run) + strlen(runner_scratch()) + 1, text.data, text.len);
    dlc_buf_fini(&text);
}

static void take_a_sample_twice(struct dlc_records *r)
{
    r->items[5].members[1].ranges.items[0].start = r->items[2].members[0].ranges.items[0].start;
}

static void forget_tokens(struct dlc_records *r)
{
    r->items[4].n_tokens -= 32;
}

static void another_history(struct dlc_records *r)
{
    r->items[0].delta_norm += 1;
}

static void leave_a_hole(struct dlc_records *r)
{
    r->items[7].members[0].ranges.items[0].start += 1000;
}

static void what_is_broken_is_named(void **state)
{
    static const struct {
        void (*change)(struct dlc_records *r);
        const char *text; /* in wrong; NULL: nothing is wrong */
        uint64_t unused;
        const char *why;
    } rows[] = {
        { take_a_sample_twice, "are in two records", 0, "a sample consumed twice" },
        { forget_tokens, "record 5 counts", 0, "totals do not add up" },
        { another_history, "checkpoint 8 is not of the history", 0, "a whole chain, but another one" },
        { leave_a_hole, "checkpoint", 10 + 970, "samples that nobody used are counted: [210, 220), [240, 1210)" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct chaos_findings f;
        struct dlc_records records;

        tree_copy("bad", "good");
        check(&f, &records, "bad", 32);
        chaos_findings_fini(&f);
        rows[i].change(&records);
        write_chain("bad", &records);
        dlc_records_free(&records);
        check(&f, &records, "bad", 32);
        if (!f.wrong.len || !strstr(f.wrong.data, rows[i].text))
            fail_msg("%s: said '%s', expected '%s'", rows[i].why, f.wrong.len ? f.wrong.data : "", rows[i].text);
        if (rows[i].unused)
            assert_int_equal(f.n_unused_samples, rows[i].unused);
        dlc_records_free(&records);
        chaos_findings_fini(&f);
    }
}

static void a_broken_chain_is_named(void **state)
{
    struct chaos_findings f;
    struct dlc_records records;

    (void)state;
    tree_copy("bad", "good");
    file_flip("bad/records.jsonl", file_bytes("bad/records.jsonl") / 2);
    check(&f, &records, "bad", 32);
    assert_true(f.wrong.len > 0);
    assert_non_null(strstr(f.wrong.data, "records.jsonl"));
    dlc_records_free(&records);
    chaos_findings_fini(&f);
}

/* Ten rounds of three islands; by hand. Island 1 is late in round 4 (t 4), island 2 in rounds 6 and 7. */
static void times_and_shares(void **state)
{
    struct dlc_record items[10];
    struct dlc_record_member members[10][3];
    struct dlc_records records = { .items = items, .n = 10 };
    struct chaos_commit commits[10];
    struct chaos_findings f = { 0 };
    const struct chaos_fault faults[] = {
        { .at_s = 3.5, .for_s = 1, .kind = CHAOS_KILL_ISLAND, .island = 1 }, /* excuses t 4 */
        { .at_s = 8.2, .for_s = 0, .kind = CHAOS_KILL_ISLAND, .island = 0 },
    };

    (void)state;
    memset(items, 0, sizeof items);
    memset(members, 0, sizeof members);
    for (int i = 0; i < 10; i++) {
        items[i] = (struct dlc_record){
            .t = (uint64_t)i + 1, .step = 5 * (i + 1), .n_alive = 3, .n_members = 3, .members = members[i]
        };
        for (int m = 0; m < 3; m++)
            members[i][m].island = m;
        commits[i] = (struct chaos_commit){ .at_s = i < 6 ? i + 1 : i + 3, .n_running = 3 }; /* t 7 comes at 9 */
    }
    members[3][1].fate = members[5][2].fate = members[6][2].fate = DLC_MEMBER_LATE;
    assert_int_equal(chaos_measure(&f, &records, commits, 10, faults, 2), DLC_OK);
    assert_int_equal(f.n_late, 3);
    assert_true(fabs(f.contributing_of_alive - 27.0 / 30) < 1e-12);
    assert_true(fabs(f.round_median_s - 1) < 1e-12);
    assert_true(fabs(f.longest_stop_s - 3) < 1e-12);
    assert_true(fabs(f.recovery_worst_rounds - 0.8) < 1e-12);   /* killed at 8.2, commit at 9 */
    assert_true(fabs(f.recovery_median_rounds - 0.65) < 1e-12); /* and at 3.5, commit at 4 */
    /* 30 memberships; with a fault: island 1 at t 4 and 5 (from 3.5 to 4.5), island 0 at t 7. Late without one: 2. */
    if (fabs(f.survivors_steps_used - 25.0 / 27) > 1e-12)
        fail_msg("survivors' steps used: %.4f, expected %.4f", f.survivors_steps_used, 25.0 / 27);
}

static void growth_is_seen(void **state)
{
    struct chaos_sample samples[40];
    struct chaos_life life = { .samples = samples, .n = 40, .cap = 40 };
    struct chaos_growth g;

    (void)state;
    for (int i = 0; i < 40; i++)
        samples[i] = (struct chaos_sample){ .at_s = 100 + i,
                                            .rss_bytes = 1000000 + (i < 3 ? 0 : 1000 * (uint64_t)i),
                                            .n_fds = 10 + i % 2 };
    g = chaos_growth(&life, 4);
    assert_true(g.known && g.rss_bytes > 20000 && g.rss_bytes < 30000 && fabs(g.n_fds) <= 1);
    life.n = 9;
    assert_false(chaos_growth(&life, 4).known);
}

static void a_living_process_is_watched(void **state)
{
    struct chaos_life life = { .n = 0 };
    int fd;

    (void)state;
    assert_int_equal(chaos_watch(&life, getpid(), 1), DLC_OK);
    fd = dup(0);
    assert_int_equal(chaos_watch(&life, getpid(), 2), DLC_OK);
    close(fd);
    assert_int_equal(chaos_watch(&life, 0x3fffffff, 3), DLC_OK); /* nobody */
    assert_int_equal(life.n, 2);
    assert_true(life.samples[0].rss_bytes > 100000);
    assert_int_equal(life.samples[1].n_fds, life.samples[0].n_fds + 1);
    chaos_life_fini(&life);
    assert_true(chaos_folder_bytes(in_scratch("good")) > 10000);
}

static void what_processes_print_is_found(void **state)
{
    static const char out[] = "Run these on the other machines:\n"
                              "diloco join 'nats+tls://isle:s3@127.0.0.1:4222/abc?pin=x_-' --data DATA\n";
    static const char said[] =
        "{\"theta\":\"a\",\"t\":1}\nhello {\n{\"theta\":\"b\",\"t\":2}\n{\"other\":1}\n{\"theta\":";
    char text[200];

    (void)state;
    file_write("out", out, sizeof out - 1);
    assert_true(scene_join_url(text, sizeof text, in_scratch("out")));
    assert_string_equal(text, "nats+tls://isle:s3@127.0.0.1:4222/abc?pin=x_-");
    file_write("out", "diloco join 'nats+tls://isle", 28);
    assert_false(scene_join_url(text, sizeof text, in_scratch("out"))); /* half a line */
    file_write("said", said, sizeof said - 1);
    assert_true(actor_last_json(text, sizeof text, in_scratch("said"), "theta"));
    assert_string_equal(text, "{\"theta\":\"b\",\"t\":2}");
    assert_false(actor_last_json(text, sizeof text, in_scratch("said"), "nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_run_is_good),
        cmocka_unit_test(what_is_broken_is_named),
        cmocka_unit_test(a_broken_chain_is_named),
        cmocka_unit_test(times_and_shares),
        cmocka_unit_test(growth_is_seen),
        cmocka_unit_test(a_living_process_is_watched),
        cmocka_unit_test(what_processes_print_is_found),
    };

    return runner_main("chaos checks", tests, set_up);
}
