#include "data/tokenizer.h"

#include <stdatomic.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/bpe_merge.h"
#include "data/split.h"
#include "data/tokenizer_internal.h"

#define FILE_MAX_BYTES ((size_t)256 << 20)

/* Text repeats its words: short pieces are looked up in a direct-mapped table before they are merged. It fits in a
 * second-level cache; a collision overwrites. */
#define CACHE_SLOTS 16384u
#define CACHED_BYTES 20
#define CACHED_IDS 8

struct cached {
    unsigned char size_bytes, n_ids; /* size 0: unused */
    char bytes[CACHED_BYTES];
    int32_t ids[CACHED_IDS];
};

struct core {
    atomic_int n_users;
    struct dlc_tokenizer_spec spec;
    struct dlc_buf json;
    struct dlc_sha256 digest;
};

struct dlc_tokenizer {
    struct core *core;
    dlc_splitter *splitter;
    struct dlc_bpe_scratch scratch;
    struct cached *cache;
    struct dlc_buf *ids; /* where the encode call in progress appends */
};

static void core_release(struct core *c)
{
    if (!c || atomic_fetch_sub(&c->n_users, 1) > 1)
        return;
    dlc_tokenizer_spec_fini(&c->spec);
    dlc_buf_fini(&c->json);
    dlc_free(c);
}

/* Takes over one use of the core, also on failure. */
static dlc_err make_handle(dlc_tokenizer **out, struct core *c)
{
    dlc_tokenizer *t = dlc_calloc(1, sizeof *t);
    dlc_err err = DLC_ENOMEM;

    *out = NULL;
    if (!t) {
        core_release(c);
        return DLC_ENOMEM;
    }
    t->core = c;
    t->cache = dlc_calloc(CACHE_SLOTS, sizeof *t->cache);
    if (t->cache)
        err = dlc_splitter_create(&t->splitter, c->spec.split);
    if (err != DLC_OK) {
        dlc_tokenizer_destroy(t);
        return err;
    }
    *out = t;
    return DLC_OK;
}

dlc_err dlc_tokenizer_parse(dlc_tokenizer **out, const char *json, size_t size_bytes, const char *where)
{
    struct core *c = dlc_calloc(1, sizeof *c);
    dlc_err err;

    *out = NULL;
    if (!c)
        return DLC_ENOMEM;
    atomic_init(&c->n_users, 1);
    err = dlc_tokenizer_spec_parse(&c->spec, json, size_bytes, where);
    if (err == DLC_OK)
        err = dlc_buf_append(&c->json, json, size_bytes);
    if (err != DLC_OK) {
        core_release(c);
        return err;
    }
    c->digest = dlc_sha256(json, size_bytes);
    return make_handle(out, c);
}

dlc_err dlc_tokenizer_load(dlc_tokenizer **out, const char *path)
{
    struct dlc_buf text = { 0 };
    dlc_err err;

    *out = NULL;
    err = dlc_file_read(&text, path, FILE_MAX_BYTES);
    if (err == DLC_OK)
        err = dlc_tokenizer_parse(out, text.data, text.len, path);
    dlc_buf_fini(&text);
    return err;
}

dlc_err dlc_tokenizer_clone(dlc_tokenizer **out, const dlc_tokenizer *t)
{
    atomic_fetch_add(&t->core->n_users, 1);
    return make_handle(out, t->core);
}

void dlc_tokenizer_destroy(dlc_tokenizer *t)
{
    if (!t)
        return;
    core_release(t->core);
    dlc_splitter_destroy(t->splitter);
    dlc_bpe_scratch_fini(&t->scratch);
    dlc_free(t->cache);
    dlc_free(t);
}

dlc_err dlc_tokenizer_to_json(struct dlc_buf *out, const dlc_tokenizer *t)
{
    return dlc_buf_append(out, t->core->json.data, t->core->json.len);
}

dlc_err dlc_tokenizer_digest(struct dlc_sha256 *out, const dlc_tokenizer *t)
{
    *out = t->core->digest;
    return DLC_OK;
}

int dlc_tokenizer_vocab_size(const dlc_tokenizer *t)
{
    return t->core->spec.model.vocab_size;
}

int32_t dlc_tokenizer_eot(const dlc_tokenizer *t)
{
    return t->core->spec.eot;
}

const char *dlc_tokenizer_token(size_t *size_bytes, const dlc_tokenizer *t, int32_t id)
{
    const struct dlc_bpe_model *m = &t->core->spec.model;

    *size_bytes = 0;
    if (id < 0 || id >= m->vocab_size || m->tokens[id].kind == DLC_TOKEN_NONE)
        return NULL;
    if (m->tokens[id].kind == DLC_TOKEN_SPECIAL)
        return "";
    *size_bytes = m->tokens[id].size_bytes;
    return dlc_bpe_model_bytes(m, id);
}

static dlc_err merge_piece(dlc_tokenizer *t, const char *piece, size_t n)
{
    const struct dlc_tokenizer_spec *spec = &t->core->spec;

    if (spec->ignore_merges) {
        int32_t whole = dlc_bpe_model_find(&spec->model, piece, n);

        if (whole >= 0)
            return dlc_buf_append(t->ids, &whole, sizeof whole);
    }
    return dlc_bpe_merge_piece(t->ids, &t->scratch, &spec->model, piece, n);
}

static dlc_err encode_piece(void *arg, const char *piece, size_t n)
{
    dlc_tokenizer *t = arg;
    size_t before = t->ids->len, n_ids;
    struct cached *c;

    if (n == 1 || n > CACHED_BYTES)
        return merge_piece(t, piece, n);
    c = &t->cache[dlc_xxh64(piece, n) % CACHE_SLOTS];
    if (c->size_bytes == n && memcmp(c->bytes, piece, n) == 0)
        return dlc_buf_append(t->ids, c->ids, c->n_ids * sizeof *c->ids);
    DLC_TRY(merge_piece(t, piece, n));
    n_ids = (t->ids->len - before) / sizeof(int32_t);
    if (n_ids <= CACHED_IDS) {
        c->size_bytes = (unsigned char)n;
        c->n_ids = (unsigned char)n_ids;
        memcpy(c->bytes, piece, n);
        memcpy(c->ids, t->ids->data + before, n_ids * sizeof *c->ids);
    }
    return DLC_OK;
}

dlc_err dlc_tokenizer_encode(struct dlc_buf *ids, dlc_tokenizer *t, const char *text, size_t size_bytes)
{
    if (size_bytes > DLC_BPE_PIECE_MAX)
        return dlc_fail(DLC_EINPUT, "text of %zu bytes; at most %zu are encoded at once: cut it", size_bytes,
                        DLC_BPE_PIECE_MAX);
    t->ids = ids;
    return dlc_split(t->splitter, text, size_bytes, encode_piece, t);
}

dlc_err dlc_tokenizer_decode(struct dlc_buf *text, const dlc_tokenizer *t, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t size_bytes;
        const char *bytes = dlc_tokenizer_token(&size_bytes, t, ids[i]);

        if (!bytes)
            return dlc_fail(DLC_EINPUT, "token id %d at position %zu is not in the vocabulary (%d tokens)", ids[i], i,
                            dlc_tokenizer_vocab_size(t));
        DLC_TRY(dlc_buf_append(text, bytes, size_bytes));
    }
    return DLC_OK;
}
