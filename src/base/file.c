#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

dlc_err dlc_path_join(char out[DLC_PATH_MAX], const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *slash = n > 0 && folder[n - 1] == '/' ? "" : "/";
    int len = snprintf(out, DLC_PATH_MAX, "%s%s%s", folder, slash, name);

    if (len < 0 || len >= DLC_PATH_MAX)
        return dlc_fail(DLC_EUSAGE, "path too long (%d bytes, at most %d): %.60s...", len, DLC_PATH_MAX - 1, folder);
    return DLC_OK;
}

bool dlc_file_exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

bool dlc_is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

dlc_err dlc_file_size(uint64_t *out, const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EIO, "%s", path);
    *out = (uint64_t)st.st_size;
    return DLC_OK;
}

static dlc_err read_stream(struct dlc_buf *out, FILE *f, const char *path, size_t max_bytes)
{
    char chunk[65536];
    size_t n;

    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) {
        if (n > max_bytes - out->len)
            return dlc_fail(DLC_EINPUT, "%s: larger than the %zu bytes allowed here", path, max_bytes);
        DLC_TRY(dlc_buf_append(out, chunk, n));
    }
    if (ferror(f))
        return dlc_fail_errno(DLC_EIO, "%s: cannot be read", path);
    return dlc_buf_append(out, "", 0);
}

dlc_err dlc_file_read(struct dlc_buf *out, const char *path, size_t max_bytes)
{
    dlc_err err;
    FILE *f;

    dlc_buf_clear(out);
    if (dlc_is_folder(path))
        return dlc_fail(DLC_EINPUT, "%s: a folder, expected a file", path);
    f = fopen(path, "rb");
    if (!f)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EIO, "%s", path);
    err = read_stream(out, f, path, max_bytes);
    fclose(f);
    return err;
}

static dlc_err map_opened(struct dlc_file_map *out, int fd, const char *path)
{
    struct stat st;
    void *at;

    if (fstat(fd, &st) != 0)
        return dlc_fail_errno(DLC_EIO, "%s", path);
    if (!S_ISREG(st.st_mode))
        return dlc_fail(DLC_EINPUT, "%s: %s, expected a file", path,
                        S_ISDIR(st.st_mode) ? "a folder" : "not a plain file");
    if (st.st_size == 0) /* nothing can be mapped */
        return DLC_OK;
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return dlc_fail_errno(errno == ENOMEM ? DLC_ENOMEM : DLC_EIO, "%s: %lld bytes cannot be mapped", path,
                              (long long)st.st_size);
    *out = (struct dlc_file_map){ .data = at, .size_bytes = (size_t)st.st_size };
    return DLC_OK;
}

dlc_err dlc_file_map_open(struct dlc_file_map *out, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe under this name must not block */
    dlc_err err;

    *out = (struct dlc_file_map){ .data = "" };
    if (fd < 0)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EIO, "%s", path);
    err = map_opened(out, fd, path);
    close(fd);
    return err;
}

void dlc_file_map_close(struct dlc_file_map *map)
{
    if (map->size_bytes > 0)
        munmap((void *)(uintptr_t)map->data, map->size_bytes);
    *map = (struct dlc_file_map){ .data = "" };
}

static void parent_folder(char out[DLC_PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        snprintf(out, DLC_PATH_MAX, ".");
    else
        snprintf(out, DLC_PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

dlc_err dlc_fsync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    int rc;

    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be opened to make it durable", path);
    rc = fsync(fd);
    if (rc != 0 && (errno == EINVAL || errno == ENOTSUP))
        rc = 0; /* file systems that order renames themselves refuse fsync on folders */
    if (rc != 0)
        dlc_fail_errno(DLC_EIO, "%s: cannot be made durable", path);
    close(fd);
    return rc == 0 ? DLC_OK : DLC_EIO;
}

dlc_err dlc_file_writer_open(struct dlc_file_writer *w, const char *path)
{
    int fd;

    *w = (struct dlc_file_writer){ .err = DLC_OK };
    if (snprintf(w->path, sizeof w->path, "%s", path) >= (int)sizeof w->path ||
        snprintf(w->tmp_path, sizeof w->tmp_path, "%s.tmp-XXXXXX", path) >= (int)sizeof w->tmp_path)
        return dlc_fail(DLC_EUSAGE, "path too long: %.60s...", path);
    fd = mkostemp(w->tmp_path, O_CLOEXEC);
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be created", w->tmp_path);
    (void)fchmod(fd, 0644);
    w->file = fdopen(fd, "wb");
    if (!w->file) {
        close(fd);
        unlink(w->tmp_path);
        return dlc_fail_errno(DLC_EIO, "%s", w->tmp_path);
    }
    return DLC_OK;
}

void dlc_file_writer_write(struct dlc_file_writer *w, const void *data, size_t size_bytes)
{
    if (w->err != DLC_OK || size_bytes == 0)
        return;
    if (fwrite(data, 1, size_bytes, w->file) != size_bytes)
        w->err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", w->path);
}

void dlc_file_writer_abort(struct dlc_file_writer *w)
{
    if (w->file)
        fclose(w->file);
    w->file = NULL;
    unlink(w->tmp_path);
}

static dlc_err put_in_place(struct dlc_file_writer *w, bool durable)
{
    if (w->err == DLC_OK && (fflush(w->file) != 0 || (durable && fsync(fileno(w->file)) != 0)))
        w->err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", w->path);
    if (w->err != DLC_OK) {
        dlc_file_writer_abort(w);
        return w->err;
    }
    if (fclose(w->file) != 0) {
        w->file = NULL;
        w->err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", w->path);
        unlink(w->tmp_path);
        return w->err;
    }
    w->file = NULL;
    if (rename(w->tmp_path, w->path) != 0) {
        w->err = dlc_fail_errno(DLC_EIO, "%s: cannot be put in place", w->path);
        unlink(w->tmp_path);
    }
    return w->err;
}

dlc_err dlc_file_writer_place(struct dlc_file_writer *w)
{
    return put_in_place(w, false);
}

dlc_err dlc_file_writer_commit(struct dlc_file_writer *w)
{
    char folder[DLC_PATH_MAX];

    DLC_TRY(put_in_place(w, true));
    parent_folder(folder, w->path);
    return dlc_fsync_folder(folder);
}

dlc_err dlc_file_rename_durable(const char *to, const char *from)
{
    char folder[DLC_PATH_MAX];
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    int rc;

    if (fd < 0)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EIO, "%s", from);
    rc = fsync(fd);
    if (rc != 0)
        dlc_fail_errno(DLC_EIO, "%s: cannot be made durable", from);
    close(fd);
    if (rc != 0)
        return DLC_EIO;
    if (rename(from, to) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be put in place", to);
    parent_folder(folder, to);
    return dlc_fsync_folder(folder);
}

dlc_err dlc_file_write_atomic(const char *path, const void *data, size_t size_bytes)
{
    struct dlc_file_writer w;

    DLC_TRY(dlc_file_writer_open(&w, path));
    dlc_file_writer_write(&w, data, size_bytes);
    return dlc_file_writer_commit(&w);
}

static dlc_err write_all(int fd, const char *data, size_t n, const char *path)
{
    while (n > 0) {
        ssize_t done = write(fd, data, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return dlc_fail_errno(DLC_EIO, "%s: cannot be written", path);
        data += done;
        n -= (size_t)done;
    }
    return DLC_OK;
}

dlc_err dlc_file_append_line(const char *path, const char *line, bool durable)
{
    struct dlc_buf b = { 0 };
    dlc_err err;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    off_t before;

    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be opened", path);
    before = lseek(fd, 0, SEEK_END);
    DLC_TRY_TO(done, dlc_buf_printf(&b, "%s\n", line));
    err = write_all(fd, b.data, b.len, path);
    if (err == DLC_OK && durable && fsync(fd) != 0)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be made durable", path);
    if (err != DLC_OK && before >= 0)
        (void)!ftruncate(fd, before); /* no half line for the next append to glue itself to */
done:
    dlc_buf_fini(&b);
    close(fd);
    return err;
}

dlc_err dlc_mkdir_p(const char *path)
{
    char partial[DLC_PATH_MAX];
    size_t n = strlen(path);

    if (n == 0 || n >= sizeof partial)
        return dlc_fail(DLC_EUSAGE, "not a usable folder name: '%.60s'", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        snprintf(partial, sizeof partial, "%.*s", (int)i, path);
        if (mkdir(partial, 0777) != 0 && errno != EEXIST)
            return dlc_fail_errno(DLC_EIO, "%s: folder cannot be made", partial);
    }
    if (!dlc_is_folder(path))
        return dlc_fail(DLC_EIO, "%s: exists and is not a folder", path);
    return DLC_OK;
}

static dlc_err remove_children(const char *path)
{
    struct dlc_names names;
    char child[DLC_PATH_MAX];
    dlc_err err = dlc_list_folder(&names, path);

    if (err != DLC_OK)
        return err;
    for (size_t i = 0; err == DLC_OK && i < names.n; i++) {
        err = dlc_path_join(child, path, names.names[i]);
        if (err == DLC_OK)
            err = dlc_remove_tree(child);
    }
    dlc_names_free(&names);
    return err;
}

dlc_err dlc_remove_tree(const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0)
        return errno == ENOENT ? DLC_OK : dlc_fail_errno(DLC_EIO, "%s", path);
    if (S_ISDIR(st.st_mode))
        DLC_TRY(remove_children(path));
    if (remove(path) != 0 && errno != ENOENT)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be removed", path);
    return DLC_OK;
}

dlc_err dlc_copy_file(const char *to, const char *from)
{
    struct dlc_file_writer w;
    char chunk[65536];
    size_t n;
    FILE *f = fopen(from, "rb");

    if (!f)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EIO, "%s", from);
    dlc_err err = dlc_file_writer_open(&w, to);
    if (err != DLC_OK) {
        fclose(f);
        return err;
    }
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        dlc_file_writer_write(&w, chunk, n);
    if (ferror(f))
        w.err = dlc_fail_errno(DLC_EIO, "%s: cannot be read", from);
    fclose(f);
    return dlc_file_writer_commit(&w);
}

dlc_err dlc_link_or_copy(const char *to, const char *from)
{
    if (link(from, to) == 0)
        return DLC_OK;
    if (errno == ENOENT)
        return dlc_fail_errno(DLC_ENOTFOUND, "%s", from);
    return dlc_copy_file(to, from);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

dlc_err dlc_list_folder(struct dlc_names *out, const char *path)
{
    dlc_err err = DLC_OK;
    size_t cap = 0;
    struct dirent *e;
    DIR *d = opendir(path);

    *out = (struct dlc_names){ 0 };
    if (!d)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EIO, "%s", path);
    while (err == DLC_OK && (e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (out->n == cap) {
            char **bigger = dlc_realloc(out->names, (cap ? 2 * cap : 32) * sizeof *bigger);

            if (!bigger) {
                err = DLC_ENOMEM;
                break;
            }
            out->names = bigger;
            cap = cap ? 2 * cap : 32;
        }
        out->names[out->n] = dlc_strdup(e->d_name);
        if (!out->names[out->n])
            err = DLC_ENOMEM;
        else
            out->n++;
    }
    closedir(d);
    if (err != DLC_OK)
        dlc_names_free(out);
    else if (out->n > 1)
        qsort(out->names, out->n, sizeof *out->names, by_name);
    return err;
}

void dlc_names_free(struct dlc_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        dlc_free(names->names[i]);
    dlc_free(names->names);
    *names = (struct dlc_names){ 0 };
}

static dlc_err lock_busy(const char *path, int fd)
{
    char pid[32] = "";
    ssize_t n = pread(fd, pid, sizeof pid - 1, 0);

    if (n > 0)
        pid[strcspn(pid, "\n")] = '\0';
    return dlc_fail(DLC_EINPUT, "%s: in use by process %s; wait for it to end or stop it first", path,
                    n > 0 ? pid : "(unknown)");
}

dlc_err dlc_lock_take(int *out_fd, const char *path)
{
    char pid[32];
    int n, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    dlc_err err;

    *out_fd = -1;
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be opened", path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        err = errno == EWOULDBLOCK ? lock_busy(path, fd) : dlc_fail_errno(DLC_EIO, "%s: cannot be locked", path);
        close(fd);
        return err;
    }
    n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)n, 0) != n) {
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", path);
        close(fd);
        return err;
    }
    *out_fd = fd;
    return DLC_OK;
}

void dlc_lock_release(int fd)
{
    if (fd >= 0)
        close(fd);
}
