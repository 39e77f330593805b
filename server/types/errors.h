/* Errors as clients see them: an HTTP status and a body in the shape of OpenAI's API.
 * Source: OpenAI API reference, "Error codes". */
#ifndef SL_SERVER_ERRORS_H
#define SL_SERVER_ERRORS_H

#include "common/buf.h"

struct sl_http_error {
    unsigned http_status;   /* 0 = no error */
    const char *type;       /* "invalid_request_error"; static */
    const char *code;       /* "context_length_exceeded" or NULL; static */
    char param[96];         /* the field at fault, "messages[2].content"; empty = none */
    unsigned retry_after_s; /* Retry-After, 0 = none */
    struct sl_err err;
};

/* Fills e and returns false, so that a check can end in `return sl_http_bad(...)`. */
bool sl_http_fail(struct sl_http_error *e, unsigned http_status, const char *code,
                  const char *param, const char *fmt, ...) SL_PRINTF(5, 6);
/* A 400 that names a field (NULL = none). */
bool sl_http_bad(struct sl_http_error *e, const char *param, const char *fmt, ...) SL_PRINTF(3, 4);
/* Maps a status of the engine, tokenizer or template to an HTTP error; passes on err's text. */
bool sl_http_from_status(struct sl_http_error *e, enum sl_status status, const struct sl_err *err);

/* The client's API has another name for a field that the error names as `from`, or for its parent:
 * changes it in param and text. */
void sl_http_rename_field(struct sl_http_error *e, const char *from, const char *to);

/* {"error":{"message","type","param","code"}} */
void sl_http_error_json(struct sl_buf *b, const struct sl_http_error *e);

#endif
