/* How much memory a run may use. */
#ifndef DLC_CONFIG_MEMORY_H
#define DLC_CONFIG_MEMORY_H

#include <stdint.h>

/* MiB that could be allocated now without swapping: what the kernel calls available, or what the control group still
 * allows if that is less; elsewhere the physical memory. 0 when nothing can be found out. */
int64_t dlc_memory_available_mb(void);

#endif
