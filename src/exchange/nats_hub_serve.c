/* What the hub offers to be fetched: update t of the last steps, and snapshots. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "exchange/nats_hub_internal.h"

#define SNAPSHOT_AGE_MAX 8 /* outer steps: an older one is offered for so long, its fetcher catches up by updates */

static void served_path(char out[DLC_PATH_MAX], const struct dlc_nats_hub *h, const char *kind, uint64_t t)
{
    snprintf(out, DLC_PATH_MAX, "%.3900s/served/%s-%012llu.bin", h->folder, kind, (unsigned long long)t);
}

static size_t update_bytes(const struct dlc_nats_hub *h)
{
    return h->opt.codec->size_bytes(h->opt.size.n_params);
}

/* --- the folder ----------------------------------------------------------------------------------------------------*/

dlc_err hub__open_served(struct dlc_nats_hub *h)
{
    char path[DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, h->folder, "incoming"));
    DLC_TRY(dlc_mkdir_p(path));
    DLC_TRY(dlc_path_join(path, h->folder, "served"));
    return dlc_mkdir_p(path);
}

static bool is_kept(const char *name, uint64_t t)
{
    unsigned long long of;
    int n = 0;

    return sscanf(name, "update-%llu.bin%n", &of, &n) == 1 && name[n] == '\0' && of <= t && of + HUB_KEPT_UPDATES > t;
}

/* After a restart: snapshots are made again when somebody asks, updates of uncommitted or old steps go. */
static void clean_served(struct dlc_nats_hub *h, uint64_t t)
{
    char folder[DLC_PATH_MAX], path[DLC_PATH_MAX];
    struct dlc_names names;

    if (dlc_path_join(folder, h->folder, "served") != DLC_OK || dlc_list_folder(&names, folder) != DLC_OK)
        return;
    for (size_t i = 0; i < names.n; i++) {
        if (!is_kept(names.names[i], t) && dlc_path_join(path, folder, names.names[i]) == DLC_OK)
            (void)unlink(path);
    }
    dlc_names_free(&names);
}

/* --- updates ------------------------------------------------------------------------------------------------------ */

void *hub__update(dlc_hub *hub, uint64_t t)
{
    struct dlc_nats_hub *h = (struct dlc_nats_hub *)hub;
    char path[DLC_PATH_MAX];

    if (h->update_t == t)
        return h->update;
    if (h->update_t != 0)
        dlc_unmap(h->update, update_bytes(h));
    h->update_t = 0;
    served_path(path, h, "update", t);
    if (dlc_map_writable(&h->update, path, update_bytes(h), false) != DLC_OK)
        return NULL;
    h->update_t = t;
    return h->update;
}

static dlc_err offer_update(struct dlc_nats_hub *h, uint64_t t, void *bytes, struct dlc_blob_ref *ref)
{
    char path[DLC_PATH_MAX];

    served_path(path, h, "update", t);
    *ref = (struct dlc_blob_ref){ .digest = dlc_sha256(bytes, update_bytes(h)), .size_bytes = update_bytes(h) };
    return dlc_blobs_add(h->blobs, DLC_BLOB_UPDATE, t, ref, bytes, path, dlc_now_ns());
}

/* Also one that an earlier life of this coordinator made. What stands in its file is not trusted: islands compare the
 * parameters that come of it. */
bool hub__find_update(struct dlc_nats_hub *h, uint64_t t, struct dlc_blob_ref *ref)
{
    char path[DLC_PATH_MAX];
    uint64_t size;
    void *bytes;

    *ref = (struct dlc_blob_ref){ 0 };
    if (dlc_blobs_of(h->blobs, DLC_BLOB_UPDATE, t, ref))
        return true;
    served_path(path, h, "update", t);
    if (t == 0 || dlc_file_size(&size, path) != DLC_OK || size != update_bytes(h))
        return false;
    if (dlc_map_writable(&bytes, path, size, true) != DLC_OK)
        return false;
    if (offer_update(h, t, bytes, ref) == DLC_OK)
        return true;
    *ref = (struct dlc_blob_ref){ 0 };
    return false;
}

static void forget_old(struct dlc_nats_hub *h, uint64_t t)
{
    char path[DLC_PATH_MAX];

    if (t < HUB_KEPT_UPDATES)
        return;
    dlc_blobs_drop(h->blobs, DLC_BLOB_UPDATE, t - HUB_KEPT_UPDATES + 1, INT64_MAX);
    served_path(path, h, "update", t - HUB_KEPT_UPDATES);
    (void)unlink(path); /* of an earlier life, and nobody asked for it */
}

/* The contributions to steps up to t are in the record or never will be. */
static void forget_contributions(struct dlc_nats_hub *h, uint64_t t)
{
    char path[DLC_PATH_MAX];

    for (int i = 0; i < h->hub.n_islands; i++) {
        struct hub_island *isl = &h->islands[i];
        bool had;

        pthread_mutex_lock(&h->mutex);
        had = isl->slots != NULL;
        hub__slots_free(isl, t);
        had &= isl->slots == NULL && isl->fetch.state == FETCH_NONE;
        pthread_mutex_unlock(&h->mutex);
        snprintf(path, sizeof path, "%.3900s/incoming/%02d.bin", h->folder, i);
        if (had)
            (void)unlink(path);
    }
}

static bool is_summed(const struct dlc_record *r)
{
    for (size_t i = 0; r && i < r->n_members; i++) {
        if (r->members[i].weight > 0)
            return true;
    }
    return false;
}

static dlc_err take_update(struct dlc_nats_hub *h, uint64_t t, struct dlc_blob_ref *ref)
{
    void *bytes = h->update;

    if (h->update_t != t) {
        (void)hub__find_update(h, t, ref); /* after a resume */
        return DLC_OK;
    }
    h->update_t = 0;
    return offer_update(h, t, bytes, ref);
}

static void tell(struct dlc_nats_hub *h, const struct dlc_note *note, char *line, bool summed)
{
    struct hub_fact *fact = &h->facts[note->t % HUB_KEPT_UPDATES];

    pthread_mutex_lock(&h->mutex);
    h->note = *note;
    h->is_published = true;
    dlc_free(fact->line);
    *fact = (struct hub_fact){ .t = note->t, .line = line, .summed = summed };
    for (int i = 0; i < h->hub.n_islands; i++)
        h->islands[i].wants_packet = true;
    pthread_cond_signal(&h->due);
    pthread_mutex_unlock(&h->mutex);
}

dlc_err hub__publish(dlc_hub *hub, const struct dlc_record *record, const struct dlc_sha256 *theta)
{
    struct dlc_nats_hub *h = (struct dlc_nats_hub *)hub;
    struct dlc_note note = { .fence = h->opt.fence, .t = record ? record->t : 0, .theta = *theta };
    bool summed = is_summed(record);
    char *line = NULL;

    if (!h->is_published)
        clean_served(h, note.t);
    if (note.t > 0) {
        note.record = record->hash;
        DLC_TRY(dlc_record_to_line(&line, record));
    }
    if (summed && take_update(h, note.t, &note.update) != DLC_OK) {
        dlc_free(line);
        return dlc_fail_context(DLC_EIO, "update of step %llu", (unsigned long long)note.t);
    }
    tell(h, &note, line, summed);
    forget_contributions(h, note.t);
    forget_old(h, note.t);
    return DLC_OK;
}

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

/* In pieces, so that the digest is taken of what is in the cache. */
static void put(struct dlc_file_writer *w, dlc_sha256_ctx *ctx, const float *values, size_t n)
{
    const char *bytes = (const char *)values;
    size_t left = n * sizeof *values;

    while (left > 0) {
        size_t piece = left < ((size_t)1 << 20) ? left : (size_t)1 << 20;

        dlc_file_writer_write(w, bytes, piece);
        dlc_sha256_update(ctx, bytes, piece);
        bytes += piece;
        left -= piece;
    }
}

static dlc_err write_snapshot(struct dlc_nats_hub *h, const char *path, struct dlc_snapshot *s, dlc_sha256_ctx *ctx)
{
    size_t n = h->opt.size.n_params, n_arrays = 1 + (s->t > 0 ? (size_t)h->opt.n_state : 0);
    struct dlc_file_writer w;

    DLC_TRY(dlc_file_writer_open(&w, path));
    put(&w, ctx, h->theta[s->t & 1], n);
    for (size_t k = 0; k + 1 < n_arrays; k++)
        put(&w, ctx, h->opt.state[k], n);
    s->blob = (struct dlc_blob_ref){ .digest = dlc_sha256_final(ctx), .size_bytes = n_arrays * n * sizeof(float) };
    return dlc_file_writer_place(&w);
}

static dlc_err offer_snapshot(struct dlc_nats_hub *h, const char *path, const struct dlc_snapshot *s)
{
    struct dlc_file_map map;
    dlc_err err = dlc_file_map_open(&map, path);

    if (err == DLC_OK)
        err = dlc_blobs_add(h->blobs, DLC_BLOB_SNAPSHOT, s->t, &s->blob, (void *)(uintptr_t)map.data, path, dlc_now_ns());
    if (err != DLC_OK)
        (void)unlink(path);
    return err;
}

/* theta(t) and the outer state do not change meanwhile: this is the thread that changes them. above_t: the asker holds
 * this already. */
dlc_err hub__take_snapshot(struct dlc_nats_hub *h, uint64_t above_t)
{
    struct dlc_snapshot s = { .t = h->note.t, .theta = h->note.theta, .record = h->note.record };
    char path[DLC_PATH_MAX];
    dlc_sha256_ctx *ctx;
    struct dlc_blob *kept;
    dlc_err err;

    kept = h->snapshot->blob.size_bytes > 0 ? dlc_blobs_use(h->blobs, &h->snapshot->blob.digest, dlc_now_ns()) : NULL;
    if (kept) {
        dlc_blobs_release(h->blobs, kept);
        if (h->snapshot->t == s.t || (h->snapshot->t > above_t && h->snapshot->t + SNAPSHOT_AGE_MAX >= s.t))
            return DLC_OK;
    }
    served_path(path, h, "snapshot", s.t);
    DLC_TRY(dlc_sha256_create(&ctx));
    err = write_snapshot(h, path, &s, ctx);
    dlc_sha256_destroy(ctx);
    if (err == DLC_OK)
        err = offer_snapshot(h, path, &s);
    if (err != DLC_OK) {
        dlc_warn("no snapshot of step %llu: %s", (unsigned long long)s.t, dlc_err_text());
        return err;
    }
    *h->snapshot = s;
    return DLC_OK;
}
