/* diloco export: a model for other programs. */
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "ckpt/gguf_model.h"
#include "cli/convert.h"
#include "cli/verbs.h"

struct args {
    struct dlc_common common;
    const char *out, *format, *dtype;
};

static const char *const formats[] = { "hf", "gguf", NULL };
static const char *const dtypes[] = { "f32", "bf16", "f16", "q8_0", NULL };

#define AT(field) offsetof(struct args, field)

static const struct dlc_option options[] = {
    { "out", DLC_OPTION_TEXT, AT(out), .value = "PATH", .help = "a new folder (hf) or a file (gguf); needed" },
    { "format", DLC_OPTION_TEXT, AT(format), .choices = formats, .value = "NAME",
      .help = "what to write; needed unless PATH ends in .gguf" },
    { "dtype", DLC_OPTION_TEXT, AT(dtype), .choices = dtypes, .value = "NAME", .fallback = "f32",
      .help = "number format of the matrices" },
};

static dlc_stored stored_of(const char *name)
{
    dlc_stored type = DLC_STORED_F32;

    while (strcmp(dlc_stored_name(type), name) != 0)
        type++;
    return type;
}

static bool ends_in_gguf(const char *path)
{
    size_t n = strlen(path);

    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

/* For people who look at the file: the last part of what they called the model. */
static void make_name(char *out, size_t size, const char *path)
{
    size_t end = strlen(path), start;
    json_t *text;

    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/'; start--)
        ;
    snprintf(out, size, "%.*s", (int)(end - start < size ? end - start : size - 1), path + start);
    text = json_string(out); /* NULL: cut or made in the middle of a character */
    if (!text || strcmp(out, ".") == 0 || strcmp(out, "..") == 0)
        snprintf(out, size, "model");
    json_decref(text);
}

static dlc_err write_gguf(const dlc_model_source *source, const struct args *a, dlc_stored type)
{
    char name[256];

    make_name(name, sizeof name, a->common.words[0]);
    if (!dlc_model_source_content(source)->tokenizer_json)
        dlc_warn("%s has no tokenizer: programs can feed token ids to this model, but no text", a->out);
    return dlc_gguf_model_write(a->out, dlc_model_source_content(source), type, name);
}

static dlc_err check_args(struct args *a, const struct dlc_verb *verb)
{
    if (!a->out)
        return dlc_fail(DLC_EUSAGE, "--out is missing: diloco %s %s", verb->name, verb->usage);
    if (!a->format && ends_in_gguf(a->out))
        a->format = "gguf";
    if (!a->format)
        return dlc_fail(DLC_EUSAGE, "--format is missing: hf or gguf");
    if (strcmp(a->format, "gguf") == 0)
        return dlc_convert_check_gguf(a->out);
    if (strcmp(a->dtype, "q8_0") == 0)
        return dlc_fail(DLC_EUSAGE, "--dtype q8_0 is for --format gguf; hf takes f32, bf16 and f16");
    return dlc_convert_check_folder(a->out);
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .out = NULL };
    dlc_model_source *source;
    dlc_stored type;
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 1, 1));
    DLC_TRY(check_args(&a, verb));
    type = stored_of(a.dtype);
    DLC_TRY(dlc_model_source_open(&source, a.common.words[0]));
    if (strcmp(a.format, "gguf") == 0)
        err = write_gguf(source, &a, type);
    else
        err = dlc_model_folder_write_content(a.out, dlc_model_source_content(source), (dlc_dtype)type);
    if (err == DLC_OK)
        err = dlc_convert_print(a.out, a.format, type, dlc_model_source_content(source), a.common.json);
    dlc_model_source_close(source);
    return err;
}

const struct dlc_verb dlc_verb_export = {
    .name = "export",
    .summary = "a model for other programs: a Hugging Face folder or a GGUF file",
    .usage = "MODEL --out PATH --format hf|gguf [--dtype f32|bf16|f16|q8_0]",
    .text =
        "MODEL is a model folder, or a run folder for its latest checkpoint. hf writes a folder that transformers and "
        "vLLM open;\n"
        "gguf writes the one file that llama.cpp and Ollama load. f32 changes nothing; bf16 and f16 halve the size; "
        "q8_0 (GGUF)\n"
        "takes a byte for a value and a scale for 32 of them. Norms stay in f32 in GGUF. Memory is needed for the "
        "largest\n"
        "matrix, not for the model. Nothing but an older GGUF file is ever replaced. --json prints one object: "
        "{\"path\",\n"
        "\"format\", \"dtype\", \"parameters\", \"tokenizer\"}.\n\n"
        "  diloco export runs/a --out a.gguf --format gguf --dtype q8_0\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
