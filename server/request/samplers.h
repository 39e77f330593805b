/* `samplers`, llama.cpp's list of the steps that choose a token, by their names or in a string of
 * their letters: those it does not name are off.
 *
 * The engine's steps have one order (engine/sample/sampler.h), which is llama.cpp's own. A list may
 * name steps in another order only as far as they are off, for then it makes no difference. */
#ifndef SL_SERVER_SAMPLERS_H
#define SL_SERVER_SAMPLERS_H

#include "server/request/params.h"

/* Applies the body's list to s, all other fields of which have been read. False: e names the field.
 */
bool sl_samplers_read(const json_t *body, struct sl_sampling *s, struct sl_http_error *e);

#endif
