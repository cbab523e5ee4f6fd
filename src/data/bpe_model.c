#include "data/bpe_model.h"

#include <string.h>

#include "base/digest.h"
#include "base/mem.h"

#define FIRST_SLOTS 1024 /* tables double when they are half full */

static dlc_err make_slots(struct dlc_bpe_model *m, size_t n_by_bytes, size_t n_merges)
{
    if (n_by_bytes) {
        int32_t *slots = dlc_alloc(n_by_bytes * sizeof *slots);

        if (!slots)
            return DLC_ENOMEM;
        memset(slots, 0xff, n_by_bytes * sizeof *slots);
        m->by_bytes = slots;
        m->by_bytes_mask = n_by_bytes - 1;
    }
    if (n_merges) {
        struct dlc_bpe_merge *slots = dlc_alloc(n_merges * sizeof *slots);

        if (!slots)
            return DLC_ENOMEM;
        memset(slots, 0xff, n_merges * sizeof *slots);
        m->merges = slots;
        m->merges_mask = n_merges - 1;
    }
    return DLC_OK;
}

dlc_err dlc_bpe_model_init(struct dlc_bpe_model *m)
{
    dlc_err err;

    memset(m, 0, sizeof *m);
    memset(m->byte_id, 0xff, sizeof m->byte_id);
    err = make_slots(m, FIRST_SLOTS, FIRST_SLOTS);
    if (err != DLC_OK)
        dlc_bpe_model_fini(m);
    return err;
}

void dlc_bpe_model_fini(struct dlc_bpe_model *m)
{
    dlc_free(m->tokens);
    dlc_buf_fini(&m->bytes_of_tokens);
    dlc_free(m->by_bytes);
    dlc_free(m->merges);
    memset(m, 0, sizeof *m);
}

const char *dlc_bpe_model_bytes(const struct dlc_bpe_model *m, int32_t id)
{
    return m->bytes_of_tokens.data + m->tokens[id].offset;
}

int32_t dlc_bpe_model_find(const struct dlc_bpe_model *m, const char *bytes, size_t n)
{
    for (size_t i = dlc_xxh64(bytes, n) & m->by_bytes_mask; m->by_bytes[i] >= 0; i = (i + 1) & m->by_bytes_mask) {
        int32_t id = m->by_bytes[i];

        if (m->tokens[id].size_bytes == n && memcmp(dlc_bpe_model_bytes(m, id), bytes, n) == 0)
            return id;
    }
    return -1;
}

static void put_by_bytes(struct dlc_bpe_model *m, int32_t id)
{
    size_t i = dlc_xxh64(dlc_bpe_model_bytes(m, id), m->tokens[id].size_bytes) & m->by_bytes_mask;

    while (m->by_bytes[i] >= 0)
        i = (i + 1) & m->by_bytes_mask;
    m->by_bytes[i] = id;
}

static dlc_err index_text(struct dlc_bpe_model *m, int32_t id)
{
    if (2 * (m->n_text + 1) > m->by_bytes_mask + 1) {
        int32_t *old = m->by_bytes;
        size_t n_old = m->by_bytes_mask + 1;

        DLC_TRY(make_slots(m, 2 * n_old, 0));
        for (size_t i = 0; i < n_old; i++) {
            if (old[i] >= 0)
                put_by_bytes(m, old[i]);
        }
        dlc_free(old);
    }
    put_by_bytes(m, id);
    m->n_text++;
    if (m->tokens[id].size_bytes == 1)
        m->byte_id[(unsigned char)*dlc_bpe_model_bytes(m, id)] = id;
    return DLC_OK;
}

static dlc_err reach_id(struct dlc_bpe_model *m, int32_t id)
{
    if (id >= m->tokens_cap) {
        int cap = m->tokens_cap ? m->tokens_cap : 512;
        struct dlc_bpe_token *more;

        while (cap <= id)
            cap *= 2;
        more = dlc_realloc(m->tokens, (size_t)cap * sizeof *more);
        if (!more)
            return DLC_ENOMEM;
        memset(more + m->tokens_cap, 0, (size_t)(cap - m->tokens_cap) * sizeof *more);
        m->tokens = more;
        m->tokens_cap = cap;
    }
    if (id >= m->vocab_size)
        m->vocab_size = id + 1;
    return DLC_OK;
}

dlc_err dlc_bpe_model_add_token(struct dlc_bpe_model *m, int32_t id, dlc_token_kind kind, const char *bytes, size_t n)
{
    size_t offset = m->bytes_of_tokens.len;

    DLC_TRY(dlc_buf_append(&m->bytes_of_tokens, bytes, n));
    DLC_TRY(reach_id(m, id));
    m->tokens[id] = (struct dlc_bpe_token){ .offset = offset, .size_bytes = (uint32_t)n, .kind = kind };
    return kind == DLC_TOKEN_TEXT ? index_text(m, id) : DLC_OK;
}

static void put_merge(struct dlc_bpe_model *m, struct dlc_bpe_merge merge)
{
    size_t i = dlc_bpe_pair_hash(merge.pair) & m->merges_mask;

    while (m->merges[i].pair != UINT64_MAX)
        i = (i + 1) & m->merges_mask;
    m->merges[i] = merge;
}

dlc_err dlc_bpe_model_add_merge(bool *added, struct dlc_bpe_model *m, int32_t left, int32_t right, int32_t id,
                                int32_t rank)
{
    *added = dlc_bpe_model_merge(m, left, right) == NULL;
    if (!*added)
        return DLC_OK;
    if (2 * (m->n_merges + 1) > m->merges_mask + 1) {
        struct dlc_bpe_merge *old = m->merges;
        size_t n_old = m->merges_mask + 1;

        DLC_TRY(make_slots(m, 0, 2 * n_old));
        for (size_t i = 0; i < n_old; i++) {
            if (old[i].pair != UINT64_MAX)
                put_merge(m, old[i]);
        }
        dlc_free(old);
    }
    put_merge(m, (struct dlc_bpe_merge){ .pair = dlc_bpe_pair(left, right), .rank = rank, .id = id });
    m->n_merges++;
    return DLC_OK;
}
