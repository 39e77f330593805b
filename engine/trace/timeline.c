#include "engine/trace/timeline.h"

#include "common/log.h"
#include "common/output.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES (512u << 10)
/* No event is longer: seven names of at most NAME_BYTES and eight numbers. */
#define EVENT_BYTES 1024u
#define NAME_BYTES  64u
#define WRITE_NS    500000000u

/* pid: this machine, and the first of the others. */
enum { PROCESS_HERE = 1, PROCESS_ELSEWHERE = 2 };
/* tid of what is drawn; tracks of reads follow. */
enum { TRACK_STEPS = 1, TRACK_STAGES = 2, TRACK_READS = 100 };

/* Where this thread draws. */
static _Thread_local uint64_t own_track = TRACK_STEPS;

static const char tail[] = "\n]}\n";

struct sl_timeline {
    pthread_mutex_t lock;
    int fd;
    bool stream; /* a pipe or device: written in sequence, with the tail at the end alone */
    bool ended;  /* full, or the disk refused: nothing more is recorded */
    bool broken; /* a stream that took no more */
    uint64_t start_ns, written_ns;
    uint64_t end_bytes, max_bytes; /* of the file, without the tail */
    uint64_t n_requests, n_undrawn;
    uint64_t free_read_tracks[SL_TIMELINE_READ_TRACKS / 64]; /* bits */
    uint64_t named_read_tracks[SL_TIMELINE_READ_TRACKS / 64];
    uint32_t machine_of[SL_TIMELINE_STAGES]; /* its process; 0: none was given */
    size_t n;
    char path[512];
    char buffer[BUFFER_BYTES];
};

_Static_assert(sizeof(struct sl_timeline) <= SL_TIMELINE_MEMORY_BYTES, "more than is planned for");

/* ---- writing ---- */

static bool write_at(int fd, const char *data, size_t n, uint64_t at) {
    while (n > 0) {
        ssize_t done = pwrite(fd, data, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done < 0 ? errno : EIO;
            return false;
        }
        data += done;
        n -= (size_t)done;
        at += (uint64_t)done;
    }
    return true;
}

static bool write_on(int fd, const char *data, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done < 0 ? errno : EIO;
            return false;
        }
        data += done;
        n -= (size_t)done;
    }
    return true;
}

static bool flush_stream(struct sl_timeline *t, const char *data, size_t n) {
    if (write_on(t->fd, data, n)) {
        t->end_bytes += n;
        return true;
    }
    t->ended = t->broken = true;
    sl_warn("%s: cannot be written: %s; the trace ends here, without its closing brackets", t->path,
            strerror(errno));
    return false;
}

/* The buffer over the old tail, and a new tail, in one go. */
static bool flush(struct sl_timeline *t) {
    size_t n = t->n;
    t->n = 0;
    t->written_ns = sl_now_ns();
    if (n == 0)
        return true;
    if (t->stream)
        return flush_stream(t, t->buffer, n);
    memcpy(t->buffer + n, tail, sizeof tail - 1);
    if (write_at(t->fd, t->buffer, n + sizeof tail - 1, t->end_bytes)) {
        t->end_bytes += n;
        return true;
    }
    int error = errno;
    t->ended = true;
    /* As it was before: the tail's blocks are there. */
    bool whole = ftruncate(t->fd, (off_t)(t->end_bytes + sizeof tail - 1)) == 0 &&
                 write_at(t->fd, tail, sizeof tail - 1, t->end_bytes);
    sl_warn("%s: cannot be written: %s; the trace ends here%s", t->path, strerror(error),
            whole ? "" : " and lacks its closing brackets");
    return false;
}

/* Room for one event; false: nothing is recorded any more. */
static bool begin(struct sl_timeline *t) {
    if (t->ended)
        return false;
    if (t->end_bytes + t->n + EVENT_BYTES + sizeof tail > t->max_bytes) {
        bool ok = flush(t);
        t->ended = true;
        if (ok)
            sl_warn("%s: has reached %llu MiB; the trace ends here", t->path,
                    (unsigned long long)(t->max_bytes >> 20));
        return false;
    }
    return t->n + EVENT_BYTES + sizeof tail <= BUFFER_BYTES || flush(t);
}

static void put(struct sl_timeline *t, const char *text) {
    size_t n = strlen(text);
    assert(t->n + n + sizeof tail <= BUFFER_BYTES);
    memcpy(t->buffer + t->n, text, n);
    t->n += n;
}

static void put_name(struct sl_timeline *t, const char *name) {
    assert(strlen(name) <= NAME_BYTES && !strpbrk(name, "\"\\"));
    put(t, "\"");
    put(t, name);
    put(t, "\"");
}

/* Formatting by printf would take longer than all the rest. */
static void put_u64(struct sl_timeline *t, uint64_t x) {
    char digits[20];
    size_t n = sizeof digits;
    do
        digits[--n] = (char)('0' + x % 10);
    while (x /= 10);
    memcpy(t->buffer + t->n, digits + n, sizeof digits - n);
    t->n += sizeof digits - n;
}

static void put_i64(struct sl_timeline *t, int64_t x) {
    if (x < 0)
        put(t, "-");
    put_u64(t, x < 0 ? 0 - (uint64_t)x : (uint64_t)x);
}

/* Microseconds, the format's unit. */
static void put_us(struct sl_timeline *t, uint64_t ns) {
    put_u64(t, ns / 1000);
    char part[5] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                    (char)('0' + ns % 10), 0};
    put(t, part);
}

static void put_time(struct sl_timeline *t, uint64_t at_ns) {
    put_us(t, at_ns > t->start_ns ? at_ns - t->start_ns : 0);
}

static void put_args(struct sl_timeline *t, const struct sl_timeline_arg *args) {
    put(t, ",\"args\":{");
    for (uint32_t i = 0; i < SL_TIMELINE_ARGS && args[i].name; i++) {
        put(t, i ? "," : "");
        put_name(t, args[i].name);
        put(t, ":");
        put_i64(t, args[i].value);
    }
    put(t, "}}");
}

static void put_where(struct sl_timeline *t, uint64_t process, uint64_t track) {
    put(t, ",\"pid\":");
    put_u64(t, process);
    put(t, ",\"tid\":");
    put_u64(t, track);
}

/* {"name":...,"ph":...,"pid":...,"tid":...,"ts":... */
static void put_head_of(struct sl_timeline *t, const char *name, const char *kind, uint64_t process,
                        uint64_t track, uint64_t at_ns) {
    put(t, ",\n{\"name\":");
    put_name(t, name);
    put(t, ",\"ph\":\"");
    put(t, kind);
    put(t, "\"");
    put_where(t, process, track);
    put(t, ",\"ts\":");
    put_time(t, at_ns);
}

static void put_head(struct sl_timeline *t, const char *name, const char *kind, uint64_t track,
                     uint64_t at_ns) {
    put_head_of(t, name, kind, PROCESS_HERE, track, at_ns);
}

static void put_span(struct sl_timeline *t, uint64_t process, uint64_t track, const char *name,
                     uint64_t start_ns, uint64_t end_ns, const struct sl_timeline_arg *args) {
    if (!begin(t))
        return;
    put_head_of(t, name, "X", process, track, start_ns);
    put(t, ",\"dur\":");
    put_us(t, end_ns > start_ns ? end_ns - start_ns : 0);
    put_args(t, args);
}

/* ---- open, close ---- */

static const char head[] =
    "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
    "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"sluice\"}},\n"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"name\":\"steps\"}},\n"
    "{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":1,\"args\":{\"sort_index\":1}}";

/* A trace of ours begins with the name of the program. */
static bool is_trace(int fd, uint64_t size_bytes, const void *ctx) {
    const char *end = strchr(strchr(head, '\n') + 1, '\n');
    (void)size_bytes;
    (void)ctx;
    return sl_file_has(fd, 0, head, (size_t)(end - head));
}

enum sl_status sl_timeline_open(const char *path, uint64_t max_bytes,
                                struct sl_timeline **out_timeline, struct sl_err *err) {
    if (max_bytes < (64u << 10))
        return sl_fail(err, SL_ERR_CONFIG, "a trace of %llu bytes: at least 64 KiB are needed",
                       (unsigned long long)max_bytes);
    struct sl_timeline *t = calloc(1, sizeof *t);
    if (!t)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the trace");
    struct sl_output out;
    struct sl_err why;
    if (sl_output_open(path, 0666, is_trace, NULL, &out, &why) != SL_OK) {
        free(t);
        return sl_fail(err, SL_ERR_IO, "--trace %s", why.text);
    }
    t->fd = out.fd;
    t->stream = !out.regular;
    snprintf(t->path, sizeof t->path, "%s", path);
    memset(t->free_read_tracks, 0xff, sizeof t->free_read_tracks);
    pthread_mutex_init(&t->lock, NULL);
    t->max_bytes = max_bytes;
    t->start_ns = sl_now_ns();
    put(t, head);
    if (!flush(t)) {
        sl_timeline_close(&t);
        return sl_fail(err, SL_ERR_IO, "--trace %s: cannot be written", path);
    }
    *out_timeline = t;
    return SL_OK;
}

void sl_timeline_close(struct sl_timeline **timeline) {
    struct sl_timeline *t = *timeline;
    if (!t)
        return;
    if (!t->ended)
        flush(t);
    if (t->stream && !t->broken)
        flush_stream(t, tail, sizeof tail - 1);
    if (t->n_undrawn)
        sl_info("%s: %llu reads are not drawn: more than %u were under way", t->path,
                (unsigned long long)t->n_undrawn, SL_TIMELINE_READ_TRACKS);
    close(t->fd);
    pthread_mutex_destroy(&t->lock);
    free(t);
    *timeline = NULL;
}

void sl_timeline_pause(struct sl_timeline *t, bool all) {
    pthread_mutex_lock(&t->lock);
    if (!t->ended && (all || t->n > BUFFER_BYTES / 2 || sl_now_ns() - t->written_ns >= WRITE_NS))
        flush(t);
    pthread_mutex_unlock(&t->lock);
}

/* ---- events ---- */

void sl_timeline_span(struct sl_timeline *t, const char *name, uint64_t start_ns, uint64_t end_ns,
                      const struct sl_timeline_arg *args) {
    pthread_mutex_lock(&t->lock);
    put_span(t, PROCESS_HERE, own_track, name, start_ns, end_ns, args);
    pthread_mutex_unlock(&t->lock);
}

static void name_track(struct sl_timeline *t, uint64_t process, uint64_t track, const char *name,
                       uint64_t number) {
    if (!begin(t))
        return;
    put(t, ",\n{\"name\":\"thread_name\",\"ph\":\"M\"");
    put_where(t, process, track);
    put(t, ",\"args\":{\"name\":\"");
    put(t, name);
    put(t, " ");
    put_u64(t, number);
    put(t, "\"}}");
}

void sl_timeline_stage(struct sl_timeline *t, uint32_t i) {
    own_track = TRACK_STAGES + (uint64_t)i;
    pthread_mutex_lock(&t->lock);
    name_track(t, PROCESS_HERE, own_track, "stage", i + 1u);
    pthread_mutex_unlock(&t->lock);
}

void sl_timeline_as_stage(uint32_t i) {
    own_track = TRACK_STAGES + (uint64_t)i;
}

void sl_timeline_as_steps(void) {
    own_track = TRACK_STEPS;
}

static void name_process(struct sl_timeline *t, uint64_t process, const char *name) {
    char sound[NAME_BYTES];
    size_t n = 0;
    for (; name[n] && n < sizeof sound - 1; n++)
        sound[n] = name[n] < ' ' || name[n] > '~' || strchr("\"\\", name[n]) ? '_' : name[n];
    sound[n] = 0;
    if (!begin(t))
        return;
    put(t, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":");
    put_u64(t, process);
    put(t, ",\"args\":{\"name\":");
    put_name(t, sound);
    put(t, "}}");
}

void sl_timeline_machine(struct sl_timeline *t, uint32_t stage, uint32_t machine,
                         const char *name) {
    if (stage >= SL_TIMELINE_STAGES)
        return;
    uint32_t process = PROCESS_ELSEWHERE + machine;
    pthread_mutex_lock(&t->lock);
    t->machine_of[stage] = process;
    name_process(t, process, name);
    name_track(t, process, TRACK_STAGES + (uint64_t)stage, "stage", stage + 1u);
    pthread_mutex_unlock(&t->lock);
}

void sl_timeline_elsewhere(struct sl_timeline *t, uint32_t stage, const char *name,
                           uint64_t start_ns, uint64_t end_ns, const struct sl_timeline_arg *args) {
    pthread_mutex_lock(&t->lock);
    if (stage < SL_TIMELINE_STAGES && t->machine_of[stage])
        put_span(t, t->machine_of[stage], TRACK_STAGES + (uint64_t)stage, name, start_ns, end_ns,
                 args);
    pthread_mutex_unlock(&t->lock);
}

void sl_timeline_request(struct sl_timeline *t, uint64_t start_ns, uint64_t end_ns,
                         const struct sl_timeline_arg *args) {
    static const struct sl_timeline_arg none[SL_TIMELINE_ARGS];
    pthread_mutex_lock(&t->lock);
    uint64_t id = t->n_requests++;
    for (int end = 0; end < 2 && begin(t); end++) {
        put_head(t, "request", end ? "e" : "b", TRACK_STEPS, end ? end_ns : start_ns);
        put(t, ",\"cat\":\"request\",\"id\":");
        put_u64(t, id);
        put_args(t, end ? none : args);
    }
    pthread_mutex_unlock(&t->lock);
}

void sl_timeline_counter(struct sl_timeline *t, const char *name, uint64_t at_ns,
                         const struct sl_timeline_arg *args) {
    pthread_mutex_lock(&t->lock);
    if (begin(t)) {
        put_head(t, name, "C", own_track, at_ns);
        put_args(t, args);
    }
    pthread_mutex_unlock(&t->lock);
}

static uint16_t take_read_track(struct sl_timeline *t) {
    for (uint32_t i = 0; i < SL_TIMELINE_READ_TRACKS / 64; i++) {
        if (!t->free_read_tracks[i])
            continue;
        uint32_t bit = (uint32_t)__builtin_ctzll(t->free_read_tracks[i]);
        t->free_read_tracks[i] &= t->free_read_tracks[i] - 1;
        return (uint16_t)(i * 64 + bit);
    }
    t->n_undrawn++;
    return SL_NO_READ_TRACK;
}

uint16_t sl_timeline_read_track(struct sl_timeline *t) {
    pthread_mutex_lock(&t->lock);
    uint16_t read_track = take_read_track(t);
    pthread_mutex_unlock(&t->lock);
    return read_track;
}

static void name_read_track(struct sl_timeline *t, uint16_t read_track) {
    uint64_t bit = (uint64_t)1 << (read_track % 64);
    if (t->named_read_tracks[read_track / 64] & bit)
        return;
    t->named_read_tracks[read_track / 64] |= bit;
    name_track(t, PROCESS_HERE, TRACK_READS + (uint64_t)read_track, "reads", read_track + 1u);
}

void sl_timeline_read(struct sl_timeline *t, uint16_t read_track, const char *name,
                      uint64_t start_ns, uint64_t end_ns, const struct sl_timeline_arg *args) {
    if (read_track == SL_NO_READ_TRACK)
        return;
    pthread_mutex_lock(&t->lock);
    t->free_read_tracks[read_track / 64] |= (uint64_t)1 << (read_track % 64);
    name_read_track(t, read_track);
    put_span(t, PROCESS_HERE, TRACK_READS + (uint64_t)read_track, name, start_ns, end_ns, args);
    pthread_mutex_unlock(&t->lock);
}
