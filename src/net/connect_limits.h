/* connect_limits.c, linked into executables: how long a peer may be silent in a handshake, in milliseconds. For tests. */
#ifndef DLC_NET_CONNECT_LIMITS_H
#define DLC_NET_CONNECT_LIMITS_H

extern int dlc_handshake_limit_ms;

#endif
