/* The key that the machines of a cluster share: 32 random bytes, as one line of text
 * "sluice-key-1:" and 64 hexadecimal digits. Keys are wiped from memory when they are freed. */
#ifndef SL_NET_KEY_H
#define SL_NET_KEY_H

#include "common/status.h"

#include <stdint.h>

#define SL_NET_KEY_BYTES      32u
#define SL_NET_KEY_TEXT_BYTES 80u /* of the text, with its end */

struct sl_net_key {
    uint8_t bytes[SL_NET_KEY_BYTES];
};

/* A new key as text, without a newline. SL_ERR_IO: the system gives no random numbers. */
enum sl_status sl_net_key_generate(char out_text[SL_NET_KEY_TEXT_BYTES],
                                   struct sl_err *err) SL_MUST_CHECK;
/* Of the text, with white space around it. source: "the file 'x'", for errors, which never show the
 * text itself. SL_ERR_CONFIG: it is no key. */
enum sl_status sl_net_key_parse(const char *text, const char *source, struct sl_net_key **out_key,
                                struct sl_err *err) SL_MUST_CHECK;
/* Of a file. SL_ERR_CONFIG: it is not there, is no key, or others than its owner may read it. */
enum sl_status sl_net_key_read(const char *path, struct sl_net_key **out_key,
                               struct sl_err *err) SL_MUST_CHECK;
void sl_net_key_free(struct sl_net_key **key);

#endif
