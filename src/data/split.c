#include "data/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"
#include "data/utf8.h"

#define WS "\\p{Z}\\x09-\\x0d\\x85" /* inside a class */
#define JIT_STACK_START_BYTES (32u << 10)
#define JIT_STACK_MAX_BYTES (1u << 20)

static const struct {
    const char *name;
    const char *pattern; /* verbatim: what files say */
    const char *matched; /* the same with \s written out */
} expressions[DLC_N_SPLITS] = {
    [DLC_SPLIT_GPT2] = {
        "gpt2",
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])|[" WS "]+",
    },
    [DLC_SPLIT_LLAMA3] = {
        "llama3",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*"
        "|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+",
    },
};

struct dlc_splitter {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

const char *dlc_split_pattern(dlc_split_kind kind)
{
    return expressions[kind].pattern;
}

const char *dlc_split_name(dlc_split_kind kind)
{
    return expressions[kind].name;
}

static void *take_memory(size_t n, void *unused)
{
    (void)unused;
    return dlc_alloc(n);
}

static void give_memory(void *p, void *unused)
{
    (void)unused;
    dlc_free(p);
}

/* Where PCRE2 has no JIT the interpreter does the same, more slowly. */
static void add_jit(dlc_splitter *s)
{
    if (pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) != 0)
        return;
    s->stack = pcre2_jit_stack_create(JIT_STACK_START_BYTES, JIT_STACK_MAX_BYTES, s->memory);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
}

dlc_err dlc_splitter_create(dlc_splitter **out, dlc_split_kind kind)
{
    dlc_splitter *s = dlc_calloc(1, sizeof *s);
    int code;
    PCRE2_SIZE at;

    *out = NULL;
    if (!s)
        return DLC_ENOMEM;
    s->memory = pcre2_general_context_create(take_memory, give_memory, NULL);
    if (!s->memory)
        goto no_memory;
    s->code = pcre2_compile((PCRE2_SPTR)expressions[kind].matched, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                            &at, NULL);
    if (!s->code) {
        dlc_splitter_destroy(s);
        return dlc_fail(DLC_EFAIL, "this PCRE2 cannot compile the %s split expression (error %d at %zu)",
                        expressions[kind].name, code, (size_t)at);
    }
    s->match = pcre2_match_data_create(1, s->memory);
    s->context = pcre2_match_context_create(s->memory);
    if (!s->match || !s->context)
        goto no_memory;
    add_jit(s);
    *out = s;
    return DLC_OK;
no_memory:
    dlc_splitter_destroy(s);
    return dlc_fail(DLC_ENOMEM, "out of memory: split expression");
}

void dlc_splitter_destroy(dlc_splitter *s)
{
    if (!s)
        return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->match);
    pcre2_code_free(s->code);
    pcre2_general_context_free(s->memory);
    dlc_free(s);
}

/* The text is known to be well-formed: the matcher's own check is off, and its JIT relies on that. */
static dlc_err split_valid(dlc_splitter *s, const char *text, size_t n, dlc_piece_fn fn, void *arg)
{
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
    size_t at = 0;

    while (at < n) {
        int rc = pcre2_match(s->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, s->match, s->context);

        if (rc < 0 || range[0] != at || range[1] <= at) /* both expressions match at every position */
            return dlc_fail(DLC_EFAIL, "split expression fails at byte %zu of %zu (PCRE2 code %d)", at, n, rc);
        DLC_TRY(fn(arg, text + at, range[1] - at));
        at = range[1];
    }
    return DLC_OK;
}

dlc_err dlc_split(dlc_splitter *s, const char *text, size_t size_bytes, dlc_piece_fn fn, void *arg)
{
    size_t at = 0;

    while (at < size_bytes) {
        size_t valid = dlc_utf8_valid_prefix(text + at, size_bytes - at);

        DLC_TRY(split_valid(s, text + at, valid, fn, arg));
        at += valid;
        if (at < size_bytes)
            DLC_TRY(fn(arg, text + at++, 1));
    }
    return DLC_OK;
}
