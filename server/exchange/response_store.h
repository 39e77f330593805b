/* Finished responses, for clients that come back to one by its id: in memory, under a bound, until
 * the server ends. Those used longest ago go first.
 *
 * A response belongs to an owner (a key, see sl_guard_owner), and nobody else finds it. Any thread.
 */
#ifndef SL_SERVER_RESPONSE_STORE_H
#define SL_SERVER_RESPONSE_STORE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_response_store;

/* A response as it is kept. All texts are JSON but for the names; owned by who holds it. */
struct sl_stored_response {
    char *id;       /* "resp_..." */
    char *previous; /* id of the response that it goes on from; NULL = none */
    char *input;    /* its own input, an array of items */
    char *response; /* the response object, with the output items */
};
void sl_stored_response_release(struct sl_stored_response *r);

/* NULL: out of memory. most_bytes: of everything in it, this program's own part included. */
struct sl_response_store *sl_response_store_create(uint64_t most_bytes);
void sl_response_store_destroy(struct sl_response_store **s);

/* Whether an input of so many bytes leaves room for an answer of the same size. */
bool sl_response_store_takes(const struct sl_response_store *s, size_t input_bytes);
/* Takes over r's texts; drops others until there is room, or r where there never is. */
void sl_response_store_put(struct sl_response_store *s, uint32_t owner,
                           struct sl_stored_response *r);
/* A copy of a response, the caller's; counts as a use. SL_AGAIN: there is none of this id and
 * owner. */
enum sl_status sl_response_store_get(struct sl_response_store *s, uint32_t owner, const char *id,
                                     struct sl_stored_response *out) SL_MUST_CHECK;
/* False: there is none. */
bool sl_response_store_delete(struct sl_response_store *s, uint32_t owner, const char *id);
/* How many there are, and their bytes. */
void sl_response_store_use(struct sl_response_store *s, uint64_t *out_n, uint64_t *out_bytes);

#endif
