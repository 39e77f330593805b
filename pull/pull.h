/* Pulling a model: from a repository in the manner of Hugging Face's, or from a URL.
 *
 * Threads: one call at a time in a process (it installs handlers for SIGINT and SIGTERM and
 * restores what was there). */
#ifndef SL_PULL_PULL_H
#define SL_PULL_PULL_H

#include "pull/http.h"
#include "pull/source.h"

#define SL_PULL_ENDPOINT "https://huggingface.co"

enum sl_pull_event {
    SL_PULL_BEGINS,  /* a file is asked for: what of it is there already */
    SL_PULL_MOVES,   /* bytes have come */
    SL_PULL_CHECKS,  /* bytes have been compared with the sum */
    SL_PULL_DONE,    /* it has its name */
    SL_PULL_PRESENT, /* it was there */
};

struct sl_pull_progress {
    enum sl_pull_event event;
    const char *path; /* where it goes */
    uint64_t done_bytes, size_bytes;
    const char *sha256;     /* SL_PULL_DONE and SL_PULL_PRESENT, else NULL */
    bool checked;           /* sha256 was given by the server or the user */
    uint32_t file, n_files; /* from 1 */
};

struct sl_pull_options {
    const char *endpoint;   /* of repositories; NULL: SLUICE_HF_ENDPOINT, else the default */
    const char *folder;     /* NULL: sl_pull_folder() */
    const char *sha256;     /* that the one file must have; NULL = as the server says */
    const char *token_file; /* NULL: SLUICE_HF_TOKEN, else HF_TOKEN, for repositories */
    uint32_t connections;   /* 1 to SL_PULL_MAX_CONNECTIONS */
    uint32_t retries, timeout_s;
    bool present; /* a model that is there will do: the server is not asked */
    void (*progress)(void *ctx, const struct sl_pull_progress *p);
    void *ctx;
};

/* The file to open, the first of a model's parts. */
struct sl_pull_result {
    char path[4096];
};

/* Pulls what source names. SL_ERR_CANCELED: SIGINT or SIGTERM came; as after other errors, the
 * next call goes on where this one stopped. SL_ERR_CORRUPT: sum or size is wrong; nothing is kept.
 */
enum sl_status sl_pull(const struct sl_pull_source *source, const struct sl_pull_options *options,
                       struct sl_pull_result *out, struct sl_err *err) SL_MUST_CHECK;

/* Where models of the source are kept: models/OWNER/NAME, or models/url, in sluice/ of
 * $XDG_CACHE_HOME or ~/.cache. SL_ERR_CONFIG: there is no such folder. */
enum sl_status sl_pull_folder(const struct sl_pull_source *source, char *out, size_t size,
                              struct sl_err *err) SL_MUST_CHECK;
/* Makes the folder and those above it. */
enum sl_status sl_pull_make_folder(const char *path, struct sl_err *err) SL_MUST_CHECK;
/* The model of source in folder, if all of it is there. */
bool sl_pull_find_present(const struct sl_pull_source *source, const char *folder,
                          struct sl_pull_result *out);

#endif
