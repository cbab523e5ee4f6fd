#include "data/meta.h"

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/bpe_model.h"

#define FORMAT "diloco-shards"
#define VERSION 1

static const char *const val_splits[] = { "hash", "tail", "none" };

static json_t *shard_to_json(const struct dlc_data_meta *meta, const struct dlc_shard_info *s)
{
    char xxh3[17];

    snprintf(xxh3, sizeof xxh3, "%016" PRIx64, s->xxh3);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:s}", "name", s->name, "split", s->val ? "val" : "train", "source",
                     meta->sources[s->source], "tokens", (json_int_t)s->n_tokens, "bytes", (json_int_t)s->n_bytes,
                     "xxh3", xxh3);
}

static void totals(uint64_t *tokens, uint64_t *bytes, const struct dlc_data_meta *meta, bool val)
{
    *tokens = *bytes = 0;
    for (size_t i = 0; i < meta->n_shards; i++) {
        if (meta->shards[i].val == val) {
            *tokens += meta->shards[i].n_tokens;
            *bytes += meta->shards[i].n_bytes;
        }
    }
}

dlc_err dlc_data_meta_write(const char *path, const struct dlc_data_meta *meta)
{
    json_t *sources = json_array(), *shards = json_array(), *root;
    uint64_t train_tokens, train_bytes, val_tokens, val_bytes;
    char hex[DLC_SHA256_HEX];
    dlc_err err;

    for (int i = 0; i < meta->n_sources; i++)
        json_array_append_new(sources, json_string(meta->sources[i]));
    for (size_t i = 0; i < meta->n_shards; i++)
        json_array_append_new(shards, shard_to_json(meta, &meta->shards[i]));
    totals(&train_tokens, &train_bytes, meta, false);
    totals(&val_tokens, &val_bytes, meta, true);
    dlc_sha256_to_hex(hex, &meta->tokenizer_digest);
    root = json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:s}", "format", FORMAT, "version", VERSION, "tokenizer",
                     "tokenizer.json", "tokenizer_sha256", hex, "vocab_size", meta->vocab_size, "eot_id",
                     (int)meta->eot, "dtype", meta->width == 2 ? "uint16" : "uint32");
    if (!root || json_array_size(sources) != (size_t)meta->n_sources || json_array_size(shards) != meta->n_shards ||
        json_object_update_new(root,
                               json_pack("{s:I, s:I, s:I, s:I, s:s, s:f}", "documents", (json_int_t)meta->n_documents,
                                         "bytes", (json_int_t)meta->n_bytes, "invalid_utf8_bytes",
                                         (json_int_t)meta->n_invalid_utf8, "skipped", (json_int_t)meta->n_skipped,
                                         "val_split", meta->val_split, "val_fraction", meta->val_fraction)) != 0 ||
        json_object_update_new(root, json_pack("{s:I, s:I, s:I, s:I, s:O, s:O}", "train_tokens",
                                               (json_int_t)train_tokens, "train_bytes", (json_int_t)train_bytes,
                                               "val_tokens", (json_int_t)val_tokens, "val_bytes", (json_int_t)val_bytes,
                                               "sources", sources, "shards", shards)) != 0)
        err = dlc_fail(DLC_ENOMEM, "out of memory: %s", path);
    else
        err = dlc_json_write_file(path, root);
    json_decref(root);
    json_decref(sources);
    json_decref(shards);
    return err;
}

static dlc_err get_count(uint64_t *out, const json_t *object, const char *key, const char *where)
{
    int64_t n;

    DLC_TRY(dlc_json_get_int(&n, object, key, 0, INT64_MAX, where));
    *out = (uint64_t)n;
    return DLC_OK;
}

static dlc_err read_sources(struct dlc_data_meta *m, const json_t *root, const char *where)
{
    json_t *list, *label;
    size_t i;

    DLC_TRY(dlc_json_get_array(&list, root, "sources", where));
    if (json_array_size(list) < 1 || json_array_size(list) > DLC_SOURCES_MAX)
        return dlc_fail(DLC_EINPUT, "%s: %zu sources, must be 1..%d", where, json_array_size(list), DLC_SOURCES_MAX);
    m->sources = dlc_calloc(json_array_size(list), sizeof *m->sources);
    if (!m->sources)
        return DLC_ENOMEM;
    json_array_foreach(list, i, label)
    {
        if (!json_is_string(label) || json_string_length(label) >= DLC_LABEL_BYTES)
            return dlc_fail(DLC_EINPUT, "%s: source %zu is not a text of at most %d bytes", where, i,
                            DLC_LABEL_BYTES - 1);
        snprintf(m->sources[m->n_sources++], DLC_LABEL_BYTES, "%s", json_string_value(label));
    }
    return DLC_OK;
}

static dlc_err read_xxh3(uint64_t *out, const char *hex, const char *where)
{
    if (strlen(hex) != 16 || strspn(hex, "0123456789abcdef") != 16)
        return dlc_fail(DLC_EINPUT, "%s: \"xxh3\" is not 16 hexadecimal digits: '%.40s'", where, hex);
    *out = strtoull(hex, NULL, 16);
    return DLC_OK;
}

static dlc_err read_shard(struct dlc_shard_info *out, const struct dlc_data_meta *m, const json_t *shard,
                          const char *where)
{
    const char *name, *split, *source, *xxh3;

    DLC_TRY(dlc_json_get_string(&name, shard, "name", where));
    if (!*name || *name == '.' || strchr(name, '/') || strlen(name) >= DLC_SHARD_NAME_BYTES)
        return dlc_fail(DLC_EINPUT, "%s: shard name '%.60s' is not a plain file name", where, name);
    snprintf(out->name, sizeof out->name, "%s", name);
    DLC_TRY(dlc_json_get_string(&split, shard, "split", where));
    out->val = strcmp(split, "val") == 0;
    if (!out->val && strcmp(split, "train") != 0)
        return dlc_fail(DLC_EINPUT, "%s: shard %s has split '%.40s', must be train or val", where, name, split);
    DLC_TRY(dlc_json_get_string(&source, shard, "source", where));
    for (out->source = 0; out->source < m->n_sources; out->source++) {
        if (strcmp(m->sources[out->source], source) == 0)
            break;
    }
    if (out->source == m->n_sources)
        return dlc_fail(DLC_EINPUT, "%s: shard %s has source '%.60s', which is not in the list", where, name, source);
    DLC_TRY(get_count(&out->n_tokens, shard, "tokens", where));
    DLC_TRY(get_count(&out->n_bytes, shard, "bytes", where));
    DLC_TRY(dlc_json_get_string(&xxh3, shard, "xxh3", where));
    return read_xxh3(&out->xxh3, xxh3, where);
}

static dlc_err read_shards(struct dlc_data_meta *m, const json_t *root, const char *where)
{
    json_t *list, *shard;
    size_t i;

    DLC_TRY(dlc_json_get_array(&list, root, "shards", where));
    m->shards = dlc_calloc(json_array_size(list), sizeof *m->shards);
    if (!m->shards)
        return DLC_ENOMEM;
    json_array_foreach(list, i, shard)
    {
        DLC_TRY(read_shard(&m->shards[i], m, shard, where));
        m->n_shards++;
    }
    return DLC_OK;
}

static dlc_err read_head(struct dlc_data_meta *m, const json_t *root, const char *where)
{
    const char *format, *text;
    int64_t n;

    DLC_TRY(dlc_json_get_string(&format, root, "format", where));
    DLC_TRY(dlc_json_get_int(&n, root, "version", 1, INT32_MAX, where));
    if (strcmp(format, FORMAT) != 0 || n != VERSION)
        return dlc_fail(DLC_EINPUT, "%s: format '%.40s' version %lld, this program reads '%s' version %d", where,
                        format, (long long)n, FORMAT, VERSION);
    DLC_TRY(dlc_json_get_string(&text, root, "tokenizer_sha256", where));
    if (dlc_sha256_from_hex(&m->tokenizer_digest, text) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "%s: tokenizer_sha256", where);
    DLC_TRY(dlc_json_get_int(&n, root, "vocab_size", 1, DLC_VOCAB_MAX, where));
    m->vocab_size = (int)n;
    DLC_TRY(dlc_json_get_int(&n, root, "eot_id", 0, m->vocab_size - 1, where));
    m->eot = (int32_t)n;
    DLC_TRY(dlc_json_get_string(&text, root, "dtype", where));
    m->width = strcmp(text, "uint16") == 0 ? 2 : strcmp(text, "uint32") == 0 ? 4 : 0;
    if (m->width == 0)
        return dlc_fail(DLC_EINPUT, "%s: dtype '%.40s', must be uint16 or uint32", where, text);
    DLC_TRY(get_count(&m->n_documents, root, "documents", where));
    DLC_TRY(get_count(&m->n_bytes, root, "bytes", where));
    DLC_TRY(get_count(&m->n_invalid_utf8, root, "invalid_utf8_bytes", where));
    DLC_TRY(get_count(&m->n_skipped, root, "skipped", where));
    DLC_TRY(dlc_json_get_real(&m->val_fraction, root, "val_fraction", where));
    DLC_TRY(dlc_json_get_string(&text, root, "val_split", where));
    for (size_t i = 0; i < sizeof val_splits / sizeof *val_splits; i++) {
        if (strcmp(text, val_splits[i]) == 0)
            m->val_split = val_splits[i];
    }
    if (!m->val_split)
        return dlc_fail(DLC_EINPUT, "%s: val_split '%.40s', must be hash, tail or none", where, text);
    return DLC_OK;
}

dlc_err dlc_data_meta_parse(struct dlc_data_meta *out, const char *text, size_t size_bytes, const char *where)
{
    json_t *root;
    dlc_err err;

    *out = (struct dlc_data_meta){ 0 };
    DLC_TRY(dlc_json_parse(&root, text, size_bytes, where));
    err = read_head(out, root, where);
    if (err == DLC_OK)
        err = read_sources(out, root, where);
    if (err == DLC_OK)
        err = read_shards(out, root, where);
    json_decref(root);
    if (err != DLC_OK)
        dlc_data_meta_fini(out);
    return err;
}

void dlc_data_meta_fini(struct dlc_data_meta *meta)
{
    dlc_free(meta->sources);
    dlc_free(meta->shards);
    *meta = (struct dlc_data_meta){ 0 };
}

dlc_err dlc_data_meta_digest(struct dlc_sha256 *out, const struct dlc_data_meta *meta)
{
    struct dlc_buf lines = { 0 };
    char hex[DLC_SHA256_HEX];
    dlc_err err;

    dlc_sha256_to_hex(hex, &meta->tokenizer_digest);
    err = dlc_buf_printf(&lines, "%s %d\n", hex, meta->vocab_size);
    for (size_t i = 0; err == DLC_OK && i < meta->n_shards; i++) {
        const struct dlc_shard_info *s = &meta->shards[i];

        err = dlc_buf_printf(&lines, "%s %s %" PRIu64 " %016" PRIx64 "\n", s->val ? "val" : "train",
                             meta->sources[s->source], s->n_tokens, s->xxh3);
    }
    if (err == DLC_OK)
        *out = dlc_sha256(lines.data, lines.len);
    dlc_buf_fini(&lines);
    return err;
}
