#include "exchange/inproc.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/rng.h"

struct letter {
    int64_t at_ns;
    bool lost; /* not a message: the connection closed */
    char *bytes;
    size_t size_bytes;
    struct letter *next;
};

struct queue { /* in order of arrival: times never fall within one queue */
    struct letter *first, *last;
};

struct endpoint {
    dlc_endpoint base;
    dlc_inproc *x;
    int island;
    struct queue up, down;
    unsigned char *slot;
};

struct dlc_inproc {
    dlc_hub hub;
    struct dlc_exchange_size size;
    struct dlc_inproc_faults faults;
    struct dlc_rng rng;
    int64_t now_ns;
    int last_island; /* recv goes round, so that no island is starved when times are equal */
    struct endpoint *islands;
    float *theta[2], *mean;
    struct dlc_buf scratch;
};

static void push(struct queue *q, struct letter *l)
{
    if (q->last && l->at_ns < q->last->at_ns)
        l->at_ns = q->last->at_ns;
    if (q->last)
        q->last->next = l;
    else
        q->first = l;
    q->last = l;
}

static struct letter *pop(struct queue *q)
{
    struct letter *l = q->first;

    q->first = l->next;
    if (!q->first)
        q->last = NULL;
    return l;
}

static void letter_free(struct letter *l)
{
    if (l)
        dlc_free(l->bytes);
    dlc_free(l);
}

static void clear(struct queue *q)
{
    while (q->first)
        letter_free(pop(q));
}

static int64_t delay(dlc_inproc *x)
{
    return x->faults.delay_max_ns ? (int64_t)dlc_rng_below(&x->rng, (uint64_t)x->faults.delay_max_ns + 1) : 0;
}

static dlc_err post_bytes(dlc_inproc *x, struct queue *q, const char *bytes, size_t n)
{
    struct letter *l = dlc_calloc(1, sizeof *l);

    if (!l)
        return DLC_ENOMEM;
    l->bytes = dlc_alloc(n);
    if (!l->bytes) {
        dlc_free(l);
        return DLC_ENOMEM;
    }
    memcpy(l->bytes, bytes, n);
    l->size_bytes = n;
    l->at_ns = x->now_ns + delay(x);
    push(q, l);
    return DLC_OK;
}

static dlc_err post(dlc_inproc *x, struct queue *q, const struct dlc_message *m, uint64_t *counter)
{
    dlc_buf_clear(&x->scratch);
    DLC_TRY(dlc_message_encode(&x->scratch, m));
    *counter += x->scratch.len;
    DLC_TRY(post_bytes(x, q, x->scratch.data, x->scratch.len));
    if (x->faults.duplicate > 0 && (double)(dlc_rng_next(&x->rng) >> 11) * 0x1p-53 < x->faults.duplicate)
        DLC_TRY(post_bytes(x, q, x->scratch.data, x->scratch.len));
    return DLC_OK;
}

static dlc_err hub_recv(dlc_hub *hub, int *island, struct dlc_message *out, bool *lost, bool *got, int64_t deadline_ns)
{
    dlc_inproc *x = (dlc_inproc *)hub;
    struct endpoint *best = NULL;
    struct letter *l;
    dlc_err err = DLC_OK;

    (void)deadline_ns; /* virtual time does not pass by waiting */
    *got = *lost = false;
    for (int k = 1; k <= hub->n_islands; k++) {
        struct endpoint *e = &x->islands[(x->last_island + k) % hub->n_islands];

        if (e->up.first && e->up.first->at_ns <= x->now_ns && (!best || e->up.first->at_ns < best->up.first->at_ns))
            best = e;
    }
    if (!best)
        return DLC_OK;
    l = pop(&best->up);
    x->last_island = *island = best->island;
    *got = true;
    *lost = l->lost;
    if (!l->lost)
        err = dlc_message_decode(out, l->bytes, l->size_bytes);
    letter_free(l);
    return err;
}

static dlc_err hub_send(dlc_hub *hub, int island, const struct dlc_message *m)
{
    dlc_inproc *x = (dlc_inproc *)hub;

    return post(x, &x->islands[island].down, m, &hub->traffic[island].bytes_down);
}

static int64_t hub_now_ns(dlc_hub *hub)
{
    return ((dlc_inproc *)hub)->now_ns;
}
static const void *hub_slot(dlc_hub *hub, int island)
{
    return ((dlc_inproc *)hub)->islands[island].slot;
}
static float *hub_theta(dlc_hub *hub, int which)
{
    return ((dlc_inproc *)hub)->theta[which];
}
static float *hub_mean(dlc_hub *hub)
{
    return ((dlc_inproc *)hub)->mean;
}

static dlc_err endpoint_send(dlc_endpoint *ep, const struct dlc_message *m)
{
    struct endpoint *e = (struct endpoint *)ep;

    return post(e->x, &e->up, m, &e->x->hub.traffic[e->island].bytes_up);
}

static void *endpoint_slot(dlc_endpoint *ep)
{
    return ((struct endpoint *)ep)->slot;
}
static const float *endpoint_theta(dlc_endpoint *ep, uint64_t t)
{
    return ((struct endpoint *)ep)->x->theta[t & 1];
}
static const float *endpoint_mean(dlc_endpoint *ep)
{
    return ((struct endpoint *)ep)->x->mean;
}

static const struct dlc_hub_ops hub_ops = { hub_recv, hub_send, hub_now_ns, hub_slot, hub_theta, hub_mean };
static const struct dlc_endpoint_ops endpoint_ops = { endpoint_send, endpoint_slot, endpoint_theta, endpoint_mean };

static dlc_err allocate(dlc_inproc *x)
{
    x->hub.traffic = dlc_calloc((size_t)x->size.n_islands, sizeof *x->hub.traffic);
    x->islands = dlc_calloc((size_t)x->size.n_islands, sizeof *x->islands);
    if (!x->hub.traffic || !x->islands)
        return DLC_ENOMEM;
    for (int i = 0; i < 2; i++)
        DLC_TRY(dlc_arena_alloc((void **)&x->theta[i], x->size.n_params * sizeof(float), "global parameters"));
    if (x->size.lockstep)
        DLC_TRY(dlc_arena_alloc((void **)&x->mean, x->size.n_params * sizeof(float), "mean gradient"));
    for (int i = 0; i < x->size.n_islands; i++) {
        struct endpoint *e = &x->islands[i];

        e->base.ops = &endpoint_ops;
        e->x = x;
        e->island = i;
        DLC_TRY(dlc_arena_alloc((void **)&e->slot, x->size.slot_bytes, "contribution"));
    }
    return DLC_OK;
}

dlc_err dlc_inproc_create(dlc_inproc **out, const struct dlc_exchange_size *size,
                          const struct dlc_inproc_faults *faults)
{
    dlc_inproc *x = dlc_calloc(1, sizeof *x);
    dlc_err err;

    *out = NULL;
    if (!x)
        return DLC_ENOMEM;
    x->size = *size;
    x->hub.ops = &hub_ops;
    x->hub.n_islands = size->n_islands;
    if (faults)
        x->faults = *faults;
    x->rng = (struct dlc_rng){ .seed = x->faults.seed, .stream = 0x696e70726f63u };
    err = allocate(x);
    if (err != DLC_OK) {
        dlc_inproc_destroy(x);
        return err;
    }
    *out = x;
    return DLC_OK;
}

void dlc_inproc_destroy(dlc_inproc *x)
{
    if (!x)
        return;
    for (int i = 0; x->islands && i < x->size.n_islands; i++) {
        clear(&x->islands[i].up);
        clear(&x->islands[i].down);
        dlc_arena_free(x->islands[i].slot, x->size.slot_bytes);
    }
    for (int i = 0; i < 2; i++)
        dlc_arena_free(x->theta[i], x->size.n_params * sizeof(float));
    dlc_arena_free(x->mean, x->size.n_params * sizeof(float));
    dlc_buf_fini(&x->scratch);
    dlc_free(x->islands);
    dlc_free(x->hub.traffic);
    dlc_free(x);
}

dlc_hub *dlc_inproc_hub(dlc_inproc *x)
{
    return &x->hub;
}
dlc_endpoint *dlc_inproc_endpoint(dlc_inproc *x, int island)
{
    return &x->islands[island].base;
}
int64_t dlc_inproc_now_ns(const dlc_inproc *x)
{
    return x->now_ns;
}
void dlc_inproc_set_now(dlc_inproc *x, int64_t now_ns)
{
    x->now_ns = now_ns;
}

int64_t dlc_inproc_next_arrival_ns(const dlc_inproc *x)
{
    int64_t next = INT64_MAX;

    for (int i = 0; i < x->size.n_islands; i++) {
        const struct queue *q[2] = { &x->islands[i].up, &x->islands[i].down };

        for (int k = 0; k < 2; k++) {
            if (q[k]->first && q[k]->first->at_ns < next)
                next = q[k]->first->at_ns;
        }
    }
    return next;
}

dlc_err dlc_inproc_island_recv(dlc_inproc *x, int island, struct dlc_message *out, bool *got)
{
    struct queue *q = &x->islands[island].down;
    struct letter *l;
    dlc_err err;

    *got = false;
    if (!q->first || q->first->at_ns > x->now_ns)
        return DLC_OK;
    l = pop(q);
    *got = true;
    err = dlc_message_decode(out, l->bytes, l->size_bytes);
    letter_free(l);
    return err;
}

void dlc_inproc_cut(dlc_inproc *x, int island, bool tell_hub)
{
    struct endpoint *e = &x->islands[island];
    struct letter *l;

    clear(&e->down);
    if (!tell_hub) {
        clear(&e->up);
        return;
    }
    l = dlc_calloc(1, sizeof *l);
    if (!l)
        return; /* only in tests that fail allocations: then the silence limit finds it */
    l->lost = true;
    l->at_ns = x->now_ns + delay(x);
    push(&e->up, l);
}
