#include "backends/hip/compile.h"

#include "backends/code_cache.h"
#include "backends/hip/sources.h"
#include "common/clock.h"
#include "common/cpus.h"
#include "common/interrupt.h"
#include "common/log.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Each takes a few hundred MB of memory. */
#define MAX_JOBS 8u
/* The runtime may need an image's address to be aligned. */
#define IMAGE_ALIGN 4096u
#define LOG_LINES   3u
#define LOG_BYTES   320u

static const char elf[4] = {0x7f, 'E', 'L', 'F'};

struct job {
    pid_t pid; /* 0: none */
    uint32_t source;
    int code, log; /* memfds: its stdout and stderr */
    uint64_t end_ns;
};

struct work {
    const struct sl_hip_target *target;
    struct sl_gpu_image *images;
    struct sl_code_file *files; /* of each source */
    uint32_t n, n_missing, n_begun;
    struct job job[MAX_JOBS];
    uint64_t limit_s;
    bool keeps; /* until a file cannot be written, which the log then says once */
};

/* ---- what is kept ---- */

/* Variables whose options hipRTC adds to ours. Source: HIP's list of environment variables. */
static const char *const variables[] = {"HIPRTC_COMPILE_OPTIONS_APPEND",
                                        "HIPRTC_LINK_OPTIONS_APPEND"};

static void add_text(struct sl_siphash *h, const char *text) {
    sl_siphash_add(h, text, strlen(text) + 1);
}

/* A hash of all that an image depends on. */
static struct sl_hash128 key_of(const struct sl_hip_target *t, const struct sl_hip_text *source) {
    struct sl_siphash h;
    const int versions[] = {t->runtime_version, t->hiprtc.major, t->hiprtc.minor};
    sl_siphash_init(&h, (struct sl_hash128){0, 0});
    sl_siphash_add(&h, versions, sizeof versions);
    add_text(&h, t->arch);
    for (uint32_t i = 0; sl_hiprtc_option(i); i++)
        add_text(&h, sl_hiprtc_option(i));
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *more = getenv(variables[i]);
        add_text(&h, more ? more : "");
    }
    add_text(&h, source->name);
    add_text(&h, source->text);
    for (uint64_t i = 0; i < sl_hip_n_headers; i++) {
        add_text(&h, sl_hip_headers[i].name);
        add_text(&h, sl_hip_headers[i].text);
    }
    return sl_siphash_end(&h);
}

static bool find_file(const struct sl_hip_target *t, const struct sl_hip_text *source,
                      struct sl_code_file *out) {
    char name[160];
    out->key = key_of(t, source);
    snprintf(name, sizeof name, "%s-%s-%016llx%016llx.co", t->arch, source->name,
             (unsigned long long)out->key.hi, (unsigned long long)out->key.lo);
    return sl_code_file_find(out, "hip", name);
}

static bool is_code(const void *code, size_t bytes) {
    return bytes > sizeof elf && memcmp(code, elf, sizeof elf) == 0;
}

/* False: no memory. */
static bool keep_image(struct work *w, uint32_t i, const void *code, size_t bytes) {
    void *data = aligned_alloc(IMAGE_ALIGN, (bytes + IMAGE_ALIGN - 1) & ~(IMAGE_ALIGN - 1ul));
    if (!data)
        return false;
    memcpy(data, code, bytes);
    w->images[i] = (struct sl_gpu_image){.name = sl_hip_sources[i].name, .data = data};
    return true;
}

static void read_kept(struct work *w) {
    for (uint32_t i = 0; i < w->n; i++) {
        size_t bytes = 0;
        bool is_kept = find_file(w->target, &sl_hip_sources[i], &w->files[i]);
        void *code = is_kept ? sl_code_file_read(&w->files[i], &bytes) : NULL;
        w->n_missing += !code || !is_code(code, bytes) || !keep_image(w, i, code, bytes);
        free(code);
    }
}

/* ---- the processes that compile ---- */

static int spawn(const char *order, int code, int log, pid_t *out_pid) {
    extern char **environ;
    size_t n = 0;
    while (environ[n])
        n++;
    char **env = calloc(n + 2, sizeof *env), *argv[] = {(char[]){"sluice: kernels"}, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t about;
    sigset_t none, all;
    if (!env)
        return ENOMEM;
    memcpy(env, environ, n * sizeof *env);
    env[n] = (char *)(uintptr_t)order;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&about);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", 0, 0);
    posix_spawn_file_actions_adddup2(&files, code, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, log, STDERR_FILENO);
    /* A group of its own, so that Ctrl-C in a terminal reaches this process alone, which then ends
     * the others. */
    posix_spawnattr_setflags(&about, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                         POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&about, &none);
    posix_spawnattr_setsigdefault(&about, &all);
    int result = posix_spawn(out_pid, "/proc/self/exe", &files, &about, argv, env);
    posix_spawnattr_destroy(&about);
    posix_spawn_file_actions_destroy(&files);
    free(env);
    return result;
}

static void close_job(struct job *j) {
    if (j->code >= 0)
        close(j->code);
    if (j->log >= 0)
        close(j->log);
    *j = (struct job){.code = -1, .log = -1};
}

static enum sl_status begin(struct work *w, struct job *j, uint32_t source, struct sl_err *err) {
    const struct sl_hip_target *t = w->target;
    const char *name = sl_hip_sources[source].name;
    char order[SL_HIPRTC_PATH_BYTES + 160];
    snprintf(order, sizeof order, SL_HIPRTC_ORDER "=%s %s %s", t->arch, name, t->hiprtc.path);
    sl_info("%s: compiling GPU kernels for %s: %u of %u, %s", t->device, t->arch, ++w->n_begun,
            w->n_missing, name);
    *j = (struct job){.source = source,
                      .code = memfd_create("code", MFD_CLOEXEC),
                      .log = memfd_create("log", MFD_CLOEXEC),
                      .end_ns = sl_now_ns() + w->limit_s * 1000000000u};
    int result = j->code < 0 || j->log < 0 ? errno : spawn(order, j->code, j->log, &j->pid);
    if (!result)
        return SL_OK;
    j->pid = 0;
    close_job(j);
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "%s: the process that compiles kernels for %s (/proc/self/exe once more) does "
                   "not start: %s",
                   t->device, t->arch, strerror(result));
}

/* The first lines of its stderr, as one line. */
static void read_log(const struct job *j, char out[LOG_BYTES]) {
    ssize_t n = pread(j->log, out, LOG_BYTES - 1, 0);
    uint32_t lines = 0;
    out[n > 0 ? n : 0] = 0;
    for (char *at = out; *at; at++)
        if (*at == '\n' && (++lines == LOG_LINES || !at[1]))
            *at = 0;
        else if ((unsigned char)*at < ' ')
            *at = ' ';
}

static enum sl_status take(struct work *w, const struct job *j, struct sl_err *err) {
    const struct sl_hip_target *t = w->target;
    const char *name = sl_hip_sources[j->source].name;
    struct stat about = {.st_size = 0};
    enum sl_status status = SL_OK;
    void *code = NULL;
    if (fstat(j->code, &about) == 0 && about.st_size > 0)
        code = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, j->code, 0);
    if (code == MAP_FAILED)
        return sl_fail(err, SL_ERR_NOMEM, "%s: the compiled kernels '%s' cannot be mapped: %s",
                       t->device, name, strerror(errno));
    if (!code || !is_code(code, (size_t)about.st_size))
        status = sl_fail(err, SL_ERR_UNSUPPORTED,
                         "%s: what hipRTC %d.%d made of the kernels '%s' for %s is not code; "
                         "install another ROCm, or use vulkan or the CPU",
                         t->device, t->hiprtc.major, t->hiprtc.minor, name, t->arch);
    else if (!keep_image(w, j->source, code, (size_t)about.st_size))
        status = sl_fail(err, SL_ERR_NOMEM, "%s: out of memory", t->device);
    else if (w->keeps)
        w->keeps = sl_code_file_write(&w->files[j->source], code, (size_t)about.st_size);
    if (code)
        munmap(code, (size_t)about.st_size);
    return status;
}

/* Takes the code of a process that has ended well, or says why there is none. */
static enum sl_status end(struct work *w, const struct job *j, int how, struct sl_err *err) {
    const struct sl_hip_target *t = w->target;
    const char *name = sl_hip_sources[j->source].name;
    char log[LOG_BYTES];
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return take(w, j, err);
    read_log(j, log);
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%s: the process that compiled the kernels '%s' for %s was killed, perhaps "
                       "because memory ran out: up to %u run at once, one per CPU, and each takes "
                       "a few hundred MB; what is compiled is kept: start again with more memory "
                       "or fewer CPUs",
                       t->device, name, t->arch, MAX_JOBS);
    if (WIFSIGNALED(how))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%s: hipRTC %d.%d died of signal %d while it compiled '%s' for %s, which it "
                       "may not know: install a newer ROCm, or use vulkan or the CPU%s%s",
                       t->device, t->hiprtc.major, t->hiprtc.minor, WTERMSIG(how), name, t->arch,
                       *log ? ": " : "", log);
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "%s: kernels '%s' do not compile for %s with hipRTC %d.%d; use vulkan or the "
                   "CPU: %s",
                   t->device, name, t->arch, t->hiprtc.major, t->hiprtc.minor,
                   *log ? log : "it does not say why");
}

/* Checks whether a process has ended, or has used up its time. */
static enum sl_status look_at(struct work *w, struct job *j, struct sl_err *err) {
    int how = 0;
    pid_t ended = waitpid(j->pid, &how, WNOHANG);
    if (ended == 0 && sl_now_ns() < j->end_ns)
        return SL_OK;
    if (ended == 0)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%s: compiling the kernels '%s' for %s takes longer than %llu s and was "
                       "given up; what is compiled is kept: start again, or build with "
                       "HIP_ARCHS=%s, or use vulkan or the CPU",
                       w->target->device, sl_hip_sources[j->source].name, w->target->arch,
                       (unsigned long long)w->limit_s, w->target->arch);
    enum sl_status status =
        ended < 0 ? sl_fail(err, SL_ERR_UNSUPPORTED, "%s: waiting for the compiler: %s",
                            w->target->device, strerror(errno))
                  : end(w, j, how, err);
    j->pid = 0;
    close_job(j);
    return status;
}

static enum sl_status work(struct work *w, struct sl_err *err) {
    uint32_t n_jobs = sl_cpus_allowed() < MAX_JOBS ? sl_cpus_allowed() : MAX_JOBS, next = 0;
    for (;;) {
        bool busy = false;
        for (uint32_t i = 0; i < n_jobs; i++) {
            struct job *j = &w->job[i];
            if (j->pid)
                SL_TRY(look_at(w, j, err));
            while (next < w->n && w->images[next].data)
                next++;
            if (!j->pid && next < w->n)
                SL_TRY(begin(w, j, next++, err));
            busy |= j->pid != 0;
        }
        if (!busy)
            return SL_OK;
        if (sl_interrupt_pending())
            return sl_fail(err, SL_ERR_CANCELED, "%s: stopped while kernels were being compiled",
                           w->target->device);
        usleep(SL_INTERRUPT_POLL_MS * 1000);
    }
}

/* Kills what still runs after a failure. */
static void stop(struct work *w) {
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        if (!w->job[i].pid)
            continue;
        kill(w->job[i].pid, SIGKILL);
        while (waitpid(w->job[i].pid, NULL, 0) < 0 && errno == EINTR) {
        }
        close_job(&w->job[i]);
    }
}

static enum sl_status compile_missing(struct work *w, struct sl_err *err) {
    const struct sl_hip_target *t = w->target;
    uint64_t begun_ns = sl_now_ns();
    sl_info("%s: this build has no code for %s: hipRTC %d.%d compiles %u of %u sources, which "
            "takes minutes",
            t->device, t->arch, t->hiprtc.major, t->hiprtc.minor, w->n_missing, w->n);
    w->keeps = *w->files[0].path != 0;
    if (!w->keeps)
        sl_warn("%s: neither $XDG_CACHE_HOME nor ~/.cache is a folder: compiled kernels are not "
                "kept, and each start compiles them again; make one of the two",
                t->device);
    enum sl_status status = work(w, err);
    stop(w);
    if (!status)
        sl_info("%s: compiled in %.0f s", t->device, (double)(sl_now_ns() - begun_ns) * 1e-9);
    return status;
}

static uint64_t limit_s(void) {
    const char *text = getenv("SLUICE_TEST_COMPILE_SECONDS");
    uint64_t s = text ? strtoull(text, NULL, 10) : 0;
    return s && s < SL_HIP_COMPILE_SECONDS ? s : SL_HIP_COMPILE_SECONDS;
}

void sl_hip_images_free(struct sl_gpu_image *images, uint32_t n) {
    for (uint32_t i = 0; images && i < n; i++)
        free((void *)(uintptr_t)images[i].data);
    free(images);
}

enum sl_status sl_hip_compile(const struct sl_hip_target *target, struct sl_gpu_image **out_images,
                              uint32_t *out_n, struct sl_err *err) {
    struct work w = {.target = target, .n = (uint32_t)sl_hip_n_sources, .limit_s = limit_s()};
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < MAX_JOBS; i++)
        w.job[i].code = w.job[i].log = -1;
    w.images = calloc(w.n, sizeof *w.images);
    w.files = calloc(w.n, sizeof *w.files);
    if (!w.n || !w.images || !w.files)
        status = sl_fail(err, SL_ERR_NOMEM, "%s: out of memory", target->device);
    if (!status) {
        read_kept(&w);
        sl_debug("%s: kernels for %s: %u of %u sources are compiled already", target->device,
                 target->arch, w.n - w.n_missing, w.n);
        status = w.n_missing ? compile_missing(&w, err) : SL_OK;
    }
    free(w.files);
    if (status) {
        sl_hip_images_free(w.images, w.n);
        return status;
    }
    *out_images = w.images;
    *out_n = w.n;
    return SL_OK;
}
