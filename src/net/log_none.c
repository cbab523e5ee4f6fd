/* The logs of a build without libnats. */
#include "net/log.h"

static dlc_err not_built(void)
{
    return dlc_fail(DLC_EFAIL, "this diloco was built without NATS: install libnats-dev, then build it again");
}

dlc_err dlc_runlog_open(dlc_runlog **out, const struct dlc_wire_options *options)
{
    (void)options;
    *out = NULL;
    return not_built();
}

void dlc_runlog_close(dlc_runlog *log)
{
    (void)log;
}

dlc_err dlc_runlog_next(dlc_runlog *log, uint64_t *seq, struct dlc_buf *entry, bool *got)
{
    (void)log;
    (void)seq;
    (void)entry;
    *got = false;
    return not_built();
}

dlc_err dlc_runlog_append(dlc_runlog *log, uint64_t *seq, const void *bytes, size_t size_bytes, bool *taken)
{
    (void)log;
    (void)seq;
    (void)bytes;
    (void)size_bytes;
    *taken = false;
    return not_built();
}

dlc_err dlc_lease_read(dlc_runlog *log, struct dlc_lease *out)
{
    (void)log;
    *out = (struct dlc_lease){ .seq = 0 };
    return not_built();
}

dlc_err dlc_lease_write(dlc_runlog *log, struct dlc_lease *lease, bool *taken)
{
    (void)log;
    (void)lease;
    *taken = false;
    return not_built();
}
