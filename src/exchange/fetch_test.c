/* Blobs fetched over a simulated road that loses, repeats, damages and delays chunks, by a receiver that is killed at
 * any moment and finds its files cut, damaged or another's: the bytes are right in the end, and little comes twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "exchange/fetch.h"

#define MS 1000000LL
#define S 1000000000LL
#define N_CHUNKS 13
#define SIZE (12 * DLC_CHUNK_BYTES + 1001)

static char folder[] = "/tmp/diloco-fetch-XXXXXX";
static unsigned char *blob; /* SIZE bytes */
static struct dlc_blob_ref ref;

static int make_folder(void **state)
{
    struct dlc_rng rng = { .seed = 1 };

    (void)state;
    blob = dlc_alloc(SIZE);
    for (size_t i = 0; blob && i < SIZE; i++)
        blob[i] = (unsigned char)dlc_rng_next(&rng);
    ref = (struct dlc_blob_ref){ .digest = dlc_sha256(blob, SIZE), .size_bytes = SIZE };
    return blob && mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    dlc_free(blob);
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static const char *in_folder(const char *name)
{
    static char paths[4][DLC_PATH_MAX];
    static int at;

    at = (at + 1) % 4;
    assert_int_equal(dlc_path_join(paths[at], folder, name), DLC_OK);
    return paths[at];
}

static void begin_empty(void)
{
    assert_int_equal(dlc_remove_tree(folder), DLC_OK);
    assert_int_equal(dlc_mkdir_p(folder), DLC_OK);
}

static void assert_file_is_blob(const char *path, const char *why)
{
    struct dlc_buf b = { 0 };

    if (dlc_file_read(&b, path, SIZE) != DLC_OK || b.len != SIZE || memcmp(b.data, blob, SIZE) != 0)
        fail_msg("%s: not the blob: %s", why, dlc_err_text());
    dlc_buf_fini(&b);
    assert_false(dlc_file_exists(in_folder("blob.part")));
    assert_false(dlc_file_exists(in_folder("blob.map")));
}

static dlc_fetch *begin(const char *why)
{
    dlc_fetch *f = NULL;

    if (dlc_fetch_create(&f, &ref, in_folder("blob")) != DLC_OK)
        fail_msg("%s: %s", why, dlc_err_text());
    return f;
}

static dlc_err answer(dlc_fetch *f, const struct dlc_chunk_ask *ask, const void *bytes, int64_t now_ns)
{
    struct dlc_buf b = { 0 };
    bool mine, gone;
    dlc_err err;

    assert_int_equal(dlc_chunk_answer(&b, ask, bytes, SIZE), DLC_OK);
    err = dlc_fetch_answer(f, b.data, b.len, &mine, &gone, now_ns);
    assert_true(mine);
    dlc_buf_fini(&b);
    return err;
}

/* Asks and answers at once, at most n. How many there were. */
static int fetch_some(dlc_fetch *f, int n, const void *bytes)
{
    static int64_t now_ns = 1;
    struct dlc_chunk_ask ask;
    int k = 0;

    while (k < n && dlc_fetch_ask(f, &ask, 4, now_ns)) {
        assert_int_equal(answer(f, &ask, bytes, now_ns += MS), DLC_OK);
        k++;
    }
    return k;
}

/* --- the road --- */

struct road {
    double lose, repeat, damage, kill;
    int64_t delay_ns, jitter_ns;
    double bytes_per_s; /* 0: no limit. Answers come one after the other */
    int64_t queue_ns;
    int64_t cut_from_ns, cut_to_ns;
    const char *why;
    int most_asked; /* chunks, of 13 */
    int64_t most_ns;
};

struct flying {
    int64_t at_ns;
    struct dlc_chunk_ask ask;
    bool damaged;
};

struct sim {
    struct road road;
    struct dlc_rng rng;
    int64_t now_ns, free_ns;
    struct flying flying[4096];
    size_t n_flying;
    int n_asked, most_under_way;
    uint64_t most_queued_bytes;
};

static double chance(struct sim *s)
{
    return (double)(dlc_rng_next(&s->rng) >> 11) * 0x1p-53;
}

static void fly(struct sim *s, const struct dlc_chunk_ask *ask)
{
    const struct road *r = &s->road;
    int64_t at = s->now_ns + r->delay_ns + r->queue_ns + (int64_t)(chance(s) * (double)r->jitter_ns);

    if (r->bytes_per_s > 0) {
        s->free_ns = (s->free_ns > s->now_ns ? s->free_ns : s->now_ns) +
                     (int64_t)((double)DLC_CHUNK_BYTES / r->bytes_per_s * 1e9);
        at = s->free_ns + r->delay_ns + r->queue_ns;
    }
    assert_true(s->n_flying < 4096);
    s->flying[s->n_flying++] = (struct flying){ .at_ns = at, .ask = *ask, .damaged = chance(s) < r->damage };
}

static void ask_all(struct sim *s, dlc_fetch *f, int window)
{
    struct dlc_chunk_ask ask;

    while (dlc_fetch_ask(f, &ask, window, s->now_ns)) {
        s->n_asked++;
        if ((s->now_ns >= s->road.cut_from_ns && s->now_ns < s->road.cut_to_ns) || chance(s) < s->road.lose)
            continue;
        fly(s, &ask);
        if (chance(s) < s->road.repeat)
            fly(s, &ask);
        if ((int)s->n_flying > s->most_under_way)
            s->most_under_way = (int)s->n_flying;
    }
}

/* Blobs larger than 13 chunks repeat its bytes; nobody looks at them. */
static void arrive(struct sim *s, dlc_fetch *f, size_t k, uint64_t size_bytes)
{
    struct flying a = s->flying[k];
    struct dlc_buf b = { 0 };
    bool mine, gone;
    dlc_err err;

    s->flying[k] = s->flying[--s->n_flying];
    if (size_bytes == SIZE) {
        assert_int_equal(dlc_chunk_answer(&b, &a.ask, blob, SIZE), DLC_OK);
    } else { /* the header of another chunk, with the bytes of the first */
        static unsigned char *large;

        large = large ? large : dlc_calloc(1, size_bytes);
        assert_int_equal(dlc_chunk_answer(&b, &a.ask, large, size_bytes), DLC_OK);
    }
    if (a.damaged)
        b.data[dlc_rng_below(&s->rng, b.len)] ^= (char)(1 + dlc_rng_below(&s->rng, 255));
    err = dlc_fetch_answer(f, b.data, b.len, &mine, &gone, s->now_ns);
    if ((err != DLC_OK) != a.damaged || gone)
        fail_msg("%s: damaged %d: %s", s->road.why, a.damaged, dlc_err_text());
    dlc_buf_fini(&b);
}

/* To the next arrival, or to the time of asking again. */
static void sim_step(struct sim *s, dlc_fetch *f, uint64_t size_bytes)
{
    int64_t next = dlc_fetch_due_ns(f);
    size_t arrives = SIZE_MAX;

    for (size_t k = 0; k < s->n_flying; k++) {
        if (s->flying[k].at_ns <= next) {
            next = s->flying[k].at_ns;
            arrives = k;
        }
    }
    if (next == INT64_MAX)
        fail_msg("%s: it waits for nothing", s->road.why);
    s->now_ns = next > s->now_ns ? next : s->now_ns;
    if (arrives != SIZE_MAX)
        arrive(s, f, arrives, size_bytes);
}

static void right_in_the_end_on_every_road(void **state)
{
    static const struct road roads[] = {
        { .delay_ns = MS, .why = "a good one", .most_asked = N_CHUNKS, .most_ns = S },
        { .delay_ns = 100 * MS, .jitter_ns = 2 * S, .why = "order changes", .most_asked = N_CHUNKS, .most_ns = 20 * S },
        { .delay_ns = 50 * MS, .lose = 0.3, .repeat = 0.3, .why = "loss", .most_asked = 50, .most_ns = 400 * S },
        { .delay_ns = 50 * MS, .damage = 0.3, .why = "damage", .most_asked = 50, .most_ns = 60 * S },
        { .delay_ns = 50 * MS, .kill = 0.2, .why = "killed", .most_asked = 60, .most_ns = 60 * S },
        { .delay_ns = 50 * MS,
          .kill = 0.1,
          .lose = 0.1,
          .damage = 0.1,
          .repeat = 0.5,
          .jitter_ns = 9 * S,
          .why = "everything",
          .most_asked = 120,
          .most_ns = 900 * S },
        { .bytes_per_s = 125000, .delay_ns = 20 * MS, .why = "1 Mbit/s", .most_asked = 14, .most_ns = 32 * S },
        { .bytes_per_s = 125000, .queue_ns = S, .why = "1 Mbit/s, full", .most_asked = 14, .most_ns = 45 * S },
        { .bytes_per_s = 30000, .queue_ns = S, .why = "0.2 Mbit/s", .most_asked = 17, .most_ns = 160 * S },
        { .bytes_per_s = 1250000, .delay_ns = 20 * MS, .why = "10 Mbit/s", .most_asked = 13, .most_ns = 5 * S },
        { .bytes_per_s = 1250000,
          .delay_ns = 20 * MS,
          .cut_from_ns = S,
          .cut_to_ns = 9 * S,
          .why = "a cut of 8 s",
          .most_asked = 26,
          .most_ns = 25 * S },
    };

    (void)state;
    for (size_t k = 0; k < sizeof roads / sizeof *roads; k++) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
            struct sim s = { .road = roads[k], .rng = { .seed = seed }, .now_ns = 1 };
            dlc_fetch *f;

            begin_empty();
            f = begin(s.road.why);
            while (!dlc_fetch_is_complete(f)) {
                if (chance(&s) < s.road.kill) {
                    dlc_fetch_destroy(f);
                    f = begin(s.road.why);
                }
                ask_all(&s, f, 8);
                sim_step(&s, f, SIZE);
            }
            if (s.n_asked > s.road.most_asked || s.now_ns > s.road.most_ns)
                fail_msg("%s, seed %d: %d questions in %.1f s", s.road.why, (int)seed, s.n_asked,
                         (double)s.now_ns / 1e9);
            assert_int_equal(dlc_fetch_finish(f), DLC_OK);
            assert_int_equal(dlc_fetch_progress(f).bytes, SIZE);
            dlc_fetch_destroy(f);
            assert_file_is_blob(in_folder("blob"), s.road.why);
        }
    }
}

/* 400 chunks, and how many of them are under way when the rate is known. */
static void two_seconds_of_the_road_are_under_way(void **state)
{
    static const struct {
        double bytes_per_s;
        int64_t delay_ns;
        int least, most; /* at the end */
        double most_s;
        const char *why;
    } rows[] = {
        { 125000, 20 * MS, 1, 1, 850, "1 Mbit/s: a chunk takes 2 s" },
        { 1250000, 20 * MS, 8, 10, 90, "10 Mbit/s" },
        { 125e6, 100 * MS, 64, 64, 8, "1 Gbit/s far away: up to the window" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct sim s = {
            .road = { .bytes_per_s = rows[k].bytes_per_s, .delay_ns = rows[k].delay_ns, .why = rows[k].why },
            .now_ns = 1
        };
        struct dlc_blob_ref large = { .size_bytes = 400 * DLC_CHUNK_BYTES };
        dlc_fetch *f;
        int n = 0, under_way = 0;

        begin_empty();
        assert_int_equal(dlc_fetch_create(&f, &large, in_folder("blob")), DLC_OK);
        for (; !dlc_fetch_is_complete(f); n++) {
            ask_all(&s, f, 64);
            if (n == 300)
                under_way = (int)s.n_flying;
            sim_step(&s, f, large.size_bytes);
        }
        if (under_way < rows[k].least || under_way > rows[k].most || s.most_under_way > rows[k].most)
            fail_msg("%s: %d under way, at most %d", rows[k].why, under_way, s.most_under_way);
        if ((double)s.now_ns > rows[k].most_s * 1e9)
            fail_msg("%s: took %.1f s", rows[k].why, (double)s.now_ns / 1e9);
        assert_int_equal(s.n_asked, 400);
        assert_int_equal(dlc_fetch_progress(f).n_asked_again, 0);
        dlc_fetch_destroy(f);
    }
}

/* --- files --- */

static void damage_file(const char *path, long at, long cut_to, int flip)
{
    FILE *file = fopen(path, "r+b");
    int c;

    assert_non_null(file);
    if (flip) {
        fseek(file, at, SEEK_SET);
        c = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc((c == EOF ? 0 : c) ^ flip, file);
    }
    fclose(file);
    if (cut_to >= 0)
        assert_int_equal(truncate(path, cut_to), 0);
}

static void goes_on_with_what_is_whole(void **state)
{
    static const struct {
        const char *file;
        long at, cut_to; /* a byte that is changed (flip) or removed (cut) */
        int flip;
        int n_again; /* chunks that must come again of the 6 that were there */
        const char *why;
    } rows[] = {
        { NULL, 0, -1, 0, 0, "killed, nothing is damaged" },
        { "blob.part", 0, 0, 0, 6, "all bytes are gone" },
        { "blob.part", 0, 3 * 262144 + 5, 0, 3, "cut in the fourth chunk" },
        { "blob.part", 2 * 262144 + 9, -1, 1, 1, "a bit of the third chunk" },
        { "blob.part", 12 * 262144 + 2000, -1, 1, 0, "longer than the blob" },
        { "blob.map", 0, 0, 0, 6, "the map is gone" },
        { "blob.map", 0, 30, 0, 6, "the map is cut in its header" },
        { "blob.map", 0, 56 + 8 * 4 + 3, 0, 2, "the map is cut in an entry" },
        { "blob.map", 56 + 8 * 5, -1, 4, 1, "an entry is another" },
        { "blob.map", 56 + 8 * 9, -1, 4, 0, "an entry of what is not there" },
        { "blob.map", 9, -1, 4, 6, "the map is of another digest" },
        { "blob.map", 44, -1, 1, 6, "the map is of another size" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        dlc_fetch *f;
        int n;

        begin_empty();
        f = begin(rows[k].why);
        assert_int_equal(fetch_some(f, 6, blob), 6);
        dlc_fetch_destroy(f);
        if (rows[k].file)
            damage_file(in_folder(rows[k].file), rows[k].at, rows[k].cut_to, rows[k].flip);
        f = begin(rows[k].why);
        n = fetch_some(f, 100, blob);
        if (n != N_CHUNKS - 6 + rows[k].n_again)
            fail_msg("%s: %d chunks came, expected %d", rows[k].why, n, N_CHUNKS - 6 + rows[k].n_again);
        assert_int_equal(dlc_fetch_finish(f), DLC_OK);
        dlc_fetch_destroy(f);
        assert_file_is_blob(in_folder("blob"), rows[k].why);
    }
}

static void a_whole_file_is_taken_and_another_stays_until_the_end(void **state)
{
    struct dlc_chunk_ask ask;
    struct dlc_buf b = { 0 };
    dlc_fetch *f;

    (void)state;
    begin_empty();
    assert_int_equal(dlc_file_write_atomic(in_folder("blob"), blob, SIZE), DLC_OK);
    assert_int_equal(dlc_file_write_atomic(in_folder("blob.map"), "x", 1), DLC_OK); /* killed before it was removed */
    f = begin("whole");
    assert_true(dlc_fetch_is_complete(f));
    assert_false(dlc_fetch_ask(f, &ask, 4, 1));
    assert_int_equal(dlc_fetch_progress(f).bytes, SIZE);
    assert_int_equal(dlc_fetch_finish(f), DLC_OK);
    dlc_fetch_destroy(f);
    assert_file_is_blob(in_folder("blob"), "whole");

    damage_file(in_folder("blob"), 100, -1, 1);
    f = begin("another of the same size");
    assert_int_equal(fetch_some(f, 100, blob), N_CHUNKS);
    assert_int_equal(dlc_file_read(&b, in_folder("blob"), SIZE), DLC_OK);
    assert_int_not_equal(b.data[100], (char)blob[100]);
    assert_int_equal(dlc_fetch_finish(f), DLC_OK);
    assert_int_equal(dlc_fetch_finish(f), DLC_OK); /* and once more */
    dlc_fetch_destroy(f);
    dlc_buf_fini(&b);
    assert_file_is_blob(in_folder("blob"), "another before");
}

static void a_wrong_digest_begins_again(void **state)
{
    unsigned char *wrong = dlc_alloc(SIZE);
    dlc_fetch *f;

    (void)state;
    assert_non_null(wrong);
    memcpy(wrong, blob, SIZE);
    wrong[SIZE - 1] ^= 1;
    begin_empty();
    f = begin("wrong");
    assert_int_equal(fetch_some(f, 100, wrong), N_CHUNKS);
    assert_int_equal(dlc_fetch_finish(f), DLC_EPEER);
    assert_non_null(strstr(dlc_err_text(), "announced was"));
    assert_false(dlc_file_exists(in_folder("blob")));
    assert_int_equal(dlc_fetch_progress(f).bytes, 0);
    assert_int_equal(dlc_fetch_finish(f), DLC_EFAIL);
    assert_int_equal(fetch_some(f, 100, blob), N_CHUNKS);
    assert_int_equal(dlc_fetch_finish(f), DLC_OK);
    dlc_fetch_destroy(f);
    dlc_free(wrong);
    assert_file_is_blob(in_folder("blob"), "right");
}

/* A limit of the file's size is to the program what a full disk is. */
static void a_full_disk_is_said_and_what_came_stays(void **state)
{
    struct rlimit was, small;
    struct dlc_chunk_ask ask;
    dlc_fetch *f;

    (void)state;
    begin_empty();
    f = begin("full disk");
    assert_int_equal(fetch_some(f, 4, blob), 4);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    small = (struct rlimit){ .rlim_cur = 5 * DLC_CHUNK_BYTES + 100, .rlim_max = was.rlim_max };
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(fetch_some(f, 1, blob), 1);
    assert_true(dlc_fetch_ask(f, &ask, 4, 1 * S));
    assert_int_equal(answer(f, &ask, blob, 1 * S), DLC_EIO);
    assert_non_null(strstr(dlc_err_text(), "blob.part: cannot be written"));
    assert_int_equal(dlc_fetch_progress(f).bytes, 5 * DLC_CHUNK_BYTES);
    setrlimit(RLIMIT_FSIZE, &was);
    dlc_fetch_destroy(f);
    f = begin("room again");
    assert_int_equal(fetch_some(f, 100, blob), N_CHUNKS - 5);
    assert_int_equal(dlc_fetch_finish(f), DLC_OK);
    dlc_fetch_destroy(f);
    assert_file_is_blob(in_folder("blob"), "room again");
}

static void folders_that_are_not_there_are_named(void **state)
{
    struct dlc_blob_ref huge = { .size_bytes = DLC_FETCH_MAX_BYTES + 1 };
    dlc_fetch *f;

    (void)state;
    begin_empty();
    assert_int_equal(dlc_fetch_create(&f, &ref, in_folder("none/blob")), DLC_EIO);
    assert_non_null(strstr(dlc_err_text(), "none/blob.part: cannot be opened"));
    assert_null(f);
    assert_int_equal(dlc_fetch_create(&f, &huge, in_folder("blob")), DLC_EPEER);
    assert_int_equal(symlink("/etc/none", in_folder("blob.part")), 0);
    assert_int_equal(dlc_fetch_create(&f, &ref, in_folder("blob")), DLC_EIO); /* never through a link */
}

static void an_empty_blob(void **state)
{
    struct dlc_blob_ref empty = { .digest = dlc_sha256("", 0) };
    uint64_t size = 1;
    dlc_fetch *f;

    (void)state;
    begin_empty();
    assert_int_equal(dlc_fetch_create(&f, &empty, in_folder("blob")), DLC_OK);
    assert_true(dlc_fetch_is_complete(f));
    assert_int_equal(dlc_fetch_finish(f), DLC_OK);
    assert_int_equal(dlc_file_size(&size, in_folder("blob")), DLC_OK);
    assert_int_equal(size, 0);
    dlc_fetch_destroy(f);
}

static void no_memory_leaves_nothing_open(void **state)
{
    dlc_fetch *f;

    (void)state;
    begin_empty();
    f = begin("memory");
    assert_int_equal(fetch_some(f, 3, blob), 3);
    dlc_fetch_destroy(f);
    for (uint64_t n = 1; n <= 3; n++) {
        dlc_mem_fail_at(n);
        assert_int_equal(dlc_fetch_create(&f, &ref, in_folder("blob")), DLC_ENOMEM);
        assert_null(f);
    }
    dlc_mem_fail_at(0);
    f = begin("memory again");
    assert_int_equal(dlc_fetch_progress(f).bytes, 3 * DLC_CHUNK_BYTES);
    dlc_fetch_destroy(f);
}

/* --- answers --- */

static void answers_of_others_gone_and_late(void **state)
{
    struct dlc_chunk_ask ask, other = { .index = 0 };
    struct dlc_buf b = { 0 };
    bool mine, gone;
    dlc_fetch *f;

    (void)state;
    begin_empty();
    f = begin("answers");
    assert_true(dlc_fetch_ask(f, &ask, 1, S));
    assert_int_equal(ask.index, 0);
    assert_false(dlc_fetch_ask(f, &other, 1, S));
    assert_int_equal(dlc_fetch_due_ns(f), 6 * S);

    other = (struct dlc_chunk_ask){ .index = 0 };
    assert_int_equal(dlc_chunk_answer(&b, &other, blob, SIZE), DLC_OK);
    assert_int_equal(dlc_fetch_answer(f, b.data, b.len, &mine, &gone, S), DLC_OK);
    assert_false(mine || gone);

    assert_int_equal(dlc_chunk_answer(&b, &ask, NULL, 0), DLC_OK);
    assert_int_equal(dlc_fetch_answer(f, b.data, b.len, &mine, &gone, S), DLC_EPEER);
    assert_true(mine && gone);
    assert_true(dlc_fetch_ask(f, &ask, 1, 2 * S)); /* whoever gives up does it for himself */
    assert_int_equal(ask.index, 0);

    assert_int_equal(dlc_chunk_answer(&b, &ask, blob, SIZE - 1), DLC_OK); /* of another size */
    assert_int_equal(dlc_fetch_answer(f, b.data, b.len, &mine, &gone, S), DLC_EPEER);
    assert_true(mine && !gone);

    assert_int_equal(dlc_chunk_answer(&b, &ask, blob, SIZE), DLC_OK);
    b.data[b.len - 1] ^= 1;
    assert_int_equal(dlc_fetch_answer(f, b.data, b.len, &mine, &gone, 2 * S), DLC_EPEER);
    assert_non_null(strstr(dlc_err_text(), "chunk 0 is damaged"));
    assert_true(mine && !gone);
    assert_true(dlc_fetch_ask(f, &ask, 1, 2 * S)); /* asked again at once */
    assert_int_equal(ask.index, 0);
    assert_int_equal(dlc_fetch_progress(f).bytes, 0);

    assert_int_equal(answer(f, &ask, blob, 3 * S), DLC_OK);
    assert_int_equal(answer(f, &ask, blob, 4 * S), DLC_OK); /* twice */
    ask.index = 9;
    assert_int_equal(answer(f, &ask, blob, 4 * S), DLC_OK); /* never asked for by this life, and welcome */
    assert_int_equal(dlc_fetch_progress(f).bytes, 2 * DLC_CHUNK_BYTES);
    assert_int_equal(dlc_fetch_due_ns(f), INT64_MAX);
    assert_int_equal(fetch_some(f, 100, blob), N_CHUNKS - 2);
    dlc_fetch_destroy(f);
    dlc_buf_fini(&b);
}

static void asked_again_in_time(void **state)
{
    struct dlc_chunk_ask ask;
    dlc_fetch *f;

    (void)state;
    begin_empty();
    f = begin("time");
    assert_true(dlc_fetch_ask(f, &ask, 1, S));
    assert_false(dlc_fetch_ask(f, &ask, 1, 6 * S - 1));
    assert_true(dlc_fetch_ask(f, &ask, 1, 6 * S)); /* after 5 s */
    assert_int_equal(dlc_fetch_due_ns(f), 16 * S); /* and then 10 */
    dlc_fetch_ask_again(f);                        /* a new road */
    assert_true(dlc_fetch_ask(f, &ask, 1, 7 * S));
    assert_int_equal(ask.index, 0);
    assert_int_equal(answer(f, &ask, blob, 10 * S), DLC_OK); /* took 3 s */
    assert_true(dlc_fetch_ask(f, &ask, 1, 10 * S));
    assert_int_equal(dlc_fetch_due_ns(f), 22 * S); /* 4 times 3 s */
    assert_int_equal(dlc_fetch_progress(f).n_asked_again, 2);
    dlc_fetch_destroy(f);
}

/* From memory of exactly that size, so that a sanitizer sees one byte too many. */
static dlc_err take_exactly(dlc_fetch *f, const char *bytes, size_t n)
{
    char *copy = dlc_alloc(n);
    bool mine, gone;
    dlc_err err;

    assert_non_null(copy);
    memcpy(copy, bytes, n);
    err = dlc_fetch_answer(f, copy, n, &mine, &gone, 5 * S);
    dlc_free(copy);
    return err;
}

static void damaged_bytes_are_refused_and_change_nothing(void **state)
{
    struct dlc_chunk_ask ask = { .digest = ref.digest, .index = 12 };
    struct dlc_buf b = { 0 };
    dlc_fetch *f;

    (void)state;
    begin_empty();
    f = begin("damage");
    assert_int_equal(dlc_chunk_answer(&b, &ask, blob, SIZE), DLC_OK);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(take_exactly(f, b.data, n), DLC_EPEER);
    for (size_t i = 0; i < b.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            b.data[i] ^= (char)(1 << bit);
            if (take_exactly(f, b.data, b.len) != DLC_EPEER)
                fail_msg("bit %d of byte %zu changed and taken", bit, i);
            b.data[i] ^= (char)(1 << bit);
        }
    }
    assert_int_equal(dlc_fetch_progress(f).bytes, 0);
    assert_int_equal(take_exactly(f, b.data, b.len), DLC_OK);
    assert_int_equal(dlc_fetch_progress(f).bytes, 1001);
    dlc_fetch_destroy(f);
    dlc_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_bytes_are_refused_and_change_nothing),
        cmocka_unit_test(answers_of_others_gone_and_late),
        cmocka_unit_test(asked_again_in_time),
        cmocka_unit_test(goes_on_with_what_is_whole),
        cmocka_unit_test(a_whole_file_is_taken_and_another_stays_until_the_end),
        cmocka_unit_test(a_wrong_digest_begins_again),
        cmocka_unit_test(a_full_disk_is_said_and_what_came_stays),
        cmocka_unit_test(folders_that_are_not_there_are_named),
        cmocka_unit_test(an_empty_blob),
        cmocka_unit_test(no_memory_leaves_nothing_open),
        cmocka_unit_test(right_in_the_end_on_every_road),
        cmocka_unit_test(two_seconds_of_the_road_are_under_way),
    };

    return cmocka_run_group_tests_name("fetch", tests, make_folder, remove_folder);
}
