/* The two logs over a real nats-server: who may append, what is found again, what a time-out means. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/log.h"
#include "net/log_part.h"
#include "net/net_test.h"

static dlc_nats_server *server;

static int set_up(void **state)
{
    (void)state;
    server = NULL;
    net_needs_server();
    server = net_server(NULL, false);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dlc_nats_server_stop(server);
    return 0;
}

static struct dlc_wire_options as_lead(void)
{
    return net_options(dlc_nats_server_lead_url(server), dlc_nats_server_ca_pem(server));
}

static dlc_runlog *open_log(void)
{
    struct dlc_wire_options options = as_lead();
    dlc_runlog *log;

    if (dlc_runlog_open(&log, &options) != DLC_OK)
        fail_msg("log: %s", dlc_err_text());
    return log;
}

static void append(dlc_runlog *log, uint64_t *seq, const void *bytes, size_t n)
{
    bool taken;

    if (dlc_runlog_append(log, seq, bytes, n, &taken) != DLC_OK)
        fail_msg("append of %zu bytes: %s", n, dlc_err_text());
}

static bool next(dlc_runlog *log, uint64_t *seq, struct dlc_buf *entry)
{
    bool got;

    if (dlc_runlog_next(log, seq, entry, &got) != DLC_OK)
        fail_msg("next after %llu: %s", (unsigned long long)*seq, dlc_err_text());
    return got;
}

static void expect_text(dlc_runlog *log, uint64_t *seq, const char *text)
{
    struct dlc_buf entry = { 0 };

    if (!next(log, seq, &entry))
        fail_msg("nothing after %llu, expected '%s'", (unsigned long long)*seq, text);
    assert_int_equal(entry.len, strlen(text));
    assert_memory_equal(entry.data, text, entry.len);
    dlc_buf_fini(&entry);
}

/* --- what is written is found ----------------------------------------------------------------------------------------- */

static void entries_of_any_size_come_back(void **state)
{
    static const size_t sizes[] = { 1, 0, 70, DLC_LOG_PART_BYTES - 1, DLC_LOG_PART_BYTES, DLC_LOG_PART_BYTES + 1, 700000 };
    dlc_runlog *writer = open_log(), *reader = open_log();
    char *bytes = malloc(700000);
    struct dlc_buf entry = { 0 };
    uint64_t at = 0, from = 0;
    bool taken;

    (void)state;
    for (size_t i = 0; i < 700000; i++)
        bytes[i] = (char)(i * 7 + i / 1000);
    assert_false(next(reader, &from, &entry));
    assert_int_equal(from, 0);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        append(writer, &at, bytes, sizes[k]);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        assert_true(next(reader, &from, &entry));
        assert_int_equal(entry.len, sizes[k]);
        assert_memory_equal(sizes[k] ? entry.data : "", bytes, sizes[k]);
    }
    assert_int_equal(from, at);
    assert_false(next(reader, &from, &entry));
    assert_int_equal(dlc_runlog_append(writer, &at, bytes, DLC_LOG_PART_BYTES * DLC_LOG_PARTS_MAX + 1, &taken), DLC_EFAIL);
    assert_non_null(strstr(dlc_err_text(), "too large"));
    free(bytes);
    dlc_buf_fini(&entry);
    dlc_runlog_close(writer);
    dlc_runlog_close(reader);
}

/* --- one of two --------------------------------------------------------------------------------------------------------*/

static void the_first_of_all_wins_alone(void **state)
{
    dlc_runlog *a = open_log(), *b = open_log();
    uint64_t at_a = 0, at_b = 0;
    bool taken;

    (void)state;
    append(a, &at_a, "one", 3);
    assert_int_equal(dlc_runlog_append(b, &at_b, "two", 3, &taken), DLC_EPEER); /* 0 must not mean "whatever" */
    assert_true(taken);
    assert_int_equal(at_b, 0);
    assert_int_equal(dlc_runlog_append(b, &at_b, "one", 3, &taken), DLC_EPEER); /* the same bytes are not the same writer */
    assert_true(taken);
    expect_text(b, &at_b, "one");
    append(b, &at_b, "two", 3);
    assert_int_equal(dlc_runlog_append(a, &at_a, "three", 5, &taken), DLC_EPEER);
    assert_true(taken);
    dlc_runlog_close(a);
    dlc_runlog_close(b);
}

#define RACES 60

static pthread_barrier_t both;

struct racer {
    char name;
    size_t size;
    pthread_t thread;
    int n_won, n_lost, n_failed;
    char text[200];
};

static void *race(void *self)
{
    struct racer *r = self;
    dlc_runlog *log = open_log();
    struct dlc_buf entry = { 0 };
    char *mine = calloc(1, r->size);
    uint64_t at = 0;
    bool taken, got = true;

    for (int k = 0; k < RACES; k++) {
        snprintf(mine, r->size, "%c-%d", r->name, k);
        pthread_barrier_wait(&both);
        while (dlc_runlog_next(log, &at, &entry, &got) == DLC_OK && got)
            ;
        pthread_barrier_wait(&both);
        if (dlc_runlog_append(log, &at, mine, r->size, &taken) == DLC_OK)
            r->n_won++;
        else if (taken)
            r->n_lost++;
        else
            r->n_failed++;
        if (r->n_failed)
            snprintf(r->text, sizeof r->text, "%.190s", dlc_err_text());
    }
    dlc_buf_fini(&entry);
    free(mine);
    dlc_runlog_close(log);
    return NULL;
}

/* Trap of servers before 2.9.21: both writers accepted. In parts, they also cut into each other's entries. */
static void two_writers_race(void **state)
{
    static const size_t sizes[] = { 32, DLC_LOG_PART_BYTES + 32 };

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct racer racers[2] = { { .name = 'a', .size = sizes[k] }, { .name = 'b', .size = sizes[k] } };
        struct dlc_buf entry = { 0 };
        int n_found[2] = { 0, 0 }, last[2] = { -1, -1 };
        uint64_t at = 0;
        dlc_runlog *log;

        pthread_barrier_init(&both, NULL, 2);
        for (int i = 0; i < 2; i++)
            pthread_create(&racers[i].thread, NULL, race, &racers[i]);
        for (int i = 0; i < 2; i++)
            pthread_join(racers[i].thread, NULL);
        pthread_barrier_destroy(&both);
        log = open_log();
        while (next(log, &at, &entry)) {
            int i = entry.data[0] - 'a', number = (int)strtol(entry.data + 2, NULL, 10);

            if (entry.len != sizes[k])
                continue; /* of the smaller race */
            assert_true(number > last[i]); /* nothing is stored twice */
            last[i] = number;
            n_found[i]++;
        }
        for (int i = 0; i < 2; i++) {
            if (racers[i].n_failed)
                fail_msg("%c: %s", racers[i].name, racers[i].text);
            assert_int_equal(n_found[i], racers[i].n_won);
        }
        print_message("%zu bytes: %d and %d appended, %d and %d refused\n", sizes[k], racers[0].n_won, racers[1].n_won,
                      racers[0].n_lost, racers[1].n_lost);
        assert_int_equal(n_found[0] + n_found[1], RACES); /* of two who try at once one gets through */
        dlc_buf_fini(&entry);
        dlc_runlog_close(log);
    }
}

/* A leader that slept between its look at the clock and its write. */
static void who_slept_through_a_change_cannot_write(void **state)
{
    dlc_runlog *old = open_log(), *young = open_log();
    struct dlc_lease of_old = { .holder = "old", .fence = 1 }, of_young;
    uint64_t at_old = 0, at_young = 0;
    bool taken;

    (void)state;
    assert_int_equal(dlc_lease_write(old, &of_old, &taken), DLC_OK);
    append(old, &at_old, "record 1", 8);
    assert_int_equal(dlc_lease_read(young, &of_young), DLC_OK);
    assert_string_equal(of_young.holder, "old");
    assert_int_equal(of_young.fence, 1);
    snprintf(of_young.holder, sizeof of_young.holder, "young");
    of_young.fence = 2;
    assert_int_equal(dlc_lease_write(young, &of_young, &taken), DLC_OK);
    expect_text(young, &at_young, "record 1");
    append(young, &at_young, "epoch 2", 7);
    assert_int_equal(dlc_runlog_append(old, &at_old, "record 2 of old", 15, &taken), DLC_EPEER);
    assert_true(taken);
    assert_int_equal(dlc_lease_write(old, &of_old, &taken), DLC_EPEER);
    assert_true(taken);
    append(young, &at_young, "record 2", 8);
    dlc_runlog_close(old);
    dlc_runlog_close(young);
}

/* --- the lease ---------------------------------------------------------------------------------------------------------*/

static void a_lease_is_renewed_for_long(void **state)
{
    dlc_runlog *log = open_log(), *other = open_log();
    struct dlc_lease mine, read;
    bool taken;

    (void)state;
    assert_int_equal(dlc_lease_read(log, &mine), DLC_OK);
    assert_int_equal(mine.seq, 0);
    assert_int_equal(mine.fence, 0);
    mine = (struct dlc_lease){ .holder = "me", .fence = 3 };
    for (int k = 0; k < 50; k++) { /* far more than are kept */
        assert_int_equal(dlc_lease_write(log, &mine, &taken), DLC_OK);
        assert_int_equal(dlc_lease_read(other, &read), DLC_OK);
        assert_int_equal(read.seq, mine.seq);
    }
    read = (struct dlc_lease){ .holder = "late", .fence = 9 }; /* seq 0: never looked */
    assert_int_equal(dlc_lease_write(other, &read, &taken), DLC_EPEER);
    assert_true(taken);
    mine.holder[0] = '\0'; /* given up */
    assert_int_equal(dlc_lease_write(log, &mine, &taken), DLC_OK);
    assert_int_equal(dlc_lease_read(other, &read), DLC_OK);
    assert_string_equal(read.holder, "");
    assert_int_equal(read.fence, 3);
    dlc_runlog_close(log);
    dlc_runlog_close(other);
}

/* --- a server that dies ------------------------------------------------------------------------------------------------*/

#define ENTRIES 120

static void *write_many(void *self)
{
    int *n_unknown = self;
    dlc_runlog *log = open_log();
    uint64_t at = 0;

    for (int k = 0; k < ENTRIES; k++) {
        char text[32];
        bool taken = false;

        snprintf(text, sizeof text, "entry %d", k);
        while (dlc_runlog_append(log, &at, text, strlen(text), &taken) != DLC_OK && !taken)
            ++*n_unknown; /* the same again */
        if (taken) {
            *n_unknown = -1;
            break;
        }
        net_sleep_ms(10);
    }
    dlc_runlog_close(log);
    return NULL;
}

static void nothing_twice_and_nothing_lost_when_the_server_dies(void **state)
{
    int n_unknown = 0;
    uint64_t at = 0;
    pthread_t thread;
    dlc_runlog *log;
    struct dlc_buf entry = { 0 };
    bool restarted = false;

    (void)state;
    log = open_log();
    dlc_runlog_close(log);
    pthread_create(&thread, NULL, write_many, &n_unknown);
    for (int k = 0; k < 2; k++) {
        double until_s = dlc_now_s() + 30;

        net_sleep_ms(250);
        kill((pid_t)dlc_nats_server_pid(server), SIGKILL);
        for (restarted = false; !restarted && dlc_now_s() < until_s; net_sleep_ms(20))
            assert_int_equal(dlc_nats_server_watch(server, &restarted), DLC_OK);
        assert_true(restarted);
    }
    pthread_join(thread, NULL);
    assert_true(n_unknown >= 0); /* its own late copies are nobody else's */
    log = open_log();
    for (int k = 0; k < ENTRIES; k++) {
        char text[32];

        snprintf(text, sizeof text, "entry %d", k);
        expect_text(log, &at, text);
    }
    assert_false(next(log, &at, &entry));
    print_message("%d appends were not known at first\n", n_unknown);
    dlc_buf_fini(&entry);
    dlc_runlog_close(log);
}

static void without_a_server_it_is_not_known_and_not_a_refusal(void **state)
{
    dlc_runlog *log = open_log();
    struct dlc_lease lease = { .holder = "me", .fence = 1 };
    struct dlc_buf entry = { 0 };
    uint64_t at = 0;
    bool taken = true, got;

    (void)state;
    assert_int_equal(dlc_lease_write(log, &lease, &taken), DLC_OK);
    kill((pid_t)dlc_nats_server_pid(server), SIGKILL);
    net_sleep_ms(100);
    assert_int_equal(dlc_runlog_append(log, &at, "x", 1, &taken), DLC_EPEER);
    assert_false(taken);
    assert_int_equal(dlc_runlog_next(log, &at, &entry, &got), DLC_EPEER); /* not "that was the last" */
    assert_int_equal(dlc_lease_read(log, &lease), DLC_EPEER);
    dlc_buf_fini(&entry);
    dlc_runlog_close(log);
}

/* --- what others put there ---------------------------------------------------------------------------------------------*/

static void put_message(dlc_wire *w, const char *subject, const void *bytes, size_t n)
{
    struct dlc_wire_msg answer;
    bool got;

    assert_int_equal(dlc_wire_request(w, subject, bytes, n, &answer, &got, 3000), DLC_OK);
    assert_true(got && !answer.no_responders);
    dlc_wire_msg_free(&answer);
}

static void put_part_of(dlc_wire *w, uint32_t index, size_t total, unsigned damage)
{
    char *bytes = calloc(1, total);
    struct dlc_log_part part = { .writer = 99, .index = index, .count = dlc_log_part_count(total), .total_bytes = total,
                                 .digest = dlc_sha256(bytes, total), .bytes = bytes };
    struct dlc_buf message = { 0 };

    part.size_bytes = index + 1 < part.count ? DLC_LOG_PART_BYTES : total - index * DLC_LOG_PART_BYTES;
    if (damage == 1)
        part.digest.bytes[3] ^= 1; /* of the entry: its parts are sound */
    assert_int_equal(dlc_log_part_encode(&message, &part), DLC_OK);
    if (damage == 2)
        message.data[message.len - 1] ^= 1;
    if (damage == 3)
        message.data[20] ^= 1;
    put_message(w, "dlc." RUN ".log", message.data, message.len);
    dlc_buf_fini(&message);
    free(bytes);
}

/* Somebody with the leader's secret, another program, a writer that died in the middle: it is in the way of nobody. */
static void what_is_no_entry_is_passed_over(void **state)
{
    struct dlc_wire_options options = as_lead();
    dlc_runlog *log = open_log(), *reader = open_log();
    dlc_wire *w = net_connect(&options);
    uint64_t at = 0, from = 0;
    struct dlc_buf entry = { 0 };

    (void)state;
    put_message(w, "dlc." RUN ".log", "", 0); /* before the first of all */
    append(log, &at, "one", 3);
    put_message(w, "dlc." RUN ".log", "hello", 5);
    put_part_of(w, 0, 100, 1);
    put_part_of(w, 0, 100, 2);
    put_part_of(w, 0, 100, 3);
    put_part_of(w, 1, DLC_LOG_PART_BYTES + 9, 0); /* without its beginning */
    put_part_of(w, 0, 2 * DLC_LOG_PART_BYTES, 0); /* never finished */
    append(log, &at, "two", 3);
    put_part_of(w, 1, 2 * DLC_LOG_PART_BYTES, 0); /* the rest comes too late */
    expect_text(reader, &from, "one");
    expect_text(reader, &from, "two");
    assert_int_equal(from, at);
    assert_false(next(reader, &from, &entry));
    append(log, &at, "three", 5);
    expect_text(reader, &from, "three");
    dlc_wire_close(w);
    dlc_buf_fini(&entry);
    dlc_runlog_close(log);
    dlc_runlog_close(reader);
}

static void a_lease_that_cannot_be_read_hides_no_older_one(void **state)
{
    static const char *const texts[] = { "", "[]", "{\"holder\":\"x\"}", "{\"holder\":\"x\",\"fence\":-3}",
                                         "{\"holder\":\"0123456789012345678901234567890123456789012345678901234567890123456"
                                         "789\",\"fence\":7}" };
    struct dlc_wire_options options = as_lead();
    dlc_runlog *log = open_log();
    dlc_wire *w = net_connect(&options);
    struct dlc_lease mine = { .holder = "me", .fence = 5 }, read;
    bool taken;

    (void)state;
    assert_int_equal(dlc_lease_write(log, &mine, &taken), DLC_OK);
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        put_message(w, "dlc." RUN ".lease", texts[k], strlen(texts[k]));
    assert_int_equal(dlc_lease_read(log, &read), DLC_OK);
    assert_string_equal(read.holder, "me");
    assert_int_equal(read.fence, 5);
    assert_int_equal(read.seq, mine.seq + sizeof texts / sizeof *texts);
    read.fence = 6;
    assert_int_equal(dlc_lease_write(log, &read, &taken), DLC_OK);
    dlc_wire_close(w);
    dlc_runlog_close(log);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(entries_of_any_size_come_back),
        TEST(the_first_of_all_wins_alone),
        TEST(two_writers_race),
        TEST(who_slept_through_a_change_cannot_write),
        TEST(a_lease_is_renewed_for_long),
        TEST(nothing_twice_and_nothing_lost_when_the_server_dies),
        TEST(without_a_server_it_is_not_known_and_not_a_refusal),
        TEST(what_is_no_entry_is_passed_over),
        TEST(a_lease_that_cannot_be_read_hides_no_older_one),
    };

    return cmocka_run_group_tests_name("log", tests, net_begin, net_end);
}
