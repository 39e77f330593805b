/* Runs a fuzz target over fixed inputs and prints TAP: replay_NAME FILE|FOLDER...
 * A fault ends the program, which the caller counts as a failure; the last line names the input. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_run;

static void run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) {
        perror(path);
        exit(1);
    }
    size_t size = (size_t)ftell(f);
    rewind(f);
    /* Exactly as large as the input, so that reading one byte past it is caught. */
    uint8_t *data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, f) != size) {
        perror(path);
        exit(1);
    }
    fclose(f);
    printf("# %s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    printf("ok %d - %s\n", ++n_run, path);
}

static int not_hidden(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static void run_folder(const char *path) {
    struct dirent **names;
    int n = scandir(path, &names, not_hidden, alphasort);
    if (n < 0) {
        perror(path);
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        run_file(file);
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv) {
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        struct stat sb;
        if (stat(argv[i], &sb) == 0 && S_ISDIR(sb.st_mode))
            run_folder(argv[i]);
        else
            run_file(argv[i]);
    }
    printf("1..%d\n", n_run);
    return n_run > 0 ? 0 : 1;
}
