/* Conversations as files: each is the body of a request to /v1/chat/completions, so that it can be
 * sent to a server too. */
#include "cli/run/run_chat.h"
#include "common/buf.h"
#include "server/request/messages.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_SAVED_BYTES ((size_t)64 << 20)

struct settings {
    float temperature, top_p, min_p, repeat_penalty;
    uint32_t top_k, max_tokens;
    uint64_t seed;
};

static const struct sl_field fields[] = {
    {"temperature", SL_FIELD_F32, offsetof(struct settings, temperature), 0, HUGE_VALF},
    {"top_p", SL_FIELD_F32, offsetof(struct settings, top_p), 0, 1},
    {"min_p", SL_FIELD_F32, offsetof(struct settings, min_p), 0, 1},
    {"repeat_penalty", SL_FIELD_F32, offsetof(struct settings, repeat_penalty), SL_ARG_ABOVE_0,
     HUGE_VALF},
    {"top_k", SL_FIELD_U32, offsetof(struct settings, top_k), 0, UINT32_MAX},
    {"max_tokens", SL_FIELD_U32, offsetof(struct settings, max_tokens), 0, UINT32_MAX},
    {"seed", SL_FIELD_SEED, offsetof(struct settings, seed), 0, 0},
};

static struct settings settings_of(const struct sl_run_chat *c) {
    const struct sl_sampling *s = &c->sampling;
    return (struct settings){s->temperature, s->top_p,      s->min_p, s->repeat_penalty,
                             s->top_k,       c->max_tokens, s->seed};
}

/* ---- reading ---- */

/* The whole file, with a NUL behind it; NULL: err says why. */
static char *read_all(const char *path, size_t *out_len, struct sl_err *err) {
    struct stat about;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &about) != 0) {
        (void)sl_fail(err, SL_ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    } else if (!S_ISREG(about.st_mode)) {
        (void)sl_fail(err, SL_ERR_IO, "%s: not a regular file", path);
    } else if (about.st_size > (off_t)MAX_SAVED_BYTES) {
        (void)sl_fail(err, SL_ERR_IO, "%s: larger than 64 MiB, so no conversation", path);
    } else if (!(text = malloc((size_t)about.st_size + 1))) {
        (void)sl_fail(err, SL_ERR_NOMEM, "out of memory");
    } else {
        ssize_t n = pread(fd, text, (size_t)about.st_size, 0);
        *out_len = n > 0 ? (size_t)n : 0;
        text[*out_len] = '\0';
    }
    if (fd >= 0)
        close(fd);
    return text;
}

/* The body in the file; NULL: err says what is wrong with it. *out_empty: nothing is in it. */
static json_t *read_body(const char *path, bool *out_empty, struct sl_err *err) {
    struct sl_http_error e = {0};
    size_t len = 0;
    char *text = read_all(path, &len, err);
    *out_empty = text && len == 0;
    json_t *body = text ? sl_json_parse_object(text, len, SL_JSON_MAX_UNITS, NULL, &e) : NULL;
    json_t *messages = body ? sl_messages_read(body, &e) : NULL;
    if (text && !messages)
        (void)sl_fail(err, SL_ERR_INVALID, "%s: not a saved conversation: %.300s", path,
                      e.err.text);
    if (messages && json_object_set(body, "messages", messages) != 0) {
        json_decref(messages);
        messages = NULL;
        (void)sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    free(text);
    if (!messages) {
        json_decref(body);
        return NULL;
    }
    json_decref(messages);
    return body;
}

bool sl_run_load(struct sl_run_chat *c, const char *path, struct sl_err *err) {
    struct settings s = settings_of(c);
    struct sl_http_error e = {0};
    bool empty;
    json_t *body = read_body(path, &empty, err);
    if (!body)
        return false;
    bool ok = sl_fields_read(body, fields, SL_COUNTOF(fields), &s, &e);
    if (!ok)
        (void)sl_fail(err, SL_ERR_INVALID, "%s: %.400s", path, e.err.text);
    if (ok) {
        json_decref(c->messages);
        c->messages = json_incref(json_object_get(body, "messages"));
        c->sampling.temperature = s.temperature;
        c->sampling.top_p = s.top_p;
        c->sampling.min_p = s.min_p;
        c->sampling.repeat_penalty = s.repeat_penalty;
        c->sampling.top_k = s.top_k;
        c->sampling.seed = s.seed;
        c->max_tokens = s.max_tokens;
        c->n_again = 0;
    }
    json_decref(body);
    return ok;
}

/* ---- writing ---- */

static void put_number(struct sl_buf *b, const char *name, double v) {
    sl_buf_printf(b, ",\n\"%s\": ", name);
    sl_buf_json_number(b, v);
}

static void write_body(const struct sl_run_chat *c, struct sl_buf *b) {
    struct settings s = settings_of(c);
    char *messages = json_dumps(c->messages, JSON_INDENT(1));
    b->failed = b->failed || !messages;
    sl_buf_puts(b, "{\"messages\": ");
    sl_buf_puts(b, messages ? messages : "");
    free(messages);
    put_number(b, "temperature", (double)s.temperature);
    put_number(b, "top_p", (double)s.top_p);
    put_number(b, "min_p", (double)s.min_p);
    put_number(b, "repeat_penalty", (double)s.repeat_penalty);
    sl_buf_printf(b, ",\n\"top_k\": %u", s.top_k);
    if (s.max_tokens)
        sl_buf_printf(b, ",\n\"max_tokens\": %u", s.max_tokens);
    sl_buf_printf(b, ",\n\"seed\": %lld}\n", (long long)s.seed); /* JSON's integers are signed */
}

/* A file that is there is a conversation, or empty. */
static bool may_replace(const char *path, struct sl_err *err) {
    struct sl_err why;
    bool empty = true;
    if (access(path, F_OK) != 0)
        return true;
    json_t *body = read_body(path, &empty, &why);
    json_decref(body);
    if (body || empty)
        return true;
    (void)sl_fail(err, SL_ERR_CONFIG, "%s (nothing was written)", why.text);
    return false;
}

static bool write_whole(int fd, const char *text, size_t len) {
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return fsync(fd) == 0;
}

bool sl_run_save(const struct sl_run_chat *c, const char *path, struct sl_err *err) {
    char temporary[4096];
    struct sl_buf b = {0};
    if (!may_replace(path, err))
        return false;
    write_body(c, &b);
    int n = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    bool ok = !b.failed && n > 0 && (size_t)n < sizeof temporary;
    errno = b.failed ? ENOMEM : ok ? 0 : ENAMETOOLONG;
    int fd = ok ? mkostemp(temporary, O_CLOEXEC) : -1; /* for its owner alone */
    ok = fd >= 0 && write_whole(fd, b.ptr, b.len);
    if (fd >= 0)
        ok = close(fd) == 0 && ok;
    if (ok)
        ok = rename(temporary, path) == 0;
    if (!ok)
        (void)sl_fail(err, SL_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (!ok && fd >= 0)
        unlink(temporary);
    sl_buf_release(&b);
    return ok;
}
