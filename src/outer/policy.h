/* What a run does about what should not happen; the same for every island. */
#ifndef DLC_OUTER_POLICY_H
#define DLC_OUTER_POLICY_H

typedef enum {
    DLC_NONFINITE_STOP,    /* the run stops with a message; history up to the last record is whole */
    DLC_NONFINITE_SKIP,    /* that inner step is left out, up to a number of times */
    DLC_NONFINITE_ROLLBACK /* the round starts again from theta(t-1) with other samples; those samples are set aside */
} dlc_nonfinite;

/* A contribution that comes after its round was closed. */
typedef enum {
    DLC_LATE_DROP, /* its samples went back to the pool */
    DLC_LATE_NEXT  /* it counts in the next round, with its weight times late_weight */
} dlc_late;

/* How contributions become one outer gradient, value by value. */
typedef enum {
    DLC_AGGREGATE_MEAN,    /* weighted */
    DLC_AGGREGATE_TRIMMED, /* weighted, without the lowest and highest quarter (at least one each, from 3 islands on) */
    DLC_AGGREGATE_MEDIAN   /* unweighted */
} dlc_aggregate;

#endif
