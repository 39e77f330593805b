/* OpenAI's channels: messages "<|start|>role<|channel|>channel<|message|>text<|end|>". The
 * recipient, " to=functions.name", stands behind the role or behind the channel; the prompt ends
 * with "<|start|>assistant", so that the first message begins within its header. */
#include "server/answer/splitter_internal.h"

#include <string.h>

static const char message[] = "<|message|>";

/* Between messages. */
static bool message_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    enum sl_split_match start = sl_split_at(s, at, "<|start|>");
    enum sl_split_match channel = sl_split_at(s, at, "<|channel|>");
    if (start == SL_SPLIT_YES || channel == SL_SPLIT_YES) {
        sl_split_call_begin(s);
        sl_split_take(s, at);
        s->state = SL_SPLIT_HEADER;
        return true;
    }
    if (start == SL_SPLIT_MAYBE || channel == SL_SPLIT_MAYBE)
        return false;
    s->state = SL_SPLIT_CONTENT;
    return true;
}

/* The word behind the last `before` in a header. */
static struct sl_str word_behind(struct sl_str header, const char *before) {
    struct sl_str word = {"", 0};
    size_t n = strlen(before);
    for (size_t i = 0; i + n <= header.len; i++)
        if (memcmp(header.ptr + i, before, n) == 0)
            word = (struct sl_str){header.ptr + i + n, 0};
    const char *end = header.ptr + header.len;
    while (word.ptr + word.len < end && word.len < header.len &&
           !strchr(" \n\t<", word.ptr[word.len]))
        word.len++;
    return word;
}

static bool is(struct sl_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.ptr, text, s.len) == 0;
}

static bool header_step(struct sl_splitter *s) {
    static const char functions[] = "functions.";
    const char *const end = message;
    size_t at, n = sizeof functions - 1;
    uint32_t which;
    enum sl_split_match m = sl_split_find(s, 0, SL_SPLIT_HEADER_BYTES, &end, 1, &at, &which);
    if (m == SL_SPLIT_MAYBE || (m == SL_SPLIT_NO && at < SL_SPLIT_HEADER_BYTES && !s->ended))
        return false;
    if (m == SL_SPLIT_NO) {
        /* Not to be taken for a header again. */
        sl_split_take(s, at - sl_split_unfinished(sl_split_text(s), at));
        return sl_split_call_fail(s);
    }
    struct sl_str header = {sl_split_text(s), at};
    struct sl_str to = word_behind(header, "to="), channel = word_behind(header, "<|channel|>");
    bool call = s->config->tools && to.len > n && memcmp(to.ptr, functions, n) == 0 &&
                sl_split_call_name(s, to.ptr + n, to.len - n);
    s->body = is(channel, "analysis") ? SL_PART_REASONING : SL_PART_CONTENT;
    if (call) {
        s->state = SL_SPLIT_MESSAGE_ARGUMENTS;
        sl_split_take(s, at + sizeof message - 1);
        return true;
    }
    s->in_call = s->keep_raw = false;
    sl_split_take(s, at + sizeof message - 1);
    if (s->said[s->body == SL_PART_REASONING])
        sl_split_emit(s, s->body, "\n", 1);
    s->state = SL_SPLIT_BODY;
    return true;
}

static bool body_step(struct sl_splitter *s) {
    static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>",
                                       "<|channel|>"};
    size_t at;
    uint32_t which = 0;
    enum sl_split_match m = sl_split_find(s, 0, SIZE_MAX, ends, 5, &at, &which);
    sl_split_emit(s, s->body, sl_split_text(s), at);
    sl_split_take(s, at);
    if (m != SL_SPLIT_YES)
        return false;
    if (which < 3)
        sl_split_take(s, strlen(ends[which]));
    s->state = SL_SPLIT_MESSAGE;
    return true;
}

static bool arguments_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (!s->called) {
        if (at == s->n)
            return false;
        if (sl_split_text(s)[at] != '{')
            return sl_split_call_fail(s);
        sl_split_take(s, at);
        sl_split_call_certain(s);
    }
    if (!sl_split_call_scan(s, SL_SPLIT_BODY))
        return false;
    if (s->state == SL_SPLIT_BODY) { /* and not failed */
        sl_split_call_done(s);
        /* Text behind the arguments, which nobody writes, is content. */
        s->body = SL_PART_CONTENT;
        s->state = SL_SPLIT_BODY;
    }
    return true;
}

bool sl_split_harmony(struct sl_splitter *s) {
    switch (s->state) {
    case SL_SPLIT_MESSAGE:
        return message_step(s);
    case SL_SPLIT_HEADER:
        return header_step(s);
    case SL_SPLIT_BODY:
        return body_step(s);
    default:
        return arguments_step(s);
    }
}
