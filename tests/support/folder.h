/* A folder of a test's own, and what is done to the files in it. */
#ifndef TESTS_SUPPORT_FOLDER_H
#define TESTS_SUPPORT_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
    char path[96];
};

static inline void open_folder(struct folder *f) {
    snprintf(f->path, sizeof f->path, "/tmp/sluice-test-XXXXXX");
    assert_non_null(mkdtemp(f->path));
}

/* Names in the folder that end so, sorted; how many. */
static inline uint32_t list_folder(const struct folder *f, const char *end, char names[][256],
                                   uint32_t room) {
    uint32_t n = 0;
    DIR *d = opendir(f->path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name), m = strlen(end);
        if (len < m || strcmp(e->d_name + len - m, end) != 0)
            continue;
        if (n < room)
            snprintf(names[n], 256, "%s", e->d_name);
        n++;
    }
    closedir(d);
    if (n && n <= room)
        qsort(names, n, 256, (int (*)(const void *, const void *))strcmp);
    return n;
}

static inline void path_in(const struct folder *f, const char *name, char out[512]) {
    assert_true(snprintf(out, 512, "%s/%.255s", f->path, name) < 512);
}

static inline void close_folder(struct folder *f) {
    static char names[4096][256];
    char path[512];
    uint32_t n = list_folder(f, "", names, 4096);
    for (uint32_t i = 0; i < n && i < 4096; i++) {
        path_in(f, names[i], path);
        unlink(path);
    }
    rmdir(f->path);
}

static inline void flip_bit(const struct folder *f, const char *name, uint64_t at) {
    char path[512];
    uint8_t byte;
    path_in(f, name, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
}

static inline uint64_t bytes_in(const struct folder *f, const char *end) {
    static char names[4096][256];
    char path[512];
    struct stat about;
    uint64_t sum = 0;
    uint32_t n = list_folder(f, end, names, 4096);
    for (uint32_t i = 0; i < n; i++) {
        path_in(f, names[i], path);
        assert_int_equal(stat(path, &about), 0);
        sum += (uint64_t)about.st_blocks * 512;
    }
    return sum;
}

#endif
