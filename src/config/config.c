#include "config/config.h"

#include <string.h>

#include "config/keys.h"

_Static_assert(sizeof(dlc_method) == sizeof(int), "enum keys are written as int");

static size_t index_of(const struct dlc_key *key)
{
    size_t n;

    return (size_t)(key - dlc_config_keys(&n));
}

static void mark_given(struct dlc_config *config, const struct dlc_key *key, bool given)
{
    uint64_t bit = (uint64_t)1 << index_of(key) % 64;

    if (given)
        config->given[index_of(key) / 64] |= bit;
    else
        config->given[index_of(key) / 64] &= ~bit;
}

void dlc_config_default(struct dlc_config *config)
{
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < n; i++)
        if (keys[i].fallback)
            (void)dlc_key_parse(config, &keys[i], keys[i].fallback, "default"); /* config_test sets each one */
    (void)dlc_config_apply_preset(config); /* the default preset is one of the list */
}

static dlc_err unknown_key(const char *key, const char *where)
{
    const char *nearest = dlc_config_nearest_key(key);

    if (nearest)
        return dlc_fail(DLC_EUSAGE, "%s: there is no key '%.80s'; did you mean %s?", where, key, nearest);
    return dlc_fail(DLC_EUSAGE, "%s: there is no key '%.80s'; diloco train --help lists them", where, key);
}

dlc_err dlc_config_set(struct dlc_config *config, const char *key, const char *value, const char *where)
{
    const struct dlc_key *row = dlc_config_find_key(key, strlen(key));

    if (!row)
        return unknown_key(key, where);
    DLC_TRY(dlc_key_parse(config, row, value, where));
    mark_given(config, row, !(row->may_be_auto && strcmp(value, "auto") == 0));
    return DLC_OK;
}

bool dlc_config_is_given(const struct dlc_config *config, const char *key)
{
    const struct dlc_key *row = dlc_config_find_key(key, strlen(key));

    return row && (config->given[index_of(row) / 64] >> index_of(row) % 64 & 1);
}

dlc_err dlc_config_apply_preset(struct dlc_config *config)
{
    struct dlc_config preset = *config;
    size_t n;
    const struct dlc_key *keys = dlc_config_keys(&n);

    DLC_TRY(dlc_model_preset(&preset.model.shape, config->model.preset));
    for (size_t i = 0; i < n; i++)
        if (!keys[i].fallback && !dlc_config_is_given(config, keys[i].name))
            memcpy((char *)config + keys[i].offset, (char *)&preset + keys[i].offset, keys[i].size_bytes);
    if (dlc_config_is_given(config, "model.heads") && !dlc_config_is_given(config, "model.kv_heads"))
        config->model.shape.n_kv_heads = config->model.shape.n_heads; /* plain attention, not an odd grouping */
    return DLC_OK;
}

int dlc_config_n_identities(const struct dlc_config *config)
{
    return config->exchange.kind == DLC_EXCHANGE_NATS ? config->exchange.max_islands : config->train.islands;
}
