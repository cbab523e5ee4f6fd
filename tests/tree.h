/* What is in a folder, to see that nothing got lost. Needs cmocka.h before. */
#ifndef DLC_TESTS_TREE_H
#define DLC_TESTS_TREE_H

#include <stddef.h>

#include "base/digest.h"
#include "base/file.h"

#define TREE_MAX 200

struct tree {
    size_t n;
    struct {
        char path[300]; /* below the folder */
        struct dlc_sha256 digest;
    } items[TREE_MAX];
};

/* All regular files below scratch/NAME but locks. */
void tree_read(struct tree *out, const char *name);
/* Every file is still there with the same content. */
void tree_nothing_lost(const struct tree *before, const char *name, const char *after_what);
/* A deep copy, scratch/FROM to scratch/TO (which is removed first). */
void tree_copy(const char *to, const char *from);

/* Changes of one file below the scratch folder. */
void file_cut(const char *name, uint64_t size_bytes);
void file_flip(const char *name, uint64_t at); /* inverts the byte there */
void file_write(const char *name, const void *bytes, size_t size_bytes);
uint64_t file_bytes(const char *name);

#endif
