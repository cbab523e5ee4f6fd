#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cgroup.h"
#include "base/file.h"
#include "base/pool.h"

#define must(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != DLC_OK)                                                                                          \
            fail_msg("%s", dlc_err_text());                                                                            \
    } while (0)

/* --- jobs --------------------------------------------------------------------------------------------------------- */

struct visits {
    _Atomic int n[64];
    int sleep_us; /* of the last worker */
};

static void visit(void *arg, int worker, int n_workers)
{
    struct visits *v = arg;

    if (worker == n_workers - 1 && v->sleep_us)
        nanosleep(&(struct timespec){ .tv_nsec = v->sleep_us * 1000L }, NULL);
    atomic_fetch_add(&v->n[worker], 1);
}

/* Threads that spin, that have given up spinning and that sleep all get every job, and the caller waits for all. */
static void every_worker_does_every_job_once(void **state)
{
    static const struct {
        int n_threads, n_jobs, pause_us, job_us;
        const char *why;
    } rows[] = {
        { 1, 100, 0, 0, "no thread but the caller" },
        { 2, 20000, 0, 0, "one after the other: all are spinning" },
        { 2, 200, 60, 0, "about when they go to sleep" },
        { 2, 50, 1000, 0, "asleep" },
        { 2, 50, 0, 1000, "the caller sleeps while it waits" },
        { 2, 200, 0, 55, "the caller is about to" },
        { 17, 2000, 0, 0, "far more threads than cores" },
        { 64, 50, 1000, 200, "the same, with sleep on both sides" },
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct visits v = { .sleep_us = rows[r].job_us };
        dlc_pool *pool;

        must(dlc_pool_create(&pool, rows[r].n_threads));
        for (int i = 0; i < rows[r].n_jobs; i++) {
            dlc_pool_run(pool, visit, &v);
            for (int w = 0; w < rows[r].n_threads; w++)
                if (atomic_load(&v.n[w]) != i + 1)
                    fail_msg("%s: worker %d did %d of %d jobs", rows[r].why, w, atomic_load(&v.n[w]), i + 1);
            if (rows[r].pause_us)
                nanosleep(&(struct timespec){ .tv_nsec = rows[r].pause_us * 1000L }, NULL);
        }
        dlc_pool_destroy(pool);
    }
}

static void a_job_without_a_pool_runs_here(void **state)
{
    struct visits v = { .sleep_us = 0 };

    (void)state;
    dlc_pool_run(NULL, visit, &v);
    assert_int_equal(atomic_load(&v.n[0]), 1);
}

/* --- divided jobs ---------------------------------------------------------------------------------------------------
 */

enum { MAX_ITEMS = 1000, MAX_THREADS = 17 };

struct items {
    _Atomic int n_done[MAX_ITEMS];
    _Atomic int busy[MAX_THREADS]; /* a worker does one part at a time */
    _Atomic int n_wrong;
    size_t n, grain;
    int sleep_us, sleeper; /* of this worker, in every part */
};

static void do_items(void *arg, struct dlc_part part)
{
    struct items *j = arg;
    size_t length = j->n - part.begin < j->grain ? j->n - part.begin : j->grain;

    if (part.begin % j->grain != 0 || part.end != part.begin + length ||
        atomic_fetch_add(&j->busy[part.worker], 1) != 0)
        atomic_fetch_add(&j->n_wrong, 1);
    if (j->sleep_us && part.worker == j->sleeper)
        nanosleep(&(struct timespec){ .tv_nsec = j->sleep_us * 1000L }, NULL);
    for (size_t i = part.begin; i < part.end; i++)
        atomic_fetch_add(&j->n_done[i], 1);
    atomic_fetch_sub(&j->busy[part.worker], 1);
}

static void every_part_is_done_once(void **state)
{
    static const struct {
        size_t n, grain;
        int n_threads, n_jobs, sleep_us, sleeper;
        const char *why;
    } rows[] = {
        { 0, 3, 2, 100, 0, 0, "nothing to do" },
        { 3, 7, 2, 100, 0, 0, "one part, shorter than the grain" },
        { 1000, 7, 1, 10, 0, 0, "no thread but the caller" },
        { 1000, 7, 2, 2000, 0, 0, "a shorter part at the end" },
        { 5, 1, 2, 20000, 0, 0, "short jobs: workers come late and meet the next one" },
        { 6, 1, 17, 2000, 0, 0, "more threads than parts and cores" },
        { 9, 1, 3, 30, 300, 0, "the caller is slow" },
        { 9, 1, 3, 30, 300, 2, "another is slow" },
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        static struct items j;
        dlc_pool *pool;

        memset(&j, 0, sizeof j);
        j.n = rows[r].n;
        j.grain = rows[r].grain;
        j.sleep_us = rows[r].sleep_us;
        j.sleeper = rows[r].sleeper;
        must(dlc_pool_create(&pool, rows[r].n_threads));
        for (int k = 0; k < rows[r].n_jobs; k++) {
            dlc_pool_each(pool, do_items, &j, j.n, j.grain);
            for (size_t i = 0; i < MAX_ITEMS; i++)
                if (atomic_load(&j.n_done[i]) != (i < j.n ? k + 1 : 0))
                    fail_msg("%s: item %zu was done %d times in %d jobs", rows[r].why, i, atomic_load(&j.n_done[i]),
                             k + 1);
        }
        if (atomic_load(&j.n_wrong))
            fail_msg("%s: %d parts not as long as they should be, or two in one worker", rows[r].why,
                     atomic_load(&j.n_wrong));
        dlc_pool_destroy(pool);
    }
}

/* One worker holds its first part until all other parts are done: with parts dealt beforehand this would not end. */
struct held {
    _Atomic int n_done, is_held;
    _Atomic int by[64];
    int n_parts;
};

static void hold_one(void *arg, struct dlc_part part)
{
    struct held *h = arg;

    if (part.worker != 0 && atomic_exchange(&h->is_held, 1) == 0)
        while (atomic_load(&h->n_done) < h->n_parts - 1)
            sched_yield();
    else if (part.worker == 0)
        while (atomic_load(&h->is_held) == 0) /* else the caller might do all before the other is awake */
            sched_yield();
    atomic_fetch_add(&h->by[part.worker], 1);
    atomic_fetch_add(&h->n_done, 1);
}

static void others_do_what_a_slow_worker_leaves(void **state)
{
    struct held h = { .n_parts = 64 };
    dlc_pool *pool;

    (void)state;
    must(dlc_pool_create(&pool, 2));
    dlc_pool_each(pool, hold_one, &h, 64, 1);
    assert_int_equal(atomic_load(&h.by[0]), 63);
    assert_int_equal(atomic_load(&h.by[1]), 1);
    dlc_pool_destroy(pool);
}

/* Both kinds of job in turns: nobody misses a job for every worker because of parts that others did. */
static void kinds_of_jobs_mix(void **state)
{
    static struct items j = { .n = 4, .grain = 1 };
    struct visits v = { .sleep_us = 0 };
    dlc_pool *pool;

    (void)state;
    must(dlc_pool_create(&pool, 3));
    for (int k = 0; k < 5000; k++) {
        dlc_pool_each(pool, do_items, &j, j.n, j.grain);
        if (k % 3 == 0)
            dlc_pool_run(pool, visit, &v);
        for (int w = 0; w < 3; w++)
            assert_int_equal(atomic_load(&v.n[w]), k / 3 + 1);
        for (size_t i = 0; i < j.n; i++)
            assert_int_equal(atomic_load(&j.n_done[i]), k + 1);
    }
    dlc_pool_destroy(pool);
}

static void parts_without_a_pool_are_done_here(void **state)
{
    static struct items j = { .n = 10, .grain = 4 };

    (void)state;
    dlc_pool_each(NULL, do_items, &j, j.n, j.grain);
    for (size_t i = 0; i < MAX_ITEMS; i++)
        assert_int_equal(atomic_load(&j.n_done[i]), i < j.n);
    assert_int_equal(atomic_load(&j.n_wrong), 0);
}

/* --- pinning ------------------------------------------------------------------------------------------------------ */

#ifdef __linux__

enum { MAX_WORKERS = 8 };

struct places {
    cpu_set_t allowed[MAX_WORKERS];
};

static void look(void *arg, int worker, int n_workers)
{
    struct places *p = arg;

    (void)n_workers;
    (void)sched_getaffinity(0, sizeof p->allowed[worker], &p->allowed[worker]);
}

static int nth_core(const cpu_set_t *set, int n)
{
    int core = 0;

    for (;; core++)
        if (CPU_ISSET(core, set) && n-- == 0)
            return core;
}

/* Runs in a thread of its own: the calling thread is bound, too. */
static void *pin_and_look(void *arg)
{
    const int *how = arg; /* threads, first */
    static struct places p;
    cpu_set_t before;
    dlc_pool *pool;
    char *wrong = NULL;

    sched_getaffinity(0, sizeof before, &before);
    if (dlc_pool_create(&pool, how[0]) != DLC_OK || dlc_pool_pin(pool, how[1]) != DLC_OK)
        return strdup(dlc_err_text());
    dlc_pool_run(pool, look, &p);
    for (int w = 0; w < how[0]; w++) {
        int core = nth_core(&before, (how[1] + w) % CPU_COUNT(&before));

        if (!wrong && (CPU_COUNT(&p.allowed[w]) != 1 || !CPU_ISSET(core, &p.allowed[w])) &&
            asprintf(&wrong, "worker %d from core %d on: not on core %d alone", w, how[1], core) < 0)
            abort();
    }
    dlc_pool_destroy(pool);
    return wrong;
}

static void pinned_workers_have_the_cores_in_turn(void **state)
{
    static const struct {
        int how[2];
        const char *why;
    } rows[] = {
        { { 1, 0 }, "island 0 of one thread" },
        { { 1, 1 }, "island 1 of one thread: another core" },
        { { 2, 0 }, "both cores" },
        { { 2, 3 }, "more islands than cores: counted round" },
        { { 8, 5 }, "more threads than cores" },
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        pthread_t thread;
        void *wrong = NULL;

        assert_int_equal(pthread_create(&thread, NULL, pin_and_look, (void *)(uintptr_t)rows[r].how), 0);
        pthread_join(thread, &wrong);
        if (wrong)
            fail_msg("%s: %s", rows[r].why, (char *)wrong);
    }
}

#else

static void pinned_workers_have_the_cores_in_turn(void **state)
{
    (void)state;
    skip();
}

#endif

/* --- cores and quotas --------------------------------------------------------------------------------------------- */

static char folder[] = "/tmp/dlc-pool-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return dlc_remove_tree(folder) == DLC_OK ? 0 : -1;
}

static void put(const char *below, const char *name, const char *text)
{
    char at[DLC_PATH_MAX], path[DLC_PATH_MAX];

    must(dlc_path_join(at, folder, below));
    must(dlc_mkdir_p(at));
    must(dlc_path_join(path, at, name));
    must(dlc_file_write_atomic(path, text, strlen(text)));
}

static void tightest(void *arg, const char *where, int version)
{
    int *cores = arg, quota = dlc__cgroup_cores(where, version);

    if (quota > 0 && (*cores == 0 || quota < *cores))
        *cores = quota;
}

/* Files are put below the mount as {folder, file, text} up to the first without a folder. */
static void the_tightest_quota_counts(void **state)
{
    static const struct {
        const char *groups; /* /proc/self/cgroup */
        struct {
            const char *folder, *name, *text;
        } files[4];
        int cores;
        const char *why;
    } rows[] = {
        { "0::/\n", { { "", "cpu.max", "max 100000\n" } }, 0, "version 2, no quota" },
        { "0::/\n", { { "", "cpu.max", "200000 100000\n" } }, 2, "version 2, in a container" },
        { "0::/\n", { { "", "cpu.max", "150000 100000\n" } }, 2, "rounded up" },
        { "0::/\n", { { "", "cpu.max", "1000 100000\n" } }, 1, "a hundredth of a core is one" },
        { "0::/a/b\n", { { "a/b", "cpu.max", "300000 100000\n" } }, 3, "nested, on its own group" },
        { "0::/a/b\n",
          { { "a", "cpu.max", "100000 100000\n" }, { "a/b", "cpu.max", "300000 100000\n" } },
          1,
          "nested, the group above is tighter" },
        { "0::/a/b\n", { { "a", "cpu.max", "500000 100000\n" } }, 5, "nested, the group's own folder is not visible" },
        { "0::/../../x\n", { { "", "cpu.max", "100000 100000\n" } }, 0, "a group outside of what is mounted" },
        { "5:cpuset:/\n4:cpu,cpuacct:/k/p\n1:name=systemd:/\n",
          { { "cpu/k/p", "cpu.cfs_quota_us", "250000\n" }, { "cpu/k/p", "cpu.cfs_period_us", "100000\n" } },
          3,
          "version 1" },
        { "4:cpu,cpuacct:/docker/abc\n",
          { { "cpu", "cpu.cfs_quota_us", "100000\n" }, { "cpu", "cpu.cfs_period_us", "50000\n" } },
          2,
          "version 1 in a container: its group is the mount" },
        { "4:cpuset:/\n",
          { { "cpu", "cpu.cfs_quota_us", "100000\n" }, { "cpu", "cpu.cfs_period_us", "100000\n" } },
          0,
          "cpuset is not cpu" },
        { "4:cpu:/\n",
          { { "cpu", "cpu.cfs_quota_us", "-1\n" }, { "cpu", "cpu.cfs_period_us", "100000\n" } },
          0,
          "version 1, no quota" },
        { "0::/\n", { { "", "cpu.max", "nonsense\n" } }, 0, "not a number" },
        { "", { { "", "cpu.max", "100000 100000\n" } }, 0, "no groups at all" },
        { "4\n:\n::\n", { { "", "cpu.max", "100000 0\n" } }, 0, "lines that are none; a period of 0" },
    };

    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char proc[DLC_PATH_MAX];
        int cores = 0;

        must(dlc_remove_tree(folder));
        put("", "self", rows[r].groups);
        for (size_t i = 0; i < 4 && rows[r].files[i].folder; i++)
            put(rows[r].files[i].folder, rows[r].files[i].name, rows[r].files[i].text);
        must(dlc_path_join(proc, folder, "self"));
        dlc__cgroup_walk_at(proc, folder, "cpu", tightest, &cores);
        if (cores != rows[r].cores)
            fail_msg("%s: %d cores, expected %d", rows[r].why, cores, rows[r].cores);
    }
}

static void there_is_at_least_one_core(void **state)
{
    (void)state;
    assert_true(dlc_n_cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_does_every_job_once),
        cmocka_unit_test(a_job_without_a_pool_runs_here),
        cmocka_unit_test(every_part_is_done_once),
        cmocka_unit_test(others_do_what_a_slow_worker_leaves),
        cmocka_unit_test(kinds_of_jobs_mix),
        cmocka_unit_test(parts_without_a_pool_are_done_here),
        cmocka_unit_test(pinned_workers_have_the_cores_in_turn),
        cmocka_unit_test(the_tightest_quota_counts),
        cmocka_unit_test(there_is_at_least_one_core),
    };

    return cmocka_run_group_tests_name("pool", tests, make_folder, remove_folder);
}
