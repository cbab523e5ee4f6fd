#include "base/random.h"

#include <stdio.h>
#include <sys/random.h>

dlc_err dlc_random_bytes(void *out, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t got = getrandom((char *)out + done, n - done, 0);

        if (got < 0)
            return dlc_fail_errno(DLC_EFAIL, "the system's random numbers");
        done += (size_t)got;
    }
    return DLC_OK;
}

dlc_err dlc_random_hex(char *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte;

        DLC_TRY(dlc_random_bytes(&byte, 1));
        snprintf(out + 2 * i, 3, "%02x", byte);
    }
    return DLC_OK;
}
