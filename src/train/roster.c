#include "train/roster.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define ROSTER_MAX_BYTES ((size_t)16 << 20)

void dlc_roster_close(struct dlc_roster *r)
{
    dlc_free(r->islands);
    *r = (struct dlc_roster){ .n = 0 };
}

int dlc_roster_find(const struct dlc_roster *r, const char *identity)
{
    for (int i = 0; i < r->n; i++) {
        if (strcmp(r->islands[i].identity, identity) == 0)
            return i;
    }
    return -1;
}

static int find_name(const struct dlc_roster *r, const char *name)
{
    for (int i = 0; i < r->n; i++) {
        if (strcmp(r->islands[i].name, name) == 0)
            return i;
    }
    return -1;
}

/* --- islands.json ------------------------------------------------------------------------------------------------- */

json_t *dlc_roster_island_to_json(const struct dlc_roster_island *isl)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:s}", "identity", isl->identity, "name", isl->name, "about", isl->about,
                     "incarnation", (json_int_t)isl->incarnation, "session", isl->session);
}

static dlc_err write_roster(const struct dlc_roster *r)
{
    json_t *list = json_array(), *v = json_pack("{s:o}", "islands", list);
    dlc_err err = v ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory: %s", r->path);

    for (int i = 0; v && i < r->n; i++) {
        const struct dlc_roster_island *isl = &r->islands[i];

        if (json_array_append_new(list, dlc_roster_island_to_json(isl)) != 0)
            err = dlc_fail(DLC_ENOMEM, "out of memory: %s", r->path);
    }
    if (err == DLC_OK)
        err = dlc_json_write_file(r->path, v);
    json_decref(v);
    return err;
}

static bool is_identity(const char *text)
{
    return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

/* What can stand in a line for people, in a file name and in a subject. */
static bool is_name(const char *text)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(text);

    return n > 0 && n < DLC_ISLAND_NAME_SIZE && strspn(text, allowed) == n;
}

/* From islands.json or from an island. */
static dlc_err read_island(struct dlc_roster_island *out, const json_t *v, const char *where)
{
    const char *identity, *name, *about, *session;
    int64_t incarnation;

    DLC_TRY(dlc_json_get_string(&identity, v, "identity", where));
    DLC_TRY(dlc_json_get_string(&name, v, "name", where));
    DLC_TRY(dlc_json_get_string(&about, v, "about", where));
    DLC_TRY(dlc_json_get_int(&incarnation, v, "incarnation", 1, UINT32_MAX, where));
    DLC_TRY(dlc_json_get_string(&session, v, "session", where));
    if (strlen(session) >= sizeof out->session)
        return dlc_fail(DLC_EINPUT, "%s: the session is longer than %zu", where, sizeof out->session - 1);
    if (!is_identity(identity))
        return dlc_fail(DLC_EINPUT, "%s: the identity is not 32 hexadecimal digits", where);
    if (!is_name(name))
        return dlc_fail(DLC_EINPUT, "%s: the name '%.70s' should be of letters, digits, '.', '_', '-', at most %d",
                        where, name, DLC_ISLAND_NAME_SIZE - 1);
    *out = (struct dlc_roster_island){ .incarnation = (uint32_t)incarnation };
    memcpy(out->identity, identity, sizeof out->identity);
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->about, sizeof out->about, "%s", about);
    snprintf(out->session, sizeof out->session, "%s", session);
    for (char *c = out->about; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    }
    return DLC_OK;
}

dlc_err dlc_roster_open(struct dlc_roster *r, const char *run_folder, int max)
{
    json_t *v = NULL, *list;
    dlc_err err;

    *r = (struct dlc_roster){ .max = max };
    r->islands = dlc_calloc((size_t)max, sizeof *r->islands);
    if (!r->islands)
        return DLC_ENOMEM;
    DLC_TRY(dlc_path_join(r->path, run_folder, "islands.json"));
    if (!dlc_file_exists(r->path))
        return DLC_OK;
    DLC_TRY(dlc_json_read_file(&v, r->path, ROSTER_MAX_BYTES));
    DLC_TRY_TO(done, dlc_json_get_array(&list, v, "islands", r->path));
    if (json_array_size(list) > (size_t)max) {
        err = dlc_fail(DLC_EINPUT, "%s: %zu islands, the run has room for %d", r->path, json_array_size(list), max);
        goto done;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        DLC_TRY_TO(done, read_island(&r->islands[r->n], json_array_get(list, i), r->path));
        r->n++;
    }
    err = DLC_OK;
done:
    json_decref(v);
    return err;
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* "name", or "name-2", "name-3", ... where the name was not chosen by a person. */
static dlc_err choose_name(struct dlc_roster_island *isl, const struct dlc_roster *r, bool chosen)
{
    char base[DLC_ISLAND_NAME_SIZE];

    if (find_name(r, isl->name) < 0)
        return DLC_OK;
    if (chosen)
        return dlc_fail(DLC_EINPUT,
                        "the name %s belongs to another island of this run; give another --name, or the --out folder "
                        "of that island to go on as it",
                        isl->name);
    snprintf(base, sizeof base, "%.48s", isl->name);
    for (int k = 2; find_name(r, isl->name) >= 0; k++)
        snprintf(isl->name, sizeof isl->name, "%.48s-%d", base, k);
    return DLC_OK;
}

static dlc_err come_back(struct dlc_roster *r, int index, const struct dlc_roster_island *isl)
{
    struct dlc_roster_island *known = &r->islands[index], before = *known;
    dlc_err err;

    if (isl->incarnation == known->incarnation && strcmp(isl->session, known->session) == 0)
        return DLC_OK; /* the same process once more */
    if (isl->incarnation <= known->incarnation)
        return dlc_fail(DLC_EINPUT,
                        "island %s was here in its life %u already, this is life %u: its folder was copied or set "
                        "back; join with a new --out",
                        known->name, known->incarnation, isl->incarnation);
    known->incarnation = isl->incarnation;
    memcpy(known->about, isl->about, sizeof known->about);
    memcpy(known->session, isl->session, sizeof known->session);
    err = write_roster(r);
    if (err != DLC_OK)
        *known = before;
    return err;
}

dlc_err dlc_roster_admit(struct dlc_roster *r, const json_t *question, int *index)
{
    struct dlc_roster_island isl;
    int chosen;
    dlc_err err;

    DLC_TRY(read_island(&isl, question, "question to join"));
    DLC_TRY(dlc_json_get_bool(&chosen, question, "name_given", "question to join"));
    *index = dlc_roster_find(r, isl.identity);
    if (*index >= 0)
        return come_back(r, *index, &isl);
    if (r->n == r->max)
        return dlc_fail(DLC_EINPUT,
                        "the run has seen %d different islands and has room for no more (exchange.max_islands); go on "
                        "with the folder of one that left",
                        r->n);
    DLC_TRY(choose_name(&isl, r, chosen));
    *index = r->n;
    r->islands[r->n++] = isl;
    err = write_roster(r);
    if (err != DLC_OK)
        r->n--;
    return err;
}

/* --- from another coordinator's --------------------------------------------------------------------------------------- */

dlc_err dlc_roster_put(struct dlc_roster *r, int index, const json_t *island, const char *where)
{
    struct dlc_roster_island isl, *known;

    DLC_TRY(read_island(&isl, island, where));
    if (index < 0 || index > r->n || index >= r->max)
        return dlc_fail(DLC_EINPUT, "%s: island %d, %d are known here and there is room for %d", where, index, r->n, r->max);
    known = &r->islands[index];
    if (index < r->n && strcmp(known->identity, isl.identity) != 0)
        return dlc_fail(DLC_EINPUT, "%s: island %d is %.8s there and %.8s here: these are two runs", where, index,
                        isl.identity, known->identity);
    if (index < r->n && known->incarnation >= isl.incarnation)
        return DLC_OK;
    *known = isl;
    if (index == r->n)
        r->n++;
    return write_roster(r);
}
