#include "base/signals.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t n_asked;

static void on_signal(int number)
{
    (void)number;
    if (++n_asked > 1)
        _exit(130); /* what is on disk is whole at any moment */
}

void dlc_signals_catch(void)
{
    struct sigaction a = { .sa_handler = on_signal };

    n_asked = 0;
    sigemptyset(&a.sa_mask); /* no SA_RESTART: waiting for messages is interrupted */
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    a.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &a, NULL); /* closed connections are errors, not deaths */
}

bool dlc_stop_asked(void)
{
    return n_asked > 0;
}
