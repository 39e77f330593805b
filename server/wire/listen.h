/* The addresses where the server listens: TCP, and a UNIX socket.
 *
 * One thread accepts connections and passes them to libmicrohttpd's pool. It accepts none while
 * max_connections are open: further ones wait in the kernel's queue. */
#ifndef SL_SERVER_LISTEN_H
#define SL_SERVER_LISTEN_H

#include "common/status.h"
#include "server/types/config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

struct MHD_Daemon;

struct sl_listener {
    int fd;
    bool is_tcp;
};

struct sl_listen {
    struct sl_listener listeners[SL_SERVER_MAX_HOSTS + 1];
    uint32_t n;
    uint16_t port; /* of the TCP addresses; 0 = none */
    char *unix_path;
    dev_t unix_dev; /* of the socket created there: another server's is not removed */
    ino_t unix_ino;

    struct MHD_Daemon *tcp_daemon, *unix_daemon; /* receive the connections; borrowed */
    uint32_t max_connections;
    _Atomic uint32_t n_open;  /* begun and not ended, as libmicrohttpd reports */
    _Atomic int32_t n_handed; /* passed to it and not begun: brief, unless it lost one */
    int wake_fd; /* an eventfd: stop, or a connection has closed while all were in use */
    atomic_bool stop;
    pthread_t thread;
    bool started;
};

/* Binds and listens; nothing is accepted before start. Uses hosts, port, unix_socket and unix_mode
 * of config. On failure everything is closed again. */
enum sl_status sl_listen_open(struct sl_listen *l, const struct sl_server_config *config,
                              struct sl_err *err) SL_MUST_CHECK;
/* The daemons must be set. */
enum sl_status sl_listen_start(struct sl_listen *l, struct sl_err *err) SL_MUST_CHECK;
/* Ends the thread, closes the sockets, removes the UNIX socket's file. Open connections stay open.
 * May be called twice. */
void sl_listen_close(struct sl_listen *l);
/* Call it after close, when the daemons have stopped. wake_fd = -1: nothing was opened. */
void sl_listen_release(struct sl_listen *l);
/* libmicrohttpd has begun or ended a connection that was passed to it. Any thread. */
void sl_listen_begun(struct sl_listen *l);
void sl_listen_ended(struct sl_listen *l);

#endif
