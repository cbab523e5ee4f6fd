/* What may be given anew to a run with history, and what must stay as it was. */
#include <string.h>

#include "config/config.h"
#include "config/keys.h"

/* These change neither theta nor the order of samples (system.isa and threads may change the last bits, which the run
 * notices and says); the policy on non-finite losses is what one changes after a run that stopped on one. */
static bool may_change(const char *name)
{
    static const char *const free_keys[] = { "data.path", "train.out", "train.eval_every", "train.log_every",
                                             "train.checkpoint_every", "train.keep", "exchange.kind",
                                             "train.nonfinite", "train.nonfinite_max",
                                             "outer.min_islands", "outer.quorum", "outer.refusals_max",
                                             "exchange.patience" };

    for (size_t i = 0; i < sizeof free_keys / sizeof *free_keys; i++) {
        if (strcmp(free_keys[i], name) == 0)
            return true;
    }
    return strncmp(name, "system.", 7) == 0;
}

static dlc_err compare(const struct dlc_config *frozen, const struct dlc_config *given, const struct dlc_key *key,
                       const char *run_folder)
{
    struct dlc_buf was = { 0 }, is = { 0 };
    dlc_err err;

    DLC_TRY_TO(done, dlc_key_format(&was, frozen, key));
    DLC_TRY_TO(done, dlc_key_format(&is, given, key));
    if (strcmp(was.data, is.data) != 0)
        err = dlc_fail(DLC_EUSAGE, "%s was begun with %s = %s and cannot go on with %s; leave it out, or take another --out",
                       run_folder, key->name, was.data, is.data);
done:
    dlc_buf_fini(&was);
    dlc_buf_fini(&is);
    return err;
}

dlc_err dlc_config_frozen_text(struct dlc_buf *out, const struct dlc_config *config)
{
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    for (size_t i = 0; i < n; i++) {
        if (may_change(keys[i].name))
            continue;
        DLC_TRY(dlc_buf_printf(out, "%s = ", keys[i].name));
        DLC_TRY(dlc_key_format(out, config, &keys[i]));
        DLC_TRY(dlc_buf_append(out, "\n", 1));
    }
    return DLC_OK;
}

dlc_err dlc_config_resume(struct dlc_config *frozen, const struct dlc_config *given, const char *run_folder)
{
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    for (size_t i = 0; i < n; i++) {
        const struct dlc_key *key = &keys[i];

        if (!dlc_config_is_given(given, key->name))
            continue;
        if (may_change(key->name))
            memcpy((char *)frozen + key->offset, (const char *)given + key->offset, key->size_bytes);
        else
            DLC_TRY(compare(frozen, given, key, run_folder));
    }
    return DLC_OK;
}

/* What each island may choose for itself: where things are, and how its machine computes. */
static bool is_of_the_machine(const char *name)
{
    static const char *const names[] = { "data.path", "train.out", "train.precision", "train.micro_batch",
                                         "exchange.patience" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return strncmp(name, "system.", 7) == 0;
}

dlc_err dlc_config_join(struct dlc_config *run, const struct dlc_config *given)
{
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    for (size_t i = 0; i < n; i++) {
        const struct dlc_key *key = &keys[i];

        if (!dlc_config_is_given(given, key->name))
            continue;
        if (!is_of_the_machine(key->name))
            return dlc_fail(DLC_EUSAGE,
                            "%s belongs to the whole run and was chosen by its coordinator; an island may give "
                            "--data, --out, --train.precision, --train.micro_batch and the system keys",
                            key->name);
        memcpy((char *)run + key->offset, (const char *)given + key->offset, key->size_bytes);
    }
    return DLC_OK;
}
