/* What a user may name to be pulled, what a repository says that it has, and which files of it are
 * meant. Everything here may come from a stranger: names are checked before they become paths.
 *
 * Threads: none; each call works on its arguments alone. */
#ifndef SL_PULL_SOURCE_H
#define SL_PULL_SOURCE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_PULL_NAME_BYTES 201u /* with its ending zero, as the next ones */
#define SL_PULL_PATH_BYTES 513u
#define SL_PULL_URL_BYTES  2049u
#define SL_PULL_HASH_BYTES 65u          /* 64 hexadecimal digits */
#define SL_PULL_MAX_FILES  10000u       /* of a repository */
#define SL_PULL_MAX_PARTS  1000u        /* of a model */
#define SL_PULL_MAX_BYTES  (1ull << 44) /* of a file */

/* OWNER/NAME[:FILE] or a URL. */
struct sl_pull_source {
    bool is_url;
    char owner[97], name[97];          /* of a repository */
    char wanted[SL_PULL_PATH_BYTES];   /* a path, a file's name or a quantisation; "" = not said */
    char url[SL_PULL_URL_BYTES];       /* http:// or https:// */
    char url_name[SL_PULL_NAME_BYTES]; /* the name that the file of the URL gets */
};

struct sl_pull_file {
    char path[SL_PULL_PATH_BYTES];   /* in the repository */
    uint64_t size_bytes;             /* 0 = not said */
    char sha256[SL_PULL_HASH_BYTES]; /* "" = not said */
};

/* The GGUF files of a repository, by path. */
struct sl_pull_list {
    struct sl_pull_file *files; /* [n] */
    uint32_t n;
    char commit[SL_PULL_HASH_BYTES];
};

/* Reads "hf:OWNER/NAME:FILE" (hf: may be left out) or a URL. SL_ERR_INVALID: what is wrong with
 * it. */
enum sl_status sl_pull_source_parse(const char *text, struct sl_pull_source *out,
                                    struct sl_err *err) SL_MUST_CHECK;

/* Is this a name that a file may get here: ASCII letters, digits and "._+=@,()~-", no path, not
 * hidden, not an option? */
bool sl_pull_name_ok(const char *name);
/* What follows the last slash. */
const char *sl_pull_base_name(const char *path);
/* n hexadecimal digits and no more? */
bool sl_pull_is_hex(const char *text, size_t n);

/* A name such as model-00002-of-00003.gguf: *out_index (from 1), *out_count, and how many bytes
 * precede "-00002". */
bool sl_pull_part_name(const char *name, size_t *out_stem_bytes, uint32_t *out_index,
                       uint32_t *out_count);

/* Reads the answer of /api/models/OWNER/NAME/revision/REVISION?blobs=true. Files with names that
 * may not be used here, and those that are not GGUF, are left out.
 * SL_ERR_PROTOCOL: not such an answer. Release with sl_pull_list_release(). */
enum sl_status sl_pull_list_parse(const char *json, size_t n_bytes, struct sl_pull_list *out,
                                  struct sl_err *err) SL_MUST_CHECK;
/* Adds a file; false: no memory, or too many. */
bool sl_pull_list_add(struct sl_pull_list *list, const struct sl_pull_file *file);
/* By path, so that the parts of a model follow one another. */
void sl_pull_list_sort(struct sl_pull_list *list);
void sl_pull_list_release(struct sl_pull_list *list);

/* The files of the model that `wanted` names, all its parts: list->files[*out_first] and the
 * *out_n - 1 after it. wanted is the path or name of one of the files, or a quantisation, in any
 * case, as it stands in their names ("Q4_K_M"). "" means the only model, or else the one in Q4_K_M.
 * SL_ERR_INVALID: none, several, or parts are missing; err says which there are. */
enum sl_status sl_pull_choose(const struct sl_pull_list *list, const char *wanted,
                              uint32_t *out_first, uint32_t *out_n,
                              struct sl_err *err) SL_MUST_CHECK;

#endif
