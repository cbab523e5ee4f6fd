#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runner.h"

#define FILE_MAX_BYTES ((size_t)256 << 20)

typedef void visit(void *self, const char *path, const char *below);

static void walk(const char *root, const char *below, visit *fn, void *self)
{
    char path[2 * DLC_PATH_MAX], next[DLC_PATH_MAX];
    struct dlc_names names;

    assert_true(strlen(root) + strlen(below) + 2 < sizeof path);
    snprintf(path, sizeof path, "%s/%s", root, below);
    if (dlc_list_folder(&names, path) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    for (size_t i = 0; i < names.n; i++) {
        assert_true((size_t)snprintf(next, sizeof next, "%s%s%s", below, *below ? "/" : "", names.names[i]) <
                    sizeof next);
        assert_true((size_t)snprintf(path, sizeof path, "%s/%s", root, next) < sizeof path);
        if (dlc_is_folder(path))
            walk(root, next, fn, self);
        else
            fn(self, path, next);
    }
    dlc_names_free(&names);
}

static void add(void *self, const char *path, const char *below)
{
    struct tree *t = self;
    struct dlc_buf b = { 0 };
    size_t n = strlen(below);

    if (n >= 4 && strcmp(below + n - 4, "lock") == 0) /* holds the last process */
        return;
    assert_true(t->n < TREE_MAX && strlen(below) < sizeof t->items[0].path);
    if (dlc_file_read(&b, path, FILE_MAX_BYTES) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    snprintf(t->items[t->n].path, sizeof t->items[0].path, "%s", below);
    t->items[t->n++].digest = dlc_sha256(b.data ? b.data : "", b.len);
    dlc_buf_fini(&b);
}

void tree_read(struct tree *out, const char *name)
{
    char root[2 * DLC_PATH_MAX];

    snprintf(root, sizeof root, "%s", in_scratch("%s", name));
    out->n = 0;
    walk(root, "", add, out);
}

void tree_nothing_lost(const struct tree *before, const char *name, const char *after_what)
{
    static struct tree now;
    size_t k;

    tree_read(&now, name);
    for (size_t i = 0; i < before->n; i++) {
        for (k = 0; k < now.n && strcmp(now.items[k].path, before->items[i].path) != 0; k++)
            ;
        if (k == now.n)
            fail_msg("%s: %s/%s is gone", after_what, name, before->items[i].path);
        if (!dlc_sha256_equal(&now.items[k].digest, &before->items[i].digest))
            fail_msg("%s: %s/%s has changed", after_what, name, before->items[i].path);
    }
}

static void copy_one(void *self, const char *path, const char *below)
{
    const char *to = in_scratch("%s/%s", (const char *)self, below);
    char folder[2 * DLC_PATH_MAX];

    snprintf(folder, sizeof folder, "%s", to);
    *strrchr(folder, '/') = '\0';
    if (dlc_mkdir_p(folder) != DLC_OK || dlc_copy_file(to, path) != DLC_OK)
        fail_msg("%s", dlc_err_text());
}

void tree_copy(const char *to, const char *from)
{
    char name[300], root[2 * DLC_PATH_MAX];

    snprintf(root, sizeof root, "%s", in_scratch("%s", from));
    snprintf(name, sizeof name, "%s", to);
    assert_int_equal(dlc_remove_tree(in_scratch("%s", to)), DLC_OK);
    walk(root, "", copy_one, name);
}

void file_cut(const char *name, uint64_t size_bytes)
{
    assert_int_equal(truncate(in_scratch("%s", name), (off_t)size_bytes), 0);
}

void file_flip(const char *name, uint64_t at)
{
    int fd = open(in_scratch("%s", name), O_RDWR);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte = (unsigned char)~byte;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

void file_write(const char *name, const void *bytes, size_t size_bytes)
{
    if (dlc_file_write_atomic(in_scratch("%s", name), bytes, size_bytes) != DLC_OK)
        fail_msg("%s", dlc_err_text());
}

uint64_t file_bytes(const char *name)
{
    uint64_t n;

    if (dlc_file_size(&n, in_scratch("%s", name)) != DLC_OK)
        fail_msg("%s", dlc_err_text());
    return n;
}
