#include "exchange/channel.h"

#include <string.h>

#include "base/mem.h"
#include "exchange/packet.h"

#define WAITING_MAX ((size_t)4 << 20)
#define UNTAKEN_MAX ((size_t)1 << 20) /* received and not asked for by the caller: no more is taken, so none is lost   \
                                       */
#define UNDER_WAY_MAX ((size_t)DLC_PACKET_MAX_BYTES - DLC_PACKET_HEADER_BYTES) /* so that one packet repeats it all */
#define RTO_MIN_NS 200000000LL
#define N_GIVEN_UP 32
#define N_TIMES 64

/* A message on its way out. */
struct item {
    struct item *next;
    uint64_t sent_in; /* number of the last packet that held it; 0: none yet */
    int64_t sent_ns;
    size_t size_bytes;
    unsigned char bytes[];
};

/* A message that came. */
struct arrival {
    struct arrival *next;
    size_t size_bytes;
    struct dlc_message m;
};

struct arrivals {
    struct arrival *head, **end;
    size_t bytes;
};

/* A session of the peer. */
struct peer {
    uint64_t session; /* 0: none */
    uint64_t number;  /* the highest number of a packet that came */
    int64_t came_ns;  /* when that was */
    uint64_t echo;    /* the highest number that it echoed */
};

struct dlc_channel {
    uint64_t session;
    uint64_t number;        /* of the last packet sent */
    int64_t last_ns;        /* when that was */
    int64_t times[N_TIMES]; /* when packet i was sent, at i % N_TIMES */

    struct peer peer;     /* joined */
    struct dlc_note note; /* its newest */
    int64_t heard_ns;
    uint64_t given_up[N_GIVEN_UP];
    size_t n_given_up;

    struct peer candidate; /* heard of, not known to be alive */
    uint64_t named;        /* the first packet that was addressed to it; 0: none yet */
    bool owes_candidate;

    struct item *out, **out_end, *unsent;
    size_t out_bytes, under_way_bytes, n_out;
    uint64_t acked, sent; /* last message that the peer has, that a packet held */

    struct arrivals in;
    uint64_t received; /* last message taken in order */
    bool owes_ack;

    double rtt_ns, rtt_spread_ns; /* 0: none seen */
    unsigned n_probes;            /* since the peer last echoed something new */
};

static void arrivals_clear(struct arrivals *a)
{
    while (a->head) {
        struct arrival *first = a->head;

        a->head = first->next;
        dlc_message_fini(&first->m);
        dlc_free(first);
    }
    a->bytes = 0;
    a->end = &a->head;
}

static void pop_out(dlc_channel *c)
{
    struct item *first = c->out;

    c->out = first->next;
    c->out_bytes -= first->size_bytes;
    c->n_out--;
    if (first == c->unsent)
        c->unsent = first->next;
    else
        c->under_way_bytes -= first->size_bytes;
    if (!c->out)
        c->out_end = &c->out;
    dlc_free(first);
}

dlc_err dlc_channel_create(dlc_channel **out, uint64_t session)
{
    dlc_channel *c = NULL;

    *out = NULL;
    if (session == 0)
        return dlc_fail(DLC_EFAIL, "a channel's session cannot be 0");
    c = dlc_calloc(1, sizeof *c);
    if (!c)
        return DLC_ENOMEM;
    c->session = session;
    c->out_end = &c->out;
    c->in.end = &c->in.head;
    *out = c;
    return DLC_OK;
}

void dlc_channel_destroy(dlc_channel *c)
{
    if (!c)
        return;
    while (c->out)
        pop_out(c);
    arrivals_clear(&c->in);
    dlc_free(c);
}

/* --- out --- */

dlc_err dlc_channel_send(dlc_channel *c, const struct dlc_message *m)
{
    struct dlc_buf b = { 0 };
    struct item *item = NULL;
    dlc_err err;

    DLC_TRY_TO(done, dlc_message_encode(&b, m));
    if (c->out_bytes + b.len > WAITING_MAX) {
        err = dlc_fail(DLC_EPEER, "the other side does not acknowledge: %zu messages, %zu bytes wait", c->n_out,
                       c->out_bytes);
        goto done;
    }
    item = dlc_alloc(sizeof *item + b.len);
    if (!item) {
        err = DLC_ENOMEM;
        goto done;
    }
    *item = (struct item){ .size_bytes = b.len };
    memcpy(item->bytes, b.data, b.len);
    *c->out_end = item;
    c->out_end = &item->next;
    if (!c->unsent)
        c->unsent = item;
    c->out_bytes += b.len;
    c->n_out++;
done:
    dlc_buf_fini(&b);
    return err;
}

static int64_t rto_ns(const dlc_channel *c)
{
    double rto = c->rtt_ns + 4.0 * c->rtt_spread_ns;

    if (c->rtt_ns <= 0.0)
        return DLC_HEARTBEAT_NS;
    return rto < (double)RTO_MIN_NS ? RTO_MIN_NS : rto > 3600e9 ? 3600000000000LL : (int64_t)rto;
}

/* The oldest message under way did not come with the packet that held it. */
static bool is_lost(const dlc_channel *c)
{
    return c->out && c->out != c->unsent && c->out->sent_in <= c->peer.echo;
}

static bool has_more_to_send(const dlc_channel *c)
{
    return c->peer.session != 0 && c->unsent && c->under_way_bytes + c->unsent->size_bytes <= UNDER_WAY_MAX;
}

int64_t dlc_channel_due_ns(const dlc_channel *c)
{
    int64_t due = c->last_ns + DLC_HEARTBEAT_NS, asked;

    if (c->number == 0 || c->owes_candidate || c->owes_ack || has_more_to_send(c))
        return 0;
    if (!c->out || c->out == c->unsent)
        return due;
    if (is_lost(c))
        asked = c->out->sent_ns + rto_ns(c); /* never more often than a round trip, whatever the road does */
    else
        asked = c->last_ns + (rto_ns(c) << c->n_probes);
    return asked < due ? asked : due;
}

static uint32_t held_us(const struct peer *p, int64_t now_ns)
{
    int64_t us = (now_ns - p->came_ns) / 1000;

    return us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

/* How many messages from `from` on the next packet holds, and their bytes. */
static uint32_t fitting(const dlc_channel *c, const struct item *from, size_t *bytes)
{
    size_t under_way = c->under_way_bytes;
    bool is_new = false;
    uint32_t n = 0;

    *bytes = 0;
    for (const struct item *i = from; i; i = i->next, n++) {
        is_new = is_new || i == c->unsent;
        under_way += is_new ? i->size_bytes : 0;
        if (under_way > UNDER_WAY_MAX)
            break;
        *bytes += i->size_bytes;
    }
    return n;
}

/* They are under way from now on. `out` has the room. */
static void put_messages(dlc_channel *c, struct dlc_buf *out, struct item *from, uint32_t n, int64_t now_ns)
{
    for (struct item *i = from; n > 0; i = i->next, n--) {
        if (i == c->unsent) {
            c->under_way_bytes += i->size_bytes;
            c->unsent = i->next;
            c->sent++;
        }
        memcpy(out->data + out->len, i->bytes, i->size_bytes);
        out->len += i->size_bytes;
        i->sent_in = c->number;
        i->sent_ns = now_ns;
    }
    out->data[out->len] = '\0';
}

static void count_packet(dlc_channel *c, int64_t now_ns)
{
    c->number++;
    c->last_ns = now_ns;
    c->times[c->number % N_TIMES] = now_ns;
}

/* To the session that is not joined yet, or to whoever listens. */
static dlc_err greeting(dlc_channel *c, struct dlc_buf *out, const struct dlc_note *note, int64_t now_ns)
{
    struct dlc_packet p = { .session = c->session, .to = c->candidate.session, .number = c->number + 1, .note = *note };

    if (p.to != 0) {
        p.echo = c->candidate.number;
        p.held_us = held_us(&c->candidate, now_ns);
    }
    DLC_TRY(dlc_packet_encode(out, &p));
    count_packet(c, now_ns);
    c->owes_candidate = false;
    if (p.to != 0 && c->named == 0)
        c->named = c->number;
    return DLC_OK;
}

dlc_err dlc_channel_packet(dlc_channel *c, struct dlc_buf *out, const struct dlc_note *note, int64_t now_ns)
{
    struct dlc_packet p = { .session = c->session, .to = c->peer.session, .number = c->number + 1, .note = *note };
    bool repeat = is_lost(c) && now_ns >= c->out->sent_ns + rto_ns(c);
    struct item *from = repeat ? c->out : c->unsent;
    size_t bytes;

    dlc_buf_clear(out);
    if (c->owes_candidate || c->peer.session == 0)
        return greeting(c, out, note, now_ns);
    p.echo = c->peer.number;
    p.held_us = held_us(&c->peer, now_ns);
    p.ack = c->received;
    p.first = repeat ? c->acked + 1 : c->sent + 1;
    p.n_messages = fitting(c, from, &bytes);
    DLC_TRY(dlc_buf_reserve(out, DLC_PACKET_HEADER_BYTES + bytes));
    DLC_TRY(dlc_packet_encode(out, &p));
    count_packet(c, now_ns);
    put_messages(c, out, from, p.n_messages, now_ns);
    c->owes_ack = false;
    c->n_probes = p.n_messages > 0 ? 0 : c->n_probes + (c->n_probes < 4);
    return DLC_OK;
}

/* --- in --- */

dlc_err dlc_channel_peek(struct dlc_note *note, const void *bytes, size_t size_bytes)
{
    const void *messages;
    size_t messages_bytes;
    struct dlc_packet p;

    *note = (struct dlc_note){ 0 };
    DLC_TRY(dlc_packet_decode(&p, &messages, &messages_bytes, bytes, size_bytes));
    *note = p.note;
    return DLC_OK;
}

static dlc_err get_message(struct arrivals *to, const unsigned char **at, size_t *left)
{
    struct arrival *a;
    size_t length;
    dlc_err err;

    if (*left < DLC_MESSAGE_HEADER_BYTES)
        return dlc_fail(DLC_EPEER, "packet ends in the header of a message");
    DLC_TRY(dlc_message_length(&length, *at));
    if (length > *left)
        return dlc_fail(DLC_EPEER, "packet ends in a message");
    a = dlc_alloc(sizeof *a);
    if (!a)
        return DLC_ENOMEM;
    err = dlc_message_decode(&a->m, *at, length);
    if (err != DLC_OK) {
        dlc_free(a);
        return err;
    }
    a->next = NULL;
    a->size_bytes = length;
    *to->end = a;
    to->end = &a->next;
    *at += length;
    *left -= length;
    return DLC_OK;
}

static dlc_err get_messages(struct arrivals *to, const struct dlc_packet *p, const void *bytes, size_t size_bytes)
{
    const unsigned char *at = bytes;
    dlc_err err = DLC_OK;

    for (uint32_t i = 0; err == DLC_OK && i < p->n_messages; i++)
        err = get_message(to, &at, &size_bytes);
    if (err == DLC_OK && size_bytes > 0)
        err = dlc_fail(DLC_EPEER, "packet with %zu bytes behind its messages", size_bytes);
    if (err != DLC_OK)
        arrivals_clear(to);
    return err;
}

/* What the bytes alone do not show. */
static dlc_err check(const dlc_channel *c, const struct dlc_packet *p)
{
    uint64_t sent = p->session == c->peer.session ? c->sent : 0;

    if (p->session == c->session)
        return dlc_fail(DLC_EPEER, "packet of this end's own session");
    for (size_t i = 0; i < N_GIVEN_UP && i < c->n_given_up; i++)
        if (c->given_up[i] == p->session)
            return dlc_fail(DLC_EPEER, "packet of session %016llx, which a newer one has replaced",
                            (unsigned long long)p->session);
    if (p->to == c->session && (p->echo > c->number || p->ack > sent))
        return dlc_fail(DLC_EPEER, "packet echoes %llu of %llu packets, acknowledges %llu of %llu messages",
                        (unsigned long long)p->echo, (unsigned long long)c->number, (unsigned long long)p->ack,
                        (unsigned long long)sent);
    return DLC_OK;
}

/* The candidate is alive: it takes the peer's place. */
static void join(dlc_channel *c)
{
    if (c->peer.session != 0) {
        c->given_up[c->n_given_up++ % N_GIVEN_UP] = c->peer.session;
        while (c->out)
            pop_out(c);
    }
    arrivals_clear(&c->in);
    c->peer = c->candidate;
    c->peer.number = 0; /* so that the packet that joins it is new to it */
    c->candidate = (struct peer){ 0 };
    c->named = 0;
    c->owes_candidate = false;
    c->owes_ack = true;
    c->acked = c->sent = c->received = 0;
    c->rtt_ns = c->rtt_spread_ns = 0.0;
    c->n_probes = 0;
}

/* True when this packet shows that its session lives now. */
static bool consider(dlc_channel *c, const struct dlc_packet *p, int64_t now_ns)
{
    if (c->candidate.session != p->session) {
        c->candidate = (struct peer){ .session = p->session };
        c->named = 0;
    }
    if (p->number > c->candidate.number) {
        c->candidate.number = p->number;
        c->candidate.came_ns = now_ns;
    }
    c->owes_candidate = true;
    return p->to == c->session && c->named != 0 && p->echo >= c->named;
}

static void see_echo(dlc_channel *c, const struct dlc_packet *p, int64_t now_ns)
{
    double rtt;

    if (p->echo <= c->peer.echo)
        return;
    c->peer.echo = p->echo;
    c->n_probes = 0;
    if (p->echo + N_TIMES <= c->number)
        return; /* its time is forgotten */
    rtt = (double)(now_ns - c->times[p->echo % N_TIMES]) - 1e3 * p->held_us;
    rtt = rtt < 1.0 ? 1.0 : rtt;
    if (c->rtt_ns <= 0.0) {
        c->rtt_ns = rtt;
        c->rtt_spread_ns = rtt / 2.0;
        return;
    }
    c->rtt_spread_ns += ((rtt > c->rtt_ns ? rtt - c->rtt_ns : c->rtt_ns - rtt) - c->rtt_spread_ns) / 4.0;
    c->rtt_ns += (rtt - c->rtt_ns) / 8.0;
}

/* Those that are next in order go to c->in; all others are repeated, or come again. */
static void take_messages(dlc_channel *c, struct arrivals *from, uint64_t first)
{
    while (from->head) {
        struct arrival *a = from->head;

        from->head = a->next;
        a->next = NULL;
        if (first++ != c->received + 1 || c->in.bytes + a->size_bytes > UNTAKEN_MAX) {
            dlc_message_fini(&a->m);
            dlc_free(a);
            continue;
        }
        c->received++;
        c->in.bytes += a->size_bytes;
        *c->in.end = a;
        c->in.end = &a->next;
    }
    from->end = &from->head;
}

/* A packet of the joined session. */
static void take(dlc_channel *c, const struct dlc_packet *p, struct arrivals *messages, int64_t now_ns)
{
    if (p->number > c->peer.number) {
        c->peer.number = p->number;
        c->peer.came_ns = c->heard_ns = now_ns;
        c->note = p->note;
    }
    if (p->to != c->session) /* it has not heard of this life yet */
        return;
    see_echo(c, p, now_ns);
    if (p->first == 0 || p->n_messages > 0 || p->first > c->received + 1)
        c->owes_ack = true; /* it waits to be joined, or for an acknowledgement, or something was lost */
    if (p->first == 0)
        return;
    while (c->acked < p->ack) {
        pop_out(c);
        c->acked++;
    }
    take_messages(c, messages, p->first);
}

dlc_err dlc_channel_receive(dlc_channel *c, struct dlc_note *note, bool *fresh, const void *bytes, size_t size_bytes,
                            int64_t now_ns)
{
    struct arrivals messages = { .end = &messages.head };
    const void *at;
    size_t left;
    struct dlc_packet p;

    *note = (struct dlc_note){ 0 };
    *fresh = false;
    DLC_TRY(dlc_packet_decode(&p, &at, &left, bytes, size_bytes));
    DLC_TRY(check(c, &p));
    DLC_TRY(get_messages(&messages, &p, at, left));
    if (p.session != c->peer.session) {
        if (!consider(c, &p, now_ns)) {
            arrivals_clear(&messages);
            return dlc_fail(DLC_ENOTFOUND, "packet of session %016llx, which is not joined yet",
                            (unsigned long long)p.session);
        }
        join(c);
        *fresh = true;
    }
    take(c, &p, &messages, now_ns);
    arrivals_clear(&messages);
    *note = c->note;
    return DLC_OK;
}

bool dlc_channel_next(dlc_channel *c, struct dlc_message *out)
{
    struct arrival *a = c->in.head;

    if (!a)
        return false;
    *out = a->m;
    c->in.head = a->next;
    c->in.bytes -= a->size_bytes;
    if (!c->in.head)
        c->in.end = &c->in.head;
    dlc_free(a);
    return true;
}

bool dlc_channel_is_joined(const dlc_channel *c)
{
    return c->peer.session != 0;
}

int64_t dlc_channel_heard_ns(const dlc_channel *c)
{
    return c->heard_ns;
}

size_t dlc_channel_unacknowledged(const dlc_channel *c)
{
    return c->n_out;
}
