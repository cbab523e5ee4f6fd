/* Published tables, re-made: what the planner's simulator says is set beside what was printed. Text is appended. */
#ifndef DLC_PLAN_PAPER_TABLE_H
#define DLC_PLAN_PAPER_TABLE_H

#include "base/buf.h"
#include "plan/simulator.h"

#define DLC_PAPER_ROWS 15

struct dlc_paper_row {
    const char *size, *method;
    struct dlc_sim sim;
    double published_gbits[5]; /* at a utilisation of 50, 80, 90, 95 and 99 % */
};

/* Table 4 of arXiv 2501.18512. */
extern const struct dlc_paper_row dlc_paper_streaming[DLC_PAPER_ROWS];

dlc_err dlc_paper_streaming_text(struct dlc_buf *out);
dlc_err dlc_paper_streaming_json(struct dlc_buf *out);

/* The wall-clock model of arXiv 2503.09799 for 1e9 parameters and 20e9 tokens, on its three networks. */
dlc_err dlc_paper_wallclock_text(struct dlc_buf *out);
dlc_err dlc_paper_wallclock_json(struct dlc_buf *out);

#endif
