/* The table of keys: the only list of what can be configured. The file, the flags, the help, docs/cli.md and the checks
 * of type and range all read it, so a key is added by one row here and one field in struct dlc_config. */
#ifndef DLC_CONFIG_KEYS_H
#define DLC_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "config/config.h"

typedef enum {
    DLC_KEY_INT,
    DLC_KEY_INT64,
    DLC_KEY_UINT64,
    DLC_KEY_REAL,
    DLC_KEY_BOOL,
    DLC_KEY_ENUM,
    DLC_KEY_TEXT
} dlc_key_type;

struct dlc_key {
    const char *name; /* "optim.lr" */
    const char *flag; /* a shorter flag, without dashes: "data"; NULL: none beside the bare name */
    dlc_key_type type;
    size_t offset, size_bytes;        /* in struct dlc_config */
    double min, max;                  /* of numbers, inclusive */
    bool may_be_auto;                 /* numbers: the text "auto" stands for DLC_AUTO */
    const char *const *choices;       /* enums in the order of the enum, texts: what is allowed; NULL-terminated */
    const char *const *(*list)(void); /* choices that another folder knows */
    const char *fallback;             /* the default, as text; NULL: the preset's */
    const char *help;                 /* one line */
};

const struct dlc_key *dlc_config_keys(size_t *n);

/* By full name, by short flag or, when only one key has it, by bare name ("momentum"); '-' counts as '_'. NULL: none.
 * `length` bytes of `name` count. */
const struct dlc_key *dlc_config_find_key(const char *name, size_t length);

/* The nearest full name or flag for a mistyped one, or NULL when nothing is near. */
const char *dlc_config_nearest_key(const char *name);

/* One value from text, checked; and to text that reads back as the same value. */
dlc_err dlc_key_parse(void *config, const struct dlc_key *key, const char *text, const char *where);
dlc_err dlc_key_format(struct dlc_buf *out, const void *config, const struct dlc_key *key);

/* "1..1024", "iid | source", "text": what a key accepts, for help and errors. */
dlc_err dlc_key_describe(struct dlc_buf *out, const struct dlc_key *key);

#endif
