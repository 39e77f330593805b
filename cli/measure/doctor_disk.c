#include "cli/options/args.h"
#include "cli/measure/doctor.h"
#include "model/gguf/gguf.h"
#include "streaming/disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_SECONDS 0.5
/* Below it even small experts take longer to read than to compute. */
#define SLOW_BYTES_PER_S 1e9

bool sl_doctor_uring(struct sl_findings *f) {
    const struct sl_reader_config config = {.kind = SL_IO_URING};
    struct sl_reader *r = NULL;
    struct sl_err err;
    bool works = sl_reader_open(&config, &r, &err) == SL_OK;
    sl_findings_add(f, "io_uring", works ? SL_HEALTH_OK : SL_HEALTH_WARN,
                    "allow it (sysctl kernel.io_uring_disabled=0, the container's seccomp profile, "
                    "Linux 5.6 or later): threads that call pread read experts without it, slower",
                    "%s", works ? "works" : err.text);
    if (works)
        sl_reader_close(&r);
    return works;
}

/* 0, or why it does not work. */
static int read_direct(int fd) {
    void *block = NULL;
    if (posix_memalign(&block, SL_IO_BLOCK_BYTES, SL_IO_BLOCK_BYTES) != 0)
        return ENOMEM;
    ssize_t n = pread(fd, block, SL_IO_BLOCK_BYTES, 0);
    int why = n < 0 ? errno : 0;
    free(block);
    return why;
}

static void add_direct(struct sl_findings *f, const char *path, int fd, int why) {
    if (fd >= 0)
        why = read_direct(fd);
    sl_findings_add(f, "O_DIRECT", why ? SL_HEALTH_WARN : SL_HEALTH_OK,
                    "keep the model on a local file system such as ext4 or XFS: through the page "
                    "cache each expert is copied once more, and pushes others out",
                    "%s: %s", path, why ? strerror(why) : "the file system supports it");
}

/* ---- a folder ---- */

static void try_folder(struct sl_findings *f, const char *path) {
    char block[SL_IO_BLOCK_BYTES] = "";
    int fd = open(path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    int why = fd < 0 ? errno : 0;
    if (fd < 0 && why != EINVAL) {
        sl_findings_add(f, "O_DIRECT", SL_HEALTH_WARN, "name a model's file in it",
                        "%s: not tried, no file can be made there: %s", path, strerror(why));
        return;
    }
    if (fd >= 0 && fcntl(fd, F_SETFL, 0) == 0 && write(fd, block, sizeof block) > 0)
        (void)fcntl(fd, F_SETFL, O_DIRECT);
    add_direct(f, path, fd, why);
    if (fd >= 0)
        close(fd);
    sl_findings_add(f, "disk", SL_HEALTH_OK, NULL,
                    "not measured: 'sluice doctor MODEL.gguf' reads a model for half a second");
}

/* ---- a model ---- */

struct files {
    const struct sl_gguf *gguf; /* NULL: path alone */
    const char *path;
};

static enum sl_status add_files(void *ctx, struct sl_reader *reader, struct sl_err *err) {
    const struct files *files = ctx;
    uint32_t n = files->gguf ? sl_gguf_n_files(files->gguf) : 1, index;
    for (uint32_t i = 0; i < n; i++)
        SL_TRY(sl_reader_add_file(
            reader, files->gguf ? sl_gguf_file_path(files->gguf, i) : files->path, &index, err));
    return SL_OK;
}

static void measure(struct sl_findings *f, const struct files *files) {
    const struct sl_disk_files disk = {.add = add_files, .ctx = (void *)(uintptr_t)files};
    struct sl_disk_speed speed;
    struct sl_err err;
    enum sl_status status = sl_disk_bandwidth(&disk, 0, DISK_SECONDS, &speed, &err);
    if (status == SL_ERR_INVALID) {
        sl_findings_add(f, "disk", SL_HEALTH_OK, NULL, "not measured: the file is too small");
        return;
    }
    if (status != SL_OK) {
        sl_findings_add(f, "disk", SL_HEALTH_FAIL, "look at the kernel's log (dmesg)", "%s",
                        err.text);
        return;
    }
    bool slow = speed.bytes_per_s < SLOW_BYTES_PER_S;
    sl_findings_add(f, "disk", slow ? SL_HEALTH_WARN : SL_HEALTH_OK,
                    "put the model on an NVMe drive, or a copy of it on a second one (--mirror)",
                    "reads %.2f GB/s, one expert of %.1f MiB in %.2f ms", speed.bytes_per_s * 1e-9,
                    speed.expert_bytes / 0x1p20, speed.expert_ns * 1e-6);
}

void sl_doctor_disk(struct sl_findings *f, const char *path) {
    struct files files = {.path = path};
    struct sl_gguf *gguf = NULL;
    struct stat about;
    struct sl_err err;
    if (stat(path, &about) != 0) {
        sl_findings_add(f, "model", SL_HEALTH_FAIL, "name a file or a folder that is there",
                        "%s: %s", path, strerror(errno));
        return;
    }
    if (S_ISDIR(about.st_mode)) {
        try_folder(f, path);
        return;
    }
    if (!S_ISREG(about.st_mode)) {
        sl_findings_add(f, "model", SL_HEALTH_FAIL, "name a model's file", "%s: no regular file",
                        path);
        return;
    }
    if (sl_gguf_open(path, &gguf, &err) == SL_OK) {
        uint64_t bytes = 0;
        char size[16];
        for (uint32_t i = 0; i < sl_gguf_n_files(gguf); i++)
            bytes += sl_gguf_file_bytes(gguf, i);
        files.gguf = gguf;
        sl_findings_add(f, "model", SL_HEALTH_OK, NULL, "%s: %s in %u file%s", path,
                        sl_format_bytes(bytes, size), sl_gguf_n_files(gguf),
                        sl_gguf_n_files(gguf) == 1 ? "" : "s");
    } else {
        sl_findings_add(f, "model", SL_HEALTH_FAIL,
                        "pull it again, or name another: 'sluice inspect' says more", "%s",
                        err.text);
    }
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    add_direct(f, path, fd, fd < 0 ? errno : 0);
    if (fd >= 0)
        close(fd);
    measure(f, &files);
    sl_gguf_close(&gguf);
}
