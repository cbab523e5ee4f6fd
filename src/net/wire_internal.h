/* For log.c: the library's connection behind a wire. Whoever uses it has stopped before dlc_wire_close. */
#ifndef DLC_NET_WIRE_INTERNAL_H
#define DLC_NET_WIRE_INTERNAL_H

#include <nats/nats.h>

#include "net/wire.h"

natsConnection *dlc__wire_connection(dlc_wire *w);

#endif
