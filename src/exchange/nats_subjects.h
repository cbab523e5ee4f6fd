/* Subjects of the nats exchange: who publishes what where. docs/protocol.md section 9 has the table. */
#ifndef DLC_EXCHANGE_NATS_SUBJECTS_H
#define DLC_EXCHANGE_NATS_SUBJECTS_H

#include <stdbool.h>

#define DLC_SUBJECT_SIZE 128

struct dlc_subject {
    char text[DLC_SUBJECT_SIZE];
};

struct dlc_subject dlc_subject_up(const char *run, const char *identity);     /* packets of an island */
struct dlc_subject dlc_subject_down(const char *run, const char *identity);   /* packets for an island */
struct dlc_subject dlc_subject_answer(const char *run, const char *identity); /* answers to its questions */
struct dlc_subject dlc_subject_give(const char *run, const char *identity);   /* chunks of its contribution, asked for */
struct dlc_subject dlc_subject_hub_give(const char *run);                     /* chunks of the coordinator */
struct dlc_subject dlc_subject_question(const char *run, const char *name);   /* "join", "fact", "snapshot", "status" */

struct dlc_subject dlc_subject_all_up(const char *run);                        /* packets and questions */
struct dlc_subject dlc_subject_all_down(const char *run, const char *identity); /* packets and answers */

/* What comes after `prefix`; NULL: it does not begin so. */
const char *dlc_subject_after(const char *subject, const char *prefix);

/* 32 hexadecimal digits in small letters: cannot mean anything else in a subject. */
bool dlc_identity_is_good(const char *identity);

#endif
