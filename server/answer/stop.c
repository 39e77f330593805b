#include "server/answer/stop.h"

#include <stdlib.h>
#include <string.h>

enum sl_status sl_stop_add(struct sl_stop_set *set, const char *text, size_t len,
                           struct sl_err *err) {
    if (len == 0)
        return sl_fail(err, SL_ERR_INVALID, "a stop string must not be empty");
    if (len > SL_STOP_MAX_BYTES)
        return sl_fail(err, SL_ERR_INVALID, "a stop string has %zu bytes; the most is %u", len,
                       SL_STOP_MAX_BYTES);
    if (set->n == SL_STOP_MAX)
        return sl_fail(err, SL_ERR_INVALID, "more than %u stop strings", SL_STOP_MAX);
    struct sl_stop_string *s = &set->strings[set->n];
    s->text = malloc(len);
    s->fail = malloc(len * sizeof *s->fail);
    if (!s->text || !s->fail) {
        free(s->text);
        free(s->fail);
        *s = (struct sl_stop_string){0};
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    memcpy(s->text, text, len);
    s->len = (uint32_t)len;
    /* Knuth, Morris, Pratt: linear however the strings repeat themselves. */
    s->fail[0] = 0;
    for (uint32_t i = 1, k = 0; i < s->len; i++) {
        while (k > 0 && s->text[i] != s->text[k])
            k = s->fail[k - 1];
        if (s->text[i] == s->text[k])
            k++;
        s->fail[i] = (uint16_t)k;
    }
    set->n++;
    return SL_OK;
}

void sl_stop_set_release(struct sl_stop_set *set) {
    for (uint32_t i = 0; i < set->n; i++) {
        free(set->strings[i].text);
        free(set->strings[i].fail);
    }
    *set = (struct sl_stop_set){0};
}

bool sl_stop_push(struct sl_stop_state *status, const struct sl_stop_set *set, const char *text,
                  size_t len, struct sl_str *out_text) {
    *out_text = (struct sl_str){"", 0};
    if (status->stopped)
        return true;
    if (set->n == 0) {
        *out_text = (struct sl_str){text, len};
        return false;
    }
    struct sl_buf *held = &status->held;
    if (status->n_given) {
        memmove(held->ptr, held->ptr + status->n_given, held->len - status->n_given);
        held->len -= status->n_given;
        status->n_given = 0;
    }
    size_t end = held->len;
    sl_buf_put(held, text, len);
    if (held->failed)
        return false;

    for (; end < held->len; end++) {
        char c = held->ptr[end];
        uint32_t longest = 0; /* of the strings that end with this byte */
        for (uint32_t i = 0; i < set->n; i++) {
            const struct sl_stop_string *s = &set->strings[i];
            uint32_t k = status->matched[i];
            while (k > 0 && c != s->text[k])
                k = s->fail[k - 1];
            if (c == s->text[k])
                k++;
            if (k == s->len) {
                if (s->len > longest) {
                    longest = s->len;
                    status->which = i;
                }
                k = s->fail[k - 1];
            }
            status->matched[i] = (uint16_t)k;
        }
        if (longest) {
            status->stopped = true;
            *out_text = (struct sl_str){held->ptr, end + 1 - longest};
            return true;
        }
    }
    size_t keep = 0;
    for (uint32_t i = 0; i < set->n; i++)
        if (status->matched[i] > keep)
            keep = status->matched[i];
    status->n_given = held->len - keep;
    *out_text = (struct sl_str){held->ptr, status->n_given};
    return false;
}

bool sl_stop_finish(struct sl_stop_state *status, const struct sl_stop_set *set, const char *text,
                    size_t len, struct sl_str *out_text) {
    if (sl_stop_push(status, set, text, len, out_text))
        return true;
    if (set->n && !status->held.failed && status->held.len) {
        /* What the push gave out and what it held back lie side by side. */
        *out_text = (struct sl_str){status->held.ptr, status->held.len};
        status->n_given = status->held.len;
    }
    return false;
}

void sl_stop_state_release(struct sl_stop_state *status) {
    sl_buf_release(&status->held);
}
