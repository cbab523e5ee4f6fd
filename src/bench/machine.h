/* What the system tells about the machine and about this process. */
#ifndef DLC_BENCH_MACHINE_H
#define DLC_BENCH_MACHINE_H

#include <stddef.h>

void dlc_machine_cpu(char *out, size_t size); /* "AMD EPYC 7B13"; the architecture's name where that is unknown */
size_t dlc_machine_cache_bytes(void);         /* the last level that the system tells; 0: unknown */

/* Highest resident memory of the process so far; 0: unknown. After a reset (which not every system allows): since then.
 */
size_t dlc_machine_peak_rss_bytes(void);
void dlc_machine_reset_peak_rss(void);

#endif
