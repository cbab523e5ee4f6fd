/* The tokenizer of a GGUF file as tokenizer.json. The text is put together as it comes, and then read by the tokenizer
 * itself, which refuses what it cannot run: bytes without a token, merges that lead nowhere, texts that are no UTF-8.
 */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "ckpt/gguf_model_internal.h"
#include "data/split.h"
#include "data/tokenizer.h"

struct conversion {
    const dlc_gguf_file *file;
    struct dlc_buf *out;
    struct dlc_gguf_array tokens, types, merges;
    dlc_split_kind split;
};

static dlc_err append_quoted(struct dlc_buf *out, const char *bytes, size_t n)
{
    DLC_TRY(dlc_buf_append(out, "\"", 1));
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if (c < 0x20)
            DLC_TRY(dlc_buf_printf(out, "\\u%04x", c));
        else if (c == '"' || c == '\\')
            DLC_TRY(dlc_buf_printf(out, "\\%c", c));
        else
            DLC_TRY(dlc_buf_append(out, bytes + i, 1));
    }
    return dlc_buf_append(out, "\"", 1);
}

static dlc_err append_text(struct dlc_buf *out, struct dlc_gguf_text text)
{
    return append_quoted(out, text.bytes, text.n);
}

static dlc_err find_split(struct conversion *c)
{
    static const struct {
        const char *pre;
        dlc_split_kind split;
    } known[] = { { DLC__GGUF_PRE_GPT2, DLC_SPLIT_GPT2 },
                  { DLC__GGUF_PRE_LLAMA3, DLC_SPLIT_LLAMA3 },
                  { "llama3", DLC_SPLIT_LLAMA3 },
                  { "llama-v3", DLC_SPLIT_LLAMA3 } };
    struct dlc_gguf_text model, pre;

    DLC_TRY(dlc_gguf_get_text(&model, c->file, "tokenizer.ggml.model"));
    if (dlc_gguf_text_is(model, "no_vocab") || dlc_gguf_text_is(model, "none"))
        return dlc_fail(DLC_ENOTFOUND, "%s: there is no tokenizer in it", dlc_gguf_where(c->file));
    if (!dlc_gguf_text_is(model, "gpt2"))
        return dlc_fail(DLC_EINPUT, "%s: its tokenizer is \"%.*s\"; only byte-level BPE (\"gpt2\") can be run here",
                        dlc_gguf_where(c->file), model.n > 60 ? 60 : (int)model.n, model.bytes);
    DLC_TRY(dlc_gguf_get_text(&pre, c->file, "tokenizer.ggml.pre"));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        c->split = known[i].split;
        if (dlc_gguf_text_is(pre, known[i].pre))
            return DLC_OK;
    }
    return dlc_fail(DLC_EINPUT, "%s: its pre-tokenizer is \"%.*s\"; only gpt-2 and llama-bpe can be run here",
                    dlc_gguf_where(c->file), pre.n > 60 ? 60 : (int)pre.n, pre.bytes);
}

static dlc_err find_arrays(struct conversion *c)
{
    DLC_TRY(dlc_gguf_get_texts(&c->tokens, c->file, "tokenizer.ggml.tokens"));
    DLC_TRY(dlc_gguf_get_ints(&c->types, c->file, "tokenizer.ggml.token_type"));
    DLC_TRY(dlc_gguf_get_texts(&c->merges, c->file, "tokenizer.ggml.merges"));
    if (c->types.n != c->tokens.n)
        return dlc_fail(DLC_EINPUT, "%s: %" PRIu64 " tokens, but types of %" PRIu64, dlc_gguf_where(c->file),
                        c->tokens.n, c->types.n);
    return DLC_OK;
}

static dlc_err check_type(const struct conversion *c, int64_t type, uint64_t id)
{
    if (type == DLC__GGUF_NORMAL || type == DLC__GGUF_CONTROL || type == DLC__GGUF_UNUSED)
        return DLC_OK;
    return dlc_fail(DLC_EINPUT,
                    "%s: token %" PRIu64 " is of type %" PRId64
                    "; normal (1), control (3) and unused (5) ones are run here",
                    dlc_gguf_where(c->file), id, type);
}

static dlc_err append_added(const struct conversion *c)
{
    struct dlc_gguf_array tokens = c->tokens, types = c->types;
    const char *separator = "";

    DLC_TRY(dlc_buf_printf(c->out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                                   "  \"added_tokens\": ["));
    for (uint64_t id = 0; id < tokens.n; id++) {
        struct dlc_gguf_text text = dlc_gguf_next_text(&tokens);

        if (dlc_gguf_next_int(&types) != DLC__GGUF_CONTROL)
            continue;
        DLC_TRY(dlc_buf_printf(c->out, "%s\n    {\"id\": %" PRIu64 ", \"content\": ", separator, id));
        DLC_TRY(append_text(c->out, text));
        DLC_TRY(dlc_buf_printf(c->out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                                       "\"normalized\": false, \"special\": true}"));
        separator = ",";
    }
    return dlc_buf_printf(c->out, "\n  ],\n  \"normalizer\": null,\n");
}

static dlc_err append_rules(const struct conversion *c)
{
    const char *regex = dlc_split_pattern(c->split);

    DLC_TRY(dlc_buf_printf(c->out, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
                                   "    {\"type\": \"Split\", \"pattern\": {\"Regex\": "));
    DLC_TRY(append_quoted(c->out, regex, strlen(regex)));
    return dlc_buf_printf(c->out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n"
                                  "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                                  "\"use_regex\": false}\n  ]},\n");
}

/* What puts the begin token before every text that other tools encode. */
static dlc_err append_template(const struct conversion *c, int64_t bos)
{
    struct dlc_gguf_array tokens = c->tokens;
    struct dlc_gguf_text text = { 0 };
    struct dlc_buf quoted = { 0 };
    dlc_err err;

    for (int64_t id = 0; id <= bos; id++)
        text = dlc_gguf_next_text(&tokens);
    err = append_text(&quoted, text);
    if (err == DLC_OK)
        err = dlc_buf_printf(c->out,
                             "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
                             "    \"single\": [{\"SpecialToken\": {\"id\": %s, \"type_id\": 0}}, "
                             "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],\n"
                             "    \"pair\": [{\"SpecialToken\": {\"id\": %s, \"type_id\": 0}}, "
                             "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},\n"
                             "      {\"SpecialToken\": {\"id\": %s, \"type_id\": 1}}, "
                             "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],\n"
                             "    \"special_tokens\": {%s: {\"id\": %s, \"ids\": [%" PRId64 "], \"tokens\": [%s]}}},\n",
                             quoted.data, quoted.data, quoted.data, quoted.data, quoted.data, bos, quoted.data);
    dlc_buf_fini(&quoted);
    return err;
}

static dlc_err append_vocab(const struct conversion *c)
{
    struct dlc_gguf_array tokens = c->tokens, types = c->types;
    const char *separator = "";

    DLC_TRY(
        dlc_buf_printf(c->out,
                       "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
                       "\"use_regex\": true},\n"
                       "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                       "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
                       "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": %s,\n"
                       "    \"vocab\": {",
                       c->split == DLC_SPLIT_LLAMA3 ? "true" : "false"));
    for (uint64_t id = 0; id < tokens.n; id++) {
        struct dlc_gguf_text text = dlc_gguf_next_text(&tokens);
        int64_t type = dlc_gguf_next_int(&types);

        DLC_TRY(check_type(c, type, id));
        if (type == DLC__GGUF_UNUSED)
            continue;
        DLC_TRY(dlc_buf_printf(c->out, "%s\n      ", separator));
        DLC_TRY(append_text(c->out, text));
        DLC_TRY(dlc_buf_printf(c->out, ": %" PRIu64, id));
        separator = ",";
    }
    return dlc_buf_printf(c->out, "\n    },\n    \"merges\": [");
}

static dlc_err append_merges(const struct conversion *c)
{
    struct dlc_gguf_array merges = c->merges;

    for (uint64_t i = 0; i < merges.n; i++) {
        struct dlc_gguf_text text = dlc_gguf_next_text(&merges);
        const char *space = text.n > 1 ? memchr(text.bytes + 1, ' ', text.n - 1) : NULL;
        size_t left = space ? (size_t)(space - text.bytes) : 0;

        if (!space)
            return dlc_fail(DLC_EINPUT, "%s: merge %" PRIu64 " is not a pair of tokens", dlc_gguf_where(c->file), i);
        DLC_TRY(dlc_buf_printf(c->out, "%s\n      [", i ? "," : ""));
        DLC_TRY(append_quoted(c->out, text.bytes, left));
        DLC_TRY(dlc_buf_append(c->out, ", ", 2));
        DLC_TRY(append_quoted(c->out, space + 1, text.n - left - 1));
        DLC_TRY(dlc_buf_append(c->out, "]", 1));
    }
    return dlc_buf_printf(c->out, "\n    ]\n  }\n}\n");
}

dlc_err dlc__gguf_tokenizer_json(struct dlc_buf *out, const dlc_gguf_file *file, int32_t bos, bool add_bos)
{
    struct conversion c = { .file = file, .out = out };
    size_t start = out->len;
    dlc_tokenizer *t;

    DLC_TRY(find_split(&c));
    DLC_TRY(find_arrays(&c));
    DLC_TRY(append_added(&c));
    DLC_TRY(append_rules(&c));
    if (add_bos && bos >= 0 && (uint64_t)bos < c.tokens.n)
        DLC_TRY(append_template(&c, bos));
    else
        DLC_TRY(dlc_buf_printf(out, "  \"post_processor\": null,\n"));
    DLC_TRY(append_vocab(&c));
    DLC_TRY(append_merges(&c));
    DLC_TRY(dlc_tokenizer_parse(&t, out->data + start, out->len - start, dlc_gguf_where(file)));
    dlc_tokenizer_destroy(t);
    return DLC_OK;
}
