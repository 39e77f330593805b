/* The keys that clients must give: from --api-key and --api-key-file. */
#ifndef SL_CLI_API_KEYS_H
#define SL_CLI_API_KEYS_H

#include <stdbool.h>
#include <stdint.h>

#define SL_MAX_API_KEYS 64u

struct sl_api_keys {
    char *key[SL_MAX_API_KEYS]; /* [n], owned */
    uint32_t n;
};

/* A key is printable ASCII without white space: what every client can send in a header. White space
 * around one is left out with a warning; a key that holds any, or another byte, is refused without
 * being shown.
 *
 * Copies the key of --api-key and writes asterisks over it where it stands, among the words of the
 * command line that others on the machine see. Call it before the file is read, which may fill the
 * list. Returns 0, or the exit code after an error message: a server that was to ask for a key must
 * not start without. */
int sl_api_keys_take(struct sl_api_keys *k, const char *word);
/* Adds those of a file, one a line; empty lines and lines that start with # are skipped. False
 * after an error message: it cannot be read, holds none, or too many of both, or a bad one. */
bool sl_api_keys_read(struct sl_api_keys *k, const char *path);
void sl_api_keys_release(struct sl_api_keys *k);

#endif
