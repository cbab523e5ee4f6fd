/* diloco import: a model from elsewhere as a model folder. */
#include "cli/convert.h"
#include "cli/verbs.h"

struct args {
    struct dlc_common common;
    const char *out;
};

#define AT(field) offsetof(struct args, field)

static const struct dlc_option options[] = {
    { "out", DLC_OPTION_TEXT, AT(out), .value = "FOLDER", .help = "the new model folder; needed" },
};

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .out = NULL };
    dlc_model_source *source;
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 1, 1));
    if (!a.out)
        return dlc_fail(DLC_EUSAGE, "--out is missing: diloco %s %s", verb->name, verb->usage);
    DLC_TRY(dlc_convert_check_folder(a.out));
    DLC_TRY(dlc_model_source_open(&source, a.common.words[0]));
    err = dlc_model_folder_write_content(a.out, dlc_model_source_content(source), DLC_F32);
    if (err == DLC_OK)
        err = dlc_convert_print(a.out, "hf", DLC_STORED_F32, dlc_model_source_content(source), a.common.json);
    dlc_model_source_close(source);
    return err;
}

const struct dlc_verb dlc_verb_import = {
    .name = "import",
    .summary = "a model from elsewhere as a model folder",
    .usage = "FOLDER_OR_GGUF --out FOLDER",
    .text =
        "Takes a Hugging Face folder (Llama or Qwen3; f32, bf16 or f16; one file or shards) or a GGUF file of these "
        "architectures\n"
        "in f32, f16, bf16 or q8_0, and writes a model folder in f32. A model that would not compute the same here is "
        "refused\n"
        "with the reason. A tokenizer that is not a byte-level BPE with the splits of GPT-2 or Llama 3 is left out, "
        "which is said.\n\n"
        "  diloco import model.gguf --out models/theirs\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
