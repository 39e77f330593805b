/* What all commands say of options that are wrong: one line with the error, one with where to read
 * about them, and exit code 2. */
int sluice_main(int argc, char **argv);
#define main sluice_main
#include "cli/main.c"
#undef main

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#define MAX_WORDS 16

/* The exit code, and what went to stderr. */
static int run(const char *words, char *said, size_t size) {
    char copy[512], *argv[MAX_WORDS + 2] = {(char *)"sluice"};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok(copy, " "); w && argc <= MAX_WORDS; w = strtok(NULL, " "))
        argv[argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
    FILE *kept = tmpfile();
    int own = dup(STDERR_FILENO);
    assert_non_null(kept);
    fflush(stderr);
    dup2(fileno(kept), STDERR_FILENO);
    int rc = sluice_main(argc, argv);
    fflush(stderr);
    dup2(own, STDERR_FILENO);
    close(own);
    rewind(kept);
    size_t n = fread(said, 1, size - 1, kept);
    said[n] = '\0';
    fclose(kept);
    return rc;
}

/* words: a command and its options, of which `says` is said. */
static void refused(const char *words, const char *says) {
    char said[2048], head[64], tail[64], command[16] = "";
    int rc = run(words, said, sizeof said);
    bool named = false;
    snprintf(command, sizeof command, "%.*s", (int)strcspn(words, " "), words);
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++)
        named |= strcmp(command, commands[i].name) == 0;
    const char *space = named ? " " : "", *name = named ? command : "";
    snprintf(head, sizeof head, "sluice%s%s: ", space, name);
    snprintf(tail, sizeof tail, "\nTry 'sluice%s%s --help'.\n", space, name);
    const char *end = strchr(said, '\n');
    if (rc != 2 || strncmp(said, head, strlen(head)) != 0 || !end || strcmp(end, tail) != 0 ||
        !strstr(said, says))
        fail_msg("sluice %s: %d, %s", words, rc, said);
}

static void every_command(void **state) {
    (void)state;
    char words[64];
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++) {
        const char *name = commands[i].name;
        snprintf(words, sizeof words, "%s --no-such-thing", name);
        refused(words, "unknown option '--no-such-thing'");
        refused(name, strcmp(name, "synth") == 0 ? "--out FILE is required" : "no model given");
        if (strcmp(name, "synth") != 0) {
            snprintf(words, sizeof words, "%s a.gguf b.gguf", name);
            refused(words, "unexpected argument 'b.gguf'");
            snprintf(words, sizeof words, "%s -m a.gguf b.gguf", name);
            refused(words, "two models given: a.gguf and b.gguf");
            snprintf(words, sizeof words, "%s -m", name);
            refused(words, "--model needs a value");
        }
    }
    refused("serv", "unknown command 'serv'; did you mean 'serve'?");
    refused("--verion", "unknown option '--verion'");
}

static void values(void **state) {
    (void)state;
    refused("serve --port 65536 m", "--port 65536");
    refused("serve --port x m", "'x' is not a whole number");
    refused("serve --host none m", "needs --unix-socket");
    refused("serve --tls-cert c m", "--tls-key is missing");
    refused("serve --unix-mode 0600 m", "needs --unix-socket");
    refused("serve --unix-socket s --unix-mode 0999 m", "not a mode");
    refused("serve --max-body-mib 65537 m", "--max-body-mib");
    refused("serve --cache-disk 1GiB m", "needs --cache-dir");
    refused("serve --api-key '' m", "--api-key is empty");
    refused("serve --log-level loud m", "--log-level");
    refused("plan --ram-bandwidth -1 m", "a bandwidth");
    refused("plan --cache-disk 1GiB m", "needs --cache-dir");
    refused("score m", "one of --ids and --text");
    refused("tokenize --file f --text t m", "exclude each other");
    refused("bench -o xml m", "--output is 'xml'");
    refused("bench --parallel 1,0 m", "--parallel is '1,0'");
    refused("bench -p 0 -n 0 m", "nothing to measure");
    refused("synth -o f --preset none", "--preset: 'none'");
    refused("synth -o f --type Q9", "'Q9' is not a tensor type");
    refused("synth -o f --arch none", "none");
}

static const char *const engines[] = {"serve", "run", "plan", "score", "bench"};

static void refused_with_engine(const char *options, const char *says) {
    char words[128];
    for (uint32_t i = 0; i < SL_COUNTOF(engines); i++) {
        bool score = strcmp(engines[i], "score") == 0;
        snprintf(words, sizeof words, "%s m%s %s", engines[i], score ? " --text t" : "", options);
        refused(words, says);
    }
}

static void of_the_engine(void **state) {
    (void)state;
    refused_with_engine("--kv-type f8", "--kv-type is 'f8'");
    refused_with_engine("--ram 0", "--ram 0 leaves nothing");
    refused_with_engine("--experts here", "must be auto, resident or streamed");
    refused_with_engine("--io fast", "--io is 'fast'");
    refused_with_engine("--look-ahead maybe", "must be on or off");
    refused_with_engine("--heat-file ''", "--heat-file is empty");
    refused_with_engine("--vram 1G,x", "--vram is '1G,x'");
    refused_with_engine("--vram 0", "--vram 0 leaves nothing");
    refused_with_engine("--vram-reserve-mib 0", "at least 1");
}

/* What GPUs have and the CPU has not; where auto takes the CPU they are for another machine. */
static void of_gpus(void **state) {
    (void)state;
    static const char *const about[][2] = {{"--split", "2,2"},     {"--split", "auto"},
                                           {"--vram", "1GiB"},     {"--vram-reserve-mib", "512"},
                                           {"--overflow", "on"},   {"--overflow", "off"},
                                           {"--vram", "1GiB,1GiB"}};
    char options[64], says[64], said[2048];
    for (uint32_t i = 0; i < SL_COUNTOF(about); i++) {
        snprintf(options, sizeof options, "--device cpu %s %s", about[i][0], about[i][1]);
        snprintf(says, sizeof says, "%s is about GPUs and means nothing with --device cpu",
                 about[i][0]);
        refused_with_engine(options, says);
    }
    refused("plan --device cpu --device-bandwidth 1 m", "--device-bandwidth is about GPUs");
    refused("plan --device cpu --link-bandwidth 1 m", "--link-bandwidth is about GPUs");
    /* It is the model that is missed then. */
    static const char *const taken[] = {"--device cpu", "--device auto --vram 1GiB", "--split auto",
                                        "--overflow off --vram-reserve-mib 1"};
    for (uint32_t i = 0; i < SL_COUNTOF(taken); i++) {
        snprintf(options, sizeof options, "run /no/such/model %s", taken[i]);
        assert_int_equal(run(options, said, sizeof said), 1);
        assert_non_null(strstr(said, "/no/such/model"));
        assert_null(strstr(said, "--help"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_command), cmocka_unit_test(values),
                                       cmocka_unit_test(of_the_engine), cmocka_unit_test(of_gpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
