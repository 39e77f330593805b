#include "pull/pull.h"

#include "common/interrupt.h"
#include "pull/download.h"
#include "pull/part_file.h"
#include "pull/token.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LISTING_BYTES (16u << 20)

struct pull {
    const struct sl_pull_options *options;
    struct sl_pull_http http;
    char folder[3841];
    char token[SL_PULL_TOKEN_BYTES];
    struct sl_pull_progress progress;
};

static void tell(struct pull *p, enum sl_pull_event event, uint64_t done) {
    p->progress.event = event;
    p->progress.done_bytes = done;
    p->options->progress(p->options->ctx, &p->progress);
}

static void moved(void *ctx, uint64_t done) {
    tell(ctx, SL_PULL_MOVES, done);
}

static bool hashed(void *ctx, uint64_t done) {
    if (done % (64u << 20) == 0)
        tell(ctx, SL_PULL_CHECKS, done);
    return !sl_interrupt_pending();
}

/* What tells this version of the file from others; "" = nothing does. */
static void identify(const struct sl_pull_file *file, const struct sl_pull_headers *h, char *out,
                     size_t size) {
    out[0] = '\0';
    if (file->sha256[0])
        snprintf(out, size, "sha256 %s", file->sha256);
    else if (h->etag[0] || h->modified[0])
        snprintf(out, size, "etag %s modified %s", h->etag, h->modified);
}

/* Is the file there with the right size and sum? A sum that was not kept is made now.
 * *out_ours: there is a file that was pulled before, so a newer one may replace it. */
static enum sl_status look(struct pull *p, const char *path, const struct sl_pull_file *want,
                           bool *out_present, bool *out_ours, struct sl_err *err) {
    char sum[SL_PULL_HASH_BYTES];
    struct stat about;
    enum sl_status status = SL_OK;
    *out_present = *out_ours = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? SL_OK
                               : sl_fail(err, SL_ERR_IO, "%.300s: %s", path, strerror(errno));
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(fd);
        return sl_fail(err, SL_ERR_IO, "%.300s: is not a regular file", path);
    }
    *out_ours = sl_pull_read_sum(path, sum);
    bool sized = !want->size_bytes || (uint64_t)about.st_size == want->size_bytes;
    if (sized && !*out_ours && want->sha256[0]) {
        status = sl_pull_hash(fd, path, (uint64_t)about.st_size, hashed, p, sum, err);
        if (status == SL_OK && strcasecmp(sum, want->sha256) == 0) {
            status = sl_pull_write_sum(path, sum, err);
            *out_ours = true;
        }
    }
    close(fd);
    *out_present = status == SL_OK && sized && *out_ours &&
                   (!want->sha256[0] || strcasecmp(sum, want->sha256) == 0);
    if (*out_present) {
        p->progress.sha256 = sum;
        p->progress.size_bytes = (uint64_t)about.st_size;
        tell(p, SL_PULL_PRESENT, (uint64_t)about.st_size);
        p->progress.sha256 = NULL;
    } else if (status == SL_OK && !*out_ours)
        status =
            sl_fail(err, SL_ERR_IO,
                    "%.300s: already exists and is a different file; move it, or give --dir", path);
    return status;
}

/* All bytes are there: are they the right ones? */
static enum sl_status finish(struct pull *p, struct sl_part_file *f,
                             const struct sl_pull_file *want, bool replace, struct sl_err *err) {
    char sum[SL_PULL_HASH_BYTES];
    SL_TRY(sl_pull_hash(f->fd, f->part, f->size_bytes, hashed, p, sum, err));
    if (want->sha256[0] && strcasecmp(sum, want->sha256) != 0)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%.250s: its SHA-256 is %s, not %s; the download is discarded; run it again",
                       f->path, sum, want->sha256);
    SL_TRY(sl_part_file_finish(f, sum, replace, err));
    p->progress.sha256 = sum;
    tell(p, SL_PULL_DONE, f->size_bytes);
    p->progress.sha256 = NULL;
    return SL_OK;
}

static enum sl_status fetch(struct pull *p, const char *url, const char *name,
                            const struct sl_pull_file *want, const struct sl_pull_headers *h,
                            bool ranges, bool replace, struct sl_err *err) {
    struct sl_part_file *f = malloc(sizeof *f);
    char identity[sizeof f->identity];
    if (!f)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    identify(want, h, identity, sizeof identity);
    enum sl_status status = sl_part_file_open(f, p->folder, name, want->size_bytes, identity, err);
    if (status == SL_OK) {
        struct sl_download d = {.http = &p->http,
                                .url = url,
                                .etag = want->sha256[0] ? "" : h->etag,
                                .connections = p->options->connections,
                                .ranges = ranges,
                                .moved = moved,
                                .ctx = p};
        tell(p, SL_PULL_BEGINS, sl_part_file_done(f));
        status = sl_download_run(&d, f, err);
        if (status == SL_OK)
            status = finish(p, f, want, replace, err);
        sl_part_file_close(f, status != SL_ERR_CORRUPT);
    }
    free(f);
    return status;
}

/* One file, from asking what it is to its name. */
static enum sl_status pull_file(struct pull *p, const char *url, const char *name,
                                const struct sl_pull_file *listed, struct sl_err *err) {
    struct sl_pull_file want = *listed;
    struct sl_pull_headers h = {0};
    bool ranges = true, present, ours;
    char path[4096 + SL_PULL_NAME_BYTES];
    snprintf(path, sizeof path, "%.3840s/%.200s", p->folder, name);
    if (!want.sha256[0] || !want.size_bytes) {
        SL_TRY(sl_pull_http_probe(&p->http, url, &h, &ranges, err));
        uint64_t size = h.total_bytes;
        if (want.size_bytes && want.size_bytes != size)
            return sl_fail(err, SL_ERR_CORRUPT,
                           "%.200s: the file has %llu bytes, its repository says %llu", url,
                           (unsigned long long)size, (unsigned long long)want.size_bytes);
        want.size_bytes = size;
        if (!want.sha256[0])
            memcpy(want.sha256, h.linked_sha256, sizeof want.sha256);
    }
    p->progress.path = path;
    p->progress.size_bytes = want.size_bytes;
    p->progress.checked = want.sha256[0] != '\0';
    SL_TRY(look(p, path, &want, &present, &ours, err));
    return present ? SL_OK : fetch(p, url, name, &want, &h, ranges, ours, err);
}

/* The bytes of a path that stand for themselves in a URL are all that a name may have, but for a
 * few. */
static void encode(char *out, size_t size, const char *path) {
    size_t n = 0;
    for (; *path && n + 4 < size; path++)
        if (strchr("+=@,()", *path))
            n += (size_t)snprintf(out + n, size - n, "%%%02X", (unsigned)(unsigned char)*path);
        else
            out[n++] = *path;
    out[n] = '\0';
}

static enum sl_status pull_repository(struct pull *p, const struct sl_pull_source *s,
                                      struct sl_pull_result *out, struct sl_err *err) {
    const char *endpoint = p->options->endpoint;
    size_t n_endpoint = strlen(endpoint), n_json;
    while (n_endpoint && endpoint[n_endpoint - 1] == '/')
        n_endpoint--;
    struct sl_pull_list list;
    uint32_t first = 0, n = 0;
    char url[SL_PULL_URL_BYTES + 2048], path[3 * SL_PULL_PATH_BYTES], *json;
    snprintf(url, sizeof url, "%.*s/api/models/%s/%s/revision/main?blobs=true", (int)n_endpoint,
             endpoint, s->owner, s->name);
    SL_TRY(sl_pull_http_get(&p->http, url, MAX_LISTING_BYTES, &json, &n_json, err));
    enum sl_status status = sl_pull_list_parse(json, n_json, &list, err);
    free(json);
    SL_TRY(status);
    status = sl_pull_choose(&list, s->wanted, &first, &n, err);
    p->progress.n_files = n;
    if (status == SL_OK && p->options->sha256) {
        if (n > 1)
            status = sl_fail(err, SL_ERR_INVALID,
                             "--checksum is for a single file; this model has %u", n);
        else
            memcpy(list.files[first].sha256, p->options->sha256, SL_PULL_HASH_BYTES);
    }
    for (uint32_t i = 0; i < n && status == SL_OK; i++) {
        const struct sl_pull_file *f = &list.files[first + i];
        p->progress.file = i + 1;
        encode(path, sizeof path, f->path);
        snprintf(url, sizeof url, "%.*s/%s/%s/resolve/%s/%s", (int)n_endpoint, endpoint, s->owner,
                 s->name, list.commit[0] ? list.commit : "main", path);
        status = pull_file(p, url, sl_pull_base_name(f->path), f, err);
    }
    if (status == SL_OK)
        snprintf(out->path, sizeof out->path, "%s/%s", p->folder,
                 sl_pull_base_name(list.files[first].path));
    sl_pull_list_release(&list);
    return status;
}

/* A URL of one part stands for all of them. */
static enum sl_status pull_url(struct pull *p, const struct sl_pull_source *s,
                               struct sl_pull_result *out, struct sl_err *err) {
    char url[SL_PULL_URL_BYTES], name[SL_PULL_NAME_BYTES], digits[8];
    size_t stem;
    uint32_t index, count;
    struct sl_pull_file file = {0};
    memcpy(url, s->url, sizeof url);
    memcpy(name, s->url_name, sizeof name);
    size_t n_path = strcspn(url, "?#");
    bool parts = sl_pull_part_name(name, &stem, &index, &count) && count > 1;
    /* The name's end is as it stands in the URL: nothing in it needs an encoding. */
    if (parts && (n_path < 20 || memcmp(url + n_path - 20, name + stem, 20) != 0))
        parts = false;
    if (!parts)
        count = 1;
    if (p->options->sha256) {
        if (count > 1)
            return sl_fail(err, SL_ERR_INVALID,
                           "--checksum is for a single file; this model has %u", count);
        memcpy(file.sha256, p->options->sha256, SL_PULL_HASH_BYTES);
    }
    p->progress.n_files = count;
    for (uint32_t i = 1; i <= count; i++) {
        if (parts) {
            snprintf(digits, sizeof digits, "%05u", i);
            memcpy(name + stem + 1, digits, 5);
            memcpy(url + n_path - 19, digits, 5);
        }
        p->progress.file = i;
        SL_TRY(pull_file(p, url, name, &file, err));
        if (i == 1)
            snprintf(out->path, sizeof out->path, "%.3840s/%.200s", p->folder, name);
    }
    return SL_OK;
}

static void on_signal(int signal) {
    (void)signal;
    sl_interrupt_note();
}

static enum sl_status with_folder(struct pull *p, const struct sl_pull_source *s,
                                  struct sl_pull_result *out, struct sl_err *err) {
    const struct sigaction stop = {.sa_handler = on_signal};
    struct sigaction before[2];
    SL_TRY(sl_pull_make_folder(p->folder, err));
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return sl_fail(err, SL_ERR_NOMEM, "libcurl cannot be started");
    sigaction(SIGINT, &stop, &before[0]);
    sigaction(SIGTERM, &stop, &before[1]);
    enum sl_status status = s->is_url ? pull_url(p, s, out, err) : pull_repository(p, s, out, err);
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    curl_global_cleanup();
    return status;
}

enum sl_status sl_pull(const struct sl_pull_source *source, const struct sl_pull_options *given,
                       struct sl_pull_result *out, struct sl_err *err) {
    struct sl_pull_options o = *given;
    struct pull p = {.options = &o, .http = {NULL, o.timeout_s, o.retries}};
    struct sl_pull_source repository;
    if (!o.endpoint || !*o.endpoint)
        o.endpoint = getenv("SLUICE_HF_ENDPOINT");
    if (!o.endpoint || !*o.endpoint)
        o.endpoint = SL_PULL_ENDPOINT;
    /* As a URL, with a name after it that is none of its own. */
    char probe[SL_PULL_URL_BYTES];
    snprintf(probe, sizeof probe, "%.1900s/x", o.endpoint);
    if (strlen(o.endpoint) > 1900 || strpbrk(o.endpoint, "?#") ||
        sl_pull_source_parse(probe, &repository, NULL) != SL_OK || !repository.is_url)
        return sl_fail(err, SL_ERR_INVALID,
                       "the endpoint '%.200s' is not a URL such as https://mirror.example",
                       o.endpoint);
    if (o.folder && strlen(o.folder) >= sizeof p.folder)
        return sl_fail(err, SL_ERR_CONFIG, "the folder's name is too long");
    if (o.folder)
        snprintf(p.folder, sizeof p.folder, "%s", o.folder);
    else
        SL_TRY(sl_pull_folder(source, p.folder, sizeof p.folder, err));
    if (o.present && sl_pull_find_present(source, p.folder, out))
        return SL_OK;
    if (o.token_file || !source->is_url)
        SL_TRY(sl_pull_token(o.token_file, p.token, err));
    const char *host = source->is_url ? source->url : o.endpoint;
    enum sl_status status = SL_OK;
    if (p.token[0] && !sl_pull_http_may_have_token(host))
        status =
            sl_fail(err, SL_ERR_INVALID, "a token is only sent over https, not to %.200s", host);
    p.http.token = p.token[0] ? p.token : NULL;
    if (status == SL_OK)
        status = with_folder(&p, source, out, err);
    explicit_bzero(p.token, sizeof p.token);
    return status;
}
