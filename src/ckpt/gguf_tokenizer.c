/* tokenizer.json as the keys of a GGUF file. Tokens and merges read the same in both: bytes as their printable
 * stand-ins. What programs do beside them hangs on the name of the pre-tokenizer:
 *
 *              splits as   a piece that is a token as a whole is that token   a begin token before a text
 *   gpt-2      GPT-2       no                                                 if add_bos_token says so
 *   llama-bpe  Llama 3     yes (ignore_merges)                                unless add_bos_token says no */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/gguf_model_internal.h"
#include "data/split.h"
#include "data/tokenizer.h"

static const char where[] = "tokenizer.json";

struct vocabulary {
    const json_t *vocab, *added;
    const char **texts; /* [n] borrowed from the JSON; NULL: an id without a token */
    int32_t *types;     /* [n] */
    int n;
};

static bool splits_as_llama3(const json_t *root)
{
    const json_t *steps = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    const json_t *pattern = json_object_get(json_array_get(steps, 0), "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));

    return regex && strcmp(regex, dlc_split_pattern(DLC_SPLIT_LLAMA3)) == 0;
}

static dlc_err set_token(struct vocabulary *v, const json_t *id, const char *text, int32_t type)
{
    json_int_t at = json_integer_value(id);

    if (at < 0 || at >= v->n)
        return dlc_fail(DLC_EINPUT, "%s: token \"%.60s\" has the id %lld, but the model knows %d tokens", where, text,
                        (long long)at, v->n);
    v->texts[at] = text;
    v->types[at] = type;
    return DLC_OK;
}

static dlc_err read_tokens(struct vocabulary *v)
{
    const char *text;
    json_t *id;
    size_t i;
    const json_t *token;

    v->texts = dlc_calloc((size_t)v->n, sizeof *v->texts);
    v->types = dlc_calloc((size_t)v->n, sizeof *v->types);
    if (!v->texts || !v->types)
        return DLC_ENOMEM;
    for (int k = 0; k < v->n; k++)
        v->types[k] = DLC__GGUF_UNUSED;
    json_object_foreach((json_t *)(uintptr_t)v->vocab, text, id) DLC_TRY(set_token(v, id, text, DLC__GGUF_NORMAL));
    json_array_foreach(v->added, i, token)
        DLC_TRY(set_token(v, json_object_get(token, "id"), json_string_value(json_object_get(token, "content")),
                          DLC__GGUF_CONTROL));
    return DLC_OK;
}

static bool is_token(const struct vocabulary *v, const char *text)
{
    const json_t *token;
    size_t i;

    json_array_foreach(v->added, i, token)
    {
        if (strcmp(json_string_value(json_object_get(token, "content")), text) == 0)
            return true;
    }
    return json_object_get(v->vocab, text) != NULL;
}

/* Readers want as many tokens as the embedding has rows, no two the same. */
static void put_unused(struct dlc_gguf_pairs *pairs, const struct vocabulary *v, int id)
{
    char name[32];

    for (int tries = 0; tries == 0 || is_token(v, name); tries++)
        snprintf(name, sizeof name, tries ? "[PAD%d_%d]" : "[PAD%d]", id, tries);
    dlc_gguf_put_element(pairs, name, strlen(name));
}

static void put_tokens(struct dlc_gguf_pairs *pairs, const struct vocabulary *v)
{
    dlc_gguf_put_texts(pairs, "tokenizer.ggml.tokens", (uint64_t)v->n);
    for (int id = 0; id < v->n; id++) {
        if (v->texts[id])
            dlc_gguf_put_element(pairs, v->texts[id], strlen(v->texts[id]));
        else
            put_unused(pairs, v, id);
    }
    dlc_gguf_put_i32s(pairs, "tokenizer.ggml.token_type", v->types, (size_t)v->n);
}

static bool is_comment(const json_t *merge)
{
    return json_is_string(merge) && strncmp(json_string_value(merge), "#version", 8) == 0;
}

/* "a b", whichever of the two layouts the JSON has. */
static dlc_err put_merges(struct dlc_gguf_pairs *pairs, const json_t *merges)
{
    struct dlc_buf text = { 0 };
    const json_t *merge;
    uint64_t n = 0;
    dlc_err err = DLC_OK;
    size_t i;

    json_array_foreach(merges, i, merge) n += !is_comment(merge);
    dlc_gguf_put_texts(pairs, "tokenizer.ggml.merges", n);
    for (i = 0; err == DLC_OK && i < json_array_size(merges); i++) {
        merge = json_array_get(merges, i);
        if (is_comment(merge))
            continue;
        dlc_buf_clear(&text);
        if (json_is_array(merge))
            err = dlc_buf_printf(&text, "%s %s", json_string_value(json_array_get(merge, 0)),
                                 json_string_value(json_array_get(merge, 1)));
        else
            err = dlc_buf_printf(&text, "%s", json_string_value(merge));
        dlc_gguf_put_element(pairs, text.data, text.len);
    }
    dlc_buf_fini(&text);
    return err;
}

static bool same_ids(const struct dlc_buf *a, const struct dlc_buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* Counts the tokens whose bytes the two encode differently. */
static dlc_err count_differences(int *n, int32_t *first, dlc_tokenizer *a, dlc_tokenizer *b)
{
    struct dlc_buf ids_a = { 0 }, ids_b = { 0 };
    dlc_err err = DLC_OK;

    *n = 0;
    for (int32_t id = 0; err == DLC_OK && id < dlc_tokenizer_vocab_size(a); id++) {
        size_t size;
        const char *bytes = dlc_tokenizer_token(&size, a, id);

        if (!bytes || size == 0)
            continue;
        dlc_buf_clear(&ids_a);
        dlc_buf_clear(&ids_b);
        err = dlc_tokenizer_encode(&ids_a, a, bytes, size);
        if (err == DLC_OK)
            err = dlc_tokenizer_encode(&ids_b, b, bytes, size);
        if (err == DLC_OK && !same_ids(&ids_a, &ids_b) && (*n)++ == 0)
            *first = id;
    }
    dlc_buf_fini(&ids_a);
    dlc_buf_fini(&ids_b);
    return err;
}

/* The pre-tokenizer's name decides whether whole tokens go before merges, see above. A trained vocabulary has next to
 * no token that its own merges do not lead to, so that this rarely shows. */
static dlc_err compare_rules(dlc_tokenizer *ours, json_t *root, bool ignores_merges)
{
    json_t *model = json_object_get(root, "model");
    dlc_tokenizer *theirs = NULL;
    char *text;
    int32_t first = 0;
    dlc_err err;
    int n;

    if (json_is_true(json_object_get(model, "ignore_merges")) == ignores_merges)
        return DLC_OK;
    if (json_object_set_new(model, "ignore_merges", json_boolean(ignores_merges)) != 0 || !(text = dlc_json_dump(root)))
        return dlc_fail(DLC_ENOMEM, "out of memory: %s", where);
    err = dlc_tokenizer_parse(&theirs, text, strlen(text), where);
    if (err == DLC_OK)
        err = count_differences(&n, &first, ours, theirs);
    if (err == DLC_OK && n > 0)
        dlc_warn("programs that load this file encode %d of the tokens otherwise than %s says (the first is %d): they "
                 "%s a whole token before its merges",
                 n, where, (int)first, ignores_merges ? "take" : "do not take");
    dlc_tokenizer_destroy(theirs);
    dlc_free(text);
    return err;
}

static dlc_err put_all(struct dlc_gguf_pairs *pairs, const struct dlc_model_content *content, json_t *root)
{
    bool llama3 = splits_as_llama3(root);
    const json_t *model = json_object_get(root, "model");
    struct vocabulary v = { .vocab = json_object_get(model, "vocab"),
                            .added = json_object_get(root, "added_tokens"),
                            .n = content->config.vocab_size };
    dlc_err err = read_tokens(&v);

    if (err == DLC_OK) {
        dlc_gguf_put_text(pairs, "tokenizer.ggml.model", "gpt2");
        dlc_gguf_put_text(pairs, "tokenizer.ggml.pre", llama3 ? DLC__GGUF_PRE_LLAMA3 : DLC__GGUF_PRE_GPT2);
        put_tokens(pairs, &v);
        err = put_merges(pairs, json_object_get(model, "merges"));
    }
    /* Without these, readers take ids of GPT-2's vocabulary. */
    dlc_gguf_put_u32(pairs, "tokenizer.ggml.bos_token_id", (uint32_t)content->bos);
    dlc_gguf_put_u32(pairs, "tokenizer.ggml.eos_token_id", (uint32_t)content->eos);
    dlc_gguf_put_bool(pairs, "tokenizer.ggml.add_bos_token", content->add_bos);
    dlc_free(v.texts);
    dlc_free(v.types);
    return err;
}

dlc_err dlc__gguf_put_tokenizer(struct dlc_gguf_pairs *pairs, const struct dlc_model_content *content)
{
    int V = content->config.vocab_size;
    dlc_tokenizer *ours = NULL;
    json_t *root = NULL;
    dlc_err err;

    if (content->bos < 0 || content->bos >= V || content->eos < 0 || content->eos >= V)
        return dlc_fail(DLC_EINPUT, "tokens that begin and end a text are needed: they are %d and %d of %d",
                        content->bos, content->eos, V);
    DLC_TRY_TO(done, dlc_tokenizer_parse(&ours, content->tokenizer_json, content->tokenizer_json_bytes, where));
    DLC_TRY_TO(done, dlc_json_parse(&root, content->tokenizer_json, content->tokenizer_json_bytes, where));
    DLC_TRY_TO(done, put_all(pairs, content, root));
    err = compare_rules(ours, root, splits_as_llama3(root));
done:
    dlc_tokenizer_destroy(ours);
    json_decref(root);
    return err;
}
