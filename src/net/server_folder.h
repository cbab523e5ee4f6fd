/* What a server's folder keeps over restarts: three secrets, the port, who holds the folder. */
#ifndef DLC_NET_SERVER_FOLDER_H
#define DLC_NET_SERVER_FOLDER_H

#include "base/err.h"

#define DLC__SECRET_SIZE 65 /* 32 random bytes in hexadecimal */

struct dlc__secrets {
    char lead[DLC__SECRET_SIZE], isle[DLC__SECRET_SIZE], sys[DLC__SECRET_SIZE];
};

/* Those in the folder, or new ones, written. */
dlc_err dlc__secrets_load(struct dlc__secrets *out, const char *folder);

/* *port 0: none was written yet. */
dlc_err dlc__port_load(int *port, const char *folder);
dlc_err dlc__port_save(const char *folder, int port);

/* The folder's lock, waiting patience_s for an older holder that is ending. Two servers on one store start happily, and
 * what they had acknowledged vanishes. */
dlc_err dlc__folder_lock(int *out_fd, const char *folder, double patience_s);

#endif
