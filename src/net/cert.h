/* A run's own certificates: an Ed25519 authority and a server certificate signed by it, made once and kept in the run
 * folder with mode 0600. Islands trust exactly this authority, by its digest (the pin). Valid from 2000 to 2099, so
 * that a machine with a wrong clock still joins. */
#ifndef DLC_NET_CERT_H
#define DLC_NET_CERT_H

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

/* Makes ca.pem, server.pem (leaf and authority) and server.key in `folder` unless all are there already. The name is
 * "<run>.diloco"; addresses: n texts, names or IP addresses, that the certificate holds beside it. */
dlc_err dlc_cert_make(const char *folder, const char *run, const char *const *addresses, size_t n);

/* The pin of folder/ca.pem, and its text. */
dlc_err dlc_cert_pin(struct dlc_sha256 *out, struct dlc_buf *ca_pem, const char *folder);

#endif
