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

/* A key is printable ASCII without white space, which every client can send in a header. White
 * space around a key is dropped with a warning; a key that contains white space or any other byte
 * is refused without being shown.
 *
 * Copies the key of --api-key and overwrites it with asterisks in argv, where other users of the
 * machine can see it. Call it before the file is read, which may fill the list. Returns 0, or the
 * exit code after an error message: a server that should ask for a key must not start without. */
int sl_api_keys_take(struct sl_api_keys *k, const char *word);
/* Adds the keys of a file, one per line; empty lines and lines that start with # are skipped. False
 * after an error message: the file cannot be read, holds no key or a bad one, or there are too many
 * keys in all. */
bool sl_api_keys_read(struct sl_api_keys *k, const char *path);
void sl_api_keys_release(struct sl_api_keys *k);

#endif
