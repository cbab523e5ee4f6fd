/* The loop of a storm: links step, faults begin and end, commits are noticed, processes are watched. */
#include "storm.h"

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "scene_setup.h"

#define TICK_S 0.02
#define SAMPLE_EVERY_S 1.0
#define BEGIN_PATIENCE_S 120.0
#define LEAVE_PATIENCE_S 30.0
#define SETTLE_RECORDS 3
#define RESTART_AFTER_SURPRISE_S 1.0

static double now_s(const struct storm *s)
{
    return dlc_now_s() - s->start_s;
}

/* --- starting -------------------------------------------------------------------------------------------- */

static dlc_err start_coordinator(struct storm *s)
{
    return scene_start_coordinator(&s->coordinator, s->config, s->program, s->folder, s->port, s->H);
}

/* The link's port in place of the server's. */
static dlc_err start_island(struct storm *s, int i)
{
    char url[sizeof s->url], port[16];
    const char *at;

    snprintf(port, sizeof port, ":%d/", s->port);
    at = strstr(s->url, port);
    if (!at)
        return dlc_fail(DLC_EFAIL, "the join line has another port than %d, which was asked for", s->port);
    snprintf(url, sizeof url, "%.*s:%d/%s", (int)(at - s->url), s->url, dlc_link_port(s->links[i]), at + strlen(port));
    return scene_start_island(&s->islands[i], s->program, s->folder, i, url);
}

static dlc_err make_links(struct storm *s)
{
    struct dlc_link_config c = { .listen = { .host = "127.0.0.1" }, .to = { .host = "127.0.0.1", .port = s->port } };

    c.delay_s = s->config->link_delay_s;
    c.bits_per_s[0] = c.bits_per_s[1] = s->config->link_bits_per_s;
    for (int i = 0; i < s->config->plan.n_islands; i++)
        DLC_TRY(dlc_link_create(&s->links[i], &c));
    return DLC_OK;
}

/* --- the loop -------------------------------------------------------------------------------------------- */

static dlc_err step_links(struct storm *s)
{
    struct pollfd fds[STORM_MAX_ISLANDS];
    int n = s->config->plan.n_islands;
    double wait_s = TICK_S;

    for (int i = 0; i < n; i++) {
        fds[i] = (struct pollfd){ .fd = dlc_link_fd(s->links[i]), .events = POLLIN };
        wait_s = fmin(wait_s, dlc_link_next_s(s->links[i]));
    }
    (void)poll(fds, (nfds_t)n, (int)ceil(wait_s * 1e3));
    for (int i = 0; i < n; i++)
        if (fds[i].revents || dlc_link_next_s(s->links[i]) <= 0)
            DLC_TRY(dlc_link_step(s->links[i], 0));
    return DLC_OK;
}

static int n_running(const struct storm *s)
{
    int n = 0;

    for (int i = 0; i < s->config->plan.n_islands; i++)
        n += s->islands[i].pid && !s->islands[i].stopped;
    return n;
}

/* New lines of records.jsonl are commits. A coordinator that was killed may take records back that it has not seen to
 * be durable: then the file is shorter, and those commits come again. */
static void notice_commits(struct storm *s)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX];
    uint64_t size;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/run/records.jsonl", s->folder);
    if (!dlc_file_exists(path) || dlc_file_size(&size, path) != DLC_OK || size == s->records_bytes)
        return;
    s->records_bytes = size;
    if (dlc_file_read(&text, path, (size_t)1 << 30) != DLC_OK)
        return;
    for (size_t i = 0; i < text.len; i++)
        n += text.data[i] == '\n';
    dlc_buf_fini(&text);
    n = n < STORM_MAX_RECORDS ? n : STORM_MAX_RECORDS;
    for (; s->n_commits < n; s->n_commits++)
        s->commits[s->n_commits] = (struct chaos_commit){ .at_s = now_s(s), .n_running = n_running(s) };
    s->n_commits = n;
}

static struct chaos_life *life_of(struct storm *s, const char *who)
{
    for (size_t i = s->n_lives; i-- > 0;)
        if (strcmp(s->lives[i].who, who) == 0)
            return &s->lives[i];
    if (s->n_lives == sizeof s->lives / sizeof s->lives[0])
        return NULL;
    snprintf(s->lives[s->n_lives].who, sizeof s->lives[0].who, "%s", who);
    return &s->lives[s->n_lives++];
}

static dlc_err sample(struct storm *s, const char *who, int number, pid_t pid)
{
    char name[32];
    struct chaos_life *life;

    snprintf(name, sizeof name, "%.20s#%d", who, number);
    life = pid ? life_of(s, name) : NULL;
    return life ? chaos_watch(life, pid, dlc_now_s()) : DLC_OK;
}

static dlc_err watch_all(struct storm *s)
{
    char store[DLC_PATH_MAX];

    if (dlc_now_s() - s->sampled_s < SAMPLE_EVERY_S)
        return DLC_OK;
    s->sampled_s = dlc_now_s();
    DLC_TRY(sample(s, "coordinator", s->coordinator.n_starts, s->coordinator.pid));
    for (int i = 0; i < s->config->plan.n_islands; i++)
        if (!s->islands[i].stopped)
            DLC_TRY(sample(s, s->islands[i].who, s->islands[i].n_starts, s->islands[i].pid));
    snprintf(store, sizeof store, "%s/run/nats", s->folder);
    s->store_late_bytes = chaos_folder_bytes(store);
    if (now_s(s) < s->config->plan.duration_s / 4)
        s->store_early_bytes = s->store_late_bytes;
    return DLC_OK;
}

static bool faulty(const struct storm *s, int island)
{
    for (size_t i = 0; i < s->n_begun; i++)
        if (s->ends_s[i] > 0 && s->faults[i].island == island)
            return true;
    return false;
}

/* Who ended and was not told to is counted and comes back, so that the storm shows more than its first surprise. */
static dlc_err take_ends(struct storm *s)
{
    struct actor *c = &s->coordinator;

    if (actor_has_ended(c) && !c->must_end && !(s->config->n_rounds && c->status == 0)) {
        c->n_surprises++;
        fprintf(stderr, "%8.2f s  the coordinator ended with status %d\n", now_s(s), c->status);
        if (!faulty(s, CHAOS_NOBODY))
            DLC_TRY(start_coordinator(s));
    }
    for (int i = 0; i < s->config->plan.n_islands; i++) {
        struct actor *a = &s->islands[i];

        if (!actor_has_ended(a) || a->must_end || (s->config->n_rounds && a->status == 0))
            continue;
        a->n_surprises++;
        fprintf(stderr, "%8.2f s  %s ended with status %d\n", now_s(s), a->who, a->status);
        if (!faulty(s, i) && a->n_surprises < 20)
            DLC_TRY(start_island(s, i));
    }
    return DLC_OK;
}

static dlc_err turn(struct storm *s)
{
    DLC_TRY(step_links(s));
    DLC_TRY(take_ends(s));
    notice_commits(s);
    return watch_all(s);
}

/* --- faults ---------------------------------------------------------------------------------------------- */

static void ballast_path(char out[DLC_PATH_MAX], const struct storm *s)
{
    snprintf(out, DLC_PATH_MAX, "%s/run/ballast", s->folder);
}

static void fill_disk(const struct storm *s)
{
    static char block[65536];
    char path[DLC_PATH_MAX];
    FILE *f;

    ballast_path(path, s);
    f = fopen(path, "we");
    if (!f)
        return;
    setvbuf(f, NULL, _IONBF, 0);
    while (fwrite(block, 1, sizeof block, f) == sizeof block)
        ;
    fclose(f);
}

static void begin_fault(struct storm *s, const struct chaos_fault *f)
{
    struct actor *a = f->island == CHAOS_NOBODY ? &s->coordinator : &s->islands[f->island];
    dlc_link *link = f->island == CHAOS_NOBODY ? NULL : s->links[f->island];
    pid_t server;

    switch (f->kind) {
    case CHAOS_KILL_ISLAND:
    case CHAOS_KILL_COORDINATOR: actor_signal(a, SIGKILL); break;
    case CHAOS_STALL_ISLAND:
    case CHAOS_STALL_COORDINATOR: actor_signal(a, SIGSTOP); break;
    case CHAOS_LEAVE: actor_signal(a, SIGTERM); break;
    case CHAOS_CUT_LINK: dlc_link_cut_now(link, f->for_s); break;
    case CHAOS_SLOW_LINK: dlc_link_set_rate(link, f->bits_per_s, f->bits_per_s); break;
    case CHAOS_RESET_LINK: dlc_link_reset_now(link); break;
    case CHAOS_KILL_SERVER:
        if (a->pid && chaos_children(a->pid, "nats-server", &server, 1) == 1)
            (void)kill(server, SIGKILL);
        break;
    case CHAOS_FILL_DISK:
        a->must_end = true;
        fill_disk(s);
        break;
    case CHAOS_N_KINDS: break;
    }
}

static dlc_err end_fault(struct storm *s, const struct chaos_fault *f)
{
    char path[DLC_PATH_MAX];

    switch (f->kind) {
    case CHAOS_STALL_ISLAND: actor_signal(&s->islands[f->island], SIGCONT); return DLC_OK;
    case CHAOS_STALL_COORDINATOR: actor_signal(&s->coordinator, SIGCONT); return DLC_OK;
    case CHAOS_SLOW_LINK:
        dlc_link_set_rate(s->links[f->island], s->config->link_bits_per_s, s->config->link_bits_per_s);
        return DLC_OK;
    case CHAOS_KILL_ISLAND:
    case CHAOS_LEAVE: /* who has not left in time is killed */
        if (!actor_wait(&s->islands[f->island], f->kind == CHAOS_LEAVE ? 5 : LEAVE_PATIENCE_S))
            s->n_unclean++;
        return start_island(s, f->island);
    case CHAOS_FILL_DISK:
        ballast_path(path, s);
        (void)unlink(path);
        s->coordinator.must_end = false;
        return s->coordinator.pid ? DLC_OK : start_coordinator(s);
    case CHAOS_KILL_COORDINATOR: actor_wait(&s->coordinator, LEAVE_PATIENCE_S); return start_coordinator(s);
    default: return DLC_OK;
    }
}

/* until_s: later faults are left out. */
static dlc_err faults_turn(struct storm *s, double until_s)
{
    double at_s = now_s(s);

    for (size_t i = 0; i < s->n_begun; i++) {
        if (s->ends_s[i] == 0 || s->ends_s[i] > at_s)
            continue;
        s->ends_s[i] = 0;
        DLC_TRY(end_fault(s, &s->faults[i]));
    }
    while (s->n_begun < s->n_faults && s->faults[s->n_begun].at_s <= at_s && at_s < until_s) {
        struct chaos_fault *f = &s->faults[s->n_begun];
        struct dlc_buf text = { 0 };

        f->at_s = at_s; /* when it really was */
        DLC_TRY(chaos_describe(&text, f));
        fprintf(stderr, "%s\n", text.data);
        dlc_buf_fini(&text);
        begin_fault(s, f);
        s->ends_s[s->n_begun++] = at_s + f->for_s;
    }
    return DLC_OK;
}

static bool any_fault_on(const struct storm *s)
{
    for (size_t i = 0; i < s->n_begun; i++)
        if (s->ends_s[i] > 0)
            return true;
    return false;
}

/* --- from beginning to end --------------------------------------------------------------------------------- */

static dlc_err wait_for_join_line(struct storm *s)
{
    double give_up_s = dlc_now_s() + BEGIN_PATIENCE_S;

    while (!scene_join_url(s->url, sizeof s->url, s->coordinator.out_path)) {
        if (actor_has_ended(&s->coordinator))
            return dlc_fail(DLC_EFAIL, "the coordinator ended with status %d before it printed its join line; see %s",
                            s->coordinator.status, s->coordinator.err_path);
        if (dlc_now_s() > give_up_s)
            return dlc_fail(DLC_EFAIL, "the coordinator printed no join line in %.0f s; see %s", BEGIN_PATIENCE_S,
                            s->coordinator.err_path);
        DLC_TRY(step_links(s));
    }
    return DLC_OK;
}

static dlc_err wait_for_records(struct storm *s, size_t n, double patience_s)
{
    double give_up_s = dlc_now_s() + patience_s;

    while (s->n_commits < n) {
        if (dlc_now_s() > give_up_s)
            return dlc_buf_printf(&s->findings.wrong, "%zu records, and no %zu in %.0f s without faults\n",
                                  s->n_commits, n, patience_s);
        DLC_TRY(turn(s));
    }
    return DLC_OK;
}

/* One after the other: island i is number i in the records. */
static dlc_err begin(struct storm *s)
{
    double began_s;

    s->start_s = dlc_now_s();
    DLC_TRY(start_coordinator(s));
    DLC_TRY(make_links(s));
    DLC_TRY(wait_for_join_line(s));
    for (int i = 0; i < s->config->plan.n_islands; i++) {
        DLC_TRY(start_island(s, i));
        for (double until_s = dlc_now_s() + 0.1; dlc_now_s() < until_s;)
            DLC_TRY(turn(s));
    }
    DLC_TRY(wait_for_records(s, 2, BEGIN_PATIENCE_S));
    if (s->findings.wrong.len > 0)
        return dlc_fail(DLC_EFAIL, "the run did not begin: %s", s->findings.wrong.data);
    began_s = dlc_now_s();
    for (size_t i = 0; i < s->n_commits; i++)
        s->commits[i].at_s += s->start_s - began_s;
    s->start_s = began_s;
    return DLC_OK;
}

static bool run_is_over(const struct storm *s)
{
    return s->config->n_rounds > 0 && !s->coordinator.pid && !s->coordinator.must_end;
}

static dlc_err blow(struct storm *s)
{
    double until_s = s->config->plan.duration_s;

    while ((now_s(s) < until_s || any_fault_on(s)) && !run_is_over(s)) {
        DLC_TRY(faults_turn(s, until_s));
        DLC_TRY(turn(s));
    }
    return DLC_OK;
}

static dlc_err end_run(struct storm *s)
{
    double patience_s = fmax(60, 20 * s->config->round_s);

    if (s->config->n_rounds > 0) {
        for (double give_up_s = dlc_now_s() + 10 * s->config->n_rounds * s->config->round_s + patience_s;
             !run_is_over(s) && dlc_now_s() < give_up_s;)
            DLC_TRY(turn(s));
    } else {
        DLC_TRY(wait_for_records(s, s->n_commits + SETTLE_RECORDS, patience_s));
    }
    for (int i = 0; i < s->config->plan.n_islands; i++)
        actor_signal(&s->islands[i], SIGTERM);
    for (int i = 0; i < s->config->plan.n_islands; i++) {
        for (double give_up_s = dlc_now_s() + LEAVE_PATIENCE_S; s->islands[i].pid && dlc_now_s() < give_up_s;)
            DLC_TRY(turn(s)); /* they say goodbye through their links */
        s->n_unclean += !actor_wait(&s->islands[i], 0) || (s->islands[i].status != 3 && s->islands[i].status != 0);
    }
    actor_signal(&s->coordinator, SIGTERM);
    s->n_unclean +=
        !actor_wait(&s->coordinator, LEAVE_PATIENCE_S) || (s->coordinator.status != 3 && s->coordinator.status != 0);
    s->n_left_over = actors_kill_rest();
    return DLC_OK;
}

/* What each island says of itself when it ends, {"t": ..., "theta": ...}, must be what the record says. */
static dlc_err check_islands(struct storm *s, const struct dlc_records *records)
{
    for (int i = 0; i < s->config->plan.n_islands; i++) {
        char line[4096];
        json_t *v = NULL;
        dlc_err err = DLC_OK;

        if (!actor_last_json(line, sizeof line, s->islands[i].out_path, "theta"))
            continue;
        DLC_TRY(dlc_json_parse(&v, line, strlen(line), s->islands[i].out_path));
        if (json_is_string(json_object_get(v, "theta"))) {
            err = chaos_check_theta(&s->findings, records, (uint64_t)json_integer_value(json_object_get(v, "t")),
                                    json_string_value(json_object_get(v, "theta")), s->islands[i].who);
            s->n_theta_seen++;
        }
        json_decref(v);
        DLC_TRY(err);
    }
    return DLC_OK;
}

static dlc_err judge(struct storm *s)
{
    struct dlc_records records;
    struct dlc_buf so_far = s->findings.wrong;
    char run[DLC_PATH_MAX];
    dlc_err err;

    snprintf(run, sizeof run, "%s/run", s->folder);
    scene_read_indices(s->index, s->config->plan.n_islands, run);
    for (size_t i = 0; i < s->n_begun; i++)
        if (s->faults[i].island != CHAOS_NOBODY)
            s->faults[i].island = s->index[s->faults[i].island];
    err = chaos_check_folder(&s->findings, &records, run, SCENE_CONTEXT);
    if (err == DLC_OK && so_far.len)
        err = dlc_buf_append(&s->findings.wrong, so_far.data, so_far.len);
    dlc_buf_fini(&so_far);
    if (err == DLC_OK)
        err = check_islands(s, &records);
    if (err == DLC_OK)
        err = chaos_measure(&s->findings, &records, s->commits, s->n_commits, s->faults, s->n_begun);
    dlc_records_free(&records);
    return err;
}

dlc_err storm_run(struct storm *s)
{
    DLC_TRY(scene_free_port(&s->port));
    DLC_TRY(begin(s));
    DLC_TRY(blow(s));
    DLC_TRY(end_run(s));
    return judge(s);
}

void storm_fini(struct storm *s)
{
    (void)actors_kill_rest();
    for (int i = 0; i < STORM_MAX_ISLANDS; i++)
        dlc_link_destroy(s->links[i]);
    for (size_t i = 0; i < s->n_lives; i++)
        chaos_life_fini(&s->lives[i]);
    chaos_findings_fini(&s->findings);
}
