/* The relay's loop: what is due now, and when to look again. */
#include "link/relay.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "link/relay_internal.h"

#define LISTENER UINT64_MAX
#define WINDOW_S 0.25
#define WINDOW_MIN ((size_t)64 << 10)
#define WINDOW_MAX ((size_t)64 << 20)
#define WINDOW_FREE ((size_t)256 << 10)    /* no rate, no delay */
#define WINDOW_FREE_FAR ((size_t)16 << 20) /* no rate, but a delay */
#define READ_IN_A_STEP ((size_t)4 << 20)   /* then it is the writers' turn */
#define MAX_SECONDS 1e6                    /* of any duration here */
#define MAX_BITS_PER_S 1e12
#define MAX_EVENTS 64

/* --- opening and closing --------------------------------------------------------------------------------- */

static bool within(double v, double low, double high)
{
    return v >= low && v <= high; /* no NaN */
}

static dlc_err check_events(const struct dlc_link_config *c)
{
    if (c->n_cuts > DLC_LINK_MAX_EVENTS || c->n_resets > DLC_LINK_MAX_EVENTS)
        return dlc_fail(DLC_EUSAGE, "%zu cuts and %zu resets of a link: at most %d of each", c->n_cuts, c->n_resets,
                        DLC_LINK_MAX_EVENTS);
    for (size_t i = 0; i < c->n_cuts; i++)
        if (!within(c->cuts[i].at_s, 0, MAX_SECONDS) || !within(c->cuts[i].for_s, 0, MAX_SECONDS))
            return dlc_fail(DLC_EUSAGE, "a cut of %g s at %g s: both must lie in 0..%g s", c->cuts[i].for_s,
                            c->cuts[i].at_s, MAX_SECONDS);
    for (size_t i = 0; i < c->n_resets; i++)
        if (!within(c->resets_s[i], 0, MAX_SECONDS))
            return dlc_fail(DLC_EUSAGE, "a reset at %g s: must lie in 0..%g s", c->resets_s[i], MAX_SECONDS);
    return DLC_OK;
}

static dlc_err check_config(const struct dlc_link_config *c)
{
    for (int d = 0; d < 2; d++)
        if (c->bits_per_s[d] != 0 && !within(c->bits_per_s[d], 1, MAX_BITS_PER_S))
            return dlc_fail(DLC_EUSAGE, "a link of %g bit/s: must lie in 1..%g, or 0 for no limit", c->bits_per_s[d],
                            MAX_BITS_PER_S);
    if (!within(c->delay_s, 0, 3600))
        return dlc_fail(DLC_EUSAGE, "a link's delay of %g s: must lie in 0..3600 s", c->delay_s);
    if (!within(c->loss, 0, 0.999))
        return dlc_fail(DLC_EUSAGE, "a link's loss of %g: must lie in 0..0.999", c->loss);
    return check_events(c);
}

static dlc_err watch_listener(dlc_link *link)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data = { .u64 = LISTENER } };

    link->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (link->epoll_fd < 0)
        return dlc_fail_errno(DLC_EFAIL, "epoll for a link");
    if (epoll_ctl(link->epoll_fd, EPOLL_CTL_ADD, link->listen_fd, &event) != 0)
        return dlc_fail_errno(DLC_EFAIL, "epoll for a link");
    return DLC_OK;
}

static dlc_err open_link(dlc_link *link)
{
    DLC_TRY(dlc__link_resolve_target(link));
    DLC_TRY(dlc__link_listen(link));
    DLC_TRY(watch_listener(link));
    link->start_ns = link->now_ns = link->next_ns = dlc_now_ns();
    link->delay_ns = (int64_t)(link->config.delay_s * 1e9);
    for (int d = 0; d < 2; d++) {
        link->line[d].at_ns = link->now_ns;
        dlc__line_set(&link->line[d], link->config.bits_per_s[d], link->now_ns);
    }
    return DLC_OK;
}

dlc_err dlc_link_create(dlc_link **out, const struct dlc_link_config *config)
{
    dlc_link *link;
    dlc_err err;

    *out = NULL;
    DLC_TRY(check_config(config));
    link = dlc_calloc(1, sizeof *link);
    if (!link)
        return DLC_ENOMEM;
    link->config = *config;
    link->epoll_fd = link->listen_fd = -1;
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++)
        link->connections[i].fd[0] = link->connections[i].fd[1] = -1;
    err = open_link(link);
    if (err != DLC_OK)
        dlc_link_destroy(link);
    else
        *out = link;
    return err;
}

void dlc_link_destroy(dlc_link *link)
{
    if (!link)
        return;
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++)
        if (link->connections[i].fd[0] >= 0)
            dlc__link_close(link, &link->connections[i], true);
    if (link->listen_fd >= 0)
        close(link->listen_fd);
    if (link->epoll_fd >= 0)
        close(link->epoll_fd);
    dlc_free(link);
}

/* --- cuts and resets ------------------------------------------------------------------------------------- */

static int64_t after_start_ns(const dlc_link *link, double s)
{
    return link->start_ns + (int64_t)(s * 1e9);
}

static void earlier(int64_t *ns, int64_t candidate_ns)
{
    if (candidate_ns < *ns)
        *ns = candidate_ns;
}

/* Whether nothing passes now; *next_ns: when that changes, or a reset is due. */
static bool is_cut(const dlc_link *link, int64_t *next_ns)
{
    const struct dlc_link_config *c = &link->config;
    bool cut = link->cut_until_ns > link->now_ns;

    if (cut)
        earlier(next_ns, link->cut_until_ns);
    for (size_t i = 0; i < c->n_cuts; i++) {
        int64_t begin_ns = after_start_ns(link, c->cuts[i].at_s);
        int64_t end_ns = after_start_ns(link, c->cuts[i].at_s + c->cuts[i].for_s);

        if (begin_ns > link->now_ns)
            earlier(next_ns, begin_ns);
        else if (end_ns > link->now_ns) {
            cut = true;
            earlier(next_ns, end_ns);
        }
    }
    for (size_t i = 0; i < c->n_resets; i++)
        if (!link->reset_done[i])
            earlier(next_ns, after_start_ns(link, c->resets_s[i]));
    return cut;
}

void dlc_link_reset_now(dlc_link *link)
{
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++) {
        if (link->connections[i].fd[0] < 0)
            continue;
        link->stats.n_reset++;
        dlc__link_close(link, &link->connections[i], true);
    }
    link->next_ns = 0;
}

static void planned_resets(dlc_link *link)
{
    for (size_t i = 0; i < link->config.n_resets; i++) {
        if (link->reset_done[i] || after_start_ns(link, link->config.resets_s[i]) > link->now_ns)
            continue;
        link->reset_done[i] = true;
        dlc_link_reset_now(link);
    }
}

void dlc_link_cut_now(dlc_link *link, double for_s)
{
    int64_t until_ns = dlc_now_ns() + (int64_t)(for_s * 1e9);

    if (until_ns > link->cut_until_ns)
        link->cut_until_ns = until_ns;
    link->next_ns = 0;
}

void dlc_link_set_rate(dlc_link *link, double up_bits_per_s, double down_bits_per_s)
{
    double rates[2] = { up_bits_per_s, down_bits_per_s };

    for (int d = 0; d < 2; d++) {
        link->config.bits_per_s[d] = rates[d];
        dlc__line_set(&link->line[d], rates[d], dlc_now_ns());
    }
    link->next_ns = 0;
}

/* --- one step -------------------------------------------------------------------------------------------- */

static void take_event(dlc_link *link, const struct epoll_event *event)
{
    struct dlc__connection *c;
    int side = (int)(event->data.u64 & 1);

    if (event->data.u64 == LISTENER) {
        link->knocking = true;
        return;
    }
    c = &link->connections[event->data.u64 / 2];
    if (c->fd[side] < 0)
        return;
    if (event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        c->pipe[side].readable = true; /* pipe UP reads from side UP */
    if (event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        c->pipe[!side].writable = true;
    if (c->connecting && side == DLC_LINK_DOWN && (event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR)))
        dlc__link_connected(link, c);
    else if ((event->events & EPOLLERR) && c->reset_due_ns == NEVER_NS)
        c->reset_due_ns = link->now_ns + link->delay_ns; /* also where nothing is read or written now */
}

/* Connections in turn, a quantum each, as long as there is credit and somebody has something. */
static dlc_err read_in_turn(dlc_link *link, int direction)
{
    struct dlc__line *line = &link->line[direction];
    size_t budget = READ_IN_A_STEP;
    dlc_err err = DLC_OK;
    int idle = 0, i = link->first_in_turn[direction];

    dlc__line_refill(line, link->now_ns);
    line->waiting = false;
    for (; idle < DLC_LINK_MAX_CONNECTIONS && err == DLC_OK; i = (i + 1) % DLC_LINK_MAX_CONNECTIONS) {
        struct dlc__connection *c = &link->connections[i];

        if (!dlc__pipe_may_read(link, c, direction)) {
            idle++;
            continue;
        }
        if (!dlc__line_ready(line) || budget < dlc__line_quantum(line)) {
            line->waiting = true;
            break;
        }
        budget -= dlc__line_quantum(line);
        idle = dlc__pipe_read(link, c, direction, &err) ? 0 : idle + 1;
    }
    link->first_in_turn[direction] = i;
    return err;
}

static void end_finished(dlc_link *link)
{
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++) {
        struct dlc__connection *c = &link->connections[i];

        if (c->fd[0] < 0)
            continue;
        if (c->reset_due_ns <= link->now_ns)
            dlc__link_close(link, c, true);
        else if (c->pipe[0].end_sent && c->pipe[1].end_sent)
            dlc__link_close(link, c, false);
    }
}

static void when_for_pipe(int64_t *next_ns, const dlc_link *link, const struct dlc__connection *c, int direction)
{
    const struct dlc__pipe *p = &c->pipe[direction];

    if (p->first && p->writable)
        earlier(next_ns, p->first->due_ns);
    if (!p->first && p->end_read && !p->end_sent)
        earlier(next_ns, p->end_due_ns);
    if (p->stalled_until_ns > link->now_ns)
        earlier(next_ns, p->stalled_until_ns);
    else if (dlc__pipe_may_read(link, c, direction))
        earlier(next_ns, link->now_ns + dlc__line_wait_ns(&link->line[direction]));
}

static int64_t when_next(const dlc_link *link)
{
    int64_t next_ns = NEVER_NS;

    if (is_cut(link, &next_ns))
        return next_ns;
    if (link->knocking && link->stats.n_open < DLC_LINK_MAX_CONNECTIONS)
        earlier(&next_ns, link->accept_again_ns);
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++) {
        const struct dlc__connection *c = &link->connections[i];

        if (c->fd[0] < 0)
            continue;
        earlier(&next_ns, c->reset_due_ns);
        if (c->reset_due_ns == NEVER_NS && !c->connecting)
            for (int d = 0; d < 2; d++)
                when_for_pipe(&next_ns, link, c, d);
    }
    return next_ns;
}

static void write_due(dlc_link *link)
{
    link->now_ns = dlc_now_ns();
    for (int i = 0; i < DLC_LINK_MAX_CONNECTIONS; i++)
        for (int d = 0; d < 2; d++)
            dlc__pipe_write(link, &link->connections[i], d);
}

static dlc_err pass(dlc_link *link)
{
    dlc__link_accept(link);
    write_due(link); /* makes room for what is read now */
    for (int d = 0; d < 2; d++)
        DLC_TRY(read_in_turn(link, d));
    write_due(link);
    end_finished(link);
    dlc__link_accept(link);
    return DLC_OK;
}

/* While cut off, lines earn nothing. */
static void stand_still(dlc_link *link)
{
    for (int d = 0; d < 2; d++) {
        link->line[d].at_ns = link->now_ns;
        link->line[d].waiting = false;
    }
}

dlc_err dlc_link_step(dlc_link *link, double max_wait_s)
{
    struct epoll_event events[MAX_EVENTS];
    double wait_s = fmin(max_wait_s, dlc_link_next_s(link));
    int n = epoll_wait(link->epoll_fd, events, MAX_EVENTS, wait_s > 0 ? (int)ceil(fmin(wait_s, 1e6) * 1e3) : 0);
    int64_t unused_ns = NEVER_NS;
    dlc_err err = DLC_OK;

    if (n < 0 && errno != EINTR)
        return dlc_fail_errno(DLC_EFAIL, "waiting for a link");
    link->now_ns = dlc_now_ns();
    for (int i = 0; i < n; i++)
        take_event(link, &events[i]);
    planned_resets(link);
    link->cut = is_cut(link, &unused_ns);
    if (link->cut)
        stand_still(link);
    else
        err = pass(link);
    link->next_ns = n == MAX_EVENTS ? 0 : when_next(link);
    return err;
}

/* --- what is asked about it ------------------------------------------------------------------------------ */

int dlc_link_fd(const dlc_link *link)
{
    return link->epoll_fd;
}

double dlc_link_next_s(const dlc_link *link)
{
    if (link->next_ns == NEVER_NS)
        return 3600;
    return fmax(0, fmin(3600, (double)(link->next_ns - dlc_now_ns()) * 1e-9));
}

int dlc_link_port(const dlc_link *link)
{
    return link->port;
}

size_t dlc_link_window(const dlc_link *link, int direction)
{
    double bytes_per_s = link->config.bits_per_s[direction] / 8;
    double seconds = fmax(WINDOW_S, 2 * link->config.delay_s);

    if (bytes_per_s == 0)
        return link->delay_ns > 0 ? WINDOW_FREE_FAR : WINDOW_FREE;
    return (size_t)fmin((double)WINDOW_MIN + bytes_per_s * seconds, (double)WINDOW_MAX);
}

void dlc_link_stats(const dlc_link *link, struct dlc_link_stats *out)
{
    *out = link->stats;
    for (int d = 0; d < 2; d++)
        out->behind_s[d] = link->line[d].behind_s;
    out->seconds = (double)(dlc_now_ns() - link->start_ns) * 1e-9;
}
