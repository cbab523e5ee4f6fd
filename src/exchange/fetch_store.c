#include "exchange/fetch_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/mem.h"

#define MAP_MAGIC 0x4b434c44u /* "DLCK" */
#define MAP_VERSION 1
#define MAP_HEADER_BYTES 56
#define ENTRY_BYTES 8

bool dlc_fetch_store_has(const struct dlc_fetch_store *s, uint32_t index)
{
    return s->there[index / 8] >> (index % 8) & 1;
}

uint32_t dlc_fetch_store_length(const struct dlc_fetch_store *s, uint32_t index)
{
    uint64_t left = s->ref.size_bytes - (uint64_t)index * DLC_CHUNK_BYTES;

    return left < DLC_CHUNK_BYTES ? (uint32_t)left : (uint32_t)DLC_CHUNK_BYTES;
}

static void set_there(struct dlc_fetch_store *s, uint32_t index)
{
    if (dlc_fetch_store_has(s, index))
        return;
    s->there[index / 8] |= (unsigned char)(1u << (index % 8));
    s->n_there++;
    s->bytes_there += dlc_fetch_store_length(s, index);
}

static dlc_err write_at(int fd, const void *data, size_t n, uint64_t at, const char *path)
{
    const unsigned char *p = data;

    while (n > 0) {
        ssize_t done = pwrite(fd, p, n, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return dlc_fail_errno(DLC_EIO, "%s: cannot be written; what has come is kept, make room", path);
        p += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return DLC_OK;
}

/* *n: how many bytes were there. */
static dlc_err read_at(int fd, void *data, size_t *n, uint64_t at, const char *path)
{
    unsigned char *p = data;
    size_t want = *n;

    for (*n = 0; *n < want;) {
        ssize_t done = pread(fd, p + *n, want - *n, (off_t)(at + *n));

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return dlc_fail_errno(DLC_EIO, "%s: cannot be read", path);
        if (done == 0)
            break;
        *n += (size_t)done;
    }
    return DLC_OK;
}

/* An entry is the checksum of its chunk, 0 says that it is not there. */
static uint64_t entry_of(const void *chunk, size_t n)
{
    uint64_t checksum = dlc_xxh64(chunk, n);

    return checksum != 0 ? checksum : 1;
}

static void encode_map_header(unsigned char out[MAP_HEADER_BYTES], const struct dlc_blob_ref *ref)
{
    struct dlc_cursor c = dlc_cursor(out, MAP_HEADER_BYTES);

    dlc_put_u32(&c, MAP_MAGIC);
    dlc_put_u16(&c, MAP_VERSION);
    dlc_put_u16(&c, 0);
    dlc_put_bytes(&c, ref->digest.bytes, DLC_SHA256_BYTES);
    dlc_put_u64(&c, ref->size_bytes);
    dlc_put_u64(&c, DLC_CHUNK_BYTES);
}

/* Nothing is there. */
static dlc_err begin_anew(struct dlc_fetch_store *s)
{
    unsigned char header[MAP_HEADER_BYTES];

    memset(s->there, 0, s->n_chunks / 8 + 1);
    s->n_there = 0;
    s->bytes_there = 0;
    encode_map_header(header, &s->ref);
    if (ftruncate(s->map_fd, 0) != 0 || ftruncate(s->part_fd, (off_t)s->ref.size_bytes) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be written", s->part);
    return write_at(s->map_fd, header, sizeof header, 0, s->map);
}

static dlc_err check_chunk(struct dlc_fetch_store *s, uint32_t index, uint64_t entry, void *chunk)
{
    size_t want = dlc_fetch_store_length(s, index), n = want;

    if (entry == 0)
        return DLC_OK;
    DLC_TRY(read_at(s->part_fd, chunk, &n, (uint64_t)index * DLC_CHUNK_BYTES, s->part));
    if (n == want && entry_of(chunk, n) == entry)
        set_there(s, index);
    return DLC_OK;
}

/* What an earlier life left. */
static dlc_err go_on(struct dlc_fetch_store *s, unsigned char *chunk)
{
    unsigned char entries[512 * ENTRY_BYTES];
    uint32_t index = 0;

    while (index < s->n_chunks) {
        size_t n = sizeof entries;
        struct dlc_cursor c;

        DLC_TRY(read_at(s->map_fd, entries, &n, MAP_HEADER_BYTES + (uint64_t)index * ENTRY_BYTES, s->map));
        c = dlc_cursor(entries, n / ENTRY_BYTES * ENTRY_BYTES); /* the map is as long as the last chunk that came */
        if (c.left == 0)
            break;
        for (; c.left > 0 && index < s->n_chunks; index++)
            DLC_TRY(check_chunk(s, index, dlc_get_u64(&c), chunk));
    }
    return DLC_OK;
}

static dlc_err open_one(int *fd, const char *path)
{
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (*fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be opened", path);
    return DLC_OK;
}

static dlc_err open_parts(struct dlc_fetch_store *s)
{
    unsigned char header[MAP_HEADER_BYTES], ours[MAP_HEADER_BYTES];
    size_t n = sizeof header;
    unsigned char *chunk;
    struct stat st;
    dlc_err err;

    DLC_TRY(open_one(&s->part_fd, s->part));
    DLC_TRY(open_one(&s->map_fd, s->map));
    DLC_TRY(read_at(s->map_fd, header, &n, 0, s->map));
    encode_map_header(ours, &s->ref);
    if (n != sizeof header || memcmp(header, ours, n) != 0)
        return begin_anew(s);
    chunk = dlc_alloc(DLC_CHUNK_BYTES);
    if (!chunk)
        return DLC_ENOMEM;
    err = go_on(s, chunk);
    dlc_free(chunk);
    if (err == DLC_OK && (fstat(s->part_fd, &st) != 0 || ((uint64_t)st.st_size != s->ref.size_bytes &&
                                                          ftruncate(s->part_fd, (off_t)s->ref.size_bytes) != 0)))
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", s->part);
    return err;
}

static void remove_parts(const struct dlc_fetch_store *s)
{
    unlink(s->map); /* first: a map without its bytes only costs their reading, and so does the other way round */
    unlink(s->part);
}

/* `path` is there and whole. */
static dlc_err look_for_whole(struct dlc_fetch_store *s)
{
    struct dlc_sha256 digest;
    uint64_t size;

    if (!dlc_file_exists(s->path) || dlc_is_folder(s->path))
        return DLC_OK;
    DLC_TRY(dlc_file_size(&size, s->path));
    if (size != s->ref.size_bytes)
        return DLC_OK;
    DLC_TRY(dlc_sha256_file(&digest, s->path));
    s->in_place = dlc_sha256_equal(&digest, &s->ref.digest);
    return DLC_OK;
}

static dlc_err set_paths(struct dlc_fetch_store *s, const char *path)
{
    if (snprintf(s->path, sizeof s->path, "%s", path) >= (int)sizeof s->path ||
        snprintf(s->part, sizeof s->part, "%s.part", path) >= (int)sizeof s->part ||
        snprintf(s->map, sizeof s->map, "%s.map", path) >= (int)sizeof s->map)
        return dlc_fail(DLC_EUSAGE, "path too long: %.60s...", path);
    return DLC_OK;
}

dlc_err dlc_fetch_store_open(struct dlc_fetch_store *s, const struct dlc_blob_ref *ref, const char *path)
{
    dlc_err err;

    *s = (struct dlc_fetch_store){ .ref = *ref, .part_fd = -1, .map_fd = -1 };
    if (ref->size_bytes > DLC_FETCH_MAX_BYTES)
        return dlc_fail(DLC_EPEER, "%s: a blob of %llu bytes is announced, at most %llu are fetched", path,
                        (unsigned long long)ref->size_bytes, (unsigned long long)DLC_FETCH_MAX_BYTES);
    DLC_TRY(set_paths(s, path));
    s->n_chunks = (uint32_t)((ref->size_bytes + DLC_CHUNK_BYTES - 1) / DLC_CHUNK_BYTES);
    s->there = dlc_calloc(s->n_chunks / 8 + 1, 1);
    if (!s->there)
        return DLC_ENOMEM;
    DLC_TRY_TO(fail, look_for_whole(s));
    if (!s->in_place)
        DLC_TRY_TO(fail, open_parts(s));
    else
        remove_parts(s); /* killed between the two */
    return DLC_OK;
fail:
    dlc_fetch_store_close(s);
    return err;
}

void dlc_fetch_store_close(struct dlc_fetch_store *s)
{
    if (s->part_fd >= 0)
        close(s->part_fd);
    if (s->map_fd >= 0)
        close(s->map_fd);
    s->part_fd = s->map_fd = -1;
    dlc_free(s->there);
    s->there = NULL;
}

dlc_err dlc_fetch_store_put(struct dlc_fetch_store *s, uint32_t index, const void *chunk)
{
    uint32_t length = dlc_fetch_store_length(s, index);
    unsigned char entry[ENTRY_BYTES];
    struct dlc_cursor c = dlc_cursor(entry, sizeof entry);

    dlc_put_u64(&c, entry_of(chunk, length));
    DLC_TRY(write_at(s->part_fd, chunk, length, (uint64_t)index * DLC_CHUNK_BYTES, s->part));
    DLC_TRY(write_at(s->map_fd, entry, sizeof entry, MAP_HEADER_BYTES + (uint64_t)index * ENTRY_BYTES, s->map));
    set_there(s, index);
    return DLC_OK;
}

dlc_err dlc_fetch_store_finish(struct dlc_fetch_store *s)
{
    struct dlc_sha256 digest;
    char hex[DLC_SHA256_HEX], wanted[DLC_SHA256_HEX];

    if (s->in_place)
        return DLC_OK;
    DLC_TRY(dlc_sha256_file(&digest, s->part));
    if (!dlc_sha256_equal(&digest, &s->ref.digest)) {
        DLC_TRY(begin_anew(s));
        dlc_sha256_to_hex(hex, &digest);
        dlc_sha256_to_hex(wanted, &s->ref.digest);
        return dlc_fail(DLC_EPEER, "%s: what came has the digest %.16s..., announced was %.16s...; it is fetched again",
                        s->path, hex, wanted);
    }
    DLC_TRY(dlc_file_rename_durable(s->path, s->part));
    s->in_place = true;
    unlink(s->map);
    return DLC_OK;
}
