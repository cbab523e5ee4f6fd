/* tokenizer.json: reading what others write (old and new layouts), writing what all of them load. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "data/bytemap.h"
#include "data/tokenizer_internal.h"

struct parse {
    struct dlc_tokenizer_spec *spec;
    const json_t *root, *model, *vocab;
    const char *where;
    struct dlc_buf bytes; /* of the string just mapped */
};

static const char *const boundary_tokens[] = { DLC_EOT_TEXT, "<|begin_of_text|>", "<|bos|>",
                                               "<s>",        "<|end_of_text|>",   "</s>" };

static dlc_err refuse(const struct parse *p, const char *what)
{
    return dlc_fail(DLC_EINPUT, "%s: %s; only byte-level BPE with the GPT-2 or Llama-3 split is run exactly here",
                    p->where, what);
}

static bool absent(const json_t *v)
{
    return !v || json_is_null(v);
}

static bool type_is(const json_t *object, const char *type)
{
    const char *s = json_string_value(json_object_get(object, "type"));

    return s && strcmp(s, type) == 0;
}

/* Null, or an empty sequence. */
static bool does_nothing(const json_t *step, const char *list)
{
    return absent(step) || (type_is(step, "Sequence") && json_is_array(json_object_get(step, list)) &&
                            json_array_size(json_object_get(step, list)) == 0);
}

static dlc_err check_byte_level(const struct parse *p, const json_t *step, bool splits)
{
    const json_t *use_regex = json_object_get(step, "use_regex"); /* older files have none: true */

    if (!type_is(step, "ByteLevel"))
        return refuse(p, "its pre-tokenizer does not end in ByteLevel");
    if (!json_is_false(json_object_get(step, "add_prefix_space")))
        return refuse(p, "its pre-tokenizer adds a space before the text (add_prefix_space)");
    if ((absent(use_regex) || json_is_true(use_regex)) != splits)
        return refuse(p, splits ? "its pre-tokenizer does not split" : "its pre-tokenizer splits twice (use_regex)");
    return DLC_OK;
}

static dlc_err check_split(const struct parse *p, const json_t *step)
{
    const char *regex = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(step, "behavior"));

    if (!type_is(step, "Split") || !regex)
        return refuse(p, "its pre-tokenizer does not begin with a Split by an expression");
    if (!behavior || strcmp(behavior, "Isolated") != 0 || json_is_true(json_object_get(step, "invert")))
        return refuse(p, "its Split is not of the behaviour \"Isolated\", not inverted");
    for (int kind = 0; kind < DLC_N_SPLITS; kind++) {
        if (strcmp(regex, dlc_split_pattern((dlc_split_kind)kind)) == 0) {
            p->spec->split = (dlc_split_kind)kind;
            return DLC_OK;
        }
    }
    return dlc_fail(DLC_EINPUT, "%s: its split expression is neither GPT-2's nor Llama-3's: %.200s", p->where, regex);
}

static dlc_err read_pre_tokenizer(const struct parse *p)
{
    const json_t *pre = json_object_get(p->root, "pre_tokenizer");
    const json_t *steps = json_object_get(pre, "pretokenizers");

    p->spec->split = DLC_SPLIT_GPT2;
    if (!type_is(pre, "Sequence"))
        return check_byte_level(p, pre, true);
    if (json_array_size(steps) == 1)
        return check_byte_level(p, json_array_get(steps, 0), true);
    if (json_array_size(steps) != 2)
        return refuse(p, "its pre-tokenizer has other steps than Split and ByteLevel");
    DLC_TRY(check_split(p, json_array_get(steps, 0)));
    return check_byte_level(p, json_array_get(steps, 1), false);
}

static dlc_err check_features(struct parse *p)
{
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    const json_t *dropout = json_object_get(p->model, "dropout");
    const json_t *decoder = json_object_get(p->root, "decoder");

    if (json_object_get(p->model, "type") && !type_is(p->model, "BPE"))
        return refuse(p, "its model is not BPE");
    if (!absent(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0.0))
        return refuse(p, "its model drops merges at random (dropout)");
    for (size_t i = 0; i < sizeof affixes / sizeof *affixes; i++) {
        const json_t *v = json_object_get(p->model, affixes[i]);

        if (!absent(v) && !(json_is_string(v) && json_string_length(v) == 0))
            return refuse(p, "its model marks words (continuing_subword_prefix or end_of_word_suffix)");
    }
    if (!does_nothing(json_object_get(p->root, "normalizer"), "normalizers"))
        return refuse(p, "it changes the text first (normalizer)");
    if (!absent(json_object_get(p->root, "truncation")) || !absent(json_object_get(p->root, "padding")))
        return refuse(p, "it truncates or pads (set \"truncation\" and \"padding\" to null)");
    if (!absent(decoder) && !type_is(decoder, "ByteLevel"))
        return refuse(p, "its decoder is not ByteLevel");
    p->spec->ignore_merges = json_is_true(json_object_get(p->model, "ignore_merges"));
    return DLC_OK;
}

static dlc_err check_id(const struct parse *p, const json_t *id, const char *content)
{
    const struct dlc_bpe_model *m = &p->spec->model;
    json_int_t n = json_integer_value(id);

    if (!json_is_integer(id) || n < 0 || n >= DLC_VOCAB_MAX)
        return dlc_fail(DLC_EINPUT, "%s: the id of token \"%.60s\" is not an integer in 0..%d", p->where, content,
                        DLC_VOCAB_MAX - 1);
    if (n < m->vocab_size && m->tokens[n].kind != DLC_TOKEN_NONE)
        return dlc_fail(DLC_EINPUT, "%s: id %lld is given to two tokens, one is \"%.60s\"", p->where, (long long)n,
                        content);
    return DLC_OK;
}

static dlc_err add_special(struct parse *p, const json_t *token)
{
    const json_t *id = json_object_get(token, "id"), *in_vocab;
    const char *content;

    DLC_TRY(dlc_json_get_string(&content, token, "content", p->where));
    if (!json_is_true(json_object_get(token, "special")))
        return dlc_fail(DLC_EINPUT,
                        "%s: added token \"%.60s\" is not special: it would be cut out of ordinary text, which is not "
                        "done here",
                        p->where, content);
    DLC_TRY(check_id(p, id, content));
    in_vocab = json_object_get(p->vocab, content);
    if (in_vocab && json_integer_value(in_vocab) != json_integer_value(id))
        return dlc_fail(DLC_EINPUT, "%s: token \"%.60s\" has id %lld in added_tokens and %lld in the vocabulary",
                        p->where, content, (long long)json_integer_value(id), (long long)json_integer_value(in_vocab));
    return dlc_bpe_model_add_token(&p->spec->model, (int32_t)json_integer_value(id), DLC_TOKEN_SPECIAL, content,
                                   strlen(content));
}

static dlc_err read_special(struct parse *p)
{
    const json_t *list = json_object_get(p->root, "added_tokens"), *token;
    size_t i;

    if (absent(list))
        return DLC_OK;
    if (!json_is_array(list))
        return dlc_fail(DLC_EINPUT, "%s: \"added_tokens\" is not an array", p->where);
    json_array_foreach(list, i, token) DLC_TRY(add_special(p, token));
    return DLC_OK;
}

static bool is_special(const struct dlc_bpe_model *m, json_int_t id, const char *content)
{
    size_t n = strlen(content);

    return id >= 0 && id < m->vocab_size && m->tokens[id].kind == DLC_TOKEN_SPECIAL && m->tokens[id].size_bytes == n &&
           memcmp(dlc_bpe_model_bytes(m, (int32_t)id), content, n) == 0;
}

static dlc_err map_bytes(struct parse *p, const char *text, size_t n)
{
    bool ok;

    dlc_buf_clear(&p->bytes);
    DLC_TRY(dlc_bytemap_decode(&p->bytes, &ok, text, n));
    if (!ok || n == 0)
        return dlc_fail(DLC_EINPUT, "%s: \"%.60s\" is not in the byte-level alphabet", p->where, text);
    return DLC_OK;
}

static dlc_err read_vocab(struct parse *p)
{
    struct dlc_bpe_model *m = &p->spec->model;
    const char *content;
    json_t *id;

    json_object_foreach((json_t *)(uintptr_t)p->vocab, content, id)
    {
        if (json_is_integer(id) && is_special(m, json_integer_value(id), content))
            continue;
        DLC_TRY(check_id(p, id, content));
        DLC_TRY(map_bytes(p, content, strlen(content)));
        DLC_TRY(
            dlc_bpe_model_add_token(m, (int32_t)json_integer_value(id), DLC_TOKEN_TEXT, p->bytes.data, p->bytes.len));
    }
    for (int byte = 0; byte < 256; byte++) {
        if (m->byte_id[byte] < 0)
            return dlc_fail(DLC_EINPUT, "%s: no token for byte 0x%02x; all 256 bytes are needed to encode any text",
                            p->where, (unsigned)byte);
    }
    return DLC_OK;
}

/* The two halves of a merge: ["a", "b"], or "a b" in older files. */
static bool halves_of(const json_t *merge, const char **left, size_t *n_left, const char **right, size_t *n_right)
{
    const char *space;

    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left = json_string_value(json_array_get(merge, 0));
        *right = json_string_value(json_array_get(merge, 1));
        *n_left = *left ? strlen(*left) : 0;
        *n_right = *right ? strlen(*right) : 0;
        return *left && *right;
    }
    *left = json_string_value(merge);
    space = *left ? strchr(*left, ' ') : NULL;
    if (!space || strchr(space + 1, ' '))
        return false;
    *n_left = (size_t)(space - *left);
    *right = space + 1;
    *n_right = strlen(*right);
    return true;
}

static dlc_err add_merge(struct parse *p, const json_t *merge, int32_t rank)
{
    struct dlc_bpe_model *m = &p->spec->model;
    const char *left, *right;
    size_t n_left, n_right;
    int32_t a, b, ab;
    bool added;

    if (!halves_of(merge, &left, &n_left, &right, &n_right))
        return dlc_fail(DLC_EINPUT, "%s: merge %d is not a pair of tokens", p->where, rank);
    DLC_TRY(map_bytes(p, right, n_right));
    b = dlc_bpe_model_find(m, p->bytes.data, p->bytes.len);
    DLC_TRY(map_bytes(p, left, n_left));
    a = dlc_bpe_model_find(m, p->bytes.data, p->bytes.len);
    if (b >= 0)
        DLC_TRY(dlc_buf_append(&p->bytes, dlc_bpe_model_bytes(m, b), m->tokens[b].size_bytes));
    ab = dlc_bpe_model_find(m, p->bytes.data, p->bytes.len);
    if (a < 0 || b < 0 || ab < 0)
        return dlc_fail(DLC_EINPUT, "%s: merge %d (\"%.*s\" and \"%.40s\") needs a token that the vocabulary lacks",
                        p->where, rank, n_left > 40 ? 40 : (int)n_left, left, right);
    DLC_TRY(dlc_bpe_model_add_merge(&added, m, a, b, ab, rank));
    if (!added)
        return dlc_fail(DLC_EINPUT, "%s: merge %d (\"%.*s\" and \"%.40s\") stands there twice", p->where, rank,
                        n_left > 40 ? 40 : (int)n_left, left, right);
    return DLC_OK;
}

static dlc_err read_merges(struct parse *p)
{
    json_t *list, *merge;
    int32_t rank = 0;
    size_t i;

    DLC_TRY(dlc_json_get_array(&list, p->model, "merges", p->where));
    json_array_foreach(list, i, merge)
    {
        if (json_is_string(merge) && strncmp(json_string_value(merge), "#version", 8) == 0)
            continue;
        DLC_TRY(add_merge(p, merge, rank++));
    }
    return DLC_OK;
}

static dlc_err find_boundary(const struct parse *p)
{
    const struct dlc_bpe_model *m = &p->spec->model;

    for (size_t k = 0; k < sizeof boundary_tokens / sizeof *boundary_tokens; k++) {
        for (int id = 0; id < m->vocab_size; id++) {
            if (m->tokens[id].kind == DLC_TOKEN_SPECIAL && is_special(m, id, boundary_tokens[k])) {
                p->spec->eot = id;
                return DLC_OK;
            }
        }
    }
    return dlc_fail(DLC_EINPUT, "%s: no special token to stand between documents (\"%s\" or another common one)",
                    p->where, DLC_EOT_TEXT);
}

static dlc_err parse_all(struct parse *p)
{
    json_t *member;

    if (!json_is_object(p->root))
        return dlc_fail(DLC_EINPUT, "%s: not a tokenizer.json (no JSON object)", p->where);
    DLC_TRY(dlc_json_get_object(&member, p->root, "model", p->where));
    p->model = member;
    DLC_TRY(dlc_json_get_object(&member, p->model, "vocab", p->where));
    p->vocab = member;
    DLC_TRY(check_features(p));
    DLC_TRY(read_pre_tokenizer(p));
    DLC_TRY(read_special(p));
    DLC_TRY(read_vocab(p));
    DLC_TRY(read_merges(p));
    return find_boundary(p);
}

dlc_err dlc_tokenizer_spec_parse(struct dlc_tokenizer_spec *out, const char *json, size_t size_bytes, const char *where)
{
    struct parse p = { .spec = out, .where = where };
    json_t *root = NULL;
    dlc_err err;

    *out = (struct dlc_tokenizer_spec){ .eot = -1 };
    err = dlc_bpe_model_init(&out->model);
    if (err == DLC_OK)
        err = dlc_json_parse(&root, json, size_bytes, where);
    p.root = root;
    if (err == DLC_OK)
        err = parse_all(&p);
    json_decref(root);
    dlc_buf_fini(&p.bytes);
    if (err != DLC_OK)
        dlc_tokenizer_spec_fini(out);
    return err;
}

void dlc_tokenizer_spec_fini(struct dlc_tokenizer_spec *spec)
{
    dlc_bpe_model_fini(&spec->model);
}

/* Stand-ins contain no control characters: only these two need escaping. */
static dlc_err append_string(struct dlc_buf *out, const char *bytes, size_t n)
{
    DLC_TRY(dlc_buf_append(out, "\"", 1));
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '"' || bytes[i] == '\\')
            DLC_TRY(dlc_buf_append(out, "\\", 1));
        DLC_TRY(dlc_bytemap_append(out, bytes + i, 1));
    }
    return dlc_buf_append(out, "\"", 1);
}

static dlc_err append_token(struct dlc_buf *out, const struct dlc_bpe_model *m, int32_t id)
{
    return append_string(out, dlc_bpe_model_bytes(m, id), m->tokens[id].size_bytes);
}

static dlc_err append_json_text(struct dlc_buf *out, const char *text)
{
    json_t *s = json_string(text);
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    dlc_err err = quoted ? dlc_buf_printf(out, "%s", quoted) : dlc_fail(DLC_ENOMEM, "out of memory: JSON text");

    dlc_free(quoted);
    json_decref(s);
    return err;
}

static dlc_err write_head(struct dlc_buf *out, int32_t eot, dlc_split_kind split)
{
    DLC_TRY(dlc_buf_printf(out,
                           "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                           "  \"added_tokens\": [\n    {\"id\": %d, \"content\": \"" DLC_EOT_TEXT "\", "
                           "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                           "\"special\": true}\n  ],\n  \"normalizer\": null,\n"
                           "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
                           "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ",
                           eot));
    DLC_TRY(append_json_text(out, dlc_split_pattern(split)));
    return dlc_buf_printf(
        out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n"
             "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
             "\"use_regex\": false}\n  ]},\n  \"post_processor\": null,\n"
             "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
             "\"use_regex\": true},\n"
             "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
             "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
             "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
             "    \"vocab\": {");
}

dlc_err dlc_tokenizer_write_json(struct dlc_buf *out, const struct dlc_bpe_model *m, const struct dlc_bpe_rule *merges,
                                 size_t n_merges, dlc_split_kind split)
{
    int32_t eot = 0;

    while (m->tokens[eot].kind != DLC_TOKEN_SPECIAL)
        eot++;
    DLC_TRY(write_head(out, eot, split));
    for (int32_t id = 0; id < m->vocab_size; id++) {
        DLC_TRY(dlc_buf_printf(out, "%s\n      ", id ? "," : ""));
        if (id == eot)
            DLC_TRY(dlc_buf_printf(out, "\"" DLC_EOT_TEXT "\""));
        else
            DLC_TRY(append_token(out, m, id));
        DLC_TRY(dlc_buf_printf(out, ": %d", id));
    }
    DLC_TRY(dlc_buf_printf(out, "\n    },\n    \"merges\": ["));
    for (size_t i = 0; i < n_merges; i++) {
        DLC_TRY(dlc_buf_printf(out, "%s\n      [", i ? "," : ""));
        DLC_TRY(append_token(out, m, merges[i].left));
        DLC_TRY(dlc_buf_append(out, ", ", 2));
        DLC_TRY(append_token(out, m, merges[i].right));
        DLC_TRY(dlc_buf_append(out, "]", 1));
    }
    return dlc_buf_printf(out, "\n    ]\n  }\n}\n");
}
