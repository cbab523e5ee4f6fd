/* The processes of a storm, as they are typed, and the links between them. */
#ifndef DLC_CHAOS_ACTORS_H
#define DLC_CHAOS_ACTORS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/file.h"

#define ACTOR_ARGS_MAX 96

struct actor {
    char who[32];
    pid_t pid;              /* 0: not there */
    bool stopped, must_end; /* SIGSTOP; somebody killed it or told it to leave */
    int n_starts, status;   /* of the last end: exit status, or 128 + signal */
    int n_surprises;        /* it ended and nobody had told it to */
    char out_path[DLC_PATH_MAX], err_path[DLC_PATH_MAX];
};

/* Children are of this process, and of it alone when it dies. */
void actors_adopt(void);
/* Starts `program ARGS` (split at blanks); output is appended to folder/WHO.out and .err. */
dlc_err actor_start(struct actor *a, const char *folder, const char *program, const char *args);
/* Takes the status when it has ended; true once. */
bool actor_has_ended(struct actor *a);
void actor_signal(struct actor *a, int number);
/* Waits at most so long, then kills. False: it had to be killed. */
bool actor_wait(struct actor *a, double seconds);
/* Whoever is still a child of this process. How many there were. */
int actors_kill_rest(void);

/* Runs it to the end; DLC_EFAIL with its last words unless it ends with 0. */
dlc_err actor_run(const char *folder, const char *who, const char *program, const char *args);
/* The last line of a file that is one JSON object with `key`, into line[size]; false: none. */
bool actor_last_json(char *line, size_t size, const char *path, const char *key);

#endif
