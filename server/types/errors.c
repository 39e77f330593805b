#include "server/types/errors.h"

#include <stdio.h>
#include <string.h>

static const char *type_of(unsigned http_status) {
    switch (http_status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "unavailable_error";
    default:
        return http_status >= 500 ? "server_error" : "invalid_request_error";
    }
}

static void set(struct sl_http_error *e, unsigned http_status, const char *code,
                const char *param) {
    e->http_status = http_status;
    e->type = type_of(http_status);
    e->code = code;
    e->retry_after_s = http_status == 429 || http_status == 503 ? 1 : 0;
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
}

bool sl_http_fail(struct sl_http_error *e, unsigned http_status, const char *code,
                  const char *param, const char *fmt, ...) {
    set(e, http_status, code, param);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->err.text, sizeof e->err.text, fmt, ap);
    va_end(ap);
    return false;
}

bool sl_http_bad(struct sl_http_error *e, const char *param, const char *fmt, ...) {
    set(e, 400, NULL, param);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->err.text, sizeof e->err.text, fmt, ap);
    va_end(ap);
    return false;
}

bool sl_http_from_status(struct sl_http_error *e, enum sl_status status, const struct sl_err *err) {
    const char *text = err && err->text[0] ? err->text : sl_status_text(status);
    switch (status) {
    case SL_ERR_INVALID:
    case SL_ERR_LIMIT:
        return sl_http_fail(e, 400, NULL, NULL, "%s", text);
    case SL_ERR_CONTEXT_FULL:
        return sl_http_fail(e, 400, "context_length_exceeded", NULL, "%s", text);
    case SL_ERR_TIMEOUT:
        return sl_http_fail(e, 504, "deadline_exceeded", NULL, "%s", text);
    case SL_AGAIN:
        return sl_http_fail(e, 429, "queue_full", NULL,
                            "the queue of waiting requests is full; try again later");
    case SL_ERR_CANCELED:
        return sl_http_fail(e, 503, "canceled", NULL, "the server is shutting down");
    case SL_ERR_PEER_LOST:
        return sl_http_fail(e, 503, "peer_lost", NULL, "%s", text);
    case SL_ERR_DEVICE_LOST: /* until somebody starts the server anew; another one may answer */
        return sl_http_fail(e, 503, "device_lost", NULL, "%s", text);
    case SL_ERR_DEVICE_OOM:
    case SL_ERR_NOMEM:
        return sl_http_fail(e, 503, "out_of_memory", NULL, "%s", text);
    default:
        return sl_http_fail(e, 500, NULL, NULL, "%s", text);
    }
}

/* Whether the name at p is `name` or a member of it. */
static bool names_field(const char *p, const char *name, size_t len) {
    return strncmp(p, name, len) == 0 &&
           (p[len] == '\0' || p[len] == '\'' || p[len] == '.' || p[len] == '[');
}

void sl_http_rename_field(struct sl_http_error *e, const char *from, const char *to) {
    size_t len = strlen(from);
    if (!names_field(e->param, from, len))
        return;
    char param[sizeof e->param];
    snprintf(param, sizeof param, "%s%s", to, e->param + len);
    memcpy(e->param, param, sizeof param);
    char text[sizeof e->err.text];
    size_t n = 0;
    for (const char *p = e->err.text; *p && n + 1 < sizeof text;) {
        text[n++] = *p++;
        if (p[-1] == '\'' && names_field(p, from, len)) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", to);
            if (n >= sizeof text)
                n = sizeof text - 1;
            p += len;
        }
    }
    text[n] = '\0';
    memcpy(e->err.text, text, n + 1);
}

void sl_http_error_json(struct sl_buf *b, const struct sl_http_error *e) {
    sl_buf_puts(b, "{\"error\":{\"message\":");
    sl_buf_json_text(b, e->err.text);
    sl_buf_puts(b, ",\"type\":");
    sl_buf_json_text(b, e->type ? e->type : "server_error");
    sl_buf_puts(b, ",\"param\":");
    if (e->param[0])
        sl_buf_json_text(b, e->param);
    else
        sl_buf_puts(b, "null");
    sl_buf_puts(b, ",\"code\":");
    if (e->code)
        sl_buf_json_text(b, e->code);
    else
        sl_buf_puts(b, "null");
    sl_buf_puts(b, "}}");
}
