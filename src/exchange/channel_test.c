/* Channels over a simulated road that loses, repeats, delays and reorders packets and is cut for seconds, between ends
 * that are killed and started again at any moment: every message once, in order, soon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "base/rng.h"
#include "exchange/channel.h"
#include "exchange/packet.h"

#define MS 1000000LL
#define S 1000000000LL

/* --- the road --- */

struct flying {
    struct dlc_buf bytes;
    int64_t at_ns;
    int to;
};

struct road {
    double lose, repeat;
    int64_t delay_ns, jitter_ns;
    double bytes_per_s; /* 0: no limit. First in, first out */
    int64_t queue_ns;   /* that other traffic fills, always */
    int64_t cut_from_ns, cut_to_ns;
};

struct end {
    dlc_channel *c;
    uint32_t life;
    int64_t n_said; /* messages of this life; the last one's `step` */
    int64_t base;   /* those up to this one were dropped with an earlier peer */
    bool had_peer;
    uint32_t peer_life;       /* who spoke last */
    int64_t n_heard;          /* its last message's step; 0: none since it was joined */
    uint64_t note_t, n_notes; /* the last heard, of the packets sent */
    uint64_t n_packets, n_bytes, n_fresh;
    int64_t total_heard;
};

struct sim {
    struct road road;
    struct dlc_rng rng;
    int64_t now_ns, free_ns[2]; /* when the road to end i is free again */
    struct flying *flying;
    size_t n_flying, cap;
    struct end ends[2];
    size_t text_bytes; /* of each message, at most 199; with n_ranges token ranges */
    size_t n_ranges;
};

static void begin_end(struct sim *s, int i)
{
    struct end *e = &s->ends[i];
    uint32_t life = e->life + 1;

    dlc_channel_destroy(e->c);
    *e = (struct end){ .life = life, .n_packets = e->n_packets, .n_bytes = e->n_bytes, .total_heard = e->total_heard };
    assert_int_equal(dlc_channel_create(&e->c, dlc_rng_u64(s->rng.seed, 77 + (uint64_t)i, life) | 1), DLC_OK);
}

static void sim_init(struct sim *s, uint64_t seed, struct road road)
{
    *s = (struct sim){ .road = road, .rng = { .seed = seed }, .now_ns = 1 };
    begin_end(s, 0);
    begin_end(s, 1);
}

static void sim_fini(struct sim *s)
{
    for (size_t i = 0; i < s->n_flying; i++)
        dlc_buf_fini(&s->flying[i].bytes);
    dlc_free(s->flying);
    dlc_channel_destroy(s->ends[0].c);
    dlc_channel_destroy(s->ends[1].c);
}

static double chance(struct sim *s)
{
    return (double)(dlc_rng_next(&s->rng) >> 11) * 0x1p-53;
}

static void fly(struct sim *s, int to, const struct dlc_buf *b)
{
    struct road *r = &s->road;
    int64_t at = s->now_ns + r->delay_ns + (int64_t)(chance(s) * (double)r->jitter_ns);

    if (r->bytes_per_s > 0) {
        int64_t starts = s->now_ns + r->queue_ns > s->free_ns[to] ? s->now_ns + r->queue_ns : s->free_ns[to];

        s->free_ns[to] = starts + (int64_t)((double)b->len / r->bytes_per_s * 1e9);
        at = s->free_ns[to] + r->delay_ns;
    }
    if (s->n_flying == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->flying = dlc_realloc(s->flying, s->cap * sizeof *s->flying);
        assert_non_null(s->flying);
    }
    s->flying[s->n_flying] = (struct flying){ .at_ns = at, .to = to };
    assert_int_equal(dlc_buf_append(&s->flying[s->n_flying].bytes, b->data, b->len), DLC_OK);
    s->n_flying++;
}

static void send_packet(struct sim *s, int i)
{
    struct end *e = &s->ends[i];
    struct dlc_note note = { .fence = e->life, .t = ++e->n_notes };
    struct dlc_buf b = { 0 };

    assert_int_equal(dlc_channel_packet(e->c, &b, &note, s->now_ns), DLC_OK);
    assert_true(b.len <= DLC_PACKET_MAX_BYTES);
    e->n_packets++;
    e->n_bytes += b.len;
    if (!(s->now_ns >= s->road.cut_from_ns && s->now_ns < s->road.cut_to_ns) && chance(s) >= s->road.lose) {
        fly(s, 1 - i, &b);
        if (chance(s) < s->road.repeat)
            fly(s, 1 - i, &b);
    }
    dlc_buf_fini(&b);
}

static void say(struct sim *s, int i)
{
    struct end *e = &s->ends[i];
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS, .incarnation = e->life, .step = e->n_said + 1 };

    memset(m.text, 'x', s->text_bytes);
    for (size_t k = 0; k < s->n_ranges; k++)
        assert_int_equal(dlc_ranges_add(&m.ranges, (struct dlc_range){ 0, 2 * k, 1 }), DLC_OK);
    assert_int_equal(dlc_channel_send(e->c, &m), DLC_OK);
    assert_true(dlc_channel_due_ns(e->c) <= s->now_ns || !dlc_channel_is_joined(e->c) ||
                dlc_channel_unacknowledged(e->c) > 1);
    e->n_said++;
    dlc_message_fini(&m);
}

static void hear_messages(struct sim *s, int i)
{
    struct end *e = &s->ends[i], *from = &s->ends[1 - i];
    struct dlc_message m;

    while (dlc_channel_next(e->c, &m)) {
        assert_int_equal(m.incarnation, e->peer_life);
        if (e->n_heard > 0)
            assert_int_equal(m.step, e->n_heard + 1);
        else if (from->life == m.incarnation)
            assert_int_equal(m.step, from->base + 1);
        e->n_heard = m.step;
        e->total_heard++;
        dlc_message_fini(&m);
    }
}

static void deliver(struct sim *s, size_t k)
{
    struct flying f = s->flying[k];
    struct end *e = &s->ends[f.to];
    struct dlc_note note;
    bool fresh;
    dlc_err err;

    s->flying[k] = s->flying[--s->n_flying];
    err = dlc_channel_receive(e->c, &note, &fresh, f.bytes.data, f.bytes.len, s->now_ns);
    dlc_buf_fini(&f.bytes);
    if (err == DLC_OK && fresh) {
        assert_true(note.fence > e->peer_life || e->peer_life == 0); /* never back to one that is dead */
        e->base = e->had_peer ? e->n_said : 0;
        e->had_peer = true;
        e->peer_life = (uint32_t)note.fence;
        e->n_heard = 0;
        e->note_t = 0;
        e->n_fresh++;
    }
    if (err == DLC_OK) {
        assert_int_equal(note.fence, e->peer_life);
        assert_true(note.t >= e->note_t);
        e->note_t = note.t;
        hear_messages(s, f.to);
    } else {
        assert_true(err == DLC_ENOTFOUND || err == DLC_EPEER);
        assert_false(fresh);
    }
}

/* The next thing that happens before `until_ns`; false: nothing does, and it is then. */
static bool sim_step(struct sim *s, int64_t until_ns)
{
    int64_t next = until_ns;
    int end = -1;
    size_t arrives = SIZE_MAX;

    for (int i = 0; i < 2; i++) {
        int64_t due = dlc_channel_due_ns(s->ends[i].c);

        due = due < s->now_ns ? s->now_ns : due;
        if (due < next) {
            next = due;
            end = i;
        }
    }
    for (size_t k = 0; k < s->n_flying; k++) {
        if (s->flying[k].at_ns < next) {
            next = s->flying[k].at_ns;
            arrives = k;
        }
    }
    s->now_ns = next;
    if (arrives != SIZE_MAX)
        deliver(s, arrives);
    else if (end >= 0)
        send_packet(s, end);
    return arrives != SIZE_MAX || end >= 0;
}

static void run_for(struct sim *s, int64_t ns)
{
    int64_t until = s->now_ns + ns;

    while (sim_step(s, until))
        ;
}

/* Everything said to the peer of now has been heard by it, and it knows. */
static void assert_all_heard(const struct sim *s, const char *why)
{
    for (int i = 0; i < 2; i++) {
        const struct end *e = &s->ends[i], *p = &s->ends[1 - i];

        if (!dlc_channel_is_joined(e->c) || e->peer_life != p->life)
            fail_msg("%s: end %d is not joined", why, i);
        if (dlc_channel_unacknowledged(e->c) != 0 || (e->n_said > e->base && p->n_heard != e->n_said))
            fail_msg("%s: end %d said %lld (from %lld), %lld were heard, %zu not acknowledged", why, i,
                     (long long)e->n_said, (long long)e->base, (long long)p->n_heard, dlc_channel_unacknowledged(e->c));
    }
}

/* --- tests --- */

static const struct {
    struct road road;
    double kill; /* chance, at each of the moments */
    const char *why;
} roads[] = {
    { { .delay_ns = 100000 }, 0, "a good one" },
    { { .delay_ns = 50 * MS, .jitter_ns = 300 * MS }, 0, "order changes" },
    { { .delay_ns = 50 * MS, .lose = 0.3 }, 0, "three in ten are lost" },
    { { .delay_ns = 20 * MS, .repeat = 0.5, .jitter_ns = 2 * S }, 0, "repeated, and late" },
    { { .delay_ns = 20 * MS, .jitter_ns = 50 * MS, .lose = 0.1 }, 0.01, "ends are killed" },
    { { .delay_ns = 20 * MS, .jitter_ns = 4 * S, .repeat = 0.5, .lose = 0.2 },
      0.02,
      "killed, late packets of the dead" },
    { { .bytes_per_s = 125000, .queue_ns = 1 * S, .delay_ns = 20 * MS }, 0.002, "slow and full" },
};

static void storm(size_t k, uint64_t seed)
{
    struct sim s;
    char why[100];
    int64_t total;

    snprintf(why, sizeof why, "%s, seed %llu", roads[k].why, (unsigned long long)seed);
    sim_init(&s, seed, roads[k].road);
    for (int moment = 0; moment < 600; moment++) {
        run_for(&s, (int64_t)(chance(&s) * 300e6));
        for (int i = 0; i < 2; i++) {
            if (chance(&s) < roads[k].kill)
                begin_end(&s, i);
            for (int n = (int)(chance(&s) * 4.0); n > 0; n--)
                say(&s, i);
        }
        if (s.now_ns > s.road.cut_to_ns && chance(&s) < 0.02) {
            s.road.cut_from_ns = s.now_ns;
            s.road.cut_to_ns = s.now_ns + (int64_t)(chance(&s) * 12e9);
        }
    }
    run_for(&s, 90 * S);
    assert_all_heard(&s, why);
    total = s.ends[0].total_heard + s.ends[1].total_heard;
    if (total < (roads[k].kill > 0.01 ? 100 : 300)) /* so that the test means something */
        fail_msg("%s: only %lld messages came through", why, (long long)total);
    sim_fini(&s);
}

static void once_and_in_order_on_every_road(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof roads / sizeof *roads; k++)
        for (uint64_t seed = 1; seed <= 20; seed++)
            storm(k, seed);
}

static void joined_and_heard_within_two_round_trips(void **state)
{
    struct sim s;

    (void)state;
    sim_init(&s, 1, (struct road){ .delay_ns = 50 * MS });
    say(&s, 0);
    say(&s, 1);
    run_for(&s, 220 * MS);
    assert_int_equal(s.ends[0].n_heard, 1);
    assert_int_equal(s.ends[1].n_heard, 1);
    run_for(&s, 100 * MS);
    assert_all_heard(&s, "after three round trips");
    assert_true(dlc_channel_heard_ns(s.ends[0].c) > 100 * MS);
    sim_fini(&s);
}

static void a_quiet_channel_sends_one_packet_a_second(void **state)
{
    struct sim s;
    uint64_t before;

    (void)state;
    sim_init(&s, 1, (struct road){ .delay_ns = 10 * MS });
    run_for(&s, 3 * S);
    before = s.ends[0].n_packets;
    run_for(&s, 100 * S);
    assert_in_range(s.ends[0].n_packets - before, 99, 101);
    before = s.ends[0].n_packets;
    s.road.lose = 1.0; /* and no more when nobody answers */
    run_for(&s, 100 * S);
    assert_in_range(s.ends[0].n_packets - before, 99, 101);
    sim_fini(&s);
}

static void a_lost_message_comes_again_soon(void **state)
{
    struct sim s;

    (void)state;
    sim_init(&s, 3, (struct road){ .delay_ns = 20 * MS });
    run_for(&s, 10 * S);
    s.road.lose = 1.0;
    say(&s, 0);
    run_for(&s, 1);
    s.road.lose = 0.0;
    run_for(&s, 500 * MS);
    assert_all_heard(&s, "half a second after one loss");
    s.road.cut_from_ns = s.now_ns;
    s.road.cut_to_ns = s.now_ns + 30 * S;
    say(&s, 0);
    run_for(&s, 30 * S);
    assert_int_equal(s.ends[1].n_heard, 1);
    run_for(&s, 1500 * MS);
    assert_all_heard(&s, "after a cut of 30 s");
    sim_fini(&s);
}

/* 1 Mbit/s behind a queue of 1 s: a long message is under way for 1.5 s, and nothing of it is sent twice. */
static void nothing_is_repeated_that_can_still_arrive(void **state)
{
    static const int64_t queues_ns[] = { 0, 1 * S, 10 * S };

    (void)state;
    for (size_t k = 0; k < sizeof queues_ns / sizeof *queues_ns; k++) {
        struct sim s;
        uint64_t bytes;

        sim_init(&s, 5, (struct road){ .bytes_per_s = 125000, .delay_ns = 20 * MS });
        run_for(&s, 20 * S); /* round trips of 40 ms */
        s.road.queue_ns = queues_ns[k];
        bytes = s.ends[0].n_bytes;
        s.n_ranges = 3000; /* 60 KB each */
        for (int i = 0; i < 10; i++)
            say(&s, 0);
        s.n_ranges = 0;
        for (int i = 0; i < 20; i++) {
            say(&s, 0);
            run_for(&s, 1 * S);
        }
        run_for(&s, 180 * S);
        assert_all_heard(&s, "slow link");
        bytes = s.ends[0].n_bytes - bytes;
        if (bytes > 10 * 60200 + 20 * 200 + 330 * 200)
            fail_msg("queue of %lld s: %llu bytes sent for 600 KB", (long long)(queues_ns[k] / S),
                     (unsigned long long)bytes);
        sim_fini(&s);
    }
}

static void what_waits_is_bounded(void **state)
{
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS };
    struct dlc_note note = { 0 };
    struct dlc_buf b = { 0 };
    dlc_channel *c;
    int n = 0;

    (void)state;
    assert_int_equal(dlc_channel_create(&c, 9), DLC_OK);
    while (dlc_channel_send(c, &m) == DLC_OK)
        assert_true(++n < 100000);
    assert_non_null(strstr(dlc_err_text(), "does not acknowledge"));
    assert_in_range(n, (4 << 20) / 173 - 1, (4 << 20) / 173);
    assert_int_equal(dlc_channel_unacknowledged(c), n);
    assert_int_equal(dlc_channel_packet(c, &b, &note, 5), DLC_OK);
    assert_int_equal(b.len, DLC_PACKET_HEADER_BYTES); /* nobody is there to take them */
    dlc_channel_destroy(c);
    dlc_buf_fini(&b);
}

/* Two ends that have met, without a road. */
struct pair {
    dlc_channel *a, *b;
    int64_t now_ns;
};

static dlc_err hand(dlc_channel *from, dlc_channel *to, int64_t now_ns)
{
    struct dlc_note note = { 0 };
    struct dlc_buf b = { 0 };
    bool fresh;
    dlc_err err;

    assert_int_equal(dlc_channel_packet(from, &b, &note, now_ns), DLC_OK);
    err = dlc_channel_receive(to, &note, &fresh, b.data, b.len, now_ns);
    dlc_buf_fini(&b);
    return err;
}

static struct pair met(void)
{
    struct pair p = { .now_ns = 1 };

    assert_int_equal(dlc_channel_create(&p.a, 0xa), DLC_OK);
    assert_int_equal(dlc_channel_create(&p.b, 0xb), DLC_OK);
    assert_int_equal(hand(p.a, p.b, 1), DLC_ENOTFOUND);
    assert_int_equal(hand(p.b, p.a, 1), DLC_ENOTFOUND);
    assert_int_equal(hand(p.a, p.b, 1), DLC_OK);
    assert_int_equal(hand(p.b, p.a, 1), DLC_OK);
    assert_int_equal(hand(p.a, p.b, 1), DLC_OK);
    assert_true(dlc_channel_is_joined(p.a) && dlc_channel_is_joined(p.b));
    return p;
}

static void part(struct pair *p)
{
    dlc_channel_destroy(p->a);
    dlc_channel_destroy(p->b);
}

static void a_receiver_that_does_not_take_is_bounded_and_loses_nothing(void **state)
{
    struct pair p = met();
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS }, got;
    int n_said = 0, n_heard = 0;

    (void)state;
    for (int i = 0; i < 8000; i++, n_said++) {
        m.step = n_said;
        assert_int_equal(dlc_channel_send(p.a, &m), DLC_OK);
        (void)hand(p.a, p.b, p.now_ns += MS);
        (void)hand(p.b, p.a, p.now_ns += MS);
    }
    assert_in_range(n_said - (int)dlc_channel_unacknowledged(p.a), (1 << 20) / 173 - 1, (1 << 20) / 173);
    for (int k = 0; k < 100; k++) {
        for (; dlc_channel_next(p.b, &got); n_heard++)
            assert_int_equal(got.step, n_heard);
        (void)hand(p.a, p.b, p.now_ns += S);
        (void)hand(p.b, p.a, p.now_ns += S);
    }
    assert_int_equal(n_heard, n_said);
    part(&p);
}

static void a_session_that_was_replaced_is_refused(void **state)
{
    struct pair p = met();
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS };
    dlc_channel *next;

    (void)state;
    assert_int_equal(dlc_channel_create(&next, 0xc), DLC_OK);
    assert_int_equal(dlc_channel_send(p.b, &m), DLC_OK);
    assert_int_equal(hand(next, p.b, 2), DLC_ENOTFOUND);
    assert_int_equal(hand(p.a, p.b, 2), DLC_OK); /* it goes on as long as the new one is not known to live */
    assert_int_equal(dlc_channel_unacknowledged(p.b), 1);
    assert_int_equal(hand(p.b, next, 2), DLC_ENOTFOUND);
    assert_int_equal(hand(next, p.b, 2), DLC_OK);
    assert_int_equal(dlc_channel_unacknowledged(p.b), 0);
    assert_int_equal(hand(p.a, p.b, 3), DLC_EPEER);
    assert_non_null(strstr(dlc_err_text(), "a newer one has replaced"));
    assert_int_equal(hand(p.b, p.b, 3), DLC_EPEER);
    assert_non_null(strstr(dlc_err_text(), "own session"));
    dlc_channel_destroy(next);
    part(&p);
}

/* The next packets of both ends, as they would be now: the state, seen from outside. */
static void dump(struct dlc_buf *out, const struct pair *p)
{
    char text[200];

    snprintf(text, sizeof text, "%d %d %zu %zu %lld %lld %lld %lld", dlc_channel_is_joined(p->a),
             dlc_channel_is_joined(p->b), dlc_channel_unacknowledged(p->a), dlc_channel_unacknowledged(p->b),
             (long long)dlc_channel_due_ns(p->a), (long long)dlc_channel_due_ns(p->b),
             (long long)dlc_channel_heard_ns(p->a), (long long)dlc_channel_heard_ns(p->b));
    dlc_buf_clear(out);
    assert_int_equal(dlc_buf_append(out, text, strlen(text)), DLC_OK);
}

static struct dlc_buf packet_with_messages(struct pair *p, int n)
{
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS, .step = 3 };
    struct dlc_note note = { .fence = 1, .t = 2 };
    struct dlc_buf b = { 0 };

    for (int i = 0; i < n; i++)
        assert_int_equal(dlc_channel_send(p->a, &m), DLC_OK);
    assert_int_equal(dlc_channel_packet(p->a, &b, &note, p->now_ns), DLC_OK);
    return b;
}

/* From memory of exactly that size, so that a sanitizer sees one byte too many. */
static dlc_err receive_exactly(dlc_channel *c, const char *bytes, size_t n)
{
    char *copy = dlc_alloc(n);
    struct dlc_note note;
    bool fresh;
    dlc_err err;

    assert_non_null(copy);
    memcpy(copy, bytes, n);
    err = dlc_channel_receive(c, &note, &fresh, copy, n, 10);
    dlc_free(copy);
    return err;
}

static void what_is_refused_changes_nothing(void **state)
{
    struct pair p = met();
    struct dlc_buf b = packet_with_messages(&p, 2), before = { 0 }, after = { 0 };
    struct dlc_message m;
    struct dlc_rng rng = { .seed = 8 };

    (void)state;
    dump(&before, &p);
    for (size_t n = 0; n < b.len; n++) {
        if (receive_exactly(p.b, b.data, n) != DLC_EPEER)
            fail_msg("cut to %zu of %zu bytes and taken", n, b.len);
    }
    for (int k = 0; k < 20000; k++) {
        size_t at = dlc_rng_below(&rng, b.len);
        char was = b.data[at];

        b.data[at] = (char)dlc_rng_next(&rng);
        if (at < 8 || (at >= DLC_PACKET_HEADER_BYTES && at < DLC_PACKET_HEADER_BYTES + 12))
            if (b.data[at] != was && at != 190 && at != 6) /* a kind may become another one, a flag is one */
                assert_int_equal(receive_exactly(p.b, b.data, b.len), DLC_EPEER);
        b.data[at] = was;
    }
    dump(&after, &p);
    assert_string_equal(before.data, after.data);
    assert_int_equal(receive_exactly(p.b, b.data, b.len), DLC_OK);
    assert_true(dlc_channel_next(p.b, &m) && dlc_channel_next(p.b, &m) && !dlc_channel_next(p.b, &m));
    dlc_buf_fini(&b);
    dlc_buf_fini(&before);
    dlc_buf_fini(&after);
    part(&p);
}

static void no_memory_changes_nothing(void **state)
{
    struct pair p = met();
    struct dlc_buf b = packet_with_messages(&p, 3);
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS };
    struct dlc_note note = { 0 };
    struct dlc_buf out = { 0 };
    int n_failed = 0;

    (void)state;
    for (dlc_err err = DLC_ENOMEM; err != DLC_OK; n_failed += err != DLC_OK) {
        bool fresh;

        dlc_mem_fail_at((uint64_t)n_failed + 1);
        err = dlc_channel_receive(p.b, &note, &fresh, b.data, b.len, 10);
        assert_true(err == DLC_OK || (err == DLC_ENOMEM && !dlc_channel_next(p.b, &m)));
    }
    assert_int_equal(n_failed, 3);
    for (int i = 1; i <= 2; i++) {
        dlc_mem_fail_at((uint64_t)i);
        assert_int_equal(dlc_channel_send(p.b, &m), DLC_ENOMEM);
    }
    dlc_mem_fail_at(1);
    assert_int_equal(dlc_channel_packet(p.b, &out, &note, 11), DLC_ENOMEM);
    dlc_mem_fail_at(0);
    assert_int_equal(dlc_channel_unacknowledged(p.b), 0);
    assert_true(dlc_channel_due_ns(p.b) <= 11); /* still owed */
    dlc_buf_fini(&b);
    part(&p);
}

static void headers_that_are_not_sound_are_refused(void **state)
{
    static const struct {
        size_t at;
        uint64_t value; /* of 8 bytes */
        const char *text, *why;
    } rows[] = {
        { 0, 0x50434c45, "not a packet of ours", "magic" },
        { 0, 0x000250434c44, "packet version 2, this program speaks 1", "version" },
        { 0, 0x02000150434c44, "not sound", "an unknown flag" },
        { 0, 0x0100000150434c44, "not sound", "a byte that must be zero" },
        { 8, 0, "not sound", "no session" },
        { 8, 0xb, "not sound", "to itself" },
        { 16, 0, "not sound", "to nobody, with an echo" },
        { 24, 0, "not sound", "no number" },
        { 24, UINT64_MAX, "not sound", "a number beyond all" },
        { 32, 1000, "echoes 1000 of", "an echo of what was not sent" },
        { 40, 0xffffffff00000000, "not sound", "more messages than bytes" },
        { 40, 0x0000000300000000, "ends in the header", "more messages than there are" },
        { 40, 0x0000000100000000, "behind its messages", "fewer messages than there are" },
        { 48, 1, "acknowledges 1 of 0", "an acknowledgement of what was not sent" },
        { 56, 0, "not sound", "messages though not joined" },
        { 56, UINT64_MAX, "not sound", "a message's number beyond all" },
    };
    struct pair p = met();
    struct dlc_buf b = packet_with_messages(&p, 2);

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char was[8];
        struct dlc_cursor c = dlc_cursor(b.data + rows[k].at, 8);

        memcpy(was, b.data + rows[k].at, 8);
        dlc_put_u64(&c, rows[k].value);
        if (receive_exactly(p.b, b.data, b.len) != DLC_EPEER || !strstr(dlc_err_text(), rows[k].text))
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        memcpy(b.data + rows[k].at, was, 8);
    }
    dlc_buf_fini(&b);
    part(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_and_heard_within_two_round_trips),
        cmocka_unit_test(a_quiet_channel_sends_one_packet_a_second),
        cmocka_unit_test(a_lost_message_comes_again_soon),
        cmocka_unit_test(nothing_is_repeated_that_can_still_arrive),
        cmocka_unit_test(once_and_in_order_on_every_road),
        cmocka_unit_test(what_waits_is_bounded),
        cmocka_unit_test(a_receiver_that_does_not_take_is_bounded_and_loses_nothing),
        cmocka_unit_test(a_session_that_was_replaced_is_refused),
        cmocka_unit_test(what_is_refused_changes_nothing),
        cmocka_unit_test(no_memory_changes_nothing),
        cmocka_unit_test(headers_that_are_not_sound_are_refused),
    };

    return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
