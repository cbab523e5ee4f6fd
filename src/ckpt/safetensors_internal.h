/* What reading and writing of safetensors share. */
#ifndef DLC_CKPT_SAFETENSORS_INTERNAL_H
#define DLC_CKPT_SAFETENSORS_INTERNAL_H

#define DLC__ST_MAX_HEADER_BYTES 100000000 /* the limit of the format's own reader */

#endif
