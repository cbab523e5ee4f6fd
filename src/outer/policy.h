/* What a run does about a loss or gradient that is not finite; the same for every island. */
#ifndef DLC_OUTER_POLICY_H
#define DLC_OUTER_POLICY_H

typedef enum {
    DLC_NONFINITE_STOP,    /* the run stops with a message; history up to the last record is whole */
    DLC_NONFINITE_SKIP,    /* that inner step is left out, up to a number of times */
    DLC_NONFINITE_ROLLBACK /* the round starts again from theta(t-1) with other samples; those samples are set aside */
} dlc_nonfinite;

#endif
