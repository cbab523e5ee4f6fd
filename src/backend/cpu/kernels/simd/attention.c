/* Causal attention by tiles of 64 queries and 64 keys; formulas in ref/attention.c. Tiles right of the diagonal are
 * skipped, and on it most of what lies right of it.
 *
 * Rows of a head stand far apart, often a power of two: 64 of them fall on few lines of the first cache and push
 * each other out. So every tile is copied to where its rows are neighbours before products read it many times.
 *
 * Forward: scores of a tile are made transposed (keys down, queries along the vectors), so that the softmax over keys
 * works on whole vectors of queries with no sums across lanes, and only the queries have to be turned around, once for
 * all their keys. The running maximum and sum are the streaming softmax of Milakov and Gimelshein (arXiv:1805.02867).
 *
 * Backward: a tile of keys is turned around once and meets all tiles of queries of all heads that share it;
 * probabilities are made again from lse. dk and dv of a key/value head belong to one item, and sums are taken in a
 * fixed order. */
#include "backend/cpu/kernels/simd/micro.h"

enum { TILE = DLC_ATTENTION_TILE, N_VECTORS = TILE / W };

/* to[i][d] = from[i][d] for n rows. */
static void copy_rows(float *to, size_t to_row, const float *from, size_t from_row, size_t n, size_t D)
{
    for (size_t i = 0; i < n; i++, to += to_row, from += from_row)
        for (size_t d = 0; d < D; d += W)
            v_store_upto(to + d, v_load_upto(from + d, D - d), D - d);
}

static void turn_singly(float *to, const float *from, size_t row, size_t i, size_t n, size_t d, size_t D, float scale)
{
    for (size_t at = d; i < n; i++)
        for (d = at; d < D; d++)
            to[d * TILE + i] = from[i * row + d] * scale;
}

/* to[d][i] = from[i][d] * scale, rows of `to` TILE apart; columns beyond n are 0 so that whole vectors can be used. */
static void turn(float *to, const float *from, size_t row, size_t n, size_t D, float scale)
{
    size_t i = 0, whole = D / GROUP * GROUP;

    for (; i + GROUP <= n; i += GROUP) {
        for (size_t d = 0; d < whole; d += GROUP) {
            __m256 r[GROUP];

            for (int j = 0; j < GROUP; j++)
                r[j] = _mm256_loadu_ps(from + (i + (size_t)j) * row + d) * _mm256_set1_ps(scale);
            transpose_group(r);
            for (int j = 0; j < GROUP; j++)
                _mm256_storeu_ps(to + (d + (size_t)j) * TILE + i, r[j]);
        }
        turn_singly(to, from, row, i, i + GROUP, whole, D, scale);
    }
    turn_singly(to, from, row, i, n, 0, D, scale);
    for (size_t d = 0; n < TILE && d < D; d++)
        memset(to + d * TILE + n, 0, (TILE - n) * sizeof *to);
}

struct forward {
    float *qt; /* [D][TILE] queries, scaled, turned */
    float *s;  /* [key][query] */
    float *o;  /* [query][D] */
    float *v;  /* [key][D] */
    float max[TILE], sum[TILE], shrink[TILE];
};

/* Turns the scores of n_keys keys into exp(score - max), with maximum and sum brought up to date. */
static void softmax_tile(struct forward *f, size_t n_keys)
{
    for (int i = 0; i < N_VECTORS; i++) {
        float *s = f->s + i * W;
        vf old = v_load(f->max + i * W), max = old, sum = v_set(0), shrink;

        for (size_t j = 0; j < n_keys; j++)
            max = v_max(max, v_load(s + j * TILE));
        for (size_t j = 0; j < n_keys; j++) {
            vf p = v_exp(v_load(s + j * TILE) - max);

            v_store(s + j * TILE, p);
            sum = sum + p;
        }
        shrink = v_exp(old - max);
        v_store(f->shrink + i * W, shrink);
        v_store(f->max + i * W, max);
        v_store(f->sum + i * W, v_fma(v_load(f->sum + i * W), shrink, sum));
    }
}

/* Every query has seen a key (key 0) after the first tile, so max is only then -infinity, and only before softmax_tile.
 */
static void forward_tile(struct forward *f, const float *k, const float *v, const struct dlc_attention *s,
                         size_t n_queries, size_t n_keys, int diagonal, int first)
{
    size_t D = s->D;

    micro_product((struct micro_operands){ f->s, TILE, k, s->k_row, 1, f->qt, TILE, D, 0 }, n_keys, TILE,
                  diagonal ? MICRO_C_UPPER : MICRO_WHOLE);
    for (size_t j = 0; diagonal && j < n_keys; j++)
        for (size_t i = 0; i < j; i++)
            f->s[j * TILE + i] = -INFINITY;
    softmax_tile(f, n_keys);
    for (size_t i = 0; !first && i < n_queries; i++)
        for (size_t d = 0; d < D; d += W)
            v_store_upto(f->o + i * D + d, v_load_upto(f->o + i * D + d, D - d) * v_set(f->shrink[i]), D - d);
    copy_rows(f->v, D, v, s->v_row, n_keys, D);
    micro_product((struct micro_operands){ f->o, D, f->s, 1, TILE, f->v, D, n_keys, !first }, n_queries, D,
                  diagonal ? MICRO_K_UPTO_ROW : MICRO_WHOLE);
}

static void forward_head(void *y, size_t y_at, float *lse, const float *q, const float *k, const float *v,
                         const struct dlc_attention *s, size_t tile, float *scratch)
{
    size_t D = s->D, row = s->H * D, first = tile * TILE;
    size_t n_queries = s->T - first < TILE ? s->T - first : TILE;
    struct forward f = {
        .qt = scratch, .o = scratch + D * TILE, .v = scratch + 2 * D * TILE, .s = scratch + 3 * D * TILE
    };

    for (int i = 0; i < TILE; i++) {
        f.max[i] = -INFINITY;
        f.sum[i] = 0;
    }
    turn(f.qt, q + first * s->q_row, s->q_row, n_queries, D, 1 / sqrtf((float)D));
    for (size_t j = 0; j <= tile; j++) {
        size_t n_keys = j == tile ? n_queries : TILE;

        forward_tile(&f, k + j * TILE * s->k_row, v + j * TILE * s->v_row, s, n_queries, n_keys, j == tile, j == 0);
    }
    for (size_t i = 0; i < n_queries; i++) {
        float *o = f.o + i * D, *to = s->y_type == DLC_BF16 ? o : (float *)y + y_at + (first + i) * row;

        for (size_t d = 0; d < D; d += W)
            v_store_upto(to + d, v_load_upto(o + d, D - d) * v_set(1 / f.sum[i]), D - d);
        if (s->y_type == DLC_BF16)
            DLC_KERNEL(to_bf16)((dlc_bf16 *)y + y_at + (first + i) * row, o, D);
        if (lse)
            lse[first + i] = f.max[i] + logf(f.sum[i]);
    }
}

void DLC_KERNEL(attention_fwd)(void *y, float *lse, const float *q, const float *k, const float *v,
                               const struct dlc_attention *s, size_t item_begin, size_t item_end, float *scratch)
{
    size_t n_tiles = dlc_attention_n_tiles(s), G = s->H / s->K;

    for (size_t item = item_begin; item < item_end; item++) {
        size_t tile = item % n_tiles, kv = item / n_tiles % s->K, b = item / n_tiles / s->K;
        const float *k0 = k + b * s->T * s->k_row + kv * s->D, *v0 = v + b * s->T * s->v_row + kv * s->D;

        for (size_t h = kv * G; h < (kv + 1) * G; h++)
            forward_head(y, (b * s->T * s->H + h) * s->D, lse ? lse + (b * s->H + h) * s->T : NULL,
                         q + b * s->T * s->q_row + h * s->D, k0, v0, s, tile, scratch);
    }
}

struct backward {
    float *dq, *dk, *dv;
    const float *dy, *q, *k, *v, *lse;     /* first row of the head and of the tile of keys */
    const void *y;
    dlc_dtype y_type;
    size_t y_at;
    float *kt, *vt;                        /* [D][TILE] keys (scaled) and values, turned */
    float *k_tile, *q_tile, *dy_tile;      /* [TILE][D] */
    float *dk_tile, *dv_tile;              /* [TILE][D] */
    float *p, *ds;                         /* [query][key] */
    size_t y_row, q_row, k_row, v_row, D, n_keys;
};

static vf load_y(const struct backward *b, size_t i, size_t d)
{
    size_t at = b->y_at + i * b->y_row + d;

    return b->D - d >= W ? v_load_as(b->y, at, b->y_type) : v_load_as_n(b->y, at, b->D - d, b->y_type);
}

/* Scores in p and dy.v in ds become probabilities and their gradient; keys right of the diagonal get 0. */
static void probabilities(struct backward *b, size_t first, size_t n_queries, int diagonal)
{
    float scale = 1 / sqrtf((float)b->D);

    for (size_t i = 0; i < n_queries; i++) {
        const float *dy = b->dy_tile + i * b->D;
        float *p = b->p + i * TILE, *ds = b->ds + i * TILE;
        size_t n = diagonal ? i + 1 : b->n_keys;
        vf sum = v_set(0), lse = v_set(b->lse[first + i]), delta;

        for (size_t d = 0; d < b->D; d += W)
            sum = v_fma(v_load_upto(dy + d, b->D - d), load_y(b, first + i, d), sum);
        delta = v_set(v_sum(sum));
        for (size_t j = 0; j < TILE; j += W) {
            vf e = v_exp(v_load(p + j) - lse);

            v_store(p + j, e);
            v_store(ds + j, e * (v_load(ds + j) - delta) * v_set(scale));
        }
        for (size_t j = n; j < b->n_keys; j++)
            p[j] = ds[j] = 0;
    }
}

/* One tile of queries of one head against the tile of keys. */
static void backward_tile(struct backward *b, size_t first, size_t n_queries, int diagonal)
{
    size_t q_row = b->q_row, D = b->D, n_keys = b->n_keys;
    enum micro_shape scores = diagonal ? MICRO_C_LOWER : MICRO_WHOLE;
    enum micro_shape to_keys = diagonal ? MICRO_K_FROM_ROW : MICRO_WHOLE;
    enum micro_shape to_queries = diagonal ? MICRO_K_UPTO_ROW : MICRO_WHOLE;

    copy_rows(b->q_tile, D, b->q + first * q_row, q_row, n_queries, D);
    copy_rows(b->dy_tile, D, b->dy + first * b->y_row, b->y_row, n_queries, D);
    micro_product((struct micro_operands){ b->p, TILE, b->q_tile, D, 1, b->kt, TILE, D, 0 }, n_queries, TILE, scores);
    micro_product((struct micro_operands){ b->ds, TILE, b->dy_tile, D, 1, b->vt, TILE, D, 0 }, n_queries, TILE, scores);
    probabilities(b, first, n_queries, diagonal);
    micro_product((struct micro_operands){ b->dv_tile, D, b->p, 1, TILE, b->dy_tile, D, n_queries, 1 }, n_keys, D,
                  to_keys);
    micro_product((struct micro_operands){ b->dk_tile, D, b->ds, 1, TILE, b->q_tile, D, n_queries, 1 }, n_keys, D,
                  to_keys);
    micro_product((struct micro_operands){ b->dq + first * q_row, q_row, b->ds, TILE, 1, b->k_tile, D, n_keys, 1 },
                  n_queries, D, to_queries);
}

static void clear_rows(float *x, size_t row, size_t n, size_t D)
{
    for (size_t i = 0; i < n; i++)
        memset(x + i * row, 0, D * sizeof *x);
}

/* The tile of keys `tile` of key/value head (b, kv) against all its queries. */
static void backward_keys(const struct backward *whole, const struct dlc_attention *s, size_t tile)
{
    struct backward b = *whole;
    size_t G = s->H / s->K, at = tile * TILE, n_tiles = dlc_attention_n_tiles(s);

    b.n_keys = s->T - at < TILE ? s->T - at : TILE;
    b.k += at * b.k_row;
    b.v += at * b.v_row;
    b.dk += at * b.k_row;
    b.dv += at * b.v_row;
    turn(b.kt, b.k, b.k_row, b.n_keys, b.D, 1 / sqrtf((float)b.D));
    turn(b.vt, b.v, b.v_row, b.n_keys, b.D, 1);
    copy_rows(b.k_tile, b.D, b.k, b.k_row, b.n_keys, b.D);
    memset(b.dk_tile, 0, TILE * b.D * sizeof *b.dk_tile);
    memset(b.dv_tile, 0, TILE * b.D * sizeof *b.dv_tile);
    for (size_t g = 0; g < G; g++) {
        struct backward head = b;

        head.q += g * b.D;
        head.y_at += g * b.D;
        head.dy += g * b.D;
        head.dq += g * b.D;
        head.lse += g * s->T;
        for (size_t i = tile; i < n_tiles; i++)
            backward_tile(&head, i * TILE, s->T - i * TILE < TILE ? s->T - i * TILE : TILE, i == tile);
    }
    copy_rows(b.dk, b.k_row, b.dk_tile, b.D, b.n_keys, b.D);
    copy_rows(b.dv, b.v_row, b.dv_tile, b.D, b.n_keys, b.D);
}

void DLC_KERNEL(attention_bwd)(float *dq, float *dk, float *dv, const float *dy, const float *q, const float *k,
                               const float *v, const void *y, const float *lse, const struct dlc_attention *s,
                               size_t item_begin, size_t item_end, float *scratch)
{
    size_t T = s->T, H = s->H, D = s->D, G = H / s->K;

    for (size_t item = item_begin; item < item_end; item++) {
        size_t kv = item % s->K, b = item / s->K, at = (b * T * H + kv * G) * D;
        size_t q_at = b * T * s->q_row + kv * G * D;
        size_t k_at = b * T * s->k_row + kv * D, v_at = b * T * s->v_row + kv * D;
        struct backward whole = {
            .dq = dq + q_at,
            .dk = dk + k_at,
            .dv = dv + v_at,
            .dy = dy + at,
            .q = q + q_at,
            .k = k + k_at,
            .v = v + v_at,
            .y = y,
            .y_type = s->y_type,
            .y_at = at,
            .lse = lse + (b * H + kv * G) * T,
            .kt = scratch,
            .vt = scratch + D * TILE,
            .k_tile = scratch + 2 * D * TILE,
            .q_tile = scratch + 3 * D * TILE,
            .dy_tile = scratch + 4 * D * TILE,
            .dk_tile = scratch + 5 * D * TILE,
            .dv_tile = scratch + 6 * D * TILE,
            .p = scratch + 7 * D * TILE,
            .ds = scratch + 7 * D * TILE + TILE * TILE,
            .y_row = H * D,
            .q_row = s->q_row,
            .k_row = s->k_row,
            .v_row = s->v_row,
            .D = D,
        };

        clear_rows(whole.dq, whole.q_row, T, G * D);
        for (size_t tile = 0; tile < dlc_attention_n_tiles(s); tile++)
            backward_keys(&whole, s, tile);
    }
}
