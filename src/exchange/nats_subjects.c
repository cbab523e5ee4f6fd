#include "exchange/nats_subjects.h"

#include <stdio.h>
#include <string.h>

#include "exchange/nats_hub.h"

static struct dlc_subject make(const char *run, const char *where, const char *last)
{
    struct dlc_subject s;

    snprintf(s.text, sizeof s.text, "dlc.%s.%s%s", run, where, last);
    return s;
}

struct dlc_subject dlc_subject_up(const char *run, const char *identity)
{
    return make(run, "c.p.", identity);
}
struct dlc_subject dlc_subject_down(const char *run, const char *identity)
{
    return make(run, "s.p.", identity);
}
struct dlc_subject dlc_subject_answer(const char *run, const char *identity)
{
    return make(run, "s.a.", identity);
}
struct dlc_subject dlc_subject_give(const char *run, const char *identity)
{
    return make(run, "g.", identity);
}
struct dlc_subject dlc_subject_hub_give(const char *run)
{
    return make(run, "d.b", "");
}
struct dlc_subject dlc_subject_question(const char *run, const char *name)
{
    return make(run, "c.", name);
}
struct dlc_subject dlc_subject_all_up(const char *run)
{
    return make(run, "c.>", "");
}
struct dlc_subject dlc_subject_all_down(const char *run, const char *identity)
{
    return make(run, "s.*.", identity);
}

const char *dlc_subject_after(const char *subject, const char *prefix)
{
    size_t n = strlen(prefix);

    return strncmp(subject, prefix, n) == 0 ? subject + n : NULL;
}

bool dlc_identity_is_good(const char *identity)
{
    return strlen(identity) == DLC_IDENTITY_SIZE - 1 && strspn(identity, "0123456789abcdef") == DLC_IDENTITY_SIZE - 1;
}
