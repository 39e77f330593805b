/* A repository's own list of its files, as JSON. */
#include "pull/source.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

static bool usable(const char *path) {
    struct sl_pull_source s;
    char text[SL_PULL_PATH_BYTES + 8];
    size_t n = strlen(path);
    if (n < 6 || n >= SL_PULL_PATH_BYTES || strcasecmp(path + n - 5, ".gguf") != 0)
        return false;
    snprintf(text, sizeof text, "a/b:%s", path);
    return sl_pull_source_parse(text, &s, NULL) == SL_OK;
}

/* Leaves out what is not for us; false: a field has another form than it must. */
static bool read_file(const json_t *entry, struct sl_pull_file *f, bool *out_usable) {
    const char *path = json_string_value(json_object_get(entry, "rfilename"));
    const json_t *lfs = json_object_get(entry, "lfs");
    const json_t *size = json_object_get(json_is_object(lfs) ? lfs : entry, "size");
    const char *sum = json_string_value(json_object_get(lfs, "sha256"));
    *out_usable = path && usable(path);
    if (!path || !*out_usable)
        return path != NULL;
    *f = (struct sl_pull_file){0};
    memcpy(f->path, path, strlen(path) + 1);
    if (size && json_integer_value(size) > 0)
        f->size_bytes = (uint64_t)json_integer_value(size);
    if (sum && sl_pull_is_hex(sum, 64))
        memcpy(f->sha256, sum, SL_PULL_HASH_BYTES);
    return (!size || (json_is_integer(size) && json_integer_value(size) >= 0)) &&
           f->size_bytes <= SL_PULL_MAX_BYTES && (!sum || f->sha256[0]);
}

enum sl_status sl_pull_list_parse(const char *json, size_t n_bytes, struct sl_pull_list *out,
                                  struct sl_err *err) {
    struct sl_pull_list list = {0};
    struct sl_pull_file file;
    json_error_t where;
    enum sl_status status = SL_OK;
    json_t *root = json_loadb(json, n_bytes, JSON_REJECT_DUPLICATES, &where);
    const char *commit = json_string_value(json_object_get(root, "sha"));
    const json_t *files = json_object_get(root, "siblings");
    if (!json_is_array(files) || json_array_size(files) > SL_PULL_MAX_FILES ||
        (commit && !sl_pull_is_hex(commit, 40)))
        status = sl_fail(err, SL_ERR_PROTOCOL, "the answer is not a list of a repository's files");
    else if (commit)
        memcpy(list.commit, commit, 41);
    for (size_t i = 0; status == SL_OK && i < json_array_size(files); i++) {
        bool is_usable;
        if (!read_file(json_array_get(files, i), &file, &is_usable))
            status = sl_fail(err, SL_ERR_PROTOCOL,
                             "entry %zu of the repository's list of files is not valid", i);
        else if (is_usable && !sl_pull_list_add(&list, &file))
            status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    json_decref(root);
    if (status != SL_OK) {
        sl_pull_list_release(&list);
        return status;
    }
    sl_pull_list_sort(&list);
    *out = list;
    return SL_OK;
}
