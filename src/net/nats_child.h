/* The process of nats-server: found, asked for its version, started, ended. */
#ifndef DLC_NET_NATS_CHILD_H
#define DLC_NET_NATS_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/file.h"

/* wanted: a path or a name; NULL: nats-server. Looks in PATH, /usr/local/bin and /usr/sbin. DLC_EUSAGE: not there. */
dlc_err dlc__nats_find(char out[DLC_PATH_MAX], const char *wanted);

/* What "PROGRAM --version" says, as numbers. DLC_EUSAGE: it is not nats-server. */
dlc_err dlc__nats_version(int *major, int *minor, const char *program);

/* With folder/nats.conf; its output goes to folder/nats.out. Ends when the calling *thread* ends (the kernel's
 * parent-death signal), whatever the way. lock_fd is handed on, so that the lock of the folder lives as long as either of
 * the two. */
dlc_err dlc__nats_spawn(pid_t *out, const char *program, const char *folder, int lock_fd);

/* *ended true: it was reaped, and is no longer ours. Does not wait. */
bool dlc__nats_has_ended(pid_t pid);

/* Asks it to end, waits patience_s, kills it. patience_s 0: kills it at once. Reaps. */
void dlc__nats_end(pid_t pid, double patience_s);

/* The last line that it wrote to nats.log after `from`, else to nats.out; "" for none. */
void dlc__nats_last_words(char *out, size_t size, const char *folder, uint64_t from);

/* Keeps the newest two of the logs that were put aside. */
void dlc__nats_prune_logs(const char *folder);

#endif
