/* Who has ever joined a run that is served: which identity stands behind which index. Kept in islands.json of the run
 * folder, and durable before an island is told that it is in: after a crash nobody else can get its index. */
#ifndef DLC_TRAIN_ROSTER_H
#define DLC_TRAIN_ROSTER_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

#define DLC_ISLAND_NAME_SIZE 64

struct dlc_roster_island {
    char identity[33]; /* 32 hexadecimal digits, made once in the island's folder */
    char name[DLC_ISLAND_NAME_SIZE];
    char about[128];      /* host, instruction set, ...: for people */
    uint32_t incarnation; /* the last that was let in */
    char session[24];     /* of that life: drawn by its process, which may ask more than once */
};

struct dlc_roster {
    char path[DLC_PATH_MAX];
    struct dlc_roster_island *islands; /* [n], by index */
    int n, max;
};

/* Reads what there is; max: how many identities there can ever be. */
dlc_err dlc_roster_open(struct dlc_roster *r, const char *run_folder, int max);
void dlc_roster_close(struct dlc_roster *r); /* also one of zeros */

int dlc_roster_find(const struct dlc_roster *r, const char *identity); /* -1: not known */

/* An island's question to join ("identity", "incarnation", "session", "name", "name_given", "about"): a known identity
 * comes back in a later life, or asks once more in the same one (the answer was lost, the coordinator is another), an unknown one gets the next index. DLC_EINPUT, with what to do: the name is somebody else's, the life
 * was seen before (a copied folder), the run is full. Any question is safe. Durable on return. */
dlc_err dlc_roster_admit(struct dlc_roster *r, const json_t *question, int *index);

/* An island as an object (new reference; NULL: out of memory), and back into the roster at its index, where what is there
 * is older. DLC_EINPUT: no island, or index + 1 are more than there is room for. Durable on return. */
json_t *dlc_roster_island_to_json(const struct dlc_roster_island *island);
dlc_err dlc_roster_put(struct dlc_roster *r, int index, const json_t *island, const char *where);

#endif
