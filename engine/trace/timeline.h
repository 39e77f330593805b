/* A file that shows what happened when: steps, layers, operations, waits, and each read from disk
 * on a track of its own; of stages on other machines their steps, on a track for each machine.
 * Chrome's trace event format (JSON object, "traceEvents"), which Perfetto and chrome://tracing
 * open. Source: Trace Event Format, Google, the sections on complete events, counters and metadata.
 *
 * The file is whole JSON at any time after open: every write ends with the closing brackets, and
 * the next one begins where they were. A process that is killed loses what it gathered since the
 * last write, half a second of steps at most.
 *
 * It grows up to max_bytes, then nothing more is recorded, with one warning. A disk that is full
 * ends it likewise. Nothing is allocated after open; all names are string literals without quotes
 * and backslashes. Where t is NULL, recording is off and costs a branch.
 *
 * Threads: any, under a lock of its own. A thread's spans go to its track; tracks and pauses are as
 * calls come. */
#ifndef SL_ENGINE_TIMELINE_H
#define SL_ENGINE_TIMELINE_H

#include "common/clock.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_TIMELINE_MAX_BYTES    (256u << 20) /* of the file, unless said otherwise */
#define SL_TIMELINE_MEMORY_BYTES (1u << 20)   /* that open takes at most */
#define SL_TIMELINE_ARGS         6u           /* of an event at most */
#define SL_TIMELINE_READ_TRACKS  4096u        /* reads drawn at once */
#define SL_TIMELINE_STAGES       32u          /* of other machines: numbers below this */
#define SL_NO_READ_TRACK         UINT16_MAX

struct sl_timeline;

struct sl_timeline_arg {
    const char *name; /* NULL: this and the following are none */
    int64_t value;
};

/* Replaces an empty file or an earlier trace, and no other (common/output.h); a pipe or device gets
 * the trace as a stream, whose closing brackets come at the end. A pipe whose reader is slow slows
 * steps down. SL_ERR_IO, SL_ERR_NOMEM; SL_ERR_CONFIG: max_bytes below 64 KiB. */
enum sl_status sl_timeline_open(const char *path, uint64_t max_bytes,
                                struct sl_timeline **out_timeline,
                                struct sl_err *err) SL_MUST_CHECK;
/* Writes what is gathered. */
void sl_timeline_close(struct sl_timeline **timeline);

/* The calling thread's spans from now on go to a track of stage i; until then, and for good where a
 * model has one stage, to that of the steps. */
void sl_timeline_stage(struct sl_timeline *t, uint32_t i);
/* The same for a while, of the scheduler's thread; and no longer. */
void sl_timeline_as_stage(uint32_t i);
void sl_timeline_as_steps(void);
/* A stage, numbered from 0, is on another machine: a track of that number, from 0, with that name.
 * What the name has of quotes, backslashes and control characters is replaced. */
void sl_timeline_machine(struct sl_timeline *t, uint32_t stage, uint32_t machine, const char *name);
/* A span of such a stage, by this machine's clock. Nothing is drawn of a stage that no machine was
 * given for. */
void sl_timeline_elsewhere(struct sl_timeline *t, uint32_t stage, const char *name,
                           uint64_t start_ns, uint64_t end_ns, const struct sl_timeline_arg *args);
/* Something that took from start_ns to end_ns of sl_now_ns, by the thread that computes. Spans that
 * lie in each other are drawn so. args [SL_TIMELINE_ARGS]. */
void sl_timeline_span(struct sl_timeline *t, const char *name, uint64_t start_ns, uint64_t end_ns,
                      const struct sl_timeline_arg *args);
/* A request's life; they overlap, so each has a row. */
void sl_timeline_request(struct sl_timeline *t, uint64_t start_ns, uint64_t end_ns,
                         const struct sl_timeline_arg *args);
/* Values from now on: one line for each arg. */
void sl_timeline_counter(struct sl_timeline *t, const char *name, uint64_t at_ns,
                         const struct sl_timeline_arg *args);
/* A track that no other read has now, until its span is given. SL_NO_READ_TRACK: all are taken, the
 * read will not be drawn. */
uint16_t sl_timeline_read_track(struct sl_timeline *t);
void sl_timeline_read(struct sl_timeline *t, uint16_t read_track, const char *name,
                      uint64_t start_ns, uint64_t end_ns, const struct sl_timeline_arg *args);
/* Between steps: writes what is gathered, if it is much or old, or if all is asked for. */
void sl_timeline_pause(struct sl_timeline *t, bool all);

static inline uint64_t sl_timeline_now(const struct sl_timeline *t) {
    return t ? sl_now_ns() : 0;
}

/* sl_timeline_since(t, "router", start_ns, {"rows", n}, ...): up to SL_TIMELINE_ARGS of them. */
#define sl_timeline_since(t, name, start_ns, ...)                                                  \
    do {                                                                                           \
        if (t)                                                                                     \
            sl_timeline_span(t, name, start_ns, sl_now_ns(),                                       \
                             (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){__VA_ARGS__});       \
    } while (0)

#endif
