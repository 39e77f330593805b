#include "pull/download.h"

#include "common/clock.h"
#include "common/interrupt.h"

#include <stdio.h>
#include <string.h>

/* Less is not worth a connection of its own. */
#define MIN_SPAN_BYTES (1u << 20)
#define SAVE_NS        2000000000u
#define TELL_NS        100000000u

struct connection {
    struct run *run;
    CURL *easy; /* NULL = idle */
    struct curl_slist *list;
    struct sl_pull_span *span;
    uint64_t before; /* span->done when it began */
    struct sl_pull_headers headers;
    char error[CURL_ERROR_SIZE];
    bool accepted; /* the response is what was asked for */
    bool unranged; /* it is the whole file, and a range was asked for */
};

struct run {
    const struct sl_download *d;
    struct sl_part_file *f;
    CURLM *multi;
    struct connection connections[SL_PULL_MAX_CONNECTIONS];
    uint32_t n;
    bool whole; /* no ranges: one connection, from the first byte */
    uint32_t failures;
    uint64_t not_before_ns, saved_ns, told_ns;
    enum sl_status status; /* of what ends it */
    struct sl_err err;
};

static uint64_t left(const struct sl_pull_span *s) {
    return s->end - s->begin - s->done;
}

static bool busy(const struct run *r, const struct sl_pull_span *s) {
    for (uint32_t i = 0; i < r->n; i++)
        if (r->connections[i].easy && r->connections[i].span == s)
            return true;
    return false;
}

/* Spans that are there next to each other become one, so that there is room for new ones. */
static void merge_done(struct run *r) {
    struct sl_part_file *f = r->f;
    for (uint32_t i = 0; i < f->n_spans; i++) {
        for (uint32_t k = 0; k < f->n_spans && left(&f->spans[i]) == 0;) {
            struct sl_pull_span *a = &f->spans[i], *b = &f->spans[k];
            struct sl_pull_span *last = &f->spans[f->n_spans - 1];
            if (k == i || left(b) != 0 || b->begin != a->end || busy(r, a) || busy(r, b) ||
                (last != b && busy(r, last)) || last == a) {
                k++;
                continue;
            }
            a->end = b->end;
            a->done = a->end - a->begin;
            *b = *last;
            f->n_spans--;
        }
    }
}

/* An idle span with something left; else the second half of the longest, if that is worth it. */
static struct sl_pull_span *take_span(struct run *r) {
    struct sl_part_file *f = r->f;
    struct sl_pull_span *longest = NULL, *idle = NULL;
    uint32_t n_idle = 0, n_free = 0;
    for (uint32_t i = 0; i < f->n_spans; i++) {
        struct sl_pull_span *s = &f->spans[i];
        if (left(s) && !busy(r, s)) {
            n_idle++;
            if (!idle || left(s) > left(idle))
                idle = s;
        }
        if (left(s) && (!longest || left(s) > left(longest)))
            longest = s;
    }
    for (uint32_t i = 0; i < r->n; i++)
        n_free += !r->connections[i].easy;
    bool split = !r->whole && longest && (!idle || (n_idle < n_free && longest == idle)) &&
                 left(longest) >= 2 * MIN_SPAN_BYTES;
    if (split && f->n_spans == SL_PULL_MAX_SPANS)
        merge_done(r); /* may move what longest points to: next time */
    else if (split) {
        /* Among n that are free, an idle span is cut into n. */
        uint64_t parts = idle ? n_free - n_idle + 1 : 2;
        uint64_t keep = left(longest) / parts;
        if (keep < MIN_SPAN_BYTES)
            keep = MIN_SPAN_BYTES;
        uint64_t middle = longest->begin + longest->done + keep;
        struct sl_pull_span *fresh = &f->spans[f->n_spans++];
        *fresh = (struct sl_pull_span){middle, longest->end, 0};
        longest->end = middle;
        return idle ? idle : fresh;
    }
    return idle;
}

static void end_with(struct run *r, enum sl_status status) {
    if (r->status == SL_OK)
        r->status = status;
}

/* Looks at the response before its first byte is taken. */
static bool accept_response(struct connection *c) {
    struct run *r = c->run;
    const struct sl_pull_headers *h = &c->headers;
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    uint64_t from = c->span->begin + c->span->done;
    if (status == 200 && from > 0) {
        c->unranged = true;
        return false;
    }
    if (status != 206 && status != 200)
        return false;
    uint64_t total = status == 206 ? h->total_bytes : h->content_bytes;
    if (total != r->f->size_bytes || (status == 206 && h->range_begin != from) ||
        (r->d->etag[0] && strcmp(h->etag, r->d->etag) != 0)) {
        end_with(
            r,
            sl_fail(&r->err, SL_ERR_CORRUPT,
                    "%.200s: the server sends a different file than it announced (%llu bytes, not "
                    "%llu)",
                    r->d->url, (unsigned long long)total, (unsigned long long)r->f->size_bytes));
        return false;
    }
    return true;
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *ctx) {
    struct connection *c = ctx;
    struct run *r = c->run;
    n *= one;
    if (!c->accepted && !(c->accepted = accept_response(c)))
        return 0;
    size_t take = n < left(c->span) ? n : (size_t)left(c->span);
    enum sl_status status =
        sl_part_file_write(r->f, c->span->begin + c->span->done, bytes, take, &r->err);
    if (status != SL_OK) {
        end_with(r, status);
        return 0;
    }
    c->span->done += take;
    if (!r->whole)
        r->failures = 0;
    return take; /* fewer than came end the connection: another has the rest */
}

static void release(struct connection *c) {
    if (!c->easy)
        return;
    curl_multi_remove_handle(c->run->multi, c->easy);
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->list);
    c->easy = NULL;
    c->list = NULL;
    c->span = NULL;
}

static bool begin(struct connection *c, struct sl_pull_span *span) {
    struct run *r = c->run;
    char range[64];
    c->easy = sl_pull_http_open(r->d->http, r->d->url, &c->headers, c->error, &c->list);
    if (!c->easy)
        return false;
    c->span = span;
    c->before = span->done;
    c->accepted = c->unranged = false;
    curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)(span->begin + span->done),
             (unsigned long long)(span->end - 1));
    if ((!r->whole && curl_easy_setopt(c->easy, CURLOPT_RANGE, range) != CURLE_OK) ||
        curl_multi_add_handle(r->multi, c->easy) != CURLM_OK) {
        release(c);
        return false;
    }
    return true;
}

/* The server sends no ranges. */
static void restart_whole(struct run *r) {
    for (uint32_t i = 0; i < r->n; i++)
        release(&r->connections[i]);
    r->n = 1;
    r->whole = true;
    sl_part_file_restart(r->f);
}

static void ended(struct connection *c, CURLcode code) {
    struct run *r = c->run;
    const struct sl_pull_http *http = r->d->http;
    long status = 0;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    bool gained = c->span->done > c->before, complete = left(c->span) == 0;
    struct sl_pull_headers headers = c->headers;
    release(c);
    if (complete || r->status != SL_OK)
        return;
    if (status == 416) {
        end_with(r, sl_fail(&r->err, SL_ERR_CORRUPT,
                            "%.200s: the file is shorter than the server announced", r->d->url));
        return;
    }
    if (c->unranged) {
        restart_whole(r);
        return;
    }
    /* A body that ends early with all its lengths right is a cut too. */
    bool cut = (code == CURLE_OK && (status == 200 || status == 206)) ||
               sl_pull_http_transient(code, status);
    if (!gained || r->whole)
        r->failures++;
    if (!cut || r->failures > http->retries) {
        end_with(r, sl_pull_http_fail(http, r->d->url,
                                      code == CURLE_OK && status < 400 ? CURLE_PARTIAL_FILE : code,
                                      status, c->error, &r->err));
        return;
    }
    if (r->whole)
        sl_part_file_restart(r->f);
    r->not_before_ns =
        sl_now_ns() + (gained ? 20000000u : sl_pull_http_pause_ns(&headers, r->failures));
}

static void fill(struct run *r) {
    struct sl_pull_span *span;
    if (sl_now_ns() < r->not_before_ns)
        return;
    for (uint32_t i = 0; i < r->n && r->status == SL_OK; i++)
        if (!r->connections[i].easy && (span = take_span(r)) && !begin(&r->connections[i], span))
            end_with(r, sl_fail(&r->err, SL_ERR_NOMEM, "out of memory"));
}

static void save_and_tell(struct run *r, bool now) {
    uint64_t t = sl_now_ns();
    struct sl_err err;
    if (now || t - r->saved_ns > SAVE_NS) {
        enum sl_status status = sl_part_file_save(r->f, &err);
        if (status != SL_OK && r->status == SL_OK) {
            r->err = err;
            r->status = status;
        }
        r->saved_ns = sl_now_ns();
    }
    if (now || t - r->told_ns > TELL_NS) {
        r->d->moved(r->d->ctx, sl_part_file_done(r->f));
        r->told_ns = t;
    }
}

static void loop(struct run *r) {
    while (r->status == SL_OK && sl_part_file_done(r->f) < r->f->size_bytes) {
        int running, left_over;
        if (sl_interrupt_pending()) {
            end_with(r, sl_fail(&r->err, SL_ERR_CANCELED, "interrupted"));
            return;
        }
        fill(r);
        if (curl_multi_perform(r->multi, &running) != CURLM_OK ||
            curl_multi_poll(r->multi, NULL, 0, SL_INTERRUPT_POLL_MS, NULL) != CURLM_OK) {
            end_with(r, sl_fail(&r->err, SL_ERR_IO, "libcurl failed"));
            return;
        }
        for (CURLMsg *m; (m = curl_multi_info_read(r->multi, &left_over));) {
            char *c = NULL;
            CURLcode code = m->data.result;
            if (m->msg == CURLMSG_DONE &&
                curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &c) == CURLE_OK && c)
                ended((struct connection *)(void *)c, code);
        }
        save_and_tell(r, false);
    }
}

enum sl_status sl_download_run(const struct sl_download *d, struct sl_part_file *f,
                               struct sl_err *err) {
    struct run r = {.d = d, .f = f, .n = d->ranges ? d->connections : 1, .whole = !d->ranges};
    if (r.whole && sl_part_file_done(f) < f->size_bytes)
        sl_part_file_restart(f);
    r.multi = curl_multi_init();
    if (!r.multi)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    for (uint32_t i = 0; i < r.n; i++)
        r.connections[i].run = &r;
    r.saved_ns = r.told_ns = sl_now_ns();
    loop(&r);
    for (uint32_t i = 0; i < r.n; i++)
        release(&r.connections[i]);
    curl_multi_cleanup(r.multi);
    save_and_tell(&r, true);
    if (r.status != SL_OK && err)
        *err = r.err;
    return r.status;
}
