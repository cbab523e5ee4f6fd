/* Questions of islands and people, and the coordinator's answers: JSON objects on the control connection. Both sides of
 * each layout stand in nats_question.c; docs/protocol.md section 9 has them in words. Received text may be anything. */
#ifndef DLC_EXCHANGE_NATS_QUESTION_H
#define DLC_EXCHANGE_NATS_QUESTION_H

#include <jansson.h>

#include "exchange/channel.h"
#include "outer/record.h"

#define DLC_QUESTION_MAX_BYTES 65536

/* --- answers ------------------------------------------------------------------------------------------------------ */

/* {"about", "ask", "fence", "ok": body}; `ask` as in the question. Takes over body (NULL: out of memory). */
dlc_err dlc_answer_ok(struct dlc_buf *out, const char *about, int64_t ask, uint64_t fence, json_t *body);
/* {"about", "ask", "fence", "error": {"code", "text"}} */
dlc_err dlc_answer_error(struct dlc_buf *out, const char *about, int64_t ask, uint64_t fence, dlc_err code,
                         const char *text);

struct dlc_answer {
    json_t *json; /* owned; the rest points into it */
    const char *about;
    int64_t ask;
    uint64_t fence;
    const json_t *ok; /* NULL: refused */
    dlc_err code;
    const char *text;
};
dlc_err dlc_answer_parse(struct dlc_answer *out, const void *bytes, size_t size_bytes);
void dlc_answer_fini(struct dlc_answer *a);

int64_t dlc_question_ask(const json_t *question); /* its "ask"; 0: none */

/* --- what the answers hold ---------------------------------------------------------------------------------------- */

/* Outer step t for those who catch up. */
struct dlc_fact {
    struct dlc_record record; /* owned */
    bool summed;              /* false: theta(t) is theta(t-1) */
    struct dlc_blob_ref update; /* size 0: not kept any more */
};
json_t *dlc_fact_to_json(uint64_t t, const char *record_line, const struct dlc_blob_ref *update);
dlc_err dlc_fact_from_json(struct dlc_fact *out, const json_t *v);
void dlc_fact_fini(struct dlc_fact *f);

/* theta(t) and the outer optimizer's arrays, one after the other, f32 little-endian. */
struct dlc_snapshot {
    uint64_t t;
    struct dlc_sha256 theta, outer; /* outer: zero for t = 0, where the arrays are zero */
    struct dlc_sha256 record;       /* hash of record t; zero for t = 0 */
    struct dlc_blob_ref blob;
};
/* record_line NULL: t = 0. */
json_t *dlc_snapshot_to_json(const struct dlc_snapshot *s, const char *record_line);
dlc_err dlc_snapshot_from_json(struct dlc_snapshot *out, const json_t *v);

#endif
