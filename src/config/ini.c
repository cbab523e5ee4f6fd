/* run.ini: inih parses, this file feeds it line by line.
 *
 * inih cuts what is longer than its line buffer (200 bytes as packaged, and a path may have 4,095), counts only its own
 * lines, and takes an indented line for a continuation. So the reader below gives it clean lines - no comments, no
 * indentation, no zero bytes - and hands a long one over in pieces that inih takes for continuations; the handler joins
 * the pieces that came from one line of the file. */
#include <ini.h>
#include <string.h>

#include "config/config.h"
#include "config/keys.h"

#define INI_FILE_MAX (1u << 20) /* bytes of a configuration file */

struct source {
    const char *text;
    size_t size_bytes, at;
    const char *piece_end; /* of the line being handed over: what is left of it is [at, piece_end) */
    int line;              /* of the file, from 1 */
    bool continued;        /* the last piece was not the first of its line */
};

struct parse {
    struct dlc_config *config;
    const char *where;
    struct source source;
    struct dlc_buf key, value; /* of the pair being joined */
    int pair_line;             /* 0: no pair is pending */
    dlc_err err;               /* the first error; everything after it is ignored */
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* Where the text of a line ends: before a comment, which is a ';' or '#' in front or a ';' after a space. */
static const char *text_end(const char *line, const char *end)
{
    if (line < end && (*line == '#' || *line == ';'))
        return line;
    for (const char *c = line + 1; c < end; c++)
        if (*c == ';' && is_space(c[-1]))
            end = c;
    while (end > line && is_space(end[-1]))
        end--;
    return end;
}

static void next_line(struct source *s)
{
    const char *line = s->text + s->at, *all_end = s->text + s->size_bytes;
    const char *newline = memchr(line, '\n', (size_t)(all_end - line)), *end = newline ? newline : all_end;

    while (line < end && is_space(*line))
        line++;
    s->at = (size_t)(line - s->text);
    s->piece_end = text_end(line, end);
    s->line++;
}

/* Moves behind the line whose text was handed over completely. */
static void finish_line(struct source *s)
{
    const char *at = s->text + s->at;
    const char *newline = memchr(at, '\n', s->size_bytes - s->at);

    s->at = newline ? (size_t)(newline + 1 - s->text) : s->size_bytes;
    s->piece_end = NULL;
}

/* inih's ini_reader: like fgets. A piece never begins or ends with a space, which inih would strip. */
static char *read_piece(char *out, int size, void *source)
{
    struct source *s = source;
    size_t left, room = (size_t)size - 4, n = 0; /* the space in front, "\n" and the final zero */

    s->continued = s->piece_end != NULL;
    if (!s->continued) {
        if (s->at >= s->size_bytes)
            return NULL;
        next_line(s);
    }
    left = (size_t)(s->piece_end - (s->text + s->at));
    if (left > room) {
        left = room;
        while (left > 1 && (is_space(s->text[s->at + left]) || is_space(s->text[s->at + left - 1])))
            left--;
    }
    if (s->continued)
        out[n++] = ' ';
    memcpy(out + n, s->text + s->at, left);
    n += left;
    out[n++] = '\n';
    out[n] = '\0';
    s->at += left;
    if (s->text + s->at == s->piece_end)
        finish_line(s);
    return out;
}

/* The line of the file that the n-th piece came from: inih's errors count pieces. */
static int line_of_piece(const char *text, size_t size_bytes, int n)
{
    struct source s = { .text = text, .size_bytes = size_bytes };
    char piece[INI_MAX_LINE];

    while (n-- > 0 && read_piece(piece, sizeof piece, &s))
        ;
    return s.line;
}

static void finish_pair(struct parse *p)
{
    struct dlc_buf where = { 0 };

    if (p->pair_line == 0 || p->err != DLC_OK)
        return;
    p->err = dlc_buf_printf(&where, "%s line %d", p->where, p->pair_line);
    if (p->err == DLC_OK)
        p->err = dlc_config_set(p->config, p->key.data, p->value.data, where.data);
    p->pair_line = 0;
    dlc_buf_fini(&where);
}

static dlc_err start_pair(struct parse *p, const char *section, const char *name)
{
    p->pair_line = p->source.line;
    dlc_buf_clear(&p->key);
    dlc_buf_clear(&p->value);
    return dlc_buf_printf(&p->key, "%s%s%s", section, *section ? "." : "", name);
}

static int on_pair(void *user, const char *section, const char *name, const char *value)
{
    struct parse *p = user;

    if (p->pair_line != p->source.line) {
        if (p->source.continued)
            return 0; /* the rest of a line that was no pair: inih joins it to the pair above */
        finish_pair(p);
    }
    if (p->err == DLC_OK && p->pair_line == 0)
        p->err = start_pair(p, section, name);
    if (p->err == DLC_OK)
        p->err = dlc_buf_append(&p->value, value, strlen(value));
    return p->err == DLC_OK;
}

static dlc_err check_text(const char *text, size_t size_bytes, const char *where)
{
    const char *zero = memchr(text, '\0', size_bytes);
    int line = 1;

    if (size_bytes > INI_FILE_MAX)
        return dlc_fail(DLC_EINPUT, "%s: %zu bytes, a configuration has at most %u", where, size_bytes, INI_FILE_MAX);
    if (!zero)
        return DLC_OK;
    for (const char *c = text; c < zero; c++)
        line += *c == '\n';
    return dlc_fail(DLC_EINPUT, "%s line %d: a zero byte; this is not a text file", where, line);
}

dlc_err dlc_config_parse_ini(struct dlc_config *config, const char *text, size_t size_bytes, const char *where)
{
    struct parse p = { .config = config, .where = where, .source = { .text = text, .size_bytes = size_bytes } };
    int failed_piece;

    if (size_bytes == 0)
        return DLC_OK;
    DLC_TRY(check_text(text, size_bytes, where));
    failed_piece = ini_parse_stream(read_piece, &p.source, on_pair, &p);
    finish_pair(&p);
    if (p.err == DLC_OK && failed_piece != 0)
        p.err = dlc_fail(DLC_EUSAGE, "%s line %d: neither [section] nor key = value", where,
                         line_of_piece(text, size_bytes, failed_piece));
    dlc_buf_fini(&p.key);
    dlc_buf_fini(&p.value);
    return p.err;
}

dlc_err dlc_config_read_ini(struct dlc_config *config, const char *path)
{
    struct dlc_buf text = { 0 };
    dlc_err err;

    DLC_TRY_TO(done, dlc_file_read(&text, path, INI_FILE_MAX));
    err = dlc_config_parse_ini(config, text.data, text.len, path);
done:
    dlc_buf_fini(&text);
    return err;
}

dlc_err dlc_config_write_ini(struct dlc_buf *out, const struct dlc_config *config)
{
    size_t n, section = 0;
    const struct dlc_key *keys = dlc_config_keys(&n), *before = NULL;

    for (size_t i = 0; i < n; before = &keys[i++]) {
        section = (size_t)(strchr(keys[i].name, '.') - keys[i].name);
        if (!before || strncmp(before->name, keys[i].name, section + 1) != 0)
            DLC_TRY(dlc_buf_printf(out, "%s[%.*s]\n", before ? "\n" : "", (int)section, keys[i].name));
        DLC_TRY(dlc_buf_printf(out, "%s = ", keys[i].name + section + 1));
        DLC_TRY(dlc_key_format(out, config, &keys[i]));
        DLC_TRY(dlc_buf_printf(out, "\n"));
    }
    return DLC_OK;
}
