#include "data/shard_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/mem.h"
#include "data/shard.h"

#define PENDING_BYTES ((size_t)64 << 10)
#define COPY_TOKENS 16384
#define PART_PREFIX "part-"
#define PART_SUFFIX ".tmp"

void dlc_shard_writer_init(struct dlc_shard_writer *w, const char *folder, int width, uint64_t shard_tokens,
                           uint32_t *token_bytes)
{
    memset(w, 0, sizeof *w);
    snprintf(w->folder, sizeof w->folder, "%s", folder);
    w->width = width;
    w->shard_tokens = shard_tokens;
    w->token_bytes = token_bytes;
    for (int i = 0; i < 2 * DLC_SOURCES_MAX; i++)
        w->streams[i].part = -1;
}

void dlc_shard_writer_fini(struct dlc_shard_writer *w)
{
    for (int i = 0; i < 2 * DLC_SOURCES_MAX; i++) {
        dlc_buf_fini(&w->streams[i].pending);
        XXH3_freeState(w->streams[i].hash);
    }
    dlc_free(w->parts);
    memset(w, 0, sizeof *w);
}

static dlc_err part_path(char out[DLC_PATH_MAX], const struct dlc_shard_writer *w, int part)
{
    char name[40];

    snprintf(name, sizeof name, PART_PREFIX "%06d" PART_SUFFIX, part);
    return dlc_path_join(out, w->folder, name);
}

static dlc_err write_at(int fd, const char *data, size_t n, off_t at, const char *path)
{
    while (n > 0) {
        ssize_t done = pwrite(fd, data, n, at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return dlc_fail_errno(DLC_EIO, "%s: cannot be written", path);
        data += done;
        n -= (size_t)done;
        at += done;
    }
    return DLC_OK;
}

/* Writes bytes at an offset of the part's file, creating it when missing. */
static dlc_err write_part(const struct dlc_shard_writer *w, int part, const void *data, size_t n, uint64_t at,
                          bool durable)
{
    char path[DLC_PATH_MAX];
    dlc_err err;
    int fd;

    DLC_TRY(part_path(path, w, part));
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be opened", path);
    err = write_at(fd, data, n, (off_t)at, path);
    if (err == DLC_OK && durable && fsync(fd) != 0)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be made durable", path);
    if (close(fd) != 0 && err == DLC_OK)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", path);
    return err;
}

static dlc_err write_header(struct dlc_shard_writer *w, int part)
{
    struct dlc_shard_header header = { .width = w->width, .n_tokens = w->parts[part].n_tokens };
    unsigned char bytes[DLC_SHARD_HEADER_BYTES];

    dlc_shard_header_write(bytes, header);
    return write_part(w, part, bytes, sizeof bytes, 0, true);
}

static dlc_err new_part(struct dlc_shard_writer *w, int stream)
{
    struct dlc_shard_stream *s = &w->streams[stream];

    if (w->n_parts == w->parts_cap) {
        size_t cap = w->parts_cap ? 2 * w->parts_cap : 16;
        struct dlc_shard_part *more = dlc_realloc(w->parts, cap * sizeof *more);

        if (!more)
            return DLC_ENOMEM;
        w->parts = more;
        w->parts_cap = cap;
    }
    if (!s->hash)
        s->hash = XXH3_createState();
    if (!s->hash || XXH3_64bits_reset(s->hash) != XXH_OK)
        return dlc_fail(DLC_ENOMEM, "out of memory: shard digest");
    w->parts[w->n_parts] = (struct dlc_shard_part){ .val = stream & 1, .source = stream / 2 };
    s->part = (int)w->n_parts++;
    return DLC_OK;
}

static dlc_err flush(struct dlc_shard_writer *w, struct dlc_shard_stream *s)
{
    const struct dlc_shard_part *p = &w->parts[s->part];
    uint64_t end = DLC_SHARD_HEADER_BYTES + p->n_tokens * (uint64_t)w->width;

    DLC_TRY(write_part(w, s->part, s->pending.data, s->pending.len, end - s->pending.len, false));
    XXH3_64bits_update(s->hash, s->pending.data, s->pending.len);
    dlc_buf_clear(&s->pending);
    return DLC_OK;
}

static dlc_err close_part(struct dlc_shard_writer *w, struct dlc_shard_stream *s)
{
    DLC_TRY(flush(w, s));
    w->parts[s->part].xxh3 = XXH3_64bits_digest(s->hash);
    w->parts[s->part].closed = true;
    DLC_TRY(write_header(w, s->part));
    s->part = -1;
    return DLC_OK;
}

static dlc_err append_tokens(struct dlc_shard_writer *w, struct dlc_shard_stream *s, const int32_t *ids, size_t n)
{
    struct dlc_shard_part *p = &w->parts[s->part];
    struct dlc_cursor c;

    DLC_TRY(dlc_buf_reserve(&s->pending, n * (size_t)w->width));
    c = dlc_cursor(s->pending.data + s->pending.len, n * (size_t)w->width);
    for (size_t i = 0; i < n; i++) {
        dlc_put_uint(&c, (uint32_t)ids[i], (size_t)w->width);
        p->n_bytes += w->token_bytes[ids[i]];
    }
    s->pending.len += n * (size_t)w->width;
    p->n_tokens += n;
    return DLC_OK;
}

dlc_err dlc_shard_writer_add(struct dlc_shard_writer *w, int stream, const int32_t *ids, size_t n)
{
    struct dlc_shard_stream *s = &w->streams[stream];

    while (n > 0) {
        uint64_t room;
        size_t k;

        if (s->part < 0)
            DLC_TRY(new_part(w, stream));
        room = w->shard_tokens - w->parts[s->part].n_tokens;
        k = n < room ? n : (size_t)room;
        DLC_TRY(append_tokens(w, s, ids, k));
        if (s->pending.len >= PENDING_BYTES)
            DLC_TRY(flush(w, s));
        if (w->parts[s->part].n_tokens == w->shard_tokens)
            DLC_TRY(close_part(w, s));
        ids += k;
        n -= k;
    }
    return DLC_OK;
}

dlc_err dlc_shard_writer_close_all(struct dlc_shard_writer *w)
{
    for (int i = 0; i < 2 * DLC_SOURCES_MAX; i++) {
        if (w->streams[i].part >= 0)
            DLC_TRY(close_part(w, &w->streams[i]));
    }
    return DLC_OK;
}

uint64_t dlc_shard_writer_source_tokens(const struct dlc_shard_writer *w, int source, bool val)
{
    uint64_t n = 0;

    for (size_t i = 0; i < w->n_parts; i++) {
        if (w->parts[i].val == val && (source < 0 || w->parts[i].source == source))
            n += w->parts[i].n_tokens;
    }
    return n;
}

uint64_t dlc_shard_writer_n_tokens(const struct dlc_shard_writer *w, bool val)
{
    return dlc_shard_writer_source_tokens(w, -1, val);
}

void dlc_shard_writer_val_to_train(struct dlc_shard_writer *w)
{
    for (size_t i = 0; i < w->n_parts; i++)
        w->parts[i].val = false;
}

/* ---- moving the tail ---- */

struct copy {
    unsigned char bytes[COPY_TOKENS * 4];
    int32_t ids[COPY_TOKENS];
};

static dlc_err read_raw(struct copy *c, const struct dlc_shard_writer *w, int fd, uint64_t first, size_t n)
{
    size_t size = n * (size_t)w->width;

    if (pread(fd, c->bytes, size, (off_t)(DLC_SHARD_HEADER_BYTES + first * (uint64_t)w->width)) != (ssize_t)size)
        return dlc_fail_errno(DLC_EIO, "%s: a shard cannot be read back", w->folder);
    return DLC_OK;
}

/* The digest of tokens [0, n) of a part. */
static dlc_err digest_head(uint64_t *xxh3, struct copy *c, const struct dlc_shard_writer *w, int fd, uint64_t n)
{
    XXH3_state_t *hash = XXH3_createState();
    dlc_err err = DLC_OK;

    if (!hash || XXH3_64bits_reset(hash) != XXH_OK)
        err = dlc_fail(DLC_ENOMEM, "out of memory: shard digest");
    for (uint64_t at = 0; err == DLC_OK && at < n; at += COPY_TOKENS) {
        size_t k = n - at < COPY_TOKENS ? (size_t)(n - at) : COPY_TOKENS;

        err = read_raw(c, w, fd, at, k);
        if (err == DLC_OK)
            XXH3_64bits_update(hash, c->bytes, k * (size_t)w->width);
    }
    if (err == DLC_OK)
        *xxh3 = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    return err;
}

/* Copies tokens [from, end) of a part to a stream; *n_bytes: the text behind them. */
static dlc_err copy_tail(uint64_t *n_bytes, struct copy *c, struct dlc_shard_writer *w, int fd, uint64_t from,
                         uint64_t end, int stream)
{
    *n_bytes = 0;
    for (uint64_t at = from; at < end; at += COPY_TOKENS) {
        size_t n = end - at < COPY_TOKENS ? (size_t)(end - at) : COPY_TOKENS;
        struct dlc_cursor cursor = dlc_cursor(c->bytes, n * (size_t)w->width);

        DLC_TRY(read_raw(c, w, fd, at, n));
        for (size_t i = 0; i < n; i++) {
            c->ids[i] = (int32_t)dlc_get_uint(&cursor, (size_t)w->width);
            *n_bytes += w->token_bytes[c->ids[i]];
        }
        DLC_TRY(dlc_shard_writer_add(w, stream, c->ids, n));
    }
    return DLC_OK;
}

static dlc_err divide_part(struct dlc_shard_writer *w, int part, uint64_t from, int stream, int fd)
{
    struct copy *c = dlc_alloc(sizeof *c);
    uint64_t moved_bytes, xxh3 = 0;
    dlc_err err = DLC_ENOMEM;

    if (c)
        err = digest_head(&xxh3, c, w, fd, from);
    if (err == DLC_OK)
        err = copy_tail(&moved_bytes, c, w, fd, from, w->parts[part].n_tokens, stream);
    if (err == DLC_OK) {
        w->parts[part].xxh3 = xxh3;
        w->parts[part].n_bytes -= moved_bytes;
        w->parts[part].n_tokens = from;
    }
    dlc_free(c);
    return err;
}

static dlc_err cut_part(struct dlc_shard_writer *w, int part, uint64_t from, int stream)
{
    char path[DLC_PATH_MAX];
    dlc_err err;
    int fd;

    DLC_TRY(part_path(path, w, part));
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be read back", path);
    err = divide_part(w, part, from, stream, fd);
    if (err == DLC_OK && ftruncate(fd, (off_t)(DLC_SHARD_HEADER_BYTES + from * (uint64_t)w->width)) != 0)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be shortened", path);
    close(fd);
    return err == DLC_OK ? write_header(w, part) : err;
}

dlc_err dlc_shard_writer_move_tail(struct dlc_shard_writer *w, int source, uint64_t n, int32_t mark)
{
    uint64_t keep = dlc_shard_writer_source_tokens(w, source, false) - n, before = 0;
    int stream = dlc_shard_stream_index(source, true);
    size_t n_parts = w->n_parts; /* new ones are the tail's */

    DLC_TRY(dlc_shard_writer_add(w, stream, &mark, 1));
    for (size_t i = 0; i < n_parts; i++) {
        uint64_t there = w->parts[i].n_tokens;

        if (w->parts[i].val || w->parts[i].source != source)
            continue;
        if (before + there > keep)
            DLC_TRY(cut_part(w, (int)i, before < keep ? keep - before : 0, stream));
        before += there;
    }
    return dlc_shard_writer_close_all(w);
}

/* ---- publishing ---- */

static bool is_shard_name(const char *file, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(file, name, n) != 0)
        return false;
    file += n;
    if (strncmp(file, "_train_", 7) == 0)
        file += 7;
    else if (strncmp(file, "_val_", 5) == 0)
        file += 5;
    else
        return false;
    n = strspn(file, "0123456789");
    return n >= 6 && strcmp(file + n, ".bin") == 0;
}

static dlc_err remove_file(const char *folder, const char *name)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, folder, name));
    if (unlink(path) != 0 && errno != ENOENT)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be removed", path);
    return DLC_OK;
}

static dlc_err remove_old_shards(const struct dlc_shard_info *shards, size_t n, const char *folder, const char *name)
{
    struct dlc_names files;
    dlc_err err = dlc_list_folder(&files, folder);

    if (err != DLC_OK)
        return err;
    for (size_t i = 0; err == DLC_OK && i < files.n; i++) {
        bool current = false;

        for (size_t k = 0; k < n && !current; k++)
            current = strcmp(files.names[i], shards[k].name) == 0;
        if (!current && is_shard_name(files.names[i], name))
            err = remove_file(folder, files.names[i]);
    }
    dlc_names_free(&files);
    return err;
}

static dlc_err publish_part(struct dlc_shard_info *out, struct dlc_shard_writer *w, int part, const char *name,
                            unsigned number)
{
    const struct dlc_shard_part *p = &w->parts[part];
    char from[DLC_PATH_MAX], to[DLC_PATH_MAX];

    *out = (struct dlc_shard_info){
        .val = p->val, .source = p->source, .n_tokens = p->n_tokens, .n_bytes = p->n_bytes, .xxh3 = p->xxh3
    };
    snprintf(out->name, sizeof out->name, "%s_%s_%06u.bin", name, p->val ? "val" : "train", number);
    DLC_TRY(part_path(from, w, part));
    DLC_TRY(dlc_path_join(to, w->folder, out->name));
    if (rename(from, to) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be put in place", to);
    return DLC_OK;
}

dlc_err dlc_shard_writer_publish(struct dlc_shard_info **shards, size_t *n_shards, struct dlc_shard_writer *w,
                                 const char *name)
{
    struct dlc_shard_info *list = dlc_calloc(w->n_parts + 1, sizeof *list);
    size_t n = 0;
    dlc_err err = list ? DLC_OK : DLC_ENOMEM;

    for (int stream = 0; stream < 2 * DLC_SOURCES_MAX; stream++) {
        bool val = stream >= DLC_SOURCES_MAX; /* training first, each by source */
        int source = stream % DLC_SOURCES_MAX;

        for (size_t i = 0; err == DLC_OK && i < w->n_parts; i++) {
            unsigned number = 0;

            if (w->parts[i].val != val || w->parts[i].source != source || w->parts[i].n_tokens == 0)
                continue;
            for (size_t k = 0; k < n; k++)
                number += list[k].val == val;
            err = publish_part(&list[n], w, (int)i, name, number);
            n += err == DLC_OK;
        }
    }
    if (err == DLC_OK)
        err = dlc_shard_remove_parts(w->folder); /* those that were moved away whole */
    if (err == DLC_OK)
        err = remove_old_shards(list, n, w->folder, name);
    if (err == DLC_OK)
        err = dlc_fsync_folder(w->folder);
    if (err != DLC_OK) {
        dlc_free(list);
        return err;
    }
    *shards = list;
    *n_shards = n;
    return DLC_OK;
}

dlc_err dlc_shard_remove_parts(const char *folder)
{
    struct dlc_names files;
    dlc_err err = dlc_list_folder(&files, folder);

    if (err != DLC_OK)
        return err;
    for (size_t i = 0; err == DLC_OK && i < files.n; i++) {
        size_t n = strlen(files.names[i]);

        if (n > sizeof PART_SUFFIX && strncmp(files.names[i], PART_PREFIX, strlen(PART_PREFIX)) == 0 &&
            strcmp(files.names[i] + n - strlen(PART_SUFFIX), PART_SUFFIX) == 0)
            err = remove_file(folder, files.names[i]);
    }
    dlc_names_free(&files);
    return err;
}
