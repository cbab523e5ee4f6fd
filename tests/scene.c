#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "scene.h"

#include <signal.h>
#include <string.h>

#include "base/rng.h"
#include "history.h"
#include "runner.h"

#define N_WORDS 300
#define WORD_MAX 12

static void make_words(char words[N_WORDS][WORD_MAX + 1], struct dlc_rng *rng)
{
    static const char *const syllables[] = { "ka", "to", "ri", "men", "sol", "va", "ne", "du", "pel", "or" };

    for (int w = 0; w < N_WORDS; w++) {
        words[w][0] = '\0';
        for (uint64_t k = 0, n = 1 + dlc_rng_below(rng, 3); k < n; k++)
            strncat(words[w], syllables[dlc_rng_below(rng, 10)], WORD_MAX - strlen(words[w]));
    }
}

/* Each word has a few favourite followers: there is something to learn beyond how frequent the words are. */
static unsigned follower(unsigned word, struct dlc_rng *rng)
{
    if (dlc_rng_below(rng, 10) < 7)
        return (word * 7 + (unsigned)dlc_rng_below(rng, 3)) % N_WORDS;
    return (unsigned)(dlc_rng_below(rng, N_WORDS) * dlc_rng_below(rng, N_WORDS) / N_WORDS);
}

void scene_write_text(const char *name, uint64_t seed, size_t size_bytes)
{
    struct dlc_rng rng = { .seed = seed };
    char words[N_WORDS][WORD_MAX + 1];
    struct dlc_buf text = { 0 };
    unsigned word = 0;

    make_words(words, &rng);
    while (text.len < size_bytes) {
        assert_int_equal(dlc_buf_printf(&text, "{\"text\":\"document"), DLC_OK);
        for (int i = 0; i < 100; i++) {
            word = follower(word, &rng);
            assert_int_equal(dlc_buf_printf(&text, " %s", words[word]), DLC_OK);
        }
        assert_int_equal(dlc_buf_printf(&text, ".\"}\n"), DLC_OK);
    }
    assert_int_equal(dlc_file_write_atomic(in_scratch("%s", name), text.data, text.len), DLC_OK);
    dlc_buf_fini(&text);
}

void scene_prepare(void)
{
    scene_write_text("text.jsonl", 1, 300000);
    run_expecting(0, "prepare text.jsonl --out data --vocab-size 400 --val-fraction 0.1 --threads 1");
}

/* False: it was through before the signal came, on a machine that is busy with other things. */
static bool half_a_run(const char *name)
{
    struct child c = { 0 };
    int status;

    child_start(&c, TINY " --out %s --train.keep 3", name);
    while (history_lines(name) < 4) {
        if (child_has_ended(&c, &status))
            return false;
    }
    child_signal(&c, SIGKILL);
    child_wait(&c);
    runner_no_children("after half a run");
    return history_lines(name) < TINY_STEPS / TINY_H;
}

void scene_half_a_run(const char *name)
{
    for (int i = 0; !half_a_run(name); i++) {
        assert_true(i < 50);
        assert_int_equal(dlc_remove_tree(in_scratch("%s", name)), DLC_OK);
    }
}
