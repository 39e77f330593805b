/* The fields of the DRY sampler, as llama.cpp's API names them: dry_multiplier, dry_base,
 * dry_allowed_length, dry_penalty_last_n, dry_sequence_breakers. What they do: engine/sample/dry.h.
 */
#ifndef SL_SERVER_DRY_H
#define SL_SERVER_DRY_H

#include "server/request/params.h"

/* Reads dry_sequence_breakers (line end, colon, double quote and asterisk unless given) into
 * p->breakers, and points p->sampling.dry to them; the other fields have been read. tok must
 * outlive p. False: e names the field. */
bool sl_dry_read(const json_t *body, const struct sl_tokenizer *tok, struct sl_gen_params *p,
                 struct sl_http_error *e);

#endif
