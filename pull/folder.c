#include "pull/pull.h"

#include "pull/part_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum sl_status sl_pull_folder(const struct sl_pull_source *source, char *out, size_t size,
                              struct sl_err *err) {
    const char *base = getenv("XDG_CACHE_HOME"), *below = "";
    if (!base || base[0] != '/') {
        base = getenv("HOME");
        below = "/.cache";
    }
    if (!base || base[0] != '/')
        return sl_fail(err, SL_ERR_CONFIG,
                       "neither XDG_CACHE_HOME nor HOME is set; say where models go with --dir");
    int n = source->is_url ? snprintf(out, size, "%s%s/sluice/models/url", base, below)
                           : snprintf(out, size, "%s%s/sluice/models/%s/%s", base, below,
                                      source->owner, source->name);
    if (n < 0 || (size_t)n >= size)
        return sl_fail(err, SL_ERR_CONFIG, "the cache folder's name is too long");
    return SL_OK;
}

enum sl_status sl_pull_make_folder(const char *path, struct sl_err *err) {
    char part[4096];
    struct stat about;
    if (strlen(path) >= sizeof part)
        return sl_fail(err, SL_ERR_CONFIG, "the folder's name is too long");
    for (const char *end = path + 1;; end++) {
        if (*end && *end != '/')
            continue;
        snprintf(part, sizeof part, "%.*s", (int)(end - path), path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST && stat(part, &about) != 0)
            return sl_fail(err, SL_ERR_IO, "%.300s: %s", part, strerror(errno));
        if (!*end)
            break;
    }
    if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode))
        return sl_fail(err, SL_ERR_IO, "%.300s: is not a folder", path);
    return SL_OK;
}

bool sl_pull_find_present(const struct sl_pull_source *source, const char *folder,
                          struct sl_pull_result *out) {
    struct sl_pull_list list = {0};
    struct sl_err err;
    uint32_t first = 0, n = 0;
    DIR *dir = opendir(folder);
    bool found = true;
    if (!dir)
        return false;
    for (struct dirent *e; found && (e = readdir(dir));) {
        struct sl_pull_file f = {0};
        size_t length = strlen(e->d_name);
        if (length < 6 || strcmp(e->d_name + length - 5, ".gguf") != 0 ||
            !sl_pull_name_ok(e->d_name))
            continue;
        memcpy(f.path, e->d_name, length + 1);
        found = sl_pull_list_add(&list, &f);
    }
    closedir(dir);
    sl_pull_list_sort(&list);
    /* Folders of the repository are none here. */
    const char *wanted = source->is_url ? source->url_name : sl_pull_base_name(source->wanted);
    found = found && list.n && sl_pull_choose(&list, wanted, &first, &n, &err) == SL_OK;
    int length =
        found ? snprintf(out->path, sizeof out->path, "%s/%s", folder, list.files[first].path) : -1;
    sl_pull_list_release(&list);
    return length > 0 && (size_t)length < sizeof out->path;
}
