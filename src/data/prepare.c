#include "data/prepare.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/cores.h"
#include "data/bpe_train.h"
#include "data/documents.h"
#include "data/encoder.h"
#include "data/inputs.h"
#include "data/meta.h"
#include "data/shard.h"
#include "data/shard_writer.h"

#define PROGRESS_SECONDS 5.0
#define MIN_PAIR_COUNT 2      /* a pair that occurs once is no pattern */
#define PACKED_RATIO 4        /* assumed: text bytes a byte of gzip or zstd, for sharing out the training text */
#define TAIL_MIN_TOKENS 4096  /* a validation set cut off the tail has this many, or a tenth of a small text */
#define SMALL_VAL_TOKENS 1024 /* below this the loss says little */
#define OTHER_LABEL "other"

struct prepare {
    const struct dlc_prepare_config *config;
    struct dlc_prepare_result *result;
    char spool[DLC_PATH_MAX];
    struct dlc_inputs inputs;
    dlc_split_kind split;
    dlc_tokenizer *tokenizer;
    uint32_t *token_bytes;

    /* the pass over the text */
    const struct dlc_input *input; /* being read */
    dlc_reader *reader;
    dlc_encoder *encoder;
    struct dlc_encode_batch batches[2];
    int filling; /* which of them; the other may be at work */
    bool working;
    struct dlc_shard_writer *writer;
    struct dlc_documents_stats documents;
    uint64_t n_binary;
    int stream; /* of the document being read */

    char (*sources)[DLC_LABEL_BYTES];
    int n_sources, last_source;
    uint64_t n_merged_documents; /* of sources above the limit */

    double started_s, said_s;
    uint64_t done_bytes; /* of the files before this one */

    const char *val_split;
};

/* ---- progress ---- */

static void say_progress(struct prepare *p, const char *doing, uint64_t done, uint64_t total)
{
    double now = dlc_now_s(), elapsed = now - p->started_s, share = total ? (double)done / (double)total : 1;

    if (now - p->said_s < PROGRESS_SECONDS)
        return;
    p->said_s = now;
    if (share > 0.001 && share <= 1)
        dlc_info("%s: %.0f %%, %.1f MB/s, %.0f s left", doing, 100 * share, (double)done / elapsed * 1e-6,
                 elapsed * (1 - share) / share);
}

static void start_clock(struct prepare *p)
{
    p->started_s = p->said_s = dlc_now_s();
    p->done_bytes = 0;
}

/* ---- the tokenizer ---- */

struct training {
    dlc_bpe_trainer *trainer;
    uint64_t left; /* bytes that this file may still contribute */
};

static dlc_err feed_trainer(void *arg, const struct dlc_piece *piece)
{
    struct training *t = arg;
    size_t n = piece->size_bytes < t->left ? piece->size_bytes : (size_t)t->left;

    DLC_TRY(dlc_bpe_trainer_feed(t->trainer, piece->text, n));
    t->left -= n;
    return t->left == 0 ? DLC_ESTOPPED : DLC_OK;
}

static uint64_t weight_of(const struct dlc_input *input)
{
    size_t n = strlen(input->path);
    bool packed = n > 4 && (strcmp(input->path + n - 3, ".gz") == 0 || strcmp(input->path + n - 4, ".zst") == 0);

    return input->size_bytes * (packed ? PACKED_RATIO : 1);
}

static const char *name_of(const struct prepare *p, const struct dlc_input *input)
{
    return strcmp(input->path, p->spool) == 0 ? "standard input" : input->path;
}

static dlc_err read_input(struct prepare *p, const struct dlc_input *input, struct dlc_documents_stats *stats,
                          dlc_document_fn fn, void *arg)
{
    struct dlc_documents_config config = { .jsonl = input->jsonl,
                                           .named = input->named,
                                           .json_key = p->config->json_key };
    dlc_err err;

    DLC_TRY(dlc_reader_open(&p->reader, input->path, name_of(p, input)));
    err = dlc_documents_read(stats, p->reader, &config, fn, arg);
    dlc_reader_close(p->reader);
    p->reader = NULL;
    p->done_bytes += input->size_bytes;
    return err;
}

/* Each file contributes its beginning, in proportion to its size. */
static dlc_err feed_all(struct prepare *p, dlc_bpe_trainer *trainer)
{
    double total = 0, share;

    for (size_t i = 0; i < p->inputs.n; i++)
        total += (double)weight_of(&p->inputs.items[i]);
    share = total > 0 ? (double)p->config->bpe_train_bytes / total : 1;
    start_clock(p);
    for (size_t i = 0; i < p->inputs.n; i++) {
        const struct dlc_input *input = &p->inputs.items[i];
        struct dlc_documents_stats unused = { 0 };
        struct training t = { .trainer = trainer, .left = UINT64_MAX };
        dlc_err err;

        if (share < 1)
            t.left = (uint64_t)(share * (double)weight_of(input)) + 1;
        err = read_input(p, input, &unused, feed_trainer, &t);
        if (err != DLC_OK && err != DLC_ESTOPPED)
            return err;
        say_progress(p, "reading for the tokenizer", p->done_bytes, p->inputs.total_bytes);
    }
    if (share < 1)
        dlc_info("tokenizer: trained on the beginning of each file, %.1f MB of about %.1f MB",
                 (double)p->config->bpe_train_bytes * 1e-6, total * 1e-6);
    return DLC_OK;
}

static dlc_err train_tokenizer(struct prepare *p)
{
    dlc_bpe_trainer *trainer;
    dlc_err err;

    DLC_TRY(dlc_bpe_trainer_create(&trainer, p->split));
    err = feed_all(p, trainer);
    if (err == DLC_OK)
        err = dlc_bpe_trainer_finish(&p->tokenizer, trainer, p->config->vocab_size, MIN_PAIR_COUNT);
    if (err == DLC_OK && dlc_bpe_trainer_n_left_out(trainer))
        dlc_info("tokenizer: more than %zu different words; %llu rare ones that came later were not counted",
                 DLC_BPE_WORDS_MAX, (unsigned long long)dlc_bpe_trainer_n_left_out(trainer));
    if (err == DLC_OK && dlc_tokenizer_vocab_size(p->tokenizer) < p->config->vocab_size)
        dlc_info("tokenizer: vocabulary of %d instead of %d: the text has no more pairs that occur twice",
                 dlc_tokenizer_vocab_size(p->tokenizer), p->config->vocab_size);
    dlc_bpe_trainer_destroy(trainer);
    return err;
}

static dlc_err get_tokenizer(struct prepare *p)
{
    if (p->config->tokenizer)
        DLC_TRY(dlc_tokenizer_load(&p->tokenizer, p->config->tokenizer));
    else
        DLC_TRY(train_tokenizer(p));
    p->result->vocab_size = dlc_tokenizer_vocab_size(p->tokenizer);
    p->token_bytes = dlc_calloc((size_t)p->result->vocab_size, sizeof *p->token_bytes);
    if (!p->token_bytes)
        return DLC_ENOMEM;
    for (int id = 0; id < p->result->vocab_size; id++) {
        size_t n;

        (void)dlc_tokenizer_token(&n, p->tokenizer, id);
        p->token_bytes[id] = (uint32_t)n;
    }
    return DLC_OK;
}

/* ---- encoding ---- */

static dlc_err write_batch(struct prepare *p, struct dlc_encode_batch *b)
{
    for (size_t i = 0; i < b->n_items; i++)
        DLC_TRY(dlc_shard_writer_add(p->writer, b->items[i].stream, dlc_encode_batch_ids(b, &b->items[i]),
                                     b->items[i].n_ids));
    for (size_t i = 0; i < b->n_units; i++)
        p->result->n_invalid_utf8 += b->units[i].n_invalid;
    dlc_encode_batch_clear(b);
    return DLC_OK;
}

static dlc_err finish_work(struct prepare *p)
{
    if (!p->working)
        return DLC_OK;
    p->working = false;
    DLC_TRY(dlc_encoder_wait(p->encoder));
    return write_batch(p, &p->batches[!p->filling]);
}

/* The full batch goes to the threads, its predecessor to the shards. */
static dlc_err hand_over(struct prepare *p)
{
    DLC_TRY(finish_work(p));
    dlc_encoder_start(p->encoder, &p->batches[p->filling]);
    p->working = true;
    p->filling = !p->filling;
    return DLC_OK;
}

static int find_source(struct prepare *p, const char *label)
{
    if (p->n_sources && strcmp(p->sources[p->last_source], label) == 0)
        return p->last_source;
    for (int i = 0; i < p->n_sources; i++) {
        if (strcmp(p->sources[i], label) == 0)
            return p->last_source = i;
    }
    return -1;
}

/* The last place is kept for all sources that find no place. */
static int source_index(struct prepare *p, const struct dlc_piece *piece)
{
    char label[DLC_LABEL_BYTES];
    int source;

    if (piece->source && piece->source_size)
        dlc_label_set(label, piece->source, piece->source_size);
    else
        memcpy(label, p->input->label, sizeof label);
    source = find_source(p, label);
    if (source >= 0)
        return source;
    if (p->n_sources >= DLC_SOURCES_MAX - 1) {
        p->n_merged_documents++;
        snprintf(label, sizeof label, OTHER_LABEL);
        source = find_source(p, label);
        if (source >= 0)
            return source;
    }
    memcpy(p->sources[p->n_sources], label, sizeof label);
    return p->n_sources++;
}

static bool is_val(const struct prepare *p, uint64_t hash)
{
    return (double)(hash >> 11) * 0x1p-53 < p->config->val_fraction;
}

static dlc_err take_piece(void *arg, const struct dlc_piece *piece)
{
    struct prepare *p = arg;
    struct dlc_encode_batch *b = &p->batches[p->filling];

    if (piece->first)
        p->stream = dlc_shard_stream_index(source_index(p, piece), is_val(p, piece->hash));
    DLC_TRY(dlc_encode_batch_add(b, piece->text, piece->size_bytes, p->stream, piece->first));
    p->result->n_bytes += piece->size_bytes;
    if (!dlc_encode_batch_full(b))
        return DLC_OK;
    say_progress(p, "encoding", p->done_bytes + dlc_reader_consumed(p->reader), p->inputs.total_bytes);
    return hand_over(p);
}

static dlc_err encode_input(struct prepare *p)
{
    uint64_t before = p->documents.n_documents;
    bool named = p->input->named;

    p->documents.binary = false;
    DLC_TRY(read_input(p, p->input, &p->documents, take_piece, p));
    p->n_binary += p->documents.binary;
    if (named && p->documents.n_documents == before)
        return dlc_fail(DLC_EINPUT, "%s: no text in it", name_of(p, p->input));
    return DLC_OK;
}

static dlc_err encode_all(struct prepare *p)
{
    int n_threads = p->config->n_threads > 0 ? p->config->n_threads : dlc_n_cores();

    p->sources = dlc_calloc(DLC_SOURCES_MAX, sizeof *p->sources);
    p->writer = dlc_alloc(sizeof *p->writer);
    if (!p->sources || !p->writer)
        return DLC_ENOMEM;
    dlc_shard_writer_init(p->writer, p->config->out, p->result->vocab_size <= DLC_SHARD_VOCAB_16 ? 2 : 4,
                          p->config->shard_tokens, p->token_bytes);
    DLC_TRY(dlc_encoder_create(&p->encoder, p->tokenizer, n_threads));
    start_clock(p);
    for (size_t i = 0; i < p->inputs.n; i++) {
        p->input = &p->inputs.items[i];
        DLC_TRY(encode_input(p));
    }
    DLC_TRY(hand_over(p));
    DLC_TRY(finish_work(p));
    p->result->n_documents = p->documents.n_documents;
    if (p->result->n_documents == 0)
        return dlc_fail(DLC_EINPUT,
                        "no document with text in the input (%llu files: %llu binary; %llu empty documents)",
                        (unsigned long long)p->inputs.n, (unsigned long long)p->n_binary,
                        (unsigned long long)p->documents.n_empty);
    return dlc_shard_writer_close_all(p->writer);
}

/* ---- validation ---- */

/* Both parts keep two tokens, an input and a target; 0 when that is not possible. */
static uint64_t tail_tokens(const struct prepare *p, uint64_t n)
{
    uint64_t least = n / 10 < TAIL_MIN_TOKENS ? n / 10 : TAIL_MIN_TOKENS;
    uint64_t wanted = (uint64_t)ceil(p->config->val_fraction * (double)n);

    if (n < 4)
        return 0;
    if (wanted < least)
        wanted = least;
    return wanted < n / 2 ? wanted : n / 2;
}

/* For texts too few for a share of documents: the end of each source's text. */
static dlc_err split_tail(struct prepare *p)
{
    int32_t mark = dlc_tokenizer_eot(p->tokenizer);
    uint64_t n_train = dlc_shard_writer_n_tokens(p->writer, false), n_val = 0;

    for (int s = 0; s < p->n_sources; s++) {
        uint64_t tail = tail_tokens(p, dlc_shard_writer_source_tokens(p->writer, s, false));

        if (tail > 0)
            DLC_TRY(dlc_shard_writer_move_tail(p->writer, s, tail, mark));
        n_val += tail;
    }
    if (n_val == 0)
        return dlc_fail(DLC_EINPUT,
                        "too little text: %llu tokens in all, and no source has 4, so that nothing can be "
                        "learned and checked",
                        (unsigned long long)n_train);
    p->val_split = "tail";
    dlc_info("validation: a share of %g of %llu documents is none; the last %llu of %llu tokens are used instead",
             p->config->val_fraction, (unsigned long long)p->result->n_documents, (unsigned long long)n_val,
             (unsigned long long)n_train);
    return DLC_OK;
}

static dlc_err settle_validation(struct prepare *p)
{
    p->val_split = p->config->val_fraction > 0 ? "hash" : "none";
    if (dlc_shard_writer_n_tokens(p->writer, false) == 0)
        dlc_shard_writer_val_to_train(p->writer);
    if (dlc_shard_writer_n_tokens(p->writer, true) == 0 && p->config->val_fraction > 0)
        DLC_TRY(split_tail(p));
    p->result->n_train_tokens = dlc_shard_writer_n_tokens(p->writer, false);
    p->result->n_val_tokens = dlc_shard_writer_n_tokens(p->writer, true);
    if (p->result->n_val_tokens == 0)
        dlc_info("validation: none (share 0)");
    else if (p->result->n_val_tokens < SMALL_VAL_TOKENS)
        dlc_info("validation: only %llu tokens; its loss will be a rough figure",
                 (unsigned long long)p->result->n_val_tokens);
    return DLC_OK;
}

/* ---- the result ---- */

static void say_left_out(struct prepare *p)
{
    const struct {
        uint64_t n;
        const char *what;
    } rows[] = {
        { p->inputs.n_other, "files in folders left out: neither .txt nor .jsonl (.gz, .zst)" },
        { p->inputs.n_empty, "empty files left out" },
        { p->n_binary, "binary files left out" },
        { p->inputs.n_again, "files or folders reached a second time, read once" },
        { p->documents.n_empty, "empty documents left out" },
        { p->n_merged_documents,
          "documents of further sources are labelled \"" OTHER_LABEL "\" (256 sources at most)" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].n)
            dlc_info("%llu %s", (unsigned long long)rows[i].n, rows[i].what);
    }
    if (p->result->n_invalid_utf8)
        dlc_warn("%llu bytes are not UTF-8; they are kept as they are, one token each",
                 (unsigned long long)p->result->n_invalid_utf8);
    if (p->documents.n_replaced)
        dlc_warn("%llu places in JSON lines are not UTF-8; U+FFFD stands for each",
                 (unsigned long long)p->documents.n_replaced);
    if (p->documents.n_nul)
        dlc_warn("%llu zero bytes inside text files; they are kept", (unsigned long long)p->documents.n_nul);
    p->result->n_invalid_utf8 += p->documents.n_replaced;
    p->result->n_skipped = p->inputs.n_other + p->inputs.n_empty + p->n_binary + p->documents.n_empty;
}

/* What shards are called: the folder's name, in characters that need no quoting. */
static dlc_err shard_base_name(char out[64], const char *folder)
{
    char real[PATH_MAX];
    const char *name;
    size_t n = 0;

    if (!realpath(folder, real))
        return dlc_fail_errno(DLC_EIO, "%s", folder);
    name = strrchr(real, '/') + 1;
    for (; *name && n < 63; name++) {
        bool plain = strchr("-_.", *name) || (*name >= '0' && *name <= '9') || (*name >= 'a' && *name <= 'z') ||
                     (*name >= 'A' && *name <= 'Z');

        out[n] = plain && !(n == 0 && *name == '.') ? *name : '_';
        n++;
    }
    out[n] = '\0';
    if (n == 0)
        snprintf(out, 64, "data");
    return DLC_OK;
}

static dlc_err publish_shards(struct prepare *p, struct dlc_data_meta *meta, const char *meta_path)
{
    char name[64], path[DLC_PATH_MAX];
    struct dlc_buf json = { 0 };
    dlc_err err;

    DLC_TRY(shard_base_name(name, p->config->out));
    DLC_TRY(dlc_path_join(path, p->config->out, "tokenizer.json"));
    if (unlink(meta_path) == 0) /* from here on until meta.json is back the folder is unfinished */
        DLC_TRY(dlc_fsync_folder(p->config->out));
    DLC_TRY(dlc_shard_writer_publish(&meta->shards, &meta->n_shards, p->writer, name));
    err = dlc_tokenizer_to_json(&json, p->tokenizer);
    if (err == DLC_OK)
        err = dlc_file_write_atomic(path, json.data, json.len);
    dlc_buf_fini(&json);
    return err == DLC_OK ? dlc_data_meta_write(meta_path, meta) : err;
}

static dlc_err publish(struct prepare *p)
{
    struct dlc_data_meta meta = { .vocab_size = p->result->vocab_size,
                                  .eot = dlc_tokenizer_eot(p->tokenizer),
                                  .width = p->writer->width,
                                  .val_split = p->val_split,
                                  .val_fraction = p->config->val_fraction,
                                  .n_documents = p->result->n_documents,
                                  .n_bytes = p->result->n_bytes,
                                  .n_invalid_utf8 = p->result->n_invalid_utf8,
                                  .n_skipped = p->result->n_skipped,
                                  .sources = p->sources,
                                  .n_sources = p->n_sources };
    char meta_path[DLC_PATH_MAX];
    dlc_err err;

    DLC_TRY(dlc_tokenizer_digest(&meta.tokenizer_digest, p->tokenizer));
    DLC_TRY(dlc_path_join(meta_path, p->config->out, "meta.json"));
    err = publish_shards(p, &meta, meta_path);
    dlc_free(meta.shards);
    return err;
}

/* ---- all of it ---- */

static dlc_err check_config(dlc_split_kind *split, const struct dlc_prepare_config *c)
{
    if (!c->tokenizer && (c->vocab_size < DLC_VOCAB_MIN || c->vocab_size > 1 << 20))
        return dlc_fail(DLC_EUSAGE, "vocabulary size %d: must be %d (256 bytes and the document mark) to %d",
                        c->vocab_size, DLC_VOCAB_MIN, 1 << 20);
    if (!(c->val_fraction >= 0 && c->val_fraction < 1))
        return dlc_fail(DLC_EUSAGE, "validation share %g: must be at least 0 and below 1", c->val_fraction);
    if (c->shard_tokens < 1 || c->shard_tokens > DLC_SHARD_TOKENS_MAX)
        return dlc_fail(DLC_EUSAGE, "%llu tokens a shard: must be 1 to %llu", (unsigned long long)c->shard_tokens,
                        (unsigned long long)DLC_SHARD_TOKENS_MAX);
    if (c->bpe_train_bytes < 1)
        return dlc_fail(DLC_EUSAGE, "the tokenizer needs some text to be trained on, 0 bytes are given");
    *split = DLC_SPLIT_GPT2;
    if (!c->regex)
        return DLC_OK;
    while (*split < DLC_N_SPLITS && strcmp(c->regex, dlc_split_name(*split)) != 0)
        ++*split;
    if (*split == DLC_N_SPLITS)
        return dlc_fail(DLC_EUSAGE, "split expression '%.40s': must be gpt2 or llama3", c->regex);
    return DLC_OK;
}

static dlc_err run(struct prepare *p)
{
    DLC_TRY(dlc_shard_remove_parts(p->config->out)); /* of an interrupted run */
    DLC_TRY(dlc_inputs_find(&p->inputs, p->config->inputs, p->config->n_inputs, p->spool));
    DLC_TRY(get_tokenizer(p));
    DLC_TRY(encode_all(p));
    DLC_TRY(settle_validation(p));
    say_left_out(p);
    return publish(p);
}

static void release(struct prepare *p)
{
    dlc_encoder_destroy(p->encoder); /* before the batches it may be working on */
    dlc_encode_batch_fini(&p->batches[0]);
    dlc_encode_batch_fini(&p->batches[1]);
    if (p->writer)
        dlc_shard_writer_fini(p->writer);
    dlc_free(p->writer);
    dlc_free(p->sources);
    dlc_free(p->token_bytes);
    dlc_tokenizer_destroy(p->tokenizer);
    dlc_inputs_free(&p->inputs);
}

dlc_err dlc_prepare(struct dlc_prepare_result *out, const struct dlc_prepare_config *config)
{
    struct prepare p = { .config = config, .result = out };
    char lock[DLC_PATH_MAX], text[1024];
    int lock_fd;
    dlc_err err;

    *out = (struct dlc_prepare_result){ 0 };
    DLC_TRY(check_config(&p.split, config));
    DLC_TRY(dlc_mkdir_p(config->out));
    DLC_TRY(dlc_path_join(p.spool, config->out, ".stdin.tmp"));
    DLC_TRY(dlc_path_join(lock, config->out, ".prepare.lock"));
    DLC_TRY(dlc_lock_take(&lock_fd, lock));
    err = run(&p);
    release(&p);
    unlink(p.spool);
    if (err != DLC_OK) {
        snprintf(text, sizeof text, "%s", dlc_err_text());
        (void)dlc_shard_remove_parts(config->out); /* after a full disk above all; the first error counts */
        dlc_fail(err, "%s", text);
    }
    dlc_lock_release(lock_fd);
    return err;
}
