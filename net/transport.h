/* How bytes get to a peer: plain over a socket, or by TLS. One interface, so that another way can
 * join. Nothing here blocks. */
#ifndef SL_NET_TRANSPORT_H
#define SL_NET_TRANSPORT_H

#include "common/status.h"
#include "net/key.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_transport;

/* fd: a connected socket that does not block, taken over also on failure. key NULL: plain. */
enum sl_status sl_transport_create(int fd, const struct sl_net_key *key, bool listens,
                                   struct sl_transport **out, struct sl_err *err) SL_MUST_CHECK;
/* What one takes at most: until the peer has proven itself, and from then on. */
size_t sl_transport_bytes(bool keyed, bool proven);
/* Goes on with the handshake. SL_AGAIN: *out_events (POLLIN, POLLOUT) are to be waited for.
 * SL_ERR_PROTOCOL: the other side has not proven itself, or says that this one has not;
 * SL_ERR_PEER_LOST: the connection was cut before either could know. */
enum sl_status sl_transport_shake(struct sl_transport *t, short *out_events,
                                  struct sl_err *err) SL_MUST_CHECK;
int sl_transport_fd(const struct sl_transport *t);
/* At least a byte, or SL_AGAIN. SL_ERR_PEER_LOST: the peer has gone. Write repeats after SL_AGAIN
 * with the same bytes, at the same place or elsewhere, and at least as many. Reads are one thread's
 * at a time, and writes. */
enum sl_status sl_transport_read(struct sl_transport *t, void *out, size_t room, size_t *out_n,
                                 struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_transport_write(struct sl_transport *t, const void *bytes, size_t n,
                                  size_t *out_n, struct sl_err *err) SL_MUST_CHECK;
/* Are there bytes to read that poll() does not see? */
bool sl_transport_has_more(struct sl_transport *t);
/* Has the peer sent anything, as part of the handshake? */
bool sl_transport_heard(const struct sl_transport *t);
/* Says that nothing more will be sent. What the peer still sends is thrown away until it has closed
 * its side too, for linger_ns at most: closing a socket with bytes unread could take from the peer
 * what it has not read yet. */
void sl_transport_finish(struct sl_transport *t, uint64_t linger_ns);
/* Closes the socket. NULL is allowed. */
void sl_transport_close(struct sl_transport **t);

#endif
