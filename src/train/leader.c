#include "train/leader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"

#define RENEWED_EVERY_S (DLC_LEASE_S / 4)
#define LOOK_EVERY_S 0.5

struct dlc_leader {
    dlc_runlog *log;
    char run[33];
    struct dlc_lease lease; /* of the thread, once it runs */
    uint64_t fence, seq;    /* seq: of the log's end as it was read or written here */
    struct dlc_run_log says;
    char holder[64];

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    bool stop;
    char led_by[64]; /* "": nobody is known to have taken over */
    uint64_t led_fence;
    _Atomic bool lost;
};

/* --- who ---------------------------------------------------------------------------------------------------------- */

/* The same folder on the same machine since its start; a copy of it is another one. Its lock says that no other process
 * is at work in it. */
static dlc_err make_holder(char out[64], const char *run_folder)
{
    char text[160] = "", host[41] = "";
    struct stat st;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t n = 0;

    if (f) {
        n = fread(text, 1, 64, f);
        fclose(f);
    }
    if (stat(run_folder, &st) != 0)
        return dlc_fail_errno(DLC_EIO, "%s", run_folder);
    snprintf(text + n, sizeof text - n, " %llu %llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "somebody");
    snprintf(out, 64, "%s/%016llx", host, (unsigned long long)dlc_xxh64(text, strlen(text)));
    return DLC_OK;
}

void dlc_lease_name(char out[64], const char *holder)
{
    snprintf(out, 64, "%s", holder);
    if (strchr(out, '/'))
        *strchr(out, '/') = '\0';
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* Goes on during a suspend of the machine, in which the others' clocks went on as well. */
static double boot_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) },
              NULL);
}

static dlc_err led_by(const struct dlc_lease *lease)
{
    char name[64];

    dlc_lease_name(name, lease->holder);
    return dlc_fail(DLC_EPEER,
                    "the run is led by a coordinator on %s (fence %llu); of a copied folder only one can go on: remove this "
                    "one",
                    name, (unsigned long long)lease->fence);
}

static bool is_free(const dlc_leader *l, const struct dlc_lease *lease, uint64_t seen_seq)
{
    return lease->holder[0] == '\0' || strcmp(lease->holder, l->holder) == 0 || (seen_seq && lease->seq == seen_seq);
}

/* Until nobody else can hold it. Its time counts from the first look, and every look must succeed. */
static dlc_err wait_until_free(dlc_leader *l, uint64_t seen_seq)
{
    struct dlc_lease first, now;
    double since_s = boot_s();
    char name[64];

    DLC_TRY(dlc_lease_read(l->log, &first));
    l->lease = first;
    if (is_free(l, &first, seen_seq))
        return DLC_OK;
    dlc_lease_name(name, first.holder);
    dlc_info("the last leader was %s; whether it is gone shows within %.0f s", name, DLC_LEASE_S);
    while (boot_s() - since_s <= DLC_LEASE_S) {
        if (dlc_stop_asked())
            return dlc_fail(DLC_ESTOPPED, "stopped before it led");
        nap(LOOK_EVERY_S);
        DLC_TRY(dlc_lease_read(l->log, &now));
        l->lease = now;
        if (now.holder[0] == '\0') /* given up meanwhile */
            return DLC_OK;
        if (now.seq != first.seq)
            return led_by(&now);
    }
    return DLC_OK;
}

static uint64_t highest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static dlc_err take(dlc_leader *l, const struct dlc_leader_options *options)
{
    struct dlc_lease now;
    bool taken;
    dlc_err err;

    DLC_TRY(wait_until_free(l, options->seen_seq));
    DLC_TRY(dlc_run_log_read(&l->says, l->log, l->run));
    l->fence = highest(l->lease.fence, highest(options->fence, l->says.fence)) + 1;
    l->lease.fence = l->fence;
    memcpy(l->lease.holder, l->holder, sizeof l->lease.holder);
    err = dlc_lease_write(l->log, &l->lease, &taken);
    if (err != DLC_OK && taken && dlc_lease_read(l->log, &now) == DLC_OK)
        return led_by(&now);
    return err;
}

/* --- keeping it --------------------------------------------------------------------------------------------------- */

static void note_lost(dlc_leader *l)
{
    struct dlc_lease now;
    bool known = dlc_lease_read(l->log, &now) == DLC_OK;

    pthread_mutex_lock(&l->mutex);
    if (known && now.fence > l->fence) {
        dlc_lease_name(l->led_by, now.holder);
        l->led_fence = now.fence;
    }
    pthread_mutex_unlock(&l->mutex);
    atomic_store(&l->lost, true);
}

static bool wait_to_stop(dlc_leader *l, double seconds)
{
    struct timespec until;
    bool stop;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&l->mutex);
    while (!l->stop && pthread_cond_timedwait(&l->changed, &l->mutex, &until) == 0)
        ;
    stop = l->stop;
    pthread_mutex_unlock(&l->mutex);
    return stop;
}

static void *renew(void *self)
{
    dlc_leader *l = self;
    bool taken = false;

    while (!taken && !wait_to_stop(l, RENEWED_EVERY_S))
        (void)dlc_lease_write(l->log, &l->lease, &taken); /* not known: once more, next time */
    if (taken)
        note_lost(l);
    return NULL;
}

static dlc_err start(dlc_leader *l, const struct dlc_leader_options *options)
{
    struct dlc_wire_options wire = { .host = options->url->host,
                                     .port = options->url->port,
                                     .run = options->url->run,
                                     .user = options->url->user,
                                     .secret = options->url->secret,
                                     .ca_pem = options->ca_pem,
                                     .name = "coordinator/log" };

    DLC_TRY(make_holder(l->holder, options->run_folder));
    snprintf(l->run, sizeof l->run, "%s", options->url->run);
    DLC_TRY(dlc_runlog_open(&l->log, &wire));
    DLC_TRY(take(l, options));
    if (pthread_create(&l->thread, NULL, renew, l) != 0)
        return dlc_fail(DLC_EFAIL, "no thread for the lease");
    l->has_thread = true;
    return DLC_OK;
}

dlc_err dlc_leader_take(dlc_leader **out, const struct dlc_leader_options *options)
{
    dlc_leader *l = dlc_calloc(1, sizeof *l);
    pthread_condattr_t attributes;
    dlc_err err;

    *out = NULL;
    if (!l)
        return DLC_ENOMEM;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&l->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    err = start(l, options);
    if (err != DLC_OK) {
        dlc_leader_close(l, false);
        return err;
    }
    *out = l;
    return DLC_OK;
}

void dlc_leader_close(dlc_leader *l, bool give_up)
{
    bool taken;

    if (!l)
        return;
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    if (l->has_thread && give_up && !atomic_load(&l->lost)) {
        l->lease.holder[0] = '\0';
        if (dlc_lease_write(l->log, &l->lease, &taken) != DLC_OK)
            dlc_debug("the lease is not given up: %s", dlc_err_text());
    }
    dlc_runlog_close(l->log);
    dlc_run_log_fini(&l->says);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    dlc_free(l);
}

uint64_t dlc_leader_fence(const dlc_leader *l)
{
    return l->fence;
}

bool dlc_leader_is_lost(dlc_leader *l)
{
    return atomic_load(&l->lost);
}

dlc_err dlc_leader_check(dlc_leader *l)
{
    char by[64];
    uint64_t fence;

    if (!atomic_load(&l->lost))
        return DLC_OK;
    pthread_mutex_lock(&l->mutex);
    memcpy(by, l->led_by, sizeof by);
    fence = l->led_fence;
    pthread_mutex_unlock(&l->mutex);
    return dlc_fail(DLC_EPEER,
                    "this coordinator leads no more: it was not heard for too long, and %s has taken over (fence %llu, this "
                    "one had %llu)",
                    by[0] ? by : "another one", (unsigned long long)fence, (unsigned long long)l->fence);
}

/* --- the log ------------------------------------------------------------------------------------------------------ */

const struct dlc_run_log *dlc_leader_log(const dlc_leader *l)
{
    return &l->says;
}

/* An earlier leader may append until the epoch stands: read on, then again. */
dlc_err dlc_leader_begin(dlc_leader *l, uint64_t t)
{
    for (;;) {
        json_t *entry = dlc_entry_epoch(l->fence, l->holder, t);
        char *text = entry ? dlc_json_dump(entry) : NULL;
        bool taken = false;
        dlc_err err = text ? dlc_run_log_read(&l->says, l->log, l->run) : dlc_fail(DLC_ENOMEM, "out of memory: epoch");

        if (err == DLC_OK && l->says.fence > l->fence) {
            note_lost(l);
            err = dlc_leader_check(l);
        }
        l->seq = l->says.seq;
        if (err == DLC_OK)
            err = dlc_runlog_append(l->log, &l->seq, text, strlen(text), &taken);
        json_decref(entry);
        dlc_free(text);
        if (err == DLC_OK) {
            l->says.seq = l->seq;
            return DLC_OK;
        }
        if (!taken || dlc_stop_asked())
            return err;
    }
}

static dlc_err append_text(dlc_leader *l, const char *text, dlc_err (*turn)(void *self), void *self)
{
    bool taken = false, said = false;

    for (;;) {
        dlc_err err = dlc_runlog_append(l->log, &l->seq, text, strlen(text), &taken);

        if (err != DLC_EPEER)
            return err;
        if (taken && !atomic_load(&l->lost))
            note_lost(l);
        DLC_TRY(dlc_leader_check(l));
        if (!said)
            dlc_warn("%s; islands train on meanwhile", dlc_err_text());
        said = true;
        if (dlc_stop_asked())
            return dlc_fail(DLC_ESTOPPED, "stopped while the NATS server did not answer; the same command goes on");
        if (turn)
            DLC_TRY(turn(self));
        nap(0.1);
    }
}

dlc_err dlc_leader_append(dlc_leader *l, json_t *entry, dlc_err (*turn)(void *self), void *self)
{
    char *text = entry ? dlc_json_dump(entry) : NULL;
    dlc_err err = text ? append_text(l, text, turn, self) : dlc_fail(DLC_ENOMEM, "out of memory: an entry of the log");

    json_decref(entry);
    dlc_free(text);
    return err;
}
