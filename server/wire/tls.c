#include "server/wire/tls.h"

#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILE_BYTES (256u << 10)
#define MAX_CHAIN      16u

struct tls_pair {
    gnutls_pcert_st certs[MAX_CHAIN];
    unsigned n_certs;
    gnutls_privkey_t key;
    struct tls_pair *older; /* handshakes may still be at it: freed at the end */
};

static _Atomic(struct tls_pair *) current;

int sl_tls_retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                    gnutls_pcert_st **certs, unsigned *n_certs, gnutls_ocsp_data_st **ocsp,
                    unsigned *n_ocsp, gnutls_privkey_t *key, unsigned *flags) {
    (void)session;
    (void)info;
    struct tls_pair *p = atomic_load(&current);
    if (!p)
        return -1;
    *certs = p->certs;
    *n_certs = p->n_certs;
    *key = p->key;
    *ocsp = NULL;
    *n_ocsp = 0;
    *flags = 0;
    return 0;
}

static void pair_free(struct tls_pair *p) {
    for (unsigned i = 0; i < p->n_certs; i++)
        gnutls_pcert_deinit(&p->certs[i]);
    if (p->key)
        gnutls_privkey_deinit(p->key);
    free(p);
}

void sl_tls_release(void) {
    struct tls_pair *p = atomic_exchange(&current, NULL);
    while (p) {
        struct tls_pair *older = p->older;
        pair_free(p);
        p = older;
    }
}

/* All of a small file, ended by a zero. */
static enum sl_status read_file(const char *flag, const char *path, gnutls_datum_t *out,
                                struct stat *sb, struct sl_err *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot read %s %s: %s", flag, path, strerror(errno));
    size_t n = 0;
    ssize_t got = 0;
    unsigned char *p = malloc(MAX_FILE_BYTES + 1);
    bool failed = !p || fstat(fd, sb) != 0;
    while (!failed && n <= MAX_FILE_BYTES && (got = read(fd, p + n, MAX_FILE_BYTES + 1 - n)) > 0)
        n += (size_t)got;
    int saved = errno;
    close(fd);
    if (failed || got < 0 || n > MAX_FILE_BYTES || !n) {
        free(p);
        if (n > MAX_FILE_BYTES)
            return sl_fail(err, SL_ERR_CONFIG, "%s %s has more than %u bytes", flag, path,
                           MAX_FILE_BYTES);
        return sl_fail(err, SL_ERR_CONFIG, "cannot read %s %s: %s", flag, path,
                       failed || got < 0 ? strerror(saved) : "it is empty");
    }
    p[n] = '\0';
    *out = (gnutls_datum_t){p, (unsigned)n};
    return SL_OK;
}

static void file_free(gnutls_datum_t *f) {
    if (f->data)
        gnutls_memset(f->data, 0, f->size);
    free(f->data);
}

static void warn_expiry(const char *path, gnutls_x509_crt_t cert) {
    time_t now = time(NULL), from = gnutls_x509_crt_get_activation_time(cert),
           until = gnutls_x509_crt_get_expiration_time(cert);
    if (from > now)
        sl_warn("--tls-cert %s is not valid yet", path);
    else if (until < now)
        sl_warn("--tls-cert %s has expired: clients will refuse it", path);
    else if (until - now < 7 * 86400)
        sl_warn("--tls-cert %s expires in %lld hours", path, (long long)(until - now) / 3600);
}

static enum sl_status take_certs(struct tls_pair *p, const char *path, const gnutls_datum_t *pem,
                                 struct sl_err *err) {
    gnutls_x509_crt_t list[MAX_CHAIN];
    unsigned n = MAX_CHAIN;
    int rc = gnutls_x509_crt_list_import(list, &n, pem, GNUTLS_X509_FMT_PEM,
                                         GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
    if (rc < 0)
        return sl_fail(err, SL_ERR_CONFIG, "--tls-cert %s cannot be used: %s", path,
                       gnutls_strerror(rc));
    n = (unsigned)rc;
    warn_expiry(path, list[0]);
    for (rc = 0; p->n_certs < n && rc == 0; p->n_certs += rc == 0)
        rc = gnutls_pcert_import_x509(&p->certs[p->n_certs], list[p->n_certs], 0);
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(list[i]);
    if (rc < 0)
        return sl_fail(err, SL_ERR_CONFIG, "--tls-cert %s cannot be used: %s", path,
                       gnutls_strerror(rc));
    return SL_OK;
}

static enum sl_status take_key(struct tls_pair *p, const char *path, const gnutls_datum_t *pem,
                               struct sl_err *err) {
    int rc = gnutls_privkey_init(&p->key);
    if (rc == 0)
        rc = gnutls_privkey_import_x509_raw(p->key, pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc == GNUTLS_E_DECRYPTION_FAILED)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--tls-key %s is protected by a password; write it without one, readable "
                       "by this server alone",
                       path);
    if (rc < 0)
        return sl_fail(err, SL_ERR_CONFIG, "--tls-key %s cannot be used: %s", path,
                       gnutls_strerror(rc));
    return SL_OK;
}

/* Do they belong to each other: have they the same public key? */
static enum sl_status check_match(const struct tls_pair *p, const char *cert_path,
                                  const char *key_path, struct sl_err *err) {
    unsigned char a[64], b[64];
    size_t na = sizeof a, nb = sizeof b;
    gnutls_pubkey_t of_key = NULL;
    int rc = gnutls_pubkey_init(&of_key);
    if (rc == 0)
        rc = gnutls_pubkey_import_privkey(of_key, p->key, 0, 0);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(of_key, GNUTLS_KEYID_USE_SHA256, a, &na);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(p->certs[0].pubkey, GNUTLS_KEYID_USE_SHA256, b, &nb);
    if (of_key)
        gnutls_pubkey_deinit(of_key);
    if (rc < 0)
        return sl_fail(err, SL_ERR_CONFIG, "--tls-key %s cannot be used: %s", key_path,
                       gnutls_strerror(rc));
    if (na != nb || memcmp(a, b, na) != 0)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--tls-key %s is not the key of the first certificate in %s", key_path,
                       cert_path);
    return SL_OK;
}

enum sl_status sl_tls_load(const char *cert_path, const char *key_path, struct sl_err *err) {
    gnutls_datum_t cert = {NULL, 0}, key = {NULL, 0};
    struct stat sb;
    struct tls_pair *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    enum sl_status status = read_file("--tls-cert", cert_path, &cert, &sb, err);
    if (status == SL_OK)
        status = take_certs(p, cert_path, &cert, err);
    if (status == SL_OK)
        status = read_file("--tls-key", key_path, &key, &sb, err);
    if (status == SL_OK && (sb.st_mode & S_IRWXO))
        sl_warn("--tls-key %s can be read by everybody on this machine", key_path);
    if (status == SL_OK)
        status = take_key(p, key_path, &key, err);
    if (status == SL_OK)
        status = check_match(p, cert_path, key_path, err);
    file_free(&cert);
    file_free(&key);
    if (status != SL_OK) {
        pair_free(p);
        return status;
    }
    p->older = atomic_load(&current);
    atomic_store(&current, p);
    return SL_OK;
}
