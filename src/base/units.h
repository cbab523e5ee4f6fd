/* Quantities with units, as people type and read them.
 *
 * Rates are a number and bit, kbit, mbit, gbit or tbit (a second; powers of 1000): "100mbit", "2.5gbit". A bare number
 * is refused, because bits, bytes and kilobits are all meant by it. Durations are a number and us, ms, s, min or h; a
 * bare number is seconds. Letters may be upper case, a space may stand before the unit. */
#ifndef DLC_BASE_UNITS_H
#define DLC_BASE_UNITS_H

#include "base/err.h"

/* `where` is put in front of the message ("--link"). DLC_EUSAGE with what is accepted; *out is unchanged then.
 * A rate is above zero and at most 1e18 bit/s, a duration zero or more and at most 1e12 s. */
dlc_err dlc_parse_rate(double *out_bits_per_s, const char *text, const char *where);
dlc_err dlc_parse_duration(double *out_s, const char *text, const char *where);

/* Three digits and a unit: "1.5 GB", "100 Mbit/s", "80 ms", "3.2 h", "151 million". What is not finite is "-". */
#define DLC_UNITS_TEXT 24
void dlc_format_bytes(char out[DLC_UNITS_TEXT], double bytes);
void dlc_format_rate(char out[DLC_UNITS_TEXT], double bits_per_s);
void dlc_format_duration(char out[DLC_UNITS_TEXT], double seconds);
void dlc_format_count(char out[DLC_UNITS_TEXT], double count);

#endif
