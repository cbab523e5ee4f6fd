/* Memory. Every allocation of the program goes through here, so that tests can fail the n-th one and count them.
 *
 * Nothing allocates inside a training step: big buffers are planned once (dlc_arena_*), and tests assert with
 * dlc_mem_n_allocs() that a step leaves the counter where it was. */
#ifndef DLC_BASE_MEM_H
#define DLC_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* NULL on failure, with the error text set; size 0 gives a valid pointer. Free with dlc_free (accepts NULL). */
void *dlc_alloc(size_t size_bytes);
void *dlc_calloc(size_t count, size_t size_bytes); /* zeroed; overflow of the product fails */
void *dlc_realloc(void *old, size_t size_bytes);   /* on failure `old` stays valid */
char *dlc_strdup(const char *s);
void dlc_free(void *p);

/* A large zeroed block, aligned to 64 bytes, with huge pages asked for where the system has them. One per purpose.
 * dlc_arena_alloc fails with DLC_ENOMEM and a text that names the purpose and the size.
 * The pages are not resident before they are touched. */
dlc_err dlc_arena_alloc(void **out, size_t size_bytes, const char *purpose);
void dlc_arena_free(void *p, size_t size_bytes); /* accepts NULL */

/* Allocations so far in this process (calls that returned memory, arenas included). */
uint64_t dlc_mem_n_allocs(void);

/* Allocations that failed so far. Where a library reports a failed allocation of its own as something else, comparing
 * this before and after tells. */
uint64_t dlc_mem_n_failed(void);

/* Tests: the n-th allocation from now fails (1 = the next one); 0 turns it off. */
void dlc_mem_fail_at(uint64_t n);

#endif
