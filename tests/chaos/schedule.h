/* What goes wrong when, in a fault storm: a pure function of a plan and a seed. */
#ifndef DLC_CHAOS_SCHEDULE_H
#define DLC_CHAOS_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef enum {
    CHAOS_KILL_ISLAND,      /* kill -9; started again at the end of the fault */
    CHAOS_STALL_ISLAND,     /* SIGSTOP; SIGCONT at the end */
    CHAOS_LEAVE,            /* SIGTERM; comes back at the end */
    CHAOS_CUT_LINK,         /* nothing passes until the end */
    CHAOS_SLOW_LINK,        /* a lower rate until the end */
    CHAOS_RESET_LINK,       /* its connections are reset */
    CHAOS_KILL_SERVER,      /* kill -9 of nats-server; the coordinator starts it again */
    CHAOS_KILL_COORDINATOR, /* kill -9; started again at the end */
    CHAOS_STALL_COORDINATOR,
    CHAOS_FILL_DISK, /* of the run folder; free again, and the coordinator started again, at the end */
    CHAOS_N_KINDS
} chaos_kind;

#define CHAOS_NOBODY (-1) /* no island */

struct chaos_fault {
    double at_s, for_s; /* since the storm's beginning */
    chaos_kind kind;
    int island;        /* CHAOS_NOBODY: the coordinator or its server */
    double bits_per_s; /* CHAOS_SLOW_LINK */
};

struct chaos_plan {
    int n_islands;
    double duration_s, every_s;     /* a fault every so often, give or take a quarter */
    int weight[CHAOS_N_KINDS];      /* how often, relative to the others; 0: never */
    double for_s[CHAOS_N_KINDS][2]; /* shortest and longest */
    double rest_s;                  /* whoever had a fault has none for so long after its end */
    double least_up;                /* part of the islands that are always left alone */
};

/* Faults in the order of their beginning, all of them over by duration_s; how many. */
size_t chaos_schedule(struct chaos_fault *out, size_t max, const struct chaos_plan *plan, uint64_t seed);

const char *chaos_kind_name(chaos_kind kind);
/* "  12.30 s  kill island 3, 1.5 s". */
dlc_err chaos_describe(struct dlc_buf *out, const struct chaos_fault *fault);

#endif
