/* manifest.json: as bytes, and as a JSON value past the digest that random bytes do not meet. */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "ckpt/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *name;
    json_t *m, *entry;

    if (dlc__manifest_parse(&m, (const char *)data, size, "fuzz") == DLC_OK)
        json_decref(m);
    if (dlc_json_parse(&m, (const char *)data, size, "fuzz") != DLC_OK)
        return 0;
    if (dlc__manifest_check(m, "fuzz") == DLC_OK) {
        json_object_foreach(json_object_get(m, "files"), name, entry)
        {
            if (strchr(name, '/') || name[0] == '\0' || strcmp(name, "..") == 0)
                abort();
        }
        (void)!dlc__manifest_compare(m, "/nonexistent", 1);
    }
    json_decref(m);
    return 0;
}
