/* A line of records.jsonl: an error, or a record that is written as the same line. Each input is tried as it is, and
 * once more under the hash that it should have, since no fuzzer finds that one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "outer/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_and_write(const char *line, size_t size)
{
    struct dlc_record r, back;
    char *first, *second;

    if (dlc_record_from_line(&r, line, size, "fuzz") != DLC_OK)
        return;
    if (dlc_record_to_line(&first, &r) != DLC_OK ||
        dlc_record_from_line(&back, first, strlen(first), "written") != DLC_OK ||
        dlc_record_to_line(&second, &back) != DLC_OK || strcmp(first, second) != 0)
        abort();
    dlc_free(first);
    dlc_free(second);
    dlc_record_fini(&r);
    dlc_record_fini(&back);
}

/* The same object with the hash of everything else; NULL: it is no object. Free with dlc_free. */
static char *with_its_hash(const char *line, size_t size)
{
    json_t *v = NULL;
    char hex[DLC_SHA256_HEX], *text = NULL;
    struct dlc_sha256 hash;

    if (dlc_json_parse(&v, line, size, "fuzz") == DLC_OK && json_is_object(v)) {
        json_object_del(v, "hash");
        text = dlc_json_dump(v);
        hash = dlc_sha256(text, strlen(text));
        dlc_free(text);
        dlc_sha256_to_hex(hex, &hash);
        json_object_set_new(v, "hash", json_string(hex));
        text = dlc_json_dump(v);
    }
    json_decref(v);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *forged;

    read_and_write((const char *)data, size);
    forged = with_its_hash((const char *)data, size);
    if (forged)
        read_and_write(forged, strlen(forged));
    dlc_free(forged);
    return 0;
}
