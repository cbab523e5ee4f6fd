/* diloco coordinate: a run whose islands are on other machines. */
#include "base/file.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "net/wire.h"
#include "train/train.h"

struct args {
    struct dlc_common common;
    const char *config, *nats, *nats_program, *listen;
    bool fresh, insecure, loopback;
};

static const struct dlc_option options[] = {
    { "config", DLC_OPTION_TEXT, offsetof(struct args, config), .value = "FILE",
      .help = "read this run.ini first; flags beat it" },
    { "fresh", DLC_OPTION_FLAG, offsetof(struct args, fresh),
      .help = "insist on a new run: fails when the run folder has history" },
    { "listen", DLC_OPTION_TEXT, offsetof(struct args, listen), .value = "HOST:PORT",
      .help = "where islands reach this machine; without it every address and port 4222, or the next free one" },
    { "loopback", DLC_OPTION_FLAG, offsetof(struct args, loopback),
      .help = "only islands on this machine: listens on 127.0.0.1" },
    { "insecure", DLC_OPTION_FLAG, offsetof(struct args, insecure),
      .help = "no encryption; the secret stays, and whoever sees the traffic sees it" },
    { "nats", DLC_OPTION_TEXT, offsetof(struct args, nats), .value = "URL",
      .help = "use this NATS server or cluster instead of starting one: nats+tls://USER:SECRET@HOST:PORT?pin=PIN" },
    { "nats-server", DLC_OPTION_TEXT, offsetof(struct args, nats_program), .value = "PROGRAM",
      .help = "the nats-server to start, where it is not in the usual places" },
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
    DLC_TRY(dlc_options_parse(a, config, verb, argc, argv));
    return dlc_config_set(config, "exchange.kind", "nats", "coordinate");
}

static dlc_err check(const struct args *a, const struct dlc_config *config, const struct dlc_verb *verb)
{
    char ini[DLC_PATH_MAX];

    if (config->train.out[0] == '\0')
        return dlc_fail(DLC_EUSAGE, "--out RUN, the run folder, is missing: diloco %s %s", verb->name, verb->usage);
    DLC_TRY(dlc_path_join(ini, config->train.out, "run.ini"));
    if (config->data.path[0] == '\0' && !dlc_file_exists(ini)) /* a run with history knows its data */
        return dlc_fail(DLC_EUSAGE, "--data FOLDER, made by diloco prepare, is missing: diloco %s %s", verb->name,
                        verb->usage);
    if (config->train.method != DLC_METHOD_DILOCO)
        return dlc_fail(DLC_EUSAGE, "only --method diloco crosses machines; dp and single are for diloco train");
    if (config->train.checkpoint_every != 1)
        return dlc_fail(DLC_EUSAGE, "train.checkpoint_every = %d: where islands are elsewhere every outer step is kept, since "
                                    "they cannot train it a second time; leave it out",
                        config->train.checkpoint_every);
    if (a->nats && (a->listen || a->loopback || a->insecure))
        return dlc_fail(DLC_EUSAGE, "--nats uses a server that is there; --listen, --loopback and --insecure are of one "
                                    "that is started");
    return DLC_OK;
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .config = NULL };
    struct dlc_config config;
    struct dlc_train_options train;

    DLC_TRY(parse(&a, &config, verb, argc, argv));
    DLC_TRY(check(&a, &config, verb));
    DLC_TRY(dlc_wire_init());
    if (a.common.quiet)
        dlc_log_set_level(DLC_LOG_WARN);
    train = (struct dlc_train_options){ .serving = true,
                                        .serve = { .nats = a.nats,
                                                   .nats_program = a.nats_program,
                                                   .listen = a.listen,
                                                   .insecure = a.insecure,
                                                   .loopback = a.loopback },
                                        .fresh = a.fresh,
                                        .quiet = a.common.quiet,
                                        .json = a.common.json };
    return dlc_train(&config, &train);
}

const struct dlc_verb dlc_verb_coordinate = {
    .name = "coordinate",
    .summary = "serve a run to islands on other machines; prints the line to type there",
    .usage = "--data FOLDER --out RUN [--preset NAME] [--steps N] [--min-islands N] [--quorum N] [KEYS]",
    .text =
        "Starts a nats-server of its own (encrypted, with a secret), prints the `diloco join` line, and takes outer steps "
        "with\n"
        "whoever is there: islands join, leave, fail and come back at any time. It trains nothing itself; an island on "
        "this\n"
        "machine is one more `diloco join`. Killed or stopped, the same command goes on with the round it was in, and the\n"
        "islands train on meanwhile.\n\n"
        "  diloco coordinate --data data/demo --out runs/b --preset nano --steps 1000\n"
        "  diloco join 'nats+tls://…' --data data/demo          on each other machine\n"
        "  diloco status 'nats+tls://…'                         who is there, who is waited for\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .takes_config = true,
    .run = run,
};
