#include "net/transport.h"

#include "common/clock.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* TLS 1.3, with the shared key and a fresh Diffie-Hellman exchange, and nothing else: no
 * certificates, no tickets, no earlier versions. */
#define PRIORITY                                                                                   \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK:-CIPHER-ALL:+AES-128-GCM:+CHACHA20-POLY1305"
/* Keys have no names: there is one. */
#define IDENTITY "sluice"

/* Records go to the socket, and come from it, several at a time: a call of the kernel for each, and
 * one more for its head, took as long as their encryption. */
#define RECORD_BYTES 16384u
#define RECORDS      4u
#define MORE_BYTES                                                                                 \
    1024u /* heads and tags of those; alerts and new keys, which are sent at any time */

/* GnuTLS's own for a session: 20 to 25 KiB, and more in a handshake and for a record whose end has
 * not come. */
#define TLS_BYTES ((size_t)64 << 10)

/* Encrypted bytes. */
struct buffer {
    size_t first, end;
    uint8_t bytes[RECORDS * RECORD_BYTES + MORE_BYTES];
};

struct sl_transport {
    int fd;
    gnutls_session_t tls; /* NULL: plain */
    gnutls_psk_client_credentials_t client;
    gnutls_psk_server_credentials_t server;
    const struct sl_net_key *key; /* during the handshake */
    /* Reading may have to write (an update of keys), so the session is one thread's at a time; its
     * calls do not block. */
    pthread_mutex_t lock;
    struct buffer *in,
        *out;     /* with TLS, once the peer has proven itself: before that it costs less */
    size_t taken; /* bytes of the write that goes on, which are in out */
    bool heard;   /* the peer has sent something */
    bool ended;   /* ... and has closed its side */
    bool cut;     /* the socket has failed, whatever GnuTLS makes of it */
    int error;    /* errno of the socket's, which GnuTLS keeps for itself */
};

static enum sl_status lost(const char *what, int error, struct sl_err *err) {
    return sl_fail(err, SL_ERR_PEER_LOST, "%s: %s", what, strerror(error));
}

/* ---- making ---- */

static int find_key(gnutls_session_t session, const gnutls_datum_t *name, gnutls_datum_t *out) {
    const struct sl_transport *t = gnutls_session_get_ptr(session);
    if (name->size != strlen(IDENTITY) || memcmp(name->data, IDENTITY, name->size) != 0)
        return -1;
    out->data = gnutls_malloc(SL_NET_KEY_BYTES);
    if (!out->data)
        return -1;
    memcpy(out->data, t->key->bytes, SL_NET_KEY_BYTES);
    out->size = SL_NET_KEY_BYTES;
    return 0;
}

static int give_credentials(struct sl_transport *t, bool listens) {
    if (listens) {
        int rc = gnutls_psk_allocate_server_credentials(&t->server);
        if (rc != GNUTLS_E_SUCCESS)
            return rc;
        gnutls_psk_set_server_credentials_function2(t->server, find_key);
        return gnutls_credentials_set(t->tls, GNUTLS_CRD_PSK, t->server);
    }
    int rc = gnutls_psk_allocate_client_credentials(&t->client);
    if (rc != GNUTLS_E_SUCCESS)
        return rc;
    unsigned char copy[SL_NET_KEY_BYTES];
    const gnutls_datum_t name = {(unsigned char *)(uintptr_t)IDENTITY, (unsigned)strlen(IDENTITY)};
    const gnutls_datum_t key = {copy, sizeof copy};
    memcpy(copy, t->key->bytes, sizeof copy);
    rc = gnutls_psk_set_client_credentials2(t->client, &name, &key, GNUTLS_PSK_KEY_RAW);
    explicit_bzero(copy, sizeof copy);
    return rc == GNUTLS_E_SUCCESS ? gnutls_credentials_set(t->tls, GNUTLS_CRD_PSK, t->client) : rc;
}

/* ---- the socket, as GnuTLS uses it ---- */

static void fail_socket(struct sl_transport *t) {
    t->error = errno;
    t->cut |= errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    gnutls_transport_set_errno(t->tls, errno);
}

static ssize_t pull(gnutls_transport_ptr_t ptr, void *to, size_t room) {
    struct sl_transport *t = ptr;
    struct buffer *b = t->in;
    ssize_t n = 0;
    if (!b || b->first == b->end) {
        n = b ? recv(t->fd, b->bytes, sizeof b->bytes, 0) : recv(t->fd, to, room, 0);
        if (n < 0)
            fail_socket(t);
        t->heard |= n > 0;
        t->ended |= n == 0;
        if (n <= 0 || !b)
            return n;
        b->first = 0;
        b->end = (size_t)n;
    }
    size_t some = b->end - b->first < room ? b->end - b->first : room;
    memcpy(to, b->bytes + b->first, some);
    b->first += some;
    return (ssize_t)some;
}

static ssize_t push(gnutls_transport_ptr_t ptr, const void *bytes, size_t n) {
    struct sl_transport *t = ptr;
    struct buffer *b = t->out;
    if (!b) {
        ssize_t done = send(t->fd, bytes, n, MSG_NOSIGNAL);
        if (done < 0)
            fail_socket(t);
        return done;
    }
    if (n > sizeof b->bytes - b->end) {
        gnutls_transport_set_errno(t->tls, EAGAIN);
        return -1;
    }
    memcpy(b->bytes + b->end, bytes, n);
    b->end += n;
    return (ssize_t)n;
}

/* What GnuTLS has written. */
static enum sl_status send_out(struct sl_transport *t, struct sl_err *err) {
    struct buffer *b = t->out;
    while (b->first < b->end) {
        ssize_t n = send(t->fd, b->bytes + b->first, b->end - b->first, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return SL_AGAIN;
        if (n < 0 && errno != EINTR)
            return lost("sending", errno, err);
        b->first += n > 0 ? (size_t)n : 0;
    }
    b->first = b->end = 0;
    return SL_OK;
}

static enum sl_status make_buffers(struct sl_transport *t, struct sl_err *err) {
    t->in = calloc(1, sizeof *t->in);
    t->out = calloc(1, sizeof *t->out);
    return t->in && t->out ? SL_OK : sl_fail(err, SL_ERR_NOMEM, "no memory for a connection");
}

static int make_session(struct sl_transport *t, bool listens) {
    unsigned side = listens ? GNUTLS_SERVER : GNUTLS_CLIENT;
    int rc = gnutls_init(&t->tls, side | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS);
    if (rc == GNUTLS_E_SUCCESS)
        rc = gnutls_priority_set_direct(t->tls, PRIORITY, NULL);
    if (rc == GNUTLS_E_SUCCESS)
        rc = give_credentials(t, listens);
    if (rc != GNUTLS_E_SUCCESS)
        return rc;
    gnutls_session_set_ptr(t->tls, t);
    gnutls_transport_set_ptr(t->tls, t);
    gnutls_transport_set_pull_function(t->tls, pull);
    gnutls_transport_set_push_function(t->tls, push);
    gnutls_handshake_set_timeout(t->tls, GNUTLS_INDEFINITE_TIMEOUT); /* the caller's */
    return rc;
}

size_t sl_transport_bytes(bool keyed, bool proven) {
    return sizeof(struct sl_transport) + (keyed ? TLS_BYTES : 0) +
           (keyed && proven ? 2 * sizeof(struct buffer) : 0);
}

enum sl_status sl_transport_create(int fd, const struct sl_net_key *key, bool listens,
                                   struct sl_transport **out, struct sl_err *err) {
    struct sl_transport *t = calloc(1, sizeof *t);
    if (!t) {
        close(fd);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a connection");
    }
    t->fd = fd;
    t->key = key;
    pthread_mutex_init(&t->lock, NULL);
    int rc = key ? make_session(t, listens) : GNUTLS_E_SUCCESS;
    if (rc != GNUTLS_E_SUCCESS) {
        sl_transport_close(&t);
        return sl_fail(err, SL_ERR_NOMEM, "TLS cannot begin: %s", gnutls_strerror(rc));
    }
    *out = t;
    return SL_OK;
}

/* What ended the handshake. Who finds that the other side has not the key tells it in an alert:
 * without one the connection was cut, which says nothing of keys. */
static enum sl_status refuse(struct sl_transport *t, int rc, struct sl_err *err) {
    bool told = rc == GNUTLS_E_FATAL_ALERT_RECEIVED;
    if (t->cut && !told)
        return lost("the connection was lost in the handshake", t->error, err);
    if (t->ended && !told)
        return sl_fail(err, SL_ERR_PEER_LOST,
                       "the other side closed the connection in the handshake");
    if (!told)
        (void)!gnutls_alert_send_appropriate(t->tls, rc);
    return sl_fail(err, SL_ERR_PROTOCOL, "the other side has another key, or is no Sluice (%s)",
                   told ? gnutls_alert_get_name(gnutls_alert_get(t->tls)) : gnutls_strerror(rc));
}

enum sl_status sl_transport_shake(struct sl_transport *t, short *out_events, struct sl_err *err) {
    *out_events = 0;
    if (!t->tls)
        return SL_OK;
    int rc = gnutls_handshake(t->tls);
    while (rc == GNUTLS_E_INTERRUPTED)
        rc = gnutls_handshake(t->tls);
    if (rc == GNUTLS_E_SUCCESS) {
        t->key = NULL;
        return make_buffers(t, err);
    }
    if (rc == GNUTLS_E_AGAIN) {
        *out_events = gnutls_record_get_direction(t->tls) ? POLLOUT : POLLIN;
        return SL_AGAIN;
    }
    return refuse(t, rc, err);
}

int sl_transport_fd(const struct sl_transport *t) {
    return t->fd;
}

/* ---- bytes ---- */

static enum sl_status read_plain(struct sl_transport *t, void *out, size_t room, size_t *out_n,
                                 struct sl_err *err) {
    ssize_t n;
    do
        n = recv(t->fd, out, room, 0);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        *out_n = (size_t)n;
        return SL_OK;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SL_AGAIN;
    return n ? lost("receiving", errno, err)
             : sl_fail(err, SL_ERR_PEER_LOST, "the other side closed the connection");
}

static enum sl_status tls_status(struct sl_transport *t, ssize_t rc, const char *what,
                                 struct sl_err *err) {
    if (rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED)
        return SL_AGAIN;
    /* GnuTLS says of a record whose end never came that it cannot be decoded. */
    if (t->cut)
        return lost(what, t->error, err);
    if (rc == 0 || t->ended)
        return sl_fail(err, SL_ERR_PEER_LOST, "the other side closed the connection");
    return sl_fail(err, SL_ERR_PEER_LOST, "%s: %s", what, gnutls_strerror((int)rc));
}

enum sl_status sl_transport_read(struct sl_transport *t, void *out, size_t room, size_t *out_n,
                                 struct sl_err *err) {
    if (!t->tls)
        return read_plain(t, out, room, out_n, err);
    pthread_mutex_lock(&t->lock);
    ssize_t n;
    do /* new keys end a call as if the socket had no more: what came behind them is here already */
        n = gnutls_record_recv(t->tls, out, room);
    while (n == GNUTLS_E_AGAIN && t->in->first < t->in->end);
    /* The answer to new keys; what the socket does not take goes with the next write. */
    enum sl_status status = t->taken ? SL_OK : send_out(t, err);
    pthread_mutex_unlock(&t->lock);
    if (status != SL_OK && status != SL_AGAIN)
        return status;
    if (n <= 0)
        return tls_status(t, n, "receiving", err);
    *out_n = (size_t)n;
    return SL_OK;
}

static enum sl_status write_plain(struct sl_transport *t, const void *bytes, size_t n,
                                  size_t *out_n, struct sl_err *err) {
    ssize_t done;
    do
        done = send(t->fd, bytes, n, MSG_NOSIGNAL);
    while (done < 0 && errno == EINTR);
    if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return SL_AGAIN;
    if (done < 0)
        return lost("sending", errno, err);
    *out_n = (size_t)done;
    return SL_OK;
}

/* As much of it as there is room for. What is taken stays the write's until it is sent: whoever
 * writes comes again with the same bytes. */
static enum sl_status encrypt(struct sl_transport *t, const uint8_t *bytes, size_t n,
                              struct sl_err *err) {
    for (uint32_t i = 0; i < RECORDS && t->taken < n; i++) {
        size_t some = n - t->taken < RECORD_BYTES ? n - t->taken : RECORD_BYTES;
        ssize_t done = gnutls_record_send(t->tls, bytes + t->taken, some);
        if (done <= 0)
            return tls_status(t, done, "sending", err);
        t->taken += (size_t)done;
    }
    return SL_OK;
}

enum sl_status sl_transport_write(struct sl_transport *t, const void *bytes, size_t n,
                                  size_t *out_n, struct sl_err *err) {
    if (!t->tls)
        return write_plain(t, bytes, n, out_n, err);
    pthread_mutex_lock(&t->lock);
    enum sl_status status = SL_OK;
    if (!t->taken)
        status = send_out(t, err); /* what reading has written; then there is room for records */
    if (status == SL_OK && !t->taken)
        status = encrypt(t, bytes, n, err);
    if (status == SL_OK)
        status = send_out(t, err);
    if (status == SL_OK) {
        *out_n = t->taken;
        t->taken = 0;
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

bool sl_transport_heard(const struct sl_transport *t) {
    return t->heard;
}

bool sl_transport_has_more(struct sl_transport *t) {
    if (!t->tls)
        return false;
    pthread_mutex_lock(&t->lock);
    bool more = gnutls_record_check_pending(t->tls) > 0 || (t->in && t->in->first < t->in->end);
    pthread_mutex_unlock(&t->lock);
    return more;
}

void sl_transport_finish(struct sl_transport *t, uint64_t linger_ns) {
    uint64_t until_ns = sl_now_ns() + linger_ns;
    char rest[4096];
    if (t->out && !t->taken) {
        struct sl_err unused;
        (void)!gnutls_bye(t->tls, GNUTLS_SHUT_WR);
        (void)!send_out(t, &unused);
    }
    (void)!shutdown(t->fd, SHUT_WR);
    for (ssize_t n = 1; n && sl_now_ns() < until_ns;) {
        struct pollfd fd = {t->fd, POLLIN, 0};
        if (poll(&fd, 1, 10) > 0)
            n = recv(t->fd, rest, sizeof rest, 0);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return;
    }
}

void sl_transport_close(struct sl_transport **pt) {
    struct sl_transport *t = *pt;
    if (!t)
        return;
    if (t->tls)
        gnutls_deinit(t->tls);
    if (t->client)
        gnutls_psk_free_client_credentials(t->client);
    if (t->server)
        gnutls_psk_free_server_credentials(t->server);
    close(t->fd);
    free(t->in);
    free(t->out);
    pthread_mutex_destroy(&t->lock);
    free(t);
    *pt = NULL;
}
