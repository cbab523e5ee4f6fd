#include "data/bpe_train.h"

#include <string.h>

#include "base/mem.h"
#include "data/bpe_model.h"
#include "data/bytemap.h"
#include "data/tokenizer_internal.h"

#define FIRST_SLOTS 4096

struct word {
    size_t offset; /* in `text` first, then in `symbols` */
    uint32_t n;
    int64_t count;
};

/* A pair of neighbours: how often it occurs, and the words that may contain it (a word stays listed after its last
 * occurrence was merged away). */
struct pair {
    uint64_t key; /* UINT64_MAX: unused slot */
    int64_t count;
    uint32_t *words;
    uint32_t n_words, words_cap;
    int32_t grown_by; /* the merge that last added to the count: each is queued once a merge */
    bool merged;      /* has a rule; can only come back when another rule makes the same bytes */
};

struct candidate {
    int64_t count;
    uint64_t key;
};

struct dlc_bpe_trainer {
    dlc_split_kind split;
    dlc_splitter *splitter;

    struct dlc_buf text; /* the distinct pieces, one after the other */
    struct word *words;
    size_t n_words, words_cap;
    uint32_t *slots; /* open addressing over words; UINT32_MAX unused */
    size_t slots_mask;
    uint64_t n_left_out;

    int32_t *symbols;
    struct pair *pairs; /* open addressing */
    size_t pairs_mask, n_pairs;
    struct dlc_buf queue; /* max-heap of struct candidate; counts in it may be out of date (too high) */
    struct dlc_buf grown; /* keys of pairs that the current merge added to */
    struct dlc_bpe_model model;
    struct dlc_buf rules; /* struct dlc_bpe_rule, in order */
    int32_t n_merged;
};

static dlc_err make_word_slots(dlc_bpe_trainer *t, size_t n)
{
    uint32_t *slots = dlc_alloc(n * sizeof *slots);

    if (!slots)
        return DLC_ENOMEM;
    memset(slots, 0xff, n * sizeof *slots);
    dlc_free(t->slots);
    t->slots = slots;
    t->slots_mask = n - 1;
    return DLC_OK;
}

static dlc_err make_pair_slots(dlc_bpe_trainer *t, size_t n)
{
    struct pair *pairs = dlc_calloc(n, sizeof *pairs);

    if (!pairs)
        return DLC_ENOMEM;
    for (size_t i = 0; i < n; i++)
        pairs[i].key = UINT64_MAX;
    t->pairs = pairs;
    t->pairs_mask = n - 1;
    return DLC_OK;
}

dlc_err dlc_bpe_trainer_create(dlc_bpe_trainer **out, dlc_split_kind split)
{
    dlc_bpe_trainer *t = dlc_calloc(1, sizeof *t);
    dlc_err err;

    *out = NULL;
    if (!t)
        return DLC_ENOMEM;
    t->split = split;
    err = dlc_splitter_create(&t->splitter, split);
    if (err == DLC_OK)
        err = make_word_slots(t, FIRST_SLOTS);
    if (err == DLC_OK)
        err = dlc_bpe_model_init(&t->model);
    if (err != DLC_OK) {
        dlc_bpe_trainer_destroy(t);
        return err;
    }
    *out = t;
    return DLC_OK;
}

void dlc_bpe_trainer_destroy(dlc_bpe_trainer *t)
{
    if (!t)
        return;
    for (size_t i = 0; t->pairs && i <= t->pairs_mask; i++)
        dlc_free(t->pairs[i].words);
    dlc_free(t->pairs);
    dlc_free(t->symbols);
    dlc_free(t->slots);
    dlc_free(t->words);
    dlc_buf_fini(&t->text);
    dlc_buf_fini(&t->queue);
    dlc_buf_fini(&t->grown);
    dlc_buf_fini(&t->rules);
    dlc_bpe_model_fini(&t->model);
    dlc_splitter_destroy(t->splitter);
    dlc_free(t);
}

uint64_t dlc_bpe_trainer_n_left_out(const dlc_bpe_trainer *t)
{
    return t->n_left_out;
}

/* ---- counting pieces ---- */

static size_t slot_of(const dlc_bpe_trainer *t, const char *piece, size_t n)
{
    size_t i = dlc_xxh64(piece, n) & t->slots_mask;

    for (; t->slots[i] != UINT32_MAX; i = (i + 1) & t->slots_mask) {
        const struct word *w = &t->words[t->slots[i]];

        if (w->n == n && memcmp(t->text.data + w->offset, piece, n) == 0)
            break;
    }
    return i;
}

static dlc_err grow_words(dlc_bpe_trainer *t)
{
    if (t->n_words == t->words_cap) {
        size_t cap = t->words_cap ? 2 * t->words_cap : 1024;
        struct word *more = dlc_realloc(t->words, cap * sizeof *more);

        if (!more)
            return DLC_ENOMEM;
        t->words = more;
        t->words_cap = cap;
    }
    if (2 * (t->n_words + 1) > t->slots_mask + 1) {
        DLC_TRY(make_word_slots(t, 2 * (t->slots_mask + 1)));
        for (size_t i = 0; i < t->n_words; i++)
            t->slots[slot_of(t, t->text.data + t->words[i].offset, t->words[i].n)] = (uint32_t)i;
    }
    return DLC_OK;
}

static dlc_err count_piece(dlc_bpe_trainer *t, const char *piece, size_t n)
{
    size_t slot = slot_of(t, piece, n);

    if (t->slots[slot] != UINT32_MAX) {
        t->words[t->slots[slot]].count++;
        return DLC_OK;
    }
    if (t->n_words == DLC_BPE_WORDS_MAX) {
        t->n_left_out++;
        return DLC_OK;
    }
    DLC_TRY(grow_words(t));
    slot = slot_of(t, piece, n);
    t->words[t->n_words] = (struct word){ .offset = t->text.len, .n = (uint32_t)n, .count = 1 };
    DLC_TRY(dlc_buf_append(&t->text, piece, n));
    t->slots[slot] = (uint32_t)t->n_words++;
    return DLC_OK;
}

static dlc_err count_cut(void *arg, const char *piece, size_t n)
{
    for (; n > DLC_BPE_WORD_BYTES_MAX; n -= DLC_BPE_WORD_BYTES_MAX, piece += DLC_BPE_WORD_BYTES_MAX)
        DLC_TRY(count_piece(arg, piece, DLC_BPE_WORD_BYTES_MAX));
    return count_piece(arg, piece, n);
}

dlc_err dlc_bpe_trainer_feed(dlc_bpe_trainer *t, const char *text, size_t size_bytes)
{
    return dlc_split(t->splitter, text, size_bytes, count_cut, t);
}

/* ---- the queue of pairs ---- */

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static dlc_err queue_push(struct dlc_buf *queue, struct candidate c)
{
    size_t i = queue->len / sizeof c;
    struct candidate *h;

    DLC_TRY(dlc_buf_append(queue, &c, sizeof c));
    h = (struct candidate *)(void *)queue->data;
    for (; i > 0 && before(&c, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = c;
    return DLC_OK;
}

static struct candidate queue_pop(struct dlc_buf *queue)
{
    struct candidate *h = (struct candidate *)(void *)queue->data;
    size_t n = queue->len / sizeof *h - 1, i = 0, child;
    struct candidate top = h[0], moved = h[n];

    queue->len = n * sizeof *h;
    for (; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&h[child + 1], &h[child]))
            child++;
        if (!before(&h[child], &moved))
            break;
        h[i] = h[child];
    }
    h[i] = moved;
    return top;
}

/* ---- counts of pairs ---- */

static struct pair *pair_slot(const dlc_bpe_trainer *t, uint64_t key)
{
    size_t i = dlc_bpe_pair_hash(key) & t->pairs_mask;

    while (t->pairs[i].key != UINT64_MAX && t->pairs[i].key != key)
        i = (i + 1) & t->pairs_mask;
    return &t->pairs[i];
}

static dlc_err grow_pairs(dlc_bpe_trainer *t)
{
    struct pair *old = t->pairs;
    size_t n_old = t->pairs_mask + 1;

    if (2 * (t->n_pairs + 1) <= n_old)
        return DLC_OK;
    DLC_TRY(make_pair_slots(t, 2 * n_old));
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].key != UINT64_MAX)
            *pair_slot(t, old[i].key) = old[i];
    }
    dlc_free(old);
    return DLC_OK;
}

static dlc_err list_word(struct pair *p, uint32_t word)
{
    if (p->n_words && p->words[p->n_words - 1] == word)
        return DLC_OK;
    if (p->n_words == p->words_cap) {
        uint32_t cap = p->words_cap ? p->words_cap + p->words_cap / 2 + 1 : 2;
        uint32_t *more = dlc_realloc(p->words, cap * sizeof *more);

        if (!more)
            return DLC_ENOMEM;
        p->words = more;
        p->words_cap = cap;
    }
    p->words[p->n_words++] = word;
    return DLC_OK;
}

static dlc_err add_pair(dlc_bpe_trainer *t, int32_t left, int32_t right, uint32_t word, int32_t merge)
{
    uint64_t key = dlc_bpe_pair(left, right);
    struct pair *p;

    DLC_TRY(grow_pairs(t));
    p = pair_slot(t, key);
    if (p->key == UINT64_MAX) {
        *p = (struct pair){ .key = key, .grown_by = -1 };
        t->n_pairs++;
    }
    p->count += t->words[word].count;
    if (p->grown_by != merge) {
        p->grown_by = merge;
        DLC_TRY(dlc_buf_append(&t->grown, &key, sizeof key));
    }
    return list_word(p, word);
}

static void remove_pair(dlc_bpe_trainer *t, int32_t left, int32_t right, uint32_t word)
{
    struct pair *p = pair_slot(t, dlc_bpe_pair(left, right));

    if (p->key != UINT64_MAX)
        p->count -= t->words[word].count;
}

static dlc_err queue_grown(dlc_bpe_trainer *t)
{
    const uint64_t *keys = (const uint64_t *)(const void *)t->grown.data;

    for (size_t i = 0; i < t->grown.len / sizeof *keys; i++) {
        const struct pair *p = pair_slot(t, keys[i]);

        if (p->count > 0)
            DLC_TRY(queue_push(&t->queue, (struct candidate){ .count = p->count, .key = p->key }));
    }
    dlc_buf_clear(&t->grown);
    return DLC_OK;
}

/* ---- merging ---- */

/* Replaces left, right by `id` in the word from left to right, and keeps the counts of the neighbouring pairs. */
static dlc_err merge_in_word(dlc_bpe_trainer *t, uint32_t word, struct dlc_bpe_rule rule, int32_t id, int32_t merge)
{
    struct word *w = &t->words[word];
    int32_t *s = t->symbols + w->offset;
    uint32_t from = 0, to = 0, n = w->n;

    while (from < n) {
        if (from + 1 == n || s[from] != rule.left || s[from + 1] != rule.right) {
            s[to++] = s[from++];
            continue;
        }
        if (to > 0) {
            remove_pair(t, s[to - 1], rule.left, word);
            DLC_TRY(add_pair(t, s[to - 1], id, word, merge));
        }
        if (from + 2 < n) {
            remove_pair(t, rule.right, s[from + 2], word);
            DLC_TRY(add_pair(t, id, s[from + 2], word, merge));
        }
        s[to++] = id;
        from += 2;
    }
    w->n = to;
    return DLC_OK;
}

/* The token that is left followed by right: a new one, or an older one with the same bytes. */
static dlc_err joined_token(int32_t *id, dlc_bpe_trainer *t, struct dlc_bpe_rule rule)
{
    struct dlc_bpe_model *m = &t->model;
    struct dlc_buf bytes = { 0 };
    dlc_err err;

    DLC_TRY_TO(done, dlc_buf_append(&bytes, dlc_bpe_model_bytes(m, rule.left), m->tokens[rule.left].size_bytes));
    DLC_TRY_TO(done, dlc_buf_append(&bytes, dlc_bpe_model_bytes(m, rule.right), m->tokens[rule.right].size_bytes));
    *id = dlc_bpe_model_find(m, bytes.data, bytes.len);
    if (*id < 0) {
        *id = m->vocab_size;
        err = dlc_bpe_model_add_token(m, *id, DLC_TOKEN_TEXT, bytes.data, bytes.len);
    }
done:
    dlc_buf_fini(&bytes);
    return err;
}

static dlc_err merge_pair(dlc_bpe_trainer *t, uint64_t key)
{
    struct dlc_bpe_rule rule = { .left = (int32_t)(key >> 32), .right = (int32_t)(uint32_t)key };
    int32_t merge = t->n_merged++, id;
    struct pair *p = pair_slot(t, key);
    uint32_t *words = p->words, n_words = p->n_words;
    dlc_err err;

    p->words = NULL; /* the list is ours now: the table may move while it is worked through */
    p->n_words = p->words_cap = 0;
    DLC_TRY_TO(done, joined_token(&id, t, rule));
    if (!pair_slot(t, key)->merged)
        DLC_TRY_TO(done, dlc_buf_append(&t->rules, &rule, sizeof rule));
    pair_slot(t, key)->merged = true;
    for (uint32_t i = 0; i < n_words; i++)
        DLC_TRY_TO(done, merge_in_word(t, words[i], rule, id, merge));
    pair_slot(t, key)->count = 0;
    err = queue_grown(t);
done:
    dlc_free(words);
    return err;
}

static dlc_err add_alphabet(struct dlc_bpe_model *m)
{
    int32_t id = 0;

    DLC_TRY(dlc_bpe_model_add_token(m, id++, DLC_TOKEN_SPECIAL, DLC_EOT_TEXT, strlen(DLC_EOT_TEXT)));
    for (int c = 0; c < 0x200; c++) { /* in the order of the stand-ins' code points */
        for (int byte = 0; byte < 256; byte++) {
            char one = (char)byte;

            if (dlc_bytemap_code_point((unsigned char)byte) == c)
                DLC_TRY(dlc_bpe_model_add_token(m, id++, DLC_TOKEN_TEXT, &one, 1));
        }
    }
    return DLC_OK;
}

static dlc_err count_pairs(dlc_bpe_trainer *t)
{
    t->symbols = dlc_alloc((t->text.len + 1) * sizeof *t->symbols);
    if (!t->symbols)
        return DLC_ENOMEM;
    for (size_t i = 0; i < t->text.len; i++)
        t->symbols[i] = t->model.byte_id[(unsigned char)t->text.data[i]];
    dlc_buf_fini(&t->text);
    DLC_TRY(make_pair_slots(t, FIRST_SLOTS));
    for (size_t w = 0; w < t->n_words; w++) {
        const int32_t *s = t->symbols + t->words[w].offset;

        for (uint32_t i = 0; i + 1 < t->words[w].n; i++)
            DLC_TRY(add_pair(t, s[i], s[i + 1], (uint32_t)w, -2));
    }
    return queue_grown(t);
}

static dlc_err merge_until(dlc_bpe_trainer *t, int vocab_size, int64_t min_count)
{
    while (t->model.vocab_size < vocab_size && t->queue.len > 0) {
        struct candidate top = queue_pop(&t->queue);
        int64_t count = pair_slot(t, top.key)->count;

        if (count != top.count) {
            if (count > 0)
                DLC_TRY(queue_push(&t->queue, (struct candidate){ .count = count, .key = top.key }));
            continue;
        }
        if (count < min_count || count < 1)
            break;
        DLC_TRY(merge_pair(t, top.key));
    }
    return DLC_OK;
}

dlc_err dlc_bpe_trainer_finish(dlc_tokenizer **out, dlc_bpe_trainer *t, int vocab_size, int64_t min_count)
{
    struct dlc_buf json = { 0 };
    dlc_err err;

    *out = NULL;
    if (vocab_size < DLC_VOCAB_MIN || vocab_size > DLC_VOCAB_MAX)
        return dlc_fail(DLC_EUSAGE,
                        "a byte-level vocabulary has %d to %d tokens (256 bytes, one document mark, merges): "
                        "%d is not possible",
                        DLC_VOCAB_MIN, DLC_VOCAB_MAX, vocab_size);
    DLC_TRY(add_alphabet(&t->model));
    DLC_TRY(count_pairs(t));
    DLC_TRY(merge_until(t, vocab_size, min_count));
    err = dlc_tokenizer_write_json(&json, &t->model, (const struct dlc_bpe_rule *)(const void *)t->rules.data,
                                   t->rules.len / sizeof(struct dlc_bpe_rule), t->split);
    if (err == DLC_OK)
        err = dlc_tokenizer_parse(out, json.data, json.len, "trained tokenizer");
    dlc_buf_fini(&json);
    return err;
}
