/* Which chunks are under way, and how fast they come. */
#include "exchange/fetch.h"

#include <string.h>

#include "base/mem.h"
#include "exchange/fetch_store.h"

#define N_UNDER_WAY 256
#define UNDER_WAY_S 2.0
#define PATIENCE_NS 5000000000LL
#define PATIENCE_MAX_NS 60000000000LL
#define PATIENCE_MAX_FACTOR 4
#define SAMPLE_NS 250000000LL

/* A question that was sent and not answered. */
struct asked {
    uint32_t index;
    bool under_way;   /* false: its time is over, it is the next to be asked again */
    int64_t first_ns; /* when it was asked for the first time on this road; 0: it was not */
    int64_t at_ns;    /* and for the last time */
};

struct dlc_fetch {
    struct dlc_fetch_store store;
    struct asked asked[N_UNDER_WAY];
    int n_asked, n_under_way;
    uint32_t next; /* the lowest chunk that may be missing and is not in `asked` */

    double answer_ns; /* what answers take of late; 0: none came */
    int patience;     /* factor; doubled when the time is over and nothing came */
    bool came;        /* something, since the time was over last */

    int64_t sample_from_ns;
    uint64_t sample_bytes;
    double rate; /* bytes per second; 0: unknown */
    uint64_t n_asked_again;
};

dlc_err dlc_fetch_create(dlc_fetch **out, const struct dlc_blob_ref *ref, const char *path)
{
    dlc_fetch *f = dlc_calloc(1, sizeof *f);
    dlc_err err;

    *out = NULL;
    if (!f)
        return DLC_ENOMEM;
    f->patience = 1;
    err = dlc_fetch_store_open(&f->store, ref, path);
    if (err != DLC_OK) {
        dlc_free(f);
        return err;
    }
    *out = f;
    return DLC_OK;
}

void dlc_fetch_destroy(dlc_fetch *f)
{
    if (!f)
        return;
    dlc_fetch_store_close(&f->store);
    dlc_free(f);
}

static int64_t patience_ns(const dlc_fetch *f)
{
    double wait = 4.0 * f->answer_ns;

    wait = wait < (double)PATIENCE_NS ? (double)PATIENCE_NS : wait;
    wait *= f->patience;
    return wait > (double)PATIENCE_MAX_NS ? PATIENCE_MAX_NS : (int64_t)wait;
}

int64_t dlc_fetch_due_ns(const dlc_fetch *f)
{
    int64_t oldest = INT64_MAX;

    for (int i = 0; i < f->n_asked; i++)
        if (f->asked[i].under_way && f->asked[i].at_ns < oldest)
            oldest = f->asked[i].at_ns;
    return oldest < INT64_MAX ? oldest + patience_ns(f) : INT64_MAX;
}

static int find_asked(const dlc_fetch *f, uint32_t index)
{
    for (int i = 0; i < f->n_asked; i++)
        if (f->asked[i].index == index)
            return i;
    return -1;
}

static void set_late(dlc_fetch *f, int i)
{
    if (!f->asked[i].under_way)
        return;
    f->asked[i].under_way = false;
    f->n_under_way--;
    f->n_asked_again++;
}

static void set_answered(dlc_fetch *f, int i)
{
    f->n_under_way -= f->asked[i].under_way;
    f->asked[i] = f->asked[--f->n_asked];
}

void dlc_fetch_ask_again(dlc_fetch *f)
{
    for (int i = 0; i < f->n_asked; i++) {
        set_late(f, i);
        f->asked[i].first_ns = 0;
    }
    f->patience = 1;
}

/* Questions whose time is over. The road may be slower than it was: half of the rate is believed in. */
static void give_up_late(dlc_fetch *f, int64_t now_ns)
{
    int64_t patience = patience_ns(f);
    int before = f->n_under_way;

    for (int i = 0; i < f->n_asked; i++)
        if (f->asked[i].at_ns + patience <= now_ns)
            set_late(f, i);
    if (f->n_under_way == before)
        return;
    f->rate /= 2.0;
    if (!f->came && f->patience < PATIENCE_MAX_FACTOR)
        f->patience *= 2;
    f->came = false;
}

static int allowed(const dlc_fetch *f, int window)
{
    double by_rate = f->rate * UNDER_WAY_S / (double)DLC_CHUNK_BYTES;
    int n = window < N_UNDER_WAY ? window : N_UNDER_WAY;

    if (by_rate < (double)n)
        n = by_rate < 1.0 && window > 0 ? 1 : (int)by_rate;
    return n;
}

/* The chunk to ask for: the lowest whose time is over, or the next one. NULL: none. */
static struct asked *choose(dlc_fetch *f)
{
    const struct dlc_fetch_store *s = &f->store;
    struct asked *late = NULL;

    for (int i = 0; i < f->n_asked; i++)
        if (!f->asked[i].under_way && (!late || f->asked[i].index < late->index))
            late = &f->asked[i];
    if (late)
        return late;
    while (f->next < s->n_chunks && dlc_fetch_store_has(s, f->next))
        f->next++;
    if (f->next == s->n_chunks || f->n_asked == N_UNDER_WAY)
        return NULL;
    f->asked[f->n_asked] = (struct asked){ .index = f->next++ };
    return &f->asked[f->n_asked++];
}

bool dlc_fetch_ask(dlc_fetch *f, struct dlc_chunk_ask *out, int window, int64_t now_ns)
{
    struct asked *a;

    if (dlc_fetch_is_complete(f))
        return false;
    give_up_late(f, now_ns);
    if (f->n_under_way >= allowed(f, window))
        return false;
    a = choose(f);
    if (!a)
        return false;
    if (f->n_under_way++ == 0) {
        f->sample_from_ns = now_ns; /* idle time says nothing about the road */
        f->sample_bytes = 0;
    }
    a->under_way = true;
    a->at_ns = now_ns;
    if (a->first_ns == 0)
        a->first_ns = now_ns;
    *out = (struct dlc_chunk_ask){ .digest = f->store.ref.digest, .index = a->index };
    return true;
}

static void see_rate(dlc_fetch *f, uint32_t bytes, int64_t now_ns)
{
    int64_t ns = now_ns - f->sample_from_ns;
    double rate;

    f->sample_bytes += bytes;
    if (ns <= 0 || (ns < SAMPLE_NS && f->rate > 0.0))
        return;
    rate = (double)f->sample_bytes * 1e9 / (double)ns;
    f->rate = f->rate <= 0.0 ? rate : (f->rate + rate) / 2.0;
    f->sample_from_ns = now_ns;
    f->sample_bytes = 0;
}

/* Asked twice, the answer may be the first one's: so it is when it would have come too soon for the second. */
static void see_answer(dlc_fetch *f, const struct asked *a, uint32_t bytes, int64_t now_ns)
{
    double took = (double)(now_ns - a->at_ns);

    if (f->answer_ns <= 0.0 || took < f->answer_ns / 2.0)
        took = (double)(now_ns - (a->first_ns != 0 ? a->first_ns : a->at_ns));
    took = took < 1.0 ? 1.0 : took;
    f->answer_ns = took > f->answer_ns ? took : f->answer_ns + (took - f->answer_ns) / 8.0;
    f->came = true;
    f->patience = 1;
    see_rate(f, bytes, now_ns);
}

static dlc_err take(dlc_fetch *f, const struct dlc_chunk *a, const void *chunk, bool *gone, int64_t now_ns)
{
    int i = find_asked(f, a->index);
    dlc_err err = DLC_OK;

    if (a->gone) {
        *gone = true;
        if (i >= 0)
            set_late(f, i);
        return dlc_fail(DLC_EPEER, "%s: the other side does not have these bytes", f->store.path);
    }
    if (a->size_bytes != f->store.ref.size_bytes) /* so the index is one of ours */
        return dlc_fail(DLC_EPEER, "%s: an answer says %llu bytes in all, announced were %llu", f->store.path,
                        (unsigned long long)a->size_bytes, (unsigned long long)f->store.ref.size_bytes);
    if (i >= 0)
        see_answer(f, &f->asked[i], a->length_bytes, now_ns);
    if (!f->store.in_place && !dlc_fetch_store_has(&f->store, a->index))
        err = dlc_fetch_store_put(&f->store, a->index, chunk);
    if (i >= 0 && err == DLC_OK)
        set_answered(f, i);
    else if (i >= 0)
        set_late(f, i);
    return err;
}

dlc_err dlc_fetch_answer(dlc_fetch *f, const void *bytes, size_t size_bytes, bool *mine, bool *gone, int64_t now_ns)
{
    struct dlc_chunk a;
    const void *chunk;
    bool header_sound;
    dlc_err err = dlc_chunk_decode(&a, &chunk, &header_sound, bytes, size_bytes);

    *mine = header_sound && dlc_sha256_equal(&a.digest, &f->store.ref.digest);
    *gone = false;
    if (!*mine)
        return err;
    if (err != DLC_OK) { /* which one was damaged is known, so it need not be waited for */
        int i = find_asked(f, a.index);

        if (i >= 0)
            set_late(f, i);
        return err;
    }
    return take(f, &a, chunk, gone, now_ns);
}

bool dlc_fetch_is_complete(const dlc_fetch *f)
{
    return f->store.in_place || f->store.n_there == f->store.n_chunks;
}

dlc_err dlc_fetch_finish(dlc_fetch *f)
{
    dlc_err err;

    if (!dlc_fetch_is_complete(f))
        return dlc_fail(DLC_EFAIL, "%s: finished with %u of %u chunks", f->store.path, f->store.n_there,
                        f->store.n_chunks);
    err = dlc_fetch_store_finish(&f->store);
    if (f->store.n_there < f->store.n_chunks)
        f->next = 0; /* it begins again */
    return err;
}

struct dlc_fetch_progress dlc_fetch_progress(const dlc_fetch *f)
{
    const struct dlc_fetch_store *s = &f->store;

    return (struct dlc_fetch_progress){ .bytes = s->in_place ? s->ref.size_bytes : s->bytes_there,
                                        .size_bytes = s->ref.size_bytes,
                                        .bytes_per_s = f->rate,
                                        .n_asked_again = f->n_asked_again };
}
