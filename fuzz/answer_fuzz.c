/* Answers of a coordinator: facts and snapshots, as text that anybody may have sent. */
#include <assert.h>
#include <string.h>

#include "exchange/nats_question.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dlc_snapshot snapshot;
    struct dlc_answer a;
    struct dlc_fact fact;

    if (dlc_answer_parse(&a, data, size) != DLC_OK)
        return 0;
    assert(a.about && (a.ok || (a.text && a.code != DLC_OK)));
    if (a.ok && dlc_fact_from_json(&fact, a.ok) == DLC_OK) {
        assert(fact.record.t > 0);
        dlc_fact_fini(&fact);
    }
    if (a.ok && dlc_snapshot_from_json(&snapshot, a.ok) == DLC_OK)
        assert(snapshot.blob.size_bytes > 0);
    dlc_answer_fini(&a);
    return 0;
}
