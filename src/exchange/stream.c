#include "exchange/stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAITING_MAX ((size_t)1 << 20)
#define UNUSED_MAX ((size_t)2 * DLC_MESSAGE_MAX_BYTES)

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: SIGPIPE is ignored by the program */
#endif

void dlc_stream_close(struct dlc_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    dlc_buf_fini(&s->in);
    dlc_buf_fini(&s->out);
}

dlc_err dlc_stream_fill(struct dlc_stream *s, bool *closed)
{
    char chunk[16384];
    ssize_t n;

    *closed = false;
    while (s->in.len < UNUSED_MAX) {
        n = recv(s->fd, chunk, sizeof chunk, MSG_DONTWAIT);
        if (n > 0) {
            DLC_TRY(dlc_buf_append(&s->in, chunk, (size_t)n));
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return DLC_OK;
        *closed = true; /* an orderly end, or a reset: the same to us */
        return DLC_OK;
    }
    return DLC_OK;
}

dlc_err dlc_stream_next(struct dlc_stream *s, struct dlc_message *out, bool *got)
{
    size_t length;
    dlc_err err;

    *got = false;
    if (s->in.len < DLC_MESSAGE_HEADER_BYTES)
        return DLC_OK;
    DLC_TRY(dlc_message_length(&length, s->in.data));
    if (s->in.len < length)
        return DLC_OK;
    err = dlc_message_decode(out, s->in.data, length);
    memmove(s->in.data, s->in.data + length, s->in.len - length);
    s->in.len -= length;
    s->n_read += length;
    *got = err == DLC_OK;
    return err;
}

dlc_err dlc_stream_flush(struct dlc_stream *s)
{
    while (s->out.len > 0) {
        ssize_t n = send(s->fd, s->out.data, s->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
            return DLC_OK;
        if (n < 0)
            return dlc_fail_errno(DLC_EPEER, "the connection broke");
        memmove(s->out.data, s->out.data + n, s->out.len - (size_t)n);
        s->out.len -= (size_t)n;
    }
    return DLC_OK;
}

dlc_err dlc_stream_send(struct dlc_stream *s, const struct dlc_message *m, size_t *encoded_bytes)
{
    size_t before = s->out.len;

    DLC_TRY(dlc_message_encode(&s->out, m));
    if (encoded_bytes)
        *encoded_bytes = s->out.len - before;
    DLC_TRY(dlc_stream_flush(s));
    if (s->out.len > WAITING_MAX)
        return dlc_fail(DLC_EPEER, "the other side does not read: %zu bytes wait", s->out.len);
    return DLC_OK;
}
