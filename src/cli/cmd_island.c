/* diloco island: one island of a run on this machine, as a process of its own. `diloco train` starts it with
 * descriptors 3 (connection) and 4 (shared memory); nobody types it. */
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "island/island_main.h"

enum { SOCKET_FD = 3, MEMORY_FD = 4 };

struct args {
    struct dlc_common common;
    const char *run, *run_id;
    const char *data_sha256;
    int64_t index, incarnation, parent, vocab;
};

static const struct dlc_option options[] = {
    { "run", DLC_OPTION_TEXT, offsetof(struct args, run), .value = "FOLDER", .help = "the run folder" },
    { "run-id", DLC_OPTION_TEXT, offsetof(struct args, run_id), .value = "ID", .help = "the run's id" },
    { "index", DLC_OPTION_INT, offsetof(struct args, index), .max = 1e6, .value = "I", .help = "which island" },
    { "incarnation", DLC_OPTION_INT, offsetof(struct args, incarnation), .max = 1e9, .value = "N",
      .help = "which start of it" },
    { "parent", DLC_OPTION_INT, offsetof(struct args, parent), .max = 1e15, .value = "PID",
      .help = "the coordinator's process" },
    { "vocab", DLC_OPTION_INT, offsetof(struct args, vocab), .max = 1e9, .value = "N", .help = "the vocabulary's size" },
    { "data-sha256", DLC_OPTION_TEXT, offsetof(struct args, data_sha256), .value = "HEX",
      .help = "digest of the data the run began with" },
};

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .run = NULL };
    struct dlc_config config;
    char path[DLC_PATH_MAX];
    struct dlc_sha256 data_digest;
    bool reported;
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    if (!a.run || !a.run_id || !a.data_sha256)
        return dlc_fail(DLC_EUSAGE, "diloco island is started by diloco train");
    dlc_log_set_level(DLC_LOG_WARN);
    DLC_TRY(dlc_sha256_from_hex(&data_digest, a.data_sha256));
    DLC_TRY(dlc_path_join(path, a.run, "run.ini"));
    dlc_config_default(&config);
    DLC_TRY(dlc_config_read_ini(&config, path));
    err = dlc_island_main(&config,
                          &(struct dlc_island_args){ .run_folder = a.run,
                                                     .run_id = a.run_id,
                                                     .parent = (long)a.parent,
                                                     .vocab_size = (int)a.vocab,
                                                     .data_digest = data_digest,
                                                     .index = (int)a.index,
                                                     .incarnation = (uint32_t)a.incarnation,
                                                     .socket_fd = SOCKET_FD,
                                                     .memory_fd = MEMORY_FD },
                          &reported);
    /* The coordinator says what it was told; where it has ended, it has said why, or nobody is there to read. */
    if (reported || err == DLC_EPEER)
        dlc_log_set_level(DLC_LOG_NOTHING);
    return err;
}

const struct dlc_verb dlc_verb_island = {
    .name = "island",
    .summary = "one island of a run; started by train",
    .usage = "(started by diloco train)",
    .text = "",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
