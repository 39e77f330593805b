/* A file while it arrives: NAME.part, preallocated, beside NAME.part.state, which says what of it
 * is there. Only when all of it is there and its sum is right does it get its name.
 *
 * The state lists spans, runs of bytes that one connection fetches from begin to end. It is
 * written after the data that it speaks of is on disk, with a sum of its own; one that is damaged,
 * or of another version of the file, is as good as none.
 *
 * Threads: one at a time per file. Across processes a lock on the state guards both. */
#ifndef SL_PULL_PART_FILE_H
#define SL_PULL_PART_FILE_H

#include "pull/source.h"

#define SL_PULL_MAX_SPANS 64u

struct sl_pull_span {
    uint64_t begin, end; /* of the file */
    uint64_t done;       /* bytes from begin that are there */
};

struct sl_part_file {
    char path[4096], part[4096 + 8], state[4096 + 16]; /* "FOLDER/NAME", with endings */
    int fd, state_fd, folder_fd;                       /* -1 = none */
    uint64_t size_bytes;
    char identity[256]; /* of the version on the server; "" = cannot be told */
    struct sl_pull_span spans[SL_PULL_MAX_SPANS];
    uint32_t n_spans;
};

/* Opens or begins folder/name.part. The folder exists. Spans tell what is there.
 * SL_ERR_IO: another process is at it, no space for the rest, or what else the system says. */
enum sl_status sl_part_file_open(struct sl_part_file *f, const char *folder, const char *name,
                                 uint64_t size_bytes, const char *identity,
                                 struct sl_err *err) SL_MUST_CHECK;
/* Forgets what is there: one span, nothing done. */
void sl_part_file_restart(struct sl_part_file *f);
/* SL_ERR_IO: no space, among others; nothing is lost. */
enum sl_status sl_part_file_write(struct sl_part_file *f, uint64_t at, const void *bytes, size_t n,
                                  struct sl_err *err) SL_MUST_CHECK;
/* Puts the data on disk, then the state. */
enum sl_status sl_part_file_save(struct sl_part_file *f, struct sl_err *err) SL_MUST_CHECK;
uint64_t sl_part_file_done(const struct sl_part_file *f);

/* Gives it its name, with NAME.sha256 beside it. replace: a file of that name may go.
 * SL_ERR_IO: the name is taken, among others. */
enum sl_status sl_part_file_finish(struct sl_part_file *f, const char *sha256, bool replace,
                                   struct sl_err *err) SL_MUST_CHECK;
/* Closes it; keep false: also removes what was there. */
void sl_part_file_close(struct sl_part_file *f, bool keep);

/* Tells how far it is; false: stop. */
typedef bool (*sl_pull_hashed)(void *ctx, uint64_t done_bytes);
/* SHA-256 of the open file, as digits. SL_ERR_CANCELED: `hashed` said so. hashed may be NULL. */
enum sl_status sl_pull_hash(int fd, const char *path, uint64_t size_bytes, sl_pull_hashed hashed,
                            void *ctx, char out[SL_PULL_HASH_BYTES],
                            struct sl_err *err) SL_MUST_CHECK;
/* What PATH.sha256 says of path, if it has the form of what is written here. */
bool sl_pull_read_sum(const char *path, char out[SL_PULL_HASH_BYTES]);
/* Writes it; another file of that name stays as it is. */
enum sl_status sl_pull_write_sum(const char *path, const char *sha256,
                                 struct sl_err *err) SL_MUST_CHECK;

#endif
