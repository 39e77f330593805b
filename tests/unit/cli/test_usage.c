/* What all commands say of options that are wrong: one line with the error, one with where to read
 * about them, and exit code 2; and of what they name and is not there: exit code 1. */
int sluice_main(int argc, char **argv);
#define main sluice_main
#include "cli/main.c"
#undef main
#include "cli/options/engine_options.h"
#include "tests/support/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
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
    struct capture c = capture_begin(stderr);
    int rc = sluice_main(argc, argv);
    FILE *kept = capture_end(&c);
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

static const char *heat_with(struct sl_engine_options *o, const char *cache, const char *home) {
    struct sl_engine_config config = {0};
    assert_int_equal(cache ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(home ? setenv("HOME", home, 1) : unsetenv("HOME"), 0);
    assert_true(sl_engine_options_apply("run", o, &config));
    return config.heat_file;
}

/* The user's cache folder, if there is one whose name leaves room; else no heat is kept. */
static void heat_by_default(void **state) {
    (void)state;
    struct sl_engine_options o = SL_ENGINE_OPTIONS_DEFAULT;
    char home[] = "/tmp/sluice-usage-XXXXXX", cache[64], wanted[96];
    static char padded[sizeof o.heat_folder + 64];
    assert_non_null(mkdtemp(home));
    snprintf(cache, sizeof cache, "%s/.cache", home);
    assert_null(heat_with(&o, NULL, NULL));
    assert_null(heat_with(&o, NULL, home)); /* without .cache */
    assert_null(heat_with(&o, cache, NULL));
    assert_int_equal(mkdir(cache, 0700), 0);
    snprintf(wanted, sizeof wanted, "%s/sluice/heat/", cache);
    assert_string_equal(heat_with(&o, NULL, home), wanted);
    assert_string_equal(heat_with(&o, cache, "/none"), wanted);
    assert_string_equal(heat_with(&o, "relative", home), wanted);
    /* The longest name that leaves room, and one more; both are the same folder. */
    size_t most = sizeof o.heat_folder - sizeof "/sluice/heat/";
    for (size_t n = most; n <= most + 1; n++) {
        memset(padded, '/', n);
        memcpy(padded + n - strlen(cache), cache, strlen(cache) + 1);
        const char *found = heat_with(&o, padded, NULL);
        assert_int_equal(found != NULL, n == most);
        assert_true(!found || strstr(found, wanted));
    }
    rmdir(cache);
    rmdir(home);
}

static void every_command(void **state) {
    (void)state;
    char words[64];
    /* A worker without a model has a folder below these. */
    assert_int_equal(unsetenv("XDG_CACHE_HOME") | unsetenv("HOME"), 0);
    for (uint32_t i = 0; i < SL_COUNTOF(commands); i++) {
        const char *name = commands[i].name;
        snprintf(words, sizeof words, "%s --no-such-thing", name);
        refused(words, "unknown option '--no-such-thing'");
        if (strcmp(name, "devices") == 0 || strcmp(name, "keygen") == 0 ||
            strcmp(name, "version") == 0) { /* take no words */
            snprintf(words, sizeof words, "%s x", name);
            refused(words, "unexpected argument 'x'");
            continue;
        }
        bool health = strcmp(name, "health") == 0, synth = strcmp(name, "synth") == 0;
        if (strcmp(name, "doctor") != 0) /* needs none */
            refused(name, synth    ? "--out FILE is required"
                          : health ? "--unix-socket PATH is required"
                                   : "no model given");
        if (!synth && !health) {
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
    refused("serve --host none m", "needs --unix-socket");
    refused("worker -m m --model-cache c", "give one of the two");
    assert_int_equal(setenv("HOME", "relative", 1), 0);
    refused("worker", "neither XDG_CACHE_HOME nor HOME says where");
    assert_int_equal(unsetenv("HOME"), 0);
    refused("serve --tls-cert c m", "--tls-key is missing");
    refused("serve --unix-mode 0600 m", "needs --unix-socket");
    refused("serve --unix-socket s --unix-mode 0999 m", "not a mode");
    refused("serve --cache-disk 1GiB m", "needs --cache-dir");
    refused("serve --log-level loud m", "--log-level");
    refused("serve --alias \xff m", "is not UTF-8");
    refused("serve --alias a,,b m", "'' is empty");
    refused("serve --alias a,b --alias b m", "'b' is given twice");
    refused("serve --alias 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,"
            "28,29,30,31,32,33 m",
            "'33' is one too many");
    static const char *const origins[] = {"chat.example", "https://", "https://a.example/",
                                          "https://a.example/b", "://a"};
    char words[160];
    for (uint32_t i = 0; i < SL_COUNTOF(origins); i++) {
        snprintf(words, sizeof words, "serve --cors-origin %s m", origins[i]);
        refused(words, "must be * or what browsers send");
    }
    static const char *const hosts[] = {"http://a.example", "a.example:80", "a.example,",
                                        "a.example/b", "[::1]:80"};
    for (uint32_t i = 0; i < SL_COUNTOF(hosts); i++) {
        snprintf(words, sizeof words, "serve --allowed-hosts %s m", hosts[i]);
        refused(words, "must be names or addresses without a port");
    }
    snprintf(words, sizeof words, "serve --unix-socket /%0107d m", 0);
    refused(words, "must be a path of at most 107 bytes");
    refused("serve --host a --host b --host c --host d m", "--host d is one too many: at most 3");
    refused("plan --cache-disk 1GiB m", "needs --cache-dir");
    refused("score m", "one of --ids and --text");
    refused("tokenize --file f --text t m", "exclude each other");
    refused("tokenize --splits none", "--splits is 'none': must be one that --list-pre prints");
    refused("bench -o xml m", "--output is 'xml'");
    refused("bench -p 0 -n 0 m", "nothing to measure");
    static const char *const lists[] = {"1,0", "1,", ",1",  "257",
                                        "-1",  "+1", "1;2", "1,1,1,1,1,1,1,1,1"};
    for (uint32_t i = 0; i < SL_COUNTOF(lists); i++) {
        char says[64];
        snprintf(words, sizeof words, "bench --parallel %s m", lists[i]);
        snprintf(says, sizeof says, "--parallel is '%s': must be up to 8 numbers", lists[i]);
        refused(words, says);
    }
    refused("bench --depth 16777000 -n 1000 m", "--depth 16777000 and --n-gen 1000 are more than");
    static const char *const cards[] = {"0", "24GiB,", ",24G", "much",
                                        "1G,1G,1G,1G,1G,1G,1G,1G,1G"};
    for (uint32_t i = 0; i < SL_COUNTOF(cards); i++) {
        snprintf(words, sizeof words, "plan --card %s m", cards[i]);
        refused(words, "must be the size of a GPU's memory, as 24GiB, or up to 8 with commas");
    }
    refused("plan --card 24G --device cpu m", "--card is a GPU that need not be here");
    refused("synth -o f --preset none", "--preset: 'none'");
    refused("synth -o f --type Q9", "'Q9' is not a tensor type");
    refused("synth -o f --arch none", "--arch is 'none': must be qwen3moe");
    refused("synth -o f --layers 0", "--layers is 0: must be from 1 to");
    refused("synth -o f --yarn -1", "--yarn is -1: must be from 0 to 1024");
    refused("synth -o f --stay 2", "--stay is 2: must be from 0 to 1");
    refused("synth -o f --heads 3 --kv-heads 2", "--heads is 3: must be a multiple");
    refused("synth -o f --head-dim 3", "--head-dim is 3: must be even");
}

/* Each option that takes a number, with what it does not take: of all commands that have it. */
static void numbers(void **state) {
    (void)state;
    static const struct {
        const char *commands, *option, *bad, *must_be;
    } cases[] = {
        {"serve run plan score", "--ctx", "1 16777217 -1 foo '' 99999999999999999999",
         "a whole number from 2 to 16777216, or 0 for the model's own"},
        {"serve run plan score bench", "--threads", "257 -1 foo ''",
         "a whole number from 1 to 256, or 0 for all CPUs"},
        {"serve plan", "--parallel", "0 1025 -1 foo ''", "a whole number from 1 to 1024\n"},
        {"serve plan", "--queue", "0 65537 -1 foo ''", "a whole number from 1 to 65536\n"},
        {"serve plan score bench", "--batch", "0 16385 -1 foo ''",
         "a whole number from 1 to 16384\n"},
        {"serve plan", "--cache-disk", "0 -1 foo ''", "a size such as 512MiB or 2GiB above 0"},
        {"serve plan", "--cache-ram", "-1 foo '' 1XB 99999999999999999999",
         "a size such as 512MiB or 2GiB"},
        {"serve run plan score bench", "--ram", "-1 foo ''", "a size such as 512MiB or 2GiB"},
        {"serve plan", "--max-body-mib", "0 65537 -1 foo ''", "a whole number from 1 to 65536\n"},
        {"serve plan", "--max-connections", "0 1048577 4294967295 -1 foo ''",
         "a whole number from 1 to 1048576\n"},
        {"serve run plan score bench", "--vram-reserve-mib", "0 4294967295 -1 foo ''",
         "a whole number from 1 to 16777216\n"},
        {"serve", "--port", "65536 -1 http ''", "a whole number from 0 to 65535\n"},
        {"serve", "--max-stall-ms", "0 3600001 -1 foo ''", "a whole number from 1 to 3600000\n"},
        {"serve", "--timeout-s", "0 31536001 -1 foo ''", "a whole number from 1 to 31536000\n"},
        {"serve", "--stall-s", "0 31536001 -1 foo ''", "a whole number from 1 to 31536000\n"},
        {"serve", "--request-timeout-s", "31536001 -1 0.5 ''",
         "a whole number from 1 to 31536000, or 0 for no limit\n"},
        {"serve", "--template-steps", "0 999 -1 foo ''", "a whole number of at least 1000\n"},
        {"serve", "--template-timeout-s", "0 31536001 -1 foo ''",
         "a whole number from 1 to 31536000\n"},
        {"serve", "--buffer-tokens", "0 16777217 -1 foo ''", "a whole number from 1 to 16777216\n"},
        {"serve", "--drain-s", "31536001 -1 foo ''", "a whole number from 0 to 31536000\n"},
        {"run", "--max-tokens", "-1 foo '' 4294967296", "a whole number from 0 to 4294967295\n"},
        {"run", "--seed", "-1 foo '' 18446744073709551616", "a whole number from 0 up\n"},
        {"run", "--top-k", "-1 foo ''", "a whole number from 0 to 4294967295\n"},
        {"run", "--temp", "-1 -0.1 foo nan inf ''", "a number from 0 up\n"},
        {"run", "--top-p", "-1 1.01 foo ''", "a number from 0 to 1\n"},
        {"run", "--min-p", "-1 1.01 foo ''", "a number from 0 to 1\n"},
        {"run", "--repeat-penalty", "0 -1 foo ''", "a number above 0\n"},
        {"plan", "--ram-bandwidth", "0 -1 foo ''", "a number above 0\n"},
        {"plan", "--disk-bandwidth", "0 -1 foo ''", "a number above 0\n"},
        {"plan", "--device-bandwidth", "0 -1 foo ''", "a number above 0\n"},
        {"plan", "--link-bandwidth", "0 -1 foo ''", "a number above 0\n"},
        {"bench", "--n-prompt", "16777214 4294967295 -1 foo ''",
         "a whole number from 0 to 16777213\n"},
        {"bench", "--n-gen", "16777214 4294967295 -1 foo ''",
         "a whole number from 0 to 16777213\n"},
        {"bench", "--repetitions", "0 101 -1 foo ''", "a whole number from 1 to 100\n"},
        {"bench", "--resident-prefill", "0 -1 foo ''", "a number above 0\n"},
        {"synth", "--layers", "-1 foo ''", "a whole number from 0 to 4294967295\n"},
        {"synth", "--skew", "foo ''", "a number\n"},
    };
    for (uint32_t i = 0; i < SL_COUNTOF(cases); i++)
        for (const char *c = cases[i].commands; *c; c += strspn(c, " ")) {
            size_t len = strcspn(c, " ");
            for (const char *b = cases[i].bad; *b; b += strspn(b, " ")) {
                size_t bad = strcspn(b, " ");
                bool empty = strncmp(b, "''", 2) == 0;
                char words[160], says[256];
                snprintf(words, sizeof words, "%.*s%s m %s %.*s", (int)len, c,
                         strncmp(c, "synth", len) == 0 ? " -o" : "", cases[i].option, (int)bad, b);
                snprintf(says, sizeof says, "%s is '%.*s': must be %s", cases[i].option,
                         empty ? 0 : (int)bad, b, cases[i].must_be);
                refused(words, says);
                b += bad;
            }
            c += len;
        }
}

/* No option takes an empty word where a file, a folder or a name is asked for. */
static void empty_words(void **state) {
    (void)state;
    static const struct {
        const char *command, *options;
    } cases[] = {
        {"serve",
         "--model --alias --host --unix-socket --unix-mode --tls-cert --tls-key "
         "--api-key-file --api-key --cors-origin --allowed-hosts --cache-dir --kv-type --trace "
         "--record-routes --cpu-isa --log-level --reasoning"},
        {"run", "--model --file --think --history --kv-type --trace --record-routes"},
        {"plan", "--model --cache-dir --kv-type"},
        {"score", "--model --ids --text --logprobs --cpu-isa"},
        {"bench", "--model --parallel --output --trace --record-routes --cpu-isa"},
        {"inspect", "--model --template-name"},
        {"tokenize", "--model --file --ids-out --splits"},
        {"synth", "--out --arch --type --attn --embd-type --output-type"},
        {"health", "--unix-socket"},
    };
    char words[128], says[64];
    for (uint32_t i = 0; i < SL_COUNTOF(cases); i++) {
        for (const char *o = cases[i].options; *o; o += strspn(o, " ")) {
            int len = (int)strcspn(o, " ");
            snprintf(words, sizeof words, "%s %.*s ''", cases[i].command, len, o);
            snprintf(says, sizeof says, "%.*s is empty: must be ", len, o);
            refused(words, says);
            o += len;
        }
        if (strcmp(cases[i].command, "synth") != 0 && strcmp(cases[i].command, "health") != 0) {
            snprintf(words, sizeof words, "%s ''", cases[i].command);
            refused(words, "MODEL is empty");
        }
    }
}

/* words: sound as words, and what they name is not there. Exit code 1, and nothing of --help. */
static void failed(const char *words, const char *says) {
    char said[2048];
    int rc = run(words, said, sizeof said);
    if (rc != 1 || !strstr(said, says) || strstr(said, "--help"))
        fail_msg("sluice %s: %d, %s", words, rc, said);
}

static void what_is_not_there(void **state) {
    (void)state;
    char model[] = "/tmp/sluice-usage-XXXXXX", words[256], said[2048];
    int fd = mkstemp(model);
    assert_true(fd >= 0);
    close(fd);
    snprintf(words, sizeof words, "synth -q --vocab 300 -o %s", model);
    assert_int_equal(run(words, said, sizeof said), 0);
    static const char *const all[] = {
        "serve", "run", "plan", "inspect", "tokenize --text t", "score --text t", "bench"};
    for (uint32_t i = 0; i < SL_COUNTOF(all); i++) {
        snprintf(words, sizeof words, "%s -m /no/such/model", all[i]);
        failed(words, "/no/such/model: cannot open");
        snprintf(words, sizeof words, "%s -m /tmp", all[i]);
        failed(words, "/tmp: a directory, not a model file");
    }
    static const struct {
        const char *before, *after, *says;
    } cases[] = {
        {"serve --api-key-file /no/such", "", "--api-key-file /no/such: cannot be read: No such"},
        {"serve --api-key-file /tmp", "", "--api-key-file /tmp: cannot be read: Is a directory"},
        {"serve --api-key-file /dev/null", "", "--api-key-file /dev/null: holds no key"},
        {"serve --tls-cert /no/such --tls-key /no/such", "--device cpu --port 0",
         "--tls-cert /no/such: No such"},
        {"serve --unix-socket /no/such/s --host none", "--device cpu",
         "--unix-socket /no/such/s: its lock /no/such/s.lock cannot be taken: No such"},
        {"serve --host no.such.invalid", "--device cpu --port 0",
         "--host no.such.invalid: cannot find its address"},
        {"plan --mirror /no/such", "", "--mirror /no/such: /no/such/"},
        {"plan --mirror /dev/null/x.gguf", "", "--mirror /dev/null/x.gguf: "},
        {"plan --mirror /proc/version", "--mirror /etc/hostname.gguf", "--mirror /proc/version: "},
        {"plan --cache-dir /dev/null", "", "--cache-dir /dev/null: must be a folder"},
        {"score --text /no/such", "", "--text /no/such: cannot be opened: No such"},
        {"score --ids /tmp", "", "--ids /tmp: must be a regular file"},
        {"score --text /etc/passwd --logprobs /tmp", "--device cpu",
         "--logprobs /tmp: cannot be written: Is a directory"},
        {"tokenize --file /no/such", "", "--file /no/such: cannot be read: No such"},
        {"tokenize --file /tmp", "", "--file /tmp: cannot be read: Is a directory"},
        {"tokenize --text t --ids-out /tmp", "", "--ids-out /tmp: cannot be written: Is a"},
        {"run -p t --trace /tmp", "--device cpu", "--trace /tmp: cannot be written: Is a"},
        {"run -p t --record-routes /tmp", "--device cpu", "--record-routes /tmp: cannot be"},
        {"inspect --template-name none", "", "no key 'tokenizer.chat_template.none'"},
    };
    for (uint32_t i = 0; i < SL_COUNTOF(cases); i++) {
        snprintf(words, sizeof words, "%s -m %s %s", cases[i].before, model, cases[i].after);
        failed(words, cases[i].says);
    }
    unlink(model);
    failed("health --unix-socket /no/such/s", "/no/such/s: No such");
    failed("synth -q -o /no/such/file", "--out /no/such/file: cannot be written: No such");
    failed("synth -q -o /tmp", "--out /tmp: cannot be written: Is a directory");
}

static void put_file(const char *folder, const char *name, const char *bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(bytes, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Of each command: what it writes is compared with the model's other parts, mirrors, keys and other
 * outputs, there or not, and by whichever path. @ is the folder. */
static void what_is_read_or_written_twice(void **state) {
    (void)state;
    static const char *const files[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "x.gguf",
                                        "secret", "text"};
    char at[] = "/tmp/sluice-usage-XXXXXX", words[512], path[160];
    assert_non_null(mkdtemp(at));
    for (uint32_t i = 0; i < SL_COUNTOF(files); i++)
        put_file(at, files[i], "content");
    snprintf(path, sizeof path, "%s/other", at);
    assert_int_equal(mkdir(path, 0700), 0);
    put_file(path, "m-00002-of-00002.gguf", "content");
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"run -m @/m-00001-of-00002.gguf --trace @/m-00002-of-00002.gguf", "which is the model"},
        {"run -m @/m-00002-of-00002.gguf --trace @/m-00001-of-00002.gguf", "which is the model"},
        {"bench -m m --mirror @/x.gguf --record-routes @/x.gguf", "which --mirror reads"},
        {"serve -m @/m-00001-of-00002.gguf --mirror @/other --trace "
         "@/other/m-00002-of-00002.gguf",
         "which --mirror reads"},
        {"run -m @/m-00001-of-00002.gguf --mirror @/other/m-00001-of-00002.gguf --trace "
         "@/other/m-00002-of-00002.gguf",
         "which --mirror reads"},
        {"serve -m m --tls-cert @/text --tls-key @/secret --trace @/secret", "which --tls-key"},
        {"serve -m m --tls-cert @/text --tls-key @/secret --trace @/text", "which --tls-cert"},
        {"serve -m m --api-key-file @/secret --record-routes @/./secret", "--api-key-file names"},
        {"run -m m --trace @/new --record-routes @/other/../new", "which --record-routes names"},
        {"score -m m --text @/text --logprobs @/other/../text", "which --text names too"},
        {"serve -m m --cache-dir @/other --trace @/other/new", "which is in --cache-dir"},
        {"run -m @/x.gguf --heat-file @/x.gguf", "--heat-file is '"},
        {"run -m m --mirror @/x.gguf --heat-file @/x.gguf", "which --mirror reads"},
        {"serve -m m --api-key-file @/secret --heat-file @/secret", "which --api-key-file names"},
        {"run -m m --heat-file @/new --trace @/new", "names too"},
        {"run -m m --history @/new --heat-file @/new", "names too"},
        {"run -m @/x.gguf --history @/x.gguf", "--history is '"},
        {"run -m m --trace @/new --heat-file @/new", "names too"},
        {"serve -m m --cache-dir @/other --heat-file @/other", "which --cache-dir names too"},
    };
    for (uint32_t i = 0; i < SL_COUNTOF(cases); i++) {
        size_t n = 0;
        for (const char *c = cases[i].words; *c; c++)
            n += (size_t)snprintf(words + n, sizeof words - n, *c == '@' ? "%s" : "%.1s",
                                  *c == '@' ? at : c);
        refused(words, cases[i].says);
    }
    /* What may be shared. */
    refused("run --trace /dev/null --record-routes /dev/null", "no model given");
    refused("run --history off --heat-file off", "no model given");
    snprintf(path, sizeof path, "%s/new", at);
    assert_int_equal(access(path, F_OK), -1);
    for (uint32_t i = 0; i < SL_COUNTOF(files); i++) {
        struct stat about;
        snprintf(path, sizeof path, "%s/%s", at, files[i]);
        assert_int_equal(stat(path, &about), 0);
        assert_int_equal(about.st_size, 7);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/other/m-00002-of-00002.gguf", at);
    unlink(path);
    snprintf(path, sizeof path, "%s/other", at);
    rmdir(path);
    rmdir(at);
}

static const char *const engines[] = {"serve", "run", "plan", "score", "bench"};

/* What is to be written is no file that is read: it is refused, and the file is as it was. */
static void what_would_be_overwritten(void **state) {
    (void)state;
    char file[] = "/tmp/sluice-usage-XXXXXX", link_to[64], words[256], says[128], content[8] = "";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "content", 7), 7);
    snprintf(link_to, sizeof link_to, "%s.link", file);
    assert_int_equal(link(file, link_to), 0);
    static const struct {
        const char *before, *after, *says;
    } cases[] = {
        {"run -p t --trace", "-m", "--trace is '%s', which is the model"},
        {"bench --record-routes", "-m", "--record-routes is '%s', which is the model"},
        {"serve --record-routes", "-m", "--record-routes is '%s', which is the model"},
        {"score --ids i --logprobs", "", "--logprobs is '%s', which is the model"},
        {"score -m m --logprobs", "--ids", "--logprobs is '%s', which --ids names too"},
        {"tokenize --text t --ids-out", "-m", "--ids-out is '%s', which is the model"},
        {"tokenize -m m --ids-out", "--file", "--ids-out is '%s', which --file names too"},
    };
    for (uint32_t i = 0; i < SL_COUNTOF(cases); i++) {
        snprintf(words, sizeof words, "%s %s %s %s", cases[i].before, link_to, cases[i].after,
                 file);
        snprintf(says, sizeof says, cases[i].says, link_to);
        refused(words, says);
    }
    assert_int_equal(pread(fd, content, sizeof content, 0), 7);
    assert_string_equal(content, "content");
    close(fd);
    unlink(link_to);
    unlink(file);
}

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
    refused_with_engine("--cpu-lane maybe", "must be off, auto or on");
    refused_with_engine("--cpu-lane-threads 1000", "must be 1 to 256");
    refused_with_engine("--cpu-lane on --device cpu", "has no effect with --device cpu");
    refused_with_engine("--heat-file ''", "--heat-file is empty");
    refused_with_engine("--mirror ''", "--mirror is empty");
    refused_with_engine("--device ''", "--device is empty");
    static const char *const devices[] = {
        "foo",     "0",        "-1",      "cuda:", "cuda:64", "cuda0",
        "cuda:0,", "cuda:0;1", "cuda:-1", "CUDA",  "cuda:a",  "cuda:0,1,2,3,4,5,6,7,8",
        "cpu,",    "cpu,0",    "auto,cpu"};
    for (uint32_t i = 0; i < SL_COUNTOF(devices); i++) {
        char options[64], says[96];
        snprintf(options, sizeof options, "--device %s", devices[i]);
        snprintf(says, sizeof says, "--device is '%s': must be auto, cuda, cuda:N,", devices[i]);
        refused_with_engine(options, says);
    }
    refused_with_engine("--device cuda:0,1 --split 1,x", "--split is '1,x': must be auto");
    refused_with_engine("--device cuda:0,1 --split 0,1", "--split 0,1: only with --workers");
    refused_with_engine("--device cuda:0,1 --split 0,auto", "--split 0,auto: only with --workers");
    refused_with_engine("--device cuda:0,1 --split 1,0", "--split is '1,0': must be auto");
    refused_with_engine("--device cuda:0,1 --split 0,0,2", "--split is '0,0,2': must be auto");
    refused_with_engine("--device cuda:0,1 --split 0", "--split is '0': must be auto");
    refused_with_engine("--device cuda:0,1 --split 1,1,1", "is for 3 devices, and 2 are named");
    refused_with_engine("--device cpu,cpu", "cpu is named twice");
    refused_with_engine("--device cuda:0,cpu --split 1,1,1", "is for 3 devices, and 2 are named");
    refused_with_engine("--device cuda:0,1,cpu --vram 1G,1G,1G",
                        "--vram: 3 sizes of device memory for 2 devices");
    refused_with_engine("--split 2,2", "name them, as in --device cuda:0,1");
    refused_with_engine("--device cuda:0,1 --vram 1G,1G,1G",
                        "--vram: 3 sizes of device memory for 2 devices");
    refused_with_engine("--vram 1G,x", "--vram is '1G,x'");
    refused_with_engine("--vram 0", "--vram 0 leaves nothing");
    refused_with_engine("--ram 32", "--ram is 32 bytes: a size has a unit, as 2GiB");
    refused_with_engine("--vram 24", "--vram is 24 bytes: a size has a unit");
    refused_with_engine("--device cuda:0,1 --vram 24G,24", "--vram is 24 bytes");
    static const char *const with_isa[] = {"serve", "score --text t", "bench"};
    for (uint32_t i = 0; i < SL_COUNTOF(with_isa); i++) {
        char words[64];
        snprintf(words, sizeof words, "%s m --cpu-isa sse", with_isa[i]);
        refused(words, "--cpu-isa is 'sse': must be c, avx2, avx512 or vnni");
        snprintf(words, sizeof words, "%s m --cpu-isa c --device cuda:0", with_isa[i]);
        refused(words, "has no effect with --device cuda:0");
        snprintf(words, sizeof words, "%s m --cpu-isa sse --device cuda:0,cpu", with_isa[i]);
        refused(words, "must be c, avx2, avx512 or vnni"); /* the CPU takes one */
    }
}

/* How many devices beside the CPU a server keeps descriptors for. */
static void cards_of_a_list(void **state) {
    (void)state;
    static const struct {
        const char *device;
        uint32_t n;
    } cases[] = {{NULL, 0},         {"cpu", 0},      {"cpu:0", 0},
                 {"auto", 1},       {"cuda", 1},     {"cuda:0,1,cpu", 2},
                 {"cpu,cuda:3", 1}, {"cuda:all", 8}, {"cuda:all,cuda:0,cpu", 8},
                 {"no such", 0}};
    for (uint32_t i = 0; i < SL_COUNTOF(cases); i++)
        assert_int_equal(sl_device_option_cards(cases[i].device), cases[i].n);
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
        snprintf(says, sizeof says, "%s applies to GPUs and has no effect with --device cpu",
                 about[i][0]);
        refused_with_engine(options, says);
    }
    refused("plan --device cpu --device-bandwidth 1 m", "--device-bandwidth applies to GPUs");
    refused("plan --device cpu --link-bandwidth 1 m", "--link-bandwidth applies to GPUs");
    /* It is the model that is missed then. */
    static const char *const taken[] = {"--device cpu",
                                        "--device cuda:0,cpu --vram 1GiB --split 1,1",
                                        "--device cuda:all,cpu",
                                        "--device null",
                                        "--device auto --vram 1GiB",
                                        "--split auto",
                                        "--overflow off --vram-reserve-mib 1"};
    for (uint32_t i = 0; i < SL_COUNTOF(taken); i++) {
        snprintf(options, sizeof options, "run /no/such/model %s", taken[i]);
        assert_int_equal(run(options, said, sizeof said), 1);
        assert_non_null(strstr(said, "/no/such/model"));
        assert_null(strstr(said, "--help"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(heat_by_default),
                                       cmocka_unit_test(every_command),
                                       cmocka_unit_test(values),
                                       cmocka_unit_test(numbers),
                                       cmocka_unit_test(empty_words),
                                       cmocka_unit_test(what_is_not_there),
                                       cmocka_unit_test(what_would_be_overwritten),
                                       cmocka_unit_test(what_is_read_or_written_twice),
                                       cmocka_unit_test(of_the_engine),
                                       cmocka_unit_test(cards_of_a_list),
                                       cmocka_unit_test(of_gpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
