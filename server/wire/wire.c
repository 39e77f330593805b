#include "server/wire/wire.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define METHOD_MAX    32u
#define HEAD_MAX      (128u << 10) /* more than libmicrohttpd keeps, so that its limit comes first */
#define EXTENSION_MAX 1024u
/* What is read and goes no further must stay in proportion to what does: one call of recv reads on
 * until its buffer is full, and the connection's thread serves others too. */
#define TRAILERS_MAX    (8u << 10)
#define DROPPED_MAX     (4u << 10) /* of a head: a Host beside an absolute URL, blanks */
#define EMPTY_LINES_MAX 16u

enum {
    START, /* zero: where a connection begins */
    START_CR,
    METHOD,
    TARGET_BEGIN,
    SCHEME,
    AUTHORITY,
    TARGET,
    VERSION,
    VERSION_CR,
    LINE, /* of the head: its first byte */
    NAME,
    NAME_LONG,
    VALUE,
    VALUE_CR,
    DROPPED, /* a value that does not go on */
    DROPPED_CR,
    LENGTH_BEGIN,
    LENGTH,
    LENGTH_END,
    ENCODING,
    HEAD_CR,
    BODY,
    SIZE_BEGIN,
    SIZE,
    SIZE_END,
    EXTENSION,
    SIZE_CR,
    CHUNK,
    CHUNK_CR,
    CHUNK_LF,
    TRAILER,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_CR,
    BODY_CR,
    SWALLOW,
};

/* -------------------------------------------------------------------------------------- output */

struct output {
    char *ptr;
    size_t n, cap;
};

static void put(struct sl_wire *w, struct output *o, const char *data, size_t n) {
    size_t fits = n < o->cap - o->n ? n : o->cap - o->n;
    memcpy(o->ptr + o->n, data, fits);
    o->n += fits;
    /* Bounded: what an earlier call held back (a name, an authority, a chunk's size), the end of a
     * bad request, and a byte for each absolute URL without a path. All other output is no longer
     * than the input that it stands for. */
    size_t rest = n - fits;
    assert(rest <= SL_WIRE_SPILL_MAX - w->n_spill);
    memcpy(w->spill + w->n_spill, data + fits, rest);
    w->n_spill += (uint32_t)rest;
}

static void puts_to(struct sl_wire *w, struct output *o, const char *text) {
    put(w, o, text, strlen(text));
}

size_t sl_wire_drain(struct sl_wire *w, char *out, size_t cap) {
    size_t n = w->n_spill - w->spill_at;
    if (n > cap)
        n = cap;
    memcpy(out, w->spill + w->spill_at, n);
    w->spill_at += (uint32_t)n;
    if (w->spill_at == w->n_spill)
        w->spill_at = w->n_spill = 0;
    return n;
}

/* ---------------------------------------------------------------------------------- characters */

static bool is_token(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_control(unsigned char c) {
    return c < ' ' || c == 0x7f;
}

static bool is_blank(unsigned char c) {
    return c == ' ' || c == '\t';
}

static int hex_digit(unsigned char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* --------------------------------------------------------------------------------- bad requests */

static void end_head(struct sl_wire *w, struct output *o) {
    /* libmicrohttpd would refuse HTTP/1.1 without a Host by itself, in words of its own. */
    if (!w->host_sent && !w->http10)
        puts_to(w, o, "Host: -\r\n");
    puts_to(w, o, "\r\n");
}

static void begin_request(struct sl_wire *w) {
    w->n_requests++;
    w->n_line = w->n_head = w->n_authority = w->n_hosts = w->n_dropped = 0;
    w->n_version = w->n_empty = 0;
    w->http10 = w->absolute = w->host_sent = w->has_length = w->has_encoding = false;
    w->length = 0;
    w->state = METHOD;
}

/* Completes what libmicrohttpd has of the request, and reads nothing any more. */
static void refuse(struct sl_wire *w, struct output *o, const char *why) {
    switch (w->state) {
    case START:
    case START_CR:
        begin_request(w);
        puts_to(w, o, "GET / HTTP/1.1\r\n");
        end_head(w, o);
        break;
    case METHOD:
        puts_to(w, o, " / HTTP/1.1\r\n");
        end_head(w, o);
        break;
    case TARGET_BEGIN:
    case SCHEME:
    case AUTHORITY:
        puts_to(w, o, "/ HTTP/1.1\r\n");
        end_head(w, o);
        break;
    case TARGET:
        puts_to(w, o, " HTTP/1.1\r\n");
        end_head(w, o);
        break;
    case VERSION:
    case VERSION_CR:
        puts_to(w, o, "HTTP/1.1\r\n");
        w->http10 = false;
        end_head(w, o);
        break;
    case NAME_LONG:
        puts_to(w, o, ":\r\n");
        end_head(w, o);
        break;
    case VALUE:
    case VALUE_CR:
        puts_to(w, o, "\r\n");
        end_head(w, o);
        break;
    case SIZE_BEGIN:
    case SIZE:
    case SIZE_END:
    case EXTENSION:
    case SIZE_CR:
    case TRAILER:
    case TRAILER_NAME:
    case TRAILER_VALUE:
    case TRAILER_CR:
    case BODY_CR:
        puts_to(w, o, "0\r\n\r\n");
        break;
    case CHUNK_CR:
    case CHUNK_LF:
        puts_to(w, o, "\r\n0\r\n\r\n");
        break;
    default: /* the head; its lines are complete, or did not go on */
        end_head(w, o);
    }
    w->bad = why;
    w->bad_request = w->n_requests;
    w->state = SWALLOW;
}

static const char *control_text(unsigned char c) {
    return c == '\n'   ? "a line ends with a bare line feed"
           : c == '\r' ? "it has a carriage return without a line feed"
                       : "a line has a control character";
}

/* --------------------------------------------------------------------------------- request line */

static void method_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    char byte = (char)c;
    if (w->state == START) {
        if (c == '\r') { /* an empty line in front of a request is ignored (section 2.2) */
            w->state = START_CR;
            return;
        }
        if (!is_token(c)) {
            refuse(w, o, is_control(c) ? control_text(c) : "it does not begin with a method");
            return;
        }
        begin_request(w);
    }
    if (c == ' ' && w->n_line) {
        put(w, o, " ", 1);
        w->state = TARGET_BEGIN;
    } else if (!is_token(c) || ++w->n_line > METHOD_MAX) {
        refuse(w, o, is_control(c) ? control_text(c) : "its method is not valid");
    } else {
        put(w, o, &byte, 1);
    }
}

/* The scheme of an absolute URL is held in `authority` until it is known to be one. */
static void scheme_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    static const char *const schemes[] = {"http://", "https://"};
    w->authority[w->n_authority++] = (char)c;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(schemes[i]);
        if (w->n_authority > n || strncasecmp(w->authority, schemes[i], w->n_authority) != 0)
            continue;
        w->state = SCHEME;
        if (w->n_authority == n) {
            w->n_authority = 0;
            w->absolute = true;
            w->state = AUTHORITY;
        }
        return;
    }
    /* A path, or what no endpoint has: it goes on as it is, but for its last byte. */
    uint32_t n = w->n_authority - 1;
    w->n_authority = 0;
    w->state = TARGET;
    put(w, o, w->authority, n);
}

static void target_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    char byte = (char)c;
    if (is_control(c)) {
        refuse(w, o, control_text(c));
        return;
    }
    if (w->state == TARGET_BEGIN && c == ' ') {
        refuse(w, o, "there is more than one space after its method");
        return;
    }
    if (w->state == TARGET_BEGIN || w->state == SCHEME) {
        scheme_byte(w, o, c);
        if (w->state != TARGET)
            return;
    }
    if (w->state == AUTHORITY) {
        if (c != '/' && c != '?' && c != ' ') {
            if (c == '@')
                refuse(w, o, "its URL holds a user");
            else if (w->n_authority == SL_WIRE_AUTHORITY_MAX)
                refuse(w, o, "its URL's host is too long");
            else
                w->authority[w->n_authority++] = byte;
            return;
        }
        if (!w->n_authority) {
            refuse(w, o, "its URL has no host");
            return;
        }
        if (c != '/')
            put(w, o, "/", 1);
        w->state = TARGET;
    }
    put(w, o, &byte, 1);
    if (c == ' ')
        w->state = VERSION;
}

static void version_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    static const char form[] = "HTTP/0.0";
    if (w->state == VERSION && c == '\r' && w->n_version == sizeof w->version) {
        w->state = VERSION_CR;
    } else if (w->state == VERSION) {
        bool ok = w->n_version < sizeof w->version;
        char want = ok ? form[w->n_version] : 0;
        ok = ok && (want == '0' ? c >= '0' && c <= '9' : c == (unsigned char)want);
        if (!ok) {
            refuse(w, o,
                   is_control(c) ? control_text(c) : "its first line does not end in a version");
            return;
        }
        w->version[w->n_version++] = (char)c;
    } else if (c == '\n') {
        w->http10 = memcmp(w->version, "HTTP/1.0", sizeof w->version) == 0;
        put(w, o, w->version, sizeof w->version);
        puts_to(w, o, "\r\n");
        if (w->absolute) {
            puts_to(w, o, "Host:");
            put(w, o, w->authority, w->n_authority);
            puts_to(w, o, "\r\n");
            w->host_sent = true;
        }
        w->state = LINE;
    } else {
        refuse(w, o, control_text('\r'));
    }
}

/* -------------------------------------------------------------------------------------- headers */

static bool named(const struct sl_wire *w, const char *name) {
    return w->n_name == strlen(name) && strncasecmp(w->name, name, w->n_name) == 0;
}

static void name_over(struct sl_wire *w, struct output *o) {
    if (named(w, "Content-Length")) {
        if (w->has_length)
            refuse(w, o, "there is more than one Content-Length");
        else
            w->state = LENGTH_BEGIN;
        w->has_length = true;
        w->n_line = 0;
        return;
    }
    if (named(w, "Transfer-Encoding")) {
        if (w->has_encoding)
            refuse(w, o, "there is more than one Transfer-Encoding");
        else
            w->state = ENCODING;
        w->has_encoding = true;
        w->n_encoding = 0;
        return;
    }
    bool host = named(w, "Host");
    if (host && ++w->n_hosts > 1) {
        refuse(w, o, "there is more than one Host");
        return;
    }
    if (host && w->absolute) { /* the URL's counts instead (section 3.2.2) */
        w->state = DROPPED;
        return;
    }
    w->host_sent = w->host_sent || host;
    put(w, o, w->name, w->n_name);
    put(w, o, ":", 1);
    w->state = VALUE;
}

static void name_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    char byte = (char)c;
    if (w->state == LINE) {
        if (c == '\r') {
            w->state = HEAD_CR;
            return;
        }
        w->n_name = 0;
        if (is_blank(c)) {
            refuse(w, o, "a header continues on a second line");
            return;
        }
        w->state = NAME;
    }
    if (c == ':' && w->state == NAME_LONG) {
        put(w, o, ":", 1);
        w->state = VALUE;
    } else if (c == ':' && w->n_name) {
        name_over(w, o);
    } else if (!is_token(c)) {
        refuse(w, o,
               is_control(c) && !is_blank(c)
                   ? control_text(c)
                   : "a header's name has a character that is not allowed, such as white space");
    } else if (w->state == NAME && w->n_name < sizeof w->name) {
        w->name[w->n_name++] = byte;
    } else {
        if (w->state == NAME)
            put(w, o, w->name, w->n_name);
        w->state = NAME_LONG;
        put(w, o, &byte, 1);
    }
}

static void value_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    char byte = (char)c;
    bool goes_on = w->state == VALUE || w->state == VALUE_CR;
    if (w->state == VALUE_CR || w->state == DROPPED_CR) {
        if (c != '\n') {
            refuse(w, o, control_text('\r'));
            return;
        }
        if (goes_on)
            puts_to(w, o, "\r\n");
        w->state = LINE;
    } else if (c == '\r') {
        w->state = goes_on ? VALUE_CR : DROPPED_CR;
    } else if (is_control(c) && c != '\t') {
        refuse(w, o, control_text(c));
    } else if (goes_on) {
        put(w, o, &byte, 1);
    }
}

static void length_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    if (c == '\r' && w->state != LENGTH_BEGIN) {
        w->state = DROPPED_CR;
    } else if (is_blank(c)) { /* around the value it is legal, and no part of it */
        w->state = w->state == LENGTH_BEGIN ? LENGTH_BEGIN : LENGTH_END;
    } else if (c < '0' || c > '9' || w->state == LENGTH_END || ++w->n_line > 20 ||
               w->length > ((uint64_t)INT64_MAX - (uint64_t)(c - '0')) / 10) {
        refuse(w, o, "Content-Length is not a number");
    } else {
        w->length = w->length * 10 + (uint64_t)(c - '0');
        w->state = LENGTH;
    }
}

static void encoding_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    static const char chunked[] = "chunked";
    size_t n = w->n_encoding; /* beyond 7: blanks have followed */
    if (c == '\r' && n >= 7)
        w->state = DROPPED_CR;
    else if (is_blank(c) && (n == 0 || n >= 7))
        w->n_encoding = n ? 8 : 0;
    else if (n < 7 && (c | 0x20) == chunked[n])
        w->n_encoding++;
    else
        refuse(w, o, "Transfer-Encoding is not 'chunked', the only one supported");
}

static void head_over(struct sl_wire *w, struct output *o, unsigned char c) {
    char line[64];
    if (c != '\n')
        refuse(w, o, control_text('\r'));
    else if (w->has_length && w->has_encoding)
        refuse(w, o, "there are both Content-Length and Transfer-Encoding");
    else if (w->has_encoding && w->http10)
        refuse(w, o, "HTTP/1.0 has no Transfer-Encoding");
    else if (!w->n_hosts && !w->http10)
        refuse(w, o, "there is no Host");
    if (w->state == SWALLOW)
        return;
    int n = 0;
    if (w->has_length)
        n = snprintf(line, sizeof line, "Content-Length:%llu\r\n", (unsigned long long)w->length);
    else if (w->has_encoding)
        n = snprintf(line, sizeof line, "Transfer-Encoding:chunked\r\n");
    put(w, o, line, (size_t)n);
    puts_to(w, o, "\r\n");
    w->left = w->length;
    w->state = w->has_encoding ? SIZE_BEGIN : w->left ? BODY : START;
}

/* --------------------------------------------------------------------------------------- chunks */

static void size_over(struct sl_wire *w, struct output *o, unsigned char c) {
    char line[32];
    if (c != '\n') {
        refuse(w, o, control_text('\r'));
    } else if (w->left) {
        int n = snprintf(line, sizeof line, "%llx\r\n", (unsigned long long)w->left);
        put(w, o, line, (size_t)n);
        w->state = CHUNK;
    } else {
        w->n_head = 0;
        w->state = TRAILER;
    }
}

static void size_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    int digit = hex_digit(c);
    if (w->state == SIZE_BEGIN) {
        w->left = 0;
        w->n_line = 0;
        if (digit < 0) {
            refuse(w, o, "a chunk's size is not a number");
            return;
        }
        w->state = SIZE;
    }
    if (w->state == EXTENSION || w->state == SIZE_END) {
        if (c == '\r' && w->state == EXTENSION)
            w->state = SIZE_CR;
        else if (is_control(c) && c != '\t')
            refuse(w, o, control_text(c));
        else if (w->state == SIZE_END && c != ';' && !is_blank(c))
            refuse(w, o, "a chunk's size is not a number");
        else if (++w->n_line > EXTENSION_MAX)
            refuse(w, o, "a chunk's extension is too long");
        else if (c == ';')
            w->state = EXTENSION;
        return;
    }
    if (digit >= 0) {
        if (++w->n_line > 16 || w->left > (uint64_t)INT64_MAX >> 4)
            refuse(w, o, "a chunk's size is too large");
        else
            w->left = w->left << 4 | (uint64_t)digit;
    } else if (c == '\r') {
        w->state = SIZE_CR;
    } else if (c == ';' || is_blank(c)) {
        w->n_line = 0;
        w->state = c == ';' ? EXTENSION : SIZE_END;
    } else {
        refuse(w, o, is_control(c) ? control_text(c) : "a chunk's size is not a number");
    }
}

static void chunk_end_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    if (c != (w->state == CHUNK_CR ? '\r' : '\n')) {
        refuse(w, o, "a chunk does not end where its size says");
    } else if (w->state == CHUNK_CR) {
        w->state = CHUNK_LF;
    } else {
        puts_to(w, o, "\r\n");
        w->state = SIZE_BEGIN;
    }
}

/* Trailers are checked like headers and go no further. */
static void trailer_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    if (++w->n_head > TRAILERS_MAX) {
        refuse(w, o, "the trailers are too long");
    } else if (w->state == TRAILER_CR || w->state == BODY_CR) {
        if (c != '\n') {
            refuse(w, o, control_text('\r'));
        } else if (w->state == TRAILER_CR) {
            w->state = TRAILER;
        } else {
            puts_to(w, o, "0\r\n\r\n");
            w->state = START;
        }
    } else if (c == '\r' && w->state != TRAILER_NAME) {
        w->state = w->state == TRAILER ? BODY_CR : TRAILER_CR;
    } else if (w->state == TRAILER_VALUE) {
        if (is_control(c) && c != '\t')
            refuse(w, o, control_text(c));
    } else if (c == ':' && w->state == TRAILER_NAME) {
        w->state = TRAILER_VALUE;
    } else if (is_token(c)) {
        w->state = TRAILER_NAME;
    } else {
        refuse(w, o, is_control(c) ? control_text(c) : "a trailer's name is not valid");
    }
}

/* --------------------------------------------------------------------------------------- bytes */

static void take_byte(struct sl_wire *w, struct output *o, unsigned char c) {
    if (w->state > START_CR && w->state <= HEAD_CR && ++w->n_head > HEAD_MAX) {
        refuse(w, o, "its headers are too long");
        return;
    }
    if (w->state >= DROPPED && w->state <= ENCODING && ++w->n_dropped > DROPPED_MAX) {
        refuse(w, o, "a Host beside its absolute URL, or white space around a value, is too long");
        return;
    }
    switch (w->state) {
    case START:
    case METHOD:
        method_byte(w, o, c);
        break;
    case START_CR:
        if (c != '\n')
            refuse(w, o, control_text('\r'));
        else if (++w->n_empty > EMPTY_LINES_MAX)
            refuse(w, o, "there are too many empty lines in front of it");
        else
            w->state = START;
        break;
    case TARGET_BEGIN:
    case SCHEME:
    case AUTHORITY:
    case TARGET:
        target_byte(w, o, c);
        break;
    case VERSION:
    case VERSION_CR:
        version_byte(w, o, c);
        break;
    case LINE:
    case NAME:
    case NAME_LONG:
        name_byte(w, o, c);
        break;
    case VALUE:
    case VALUE_CR:
    case DROPPED:
    case DROPPED_CR:
        value_byte(w, o, c);
        break;
    case LENGTH_BEGIN:
    case LENGTH:
    case LENGTH_END:
        length_byte(w, o, c);
        break;
    case ENCODING:
        encoding_byte(w, o, c);
        break;
    case HEAD_CR:
        head_over(w, o, c);
        break;
    case SIZE_BEGIN:
    case SIZE:
    case SIZE_END:
    case EXTENSION:
        size_byte(w, o, c);
        break;
    case SIZE_CR:
        size_over(w, o, c);
        break;
    case CHUNK_CR:
    case CHUNK_LF:
        chunk_end_byte(w, o, c);
        break;
    default:
        trailer_byte(w, o, c);
    }
}

bool sl_wire_is_over(const struct sl_wire *w) {
    return w->state == SWALLOW;
}

size_t sl_wire_feed(struct sl_wire *w, const char *in, size_t n, char *out, size_t cap) {
    struct output o = {out, 0, cap};
    for (size_t i = 0; i < n && w->state != SWALLOW;) {
        if (w->state != BODY && w->state != CHUNK) {
            take_byte(w, &o, (unsigned char)in[i++]);
            continue;
        }
        size_t part = n - i < w->left ? n - i : (size_t)w->left;
        put(w, &o, in + i, part);
        i += part;
        w->left -= part;
        if (!w->left)
            w->state = w->state == BODY ? START : CHUNK_CR;
    }
    return o.n;
}
