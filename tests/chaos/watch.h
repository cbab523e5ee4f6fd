/* Memory and descriptors of processes over time, and whether they grow. */
#ifndef DLC_CHAOS_WATCH_H
#define DLC_CHAOS_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct chaos_sample {
    double at_s;
    uint64_t rss_bytes;
    int n_fds;
};

/* One life of one process. */
struct chaos_life {
    char who[32];
    struct chaos_sample *samples;
    size_t n, cap;
};

void chaos_life_fini(struct chaos_life *life);
/* A process that is gone adds nothing. */
dlc_err chaos_watch(struct chaos_life *life, pid_t pid, double at_s);

struct chaos_growth {
    bool known;              /* the life was long enough: at least 8 samples after its start */
    double rss_bytes, n_fds; /* median of the last quarter minus that of the first, the start left out */
};
struct chaos_growth chaos_growth(const struct chaos_life *life, double start_s);

/* Bytes of all plain files below a folder. */
uint64_t chaos_folder_bytes(const char *path);

/* The pids of children of `parent`; `name`: only those with that command name. At most max. */
int chaos_children(pid_t parent, const char *name, pid_t *out, int max);

#endif
