/* One direction of one connection: read at the rate, held for the delay, written. */
#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "link/relay_internal.h"

#define STALL_MIN_NS 200000000 /* TCP's shortest time-out of retransmission on Linux */

void dlc__pipe_clear(struct dlc__pipe *p)
{
    for (struct dlc__block *b = p->first, *next; b; b = next) {
        next = b->next;
        dlc_free(b);
    }
    *p = (struct dlc__pipe){ .end_read = true, .end_sent = true };
}

/* Whether one of the segments that n bytes make is lost. */
static bool loses(dlc_link *link, struct dlc__connection *c, int direction, size_t n)
{
    struct dlc__pipe *p = &c->pipe[direction];
    bool lost = false;

    if (link->config.loss <= 0)
        return false;
    for (size_t k = 0; k < (n + DLC_LINK_SEGMENT_BYTES - 1) / DLC_LINK_SEGMENT_BYTES; k++) {
        uint64_t stream = 2 * c->number + (uint64_t)direction;

        if (dlc_rng_uniform(link->config.seed, stream, p->n_segments++) < link->config.loss) {
            link->stats.n_lost[direction]++;
            lost = true;
        }
    }
    return lost;
}

static void append(struct dlc__pipe *p, struct dlc__block *b)
{
    if (p->last)
        p->last->next = b;
    else
        p->first = b;
    p->last = b;
    p->held += b->n;
}

/* The bytes of `b` are in; when do they leave? */
static void take_in(dlc_link *link, struct dlc__connection *c, int direction, struct dlc__block *b)
{
    struct dlc__pipe *p = &c->pipe[direction];
    int64_t now_ns = dlc_now_ns();
    int64_t stall_ns = 2 * link->delay_ns > STALL_MIN_NS ? 2 * link->delay_ns : STALL_MIN_NS;

    b->due_ns = now_ns + dlc__line_send(&link->line[direction], b->n) + link->delay_ns;
    if (loses(link, c, direction, b->n)) {
        b->due_ns += stall_ns;
        p->stalled_until_ns = now_ns + stall_ns;
    }
    append(p, b);
    if (p->held > link->stats.peak_held_bytes[direction])
        link->stats.peak_held_bytes[direction] = p->held;
}

static void went_wrong(dlc_link *link, struct dlc__connection *c)
{
    if (c->reset_due_ns == NEVER_NS)
        c->reset_due_ns = dlc_now_ns() + link->delay_ns;
}

bool dlc__pipe_may_read(const dlc_link *link, const struct dlc__connection *c, int direction)
{
    const struct dlc__pipe *p = &c->pipe[direction];

    return c->fd[0] >= 0 && !c->connecting && c->reset_due_ns == NEVER_NS && p->readable && !p->end_read &&
           p->stalled_until_ns <= link->now_ns && p->held < dlc_link_window(link, direction);
}

bool dlc__pipe_read(dlc_link *link, struct dlc__connection *c, int direction, dlc_err *err)
{
    struct dlc__pipe *p = &c->pipe[direction];
    size_t room = dlc_link_window(link, direction) - p->held, want = dlc__line_quantum(&link->line[direction]);
    struct dlc__block *b;
    ssize_t n;

    want = want < room ? want : room;
    b = dlc_alloc(sizeof *b + want);
    if (!b) {
        *err = DLC_ENOMEM;
        return false;
    }
    n = recv(c->fd[direction], b->bytes, want, MSG_DONTWAIT);
    if (n > 0) {
        *b = (struct dlc__block){ .n = (size_t)n };
        take_in(link, c, direction, b);
        return true;
    }
    if (n == 0) {
        p->end_read = true;
        p->end_due_ns = dlc_now_ns() + link->delay_ns;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        p->readable = false;
    } else if (errno != EINTR) {
        went_wrong(link, c);
    }
    dlc_free(b);
    return false;
}

/* False: no more goes out now. */
static bool write_first(dlc_link *link, struct dlc__connection *c, int direction)
{
    struct dlc__pipe *p = &c->pipe[direction];
    struct dlc__block *b = p->first;
    ssize_t n = send(c->fd[!direction], b->bytes + b->sent, b->n - b->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0) {
        p->writable = false;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            went_wrong(link, c);
        return false;
    }
    b->sent += (size_t)n;
    p->held -= (size_t)n;
    link->stats.bytes[direction] += (uint64_t)n;
    if (b->sent == b->n) {
        p->first = b->next;
        if (!p->first)
            p->last = NULL;
        dlc_free(b);
    }
    return true;
}

void dlc__pipe_write(dlc_link *link, struct dlc__connection *c, int direction)
{
    struct dlc__pipe *p = &c->pipe[direction];

    if (c->fd[0] < 0 || c->connecting || c->reset_due_ns != NEVER_NS)
        return;
    while (p->first && p->writable && p->first->due_ns <= link->now_ns)
        if (!write_first(link, c, direction))
            return;
    if (!p->first && p->end_read && !p->end_sent && p->end_due_ns <= link->now_ns) {
        (void)shutdown(c->fd[!direction], SHUT_WR);
        p->end_sent = true;
    }
}
