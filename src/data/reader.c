#include "data/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/mem.h"

#define IN_BYTES ((size_t)256 << 10)
#define ZSTD_WINDOW_LOG_MAX 27 /* 128 MiB: what zstd's own default allows; a frame cannot ask us for more */

typedef enum { PLAIN, GZIP, ZSTD } packing;

struct dlc_reader {
    char *name;
    int fd;
    packing packing;
    bool file_ended; /* nothing more to load */
    bool between;    /* gzip, zstd: the last member or frame is complete */
    char *in;
    size_t at, len; /* in[at, len) is not yet used */
    uint64_t n_loaded, n_text;
    z_stream z;
    bool z_ready;
    ZSTD_DStream *zstd;
};

static dlc_err load(dlc_reader *r)
{
    ssize_t n;

    if (r->at < r->len || r->file_ended)
        return DLC_OK;
    do
        n = read(r->fd, r->in, IN_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return dlc_fail_errno(DLC_EINPUT, "%s: cannot be read", r->name);
    r->at = 0;
    r->len = (size_t)n;
    r->n_loaded += (uint64_t)n;
    r->file_ended = n == 0;
    return DLC_OK;
}

static dlc_err unpack_begin(dlc_reader *r)
{
    const unsigned char *b = (const unsigned char *)r->in;

    r->between = true;
    if (r->len >= 2 && b[0] == 0x1f && b[1] == 0x8b) {
        r->packing = GZIP;
        if (inflateInit2(&r->z, 15 + 16) != Z_OK)
            return dlc_fail(DLC_ENOMEM, "out of memory: gzip");
        r->z_ready = true;
    } else if (r->len >= 4 && b[0] == 0x28 && b[1] == 0xb5 && b[2] == 0x2f && b[3] == 0xfd) {
        r->packing = ZSTD;
        r->zstd = ZSTD_createDStream();
        if (!r->zstd)
            return dlc_fail(DLC_ENOMEM, "out of memory: zstd");
        (void)ZSTD_DCtx_setParameter(r->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    }
    return DLC_OK;
}

dlc_err dlc_reader_open(dlc_reader **out, const char *path, const char *name)
{
    dlc_reader *r = dlc_calloc(1, sizeof *r);
    dlc_err err = DLC_ENOMEM;

    *out = NULL;
    if (!r)
        return DLC_ENOMEM;
    r->fd = -1;
    r->name = dlc_strdup(name);
    r->in = dlc_alloc(IN_BYTES);
    if (!r->name || !r->in)
        goto fail;
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0) {
        err = dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EINPUT, "%s", name);
        goto fail;
    }
    DLC_TRY_TO(fail, load(r));
    DLC_TRY_TO(fail, unpack_begin(r));
    *out = r;
    return DLC_OK;
fail:
    dlc_reader_close(r);
    return err;
}

void dlc_reader_close(dlc_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    if (r->z_ready)
        inflateEnd(&r->z);
    ZSTD_freeDStream(r->zstd);
    dlc_free(r->in);
    dlc_free(r->name);
    dlc_free(r);
}

uint64_t dlc_reader_consumed(const dlc_reader *r)
{
    return r->n_loaded - (r->len - r->at);
}

const char *dlc_reader_name(const dlc_reader *r)
{
    return r->name;
}

static dlc_err truncated(const dlc_reader *r, const char *format)
{
    return dlc_fail(
        DLC_EINPUT,
        "%s: truncated: the %s data stop in the middle, at byte %llu of the file (after %llu bytes of text)", r->name,
        format, (unsigned long long)dlc_reader_consumed(r), (unsigned long long)r->n_text);
}

static dlc_err damaged(const dlc_reader *r, const char *format, const char *why)
{
    return dlc_fail(DLC_EINPUT, "%s: damaged %s data before byte %llu of the file: %s", r->name, format,
                    (unsigned long long)dlc_reader_consumed(r), why);
}

static dlc_err step_plain(size_t *n, dlc_reader *r, char *out, size_t size_bytes)
{
    *n = r->len - r->at < size_bytes ? r->len - r->at : size_bytes;
    memcpy(out, r->in + r->at, *n);
    r->at += *n;
    return DLC_OK;
}

/* Between members: another one, zeros that pad to a block, or the end. */
static dlc_err next_member(dlc_reader *r)
{
    if (r->in[r->at] == 0) {
        r->at++;
        return DLC_OK;
    }
    if ((unsigned char)r->in[r->at] != 0x1f)
        return damaged(r, "gzip", "something else follows the compressed text");
    if (inflateReset(&r->z) != Z_OK)
        return dlc_fail(DLC_EFAIL, "%s: gzip cannot be reset", r->name);
    r->between = false;
    return DLC_OK;
}

static dlc_err step_gzip(size_t *n, dlc_reader *r, char *out, size_t size_bytes)
{
    int rc;
    bool ended = r->at == r->len; /* of the file; there may still be text to come from what was taken in */

    *n = 0;
    if (r->between)
        return ended ? DLC_OK : next_member(r);
    r->z.next_in = (Bytef *)(void *)(r->in + r->at);
    r->z.avail_in = (uInt)(r->len - r->at);
    r->z.next_out = (Bytef *)(void *)out;
    r->z.avail_out = (uInt)(size_bytes < IN_BYTES ? size_bytes : IN_BYTES);
    rc = inflate(&r->z, Z_NO_FLUSH);
    *n = (size_t)((char *)r->z.next_out - out);
    r->at = r->len - r->z.avail_in;
    if (rc == Z_STREAM_END)
        r->between = true;
    else if (rc == Z_MEM_ERROR)
        return dlc_fail(DLC_ENOMEM, "out of memory: gzip");
    else if (rc != Z_OK && rc != Z_BUF_ERROR)
        return damaged(r, "gzip", r->z.msg ? r->z.msg : "not gzip");
    else if (ended && *n == 0)
        return truncated(r, "gzip");
    return DLC_OK;
}

static dlc_err step_zstd(size_t *n, dlc_reader *r, char *out, size_t size_bytes)
{
    ZSTD_inBuffer in = { r->in + r->at, r->len - r->at, 0 };
    ZSTD_outBuffer to = { out, size_bytes, 0 };
    size_t rc;

    *n = 0;
    if (in.size == 0 && r->between)
        return DLC_OK;
    rc = ZSTD_decompressStream(r->zstd, &to, &in); /* with no input left it may still hold text back */
    r->at += in.pos;
    *n = to.pos;
    if (ZSTD_isError(rc))
        return damaged(r, "zstd", ZSTD_getErrorName(rc));
    if (in.size == 0 && to.pos == 0)
        return truncated(r, "zstd");
    r->between = rc == 0;
    return DLC_OK;
}

dlc_err dlc_reader_read(size_t *n, dlc_reader *r, char *out, size_t size_bytes)
{
    *n = 0;
    while (*n < size_bytes) {
        size_t k;

        DLC_TRY(load(r));
        if (r->packing == GZIP)
            DLC_TRY(step_gzip(&k, r, out + *n, size_bytes - *n));
        else if (r->packing == ZSTD)
            DLC_TRY(step_zstd(&k, r, out + *n, size_bytes - *n));
        else
            DLC_TRY(step_plain(&k, r, out + *n, size_bytes - *n));
        *n += k;
        r->n_text += k;
        if (k == 0 && r->file_ended)
            break;
    }
    return DLC_OK;
}
