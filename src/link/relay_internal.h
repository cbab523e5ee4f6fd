/* What the relay's own files share. */
#ifndef DLC_LINK_RELAY_INTERNAL_H
#define DLC_LINK_RELAY_INTERNAL_H

#include <stdbool.h>
#include <sys/socket.h>

#include "link/relay.h"

#define NEVER_NS INT64_MAX

/* The rate of one direction. Credit may go below zero: who reads is told how long the line takes to send what it read.
 */
struct dlc__line {
    double bytes_per_s; /* 0: no limit */
    double credit;      /* bytes that may be sent now */
    int64_t at_ns;      /* of the credit */
    bool waiting;       /* something to send was left, only for lack of credit */
    double behind_s;
};

void dlc__line_set(struct dlc__line *line, double bits_per_s, int64_t now_ns);
void dlc__line_refill(struct dlc__line *line, int64_t now_ns);
bool dlc__line_ready(const struct dlc__line *line);
/* Takes n bytes; the nanoseconds until the last of them is on its way. */
int64_t dlc__line_send(struct dlc__line *line, size_t n);
int64_t dlc__line_wait_ns(const struct dlc__line *line); /* until there is credit */
size_t dlc__line_quantum(const struct dlc__line *line);  /* most to send in one go */

/* Bytes that came in together and leave together. */
struct dlc__block {
    struct dlc__block *next;
    int64_t due_ns;
    size_t n, sent;
    unsigned char bytes[];
};

/* One direction of one connection. */
struct dlc__pipe {
    struct dlc__block *first, *last;
    size_t held;
    bool readable, writable; /* what the kernel said last; only a call that would block takes it back */
    bool end_read, end_sent;
    int64_t end_due_ns, stalled_until_ns;
    uint64_t n_segments; /* so far: the counter of the random losses */
};

struct dlc__connection {
    int fd[2]; /* [DLC_LINK_UP]: where "up" comes from, the one who connected; [DLC_LINK_DOWN]: the target. -1: free */
    bool connecting;
    int64_t reset_due_ns; /* one side has gone wrong; the other hears of it then. NEVER_NS: all is well */
    uint64_t number;
    struct dlc__pipe pipe[2];
};

struct dlc_link {
    struct dlc_link_config config;
    int epoll_fd, listen_fd, port;
    struct dlc__line line[2];
    struct dlc__connection connections[DLC_LINK_MAX_CONNECTIONS];
    int first_in_turn[2];
    bool knocking; /* somebody waits to be accepted, as far as we know */
    int64_t start_ns, now_ns, next_ns, delay_ns, accept_again_ns, cut_until_ns;
    bool cut, reset_done[DLC_LINK_MAX_EVENTS];
    struct sockaddr_storage target;
    unsigned target_size;
    struct dlc_link_stats stats;
};

/* relay_open.c */
dlc_err dlc__link_listen(dlc_link *link);
dlc_err dlc__link_resolve_target(dlc_link *link);
/* relay_connection.c */
void dlc__link_accept(dlc_link *link);
void dlc__link_connected(dlc_link *link, struct dlc__connection *c); /* the target's socket is writable, or failed */
void dlc__link_close(dlc_link *link, struct dlc__connection *c, bool reset);
/* relay_pipe.c: one read of at most a quantum; true when something came. */
bool dlc__pipe_read(dlc_link *link, struct dlc__connection *c, int direction, dlc_err *err);
void dlc__pipe_write(dlc_link *link, struct dlc__connection *c, int direction);
void dlc__pipe_clear(struct dlc__pipe *p);
bool dlc__pipe_may_read(const dlc_link *link, const struct dlc__connection *c, int direction);

#endif
