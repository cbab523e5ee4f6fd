/* What the tests of this folder share: failing allocations one by one, and a disk that is full. Needs cmocka.h before.
 */
#ifndef DLC_CKPT_CKPT_TEST_UTIL_H
#define DLC_CKPT_CKPT_TEST_UTIL_H

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

/* A fresh folder, in memory where the system has that: hundreds of fsyncs are waited for otherwise. */
static inline int test_make_folder(char *out, size_t size_bytes, const char *name)
{
    snprintf(out, size_bytes, "%s/dlc-%s-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", name);
    return mkdtemp(out) ? 0 : -1;
}

/* Runs fn again and again, each time failing a later allocation, until it gets through; gives the number of failures.
 * Every failure must be reported as DLC_ENOMEM, and none may be passed over. */
static inline int test_walk_allocations(dlc_err (*fn)(void *arg), void *arg)
{
    uint64_t n = 0, before;
    dlc_err err = DLC_ENOMEM;

    while (err == DLC_ENOMEM) {
        assert_true(n < 100000);
        dlc_mem_fail_at(++n);
        err = fn(arg);
        dlc_mem_fail_at(0);
    }
    if (err != DLC_OK)
        fail_msg("allocation %llu failed: error %d, text: %s", (unsigned long long)n, err, dlc_err_text());
    before = dlc_mem_n_allocs();
    assert_int_equal(fn(arg), DLC_OK);
    assert_int_equal(dlc_mem_n_allocs() - before, n - 1);
    return (int)n - 1;
}

/* A disk that gets full: a small tmpfs when this process may mount one (as root), a limit on file sizes otherwise. */
struct test_full_disk {
    char folder[DLC_PATH_MAX];
    const char *reason; /* part of the error's text */
    bool mounted;
    struct rlimit before;
};

static inline void test_full_disk_begin(struct test_full_disk *d, const char *folder)
{
    snprintf(d->folder, sizeof d->folder, "%s", folder);
    assert_int_equal(mkdir(folder, 0755), 0);
    d->mounted = false;
#ifdef __linux__
    d->mounted = mount("tmpfs", folder, "tmpfs", 0, "size=256k") == 0;
#endif
    d->reason = d->mounted ? "No space left on device" : "File too large";
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &d->before), 0);
}

/* From here on nothing more can be written. */
static inline void test_full_disk_fill(struct test_full_disk *d)
{
    char path[DLC_PATH_MAX], zeros[4096] = { 0 };
    struct rlimit none = d->before;
    FILE *f;

    if (!d->mounted) {
        signal(SIGXFSZ, SIG_IGN);
        none.rlim_cur = 0;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        return;
    }
    assert_int_equal(dlc_path_join(path, d->folder, "filler"), DLC_OK);
    f = fopen(path, "wb");
    assert_non_null(f);
    while (fwrite(zeros, 1, sizeof zeros, f) == sizeof zeros && fflush(f) == 0)
        continue;
    fclose(f);
}

static inline void test_full_disk_end(struct test_full_disk *d)
{
#ifdef __linux__
    if (d->mounted)
        assert_int_equal(umount(d->folder), 0);
#endif
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &d->before), 0);
}

static inline int test_count_files(const char *folder)
{
    struct dlc_names names;
    int n;

    assert_int_equal(dlc_list_folder(&names, folder), DLC_OK);
    n = (int)names.n;
    dlc_names_free(&names);
    return n;
}

#endif
