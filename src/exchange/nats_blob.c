#include "exchange/nats_blob.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "exchange/fetch.h"

static dlc_err set_size(int fd, const char *path, size_t size_bytes, bool keep)
{
    struct stat st;
    int rc;

    if (fstat(fd, &st) != 0)
        return dlc_fail_errno(DLC_EIO, "%s", path);
    if (keep && (uint64_t)st.st_size == size_bytes)
        return DLC_OK;
    if (ftruncate(fd, 0) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be written", path);
    /* Real room on the disk: a store into a mapped hole of a full disk would end the process. */
    rc = posix_fallocate(fd, 0, (off_t)size_bytes);
    if (rc == EINVAL || rc == EOPNOTSUPP)
        rc = ftruncate(fd, (off_t)size_bytes) == 0 ? 0 : errno;
    errno = rc;
    return rc == 0 ? DLC_OK : dlc_fail_errno(DLC_EIO, "%s: no room for %zu bytes", path, size_bytes);
}

dlc_err dlc_map_writable(void **out, const char *path, size_t size_bytes, bool keep)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    dlc_err err;
    void *at;

    *out = NULL;
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be made", path);
    err = set_size(fd, path, size_bytes, keep);
    if (err == DLC_OK) {
        at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            err = dlc_fail_errno(DLC_ENOMEM, "%s: %zu bytes cannot be mapped", path, size_bytes);
        else
            *out = at;
    }
    close(fd);
    if (err != DLC_OK && !keep)
        unlink(path);
    return err;
}

void dlc_unmap(void *bytes, size_t size_bytes)
{
    if (bytes)
        (void)munmap(bytes, size_bytes);
}

struct dlc_blobs {
    pthread_mutex_t mutex; /* guards the list and what the blobs say, not their bytes */
    pthread_cond_t released;
    struct dlc_blob *first;
};

dlc_err dlc_blobs_create(dlc_blobs **out)
{
    dlc_blobs *bs = dlc_calloc(1, sizeof *bs);

    *out = bs;
    if (!bs)
        return DLC_ENOMEM;
    (void)pthread_mutex_init(&bs->mutex, NULL);
    (void)pthread_cond_init(&bs->released, NULL);
    return DLC_OK;
}

static void blob_free(struct dlc_blob *b, bool keep_file)
{
    if (b->kind != DLC_BLOB_CONTRIBUTION)
        dlc_unmap(b->bytes, b->ref.size_bytes);
    if (b->path && !keep_file)
        (void)unlink(b->path);
    dlc_free(b->path);
    dlc_free(b);
}

void dlc_blobs_destroy(dlc_blobs *bs, bool keep_files)
{
    if (!bs)
        return;
    while (bs->first) {
        struct dlc_blob *b = bs->first;

        bs->first = b->next;
        blob_free(b, keep_files && b->kind == DLC_BLOB_UPDATE);
    }
    (void)pthread_cond_destroy(&bs->released);
    (void)pthread_mutex_destroy(&bs->mutex);
    dlc_free(bs);
}

dlc_err dlc_blobs_add(dlc_blobs *bs, dlc_blob_kind kind, uint64_t t, const struct dlc_blob_ref *ref, void *bytes,
                      const char *path, int64_t now_ns)
{
    struct dlc_blob *b = dlc_calloc(1, sizeof *b);

    if (!b) {
        if (kind != DLC_BLOB_CONTRIBUTION)
            dlc_unmap(bytes, ref->size_bytes);
        return DLC_ENOMEM;
    }
    *b = (struct dlc_blob){ .kind = kind, .t = t, .ref = *ref, .bytes = bytes, .used_ns = now_ns };
    b->path = path ? dlc_strdup(path) : NULL;
    if (path && !b->path) {
        blob_free(b, true);
        return DLC_ENOMEM;
    }
    pthread_mutex_lock(&bs->mutex);
    b->next = bs->first;
    bs->first = b;
    pthread_mutex_unlock(&bs->mutex);
    return DLC_OK;
}

static void take_out(dlc_blobs *bs, struct dlc_blob *b)
{
    struct dlc_blob **at = &bs->first;

    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
}

struct dlc_blob *dlc_blobs_use(dlc_blobs *bs, const struct dlc_sha256 *digest, int64_t now_ns)
{
    struct dlc_blob *b;

    pthread_mutex_lock(&bs->mutex);
    for (b = bs->first; b && (b->dropped || !dlc_sha256_equal(&b->ref.digest, digest)); b = b->next)
        ;
    if (b) {
        b->n_users++;
        b->used_ns = now_ns;
    }
    pthread_mutex_unlock(&bs->mutex);
    return b;
}

void dlc_blobs_release(dlc_blobs *bs, struct dlc_blob *b)
{
    bool last;

    pthread_mutex_lock(&bs->mutex);
    last = --b->n_users == 0 && b->dropped;
    if (last)
        take_out(bs, b);
    pthread_cond_broadcast(&bs->released);
    pthread_mutex_unlock(&bs->mutex);
    if (last)
        blob_free(b, false);
}

bool dlc_blobs_find(dlc_blobs *bs, dlc_blob_kind kind, uint64_t from_t, struct dlc_blob_ref *ref, uint64_t *t)
{
    const struct dlc_blob *best = NULL;

    pthread_mutex_lock(&bs->mutex);
    for (const struct dlc_blob *b = bs->first; b; b = b->next) {
        if (b->kind == kind && !b->dropped && b->t >= from_t && (!best || b->t > best->t))
            best = b;
    }
    if (best) {
        *ref = best->ref;
        *t = best->t;
    }
    pthread_mutex_unlock(&bs->mutex);
    return best != NULL;
}

bool dlc_blobs_of(dlc_blobs *bs, dlc_blob_kind kind, uint64_t t, struct dlc_blob_ref *ref)
{
    bool found = false;

    pthread_mutex_lock(&bs->mutex);
    for (const struct dlc_blob *b = bs->first; b && !found; b = b->next) {
        found = b->kind == kind && !b->dropped && b->t == t;
        if (found)
            *ref = b->ref;
    }
    pthread_mutex_unlock(&bs->mutex);
    return found;
}

/* The next one to drop, taken out when nobody uses it; unmapping and unlinking large files is not for under a lock. */
static struct dlc_blob *next_to_drop(dlc_blobs *bs, dlc_blob_kind kind, uint64_t below_t, int64_t unused_since_ns)
{
    struct dlc_blob *b;

    pthread_mutex_lock(&bs->mutex);
    for (b = bs->first; b; b = b->next) {
        if (b->kind != kind || b->dropped || b->t >= below_t || b->used_ns > unused_since_ns)
            continue;
        b->dropped = true;
        if (b->n_users > 0)
            continue; /* whoever releases it last frees it */
        take_out(bs, b);
        break;
    }
    pthread_mutex_unlock(&bs->mutex);
    return b;
}

void dlc_blobs_drop(dlc_blobs *bs, dlc_blob_kind kind, uint64_t below_t, int64_t unused_since_ns)
{
    struct dlc_blob *b;

    while ((b = next_to_drop(bs, kind, below_t, unused_since_ns)) != NULL)
        blob_free(b, false);
}

void dlc_blobs_drop_bytes(dlc_blobs *bs, const void *bytes)
{
    struct dlc_blob *b;

    pthread_mutex_lock(&bs->mutex);
    for (b = bs->first; b && b->bytes != bytes; b = b->next)
        ;
    while (b && b->n_users > 0)
        pthread_cond_wait(&bs->released, &bs->mutex);
    if (b)
        take_out(bs, b);
    pthread_mutex_unlock(&bs->mutex);
    if (b)
        blob_free(b, false);
}

dlc_err dlc_blobs_answer(dlc_blobs *bs, struct dlc_buf *out, const struct dlc_wire_msg *ask, int64_t now_ns)
{
    struct dlc_chunk_ask wanted;
    struct dlc_blob *b;
    dlc_err err;

    DLC_TRY(dlc_chunk_ask_decode(&wanted, ask->bytes, ask->size_bytes));
    b = dlc_blobs_use(bs, &wanted.digest, now_ns);
    err = dlc_chunk_answer(out, &wanted, b ? b->bytes : NULL, b ? b->ref.size_bytes : 0);
    if (b)
        dlc_blobs_release(bs, b);
    return err;
}
