/* The layout of what stands in the LOG stream: an entry is cut into parts, one message each. docs/protocol.md has the
 * table. Received bytes may be anything. */
#ifndef DLC_NET_LOG_PART_H
#define DLC_NET_LOG_PART_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/digest.h"

#define DLC_LOG_PART_HEADER_BYTES 80
#define DLC_LOG_PART_BYTES ((size_t)256 << 10) /* far below every server's max_payload */
#define DLC_LOG_PARTS_MAX 64

struct dlc_log_part {
    uint64_t writer;          /* drawn by the process that wrote it */
    uint32_t index, count;    /* part index of count */
    uint64_t total_bytes;     /* of the entry */
    struct dlc_sha256 digest; /* of the entry */
    const void *bytes;
    size_t size_bytes;
};

/* How many parts an entry has: at least one. */
uint32_t dlc_log_part_count(uint64_t total_bytes);

/* In place of out's content. */
dlc_err dlc_log_part_encode(struct dlc_buf *out, const struct dlc_log_part *part);

/* part->bytes points into `bytes`. DLC_EPEER: no part of ours, or damaged. */
dlc_err dlc_log_part_decode(struct dlc_log_part *out, const void *bytes, size_t size_bytes);

/* Parts in their order become an entry. Zero-initialise; dlc_log_assembly_fini at the end. */
struct dlc_log_assembly {
    struct dlc_buf entry;
    struct dlc_log_part last; /* count 0: nothing was begun; its bytes are not kept */
};
/* *whole: the entry stands in a->entry. A part that does not follow the one before begins anew, or is dropped. */
dlc_err dlc_log_assembly_add(struct dlc_log_assembly *a, const struct dlc_log_part *part, int *whole);
void dlc_log_assembly_clear(struct dlc_log_assembly *a); /* keeps the memory */
void dlc_log_assembly_fini(struct dlc_log_assembly *a);

#endif
