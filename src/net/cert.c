/* X.509 by libcrypto. The authority's key is forgotten as soon as the server's certificate is signed: nobody can ever sign
 * another one that the pin would accept. */
#include "net/cert.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "net/private_file.h"

#define PEM_MAX_BYTES 65536

static dlc_err crypto_error(const char *what)
{
    unsigned long code = ERR_get_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    return dlc_fail(DLC_EFAIL, "%s: %s", what, text ? text : "libcrypto failed");
}

static dlc_err add_extension(X509 *cert, const X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;
    int ok;

    X509V3_set_ctx(&context, (X509 *)(uintptr_t)issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    if (!extension)
        return crypto_error(OBJ_nid2ln(nid));
    ok = X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    return ok ? DLC_OK : crypto_error(OBJ_nid2ln(nid));
}

static bool set_serial(X509 *cert)
{
    BIGNUM *serial = BN_new();
    bool ok = serial && BN_rand(serial, 127, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) &&
              BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(cert));

    BN_free(serial);
    return ok;
}

/* From 2000 to 2099: a machine whose clock is wrong joins all the same. */
static bool set_dates(X509 *cert)
{
    return ASN1_TIME_set_string(X509_getm_notBefore(cert), "20000101000000Z") &&
           ASN1_TIME_set_string(X509_getm_notAfter(cert), "20991231235959Z");
}

static bool set_name(X509 *cert, const char *name)
{
    return X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1,
                                      0);
}

/* A certificate with everything that both kinds have; not signed. issuer NULL: itself. */
static dlc_err make_base(X509 **out, EVP_PKEY *key, const char *name, const X509 *issuer)
{
    X509 *cert = X509_new();

    if (cert && X509_set_version(cert, X509_VERSION_3) && set_serial(cert) && set_dates(cert) && set_name(cert, name) &&
        X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer : cert)) && X509_set_pubkey(cert, key)) {
        *out = cert;
        return DLC_OK;
    }
    X509_free(cert);
    return crypto_error("certificate");
}

static dlc_err make_authority(X509 **out, EVP_PKEY *key, const char *run)
{
    char name[64];
    X509 *cert = NULL;
    dlc_err err;

    snprintf(name, sizeof name, "diloco run %s", run);
    DLC_TRY(make_base(&cert, key, name, NULL));
    DLC_TRY_TO(fail, add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
    DLC_TRY_TO(fail, add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign"));
    DLC_TRY_TO(fail, add_extension(cert, cert, NID_subject_key_identifier, "hash"));
    if (!X509_sign(cert, key, NULL)) {
        err = crypto_error("signature of the authority");
        goto fail;
    }
    *out = cert;
    return DLC_OK;
fail:
    X509_free(cert);
    return err;
}

static dlc_err alternative_names(struct dlc_buf *out, const char *run, const char *const *addresses, size_t n)
{
    unsigned char binary[16];

    DLC_TRY(dlc_buf_printf(out, "DNS:%s.diloco", run));
    for (size_t i = 0; i < n; i++) {
        bool ip = inet_pton(AF_INET, addresses[i], binary) == 1 || inet_pton(AF_INET6, addresses[i], binary) == 1;

        if (!ip && (!*addresses[i] || strpbrk(addresses[i], ",;:= \t\"\\")))
            return dlc_fail(DLC_EUSAGE, "'%s' is neither an address nor a host's name", addresses[i]);
        DLC_TRY(dlc_buf_printf(out, ",%s:%s", ip ? "IP" : "DNS", addresses[i]));
    }
    return DLC_OK;
}

static dlc_err make_leaf(X509 **out, EVP_PKEY *key, const char *run, const char *names, X509 *ca, EVP_PKEY *ca_key)
{
    char name[64];
    X509 *cert = NULL;
    dlc_err err;

    snprintf(name, sizeof name, "%s.diloco", run);
    DLC_TRY(make_base(&cert, key, name, ca));
    DLC_TRY_TO(fail, add_extension(cert, ca, NID_basic_constraints, "critical,CA:FALSE"));
    DLC_TRY_TO(fail, add_extension(cert, ca, NID_key_usage, "critical,digitalSignature"));
    DLC_TRY_TO(fail, add_extension(cert, ca, NID_ext_key_usage, "serverAuth,clientAuth")); /* routes check both ways */
    DLC_TRY_TO(fail, add_extension(cert, ca, NID_authority_key_identifier, "keyid:always"));
    DLC_TRY_TO(fail, add_extension(cert, ca, NID_subject_alt_name, names));
    if (!X509_sign(cert, ca_key, NULL)) {
        err = crypto_error("signature of the server's certificate");
        goto fail;
    }
    *out = cert;
    return DLC_OK;
fail:
    X509_free(cert);
    return err;
}

/* --- files -----------------------------------------------------------------------------------------------------------
 */

/* One of: two certificates (the second may be NULL), or a key. */
static dlc_err write_pem(const char *folder, const char *name, X509 *first, X509 *second, EVP_PKEY *key)
{
    char path[DLC_PATH_MAX], *bytes = NULL;
    BIO *bio = BIO_new(BIO_s_mem());
    bool ok = bio && (!first || PEM_write_bio_X509(bio, first)) && (!second || PEM_write_bio_X509(bio, second)) &&
              (!key || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL));
    long n = ok ? BIO_get_mem_data(bio, &bytes) : 0;
    dlc_err err = ok ? dlc_path_join(path, folder, name) : crypto_error(name);

    if (err == DLC_OK)
        err = dlc__private_write(path, bytes, (size_t)n);
    BIO_free(bio);
    return err;
}

static bool all_there(const char *folder)
{
    static const char *const names[] = { "ca.pem", "server.pem", "server.key" };
    char path[DLC_PATH_MAX];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (dlc_path_join(path, folder, names[i]) != DLC_OK || !dlc_file_exists(path))
            return false;
    return true;
}

struct made {
    EVP_PKEY *ca_key, *key;
    X509 *ca, *leaf;
    struct dlc_buf names;
};

static dlc_err make_all(struct made *m, const char *folder, const char *run, const char *const *addresses, size_t n)
{
    m->ca_key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    m->key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!m->ca_key || !m->key)
        return crypto_error("Ed25519 key");
    DLC_TRY(alternative_names(&m->names, run, addresses, n));
    DLC_TRY(make_authority(&m->ca, m->ca_key, run));
    DLC_TRY(make_leaf(&m->leaf, m->key, run, m->names.data, m->ca, m->ca_key));
    DLC_TRY(write_pem(folder, "server.key", NULL, NULL, m->key));
    DLC_TRY(write_pem(folder, "server.pem", m->leaf, m->ca, NULL));
    return write_pem(folder, "ca.pem", m->ca, NULL, NULL); /* last: with it the set is complete */
}

dlc_err dlc_cert_make(const char *folder, const char *run, const char *const *addresses, size_t n)
{
    struct made m = { 0 };
    char path[DLC_PATH_MAX];
    dlc_err err;

    if (all_there(folder))
        return DLC_OK;
    DLC_TRY(dlc__private_folder(folder));
    DLC_TRY(dlc_path_join(path, folder, "ca.pem"));
    remove(path); /* a part of an older set must not make this one look complete before it is */
    err = make_all(&m, folder, run, addresses, n);
    EVP_PKEY_free(m.ca_key);
    EVP_PKEY_free(m.key);
    X509_free(m.ca);
    X509_free(m.leaf);
    dlc_buf_fini(&m.names);
    return err;
}

dlc_err dlc_cert_pin(struct dlc_sha256 *out, struct dlc_buf *ca_pem, const char *folder)
{
    char path[DLC_PATH_MAX];
    unsigned char *der = NULL;
    X509 *cert;
    BIO *bio;
    int n;

    DLC_TRY(dlc_path_join(path, folder, "ca.pem"));
    DLC_TRY(dlc_file_read(ca_pem, path, PEM_MAX_BYTES));
    bio = BIO_new_mem_buf(ca_pem->data, (int)ca_pem->len);
    cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    n = cert ? i2d_X509(cert, &der) : -1;
    X509_free(cert);
    if (n < 0) {
        ERR_clear_error();
        return dlc_fail(DLC_EINPUT, "%s: is no certificate; remove the folder and start again", path);
    }
    *out = dlc_sha256(der, (size_t)n);
    OPENSSL_free(der);
    return DLC_OK;
}
