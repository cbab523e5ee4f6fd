/* Stopping between any two events and going on; and everything that cannot be gone on from. */
#include "outer/coord_test_util.h"

#include "base/json.h"

/* What a run folder keeps of outer step t. */
struct kept {
    json_t *saved;
    struct dlc_record record;
    float theta[N], state[2][N];
};

static struct kept keep(const struct bench *b)
{
    struct kept k = { .saved = NULL };
    json_t *live = dlc_coord_to_json(b->c);
    char *text = dlc_json_dump(live);

    assert_int_equal(dlc_json_parse(&k.saved, text, strlen(text), "saved"), DLC_OK); /* as from a file */
    assert_int_equal(dlc_record_from_line(&k.record, b->line, strlen(b->line), "record"), DLC_OK);
    memcpy(k.theta, dlc_coord_theta(b->c), sizeof k.theta);
    memcpy(k.state, b->state_values, sizeof k.state);
    dlc_free(text);
    json_decref(live);
    return k;
}

static void kept_fini(struct kept *k)
{
    json_decref(k->saved);
    dlc_record_fini(&k->record);
}

static dlc_err resume(struct bench *b, const struct dlc_coord_config *cfg, const struct kept *k)
{
    bench_init(b, cfg);
    memcpy(b->theta_values[k->record.t & 1], k->theta, sizeof k->theta);
    memcpy(b->state_values, k->state, sizeof k->state);
    return dlc_coord_resume(&b->c, cfg, b->theta, b->state, NULL, k->saved, &k->record, NULL);
}

static const struct {
    double drop;
    int n_pools;
    dlc_outer_kind kind;
    const char *why;
} runs[] = {
    { 0, 1, DLC_OUTER_NESTEROV, "the usual" },
    { 0.4, 1, DLC_OUTER_NESTEROV, "samples pending" },
    { 0, 5, DLC_OUTER_SGD, "more pools than islands, no outer state" },
    { 0.2, 2, DLC_OUTER_ADAM, "two arrays of outer state" },
};

static struct dlc_coord_config config_of(size_t k)
{
    struct dlc_coord_config cfg = bench_config(3);

    cfg.drop = runs[k].drop;
    cfg.n_pools = runs[k].n_pools;
    cfg.opt.kind = runs[k].kind;
    cfg.opt.beta2 = 0.95;
    cfg.opt.eps = 1e-8;
    return cfg;
}

/* After each outer step: another coordinator that goes on from what was kept writes the same records to the end. */
static void a_resumed_run_is_the_same_run(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        struct dlc_coord_config cfg = config_of(k);
        char *lines[11] = { NULL };
        struct kept kept[11];
        struct bench b;

        bench_open(&b, &cfg);
        hello_all(&b);
        for (uint64_t t = 1; t <= 10; t++) {
            whole_round(&b);
            lines[t] = dlc_strdup(b.line);
            kept[t] = keep(&b);
        }
        bench_close(&b);
        for (uint64_t from = 1; from <= 10; from++) {
            json_t *again;

            if (resume(&b, &cfg, &kept[from]) != DLC_OK)
                fail_msg("%s, after %d: %s", runs[k].why, (int)from, dlc_err_text());
            again = dlc_coord_to_json(b.c);
            assert_true(json_equal(again, kept[from].saved));
            json_decref(again);
            assert_int_equal(dlc_coord_t(b.c), from);
            assert_int_equal(dlc_coord_is_finished(b.c), from == 10);
            hello_all(&b);
            for (uint64_t t = from + 1; t <= 10; t++) {
                whole_round(&b);
                if (strcmp(b.line, lines[t]) != 0)
                    fail_msg("%s, from %d, step %d:\n%s\n%s", runs[k].why, (int)from, (int)t, b.line, lines[t]);
            }
            bench_close(&b);
        }
        for (int t = 1; t <= 10; t++) {
            dlc_free(lines[t]);
            kept_fini(&kept[t]);
        }
    }
}

/* What is saved is the state after the record: nothing of the round that is open by then, whatever happens in it. */
static void an_open_round_is_not_saved(void **state)
{
    struct dlc_coord_config cfg = config_of(1);
    struct bench b;
    json_t *before, *after;

    (void)state;
    cfg.nonfinite_rollbacks_max = 3;
    bench_open(&b, &cfg);
    hello_all(&b);
    whole_round(&b);
    before = json_deep_copy(b.c->saved);
    contribute(&b, 0, 1);
    tell(&b, DLC_EVENT_LOST, 1);
    tell(&b, DLC_EVENT_NONFINITE, 2);
    contribute(&b, 2, 1);
    after = dlc_coord_to_json(b.c);
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    bench_close(&b);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

/* Three rounds of the run with samples pending. */
static struct kept example(const struct dlc_coord_config *cfg)
{
    struct kept k;
    struct bench b;

    bench_open(&b, cfg);
    hello_all(&b);
    for (int r = 0; r < 3; r++)
        whole_round(&b);
    k = keep(&b);
    bench_close(&b);
    return k;
}

static void flip_theta(struct kept *k)
{
    k->theta[2] = nextafterf(k->theta[2], 9);
}
static void flip_state(struct kept *k)
{
    k->state[0][1] = nextafterf(k->state[0][1], 9);
}
static void older_record(struct kept *k)
{
    k->record.t = 2;
}
static void other_record(struct kept *k)
{
    k->record.theta.bytes[0] ^= 1;
}
static void other_run(struct kept *k)
{
    k->record.run[0] = 'f';
}

static void state_that_does_not_match_the_record_is_refused(void **state)
{
    static const struct {
        void (*spoil)(struct kept *k);
        const char *text, *why;
    } rows[] = {
        { flip_theta, "the parameters are not those", "one bit of theta" },
        { flip_state, "optimizer's state is not the one", "one bit of the momentum" },
        { older_record, "the record beside it of 2", "a record of another step" },
        { other_record, "the parameters are not those", "a record of another history" },
        { other_run, "is of run f123", "a record of another run" },
    };
    struct dlc_coord_config cfg = config_of(1);

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct kept kept = example(&cfg);
        struct bench b;

        rows[k].spoil(&kept);
        if (resume(&b, &cfg, &kept) != DLC_EINPUT || !strstr(dlc_err_text(), rows[k].text))
            fail_msg("%s: %s", rows[k].why, dlc_err_text());
        assert_null(b.c);
        kept_fini(&kept);
    }
}

/* A fresh coordinator cannot take the place of one with history. */
static void no_record_means_no_history(void **state)
{
    struct dlc_coord_config cfg = config_of(1);
    struct kept kept = example(&cfg);
    struct bench b;

    (void)state;
    bench_init(&b, &cfg);
    assert_int_equal(dlc_coord_resume(&b.c, &cfg, b.theta, b.state, NULL, kept.saved, NULL, NULL), DLC_EINPUT);
    assert_null(b.c);
    kept_fini(&kept);
}

static void hostile_saved_states_are_refused(void **state)
{
    static const struct {
        const char *key, *value, *why;
    } rows[] = {
        { "run", "\"fedcba9876543210fedcba9876543210\"", "of another run" },
        { "run", "7", "a number" },
        { "t", "-1", "negative" },
        { "t", "4", "another step than the record's" },
        { "t", "11", "beyond the end of the run" },
        { "t", "9223372036854775807", "far beyond" },
        { "tokens", "-1", "negative" },
        { "tokens", "1.5", "no integer" },
        { "tokens", "9223372036854775807", "no room for one more" },
        { "rollbacks", "2147483648", "too many" },
        { "norms", "{}", "not an array" },
        { "norms", "[\"1\"]", "a string" },
        { "norms", "[-1.0]", "negative" },
        { "norms",
          "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
          "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]",
          "65 of them" },
        { "islands", "[]", "none" },
        { "islands", "[{},{},{}]", "empty ones" },
        { "islands",
          "[{\"state_step\":4,\"own_params\":false,\"pending\":[]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]}]",
          "a state of a step to come" },
        { "islands",
          "[{\"state_step\":0,\"own_params\":true,\"pending\":[]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]}]",
          "own parameters of nothing" },
        { "islands",
          "[{\"state_step\":0,\"own_params\":false,\"pending\":[[0,0,1]]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]}]",
          "pending samples that are not leased" },
        { "islands",
          "[{\"state_step\":0,\"own_params\":false,\"pending\":[]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]},"
          "{\"state_step\":0,\"own_params\":false,\"pending\":[]}]",
          "leases that nobody has pending" },
        { "ledger", "[]", "no pools" },
        { "ledger", "[{\"next\":90,\"held\":[]}]", "no leases for what is pending" },
        { "ledger", "[{\"next\":90,\"held\":[]},{\"next\":0,\"held\":[]}]", "two pools" },
        { "ledger", "[{\"next\":90,\"held\":[[0,10,77]]}]", "leased by an island that is not there" },
    };
    struct dlc_coord_config cfg = config_of(1);

    (void)state;
    cfg.seed = 2; /* two islands have samples pending */
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        for (int gone = 0; gone < 2; gone++) {
            struct kept kept = example(&cfg);
            struct bench b;

            json_object_del(kept.saved, rows[k].key);
            if (!gone)
                json_object_set_new(kept.saved, rows[k].key, json_loads(rows[k].value, JSON_DECODE_ANY, NULL));
            if (resume(&b, &cfg, &kept) != DLC_EINPUT)
                fail_msg("%s, %s: taken", rows[k].key, gone ? "missing" : rows[k].why);
            assert_null(b.c);
            kept_fini(&kept);
        }
    }
}

static void out_of_memory_leaves_nothing_behind(void **state)
{
    struct dlc_coord_config cfg = config_of(1);
    struct kept kept = example(&cfg);
    dlc_err err = DLC_ENOMEM;
    struct bench b;

    (void)state;
    for (uint64_t n = 1; err != DLC_OK; n++) {
        dlc_mem_fail_at(n);
        err = resume(&b, &cfg, &kept);
        dlc_mem_fail_at(0);
        if ((err != DLC_OK && err != DLC_ENOMEM) || n > 10000)
            fail_msg("allocation %llu: code %d, %s", (unsigned long long)n, (int)err, dlc_err_text());
    }
    assert_true(json_equal(b.c->saved, kept.saved));
    bench_close(&b);
    kept_fini(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_is_the_same_run),
        cmocka_unit_test(an_open_round_is_not_saved),
        cmocka_unit_test(state_that_does_not_match_the_record_is_refused),
        cmocka_unit_test(no_record_means_no_history),
        cmocka_unit_test(hostile_saved_states_are_refused),
        cmocka_unit_test(out_of_memory_leaves_nothing_behind),
    };

    return cmocka_run_group_tests_name("coord-resume", tests, NULL, NULL);
}
