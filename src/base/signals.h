/* SIGINT and SIGTERM: the first asks for an orderly stop, the second ends the program at once. */
#ifndef DLC_BASE_SIGNALS_H
#define DLC_BASE_SIGNALS_H

#include <stdbool.h>

void dlc_signals_catch(void); /* also: a closed connection is an error and not a death (SIGPIPE) */
bool dlc_stop_asked(void);

#endif
