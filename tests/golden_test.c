/* The whole training method against an independent implementation: DiLoCo with three islands, whose losses, gradient
 * norms, first gradient and parameters after every outer step were computed by tests/reference/diloco_reference.py
 * (tests/reference/README.md describes the files). Everything within 1e-5 relative, for several ways to compute it.
 *
 * A fixture that nothing can miss proves nothing, so the second half makes the usual mistakes on purpose and expects
 * each of them to be seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "golden_fixture.h"
#include "outer/codecs/codec.h"
#include "outer/merge.h"

#define TOLERANCE 1e-5
#define SEEN 1e-4 /* what a mistake must at least change */

struct way {
    const char *isa;
    int n_threads;
    int micro_batch; /* sequences at once */
    const char *why;
};

struct island {
    int index;
    float *m, *v;
    int64_t count; /* AdamW steps so far */
    void *payload; /* its contribution */
};

/* What all of a simulation's functions need. */
struct job {
    const struct golden_fixture *f;
    const struct golden_settings *set;
    dlc_backend *be;
    dlc_model *model;
    int micro_batch;
};

/* Mean loss of the island's batch for step s, its gradient left in the model. */
static double batch_gradient(dlc_model *model, const struct golden_fixture *f, int island, int s, int micro_batch)
{
    int32_t inputs[MAX_BATCH * SEQ], targets[MAX_BATCH * SEQ];
    int batch = f->batch[island];
    const int32_t *row = f->tokens[island] + (size_t)s * (size_t)batch * (SEQ + 1);
    double loss = 0;

    dlc_model_zero_grads(model);
    for (int b = 0, some; b < batch; b += some) {
        some = batch - b < micro_batch ? batch - b : micro_batch;
        for (int i = 0; i < some; i++, row += SEQ + 1) {
            memcpy(inputs + i * SEQ, row, SEQ * sizeof *row);
            memcpy(targets + i * SEQ, row + 1, SEQ * sizeof *row);
        }
        loss += dlc_model_loss_grad(model, inputs, targets, some, SEQ, 1.0f / (float)(batch * SEQ));
    }
    return loss / (batch * SEQ);
}

static void inner_steps(struct golden_trajectory *out, struct island *island, const struct job *job, int round)
{
    const struct golden_settings *set = job->set;
    int i = island->index;
    float *params = dlc_model_params(job->model), *grads = dlc_model_grads(job->model);

    if (set->forget_moments) {
        memset(island->m, 0, job->f->n * sizeof(float));
        memset(island->v, 0, job->f->n * sizeof(float));
    }
    if (set->forget_moments || set->restart_count)
        island->count = 0;
    for (int s = round * INNER; s < (round + 1) * INNER; s++) {
        out->losses[i][s] = batch_gradient(job->model, job->f, i, s, job->micro_batch);
        if (i == 0 && s == 0)
            memcpy(out->gradient, grads, job->f->n * sizeof(float));
        out->norms[i][s] = dlc_adamw_step(job->be, params, island->m, island->v, grads, job->f->table, job->f->n_table,
                                          &set->adamw, dlc_schedule_lr(&set->schedule, s), ++island->count);
        dlc_model_params_changed(job->model);
    }
}

/* One round of every island and the outer step: theta_new from theta. */
static void one_round(struct golden_trajectory *out, struct island *islands, float *const outer_state[2],
                      float *theta_new, const float *theta, const float *start, const struct job *job, int round)
{
    struct dlc_merge_part parts[ISLANDS];
    struct dlc_merge merge = {
        .codec = &dlc_codec_f32, .opt = &job->set->outer, .n = job->f->n, .t = (uint64_t)round + 1
    };

    for (int i = 0; i < ISLANDS; i++) {
        memcpy(dlc_model_params(job->model), start, job->f->n * sizeof *start);
        dlc_model_params_changed(job->model);
        inner_steps(out, &islands[i], job, round);
        dlc_codec_f32.encode(islands[i].payload, theta, dlc_model_params(job->model), job->f->n);
        parts[i] = (struct dlc_merge_part){ islands[i].payload, job->set->weights[i], NULL };
    }
    dlc_merge(theta_new, theta, outer_state, NULL, &merge, parts, ISLANDS, job->be->pool);
}

static void run_rounds(struct golden_trajectory *out, const struct job *job, int rounds)
{
    size_t n = job->f->n;
    struct island islands[ISLANDS];
    float *outer_state[2] = { golden_zeros(n, sizeof(float)), golden_zeros(n, sizeof(float)) };
    const float *theta = job->f->init, *before = theta;

    for (int i = 0; i < ISLANDS; i++)
        islands[i] = (struct island){ i, golden_zeros(n, sizeof(float)), golden_zeros(n, sizeof(float)), 0,
                                      golden_zeros(1, dlc_codec_f32.size_bytes(n)) };
    for (int t = 0; t < rounds; t++) {
        one_round(out, islands, outer_state, out->theta[t], theta, job->set->stale_start ? before : theta, job, t);
        before = theta;
        theta = out->theta[t];
    }
    for (int i = 0; i < ISLANDS; i++) {
        dlc_free(islands[i].m);
        dlc_free(islands[i].v);
        dlc_free(islands[i].payload);
    }
    dlc_free(outer_state[0]);
    dlc_free(outer_state[1]);
}

/* The first `rounds` rounds; the rest of *out stays zero. */
static void simulate(struct golden_trajectory *out, const struct golden_fixture *f, const struct golden_settings *set,
                     int rounds, const struct way *way)
{
    struct dlc_model_options options = { .max_batch = way->micro_batch, .max_seq = SEQ, .training = true };
    struct job job = { .f = f, .set = set, .micro_batch = way->micro_batch };

    memset(out, 0, sizeof *out);
    out->gradient = golden_zeros(f->n, sizeof(float));
    for (int t = 0; t < ROUNDS; t++)
        out->theta[t] = golden_zeros(f->n, sizeof(float));
    for (size_t i = 0; i < f->n_table; i++)
        f->table[i].decay |= set->decay_all;
    OK(dlc_backend_create(&job.be, way->isa, way->n_threads));
    OK(dlc_model_create(&job.model, &set->model, &options, job.be));
    run_rounds(out, &job, rounds);
    dlc_model_destroy(job.model);
    dlc_backend_destroy(job.be);
}

/* ---- tests ---- */

static const char *const variants[] = { "llama", "qwen3-tied" };

static const struct way ways[] = {
    { "ref", 1, MAX_BATCH, "plain C, one thread" },
    { "auto", 1, MAX_BATCH, "the fastest kernels of this machine" },
    { "auto", 3, MAX_BATCH, "more threads than rows divide into evenly" },
    { "auto", 2, 1, "gradients accumulated over micro-batches" },
};

static void agrees_with_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof ways / sizeof *ways); i++) {
        const struct way *way = &ways[i / 2];
        const char *variant = variants[i % 2];
        struct golden_fixture f;
        struct golden_trajectory got;
        struct golden_distances d;
        double worst;

        golden_open(&f, variant);
        simulate(&got, &f, &f.settings, ROUNDS, way);
        d = golden_compare(&f, &got);
        print_message("%s, %s: losses %.1e, norms %.1e, gradient %.1e, theta %.1e %.1e %.1e %.1e (%s)\n", variant,
                      way->why, d.losses, d.norms, d.gradient, d.theta[0], d.theta[1], d.theta[2], d.theta[3], d.worst);
        worst = fmax(fmax(d.losses, d.norms), d.gradient);
        for (int t = 0; t < ROUNDS; t++)
            worst = fmax(worst, d.theta[t]);
        if (!(worst <= TOLERANCE))
            fail_msg("%s, %s: %.1e apart, at most %.0e is allowed", variant, way->why, worst, TOLERANCE);
        golden_trajectory_free(&got);
        golden_close(&f);
    }
}

static void schedule_agrees(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct golden_fixture f;

        golden_open(&f, variants[i]);
        for (int s = 0; s < STEPS; s++) {
            double lr = dlc_schedule_lr(&f.settings.schedule, s);

            if (!(fabs(lr - f.lr[s]) <= 1e-12 * f.lr[s]))
                fail_msg("%s: step %d has rate %.17g, the reference %.17g", variants[i], s, lr, f.lr[s]);
        }
        golden_close(&f);
    }
}

static void no_decay(struct golden_settings *s)
{
    s->adamw.weight_decay = 0;
}
static void decay_all(struct golden_settings *s)
{
    s->decay_all = true;
}
static void other_eps(struct golden_settings *s)
{
    s->adamw.eps /= 2;
}
static void other_beta1(struct golden_settings *s)
{
    s->adamw.beta1 = 0.91;
}
static void other_beta2(struct golden_settings *s)
{
    s->adamw.beta2 = 0.96;
}
static void no_clip(struct golden_settings *s)
{
    s->adamw.clip = 0;
}
static void lower_clip(struct golden_settings *s)
{
    s->adamw.clip /= 2;
}
static void later_warmup(struct golden_settings *s)
{
    s->schedule.warmup_steps++;
}
static void longer_run(struct golden_settings *s)
{
    s->schedule.total_steps++;
}
static void forget_moments(struct golden_settings *s)
{
    s->forget_moments = true;
}
static void restart_count(struct golden_settings *s)
{
    s->restart_count = true;
}
static void heavy_ball(struct golden_settings *s)
{
    s->outer.kind = DLC_OUTER_SGDM;
}
static void no_momentum(struct golden_settings *s)
{
    s->outer.momentum = 0;
}
static void wrong_sign(struct golden_settings *s)
{
    s->outer.lr = -s->outer.lr;
}
static void stale_islands(struct golden_settings *s)
{
    s->stale_start = true;
}
static void equal_weights(struct golden_settings *s)
{
    s->weights[0] = s->weights[1] = s->weights[2] = 1;
}
static void other_norm_eps(struct golden_settings *s)
{
    s->model.norm_eps /= 2;
}
static void other_rope(struct golden_settings *s)
{
    s->model.rope_theta *= 2;
}

static const struct {
    const char *variant;
    void (*make)(struct golden_settings *s);
    int rounds; /* after which it is visible */
    const char *why;
} mistakes[] = {
    { "llama", no_decay, 1, "no weight decay" },
    { "llama", decay_all, 1, "norms decay too" },
    { "llama", other_eps, 1, "half AdamW's eps" },
    { "llama", other_beta1, 1, "beta1 0.91" },
    { "llama", other_beta2, 2, "beta2 0.96" },
    { "qwen3-tied", no_clip, 1, "no clipping" },
    { "qwen3-tied", lower_clip, 1, "clipping at half the norm" },
    { "llama", later_warmup, 1, "one warm-up step more" },
    { "llama", longer_run, 2, "a run one step longer" },
    { "llama", forget_moments, 2, "moments lost between rounds" },
    { "llama", restart_count, 2, "bias correction starts anew each round" },
    { "llama", heavy_ball, 1, "momentum without Nesterov's look ahead" },
    { "llama", no_momentum, 2, "no outer momentum" },
    { "llama", wrong_sign, 1, "outer gradient the wrong way round" },
    { "llama", stale_islands, 2, "islands a round behind" },
    { "qwen3-tied", equal_weights, 1, "islands weigh the same whatever their batch" },
    { "qwen3-tied", other_rope, 1, "another rotary base" },
    { "llama", other_norm_eps, 2, "half the eps of RMSNorm" },
};

static void mistakes_are_seen(void **state)
{
    struct way way = { "auto", 1, MAX_BATCH, "" };

    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct golden_fixture f;
        struct golden_settings wrong;
        struct golden_trajectory got;
        const char *worst = "";
        double apart;
        int last = mistakes[i].rounds - 1;

        golden_open(&f, mistakes[i].variant);
        wrong = f.settings;
        mistakes[i].make(&wrong);
        simulate(&got, &f, &wrong, mistakes[i].rounds, &way);
        apart = golden_tensors_apart(&worst, &f, got.theta[last], f.expected.theta[last]);
        print_message("%s, %s: %.1e apart (%s)\n", mistakes[i].variant, mistakes[i].why, apart, worst);
        if (!(apart >= SEEN))
            fail_msg("%s: only %.1e apart, a test at %.0e would hardly see it", mistakes[i].why, apart, TOLERANCE);
        golden_trajectory_free(&got);
        golden_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule_agrees),
        cmocka_unit_test(agrees_with_the_reference),
        cmocka_unit_test(mistakes_are_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
