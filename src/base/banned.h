/* Functions that this project does not use, each with what to use instead. Force-included in every file. */
#ifndef DLC_BASE_BANNED_H
#define DLC_BASE_BANNED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef strcpy
#undef strcat
#undef sprintf
#undef vsprintf
#define strcpy(...) banned_strcpy_use_snprintf
#define strcat(...) banned_strcat_use_dlc_buf
#define sprintf(...) banned_sprintf_use_snprintf
#define vsprintf(...) banned_vsprintf_use_vsnprintf
#define atoi(...) banned_atoi_use_strtoll
#define atof(...) banned_atof_use_strtod
#define rand(...) banned_rand_use_dlc_rng
#define strtok(...) banned_strtok_use_strtok_r

#endif
