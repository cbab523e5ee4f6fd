/* Fault storms with real processes: chaos NAME [--seed N] [--seconds S] [--schedule] [--folder DIR] [--keep].
 * Prints the schedule on standard error and one JSON object on standard output. Exit status: 0 everything held, 1 not,
 * 2 usage, 77 this build has no `coordinate`. DILOCO names the program. README.md beside this says more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/mem.h"
#include "scene_setup.h"
#include "storm.h"

#define MB 1e6

/* Durations of faults: kill (and restart), stall, leave, cut, slow, reset, kill server, kill and stall coordinator,
 * disk */
#define DURATIONS                                                                                                      \
    {                                                                                                                  \
        { 1, 2 }, { 5, 20 }, { 1, 4 }, { 2, 10 }, { 5, 15 }, { 0, 0 }, { 0, 0 }, { 0.3, 1.5 }, { 2, 6 },               \
        {                                                                                                              \
            3, 3                                                                                                       \
        }                                                                                                              \
    }

static const struct storm_config storms[] = {
    {
        .name = "short",
        .about = "4 islands, half a minute: part of the ordinary tests",
        .plan = { .n_islands = 4,
                  .duration_s = 25,
                  .every_s = 2,
                  .weight = { 6, 2, 2, 3, 1, 2, 2, 2, 0, 0 },
                  .for_s = { { 0.5, 1 },
                             { 2, 5 },
                             { 0.5, 2 },
                             { 1, 4 },
                             { 2, 5 },
                             { 0, 0 },
                             { 0, 0 },
                             { 0.3, 1 },
                             { 1, 2 },
                             { 3, 3 } },
                  .rest_s = 3,
                  .least_up = 0.5 },
        .round_s = 0.7,
        .least_steps_used = 0.8,
        .most_stop_s = 20,
        .least_faults = 5,
    },
    {
        .name = "storm-8",
        .about = "8 islands, a fault every 2 s for 3 minutes",
        .plan = { .n_islands = 8,
                  .duration_s = 180,
                  .every_s = 2,
                  .weight = { 6, 3, 2, 3, 2, 2, 1, 1, 1, 0 },
                  .for_s = DURATIONS,
                  .rest_s = 3,
                  .least_up = 0.5 },
        .round_s = 2,
        .link_delay_s = 0.005,
        .link_bits_per_s = 100e6,
        .least_steps_used = 0.9,
        .most_recovery_rounds = 2,
        .most_stop_s = 20,
        .least_faults = 50,
        .most_growth_bytes = 16 * MB,
        .most_growth_fds = 8,
    },
    {
        .name = "storm-32",
        .about = "32 tiny islands, rounds of 5 s, a fault every 10 s for 5 minutes",
        .plan = { .n_islands = 32,
                  .duration_s = 300,
                  .every_s = 10,
                  .weight = { 1, 1, 0, 1, 0, 0, 0, 0, 0, 0 },
                  .for_s = DURATIONS,
                  .rest_s = 5,
                  .least_up = 0.5 },
        .round_s = 5,
        .least_contributing = 0.95,
        .most_stop_s = 60,
        .least_faults = 20,
        .most_growth_bytes = 16 * MB,
        .most_growth_fds = 8,
    },
    {
        .name = "coordinator-kills",
        .about = "20 kills of the coordinator; the end is that of an undisturbed run",
        .plan = { .n_islands = 3,
                  .duration_s = 75,
                  .every_s = 3,
                  .weight = { 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 },
                  .for_s = DURATIONS,
                  .rest_s = 0.2,
                  .least_up = 1 },
        .round_s = 1,
        .n_rounds = 100,
        .wait_for_all = true,
        .least_faults = 20,
    },
    {
        .name = "full-disk",
        .about = "the run folder's disk is full now and then (root only: a small file system is mounted)",
        .plan = { .n_islands = 3,
                  .duration_s = 60,
                  .every_s = 10,
                  .weight = { 1, 0, 0, 0, 0, 0, 0, 0, 0, 3 },
                  .for_s = DURATIONS,
                  .rest_s = 3,
                  .least_up = 0.5 },
        .round_s = 1,
        .most_stop_s = 30,
        .least_faults = 3,
    },
    {
        .name = "soak",
        .about = "8 islands, half an hour: does anything grow?",
        .plan = { .n_islands = 8,
                  .duration_s = 1800,
                  .every_s = 15,
                  .weight = { 4, 3, 2, 3, 2, 2, 1, 1, 1, 0 },
                  .for_s = DURATIONS,
                  .rest_s = 5,
                  .least_up = 0.5 },
        .round_s = 3,
        .least_steps_used = 0.9,
        .most_stop_s = 60,
        .least_faults = 60,
        .most_growth_bytes = 8 * MB,
        .most_growth_fds = 4,
    },
};

struct options {
    const struct storm_config *storm;
    uint64_t seed;
    double seconds; /* 0: as long as the storm says */
    const char *folder;
    bool keep, schedule_only;
};

static int usage(void)
{
    fprintf(stderr, "chaos NAME [--seed N] [--seconds S] [--schedule] [--folder DIR] [--keep]\n");
    for (size_t i = 0; i < sizeof storms / sizeof *storms; i++)
        fprintf(stderr, "  %-18s %s\n", storms[i].name, storms[i].about);
    return 2;
}

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){ .seed = 1 };
    for (size_t i = 0; argc > 1 && i < sizeof storms / sizeof *storms; i++)
        if (strcmp(argv[1], storms[i].name) == 0)
            o->storm = &storms[i];
    for (int i = 2; i < argc; i++) {
        bool value = i + 1 < argc;

        if (strcmp(argv[i], "--seed") == 0 && value)
            o->seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0 && value)
            o->seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--folder") == 0 && value)
            o->folder = argv[++i];
        else if (strcmp(argv[i], "--keep") == 0)
            o->keep = true;
        else if (strcmp(argv[i], "--schedule") == 0)
            o->schedule_only = true;
        else
            return false;
    }
    return o->storm != NULL;
}

static int print_schedule(const struct storm *s)
{
    struct dlc_buf text = { 0 };

    for (size_t i = 0; i < s->n_faults; i++)
        if (chaos_describe(&text, &s->faults[i]) != DLC_OK || dlc_buf_printf(&text, "\n") != DLC_OK)
            return 1;
    fputs(text.len ? text.data : "", stdout);
    dlc_buf_fini(&text);
    return 0;
}

static dlc_err make_folder(char out[DLC_PATH_MAX], const char *asked)
{
    if (asked) {
        snprintf(out, DLC_PATH_MAX, "%s", asked);
        return dlc_mkdir_p(out);
    }
    snprintf(out, DLC_PATH_MAX, "%s/diloco-chaos-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(out) ? DLC_OK : dlc_fail_errno(DLC_EIO, "%s", out);
}

/* A disk of its own for the run folder, so that filling it hurts nobody else. False: not allowed here. */
static bool mount_small(const char *folder)
{
    char run[DLC_PATH_MAX];

    return dlc_path_join(run, folder, "run") == DLC_OK && dlc_mkdir_p(run) == DLC_OK &&
           mount("diloco-chaos", run, "tmpfs", 0, "size=24m") == 0;
}

static bool needs_a_disk(const struct storm_config *c)
{
    return c->plan.weight[CHAOS_FILL_DISK] > 0;
}

/* --- against an undisturbed run ---------------------------------------------------------------------------- */

static dlc_err run_calmly(struct storm *calm, const char *folder)
{
    char data[DLC_PATH_MAX];

    DLC_TRY(dlc_mkdir_p(folder));
    DLC_TRY(dlc_path_join(data, folder, "data"));
    if (symlink("../data", data) != 0)
        return dlc_fail_errno(DLC_EIO, "%s", data);
    return storm_run(calm);
}

static dlc_err compare(struct storm *s, const struct dlc_records *a, const struct dlc_records *b)
{
    if (a->n != b->n || a->n != (size_t)s->config->n_rounds)
        DLC_TRY(dlc_buf_printf(&s->findings.wrong, "%zu records after the storm, %zu without, expected %d\n", a->n,
                               b->n, s->config->n_rounds));
    for (size_t t = 0; t < a->n && t < b->n; t++)
        if (!dlc_sha256_equal(&a->items[t].theta, &b->items[t].theta))
            return dlc_buf_printf(&s->findings.wrong, "theta(%zu) is not that of the undisturbed run\n", t + 1);
    return DLC_OK;
}

static dlc_err read_run(struct dlc_records *out, const char *folder)
{
    struct chaos_findings f;
    char run[DLC_PATH_MAX];
    dlc_err err;

    DLC_TRY(dlc_path_join(run, folder, "run"));
    err = chaos_check_folder(&f, out, run, SCENE_CONTEXT);
    chaos_findings_fini(&f);
    return err;
}

/* The same run without faults must have had the same parameters after every outer step. */
static dlc_err compare_with_calm(struct storm *s, const char *folder)
{
    struct storm *calm = dlc_calloc(1, sizeof *calm);
    struct dlc_records a = { 0 }, b = { 0 };
    char calm_folder[DLC_PATH_MAX];
    dlc_err err;

    if (!calm)
        return DLC_ENOMEM;
    *calm = (struct storm){ .config = s->config, .program = s->program, .folder = calm_folder, .seed = s->seed };
    calm->H = s->H;
    err = dlc_path_join(calm_folder, folder, "calm");
    if (err == DLC_OK)
        err = run_calmly(calm, calm_folder);
    if (err == DLC_OK)
        err = read_run(&a, folder);
    if (err == DLC_OK)
        err = read_run(&b, calm_folder);
    if (err == DLC_OK)
        err = compare(s, &a, &b);
    dlc_records_free(&a);
    dlc_records_free(&b);
    storm_fini(calm);
    dlc_free(calm);
    return err;
}

/* --- one storm --------------------------------------------------------------------------------------------- */

static dlc_err carry_out(struct storm *s, const char *folder, bool *held)
{
    struct dlc_buf text = { 0 };
    double step_s, per_core;
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    dlc_err err;

    DLC_TRY(scene_make_data(s->program, folder));
    DLC_TRY(scene_step_seconds(&step_s, s->program, folder));
    per_core = fmax(1, (double)s->config->plan.n_islands / (double)n_cores);
    s->H = (int64_t)fmax(5, s->config->round_s / step_s / per_core);
    fprintf(stderr, "an inner step takes %.2f ms; rounds of %lld steps\n", step_s * 1e3, (long long)s->H);
    DLC_TRY(storm_run(s));
    if (s->config->n_rounds > 0)
        DLC_TRY(compare_with_calm(s, folder));
    err = storm_report(&text, held, s);
    fputs(text.len ? text.data : "", stdout);
    dlc_buf_fini(&text);
    return err;
}

static int in_folder(struct storm *s, const struct options *o)
{
    char folder[DLC_PATH_MAX], run[DLC_PATH_MAX];
    bool held = false, mounted = false;
    dlc_err err = make_folder(folder, o->folder);

    if (err == DLC_OK && !scene_has_verb(s->program, "coordinate", folder)) {
        fprintf(stderr, "skipped: this diloco has no verb `coordinate` (built without libnats?)\n");
        (void)dlc_remove_tree(folder);
        return 77;
    }
    if (err == DLC_OK && needs_a_disk(s->config) && !(mounted = mount_small(folder))) {
        fprintf(stderr, "skipped: a small file system cannot be mounted here (it takes root)\n");
        (void)dlc_remove_tree(folder);
        return 77;
    }
    s->folder = folder;
    if (err == DLC_OK)
        err = carry_out(s, folder, &held);
    if (err != DLC_OK)
        fprintf(stderr, "chaos: %s\n", dlc_err_text());
    storm_fini(s);
    if (mounted && dlc_path_join(run, folder, "run") == DLC_OK)
        (void)umount2(run, MNT_DETACH);
    if (o->keep || !held)
        fprintf(stderr, "kept: %s\n", folder);
    else
        (void)dlc_remove_tree(folder);
    return held ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct storm s;
    static struct storm_config config;
    struct options o;
    const char *program = getenv("DILOCO");

    if (!parse(&o, argc, argv))
        return usage();
    config = *o.storm;
    if (o.seconds > 0) {
        double part = o.seconds / config.plan.duration_s;

        config.least_faults = (int)(config.least_faults * part);
        config.n_rounds = (int)ceil(config.n_rounds * part);
        config.plan.duration_s = o.seconds;
    }
    s = (struct storm){ .config = &config, .program = program ? program : "build/diloco", .seed = o.seed };
    s.n_faults = chaos_schedule(s.faults, STORM_MAX_FAULTS, &config.plan, o.seed);
    if (o.schedule_only)
        return print_schedule(&s);
    fprintf(stderr, "storm %s, seed %llu: %zu faults in %.0f s\n", config.name, (unsigned long long)o.seed, s.n_faults,
            config.plan.duration_s);
    actors_adopt();
    return in_folder(&s, &o);
}
