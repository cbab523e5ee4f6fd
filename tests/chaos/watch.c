#include "watch.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define LEAST_SAMPLES 8

void chaos_life_fini(struct chaos_life *life)
{
    dlc_free(life->samples);
    *life = (struct chaos_life){ 0 };
}

static bool read_proc(char *out, size_t size, pid_t pid, const char *name)
{
    char path[64];
    FILE *file;
    size_t n;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    file = fopen(path, "re");
    if (!file)
        return false;
    n = fread(out, 1, size - 1, file);
    fclose(file);
    out[n] = '\0';
    return n > 0;
}

static int count_fds(pid_t pid)
{
    char path[64];
    DIR *dir;
    int n = 0;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

dlc_err chaos_watch(struct chaos_life *life, pid_t pid, double at_s)
{
    struct chaos_sample s = { .at_s = at_s, .n_fds = count_fds(pid) };
    char text[256];

    if (s.n_fds == 0 || !read_proc(text, sizeof text, pid, "statm"))
        return DLC_OK;
    s.rss_bytes = strtoull(strchr(text, ' ') ? strchr(text, ' ') : "0", NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (life->n == life->cap) {
        size_t cap = life->cap ? 2 * life->cap : 64;
        struct chaos_sample *grown = dlc_realloc(life->samples, cap * sizeof *grown);

        if (!grown)
            return DLC_ENOMEM;
        life->samples = grown;
        life->cap = cap;
    }
    life->samples[life->n++] = s;
    return DLC_OK;
}

static int by_rss(const void *a, const void *b)
{
    const struct chaos_sample *x = a, *y = b;

    return x->rss_bytes < y->rss_bytes ? -1 : x->rss_bytes > y->rss_bytes;
}

static int by_fds(const void *a, const void *b)
{
    return ((const struct chaos_sample *)a)->n_fds - ((const struct chaos_sample *)b)->n_fds;
}

/* The middle samples of [first, first + n), by memory and by descriptors; the order of the samples is kept. */
static void middle(struct chaos_sample *out, const struct chaos_sample *first, size_t n)
{
    struct chaos_sample v[64];

    n = n < 64 ? n : 64;
    memcpy(v, first, n * sizeof *v);
    qsort(v, n, sizeof *v, by_rss);
    out->rss_bytes = v[n / 2].rss_bytes;
    qsort(v, n, sizeof *v, by_fds);
    out->n_fds = v[n / 2].n_fds;
}

struct chaos_growth chaos_growth(const struct chaos_life *life, double start_s)
{
    struct chaos_growth g = { .known = false };
    struct chaos_sample early = { 0 }, late = { 0 };
    size_t skip = 0, n;

    while (skip < life->n && life->samples[skip].at_s < life->samples[0].at_s + start_s)
        skip++;
    n = life->n - skip;
    if (n < LEAST_SAMPLES)
        return g;
    middle(&early, life->samples + skip, n / 4);
    middle(&late, life->samples + life->n - n / 4, n / 4);
    g.known = true;
    g.rss_bytes = (double)late.rss_bytes - (double)early.rss_bytes;
    g.n_fds = (double)late.n_fds - early.n_fds;
    return g;
}

uint64_t chaos_folder_bytes(const char *path)
{
    struct dlc_names names;
    uint64_t sum = 0;

    if (dlc_list_folder(&names, path) != DLC_OK)
        return 0;
    for (size_t i = 0; i < names.n; i++) {
        char below[DLC_PATH_MAX];
        struct stat st;

        if (dlc_path_join(below, path, names.names[i]) != DLC_OK || lstat(below, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode))
            sum += chaos_folder_bytes(below);
        else if (S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_size;
    }
    dlc_names_free(&names);
    return sum;
}

/* /proc/PID/stat: pid (name) state parent ...; the name may hold anything. */
static bool is_child(pid_t pid, pid_t parent, const char *name)
{
    char text[512], *open, *close;

    if (!read_proc(text, sizeof text, pid, "stat"))
        return false;
    open = strchr(text, '(');
    close = strrchr(text, ')');
    if (!open || !close || strlen(close) < 5 || (pid_t)strtol(close + 4, NULL, 10) != parent)
        return false;
    return !name || ((size_t)(close - open - 1) == strlen(name) && strncmp(open + 1, name, strlen(name)) == 0);
}

int chaos_children(pid_t parent, const char *name, pid_t *out, int max)
{
    DIR *dir = opendir("/proc");
    int n = 0;

    if (!dir)
        return 0;
    for (struct dirent *e; n < max && (e = readdir(dir)) != NULL;) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)strtol(e->d_name, NULL, 10) : 0;

        if (pid > 0 && is_child(pid, parent, name))
            out[n++] = pid;
    }
    closedir(dir);
    return n;
}
