/* A narrow, far and unreliable link in user space: a TCP relay that passes bytes on no faster than a given rate, a
 * given time later, with losses, cuts and resets as planned. No root, no kernel modules. `diloco link` is this in a
 * loop; tests drive it themselves, from one thread.
 *
 * The model, for each of the two directions ("up" is from who connects towards the target):
 *
 *   rate   bits of payload a second, shared by all connections of the relay in turn, as a line is. A line that was idle
 *          may send 5 ms worth at once, no more; one that was kept waiting (a busy machine) catches up to 250 ms.
 *   delay  one way: a byte leaves that long after it came in, and after the time that the rate gives it.
 *   loss   probability, for each 1448 bytes of a connection, of what TCP makes of a lost segment: this and everything
 *          after it on that connection and direction comes max(2 delay, 200 ms) later, and meanwhile nothing more is
 *          taken from the sender. Congestion windows are not modelled: a real TCP over a lossy, far link is slower
 * still. cut    nothing passes in either direction and nothing is noticed, connections stay open; what was under way
 * comes right after. Connections that are opened meanwhile wait. reset  every connection is reset (RST to both sides);
 * new ones are taken.
 *
 * Queues stay with the sender: a connection's direction holds at most dlc_link_window() bytes, then the relay stops
 * reading. So a peer that never reads stops its own sender and nobody else. A half close arrives as one, in its turn.
 */
#ifndef DLC_LINK_RELAY_H
#define DLC_LINK_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DLC_LINK_MAX_CONNECTIONS 64 /* more wait in the kernel's queue until one of these ends */
#define DLC_LINK_MAX_EVENTS 16      /* planned cuts; planned resets */
#define DLC_LINK_HOST_SIZE 256
#define DLC_LINK_SEGMENT_BYTES 1448 /* what an Ethernet frame carries */

enum { DLC_LINK_UP, DLC_LINK_DOWN };

struct dlc_link_address {
    char host[DLC_LINK_HOST_SIZE]; /* a name, an IPv4 or an IPv6 address (without brackets) */
    int port;
};

struct dlc_link_cut {
    double at_s, for_s; /* since the start */
};

struct dlc_link_config {
    struct dlc_link_address listen, to; /* listen.port 0: any free one */
    double bits_per_s[2];               /* [DLC_LINK_UP, DLC_LINK_DOWN]; 0: as fast as it goes */
    double delay_s;                     /* one way */
    double loss;                        /* [0, 1) */
    struct dlc_link_cut cuts[DLC_LINK_MAX_EVENTS];
    double resets_s[DLC_LINK_MAX_EVENTS]; /* since the start */
    size_t n_cuts, n_resets;
    uint64_t seed; /* of the losses */
};

struct dlc_link_stats {
    uint64_t bytes[2];           /* delivered */
    uint64_t n_lost[2];          /* segments */
    uint64_t peak_held_bytes[2]; /* the most that one connection had under way */
    double behind_s[2]; /* time that nothing was sent because this process did not get to run; not made up for */
    int n_connections, n_open, n_refused /* by the target */, n_reset;
    double seconds; /* since the start */
};

typedef struct dlc_link dlc_link;

/* "HOST:PORT", "[::1]:4222"; `where` is put in front of the message ("--to"). Port 0 where zero_port. */
dlc_err dlc_link_parse_address(struct dlc_link_address *out, const char *text, bool zero_port, const char *where);
dlc_err dlc_link_parse_loss(double *out, const char *text, const char *where);             /* "0.5%", "0.005" */
dlc_err dlc_link_parse_cut(struct dlc_link_cut *out, const char *text, const char *where); /* "30s@120s" */

/* Listens and looks up the target, once; the clock of cuts and resets starts here. DLC_EUSAGE: a value out of range;
 * DLC_EPEER: the address is taken, or there is no such name. */
dlc_err dlc_link_create(dlc_link **out, const struct dlc_link_config *config);
void dlc_link_destroy(dlc_link *link); /* closes everything; accepts NULL */

/* Waits for at most max_wait_s and does what is due. What happens to single connections is no error. A signal ends the
 * wait early. */
dlc_err dlc_link_step(dlc_link *link, double max_wait_s);

/* For those who serve several links or other files in one loop: step when the descriptor is readable (level) or this
 * many seconds have passed. */
int dlc_link_fd(const dlc_link *link);
double dlc_link_next_s(const dlc_link *link); /* 0: at once; at most 3600 */

/* Trouble on the spot; cuts do not add up, the later end counts. */
void dlc_link_cut_now(dlc_link *link, double for_s);
void dlc_link_reset_now(dlc_link *link);
void dlc_link_set_rate(dlc_link *link, double up_bits_per_s, double down_bits_per_s);

int dlc_link_port(const dlc_link *link); /* that it listens at */
size_t dlc_link_window(const dlc_link *link, int direction);
void dlc_link_stats(const dlc_link *link, struct dlc_link_stats *out);

#endif
