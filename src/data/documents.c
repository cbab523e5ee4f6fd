#include "data/documents.h"

#include <string.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/utf8.h"

#define PROBE_BYTES ((size_t)64 << 10) /* binary files show it early */
#define CHUNK_BYTES ((size_t)256 << 10)

struct job {
    struct dlc_documents_stats *stats;
    dlc_reader *reader;
    const struct dlc_documents_config *config;
    dlc_document_fn fn;
    void *arg;
    char *chunk;
    size_t n_chunk; /* what was read last */
};

size_t dlc_document_cut(const char *text, size_t n)
{
    size_t at;

    for (at = n - 1; at > n / 2; at--) {
        if (text[at] == ' ' && text[at - 1] > 0x20 && text[at - 1] < 0x7f)
            return at;
    }
    at = n;
    for (int i = 0; i < 3 && at > n / 2 && ((unsigned char)text[at - 1] & 0xc0) == 0x80; i++)
        at--; /* to the lead byte of the last character */
    if (at > n / 2 && at > 1 && ((unsigned char)text[at - 1] & 0xc0) == 0xc0)
        return dlc_utf8_valid_prefix(text + at - 1, n - at + 1) == n - at + 1 ? n : at - 1;
    return n;
}

static dlc_err emit_whole(const struct job *j, const char *text, size_t n, const char *source, size_t source_size)
{
    struct dlc_piece piece = { .source = source, .source_size = source_size, .first = true };
    size_t at = 0;

    if (n == 0) {
        j->stats->n_empty++;
        return DLC_OK;
    }
    j->stats->n_documents++;
    piece.hash = dlc_xxh64(text, n < DLC_PIECE_BYTES ? n : DLC_PIECE_BYTES);
    while (at < n) {
        piece.text = text + at;
        piece.size_bytes = n - at > DLC_PIECE_BYTES ? dlc_document_cut(text + at, DLC_PIECE_BYTES) : n - at;
        DLC_TRY(j->fn(j->arg, &piece));
        at += piece.size_bytes;
        piece.first = false;
    }
    return DLC_OK;
}

/* ---- one document a file ---- */

/* NUL bytes far into a file: an error when the file was named, otherwise counted and kept like any byte. */
static dlc_err check_nul(const struct job *j, const char *text, size_t n, uint64_t offset)
{
    const char *nul = memchr(text, 0, n);

    if (!nul)
        return DLC_OK;
    if (j->config->named)
        return dlc_fail(DLC_EINPUT, "%s: binary, not text: a zero byte at offset %llu", dlc_reader_name(j->reader),
                        (unsigned long long)(offset + (uint64_t)(nul - text)));
    for (; nul; nul = memchr(nul + 1, 0, (size_t)(text + n - nul - 1)))
        j->stats->n_nul++;
    return DLC_OK;
}

/* buf[*len] is filled up to DLC_PIECE_BYTES; *ended when that was all. */
static dlc_err fill(bool *ended, const struct job *j, char *buf, size_t *len, uint64_t offset)
{
    size_t n;

    DLC_TRY(dlc_reader_read(&n, j->reader, buf + *len, DLC_PIECE_BYTES - *len));
    DLC_TRY(check_nul(j, buf + *len, n, offset + *len));
    *ended = n < DLC_PIECE_BYTES - *len;
    *len += n;
    return DLC_OK;
}

static dlc_err read_text(struct job *j, char *buf)
{
    struct dlc_piece piece = { .text = buf, .first = true };
    size_t len = j->n_chunk;
    uint64_t offset = 0;
    bool ended;

    memcpy(buf, j->chunk, len);
    DLC_TRY(check_nul(j, buf, len, 0));
    DLC_TRY(fill(&ended, j, buf, &len, 0));
    if (len == 0) {
        j->stats->n_empty++;
        return DLC_OK;
    }
    piece.hash = dlc_xxh64(buf, len);
    j->stats->n_documents++;
    while (len > 0) {
        piece.size_bytes = ended ? len : dlc_document_cut(buf, len);
        DLC_TRY(j->fn(j->arg, &piece));
        piece.first = false;
        offset += piece.size_bytes;
        len -= piece.size_bytes;
        memmove(buf, buf + piece.size_bytes, len);
        if (!ended)
            DLC_TRY(fill(&ended, j, buf, &len, offset));
    }
    return DLC_OK;
}

/* ---- one document a line ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The code unit of an escape \uXXXX at s[n], -1 when there is none. */
static int escape_unit(const char *s, size_t n)
{
    int unit = 0;

    if (n < 6 || s[0] != '\\' || s[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        int d = hex_digit(s[i]);

        if (d < 0)
            return -1;
        unit = unit << 4 | d;
    }
    return unit;
}

/* JSON is UTF-8 by definition; what others wrote is not always. Bytes that are not, and escaped halves of surrogate
 * pairs, become U+FFFD. */
static dlc_err repair_line(struct dlc_buf *out, uint64_t *n_replaced, const char *line, size_t n)
{
    size_t at = 0;

    dlc_buf_clear(out);
    while (at < n) {
        size_t valid = dlc_utf8_valid_prefix(line + at, n - at), i = at, end = at + valid;

        while (i < end) {
            int unit = escape_unit(line + i, end - i);
            size_t len = line[i] == '\\' && i + 1 < end ? 2 : 1;

            if (unit >= 0xd800 && unit <= 0xdbff) {
                int low = escape_unit(line + i + 6, end - i - 6);

                len = low >= 0xdc00 && low <= 0xdfff ? 12 : 6;
            } else if (unit >= 0) {
                len = 6;
            }
            if (unit >= 0xd800 && unit <= 0xdfff && len == 6) {
                DLC_TRY(dlc_buf_append(out, "\\ufffd", 6));
                ++*n_replaced;
            } else {
                DLC_TRY(dlc_buf_append(out, line + i, len));
            }
            i += len;
        }
        at = end;
        if (at < n) {
            DLC_TRY(dlc_buf_append(out, "\xef\xbf\xbd", 3));
            ++*n_replaced;
            at++;
        }
    }
    return DLC_OK;
}

static dlc_err parse_line(json_t **out, const struct job *j, const char *line, size_t n, uint64_t number)
{
    struct dlc_buf repaired = { 0 };
    json_error_t e;
    uint64_t n_replaced = 0;
    bool out_of_memory;
    dlc_err err = DLC_OK;

    *out = dlc_json_load(line, n, JSON_ALLOW_NUL, &e, &out_of_memory);
    if (*out)
        return DLC_OK;
    if (out_of_memory)
        return dlc_fail(DLC_ENOMEM, "out of memory: a line of JSON of %zu bytes", n);
    err = repair_line(&repaired, &n_replaced, line, n);
    if (err == DLC_OK && n_replaced)
        *out = dlc_json_load(repaired.data, repaired.len, JSON_ALLOW_NUL, &e, &out_of_memory);
    dlc_buf_fini(&repaired);
    if (err != DLC_OK)
        return err;
    j->stats->n_replaced += n_replaced;
    if (out_of_memory)
        return dlc_fail(DLC_ENOMEM, "out of memory: a line of JSON of %zu bytes", n);
    if (!*out)
        return dlc_fail(DLC_EINPUT, "%s, line %llu: not JSON: %s (column %d)", dlc_reader_name(j->reader),
                        (unsigned long long)number, e.text, e.column);
    return DLC_OK;
}

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    }
    return true;
}

static dlc_err emit_line(const struct job *j, const char *line, size_t n, uint64_t number)
{
    const json_t *text, *source;
    json_t *root;
    dlc_err err;

    if (is_blank(line, n))
        return DLC_OK;
    DLC_TRY(parse_line(&root, j, line, n, number));
    text = json_object_get(root, j->config->json_key);
    source = json_object_get(root, "source");
    if (!json_is_object(root))
        err = dlc_fail(DLC_EINPUT, "%s, line %llu: not a JSON object", dlc_reader_name(j->reader),
                       (unsigned long long)number);
    else if (!json_is_string(text))
        err = dlc_fail(DLC_EINPUT, "%s, line %llu: %s \"%s\"; name the key of the text with --json-key",
                       dlc_reader_name(j->reader), (unsigned long long)number, text ? "no string at key" : "no key",
                       j->config->json_key);
    else
        err = emit_whole(j, json_string_value(text), json_string_length(text), json_string_value(source),
                         json_string_length(source));
    json_decref(root);
    return err;
}

/* Takes one more chunk apart; a line that is not finished waits in `rest`. */
static dlc_err take_lines(const struct job *j, struct dlc_buf *rest, const char *chunk, size_t n, uint64_t *number)
{
    while (n > 0) {
        const char *end = memchr(chunk, '\n', n);
        size_t len = end ? (size_t)(end - chunk) : n;

        if (rest->len + len > DLC_JSON_LINE_MAX)
            return dlc_fail(DLC_EINPUT,
                            "%s, line %llu: longer than %zu MiB, which is the most a line of JSON may have; "
                            "divide the document",
                            dlc_reader_name(j->reader), (unsigned long long)*number, DLC_JSON_LINE_MAX >> 20);
        if (rest->len > 0 || !end)
            DLC_TRY(dlc_buf_append(rest, chunk, len));
        if (!end)
            return DLC_OK;
        DLC_TRY(rest->len > 0 ? emit_line(j, rest->data, rest->len, *number) : emit_line(j, chunk, len, *number));
        dlc_buf_clear(rest);
        ++*number;
        chunk += len + 1;
        n -= len + 1;
    }
    return DLC_OK;
}

static dlc_err read_lines(struct job *j)
{
    struct dlc_buf rest = { 0 };
    uint64_t number = 1;
    dlc_err err;

    for (;;) {
        DLC_TRY_TO(done, take_lines(j, &rest, j->chunk, j->n_chunk, &number));
        DLC_TRY_TO(done, dlc_reader_read(&j->n_chunk, j->reader, j->chunk, CHUNK_BYTES));
        if (j->n_chunk == 0)
            break;
    }
    err = rest.len > 0 ? emit_line(j, rest.data, rest.len, number) : DLC_OK;
done:
    dlc_buf_fini(&rest);
    return err;
}

/* Reads the beginning: says whether the file is binary, and drops a byte order mark. */
static dlc_err probe(struct job *j)
{
    const char *nul;

    DLC_TRY(dlc_reader_read(&j->n_chunk, j->reader, j->chunk, PROBE_BYTES));
    nul = memchr(j->chunk, 0, j->n_chunk);
    if (nul && j->config->named)
        return dlc_fail(DLC_EINPUT, "%s: binary, not text: a zero byte at offset %zu", dlc_reader_name(j->reader),
                        (size_t)(nul - j->chunk));
    if (nul)
        j->stats->binary = true;
    else if (j->n_chunk >= 3 && memcmp(j->chunk, "\xef\xbb\xbf", 3) == 0)
        memmove(j->chunk, j->chunk + 3, j->n_chunk -= 3);
    return DLC_OK;
}

dlc_err dlc_documents_read(struct dlc_documents_stats *stats, dlc_reader *r, const struct dlc_documents_config *config,
                           dlc_document_fn fn, void *arg)
{
    struct job j = { .stats = stats, .reader = r, .config = config, .fn = fn, .arg = arg };
    char *buf = config->jsonl ? NULL : dlc_alloc(DLC_PIECE_BYTES);
    dlc_err err = DLC_ENOMEM;

    j.chunk = dlc_alloc(CHUNK_BYTES);
    if (j.chunk && (buf || config->jsonl)) {
        err = probe(&j);
        if (err == DLC_OK && !stats->binary)
            err = config->jsonl ? read_lines(&j) : read_text(&j, buf);
    }
    dlc_free(buf);
    dlc_free(j.chunk);
    return err;
}
