/* Islands that see only the updates of a run walk the same way as its coordinator, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "outer/coord.h"
#include "outer/merge.h"

#define N 5000 /* some blocks, the last one cut */
#define K 3
#define ROUNDS 5

struct walk {
    dlc_coord *core;
    struct dlc_coord_config cfg;
    float theta[2][N], state[2][N];             /* the coordinator's */
    float own_theta[2][N], own_state[2][N];     /* an island's */
    unsigned char slots[K][4 * N], update[4 * N];
    int n_updates;
};

static void *take_update(void *self, uint64_t t)
{
    struct walk *w = self;

    (void)t;
    w->n_updates++;
    memset(w->update, 0x5a, sizeof w->update);
    return w->update;
}

static void give(struct walk *w, const struct dlc_event *ev)
{
    struct dlc_action a;

    assert_int_equal(dlc_coord_event(w->core, 0, ev), DLC_OK);
    while (dlc_coord_next_action(w->core, &a)) {
        if (a.kind == DLC_ACTION_CLOSED)
            give(w, &(struct dlc_event){ .kind = DLC_EVENT_COMMITTED, .t = a.t });
    }
}

static void contribute(struct walk *w, int island, uint64_t t)
{
    static float params[N];
    const struct dlc_codec *codec = w->cfg.codec;
    struct dlc_event ev = { .kind = DLC_EVENT_CONTRIBUTION, .island = island, .incarnation = 1, .t = t, .attempt = 1,
                            .payload = w->slots[island], .payload_bytes = codec->size_bytes(N) };

    for (size_t j = 0; j < N; j++)
        params[j] = w->own_theta[(t - 1) & 1][j] -
                    0.01f * (float)dlc_rng_normal(8, t * K + (uint64_t)island, j) * (j % 3 ? 1.0f : 1e-6f);
    codec->encode(w->slots[island], w->own_theta[(t - 1) & 1], params, N);
    give(w, &ev);
}

static void walk(const struct dlc_codec *codec, dlc_outer_kind kind, dlc_aggregate aggregate, int n_islands, bool wanted)
{
    static struct walk w;
    float *theta[2] = { w.theta[0], w.theta[1] }, *state[2] = { w.state[0], w.state[1] };
    dlc_pool *pool;

    memset(&w, 0, sizeof w);
    w.cfg = (struct dlc_coord_config){
        .run = "0123456789abcdef0123456789abcdef", .seed = 3, .n_islands = n_islands, .n_params = N,
        .total_steps = 2 * ROUNDS, .H = 2, .batch = 1, .tokens_per_sample = 1, .n_pools = 1,
        .opt = { .kind = kind, .lr = kind == DLC_OUTER_SGD ? 1 : 0.7, .momentum = 0.9, .beta2 = 0.99, .eps = 1e-8 },
        .codec = codec, .aggregate = aggregate, .wait_for_all = true, .min_islands = n_islands, .quorum = n_islands };
    assert_int_equal(dlc_pool_create(&pool, 2), DLC_OK);
    for (size_t j = 0; j < N; j++)
        w.theta[0][j] = w.own_theta[0][j] = (float)dlc_rng_normal(8, 0, j);
    assert_int_equal(dlc_coord_create(&w.core, &w.cfg, theta, state, pool), DLC_OK);
    if (wanted)
        dlc_coord_set_update(w.core, take_update, &w);
    for (int i = 0; i < n_islands; i++)
        give(&w, &(struct dlc_event){ .kind = DLC_EVENT_HELLO, .island = i, .incarnation = 1 });
    for (uint64_t t = 1; t <= ROUNDS; t++) {
        struct dlc_merge m = { codec, &w.cfg.opt, aggregate, N, t };
        struct dlc_merge_part part = { w.update, 77, NULL };

        for (int i = 0; i < n_islands; i++)
            contribute(&w, i, t);
        assert_int_equal(dlc_coord_t(w.core), t);
        if (wanted)
            dlc_merge(w.own_theta[t & 1], w.own_theta[(t - 1) & 1],
                      (float *const[2]){ w.own_state[0], w.own_state[1] }, NULL, &m, &part, 1, NULL);
        else
            memcpy(w.own_theta[t & 1], dlc_coord_theta(w.core), sizeof w.own_theta[0]);
        if (memcmp(w.own_theta[t & 1], dlc_coord_theta(w.core), 4 * N) != 0 ||
            (wanted && memcmp(w.own_state, w.state, sizeof w.state) != 0))
            fail_msg("%s, %s, %d islands: differs after outer step %d", codec->name, dlc_outer_kind_name(kind),
                     n_islands, (int)t);
    }
    assert_int_equal(w.n_updates, wanted ? ROUNDS : 0);
    dlc_coord_destroy(w.core);
    dlc_pool_destroy(pool);
}

static void whoever_has_the_updates_has_theta(void **state)
{
    (void)state;
    for (const struct dlc_codec *const *codec = dlc_codecs(); *codec; codec++) {
        for (int kind = DLC_OUTER_NESTEROV; kind <= DLC_OUTER_ADAM; kind++) {
            for (int aggregate = DLC_AGGREGATE_MEAN; aggregate <= DLC_AGGREGATE_MEDIAN; aggregate++) {
                walk(*codec, (dlc_outer_kind)kind, (dlc_aggregate)aggregate, K, true);
                walk(*codec, (dlc_outer_kind)kind, (dlc_aggregate)aggregate, 1, true);
            }
        }
    }
}

/* The same contributions with and without an update wanted: the same bits. */
static void wanting_the_update_changes_nothing(void **state)
{
    static const struct dlc_outer_opt opts[] = { { .kind = DLC_OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9 },
                                                 { .kind = DLC_OUTER_SGD, .lr = 1 } };
    static float base[N], islands[K][N], theta[2][N], buf[2][N];
    static unsigned char slots[K][4 * N], update[4 * N];
    struct dlc_merge_part parts[K];

    (void)state;
    for (const struct dlc_codec *const *codec = dlc_codecs(); *codec; codec++) {
        for (size_t k = 0; k < 2 * 3; k++) {
            struct dlc_merge m = { *codec, &opts[k % 2], (dlc_aggregate)(k / 2), N, 1 };

            memset(buf, 0, sizeof buf);
            for (uint64_t i = 0; i < K; i++) {
                for (size_t j = 0; j < N; j++) {
                    base[j] = (float)dlc_rng_normal(9, 0, j);
                    islands[i][j] = base[j] - 0.1f * (float)dlc_rng_normal(9, 1 + i, j);
                }
                (*codec)->encode(slots[i], base, islands[i], N);
                parts[i] = (struct dlc_merge_part){ slots[i], (double)(i + 1), NULL };
            }
            dlc_merge(theta[0], base, (float *const[2]){ buf[0], NULL }, NULL, &m, parts, K, NULL);
            dlc_merge(theta[1], base, (float *const[2]){ buf[1], NULL }, update, &m, parts, K, NULL);
            assert_memory_equal(theta[0], theta[1], sizeof theta[0]);
            assert_memory_equal(buf[0], buf[1], sizeof buf[0]);
        }
    }
}

/* A contribution with a base of its own that is theta_new's memory: its outer gradient is what it was. */
static void a_late_part_keeps_its_outer_gradient(void **state)
{
    static const struct dlc_outer_opt opt = { .kind = DLC_OUTER_SGD, .lr = 0.5 };
    static float old[N], now[N], fresh[N], late[N], update[N], again[N];
    struct dlc_merge m = { &dlc_codec_f32, &opt, DLC_AGGREGATE_MEAN, N, 2 };

    (void)state;
    for (int alone = 0; alone <= 1; alone++) {
        struct dlc_merge_part parts[2] = { { late, 1, old }, { fresh, 3, NULL } }, one = { update, 1, NULL };

        for (size_t j = 0; j < N; j++) {
            old[j] = 1;
            late[j] = 0.75f;  /* moved by 0.25 */
            now[j] = 2;
            fresh[j] = 1.5f;  /* moved by 0.5 */
        }
        dlc_merge(old, now, (float *const[2]){ NULL, NULL }, update, &m, parts, alone ? 1 : 2, NULL);
        dlc_merge(again, now, (float *const[2]){ NULL, NULL }, NULL, &m, &one, 1, NULL);
        for (size_t j = 0; j < N; j++) {
            double mean = alone ? 0.25 : 0.25 * 0.25 + 0.75 * 0.5;

            assert_true(old[j] == (float)(2 - 0.5 * mean));
            assert_true(again[j] == old[j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_has_the_updates_has_theta),
        cmocka_unit_test(wanting_the_update_changes_nothing),
        cmocka_unit_test(a_late_part_keeps_its_outer_gradient),
    };

    return cmocka_run_group_tests_name("update", tests, NULL, NULL);
}
