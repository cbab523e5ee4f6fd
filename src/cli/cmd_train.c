/* diloco train: the main job on one machine. Reads and checks what was asked for; src/train does it. */
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/file.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "train/train.h"

struct args {
    struct dlc_common common;
    const char *config;
    bool fresh;
};

static const struct dlc_option options[] = {
    { "config", DLC_OPTION_TEXT, offsetof(struct args, config), .value = "FILE",
      .help = "read this run.ini first; flags beat it" },
    { "fresh", DLC_OPTION_FLAG, offsetof(struct args, fresh),
      .help = "insist on a new run: fails when the run folder has history" },
};

/* Flags are read twice: --config may stand anywhere and its file comes first. */
static dlc_err parse(struct args *a, struct dlc_config *config, const struct dlc_verb *verb, int argc, char **argv)
{
    struct dlc_config flags;

    dlc_config_default(&flags);
    DLC_TRY(dlc_options_parse(a, &flags, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a->common, verb, 0, 0));
    dlc_config_default(config);
    if (a->config)
        DLC_TRY(dlc_config_read_ini(config, a->config));
    return dlc_options_parse(a, config, verb, argc, argv);
}

static dlc_err check_folders(const struct dlc_config *config, const struct dlc_verb *verb)
{
    char ini[DLC_PATH_MAX];

    if (config->train.out[0] == '\0')
        return dlc_fail(DLC_EUSAGE, "--out RUN, the run folder, is missing: diloco %s %s", verb->name, verb->usage);
    DLC_TRY(dlc_path_join(ini, config->train.out, "run.ini"));
    if (config->data.path[0] == '\0' && !dlc_file_exists(ini)) /* a run with history knows its data */
        return dlc_fail(DLC_EUSAGE, "--data FOLDER, made by diloco prepare, is missing: diloco %s %s", verb->name,
                        verb->usage);
    return DLC_OK;
}

/* Blocks from 128 kB on go back to the system when they are freed. Otherwise the C library keeps more of them with each
 * one that is freed, and cuts them into pieces: the coordinator, which computes now and then, held 15 to 30 MB of
 * nothing. */
static void keep_memory_small(void)
{
#ifdef M_MMAP_THRESHOLD
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .config = NULL };
    struct dlc_config config;

    keep_memory_small();
    DLC_TRY(parse(&a, &config, verb, argc, argv));
    DLC_TRY(check_folders(&config, verb));
    if (a.common.quiet)
        dlc_log_set_level(DLC_LOG_WARN);
    return dlc_train(&config,
                     &(struct dlc_train_options){ .fresh = a.fresh, .quiet = a.common.quiet, .json = a.common.json });
}

const struct dlc_verb dlc_verb_train = {
    .name = "train",
    .summary = "train a model with K islands on this machine; resumes by itself",
    .usage = "--data FOLDER --out RUN [--preset NAME] [--islands K] [--steps N] [KEYS]",
    .text =
        "Each island takes H = outer.steps AdamW steps alone, then all exchange one outer gradient and take one outer "
        "step. What\n"
        "was not given is chosen by rules that are safe for short runs, and said. A run folder with history goes on "
        "where its last\n"
        "checkpoint left off. Interrupting once ends the inner step, writes a checkpoint and exits with status 3.\n\n"
        "  diloco train --data data/demo --out runs/a --preset nano --islands 4 --steps 1000 --batch 16 --seed 1\n"
        "  diloco train --data data/demo --out runs/dp --method dp --islands 4 --steps 1000     data parallelism, to "
        "compare\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .takes_config = true,
    .run = run,
};
