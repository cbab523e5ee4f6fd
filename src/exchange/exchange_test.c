/* What every exchange must do, under its own name; then what is particular to each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "exchange/inproc.h"
#include "exchange/local.h"
#include "exchange/nats_test_util.h"

#define ISLANDS 3
#define N_PARAMS 1000
#define SLOT_BYTES 2500

static const struct dlc_exchange_size size = {
    .n_islands = ISLANDS, .n_params = N_PARAMS, .slot_bytes = SLOT_BYTES, .lockstep = true
};

#define must(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != DLC_OK)                                                                                          \
            fail_msg("%s", dlc_err_text());                                                                            \
    } while (0)

/* --- both kinds behind one face ----------------------------------------------------------------------------------- */

struct world {
    const struct kind *kind;
    dlc_hub *hub;
    dlc_endpoint *islands[ISLANDS]; /* NULL: dead */
    dlc_inproc *inproc;
    dlc_local *local;
    dlc_local_endpoint *ends[ISLANDS];
    struct nats_world nats;
};

struct kind {
    const char *name;
    bool real_time;
    bool wired; /* what is sent takes its time, and there is more on the wire than messages */
    void (*open)(struct world *w);
    void (*close)(struct world *w);
    void (*start)(struct world *w, int island); /* (again) */
    void (*die)(struct world *w, int island);
    dlc_err (*island_recv)(struct world *w, int island, struct dlc_message *out, bool *got);
};

static void inproc_start(struct world *w, int i)
{
    w->islands[i] = dlc_inproc_endpoint(w->inproc, i);
}

static void inproc_open(struct world *w)
{
    must(dlc_inproc_create(&w->inproc, &size, NULL));
    w->hub = dlc_inproc_hub(w->inproc);
}

static void inproc_close(struct world *w)
{
    dlc_inproc_destroy(w->inproc);
}

static void inproc_die(struct world *w, int i)
{
    dlc_inproc_cut(w->inproc, i, true);
    w->islands[i] = NULL;
}

static dlc_err inproc_recv(struct world *w, int i, struct dlc_message *out, bool *got)
{
    return dlc_inproc_island_recv(w->inproc, i, out, got);
}

static void local_open(struct world *w)
{
    must(dlc_local_create(&w->local, &size, "/tmp"));
    w->hub = dlc_local_hub(w->local);
}

static void local_start(struct world *w, int i)
{
    int socket_fd, memory_fd = dup(dlc_local_memory_fd(w->local));

    assert_true(memory_fd >= 0);
    must(dlc_local_connect(w->local, i, &socket_fd));
    must(dlc_local_attach(&w->ends[i], &size, i, socket_fd, memory_fd));
    w->islands[i] = dlc_local_endpoint_base(w->ends[i]);
}

static void local_die(struct world *w, int i)
{
    dlc_local_detach(w->ends[i]);
    w->ends[i] = NULL;
    w->islands[i] = NULL;
}

static void local_close(struct world *w)
{
    for (int i = 0; i < ISLANDS; i++)
        local_die(w, i);
    dlc_local_destroy(w->local);
}

static dlc_err local_recv(struct world *w, int i, struct dlc_message *out, bool *got)
{
    return dlc_local_endpoint_recv(w->ends[i], out, got, false);
}

static void wire_start(struct world *w, int i)
{
    nats_start(&w->nats, i);
    nats_until_holds(&w->nats, i, 0);
    w->islands[i] = nats_end(&w->nats, i);
}

static void wire_open(struct world *w)
{
    nats_world_open(&w->nats, N_PARAMS);
    w->hub = w->nats.hub;
}

static void wire_close(struct world *w)
{
    nats_world_close(&w->nats);
}

static void wire_die(struct world *w, int i)
{
    nats_die(&w->nats, i);
    w->islands[i] = NULL;
}

static dlc_err wire_recv(struct world *w, int i, struct dlc_message *out, bool *got)
{
    return dlc_nats_endpoint_recv(w->nats.isles[i].ep, out, got, 0);
}

static const struct kind kinds[] = {
    { "inproc", false, false, inproc_open, inproc_close, inproc_start, inproc_die, inproc_recv },
    { "local", true, false, local_open, local_close, local_start, local_die, local_recv },
    { "nats", true, true, wire_open, wire_close, wire_start, wire_die, wire_recv },
};

/* It stays where it is: both ends of `nats` know its address. */
static void open_world(struct world *w, const struct kind *kind)
{
    *w = (struct world){ .kind = kind };
    kind->open(w);
    for (int i = 0; i < ISLANDS; i++)
        kind->start(w, i);
}

/* --- small steps -------------------------------------------------------------------------------------------------- */

static void island_says(struct world *w, int island, int64_t step)
{
    struct dlc_message m = { .kind = DLC_MSG_PROGRESS, .incarnation = (uint32_t)island, .step = step };

    must(w->islands[island]->ops->send(w->islands[island], &m));
}

static void hub_says(struct world *w, int island, int64_t step)
{
    struct dlc_message m = { .kind = DLC_MSG_MEAN, .step = step };

    must(w->hub->ops->send(w->hub, island, &m));
}

/* The next message to the hub; where messages take their time, it is waited for. */
static void hub_takes(struct world *w, int *island, struct dlc_message *out, bool *lost, bool *got)
{
    int64_t until_ns = dlc_now_ns() + (w->kind->wired ? 10 * DLC_S_NS : 0);

    do
        must(w->hub->ops->recv(w->hub, island, out, lost, got, w->kind->wired ? until_ns : 0));
    while (!*got && dlc_now_ns() < until_ns);
}

/* The island, with its step; -1 when it was lost; -2: nothing. */
static int hub_hears(struct world *w, int64_t *step)
{
    struct dlc_message m;
    bool lost, got;
    int island;

    hub_takes(w, &island, &m, &lost, &got);
    if (!got)
        return -2;
    *step = lost ? -1 : m.step;
    if (!lost) {
        assert_int_equal(m.incarnation, island);
        dlc_message_fini(&m);
    }
    return island;
}

static bool hub_is_silent(struct world *w)
{
    struct dlc_message m;
    bool lost, got;
    int island;

    must(w->hub->ops->recv(w->hub, &island, &m, &lost, &got, w->kind->wired ? dlc_now_ns() + 100 * DLC_MS_NS : 0));
    if (got && !lost)
        dlc_message_fini(&m);
    return !got;
}

static int64_t island_hears_within(struct world *w, int island, int64_t within_ns)
{
    int64_t until_ns = dlc_now_ns() + within_ns, step;
    struct dlc_message m;
    bool got;

    do {
        must(w->kind->island_recv(w, island, &m, &got));
        if (!got && w->kind->wired)
            (void)usleep(1000);
    } while (!got && w->kind->wired && dlc_now_ns() < until_ns);
    if (!got)
        return -2;
    step = m.step;
    dlc_message_fini(&m);
    return step;
}

static int64_t island_hears(struct world *w, int island)
{
    return island_hears_within(w, island, 10 * DLC_S_NS);
}

static bool island_is_silent(struct world *w, int island)
{
    return island_hears_within(w, island, 100 * DLC_MS_NS) == -2;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static void order_is_kept_per_island(struct world *w)
{
    int64_t next[ISLANDS] = { 0 }, step;
    int island;

    for (int64_t s = 0; s < 200; s++) {
        for (int i = 0; i < ISLANDS; i++) {
            island_says(w, i, s);
            hub_says(w, i, 1000 * i + s);
        }
    }
    for (int n = 0; n < 200 * ISLANDS; n++) {
        island = hub_hears(w, &step);
        assert_true(island >= 0);
        assert_int_equal(step, next[island]++);
    }
    assert_true(hub_is_silent(w));
    for (int i = 0; i < ISLANDS; i++) {
        for (int64_t s = 0; s < 200; s++)
            assert_int_equal(island_hears(w, i), 1000 * i + s);
        assert_true(island_is_silent(w, i));
    }
}

static void nobody_is_starved(struct world *w)
{
    int64_t step, heard[ISLANDS] = { 0 };

    for (int64_t s = 0; s < 50; s++)
        island_says(w, 0, s);
    island_says(w, 1, 0);
    island_says(w, 2, 0);
    if (w->kind->wired)
        (void)usleep(500000); /* it has all come */
    for (int k = 0; k < 6; k++) {
        int island = hub_hears(w, &step);

        assert_true(island >= 0);
        heard[island]++;
    }
    assert_true(heard[1] == 1 && heard[2] == 1);
}

static void the_longest_messages_travel(struct world *w)
{
    struct dlc_message m = { .kind = DLC_MSG_ASSIGN, .t = 7, .n_steps = 9 }, back;
    bool lost, got;
    int island;

    if (w->kind->wired)
        m.kind = DLC_MSG_MEAN; /* an assignment waits there until theta(6) stands */
    memset(m.text, 'x', sizeof m.text - 1);
    for (uint64_t i = 0; i < 3250; i++)
        must(dlc_ranges_add(&m.ranges, (struct dlc_range){ 1, 3 * i, 2 }));
    for (int k = 0; k < 20; k++) {
        must(w->hub->ops->send(w->hub, 1, &m));
        do
            must(w->kind->island_recv(w, 1, &back, &got));
        while (!got && hub_is_silent(w)); /* the hub's turn: it sends the rest */
        assert_int_equal(back.ranges.n, 3250);
        assert_int_equal(back.ranges.items[3249].start, 3 * 3249);
        assert_string_equal(back.text, m.text);
        dlc_message_fini(&back);

        must(w->islands[2]->ops->send(w->islands[2], &m));
        hub_takes(w, &island, &back, &lost, &got);
        assert_true(got && !lost && island == 2);
        assert_int_equal(dlc_ranges_count(&back.ranges), 2 * 3250);
        dlc_message_fini(&back);
    }
    dlc_message_fini(&m);
}

static void a_death_is_said_once_and_last(struct world *w)
{
    int64_t step;

    for (int64_t s = 0; s < 5; s++)
        island_says(w, 1, s);
    w->kind->die(w, 1);
    for (int64_t s = 0; s < 5; s++) {
        assert_int_equal(hub_hears(w, &step), 1);
        assert_int_equal(step, s);
    }
    assert_int_equal(hub_hears(w, &step), 1);
    assert_int_equal(step, -1);
    for (int k = 0; k < 3; k++)
        assert_true(hub_is_silent(w));
    island_says(w, 0, 7); /* the others are as before */
    assert_int_equal(hub_hears(w, &step), 0);
}

/* The hub learns of a death from a send that fails; what the island had said before still arrives. */
static void sending_to_the_dead_is_no_error(struct world *w)
{
    int64_t step;

    island_says(w, 2, 40);
    island_says(w, 2, 41);
    w->kind->die(w, 2);
    for (int k = 0; k < 3000; k++)
        hub_says(w, 2, k); /* does not wait, however much it is */
    assert_int_equal(hub_hears(w, &step), 2);
    assert_int_equal(step, 40);
    hub_says(w, 2, 0);
    assert_int_equal(hub_hears(w, &step), 2);
    assert_int_equal(step, 41);
    assert_int_equal(hub_hears(w, &step), 2);
    assert_int_equal(step, -1);
    hub_says(w, 2, 0);
    assert_true(hub_is_silent(w));
}

static void the_dead_come_back(struct world *w)
{
    int64_t step, heard;

    w->kind->die(w, 0);
    assert_int_equal(hub_hears(w, &step), 0);
    assert_int_equal(step, -1);
    w->kind->start(w, 0);
    island_says(w, 0, 3);
    assert_int_equal(hub_hears(w, &step), 0);
    assert_int_equal(step, 3);
    hub_says(w, 0, 77);
    while ((heard = island_hears(w, 0)) != 77)
        assert_int_equal(heard, -2);
}

/* Over a wire: theta(0) was fetched before anything else, and a contribution once it is announced. */
static void bulk_travels(struct world *w)
{
    for (int i = 0; i < ISLANDS; i++) {
        const float *theta = w->islands[i]->ops->theta(w->islands[i], 0);

        nats_say(&w->nats, i, nats_fill_slot(&w->nats, i, 1, 0x10 + i));
        for (int k = 0; k < N_PARAMS; k++)
            assert_true(theta[k] == w->hub->ops->theta(w->hub, 0)[k]);
        assert_true((uintptr_t)theta % 16 == 0);
    }
    for (int i = 0; i < ISLANDS; i++) {
        struct dlc_message m;
        bool lost, got;
        int island;

        hub_takes(w, &island, &m, &lost, &got);
        assert_true(got && !lost);
        assert_int_equal(m.kind, DLC_MSG_CONTRIBUTION);
        nats_check_slot(&w->nats, island, 0x10 + island);
        assert_true((uintptr_t)w->hub->ops->slot(w->hub, island) % 16 == 0);
    }
}

static void bulk_is_seen_on_both_sides(struct world *w)
{
    if (w->kind->wired) {
        bulk_travels(w);
        return;
    }
    for (int i = 0; i < ISLANDS; i++)
        memset(w->islands[i]->ops->slot(w->islands[i]), 0x10 + i, SLOT_BYTES);
    for (int which = 0; which < 2; which++) {
        for (int k = 0; k < N_PARAMS; k++)
            w->hub->ops->theta(w->hub, which)[k] = (float)(1000 * which + k);
    }
    for (int k = 0; k < N_PARAMS; k++)
        w->hub->ops->mean(w->hub)[k] = (float)-k;
    for (int i = 0; i < ISLANDS; i++) {
        const unsigned char *slot = w->hub->ops->slot(w->hub, i);
        dlc_endpoint *ep = w->islands[i];

        for (int k = 0; k < SLOT_BYTES; k++)
            assert_int_equal(slot[k], 0x10 + i); /* nobody else's */
        for (int k = 0; k < N_PARAMS; k++) {
            assert_true(ep->ops->theta(ep, 6)[k] == (float)k);
            assert_true(ep->ops->theta(ep, 7)[k] == (float)(1000 + k)); /* t & 1 */
            assert_true(ep->ops->mean(ep)[k] == (float)-k);
        }
        assert_true((uintptr_t)slot % 16 == 0 && (uintptr_t)ep->ops->theta(ep, 1) % 16 == 0);
    }
}

static void recv_keeps_to_its_deadline(struct world *w)
{
    int64_t began = dlc_now_ns(), now = w->hub->ops->now_ns(w->hub), took;
    struct dlc_message m;
    bool lost, got;
    int island;

    must(w->hub->ops->recv(w->hub, &island, &m, &lost, &got, now + 30000000));
    took = dlc_now_ns() - began;
    assert_false(got);
    if (w->kind->real_time && (took < 29000000 || took > 5000000000))
        fail_msg("a wait of 30 ms took %lld ns", (long long)took);
    must(w->hub->ops->recv(w->hub, &island, &m, &lost, &got, now - 1)); /* past, and zero: at once */
    must(w->hub->ops->recv(w->hub, &island, &m, &lost, &got, 0));
    assert_false(got);
    island_says(w, 1, 1);
    began = dlc_now_ns();
    must(w->hub->ops->recv(w->hub, &island, &m, &lost, &got, w->hub->ops->now_ns(w->hub) + 5000000000)); /* is there */
    assert_true(got && dlc_now_ns() - began < 4000000000);
    dlc_message_fini(&m);
}

static void counters_count_bytes(struct world *w)
{
    struct dlc_message small = { .kind = DLC_MSG_PROGRESS, .incarnation = 1 },
                       large = { .kind = DLC_MSG_FAILED, .incarnation = 1, .text = "twelve bytes" };
    struct dlc_buf b = { 0 };
    size_t small_bytes;
    int64_t step;

    must(dlc_message_encode(&b, &small));
    small_bytes = b.len;
    must(dlc_message_encode(&b, &large));
    must(w->islands[1]->ops->send(w->islands[1], &small));
    must(w->islands[1]->ops->send(w->islands[1], &large));
    must(w->hub->ops->send(w->hub, 1, &small));
    must(w->hub->ops->send(w->hub, 2, &large));
    for (int k = 0; k < 2; k++)
        assert_int_equal(hub_hears(w, &step), 1);
    assert_true(hub_is_silent(w));
    assert_true(w->hub->traffic[1].bytes_up >= b.len && w->hub->traffic[1].bytes_down >= small_bytes);
    if (w->kind->wired) { /* packets and chunks are counted, not messages */
        dlc_buf_fini(&b);
        return;
    }
    assert_int_equal(w->hub->traffic[1].bytes_up, b.len);
    assert_int_equal(w->hub->traffic[1].bytes_down, small_bytes);
    assert_int_equal(w->hub->traffic[2].bytes_down, b.len - small_bytes);
    assert_int_equal(w->hub->traffic[0].bytes_up + w->hub->traffic[0].bytes_down + w->hub->traffic[2].bytes_up, 0);
    dlc_buf_fini(&b);
}

static void every_exchange(void **state)
{
    static void (*const suite[])(struct world *) = {
        order_is_kept_per_island,
        nobody_is_starved,
        the_longest_messages_travel,
        a_death_is_said_once_and_last,
        sending_to_the_dead_is_no_error,
        the_dead_come_back,
        bulk_is_seen_on_both_sides,
        recv_keeps_to_its_deadline,
        counters_count_bytes,
    };

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (kinds[k].wired && !nats_place_open())
            continue;
        for (size_t s = 0; s < sizeof suite / sizeof *suite; s++) {
            struct world w;

            open_world(&w, &kinds[k]);
            suite[s](&w);
            kinds[k].close(&w);
        }
    }
}

/* --- local only --------------------------------------------------------------------------------------------------- */

static void *flood(void *arg)
{
    struct world *w = arg;

    for (int64_t s = 0; s < 20000; s++)
        island_says(w, 0, s);
    return NULL;
}

/* An island that sends faster than the hub reads is held up; nothing is lost and nothing piles up. */
static void a_flood_is_held_up(void **state)
{
    struct world w;
    pthread_t thread;
    int64_t expected = 0, step;

    (void)state;
    open_world(&w, &kinds[1]);
    assert_int_equal(pthread_create(&thread, NULL, flood, &w), 0);
    while (expected < 20000) {
        int island = hub_hears(&w, &step);

        if (island >= 0)
            assert_int_equal(step, expected++);
    }
    pthread_join(thread, NULL);
    kinds[1].close(&w);
}

static void what_is_no_message_ends_the_connection(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *why;
    } rows[] = {
        { "GET / HTTP/1.1\r\n", 16, "another protocol" },
        { "DLCM\1\0\24\0\377\377\377\377", 12, "a length beyond all" },
        { "DLCM\1\0\1\0\0\0\0\0", 12, "a body that is too short" },
    };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct world w = { .kind = &kinds[1] };
        int fd;
        int64_t step;

        local_open(&w);
        local_start(&w, 1);
        must(dlc_local_connect(w.local, 0, &fd));
        assert_int_equal(send(fd, rows[k].bytes, rows[k].n, 0), rows[k].n);
        island_says(&w, 1, 5);
        assert_int_equal(hub_hears(&w, &step) + hub_hears(&w, &step), 1); /* both, in some order */
        assert_int_equal(hub_hears(&w, &step), -2);
        island_says(&w, 1, 6);
        if (hub_hears(&w, &step) != 1 || step != 6)
            fail_msg("%s: the others suffer", rows[k].why);
        close(fd);
        kinds[1].close(&w);
    }
}

/* Over 1 MiB waits for an island that does not read: it counts as dead. */
static void who_never_reads_is_lost(void **state)
{
    struct world w;
    struct dlc_message m = { .kind = DLC_MSG_ASSIGN };
    int64_t step = 0;

    (void)state;
    open_world(&w, &kinds[1]);
    for (uint64_t i = 0; i < 3000; i++)
        must(dlc_ranges_add(&m.ranges, (struct dlc_range){ 1, 3 * i, 2 }));
    for (int k = 0; k < 60; k++)
        must(w.hub->ops->send(w.hub, 0, &m));
    assert_int_equal(hub_hears(&w, &step), 0);
    assert_int_equal(step, -1);
    dlc_message_fini(&m);
    kinds[1].close(&w);
}

/* A message that cannot be encoded is the sender's failure and not the island's. */
static void too_long_a_message_is_an_error(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct dlc_message m = { .kind = DLC_MSG_ASSIGN };
        struct world w;

        if (kinds[k].wired && !nats_place_open())
            continue;
        open_world(&w, &kinds[k]);

        for (uint64_t i = 0; i < 4000; i++)
            must(dlc_ranges_add(&m.ranges, (struct dlc_range){ 1, 3 * i, 2 }));
        assert_int_equal(w.hub->ops->send(w.hub, 0, &m), DLC_EFAIL);
        assert_true(hub_is_silent(&w));
        dlc_message_fini(&m);
        kinds[k].close(&w);
    }
}

static void the_coordinators_end_is_seen(void **state)
{
    struct world w;
    struct dlc_message m = { .kind = DLC_MSG_HELLO };
    bool got;

    (void)state;
    open_world(&w, &kinds[1]);
    hub_says(&w, 0, 5);
    dlc_local_disconnect(w.local, 0);
    assert_int_equal(island_hears(&w, 0), 5); /* what came before the end */
    assert_int_equal(dlc_local_endpoint_recv(w.ends[0], &m, &got, true), DLC_EPEER);
    assert_int_equal(w.islands[0]->ops->send(w.islands[0], &m), DLC_EPEER);
    kinds[1].close(&w);
}

static void sizes_must_agree(void **state)
{
    struct dlc_exchange_size other = size;
    struct world w = { .kind = &kinds[1] };
    dlc_local_endpoint *ep;
    int fd;

    (void)state;
    local_open(&w);
    other.n_params *= 7;
    must(dlc_local_connect(w.local, 0, &fd));
    assert_int_equal(dlc_local_attach(&ep, &other, 0, fd, dup(dlc_local_memory_fd(w.local))), DLC_EPEER);
    assert_null(ep);
    assert_int_equal(dlc_local_attach(&ep, &size, 0, -1, -1), DLC_EFAIL); /* no descriptors at all */
    kinds[1].close(&w);
}

/* --- inproc only -------------------------------------------------------------------------------------------------- */

static void delays_and_duplicates_keep_the_order(void **state)
{
    const struct dlc_inproc_faults faults = { .seed = 3, .delay_max_ns = 50, .duplicate = 0.3 };
    struct world w = { .kind = &kinds[0] };
    int64_t step, last = -1;
    int n = 0, n_twice = 0;

    (void)state;
    must(dlc_inproc_create(&w.inproc, &size, &faults));
    w.hub = dlc_inproc_hub(w.inproc);
    inproc_start(&w, 0);
    for (int64_t s = 0; s < 300; s++)
        island_says(&w, 0, s);
    while (dlc_inproc_next_arrival_ns(w.inproc) != INT64_MAX) {
        dlc_inproc_set_now(w.inproc, dlc_inproc_next_arrival_ns(w.inproc));
        while (hub_hears(&w, &step) >= 0) {
            assert_true(step == last || step == last + 1);
            n_twice += step == last;
            last = step;
            n++;
        }
    }
    assert_int_equal(last, 299);
    assert_int_equal(n, 300 + n_twice);
    assert_true(n_twice > 50 && n_twice < 150);
    dlc_inproc_destroy(w.inproc);
}

static void when_the_hub_dies_everything_on_the_way_is_lost(void **state)
{
    struct world w;
    int64_t step;

    (void)state;
    open_world(&w, &kinds[0]);
    island_says(&w, 0, 1);
    hub_says(&w, 0, 1);
    dlc_inproc_cut(w.inproc, 0, false);
    assert_int_equal(hub_hears(&w, &step), -2);
    assert_int_equal(island_hears(&w, 0), -2);
    kinds[0].close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_exchange),
        cmocka_unit_test(a_flood_is_held_up),
        cmocka_unit_test(what_is_no_message_ends_the_connection),
        cmocka_unit_test(who_never_reads_is_lost),
        cmocka_unit_test(too_long_a_message_is_an_error),
        cmocka_unit_test(the_coordinators_end_is_seen),
        cmocka_unit_test(sizes_must_agree),
        cmocka_unit_test(delays_and_duplicates_keep_the_order),
        cmocka_unit_test(when_the_hub_dies_everything_on_the_way_is_lost),
    };

    int failed;

    dlc_log_set_level(DLC_LOG_ERROR);
    failed = cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
    nats_place_close();
    return failed;
}
