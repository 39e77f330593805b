/* What somebody without the key may send to a listener, or a false worker to a coordinator: bytes
 * in place of a TLS handshake. The first byte says which side is tried (odd: the one that
 * connected), the second how the rest is cut into pieces. Whatever comes, the handshake never
 * succeeds, and ends or waits for more. */
#include "net/key.h"
#include "net/transport.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sl_net_key *key_of_our_own(void) {
    static struct sl_net_key *key;
    char text[SL_NET_KEY_TEXT_BYTES];
    struct sl_err err;
    if (!key && (sl_net_key_generate(text, &err) != SL_OK ||
                 sl_net_key_parse(text, "here", &key, &err) != SL_OK))
        abort();
    return key;
}

static void drain(int fd) {
    char bytes[4096];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_transport *t;
    struct sl_err err;
    int fds[2];
    short events;
    if (size < 2)
        return 0;
    bool listens = !(data[0] & 1);
    size_t piece = data[1] ? data[1] : size;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
        abort();
    if (sl_transport_create(fds[0], key_of_our_own(), listens, &t, &err) != SL_OK)
        abort();
    data += 2;
    size -= 2;
    enum sl_status status = sl_transport_shake(t, &events, &err);
    while (status == SL_AGAIN && size) {
        size_t n = size < piece ? size : piece;
        if (send(fds[1], data, n, MSG_NOSIGNAL) != (ssize_t)n)
            abort();
        data += n;
        size -= n;
        status = sl_transport_shake(t, &events, &err);
        drain(fds[1]);
    }
    if (status != SL_AGAIN && status != SL_ERR_PROTOCOL)
        abort(); /* it has not proven itself */
    sl_transport_close(&t);
    close(fds[1]);
    return 0;
}
