/* Rows that go from device to device by ops. Who owns the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_TRANSFER_H
#define SL_BACKENDS_OPS_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

/* Sends rows to another device (sl_device_reaches()) without the host. The receiver's memory has a
 * buffer and a word for each of several channels. The word holds the sequence number of the last
 * transfer that has arrived. Sequence numbers ascend; they are compared by difference and may wrap.
 *
 * to[channel * stride + i] = x[i], i < n; then, visible to the other device, raised[channel] =
 * seqno. channel and seqno are in device memory, so that both may differ from one replay to the
 * next. */
struct sl_op_send {
    const float *x; /* [n] */
    float *to;      /* [channels, stride] the other device's, as raised [channels] */
    uint32_t *raised;
    const uint32_t *channel, *seqno;
    uint32_t n, stride;
};

/* Waits until raised[channel], or released[channel] in host memory, has reached seqno; then
 * x[i] = from[channel * stride + i], i < n. The whole queue waits, so the sender must not depend on
 * it. When released, x is whatever the buffer holds. */
struct sl_op_receive {
    const float *from; /* [channels, stride] */
    float *x;          /* [n] */
    const uint32_t *raised;
    const uint32_t *released; /* [channels] mapped, as sl_device_map_host() gave it */
    const uint32_t *channel, *seqno;
    uint32_t n, stride;
    bool alone; /* nothing else has to run on the device meanwhile: the next op may occupy all of
                   it while it waits */
};

#endif
