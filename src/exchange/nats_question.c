#include "exchange/nats_question.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define WHERE "answer"

/* --- answers ------------------------------------------------------------------------------------------------------ */

static dlc_err put_json(struct dlc_buf *out, json_t *v)
{
    char *text = v ? dlc_json_dump(v) : NULL;
    dlc_err err = text ? DLC_OK : dlc_fail(DLC_ENOMEM, "out of memory for an answer");

    json_decref(v);
    dlc_buf_clear(out);
    if (err == DLC_OK)
        err = dlc_buf_append(out, text, strlen(text));
    dlc_free(text);
    return err;
}

dlc_err dlc_answer_ok(struct dlc_buf *out, const char *about, int64_t ask, uint64_t fence, json_t *body)
{
    return put_json(out, json_pack("{s:s, s:I, s:I, s:o}", "about", about, "ask", (json_int_t)ask, "fence",
                                   (json_int_t)fence, "ok", body));
}

dlc_err dlc_answer_error(struct dlc_buf *out, const char *about, int64_t ask, uint64_t fence, dlc_err code,
                         const char *text)
{
    /* Texts may hold parts of what somebody sent; what is no UTF-8 is not repeated. */
    json_t *said = json_string(text);

    if (!said)
        said = json_string("refused, for a reason that is no text");
    return put_json(out, json_pack("{s:s, s:I, s:I, s:{s:i, s:o}}", "about", about, "ask", (json_int_t)ask, "fence",
                                   (json_int_t)fence, "error", "code", (int)code, "text", said));
}

static dlc_err get_error(struct dlc_answer *out)
{
    json_t *error;
    int64_t code;

    DLC_TRY(dlc_json_get_object(&error, out->json, "error", WHERE));
    DLC_TRY(dlc_json_get_int(&code, error, "code", 1, DLC_ENOTFOUND, WHERE));
    out->code = (dlc_err)code;
    return dlc_json_get_string(&out->text, error, "text", WHERE);
}

static dlc_err get_answer(struct dlc_answer *out)
{
    int64_t fence;

    DLC_TRY(dlc_json_get_string(&out->about, out->json, "about", WHERE));
    DLC_TRY(dlc_json_get_int(&out->ask, out->json, "ask", 0, INT64_MAX, WHERE));
    DLC_TRY(dlc_json_get_int(&fence, out->json, "fence", 0, INT64_MAX, WHERE));
    out->fence = (uint64_t)fence;
    out->ok = json_object_get(out->json, "ok");
    return json_is_object(out->ok) ? DLC_OK : get_error(out);
}

dlc_err dlc_answer_parse(struct dlc_answer *out, const void *bytes, size_t size_bytes)
{
    dlc_err err;

    *out = (struct dlc_answer){ 0 };
    DLC_TRY(dlc_json_parse(&out->json, bytes, size_bytes, WHERE));
    err = get_answer(out);
    if (err != DLC_OK)
        dlc_answer_fini(out);
    return err;
}

void dlc_answer_fini(struct dlc_answer *a)
{
    json_decref(a->json);
    *a = (struct dlc_answer){ 0 };
}

int64_t dlc_question_ask(const json_t *question)
{
    int64_t ask = json_integer_value(json_object_get(question, "ask"));

    return ask > 0 ? ask : 0;
}

/* --- what the answers hold ---------------------------------------------------------------------------------------- */

static json_t *ref_to_json(const struct dlc_blob_ref *ref)
{
    char hex[DLC_SHA256_HEX];

    if (ref->size_bytes == 0)
        return json_null();
    dlc_sha256_to_hex(hex, &ref->digest);
    return json_pack("{s:s, s:I}", "digest", hex, "size", (json_int_t)ref->size_bytes);
}

static dlc_err get_digest(struct dlc_sha256 *out, const json_t *v, const char *key)
{
    const char *hex;

    DLC_TRY(dlc_json_get_string(&hex, v, key, WHERE));
    return dlc_sha256_from_hex(out, hex);
}

static dlc_err ref_from_json(struct dlc_blob_ref *out, const json_t *v, const char *key)
{
    const json_t *ref = json_object_get(v, key);
    int64_t size;

    *out = (struct dlc_blob_ref){ 0 };
    if (json_is_null(ref))
        return DLC_OK;
    if (!json_is_object(ref))
        return dlc_fail(DLC_EINPUT, WHERE ": \"%s\" says nothing of bytes", key);
    DLC_TRY(dlc_json_get_int(&size, ref, "size", 1, INT64_MAX, WHERE));
    out->size_bytes = (uint64_t)size;
    return get_digest(&out->digest, ref, "digest");
}

json_t *dlc_fact_to_json(uint64_t t, const char *record_line, const struct dlc_blob_ref *update)
{
    return json_pack("{s:I, s:s, s:o}", "t", (json_int_t)t, "record", record_line, "update", ref_to_json(update));
}

dlc_err dlc_fact_from_json(struct dlc_fact *out, const json_t *v)
{
    const char *line;
    int64_t t;
    dlc_err err;

    *out = (struct dlc_fact){ 0 };
    DLC_TRY(dlc_json_get_int(&t, v, "t", 1, INT64_MAX, WHERE));
    DLC_TRY(dlc_json_get_string(&line, v, "record", WHERE));
    DLC_TRY(dlc_record_from_line(&out->record, line, strlen(line), WHERE));
    err = ref_from_json(&out->update, v, "update");
    if (err == DLC_OK && out->record.t != (uint64_t)t)
        err = dlc_fail(DLC_EINPUT, WHERE ": step %lld has the record of step %llu", (long long)t,
                       (unsigned long long)out->record.t);
    for (size_t i = 0; i < out->record.n_members; i++)
        out->summed |= out->record.members[i].weight > 0;
    if (err != DLC_OK)
        dlc_fact_fini(out);
    return err;
}

void dlc_fact_fini(struct dlc_fact *f)
{
    dlc_record_fini(&f->record);
    *f = (struct dlc_fact){ 0 };
}

json_t *dlc_snapshot_to_json(const struct dlc_snapshot *s, const char *record_line)
{
    char theta[DLC_SHA256_HEX];

    dlc_sha256_to_hex(theta, &s->theta);
    return json_pack("{s:I, s:s, s:o, s:o}", "t", (json_int_t)s->t, "theta", theta, "record",
                     record_line ? json_string(record_line) : json_null(), "blob", ref_to_json(&s->blob));
}

static dlc_err check_record(struct dlc_snapshot *s, const char *line)
{
    struct dlc_record record;
    dlc_err err = DLC_OK;

    DLC_TRY(dlc_record_from_line(&record, line, strlen(line), WHERE));
    if (record.t != s->t || !dlc_sha256_equal(&record.theta, &s->theta))
        err = dlc_fail(DLC_EINPUT, WHERE ": the snapshot of step %llu does not go with the record of step %llu",
                       (unsigned long long)s->t, (unsigned long long)record.t);
    s->record = record.hash;
    s->outer = record.outer;
    dlc_record_fini(&record);
    return err;
}

dlc_err dlc_snapshot_from_json(struct dlc_snapshot *out, const json_t *v)
{
    const char *line;
    int64_t t;

    *out = (struct dlc_snapshot){ 0 };
    DLC_TRY(dlc_json_get_int(&t, v, "t", 0, INT64_MAX, WHERE));
    out->t = (uint64_t)t;
    DLC_TRY(get_digest(&out->theta, v, "theta"));
    DLC_TRY(ref_from_json(&out->blob, v, "blob"));
    if (out->blob.size_bytes == 0)
        return dlc_fail(DLC_EINPUT, WHERE ": a snapshot without bytes");
    if (t == 0)
        return DLC_OK;
    DLC_TRY(dlc_json_get_string(&line, v, "record", WHERE));
    return check_record(out, line);
}
