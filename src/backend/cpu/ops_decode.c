/* Operations of generation: products with few rows, attention over a cache.
 *
 * All give the same bits for every number of threads: a product is divided by rows of the matrix, each of which is
 * summed on its own; attention is divided by heads, tiles of rows and, with one row, shares of the positions that
 * depend on their number alone and are merged in order. */
#include <assert.h>
#include <math.h>

#include "backend/cpu/cpu.h"

enum {
    COLUMN_GRAIN = 16, /* of y: workers write to different cache lines */
    VALUE_BYTES = 32,  /* of weights are read in the time that other operations take for a value */
    SHARE_POSITIONS = 256,
    ROW_TILE = 16
};

struct product {
    struct dlc_cpu *cpu;
    float *y;
    const float *x;
    const char *w;
    size_t R, N, K;
    dlc_dtype type;
    int accumulate;
};

static void do_matvec(void *arg, struct dlc_part part)
{
    const struct product *j = arg;
    size_t n = part.begin, end = part.end;

    j->cpu->kernels.matvec(j->y + n, j->N, j->x, j->w + n * j->K * dlc_dtype_size(j->type), j->R, end - n, j->K,
                           j->type, j->accumulate);
}

static void matvec(dlc_backend *be, float *y, const float *x, const void *w, size_t R, size_t N, size_t K,
                   dlc_dtype type, int accumulate)
{
    struct product job = { dlc_cpu_of(be), y, x, w, R, N, K, type, accumulate };

    dlc_cpu_each(job.cpu, do_matvec, &job, N, COLUMN_GRAIN, R * N * K * dlc_dtype_size(type) / VALUE_BYTES);
}

struct attention {
    struct dlc_cpu *cpu;
    struct dlc_cached s;
    float *y;
    char *keys, *values;
    const float *q, *k, *v;
    size_t n_tiles, n_shares, share; /* items are (key/value head, tile of rows, share) */
    float *o, *max, *sum;            /* [n_shares][R][H][D], [n_shares][R][H] twice; o is y with one share */
};

static void put_row(const struct attention *j, char *cache, const float *x, size_t r, size_t k)
{
    const struct dlc_cached *s = &j->s;
    char *to = cache + (k * s->P + s->past + r) * s->D * dlc_dtype_size(s->type);
    const float *from = x + (r * s->K + k) * s->D;

    if (s->type == DLC_BF16)
        j->cpu->kernels.to_bf16((dlc_bf16 *)(void *)to, from, s->D);
    else
        memcpy(to, from, s->D * sizeof *from);
}

static void do_put(void *arg, struct dlc_part part)
{
    const struct attention *j = arg;
    size_t k = part.begin, end = part.end;

    for (; k < end; k++) {
        for (size_t r = 0; r < j->s.R; r++) {
            put_row(j, j->keys, j->k, r, k);
            put_row(j, j->values, j->v, r, k);
        }
    }
}

static void attend_item(const struct attention *j, size_t item)
{
    const struct dlc_cached *s = &j->s;
    size_t share = item % j->n_shares, tile = item / j->n_shares % j->n_tiles, kv = item / j->n_shares / j->n_tiles;
    size_t G = s->H / s->K, first = tile * ROW_TILE, n = s->past + s->R;
    size_t head = (share * s->R + first) * s->H + kv * G, cache = kv * s->P * s->D * dlc_dtype_size(s->type);
    struct dlc_cached_part part = { .R = s->R - first < ROW_TILE ? s->R - first : ROW_TILE,
                                    .G = G,
                                    .H = s->H,
                                    .D = s->D,
                                    .seen = s->past + first + 1,
                                    .begin = share * j->share,
                                    .end = (share + 1) * j->share < n ? (share + 1) * j->share : n,
                                    .type = s->type };

    j->cpu->kernels.attention_cached(j->o + head * s->D, j->max + head, j->sum + head,
                                     j->q + (first * s->H + kv * G) * s->D, j->keys + cache, j->values + cache, &part);
}

static void do_attend(void *arg, struct dlc_part part)
{
    const struct attention *j = arg;
    size_t item = part.begin, end = part.end;

    for (; item < end; item++)
        attend_item(j, item);
}

/* y = sum over shares of o e^(max - largest) / sum over shares of sum e^(max - largest), in order of positions. */
static void merge_row(const struct attention *j, size_t row)
{
    const struct dlc_cached *s = &j->s;
    size_t stride = s->R * s->H;
    float largest = j->max[row], total = 0, *y = j->y + row * s->D;

    for (size_t i = 1; i < j->n_shares; i++)
        largest = fmaxf(largest, j->max[i * stride + row]);
    for (size_t i = 0; i < j->n_shares; i++) {
        const float *o = j->o + (i * stride + row) * s->D;
        float e = j->n_shares == 1 ? 1 : expf(j->max[i * stride + row] - largest);

        total += e * j->sum[i * stride + row];
        for (size_t d = 0; d < s->D; d++)
            y[d] = i == 0 ? e * o[d] : y[d] + e * o[d];
    }
    for (size_t d = 0; d < s->D; d++)
        y[d] /= total;
}

static void do_merge(void *arg, struct dlc_part part)
{
    const struct attention *j = arg;
    size_t row = part.begin, end = part.end;

    for (; row < end; row++)
        merge_row(j, row);
}

/* One row is divided by positions too, so that a model with few key/value heads keeps many cores busy. */
static void divide(struct attention *j)
{
    const struct dlc_cached *s = &j->s;
    size_t n = s->past + s->R, row_floats = s->R * s->H * (s->D + 2), most = j->cpu->dg_floats / row_floats;

    j->n_tiles = (s->R + ROW_TILE - 1) / ROW_TILE;
    j->share = n;
    if (s->R == 1 && n > SHARE_POSITIONS) {
        size_t n_shares = (n + SHARE_POSITIONS - 1) / SHARE_POSITIONS;

        n_shares = n_shares < most ? n_shares : most;
        n_shares = n_shares < DLC_MAX_BLOCKS ? n_shares : DLC_MAX_BLOCKS;
        j->share = ((n + n_shares - 1) / n_shares + SHARE_POSITIONS - 1) / SHARE_POSITIONS * SHARE_POSITIONS;
    }
    j->n_shares = (n + j->share - 1) / j->share;
    j->o = j->n_shares == 1 ? j->y : j->cpu->dg_blocks;
    j->max = j->cpu->dg_blocks + (j->n_shares == 1 ? 0 : j->n_shares * s->R * s->H * s->D);
    j->sum = j->max + j->n_shares * s->R * s->H;
    assert(row_floats <= j->cpu->dg_floats);
}

static void attention_cached(dlc_backend *be, float *y, void *keys, void *values, const float *q, const float *k,
                             const float *v, const struct dlc_cached *s)
{
    struct attention job = {
        .cpu = dlc_cpu_of(be), .s = *s, .y = y, .keys = keys, .values = values, .q = q, .k = k, .v = v
    };

    assert(s->H % s->K == 0 && s->R > 0 && s->past + s->R <= s->P);
    divide(&job);
    dlc_cpu_each(job.cpu, do_put, &job, s->K, 1, s->R * s->K * s->D);
    dlc_cpu_each(job.cpu, do_attend, &job, s->K * job.n_tiles * job.n_shares, 1,
                 s->R * (s->past + s->R) * s->H * s->D / 4);
    dlc_cpu_each(job.cpu, do_merge, &job, s->R * s->H, 1, s->R * s->H * s->D * job.n_shares / 4);
}

struct widen {
    struct dlc_cpu *cpu;
    float *y;
    const dlc_bf16 *x;
};

static void do_from_bf16(void *arg, struct dlc_part part)
{
    const struct widen *j = arg;
    size_t i = part.begin, end = part.end;

    j->cpu->kernels.from_bf16(j->y + i, j->x + i, end - i);
}

static void from_bf16(dlc_backend *be, float *y, const dlc_bf16 *x, size_t n)
{
    struct widen job = { dlc_cpu_of(be), y, x };

    dlc_cpu_each(job.cpu, do_from_bf16, &job, n, COLUMN_GRAIN, n);
}

void dlc_cpu_ops_decode(struct dlc_ops *ops)
{
    ops->matvec = matvec;
    ops->attention_cached = attention_cached;
    ops->from_bf16 = from_bf16;
}
