#include "data/inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/utf8.h"

#define DEPTH_MAX 64

/* Which files and folders were reached, by device and inode: links lead to them by other names. */
struct identity {
    dev_t device;
    ino_t inode;
    bool used;
};

struct walk {
    struct dlc_inputs *out;
    const char *spool;
    struct identity *seen; /* open addressing */
    size_t n_seen, seen_mask;
    char label[DLC_LABEL_BYTES];
    bool stdin_used;
};

void dlc_label_set(char out[DLC_LABEL_BYTES], const char *text, size_t n)
{
    size_t len = 0;

    while (n > 0) {
        size_t valid = dlc_utf8_valid_prefix(text, n > 4 ? 4 : n), one = 1;

        if (valid > 0 && ((unsigned char)*text & 0x80)) { /* length of the first character */
            while (one < valid && ((unsigned char)text[one] & 0xc0) == 0x80)
                one++;
        }
        if (len + one >= DLC_LABEL_BYTES)
            break;
        if (valid == 0 || (unsigned char)*text < 0x20 || *text == 0x7f)
            out[len++] = '_';
        else {
            memcpy(out + len, text, one);
            len += one;
        }
        text += one;
        n -= one;
    }
    out[len] = '\0';
    if (len == 0)
        snprintf(out, DLC_LABEL_BYTES, "text");
}

static size_t identity_slot(const struct walk *w, const struct stat *st)
{
    size_t i = ((size_t)st->st_ino * 0x9e3779b97f4a7c15u ^ (size_t)st->st_dev) & w->seen_mask;

    while (w->seen[i].used && (w->seen[i].inode != st->st_ino || w->seen[i].device != st->st_dev))
        i = (i + 1) & w->seen_mask;
    return i;
}

/* *again: it was reached before. */
static dlc_err remember(bool *again, struct walk *w, const struct stat *st)
{
    size_t slot;

    if (!w->seen || 2 * (w->n_seen + 1) > w->seen_mask + 1) {
        struct identity *old = w->seen;
        size_t n_old = old ? w->seen_mask + 1 : 0, n = old ? 2 * n_old : 256;

        w->seen = dlc_calloc(n, sizeof *w->seen);
        if (!w->seen) {
            w->seen = old;
            return DLC_ENOMEM;
        }
        w->seen_mask = n - 1;
        for (size_t i = 0; i < n_old; i++) {
            struct stat key = { .st_dev = old[i].device, .st_ino = old[i].inode };

            if (old[i].used)
                w->seen[identity_slot(w, &key)] = old[i];
        }
        dlc_free(old);
    }
    slot = identity_slot(w, st);
    *again = w->seen[slot].used;
    if (!*again) {
        w->seen[slot] = (struct identity){ .device = st->st_dev, .inode = st->st_ino, .used = true };
        w->n_seen++;
    }
    return DLC_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static bool ends_in(const char *name, size_t n, const char *suffix)
{
    size_t k = strlen(suffix);

    return n > k && strncasecmp(name + n - k, suffix, k) == 0;
}

static size_t without_compression(const char *name)
{
    size_t n = strlen(name);

    if (ends_in(name, n, ".gz"))
        return n - 3;
    return ends_in(name, n, ".zst") ? n - 4 : n;
}

static bool is_jsonl(const char *name)
{
    size_t n = without_compression(name);

    return ends_in(name, n, ".jsonl") || ends_in(name, n, ".ndjson") || ends_in(name, n, ".json");
}

static bool is_wanted_in_folder(const char *name)
{
    size_t n = without_compression(name);

    return ends_in(name, n, ".txt") || ends_in(name, n, ".jsonl");
}

static void label_of_file(char out[DLC_LABEL_BYTES], const char *path)
{
    const char *name = base_name(path);
    size_t n = without_compression(name);

    for (size_t i = n; i-- > 1;) {
        if (name[i] == '.') {
            n = i;
            break;
        }
    }
    dlc_label_set(out, name, n);
}

static dlc_err add_file(struct walk *w, const char *path, const struct stat *st, bool named)
{
    struct dlc_inputs *out = w->out;
    struct dlc_input *item;
    bool again;

    DLC_TRY(remember(&again, w, st));
    if (again) {
        out->n_again++;
        return DLC_OK;
    }
    if (out->n == out->cap) {
        size_t cap = out->cap ? 2 * out->cap : 16;
        struct dlc_input *more = dlc_realloc(out->items, cap * sizeof *more);

        if (!more)
            return DLC_ENOMEM;
        out->items = more;
        out->cap = cap;
    }
    item = &out->items[out->n];
    *item = (struct dlc_input){ .size_bytes = (uint64_t)st->st_size, .jsonl = is_jsonl(path), .named = named };
    memcpy(item->label, w->label, sizeof item->label);
    item->path = dlc_strdup(path);
    if (!item->path)
        return DLC_ENOMEM;
    out->n++;
    out->total_bytes += item->size_bytes;
    return DLC_OK;
}

static dlc_err walk_folder(struct walk *w, const char *path, const struct stat *st, int depth);

static dlc_err walk_entry(struct walk *w, const char *folder, const char *name, int depth)
{
    char path[DLC_PATH_MAX];
    struct stat st;

    if (name[0] == '.')
        return DLC_OK;
    DLC_TRY(dlc_path_join(path, folder, name));
    if (stat(path, &st) != 0) {
        if (errno == ELOOP || errno == ENOENT) { /* a link to itself or to nothing */
            dlc_warn("%s: a link that leads nowhere, left out", path);
            w->out->n_other++;
            return DLC_OK;
        }
        return dlc_fail_errno(DLC_EINPUT, "%s: cannot be read", path);
    }
    if (S_ISDIR(st.st_mode)) {
        if (depth == 0)
            dlc_label_set(w->label, name, strlen(name));
        return walk_folder(w, path, &st, depth + 1);
    }
    if (!S_ISREG(st.st_mode) || !is_wanted_in_folder(name)) {
        w->out->n_other++;
        return DLC_OK;
    }
    if (st.st_size == 0) {
        w->out->n_empty++;
        return DLC_OK;
    }
    return add_file(w, path, &st, false);
}

static dlc_err walk_folder(struct walk *w, const char *path, const struct stat *st, int depth)
{
    struct dlc_names names;
    char label[DLC_LABEL_BYTES];
    bool again;
    dlc_err err;

    DLC_TRY(remember(&again, w, st));
    if (again || depth > DEPTH_MAX) {
        dlc_warn("%s: %s, left out", path,
                 again ? "leads back to a folder that was read already (a loop of links?)" : "folders nested too deep");
        w->out->n_again++;
        return DLC_OK;
    }
    err = dlc_list_folder(&names, path);
    if (err != DLC_OK)
        return err == DLC_ENOMEM ? err : dlc_fail_context(DLC_EINPUT, "folder cannot be read");
    memcpy(label, w->label, sizeof label);
    for (size_t i = 0; err == DLC_OK && i < names.n; i++) {
        memcpy(w->label, label, sizeof label); /* subfolders change it */
        err = walk_entry(w, path, names.names[i], depth);
    }
    dlc_names_free(&names);
    return err;
}

static dlc_err add_folder(struct walk *w, const char *path, const struct stat *st)
{
    struct dlc_inputs *out = w->out;
    size_t n_before = out->n;
    uint64_t n_other = out->n_other, n_empty = out->n_empty, n_again = out->n_again;
    char real[PATH_MAX];

    if (!realpath(path, real))
        return dlc_fail_errno(DLC_EINPUT, "%s: cannot be read", path);
    dlc_label_set(w->label, base_name(real), strlen(base_name(real)));
    DLC_TRY(walk_folder(w, path, st, 0));
    if (out->n == n_before && out->n_again == n_again)
        return dlc_fail(DLC_EINPUT,
                        "%s: no text in this folder; wanted are .txt and .jsonl files (also .gz, .zst), there are %llu "
                        "empty ones and %llu of other kinds",
                        path, (unsigned long long)(out->n_empty - n_empty),
                        (unsigned long long)(out->n_other - n_other));
    return DLC_OK;
}

static dlc_err copy_stdin(int fd, const char *spool)
{
    char chunk[65536];
    ssize_t n;

    while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dlc_fail_errno(DLC_EIO, "standard input cannot be read");
        for (ssize_t done = 0; done < n;) {
            ssize_t k = write(fd, chunk + done, (size_t)(n - done));

            if (k < 0 && errno != EINTR)
                return dlc_fail_errno(DLC_EIO, "%s: cannot be written", spool);
            done += k < 0 ? 0 : k;
        }
    }
    return DLC_OK;
}

/* Lines of JSON are recognised by their first character: text rarely begins with a brace and a quote. */
static bool begins_like_json(const char *path)
{
    char head[64] = "";
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(head, 1, sizeof head - 1, f) : 0, i = 0;

    if (f)
        fclose(f);
    while (i < n && strchr(" \t\r\n", head[i]))
        i++;
    if (i == n || head[i++] != '{')
        return false;
    while (i < n && strchr(" \t", head[i]))
        i++;
    return i < n && head[i] == '"';
}

static dlc_err add_stdin(struct walk *w)
{
    struct stat st;
    dlc_err err;
    int fd;

    if (w->stdin_used)
        return dlc_fail(DLC_EUSAGE, "\"-\" (standard input) is given twice");
    w->stdin_used = true;
    fd = open(w->spool, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be created", w->spool);
    err = copy_stdin(fd, w->spool);
    if (err == DLC_OK && fstat(fd, &st) != 0)
        err = dlc_fail_errno(DLC_EIO, "%s", w->spool);
    if (close(fd) != 0 && err == DLC_OK)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be written", w->spool);
    if (err != DLC_OK)
        return err;
    if (st.st_size == 0)
        return dlc_fail(DLC_EINPUT, "standard input: empty");
    dlc_label_set(w->label, "stdin", 5);
    DLC_TRY(add_file(w, w->spool, &st, true));
    if (begins_like_json(w->spool)) {
        w->out->items[w->out->n - 1].jsonl = true;
        dlc_info("standard input looks like lines of JSON and is read as such");
    }
    return DLC_OK;
}

static dlc_err add_path(struct walk *w, const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return dlc_fail_errno(errno == ENOENT || errno == ENOTDIR ? DLC_ENOTFOUND : DLC_EINPUT, "%s", path);
    if (S_ISDIR(st.st_mode))
        return add_folder(w, path, &st);
    if (!S_ISREG(st.st_mode))
        return dlc_fail(DLC_EINPUT, "%s: not a file or a folder; pipe it in and give \"-\"", path);
    if (st.st_size == 0)
        return dlc_fail(DLC_EINPUT, "%s: empty", path);
    label_of_file(w->label, path);
    return add_file(w, path, &st, true);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static dlc_err add_glob(struct walk *w, const char *pattern)
{
    glob_t found = { 0 };
    dlc_err err = DLC_OK;
    int rc = glob(pattern, GLOB_NOSORT, NULL, &found);

    if (rc == GLOB_NOMATCH)
        err = dlc_fail(DLC_ENOTFOUND, "%s: no file matches", pattern);
    else if (rc != 0)
        err = dlc_fail(DLC_EINPUT, "%s: cannot be searched", pattern);
    else
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes); /* whatever the locale */
    for (size_t i = 0; err == DLC_OK && i < found.gl_pathc; i++)
        err = add_path(w, found.gl_pathv[i]);
    globfree(&found);
    return err;
}

dlc_err dlc_inputs_find(struct dlc_inputs *out, const char *const *names, size_t n, const char *spool)
{
    struct walk w = { .out = out, .spool = spool };
    dlc_err err = DLC_OK;

    *out = (struct dlc_inputs){ 0 };
    if (n == 0)
        return dlc_fail(DLC_EUSAGE, "no input: give files, folders, globs, or \"-\" for standard input");
    for (size_t i = 0; err == DLC_OK && i < n; i++) {
        if (strcmp(names[i], "-") == 0)
            err = add_stdin(&w);
        else if (strpbrk(names[i], "*?[") && !dlc_file_exists(names[i]))
            err = add_glob(&w, names[i]);
        else
            err = add_path(&w, names[i]);
    }
    dlc_free(w.seen);
    if (err != DLC_OK)
        dlc_inputs_free(out);
    return err;
}

void dlc_inputs_free(struct dlc_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++)
        dlc_free(inputs->items[i].path);
    dlc_free(inputs->items);
    *inputs = (struct dlc_inputs){ 0 };
}
