/* The relay, driven from one thread together with both ends of its connections, on the loopback interface. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "link/relay.h"

#define BLOCK 16384

/* A target that listens, a relay to it, and one connection through both. */
struct scene {
    dlc_link *link;
    int listener, port;
    int near, far; /* who connected; the target's end. -1: none */
};

static void step(struct scene *s, double s_at_most)
{
    if (dlc_link_step(s->link, s_at_most) != DLC_OK)
        fail_msg("%s", dlc_err_text());
}

static int listen_anywhere(int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 100) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static int connect_to(int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    at.sin_port = htons((uint16_t)port);
    assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0); /* the kernel answers for the relay */
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    return fd;
}

static int accept_far(struct scene *s)
{
    double give_up_s = dlc_now_s() + 5;
    int fd = -1;

    while (fd < 0 && dlc_now_s() < give_up_s) {
        step(s, 0.002);
        fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK);
    }
    assert_true(fd >= 0);
    return fd;
}

static struct scene begin(struct dlc_link_config config)
{
    struct scene s = { .near = -1, .far = -1 };

    s.listener = listen_anywhere(&s.port);
    snprintf(config.listen.host, sizeof config.listen.host, "127.0.0.1");
    snprintf(config.to.host, sizeof config.to.host, "127.0.0.1");
    config.to.port = s.port;
    if (dlc_link_create(&s.link, &config) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return s;
}

static struct scene begin_connected(struct dlc_link_config config)
{
    struct scene s = begin(config);

    s.near = connect_to(dlc_link_port(s.link));
    s.far = accept_far(&s);
    return s;
}

static void end(struct scene *s)
{
    dlc_link_destroy(s->link);
    close(s->listener);
    if (s->near >= 0)
        close(s->near);
    if (s->far >= 0)
        close(s->far);
}

/* What the kernel takes of a pattern; bytes so far. */
static void feed(int fd, uint64_t *n)
{
    unsigned char block[BLOCK];
    ssize_t got;

    for (int i = 0; i < 64; i++) {
        for (size_t k = 0; k < BLOCK; k++)
            block[k] = (unsigned char)((*n + k) * 2654435761u >> 24);
        got = send(fd, block, BLOCK, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (got <= 0)
            return;
        *n += (uint64_t)got;
    }
}

/* What is there, compared with the pattern. 1: more may come, 0: the end, -1: reset. */
static int drain(int fd, uint64_t *n)
{
    unsigned char block[BLOCK];
    ssize_t got;

    while ((got = recv(fd, block, BLOCK, MSG_DONTWAIT)) > 0) {
        for (size_t k = 0; k < (size_t)got; k++, (*n)++)
            if (block[k] != (unsigned char)(*n * 2654435761u >> 24))
                fail_msg("byte %llu is not the one that was sent", (unsigned long long)*n);
    }
    return got == 0 ? 0 : errno == EAGAIN ? 1 : -1;
}

static int64_t ms_since(int64_t ns)
{
    return (dlc_now_ns() - ns) / 1000000;
}

/* --- rate ------------------------------------------------------------------------------------------------ */

static void rate_is_what_was_asked_for(void **state)
{
    static const struct {
        double mbit, seconds;
        bool down;
        double delay_s;
        const char *why;
    } rows[] = {
        { 1, 1.6, false, 0, "slow" },
        { 10, 0.8, true, 0.02, "the way down, from afar" },
        { 100, 0.8, false, 0.08, "much under way" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double bits = rows[i].mbit * 1e6, passed_s, ratio;
        struct scene s = begin_connected((struct dlc_link_config){
            .bits_per_s = { rows[i].down ? 0 : bits, rows[i].down ? bits : 0 }, .delay_s = rows[i].delay_s });
        int from = rows[i].down ? s.far : s.near, to = rows[i].down ? s.near : s.far, d = rows[i].down;
        uint64_t sent = 0, got = 0, got_at_begin;
        struct dlc_link_stats before, after;
        int64_t begin_ns;

        while (got < (uint64_t)(bits / 8 * 0.1)) { /* the line is busy by then */
            feed(from, &sent);
            step(&s, 0.002);
            drain(to, &got);
        }
        dlc_link_stats(s.link, &before);
        got_at_begin = got;
        begin_ns = dlc_now_ns();
        while ((double)(dlc_now_ns() - begin_ns) < rows[i].seconds * 1e9) {
            feed(from, &sent);
            step(&s, 0.002);
            drain(to, &got);
        }
        passed_s = (double)(dlc_now_ns() - begin_ns) * 1e-9;
        dlc_link_stats(s.link, &after);
        ratio = (double)(got - got_at_begin) * 8 / bits / passed_s;
        print_message("%g Mbit/s: %.4f of it in %.2f s, %.3f s of which not run\n", rows[i].mbit, ratio, passed_s,
                      after.behind_s[d] - before.behind_s[d]);
        if (ratio > 1.05)
            fail_msg("%s: %.4f of the rate", rows[i].why, ratio);
        ratio *= passed_s / (passed_s - (after.behind_s[d] - before.behind_s[d]));
        if (ratio < 0.95)
            fail_msg("%s: %.4f of the rate in the time that the relay could run", rows[i].why, ratio);
        end(&s);
    }
}

static void connections_share_the_rate(void **state)
{
    enum { N = 4 };
    double bits = 8e6;
    struct scene s = begin((struct dlc_link_config){ .bits_per_s = { bits, 0 } });
    int near[N], far[N];
    uint64_t sent[N] = { 0 }, got[N] = { 0 }, all = 0;
    int64_t begin_ns;

    (void)state;
    for (int i = 0; i < N; i++) {
        near[i] = connect_to(dlc_link_port(s.link));
        far[i] = accept_far(&s);
    }
    begin_ns = dlc_now_ns();
    while (all < (uint64_t)(bits / 16)) {
        all = 0;
        for (int i = 0; i < N; i++) {
            feed(near[i], &sent[i]);
            drain(far[i], &got[i]);
            all += got[i];
        }
        step(&s, 0.002);
    }
    if (ms_since(begin_ns) < 480)
        fail_msg("half a second's worth came in %lld ms", (long long)ms_since(begin_ns));
    for (int i = 0; i < N; i++) {
        if (fabs((double)got[i] / (double)all - 1.0 / N) > 0.05)
            fail_msg("connection %d of %d got %.3f of the rate", i, N, (double)got[i] / (double)all);
        close(near[i]);
        close(far[i]);
    }
    end(&s);
}

static void a_rate_can_change_on_the_way(void **state)
{
    struct scene s = begin_connected((struct dlc_link_config){ .bits_per_s = { 100e6, 0 } });
    uint64_t sent = 0, got = 0, before;
    int64_t begin_ns;

    (void)state;
    while (got < 200000) {
        feed(s.near, &sent);
        step(&s, 0.002);
        drain(s.far, &got);
    }
    dlc_link_set_rate(s.link, 1e6, 1e6);
    for (begin_ns = dlc_now_ns(); ms_since(begin_ns) < 100;) { /* what was under way */
        step(&s, 0.002);
        drain(s.far, &got);
    }
    before = got;
    for (begin_ns = dlc_now_ns(); ms_since(begin_ns) < 400;) {
        step(&s, 0.002);
        drain(s.far, &got);
    }
    if (got == before || (double)(got - before) * 8 > 1.1e6 * (double)ms_since(begin_ns) / 1e3)
        fail_msg("%llu bytes in %lld ms at 1 Mbit/s", (unsigned long long)(got - before),
                 (long long)ms_since(begin_ns));
    end(&s);
}

/* --- delay and loss -------------------------------------------------------------------------------------- */

static void nothing_comes_before_the_delay(void **state)
{
    struct scene s = begin_connected((struct dlc_link_config){ .delay_s = 0.05, .bits_per_s = { 10e6, 0 } });
    int64_t least_ms = INT64_MAX;

    (void)state;
    for (int i = 0; i < 10; i++) {
        bool down = i % 2;
        int from = down ? s.far : s.near, to = down ? s.near : s.far;
        int64_t begin_ns = dlc_now_ns();
        char c;

        assert_int_equal(send(from, "x", 1, MSG_NOSIGNAL), 1);
        while (recv(to, &c, 1, MSG_DONTWAIT) != 1)
            step(&s, 0.05);
        if (ms_since(begin_ns) < 50)
            fail_msg("a byte came after %lld ms, asked for 50", (long long)ms_since(begin_ns));
        if (ms_since(begin_ns) < least_ms)
            least_ms = ms_since(begin_ns);
    }
    if (least_ms > 75) /* the best of ten, on a busy machine */
        fail_msg("no byte came in less than %lld ms, asked for 50", (long long)least_ms);
    end(&s);
}

static void lost_segments_come_later_and_in_order(void **state)
{
    struct dlc_link_config config = { .loss = 0.05, .seed = 3 };
    struct scene s = begin_connected(config);
    uint64_t sent = 0, got = 0;
    int64_t begin_ns = dlc_now_ns(), gap_ns = begin_ns, longest_ms = 0;
    struct dlc_link_stats stats;

    (void)state;
    while (ms_since(begin_ns) < 700) {
        uint64_t before = got;

        feed(s.near, &sent);
        step(&s, 0.002);
        drain(s.far, &got); /* compares the bytes */
        if (got != before) {
            if (ms_since(gap_ns) > longest_ms)
                longest_ms = ms_since(gap_ns);
            gap_ns = dlc_now_ns();
        }
    }
    dlc_link_stats(s.link, &stats);
    print_message("5 %% loss: %llu segments, %llu bytes, longest silence %lld ms\n",
                  (unsigned long long)stats.n_lost[0], (unsigned long long)got, (long long)longest_ms);
    assert_true(stats.n_lost[0] > 0 && stats.n_lost[1] == 0 && got > 0);
    assert_true(longest_ms >= 200);
    end(&s);
}

static void one_seed_gives_the_same_losses(void **state)
{
    uint64_t n_lost[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct scene s = begin_connected((struct dlc_link_config){ .loss = 0.1, .seed = i == 2 ? 8 : 7 });
        struct dlc_link_stats stats;

        for (int k = 0; k < 20; k++) { /* a segment each, taken by the relay before the next one comes */
            char c[2];

            assert_int_equal(send(s.near, "xy", 2, MSG_NOSIGNAL), 2);
            while (recv(s.far, c, 2, MSG_DONTWAIT) != 2)
                step(&s, 0.01);
        }
        dlc_link_stats(s.link, &stats);
        n_lost[i] = stats.n_lost[0];
        end(&s);
    }
    assert_int_equal(n_lost[0], n_lost[1]);
    assert_true(n_lost[0] > 0 && n_lost[0] < 12);
}

/* --- cuts, resets, ends ---------------------------------------------------------------------------------- */

static void a_cut_is_silent_and_ends(void **state)
{
    struct dlc_link_config config = { .cuts = { { .at_s = 0.2, .for_s = 0.4 } }, .n_cuts = 1 };
    struct scene s = begin_connected(config);
    struct dlc_link_stats stats;
    uint64_t sent = 0, got = 0, n_before = 0, n_in = 0, n_after = 0;

    (void)state;
    do {
        uint64_t before = got;
        double at_s;

        feed(s.near, &sent);
        step(&s, 0.002);
        dlc_link_stats(s.link, &stats);
        at_s = stats.seconds;
        drain(s.far, &got);
        if (at_s < 0.2)
            n_before += got - before;
        else if (at_s > 0.23 && at_s < 0.6) /* what the kernel holds of the target's comes a little later */
            n_in += got - before;
        else if (at_s > 0.6)
            n_after += got - before;
    } while (stats.seconds < 0.8);
    assert_true(n_before > 0 && n_after > 0);
    assert_int_equal(n_in, 0);
    assert_int_equal(stats.n_open, 1);
    end(&s);
}

static void a_cut_on_the_spot_hides_a_death(void **state)
{
    struct scene s = begin_connected((struct dlc_link_config){ .seed = 1 });
    int64_t begin_ns = dlc_now_ns();
    uint64_t got = 0;
    int rc = 1;

    (void)state;
    dlc_link_cut_now(s.link, 0.3);
    close(s.near);
    s.near = connect_to(dlc_link_port(s.link)); /* waits */
    while (rc == 1) {
        step(&s, 0.01);
        rc = drain(s.far, &got);
    }
    if (ms_since(begin_ns) < 300)
        fail_msg("the end was seen after %lld ms of a cut of 300", (long long)ms_since(begin_ns));
    assert_int_equal(rc, 0);
    close(s.far);
    s.far = accept_far(&s);
    end(&s);
}

static void a_reset_ends_connections_and_new_ones_work(void **state)
{
    struct dlc_link_config config = { .resets_s = { 0.15 }, .n_resets = 1 };
    struct scene s = begin_connected(config);
    struct dlc_link_stats stats;
    uint64_t got = 0;

    (void)state;
    do {
        step(&s, 0.01);
        dlc_link_stats(s.link, &stats);
    } while (stats.n_open > 0 && stats.seconds < 5);
    assert_true(stats.seconds >= 0.15 && stats.n_reset == 1);
    assert_int_equal(drain(s.near, &got), -1);
    assert_int_equal(drain(s.far, &got), -1);
    close(s.near);
    close(s.far);
    s.near = connect_to(dlc_link_port(s.link));
    s.far = accept_far(&s);
    assert_int_equal(drain(s.far, &got), 1);
    dlc_link_reset_now(s.link);
    assert_int_equal(drain(s.near, &got), -1);
    end(&s);
}

static void a_half_close_arrives_as_one(void **state)
{
    struct scene s = begin_connected((struct dlc_link_config){ .bits_per_s = { 20e6, 0 }, .delay_s = 0.03 });
    uint64_t got = 0, sent = 0, back = 0, got_back = 0;
    struct dlc_link_stats stats;

    (void)state;
    feed(s.near, &sent);
    assert_int_equal(shutdown(s.near, SHUT_WR), 0);
    while (drain(s.far, &got) == 1)
        step(&s, 0.005);
    assert_int_equal(got, sent); /* the end came after everything else */
    feed(s.far, &back);
    assert_int_equal(shutdown(s.far, SHUT_WR), 0);
    while (drain(s.near, &got_back) == 1)
        step(&s, 0.005);
    assert_int_equal(got_back, back);
    do {
        step(&s, 0.01);
        dlc_link_stats(s.link, &stats);
    } while (stats.n_open > 0 && stats.seconds < 5);
    assert_int_equal(stats.n_open, 0);
    end(&s);
}

static void a_reset_peer_is_told_to_the_other(void **state)
{
    struct linger at_once = { .l_onoff = 1 };
    struct scene s = begin_connected((struct dlc_link_config){ .bits_per_s = { 1e6, 1e6 } });
    uint64_t sent = 0, got = 0;
    int rc = 1;

    (void)state;
    for (int i = 0; i < 50; i++) { /* the window is full, nothing is read any more */
        feed(s.near, &sent);
        step(&s, 0.002);
    }
    assert_int_equal(setsockopt(s.near, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(s.near);
    s.near = -1;
    for (int i = 0; rc == 1 && i < 500; i++) {
        step(&s, 0.01);
        rc = drain(s.far, &got);
    }
    assert_int_equal(rc, -1);
    end(&s);
}

/* --- bounds ---------------------------------------------------------------------------------------------- */

static void queues_stay_with_the_sender(void **state)
{
    struct scene s = begin_connected((struct dlc_link_config){ .bits_per_s = { 10e6, 0 } });
    size_t window = dlc_link_window(s.link, DLC_LINK_UP);
    uint64_t sent = 0, last = 0;
    int64_t still_ns = dlc_now_ns();
    struct dlc_link_stats stats;
    char c = 'x';

    (void)state;
    assert_int_equal(window, 10e6 / 8 * 0.25 + 65536);
    while (ms_since(still_ns) < 700) { /* nobody reads at the far end */
        feed(s.near, &sent);
        step(&s, 0.01);
        if (sent != last)
            still_ns = dlc_now_ns();
        last = sent;
    }
    dlc_link_stats(s.link, &stats);
    print_message("a peer that never reads: %llu bytes held at most, %zu allowed, %llu delivered\n",
                  (unsigned long long)stats.peak_held_bytes[0], window, (unsigned long long)stats.bytes[0]);
    assert_true(stats.peak_held_bytes[0] <= window && stats.peak_held_bytes[0] > window / 2);

    int near = connect_to(dlc_link_port(s.link)), far = accept_far(&s);
    int64_t begin_ns = dlc_now_ns();

    assert_int_equal(send(near, &c, 1, MSG_NOSIGNAL), 1);
    while (recv(far, &c, 1, MSG_DONTWAIT) != 1 && ms_since(begin_ns) < 5000)
        step(&s, 0.01);
    if (ms_since(begin_ns) > 1000)
        fail_msg("another connection waited %lld ms for the one that nobody reads", (long long)ms_since(begin_ns));
    close(near);
    close(far);
    end(&s);
}

static void more_connections_than_places_wait(void **state)
{
    struct scene s = begin((struct dlc_link_config){ .seed = 1 });
    int near[DLC_LINK_MAX_CONNECTIONS + 1], far[DLC_LINK_MAX_CONNECTIONS + 1];
    struct dlc_link_stats stats;

    (void)state;
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++) {
        near[i] = connect_to(dlc_link_port(s.link));
        far[i] = accept_far(&s);
    }
    near[DLC_LINK_MAX_CONNECTIONS] = connect_to(dlc_link_port(s.link));
    for (int i = 0; i < 20; i++)
        step(&s, 0.002);
    dlc_link_stats(s.link, &stats);
    assert_int_equal(stats.n_open, DLC_LINK_MAX_CONNECTIONS);
    close(near[0]);
    close(far[0]);
    far[DLC_LINK_MAX_CONNECTIONS] = accept_far(&s);
    for (int i = 1; i <= DLC_LINK_MAX_CONNECTIONS; i++) {
        close(near[i]);
        close(far[i]);
    }
    end(&s);
}

static void a_target_that_refuses_is_passed_on(void **state)
{
    struct scene s = begin((struct dlc_link_config){ .seed = 1 });
    struct dlc_link_stats stats;
    uint64_t got = 0;
    int rc = 1;

    (void)state;
    close(s.listener);
    s.listener = -1;
    s.near = connect_to(dlc_link_port(s.link));
    for (int i = 0; rc == 1 && i < 500; i++) {
        step(&s, 0.01);
        rc = drain(s.near, &got);
    }
    assert_int_equal(rc, -1);
    dlc_link_stats(s.link, &stats);
    assert_int_equal(stats.n_refused, 1);
    assert_int_equal(stats.n_open, 0);
    end(&s);
}

static void an_idle_link_sleeps(void **state)
{
    struct scene s = begin_connected((struct dlc_link_config){ .bits_per_s = { 1e6, 1e6 }, .delay_s = 0.01 });

    (void)state;
    for (int i = 0; i < 20; i++)
        step(&s, 0.001);
    if (dlc_link_next_s(s.link) < 60)
        fail_msg("nothing is under way, and it wants to run in %g s", dlc_link_next_s(s.link));
    end(&s);
}

/* --- what is typed ---------------------------------------------------------------------------------------- */

static void addresses(void **state)
{
    static const struct {
        const char *text, *host;
        int port;
        bool zero;
        const char *why;
    } rows[] = {
        { "127.0.0.1:5222", "127.0.0.1", 5222, false, "plain" },
        { "a.example:1", "a.example", 1, false, "a name" },
        { "[::1]:65535", "::1", 65535, false, "IPv6" },
        { "127.0.0.1:0", "127.0.0.1", 0, true, "any port" },
        { "127.0.0.1:0", NULL, 0, false, "no port to connect to" },
        { "127.0.0.1", NULL, 0, false, "no port" },
        { ":5222", NULL, 0, false, "no host" },
        { "::1:5222", NULL, 0, false, "IPv6 without brackets" },
        { "[]:1", NULL, 0, false, "empty brackets" },
        { "[::1:1", NULL, 0, false, "open bracket" },
        { "h:65536", NULL, 0, false, "too large" },
        { "h:-1", NULL, 0, false, "negative" },
        { "h:1x", NULL, 0, false, "trailing letters" },
        { "h:", NULL, 0, false, "an empty port" },
        { "", NULL, 0, false, "nothing" },
    };
    struct dlc_link_address a;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dlc_err err = dlc_link_parse_address(&a, rows[i].text, rows[i].zero, "--to");

        if (err != (rows[i].host ? DLC_OK : DLC_EUSAGE))
            fail_msg("%s: '%s' gives %d", rows[i].why, rows[i].text, err);
        if (rows[i].host) {
            assert_string_equal(a.host, rows[i].host);
            assert_int_equal(a.port, rows[i].port);
        }
    }
}

static void losses_and_cuts(void **state)
{
    static const struct {
        const char *text;
        double value; /* < 0: refused */
    } losses[] = { { "0.5%", 0.005 }, { "0.005", 0.005 }, { "0", 0 },      { "100%", -1 }, { "1", -1 },
                   { "-1", -1 },      { "x", -1 },        { "0.5%x", -1 }, { "", -1 },     { "nan", -1 } };
    static const struct {
        const char *text;
        double for_s, at_s; /* < 0: refused */
    } cuts[] = { { "30s@120s", 30, 120 }, { "500ms@2min", 0.5, 120 }, { "1@0", 1, 0 }, { "30s", -1, 0 },
                 { "@120s", -1, 0 },      { "0s@1s", -1, 0 },         { "a@b", -1, 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        double v = -2;

        assert_int_equal(dlc_link_parse_loss(&v, losses[i].text, "--loss"), losses[i].value < 0 ? DLC_EUSAGE : DLC_OK);
        assert_true(losses[i].value < 0 || fabs(v - losses[i].value) < 1e-12);
    }
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct dlc_link_cut cut = { 0 };

        assert_int_equal(dlc_link_parse_cut(&cut, cuts[i].text, "--cut"), cuts[i].for_s < 0 ? DLC_EUSAGE : DLC_OK);
        assert_true(cuts[i].for_s < 0 || (cut.for_s == cuts[i].for_s && cut.at_s == cuts[i].at_s));
    }
}

static void values_out_of_range_are_refused(void **state)
{
    static const struct {
        struct dlc_link_config config;
        dlc_err err;
        const char *text;
    } rows[] = {
        { { .bits_per_s = { -1, 0 } }, DLC_EUSAGE, "bit/s" },
        { { .bits_per_s = { 0, NAN } }, DLC_EUSAGE, "bit/s" },
        { { .delay_s = -1 }, DLC_EUSAGE, "delay" },
        { { .delay_s = INFINITY }, DLC_EUSAGE, "delay" },
        { { .loss = 1 }, DLC_EUSAGE, "loss" },
        { { .n_cuts = DLC_LINK_MAX_EVENTS + 1 }, DLC_EUSAGE, "at most" },
        { { .n_cuts = 1, .cuts = { { 1e9, 1 } } }, DLC_EUSAGE, "a cut" },
        { { .n_resets = 1, .resets_s = { -1 } }, DLC_EUSAGE, "a reset" },
        { { .to = { .host = "no.such.host.invalid", .port = 1 } }, DLC_EPEER, "no.such.host.invalid" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dlc_link_config config = rows[i].config;
        dlc_link *link = (dlc_link *)(uintptr_t)1;

        snprintf(config.listen.host, sizeof config.listen.host, "127.0.0.1");
        if (!config.to.port)
            config.to = (struct dlc_link_address){ .host = "127.0.0.1", .port = 1 };
        assert_int_equal(dlc_link_create(&link, &config), rows[i].err);
        assert_null(link);
        if (!strstr(dlc_err_text(), rows[i].text))
            fail_msg("'%s' does not say '%s'", dlc_err_text(), rows[i].text);
    }
}

static void a_taken_port_is_said(void **state)
{
    struct dlc_link_config config = { .listen = { .host = "127.0.0.1" }, .to = { .host = "127.0.0.1", .port = 1 } };
    int fd = listen_anywhere(&config.listen.port);
    dlc_link *link;

    (void)state;
    assert_int_equal(dlc_link_create(&link, &config), DLC_EPEER);
    assert_non_null(strstr(dlc_err_text(), "--listen: 127.0.0.1 port"));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_is_what_was_asked_for),
        cmocka_unit_test(connections_share_the_rate),
        cmocka_unit_test(a_rate_can_change_on_the_way),
        cmocka_unit_test(nothing_comes_before_the_delay),
        cmocka_unit_test(lost_segments_come_later_and_in_order),
        cmocka_unit_test(one_seed_gives_the_same_losses),
        cmocka_unit_test(a_cut_is_silent_and_ends),
        cmocka_unit_test(a_cut_on_the_spot_hides_a_death),
        cmocka_unit_test(a_reset_ends_connections_and_new_ones_work),
        cmocka_unit_test(a_half_close_arrives_as_one),
        cmocka_unit_test(a_reset_peer_is_told_to_the_other),
        cmocka_unit_test(queues_stay_with_the_sender),
        cmocka_unit_test(more_connections_than_places_wait),
        cmocka_unit_test(a_target_that_refuses_is_passed_on),
        cmocka_unit_test(an_idle_link_sleeps),
        cmocka_unit_test(addresses),
        cmocka_unit_test(losses_and_cuts),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(a_taken_port_is_said),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
