#include "data/bpe_merge.h"

#include <string.h>

#define SHORT_MAX 32

void dlc_bpe_scratch_fini(struct dlc_bpe_scratch *s)
{
    dlc_buf_fini(&s->nodes);
    dlc_buf_fini(&s->heap);
}

static dlc_err merge_short(struct dlc_buf *ids, const struct dlc_bpe_model *m, const char *piece, size_t n)
{
    int32_t id[SHORT_MAX];
    const struct dlc_bpe_merge *next[SHORT_MAX]; /* next[i]: what id[i], id[i+1] become */

    for (size_t i = 0; i < n; i++)
        id[i] = m->byte_id[(unsigned char)piece[i]];
    for (size_t i = 0; i + 1 < n; i++)
        next[i] = dlc_bpe_model_merge(m, id[i], id[i + 1]);
    for (;;) {
        size_t best = n;

        for (size_t i = 0; i + 1 < n; i++) {
            if (next[i] && (best == n || next[i]->rank < next[best]->rank))
                best = i;
        }
        if (best == n)
            break;
        id[best] = next[best]->id;
        n--;
        memmove(&id[best + 1], &id[best + 2], (n - best - 1) * sizeof *id);
        if (best + 1 < n)
            memmove(&next[best], &next[best + 1], (n - best - 1) * sizeof *next);
        if (best + 1 < n)
            next[best] = dlc_bpe_model_merge(m, id[best], id[best + 1]);
        if (best > 0)
            next[best - 1] = dlc_bpe_model_merge(m, id[best - 1], id[best]);
    }
    return dlc_buf_append(ids, id, n * sizeof *id);
}

struct node {
    int32_t id; /* -1: joined to its left neighbour */
    int32_t before, after;
};

/* A heap entry is rank << 32 | position of the left node. It is stale when the pair at the position has another rank.
 */
static dlc_err heap_push(struct dlc_buf *heap, uint64_t entry)
{
    uint64_t *h;
    size_t i = heap->len / sizeof entry;

    DLC_TRY(dlc_buf_append(heap, &entry, sizeof entry));
    h = (uint64_t *)(void *)heap->data;
    for (; i > 0 && h[(i - 1) / 2] > entry; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = entry;
    return DLC_OK;
}

static uint64_t heap_pop(struct dlc_buf *heap)
{
    uint64_t *h = (uint64_t *)(void *)heap->data;
    size_t n = heap->len / sizeof *h - 1, i = 0, child;
    uint64_t top = h[0], moved = h[n];

    heap->len = n * sizeof *h;
    for (; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && h[child + 1] < h[child])
            child++;
        if (h[child] >= moved)
            break;
        h[i] = h[child];
    }
    h[i] = moved;
    return top;
}

static const struct dlc_bpe_merge *merge_at(const struct dlc_bpe_model *m, const struct node *nodes, int32_t at)
{
    if (nodes[at].id < 0 || nodes[at].after < 0)
        return NULL;
    return dlc_bpe_model_merge(m, nodes[at].id, nodes[nodes[at].after].id);
}

static dlc_err push_at(struct dlc_buf *heap, const struct dlc_bpe_model *m, const struct node *nodes, int32_t at)
{
    const struct dlc_bpe_merge *merge = at < 0 ? NULL : merge_at(m, nodes, at);

    return merge ? heap_push(heap, (uint64_t)merge->rank << 32 | (uint32_t)at) : DLC_OK;
}

static dlc_err merge_long(struct dlc_buf *ids, struct dlc_bpe_scratch *scratch, const struct dlc_bpe_model *m,
                          const char *piece, int32_t n)
{
    struct node *nodes;

    dlc_buf_clear(&scratch->nodes);
    dlc_buf_clear(&scratch->heap);
    DLC_TRY(dlc_buf_reserve(&scratch->nodes, (size_t)n * sizeof *nodes));
    nodes = (struct node *)(void *)scratch->nodes.data;
    for (int32_t i = 0; i < n; i++)
        nodes[i] = (struct node){ m->byte_id[(unsigned char)piece[i]], i - 1, i + 1 < n ? i + 1 : -1 };
    for (int32_t i = 0; i + 1 < n; i++)
        DLC_TRY(push_at(&scratch->heap, m, nodes, i));
    while (scratch->heap.len > 0) {
        uint64_t entry = heap_pop(&scratch->heap);
        int32_t at = (int32_t)(uint32_t)entry, gone;
        const struct dlc_bpe_merge *merge = merge_at(m, nodes, at);

        if (!merge || (uint64_t)merge->rank != entry >> 32)
            continue;
        gone = nodes[at].after;
        nodes[at].id = merge->id;
        nodes[at].after = nodes[gone].after;
        if (nodes[gone].after >= 0)
            nodes[nodes[gone].after].before = at;
        nodes[gone].id = -1;
        DLC_TRY(push_at(&scratch->heap, m, nodes, nodes[at].before));
        DLC_TRY(push_at(&scratch->heap, m, nodes, at));
    }
    for (int32_t i = 0; i >= 0; i = nodes[i].after)
        DLC_TRY(dlc_buf_append(ids, &nodes[i].id, sizeof nodes[i].id));
    return DLC_OK;
}

dlc_err dlc_bpe_merge_piece(struct dlc_buf *ids, struct dlc_bpe_scratch *scratch, const struct dlc_bpe_model *m,
                            const char *piece, size_t n)
{
    if (n == 0)
        return DLC_OK;
    if (n == 1)
        return dlc_buf_append(ids, &m->byte_id[(unsigned char)*piece], sizeof(int32_t));
    return n <= SHORT_MAX ? merge_short(ids, m, piece, n) : merge_long(ids, scratch, m, piece, (int32_t)n);
}
