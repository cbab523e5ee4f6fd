#include "data/encoder.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/utf8.h"

#define UNIT_BYTES ((size_t)64 << 10)

struct encoder_thread {
    dlc_encoder *encoder;
    dlc_tokenizer *tokenizer;
    pthread_t thread;
};

/* Everything from `batch` on is guarded by `lock`. */
struct dlc_encoder {
    struct encoder_thread *threads;
    int n_threads, n_started;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct dlc_encode_batch *batch; /* NULL: nothing to do */
    size_t next_unit, n_finished;
    dlc_err err; /* of the failed unit that comes first */
    size_t err_unit;
    char err_text[256];
    bool stop;
};

static dlc_err new_unit(struct dlc_encode_batch *b)
{
    if (b->n_units == b->units_cap) {
        size_t cap = b->units_cap ? 2 * b->units_cap : 64;
        struct dlc_encode_unit *more = dlc_realloc(b->units, cap * sizeof *more);

        if (!more)
            return DLC_ENOMEM;
        memset(more + b->units_cap, 0, (cap - b->units_cap) * sizeof *more);
        b->units = more;
        b->units_cap = cap;
    }
    b->units[b->n_units].item_begin = b->units[b->n_units].item_end = b->n_items;
    b->units[b->n_units].size_bytes = 0;
    b->n_units++;
    return DLC_OK;
}

dlc_err dlc_encode_batch_add(struct dlc_encode_batch *b, const char *text, size_t size_bytes, int stream,
                             bool starts_document)
{
    struct dlc_encode_unit *unit;

    if (b->n_items == b->items_cap) {
        size_t cap = b->items_cap ? 2 * b->items_cap : 256;
        struct dlc_encode_item *more = dlc_realloc(b->items, cap * sizeof *more);

        if (!more)
            return DLC_ENOMEM;
        b->items = more;
        b->items_cap = cap;
    }
    if (b->n_units == 0 || b->units[b->n_units - 1].size_bytes >= UNIT_BYTES)
        DLC_TRY(new_unit(b));
    unit = &b->units[b->n_units - 1];
    b->items[b->n_items] = (struct dlc_encode_item){ .offset = b->text.len,
                                                     .size_bytes = size_bytes,
                                                     .stream = stream,
                                                     .starts_document = starts_document,
                                                     .unit = b->n_units - 1 };
    DLC_TRY(dlc_buf_append(&b->text, text, size_bytes));
    unit->size_bytes += size_bytes;
    unit->item_end = ++b->n_items;
    return DLC_OK;
}

const int32_t *dlc_encode_batch_ids(const struct dlc_encode_batch *b, const struct dlc_encode_item *item)
{
    return (const int32_t *)(const void *)b->units[item->unit].ids.data + item->ids_begin;
}

void dlc_encode_batch_clear(struct dlc_encode_batch *b)
{
    dlc_buf_clear(&b->text);
    b->n_items = b->n_units = 0;
}

void dlc_encode_batch_fini(struct dlc_encode_batch *b)
{
    for (size_t i = 0; i < b->units_cap; i++)
        dlc_buf_fini(&b->units[i].ids);
    dlc_free(b->units);
    dlc_free(b->items);
    dlc_buf_fini(&b->text);
    *b = (struct dlc_encode_batch){ 0 };
}

static dlc_err encode_unit(dlc_tokenizer *t, struct dlc_encode_batch *b, struct dlc_encode_unit *unit)
{
    int32_t mark = dlc_tokenizer_eot(t);

    dlc_buf_clear(&unit->ids);
    unit->n_invalid = 0;
    for (size_t i = unit->item_begin; i < unit->item_end; i++) {
        struct dlc_encode_item *item = &b->items[i];
        const char *text = b->text.data + item->offset;

        item->ids_begin = unit->ids.len / sizeof(int32_t);
        if (item->starts_document)
            DLC_TRY(dlc_buf_append(&unit->ids, &mark, sizeof mark));
        DLC_TRY(dlc_tokenizer_encode(&unit->ids, t, text, item->size_bytes));
        item->n_ids = unit->ids.len / sizeof(int32_t) - item->ids_begin;
        unit->n_invalid += dlc_utf8_count_invalid(text, item->size_bytes);
    }
    return DLC_OK;
}

static void note_failure(dlc_encoder *e, size_t unit, dlc_err err)
{
    if (err == DLC_OK || (e->err != DLC_OK && e->err_unit < unit))
        return;
    e->err = err;
    e->err_unit = unit;
    snprintf(e->err_text, sizeof e->err_text, "%s", dlc_err_text());
}

/* Holding the lock: takes units until there is none left. */
static void work_on(dlc_encoder *e, dlc_tokenizer *t)
{
    while (e->batch && e->next_unit < e->batch->n_units) {
        struct dlc_encode_batch *b = e->batch;
        size_t unit = e->next_unit++;
        dlc_err err;

        pthread_mutex_unlock(&e->lock);
        err = encode_unit(t, b, &b->units[unit]);
        pthread_mutex_lock(&e->lock);
        note_failure(e, unit, err);
        if (++e->n_finished == b->n_units)
            pthread_cond_signal(&e->done);
    }
}

static void *thread_main(void *arg)
{
    struct encoder_thread *me = arg;
    dlc_encoder *e = me->encoder;

    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        work_on(e, me->tokenizer);
        if (!e->stop)
            pthread_cond_wait(&e->work, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

dlc_err dlc_encoder_create(dlc_encoder **out, const dlc_tokenizer *t, int n_threads)
{
    dlc_encoder *e = dlc_calloc(1, sizeof *e);
    dlc_err err = DLC_OK;

    *out = NULL;
    if (!e)
        return DLC_ENOMEM;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    pthread_cond_init(&e->done, NULL);
    e->n_threads = n_threads;
    e->threads = dlc_calloc((size_t)n_threads, sizeof *e->threads);
    if (!e->threads)
        err = DLC_ENOMEM;
    for (int i = 0; err == DLC_OK && i < n_threads; i++) {
        e->threads[i].encoder = e;
        err = dlc_tokenizer_clone(&e->threads[i].tokenizer, t);
    }
    for (int i = 0; err == DLC_OK && n_threads > 1 && i < n_threads; i++) {
        if (pthread_create(&e->threads[i].thread, NULL, thread_main, &e->threads[i]) != 0)
            err = dlc_fail(DLC_EFAIL, "thread %d of %d cannot be started", i + 1, n_threads);
        else
            e->n_started++;
    }
    if (err != DLC_OK) {
        dlc_encoder_destroy(e);
        return err;
    }
    *out = e;
    return DLC_OK;
}

void dlc_encoder_destroy(dlc_encoder *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    if (e->batch)
        e->batch->n_units = 0; /* units not begun stay undone */
    pthread_cond_broadcast(&e->work);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_started; i++)
        pthread_join(e->threads[i].thread, NULL);
    for (int i = 0; e->threads && i < e->n_threads; i++)
        dlc_tokenizer_destroy(e->threads[i].tokenizer);
    pthread_cond_destroy(&e->done);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    dlc_free(e->threads);
    dlc_free(e);
}

void dlc_encoder_start(dlc_encoder *e, struct dlc_encode_batch *b)
{
    pthread_mutex_lock(&e->lock);
    e->batch = b;
    e->next_unit = e->n_finished = 0;
    e->err = DLC_OK;
    if (e->n_started > 0)
        pthread_cond_broadcast(&e->work);
    else
        work_on(e, e->threads[0].tokenizer);
    pthread_mutex_unlock(&e->lock);
}

dlc_err dlc_encoder_wait(dlc_encoder *e)
{
    dlc_err err = DLC_OK;

    pthread_mutex_lock(&e->lock);
    while (e->batch && e->n_finished < e->batch->n_units)
        pthread_cond_wait(&e->done, &e->lock);
    e->batch = NULL;
    if (e->err != DLC_OK)
        err = dlc_fail(e->err, "%s", e->err_text);
    e->err = DLC_OK;
    pthread_mutex_unlock(&e->lock);
    return err;
}
