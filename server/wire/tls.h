/* The certificate and key of --tls-cert and --tls-key: reads them, checks that they match, gives
 * them to libmicrohttpd's GnuTLS at each handshake, and reloads them (a renewed certificate). */
#ifndef SL_SERVER_TLS_H
#define SL_SERVER_TLS_H

#include "common/status.h"

#include <gnutls/abstract.h>

/* TLS 1.2 and later. */
#define SL_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.2:+VERS-TLS1.3"

/* cert_path: PEM, the server's certificate first, then its chain. key_path: PEM, without a
 * password. The pair is used from the next handshake on; on an error the old pair stays. Errors
 * name the file. One thread at a time; there is one pair per process, since libmicrohttpd's
 * callback does not know the server. */
enum sl_status sl_tls_load(const char *cert_path, const char *key_path,
                           struct sl_err *err) SL_MUST_CHECK;
/* Call it when no handshake runs any more. */
void sl_tls_release(void);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK2. */
int sl_tls_retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                    gnutls_pcert_st **certs, unsigned *n_certs, gnutls_ocsp_data_st **ocsp,
                    unsigned *n_ocsp, gnutls_privkey_t *key, unsigned *flags);

#endif
