/* The rate of a line. */
#include "link/relay_internal.h"

#define IDLE_BURST_S 0.005
#define CATCH_UP_S 0.25
#define MAX_QUANTUM 65536.0

void dlc__line_set(struct dlc__line *line, double bits_per_s, int64_t now_ns)
{
    dlc__line_refill(line, now_ns);
    line->bytes_per_s = bits_per_s / 8;
    line->credit = 0;
    line->waiting = false;
}

void dlc__line_refill(struct dlc__line *line, int64_t now_ns)
{
    double passed_s = (double)(now_ns - line->at_ns) * 1e-9;
    double most = line->bytes_per_s * (line->waiting ? CATCH_UP_S : IDLE_BURST_S);

    line->at_ns = now_ns;
    line->credit += passed_s * line->bytes_per_s;
    if (line->bytes_per_s == 0 || line->credit <= most)
        return;
    if (line->waiting)
        line->behind_s += (line->credit - most) / line->bytes_per_s;
    line->credit = most;
}

bool dlc__line_ready(const struct dlc__line *line)
{
    return line->bytes_per_s == 0 || line->credit > 0;
}

int64_t dlc__line_send(struct dlc__line *line, size_t n)
{
    if (line->bytes_per_s == 0)
        return 0;
    line->credit -= (double)n;
    return line->credit < 0 ? (int64_t)(-line->credit / line->bytes_per_s * 1e9) : 0;
}

int64_t dlc__line_wait_ns(const struct dlc__line *line)
{
    return dlc__line_ready(line) ? 0 : (int64_t)(-line->credit / line->bytes_per_s * 1e9) + 1;
}

/* A millisecond's worth keeps the number of calls small where the rate is high, a segment the delay small elsewhere. */
size_t dlc__line_quantum(const struct dlc__line *line)
{
    double n = line->bytes_per_s == 0 ? MAX_QUANTUM : line->bytes_per_s * 0.001;

    return (size_t)(n < DLC_LINK_SEGMENT_BYTES ? DLC_LINK_SEGMENT_BYTES : n > MAX_QUANTUM ? MAX_QUANTUM : n);
}
