#include "server/observe/process_metrics.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void sl_gauge_write(FILE *out, const char *name, const char *help, uint64_t value) {
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n%s %" PRIu64 "\n", name, help, name, name, value);
}

static uint64_t open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    uint64_t n = 0;
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", "..", and the folder itself */
}

void sl_process_metrics_write(FILE *out, int64_t started_s) {
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f) {
        if (fscanf(f, "%llu %llu", &size, &resident) != 2)
            size = resident = 0;
        fclose(f);
    }
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    struct timespec cpu = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    sl_gauge_write(out, "process_resident_memory_bytes", "Resident memory", resident * page);
    sl_gauge_write(out, "process_virtual_memory_bytes", "Address space", size * page);
    sl_gauge_write(out, "process_open_fds", "Open file descriptors", open_files());
    sl_gauge_write(out, "process_max_fds", "Limit of open file descriptors", limit.rlim_cur);
    sl_gauge_write(out, "process_start_time_seconds", "Start time of the server, in Unix time",
                   (uint64_t)started_s);
    fprintf(out,
            "# HELP process_cpu_seconds_total Processor time of all threads\n"
            "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total %lld.%09ld\n",
            (long long)cpu.tv_sec, cpu.tv_nsec);
}
