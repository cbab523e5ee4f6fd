/* Flags of a verb: one table each (name, type, range, default, help), parsed into a plain struct. The same table makes
 * the help and docs/cli.md. A verb that takes a configuration accepts every key as a flag as well. */
#ifndef DLC_CLI_OPTIONS_H
#define DLC_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "config/config.h"

typedef enum {
    DLC_OPTION_FLAG, /* bool, no value */
    DLC_OPTION_INT,  /* int64_t */
    DLC_OPTION_SEED, /* uint64_t */
    DLC_OPTION_REAL, /* double */
    DLC_OPTION_TEXT, /* const char *, points into argv; NULL when not given and no default */
    DLC_OPTION_LIST  /* struct dlc_texts: may be given more than once; has no default */
} dlc_option_type;

enum { DLC_MAX_TEXTS = 16 };
struct dlc_texts {
    const char *items[DLC_MAX_TEXTS]; /* point into argv */
    size_t n;
};

struct dlc_option {
    const char *name; /* without dashes */
    dlc_option_type type;
    size_t offset; /* in the verb's struct */
    double min, max;
    const char *const *choices; /* texts: what is allowed; NULL-terminated; NULL: anything */
    const char *value;          /* what the help calls the value: "N" */
    const char *fallback;       /* the default, as text; NULL: none */
    const char *help;           /* one line */
};

/* Every verb's struct begins with this. */
struct dlc_common {
    bool quiet, json;
    char **words; /* what is not a flag, in order; points into argv */
    int n_words;
};

struct dlc_verb {
    const char *name;
    const char *summary; /* one line */
    const char *usage;   /* behind "diloco NAME": "MODEL --data FOLDER [--json]" */
    const char *text;    /* paragraphs of help; lines end with \n */
    const struct dlc_option *options;
    size_t n_options;
    bool takes_config;                                                  /* flags are keys of the configuration too */
    dlc_err (*run)(const struct dlc_verb *verb, int argc, char **argv); /* argv: what follows the verb */
};

/* --quiet and --json. */
const struct dlc_option *dlc_common_options(size_t *n);

/* Fills `args` (the verb's struct) with defaults and then with argv, which is reordered. --name value and --name=value;
 * "--" ends the flags, "-" alone is a word. `config` is set from flags that are keys (the verb takes one), or NULL.
 * DLC_EUSAGE names the flag, its range, or the nearest known one. */
dlc_err dlc_options_parse(void *args, struct dlc_config *config, const struct dlc_verb *verb, int argc, char **argv);

/* Exactly so many words, or DLC_EUSAGE with the usage line. max < 0: any number. */
dlc_err dlc_options_words(const struct dlc_common *common, const struct dlc_verb *verb, int min, int max);

#endif
