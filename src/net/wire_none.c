/* The wire of a build without libnats: says so. */
#include "net/wire.h"

static dlc_err not_built(void)
{
    return dlc_fail(DLC_EFAIL, "this diloco was built without NATS: install libnats-dev, then build it again");
}

bool dlc_wire_is_built(void)
{
    return false;
}

dlc_err dlc_wire_init(void)
{
    return not_built();
}

dlc_err dlc_wire_connect(dlc_wire **out, const struct dlc_wire_options *options)
{
    (void)options;
    *out = NULL;
    return not_built();
}

void dlc_wire_stop(dlc_wire *w)
{
    (void)w;
}

void dlc_wire_close(dlc_wire *w)
{
    (void)w;
}

bool dlc_wire_is_connected(const dlc_wire *w)
{
    (void)w;
    return false;
}

size_t dlc_wire_max_payload(const dlc_wire *w)
{
    (void)w;
    return 0;
}

uint64_t dlc_wire_n_refused(const dlc_wire *w)
{
    (void)w;
    return 0;
}

dlc_err dlc_wire_subscribe(dlc_wire_sub **out, dlc_wire *w, const char *subject)
{
    (void)w;
    (void)subject;
    *out = NULL;
    return not_built();
}

dlc_err dlc_wire_next(dlc_wire_sub *sub, struct dlc_wire_msg *out, bool *got, int timeout_ms)
{
    (void)sub;
    (void)timeout_ms;
    *out = (struct dlc_wire_msg){ 0 };
    *got = false;
    return not_built();
}

void dlc_wire_msg_free(struct dlc_wire_msg *m)
{
    *m = (struct dlc_wire_msg){ 0 };
}

dlc_err dlc_wire_publish(dlc_wire *w, const char *subject, const char *reply, const void *bytes, size_t size_bytes)
{
    (void)w;
    (void)subject;
    (void)reply;
    (void)bytes;
    (void)size_bytes;
    return not_built();
}

const char *dlc_wire_inbox(const dlc_wire *w)
{
    (void)w;
    return "";
}

dlc_err dlc_wire_request(dlc_wire *w, const char *subject, const void *bytes, size_t size_bytes,
                         struct dlc_wire_msg *out, bool *got, int timeout_ms)
{
    (void)w;
    (void)subject;
    (void)bytes;
    (void)size_bytes;
    (void)timeout_ms;
    *out = (struct dlc_wire_msg){ 0 };
    *got = false;
    return not_built();
}
