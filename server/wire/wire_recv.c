/* How libmicrohttpd comes to read through sl_wire: it has no interface for that, so the program
 * defines recv and gnutls_record_recv itself. The dynamic linker then takes these for all
 * libraries; descriptors that are not attached pass through untouched. Should a build ever bind
 * libmicrohttpd to other ones, no request is counted by sl_wire, and sl_guard_framing refuses all.
 */
#include "server/wire/wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

/* By descriptor, in pages that stay. */
#define PAGE_FDS 1024u
#define N_PAGES  1024u
typedef _Atomic(struct sl_wire *) wire_ref;
static _Atomic(wire_ref *) pages[N_PAGES];

static struct sl_wire *find(int fd) {
    if (fd < 0 || (unsigned)fd >= PAGE_FDS * N_PAGES)
        return NULL;
    wire_ref *page = atomic_load_explicit(&pages[(unsigned)fd / PAGE_FDS], memory_order_acquire);
    return page ? atomic_load_explicit(&page[(unsigned)fd % PAGE_FDS], memory_order_acquire) : NULL;
}

bool sl_wire_attach(int fd, struct sl_wire *w) {
    if (fd < 0 || (unsigned)fd >= PAGE_FDS * N_PAGES)
        return false;
    _Atomic(wire_ref *) *at = &pages[(unsigned)fd / PAGE_FDS];
    wire_ref *page = atomic_load(at);
    if (!page) {
        wire_ref *made = calloc(PAGE_FDS, sizeof *made);
        if (!made)
            return false;
        if (atomic_compare_exchange_strong(at, &page, made))
            page = made;
        else
            free(made); /* another thread was first */
    }
    atomic_store(&page[(unsigned)fd % PAGE_FDS], w);
    return true;
}

void sl_wire_detach(int fd) {
    if (find(fd))
        atomic_store(&atomic_load(&pages[(unsigned)fd / PAGE_FDS])[(unsigned)fd % PAGE_FDS], NULL);
}

/* ------------------------------------------------------------------------------------- sources */

typedef ssize_t recv_fn(int fd, void *buf, size_t len, int flags);
typedef ssize_t record_recv_fn(gnutls_session_t session, void *data, size_t len);

static void *next_symbol(_Atomic(void *) *cached, const char *name) {
    void *f = atomic_load_explicit(cached, memory_order_acquire);
    if (!f) {
        f = dlsym(RTLD_NEXT, name);
        if (!f)
            abort();
        atomic_store_explicit(cached, f, memory_order_release);
    }
    return f;
}

static ssize_t next_recv(int fd, void *buf, size_t len, int flags) {
    static _Atomic(void *) cached;
    union {
        void *object;
        recv_fn *call;
    } f = {next_symbol(&cached, "recv")};
    return f.call(fd, buf, len, flags);
}

static ssize_t next_record_recv(gnutls_session_t session, void *data, size_t len) {
    static _Atomic(void *) cached;
    union {
        void *object;
        record_recv_fn *call;
    } f = {next_symbol(&cached, "gnutls_record_recv")};
    return f.call(session, data, len);
}

struct source {
    int fd, flags;
    gnutls_session_t session; /* NULL: in the clear */
};

static ssize_t pull(const struct source *s, void *buf, size_t len) {
    return s->session ? next_record_recv(s->session, buf, len)
                      : next_recv(s->fd, buf, len, s->flags);
}

/* Behind a bad request this much is read in one call: enough that its answer is seldom lost to a
 * reset, and that the client's end is noticed, but no client that floods keeps the thread. */
#define PULLS_WHEN_OVER 8u

/* libmicrohttpd's epoll is edge-triggered and takes an answer that is not full for the end of what
 * has arrived. Where bytes were left out, that has to be made true: this reads on until there is
 * nothing more, or the buffer is full. */
static ssize_t pump(struct sl_wire *w, const struct source *s, char *buf, size_t len) {
    char in[SL_WIRE_FEED_MAX];
    size_t n = sl_wire_drain(w, buf, len);
    for (uint32_t over = 0; n < len; over += sl_wire_is_over(w)) {
        if (over == PULLS_WHEN_OVER)
            break;
        size_t want = len - n < sizeof in ? len - n : sizeof in;
        ssize_t got = pull(s, in, want);
        if (got <= 0)
            return n ? (ssize_t)n : got;
        n += sl_wire_feed(w, in, (size_t)got, buf + n, len - n);
        if (!s->session && (size_t)got < want) /* a TLS record says nothing of the next one */
            break;
    }
    if (n || !len)
        return (ssize_t)n;
    errno = EAGAIN;
    return s->session ? GNUTLS_E_AGAIN : -1;
}

/* What these two are elsewhere, they are here. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *buf, size_t len, int flags) {
    struct sl_wire *w = flags & MSG_PEEK ? NULL : find(fd);
    struct source s = {fd, flags, NULL};
    return w && !w->is_tls ? pump(w, &s, buf, len) : next_recv(fd, buf, len, flags);
}

__attribute__((visibility("default"))) ssize_t gnutls_record_recv(gnutls_session_t session,
                                                                  void *data, size_t len) {
    int fd = gnutls_transport_get_int(session);
    struct sl_wire *w = find(fd);
    struct source s = {fd, 0, session};
    return w ? pump(w, &s, data, len) : next_record_recv(session, data, len);
}
