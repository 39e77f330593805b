/* sluice serve: binds the port, loads the model behind it, serves until told to stop. */
#include "cli/serve/allowed_hosts.h"
#include "cli/serve/aliases.h"
#include "cli/serve/api_keys.h"
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "cli/options/engine_options.h"
#include "cli/options/open_engine.h"
#include "cli/process/process_limits.h"
#include "cli/process/serve_memory.h"
#include "cli/serve/serve_ready.h"
#include "common/clock.h"
#include "common/interrupt.h"
#include "common/log.h"
#include "common/utf8.h"
#include "server/server.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

/* A year: as good as never. */
#define MAX_SECONDS 31536000
/* --reasoning-budget is not given. */
#define NO_BUDGET UINT32_MAX

struct options {
    const char *model, *log_level, *api_key, *api_key_file;
    const char *unix_mode, *reasoning;
    uint32_t reasoning_budget;
    struct sl_arg_list hosts, cors_origins, allowed_hosts, alias_words;
    struct sl_aliases aliases;
    uint32_t port, max_body_mib, drain_s;
    uint64_t response_store_bytes;
    bool no_warmup, any_model_name;
    struct sl_engine_config engine;
    struct sl_engine_options memory;
    struct sl_server_config server;
};

struct loader {
    struct sl_progress progress; /* first: the engine's pointer is ours */
    const struct options *opt;
    struct sl_server *server;
    pthread_t thread;
    atomic_bool stop, done;
    enum sl_status status;
    struct sl_err err;
    struct sl_model *model;
    struct sl_tokenizer *tok;
    struct sl_engine_config config; /* with the plan's part of the process in it */
    struct sl_process_memory memory;
    struct sl_cluster_use cluster;
    struct sl_engine *engine;
    char id[SL_MAX_ALIAS_BYTES + 1]; /* what clients call the model */
    double tokens_per_s;
};

static bool report(struct sl_progress *p, uint64_t done_bytes, uint64_t total_bytes) {
    struct loader *l = (struct loader *)p;
    sl_server_progress(l->server, done_bytes, total_bytes);
    return !atomic_load(&l->stop);
}

/* "dir/Qwen3-30B-A3B-Q4_K_M-00001-of-00002.gguf" gives "Qwen3-30B-A3B-Q4_K_M". */
static void default_alias(const char *path, char *out, size_t size) {
    const char *base = strrchr(path, '/');
    snprintf(out, size, "%s", base ? base + 1 : path);
    size_t n = strlen(out);
    if (n > 5 && strcasecmp(out + n - 5, ".gguf") == 0)
        out[n -= 5] = '\0';
    unsigned part, parts;
    int end = 0;
    if (n > 15 && sscanf(out + n - 15, "-%5u-of-%5u%n", &part, &parts, &end) == 2 && end == 15)
        out[n - 15] = '\0';
}

static enum sl_status attach(struct loader *l) {
    const struct sl_gguf *g = l->model->gguf;
    const struct sl_aliases *names = &l->opt->aliases;
    if (!names->n)
        default_alias(l->opt->model, l->id, sizeof l->id);
    else
        snprintf(l->id, sizeof l->id, "%s", names->name[0]);
    struct sl_server_model m = {
        .engine = l->engine,
        .tokenizer = l->tok,
        .id = l->id,
        .aliases = names->name + 1,
        .n_aliases = names->n ? names->n - 1 : 0,
        .any_name = l->opt->any_model_name,
        .path = l->opt->model,
        .arch = sl_model_arch_name(l->model),
        .n_ctx_train = l->model->hp.n_ctx_train,
        .fingerprint = sl_model_fingerprint(l->model),
    };
    for (uint32_t i = 0; i < sl_gguf_n_files(g); i++)
        m.size_bytes += sl_gguf_file_bytes(g, i);
    struct sl_str text = {0};
    enum sl_status status = sl_gguf_get_str(g, "tokenizer.chat_template", &text, &l->err);
    if (status != SL_OK && status != SL_AGAIN)
        return status;
    char key[64];
    uint32_t pooling = 0; /* of an embedding model: 1 mean, 2 first, 3 last */
    snprintf(key, sizeof key, "%s.pooling_type", m.arch);
    status = sl_gguf_get_u32(g, key, &pooling, &l->err);
    if (status != SL_OK && status != SL_AGAIN)
        return status;
    m.pools_last = pooling == 3;
    m.chat_template = text.len ? text.ptr : NULL;
    m.chat_template_bytes = text.len;
    return sl_server_attach(l->server, &m, &l->err);
}

static enum sl_status load(struct loader *l) {
    enum sl_status status =
        sl_engine_create(l->model, &l->config, &l->progress, &l->engine, &l->err);
    if (status == SL_OK && !l->opt->no_warmup)
        status = sl_serve_warm_up(l->engine, &l->stop, &l->tokens_per_s, &l->err);
    return status == SL_OK ? attach(l) : status;
}

/* What can be rejected before a weight is read: the file, the budget. */
static bool prepare(struct loader *l, struct options *o) {
    struct sl_memory_plan plan;
    char note[SL_CTX_NOTE_BYTES];
    l->config = o->engine;
    enum sl_status status = sl_model_open(o->model, &l->model, &l->err);
    if (status == SL_OK)
        status = sl_use_drafts(l->model, &l->config, &l->err);
    if (status == SL_OK)
        status = sl_tokenizer_create(l->model->gguf, &l->tok, &l->err);
    if (status == SL_OK)
        status = sl_cluster_use(&o->memory, l->model, &l->cluster, &l->config, &l->err);
    if (status == SL_OK)
        status = sl_serve_plan(l->model, l->tok, &l->config, &o->server, &l->memory, &plan, NULL,
                               note, &l->err);
    if (status == SL_OK && note[0])
        sl_info("context: %s", note);
    if (status != SL_OK) {
        sl_error("%s", l->err.text);
        sl_cluster_say_why(&l->cluster, status, &l->err);
    }
    return status == SL_OK;
}

static void close_model(struct loader *l) {
    sl_cluster_leave(&l->cluster);
    sl_tokenizer_destroy(&l->tok);
    sl_model_close(&l->model);
}

static void *load_main(void *arg) {
    struct loader *l = arg;
    uint64_t start = sl_now_ns();
    l->status = load(l);
    if (l->status == SL_OK) {
        char url[SL_SERVE_URL_BYTES], ready[SL_SERVE_READY_BYTES];
        struct sl_engine_info info;
        sl_engine_info(l->engine, &info);
        sl_serve_url(&l->opt->server, sl_server_port(l->server), url);
        sl_serve_ready(&info, url, l->id, (double)(sl_now_ns() - start) * 1e-9, l->tokens_per_s,
                       ready);
        sl_info("%s", ready);
    } else {
        sl_cluster_say_why(&l->cluster, l->status, &l->err);
        sl_server_fail(l->server, &l->err);
    }
    atomic_store(&l->done, true);
    return NULL;
}

/* A scheme, "://", a host and perhaps a port, with nothing behind. Source: RFC 6454, section 6.2.
 */
static bool is_origin(const char *text) {
    const char *host = strstr(text, "://");
    if (strcmp(text, "*") == 0 || strcmp(text, "null") == 0)
        return true;
    return host && host > text && host[3] && !strpbrk(host + 3, "/?# ,") && !strchr(text, ' ');
}

/* Where to listen, and how: from options to the server's configuration. */
static bool check_transport(struct options *o) {
    struct sl_server_config *c = &o->server;
    char *end;
    c->port = (uint16_t)o->port;
    c->hosts = o->hosts.items;
    c->n_hosts = o->hosts.n;
    if (o->hosts.n == 1 && strcmp(o->hosts.items[0], "none") == 0) {
        if (!c->unix_socket) {
            sl_usage_error("serve", "--host none needs --unix-socket");
            return false;
        }
        c->n_hosts = 0;
    } else if (!o->hosts.n) {
        o->hosts.items[c->n_hosts++] = "127.0.0.1";
    }
    if (!c->tls_cert != !c->tls_key) {
        sl_usage_error("serve", "--tls-cert and --tls-key go together; %s is missing",
                       c->tls_cert ? "--tls-key" : "--tls-cert");
        return false;
    }
    if (o->unix_mode && !c->unix_socket) {
        sl_usage_error("serve", "--unix-mode needs --unix-socket");
        return false;
    }
    if (o->unix_mode) {
        unsigned long mode = strtoul(o->unix_mode, &end, 8);
        if (*end || !*o->unix_mode || !mode || mode > 0777) {
            sl_usage_error("serve", "--unix-mode %s is not a mode such as 0660", o->unix_mode);
            return false;
        }
        c->unix_mode = (uint32_t)mode;
    }
    if (c->unix_socket && strlen(c->unix_socket) >= sizeof(struct sockaddr_un){0}.sun_path) {
        sl_usage_error("serve", "--unix-socket is '%s': must be a path of at most %zu bytes",
                       c->unix_socket, sizeof(struct sockaddr_un){0}.sun_path - 1);
        return false;
    }
    for (uint32_t i = 0; i < o->cors_origins.n; i++)
        if (!is_origin(o->cors_origins.items[i])) {
            sl_usage_error("serve",
                           "--cors-origin is '%s': must be * or what browsers send, such as "
                           "https://chat.example or http://localhost:3000",
                           o->cors_origins.items[i]);
            return false;
        }
    c->cors_origins = o->cors_origins.items;
    c->n_cors_origins = o->cors_origins.n;
    return true;
}

static bool check_reasoning(struct options *o) {
    static const char *const words[] = {
        [SL_THINKING_AS_TEMPLATE] = "auto", [SL_THINKING_ON] = "on", [SL_THINKING_OFF] = "off"};
    o->server.limits_reasoning = o->reasoning_budget != NO_BUDGET;
    o->server.reasoning_budget = o->reasoning_budget;
    for (uint32_t i = 0; i < SL_COUNTOF(words); i++)
        if (strcmp(o->reasoning, words[i]) == 0) {
            o->server.thinking = (enum sl_thinking_default)i;
            return true;
        }
    sl_usage_error("serve", "--reasoning must be on, off or auto, not %s", o->reasoning);
    return false;
}

static bool check_options(struct options *o) {
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    if (!check_transport(o))
        return false;
    if (o->engine.cache_disk_bytes && !o->engine.cache_dir) {
        sl_usage_error("serve", "--cache-disk needs --cache-dir");
        return false;
    }
    if (!sl_engine_options_apply("serve", &o->memory, &o->engine) || !check_reasoning(o))
        return false;
    for (int i = SL_LOG_ERROR; i <= SL_LOG_DEBUG; i++) {
        if (strcmp(o->log_level, levels[i]) == 0) {
            sl_log_set_level((enum sl_log_level)i);
            return true;
        }
    }
    sl_usage_error("serve", "--log-level must be error, warn, info or debug, not %s", o->log_level);
    return false;
}

/* Descriptors of the server itself: listeners, its threads' queues, the certificate when it is read
 * again, the heat file and blocks as they are read and written, the trace, what is read of /proc.
 */
#define OWN_FILES       64u
#define GPU_FILES       64u /* of a GPU's driver */
#define MIN_CONNECTIONS 4u

/* How many descriptors it takes besides connections: its own, and every part of the model and of
 * its mirrors, twice more each while weights are loaded. */
static uint32_t own_files(const struct loader *l) {
    const struct sl_engine_config *c = &l->config;
    uint32_t gpus = sl_device_option_cards(c->device);
    return OWN_FILES + gpus * GPU_FILES + sl_gguf_n_files(l->model->gguf) * (4 + 2 * c->n_mirrors);
}

/* New connections have to wait before the server's own work runs out of descriptors. */
static bool limit_connections(const struct loader *l, struct sl_server_config *c) {
    uint32_t can = sl_process_files_free(), own = own_files(l), max = sl_process_files_max();
    if (can < own + MIN_CONNECTIONS) {
        sl_error("the system lets this process open %u files, and %u are open already: at least %u "
                 "are needed; raise the limit (ulimit -n, LimitNOFILE=)",
                 max, max - can, max - can + own + MIN_CONNECTIONS);
        return false;
    }
    if (c->max_connections <= can - own)
        return true;
    sl_warn("at most %u connections at once, not %u: the system lets this process open %u files "
            "(ulimit -n, LimitNOFILE=)",
            can - own, c->max_connections, max);
    c->max_connections = can - own;
    return true;
}

/* Waits for a signal to stop and returns it, or 0 when the time is up. SIGHUP reads the certificate
 * again; without one it stops the server, as when its terminal is closed. */
static int wait_signal(struct sl_server *server, const struct options *o, const sigset_t *set,
                       long ms) {
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    int sig = sigtimedwait(set, NULL, &ts);
    if (sig != SIGHUP || !o->server.tls_cert)
        return sig > 0 ? sig : 0;
    struct sl_err err;
    if (sl_server_reload_tls(server, &err) == SL_OK)
        sl_info("the certificate was read again");
    else
        sl_error("keeping the old certificate: %s", err.text);
    return 0;
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0 || strcmp(host, "[::1]") == 0;
}

static void say_where(const struct options *o, const struct sl_server *server) {
    const struct sl_server_config *c = &o->server;
    for (uint32_t i = 0; i < c->n_hosts; i++) {
        const char *host = c->hosts[i];
        bool bare_v6 = strchr(host, ':') && host[0] != '[';
        sl_info("listening on %s://%s%s%s:%u, loading %s", c->tls_cert ? "https" : "http",
                bare_v6 ? "[" : "", host, bare_v6 ? "]" : "", sl_server_port(server), o->model);
        if (!c->n_api_keys && !is_loopback(host))
            sl_warn("anyone who can reach %s can use this server: there is no --api-key-file",
                    host);
        else if (!c->tls_cert && !is_loopback(host))
            sl_warn("keys and prompts are not encrypted on %s: there is no --tls-cert", host);
    }
    if (c->unix_socket)
        sl_info("listening on the UNIX socket %s, loading %s", c->unix_socket, o->model);
}

static int serve(struct options *o) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* in every thread: they are waited for here */
    signal(SIGPIPE, SIG_IGN);

    struct loader l = {.progress = {report}, .opt = o};
    struct sl_err err;
    if (!prepare(&l, o) || !limit_connections(&l, &o->server)) {
        close_model(&l);
        return 1;
    }
    enum sl_status status = SL_ERR_CANCELED;
    if (!sl_interrupt_pending())
        status = sl_server_create(&o->server, &l.server, &err);
    if (status != SL_OK) {
        if (status == SL_ERR_CANCELED)
            sl_info("stopped before it listened");
        else
            sl_error("%s", err.text);
        close_model(&l);
        return status == SL_ERR_CANCELED ? 0 : 1;
    }
    say_where(o, l.server);
    int rc = pthread_create(&l.thread, NULL, load_main, &l);
    if (rc != 0) {
        sl_error("cannot start the thread that loads the model: %s", strerror(rc));
        sl_server_destroy(&l.server);
        close_model(&l);
        return 1;
    }

    int sig = 0;
    bool failed = false;
    while (!sig && !failed) {
        bool done = atomic_load(&l.done);
        failed = done && l.status != SL_OK;
        if (!failed)
            sig = wait_signal(l.server, o, &signals, done ? 3600000 : 20);
    }
    if (sig)
        sl_interrupt_note(); /* for what the loading thread may wait for */
    if (failed)
        sl_error("%s", l.err.text);
    else
        sl_info("stopping: finishing %u requests, for %u s at most (a second signal cancels them)",
                sl_server_active(l.server), o->drain_s);
    atomic_store(&l.stop, true);
    sl_server_drain(l.server);
    uint64_t until = sl_now_ns() + (uint64_t)o->drain_s * 1000000000u;
    while (!failed && sl_server_active(l.server) > 0 && sl_now_ns() < until)
        if (wait_signal(l.server, o, &signals, 20))
            break;
    if (sl_server_active(l.server) > 0)
        sl_info("canceling %u requests", sl_server_active(l.server));
    sl_server_cancel(l.server);
    pthread_join(l.thread, NULL);
    sl_server_destroy(&l.server);
    sl_engine_destroy(&l.engine);
    close_model(&l);
    if (!failed)
        sl_info("stopped");
    return failed ? 1 : 0;
}

#define STORE_DEFAULT UINT64_MAX

static const struct options defaults = {
    .log_level = "info",
    .response_store_bytes = STORE_DEFAULT,
    .reasoning = "auto",
    .reasoning_budget = NO_BUDGET,
    .port = 8080,
    .drain_s = 30,
    .memory = SL_ENGINE_OPTIONS_DEFAULT,
    .engine = {.cache_ram_bytes = SL_CACHE_RAM_AUTO},
    .server = {.timeout_s = 60,
               .stall_s = 600,
               .template_steps = 20000000,
               .template_timeout_s = 30,
               .buffer_tokens = 1024},
};

/* What was given; the table writes here. One command runs at a time. */
static struct options given;

static const struct sl_arg args[] = {
    {SL_ARG_STRING, 'm', "--model", "FILE", &given.model,
     "the GGUF file to serve, or hf:OWNER/NAME[:FILE] to download it (also as the only argument)",
     false},
    {SL_ARG_LIST, 0, "--alias", "NAMES", &given.alias_words,
     "what clients call the model (default: the file's name); several names are separated by "
     "commas, and answers repeat the one in the request",
     false},
    {SL_ARG_FLAG, 0, "--any-model-name", NULL, &given.any_model_name,
     "accept any model name in requests", false},
    {SL_ARG_STRING, 0, "--reasoning", "HOW", &given.reasoning,
     "whether the model thinks if a request does not say: on, off, or auto, which leaves it to the "
     "template (default auto)",
     false},
    {SL_ARG_U32, 0, "--reasoning-budget", "TOKENS", &given.reasoning_budget,
     "most tokens of reasoning for requests that set no limit of their own; after these its end is "
     "forced (default: no limit)",
     false},
    {SL_ARG_HEADING, 0, "Where", NULL, NULL, NULL, false},
    {SL_ARG_LIST, 0, "--host", "HOST", &given.hosts,
     "address to listen on (default 127.0.0.1: this machine only), up to three times; none: only "
     "the UNIX socket",
     false},
    {SL_ARG_U32, 0, "--port", "PORT", &given.port, "port (default 8080; 0: any free one)", false},
    {SL_ARG_STRING, 0, "--unix-socket", "PATH", &given.server.unix_socket,
     "listen on this UNIX socket as well, without TLS", false},
    {SL_ARG_STRING, 0, "--unix-mode", "MODE", &given.unix_mode,
     "who may use it (default 0600: this user)", false},
    {SL_ARG_INPUT, 0, "--tls-cert", "FILE", &given.server.tls_cert,
     "TLS 1.2 or later with this certificate (PEM, followed by its chain);\n"
     "SIGHUP reloads it",
     false},
    {SL_ARG_INPUT, 0, "--tls-key", "FILE", &given.server.tls_key, "the certificate's key (PEM)",
     false},
    {SL_ARG_INPUT, 0, "--api-key-file", "FILE", &given.api_key_file,
     "require a key from this file, which has one per line (Authorization: Bearer KEY, or "
     "x-api-key: KEY)",
     false},
    {SL_ARG_SECRET, 0, "--api-key", "KEY", &given.api_key,
     "the same, with this key; other users may see it while the server starts", false},
    {SL_ARG_LIST, 0, "--cors-origin", "ORIGIN", &given.cors_origins,
     "allow web pages from this origin (https://chat.example; *: all; default: none), up to three "
     "times",
     false},
    {SL_ARG_LIST, 0, "--allowed-hosts", "NAMES", &given.allowed_hosts,
     "further names of this server in Host headers (gateway.example,10.0.0.7;\n"
     "*: any). Without keys only its own are accepted: localhost and its addresses",
     false},
    {SL_ARG_HEADING, 0, "Engine", NULL, NULL, NULL, false},
    {SL_ARG_U32, 'c', "--ctx", "TOKENS", &given.engine.ctx_tokens,
     "maximum tokens of one request, prompt and answer (default: the model's, as far as\n"
     "memory allows, or 8192)",
     false},
    {SL_ARG_U32, 0, "--parallel", "N", &given.engine.parallel,
     "requests that run at once (default 4)", false},
    {SL_ARG_U32, 0, "--queue", "N", &given.engine.queue_max,
     "requests that may wait; any more get a 429 (default 256)", false},
    {SL_ARG_U32, 0, "--batch", "TOKENS", &given.engine.batch_tokens,
     "maximum tokens of one step (default 512)", false},
    {SL_ARG_U32, 0, "--max-stall-ms", "MS", &given.engine.max_stall_ms,
     "longest pause between two tokens of an answer that other prompts may cause: they are "
     "computed in slices, down to 8 tokens each, to keep it (default 300)",
     false},
    {SL_ARG_BYTES, 0, "--cache-ram", "SIZE", &given.engine.cache_ram_bytes,
     "memory for repeated prompts, in addition to KV pages that no request uses; 0 = none "
     "(default: an eighth of what the plan leaves, none if experts are streamed)",
     false},
    {SL_ARG_FOLDER, 0, "--cache-dir", "DIR", &given.engine.cache_dir,
     "keep repeated prompts in this folder too, across restarts: a new or empty\n"
     "folder, or one created by this option (default: in memory only)",
     false},
    {SL_ARG_BYTES, 0, "--cache-disk", "SIZE", &given.engine.cache_disk_bytes,
     "limit on the files in --cache-dir (default 8GiB)", false},
    {SL_ARG_U32, 't', "--threads", "N", &given.engine.n_threads,
     "CPU threads that compute (default: all CPUs)", false},
    {SL_ARG_OUTPUT, 0, "--trace", "FILE", &given.engine.trace_file,
     "write a timeline of up to 256 MiB for Perfetto\n"
     "(ui.perfetto.dev) or chrome://tracing; replaces an earlier trace, no other file",
     false},
    {SL_ARG_OUTPUT, 0, "--record-routes", "FILE", &given.engine.record_routes,
     "record which experts each token chose, for `make replay TRACE=FILE`", false},
    {SL_ARG_STRING, 0, "--cpu-isa", "ISA", &given.engine.cpu_isa,
     "force c, avx2, avx512 or vnni (default: the best available)", false},
    {SL_ARG_FLAG, 0, "--no-warmup", NULL, &given.no_warmup,
     "be ready sooner, but slower on the first request", false},
    SL_ENGINE_OPTIONS(&given.memory),
    {SL_ARG_HEADING, 0, "Limits", NULL, NULL, NULL, false},
    {SL_ARG_U32, 0, "--max-body-mib", "MIB", &given.max_body_mib,
     "largest request body (default 64; less where memory is short)", false},
    {SL_ARG_BYTES, 0, "--response-store", "SIZE", &given.response_store_bytes,
     "responses kept in memory for previous_response_id and GET /v1/responses/ID; 0 =\n"
     "none (default 64MiB; less where memory is short)",
     false},
    {SL_ARG_U32, 0, "--max-connections", "N", &given.server.max_connections,
     "open connections; any more wait (default 1024; less where memory is short)", false},
    {SL_ARG_U32, 0, "--timeout-s", "S", &given.server.timeout_s,
     "close a connection that is idle or sends too slowly (default 60)", false},
    {SL_ARG_U32, 0, "--stall-s", "S", &given.server.stall_s,
     "close a stream whose client does not read (default 600)", false},
    {SL_ARG_U32, 0, "--request-timeout-s", "S", &given.server.request_timeout_s,
     "time limit for a request, counted from its headers and including waits; then it ends with a "
     "504 (default: no limit). A request may set a shorter one with timeout_s",
     false},
    {SL_ARG_U64, 0, "--template-steps", "N", &given.server.template_steps,
     "limit on the work of the model's chat template for a conversation (default 20000000)", false},
    {SL_ARG_U32, 0, "--template-timeout-s", "S", &given.server.template_timeout_s,
     "time limit for one rendering, reached only on slow machines (default 30)", false},
    {SL_ARG_U32, 0, "--buffer-tokens", "N", &given.server.buffer_tokens,
     "tokens kept for a client that reads slowly before its request pauses (default 1024)", false},
    {SL_ARG_U32, 0, "--drain-s", "S", &given.drain_s,
     "longest time to finish running requests after SIGTERM (default 30)", false},
    {SL_ARG_HEADING, 0, "Other", NULL, NULL, NULL, false},
    {SL_ARG_STRING, 0, "--log-level", "LEVEL", &given.log_level,
     "error, warn, info (default) or debug", false},
};

static const struct sl_arg_limit limits[] = {
    SL_ENGINE_LIMITS,
    {"--port", 0, 65535, NULL},
    {"--max-stall-ms", 1, 3600000, NULL},
    {"--timeout-s", 1, MAX_SECONDS, NULL},
    {"--stall-s", 1, MAX_SECONDS, NULL},
    {"--request-timeout-s", 1, MAX_SECONDS, "no limit"},
    {"--template-steps", 1000, INFINITY, NULL},
    {"--template-timeout-s", 1, MAX_SECONDS, NULL},
    {"--buffer-tokens", 1, SL_MAX_CTX_TOKENS, NULL},
    {"--drain-s", 0, MAX_SECONDS, NULL},
    {"--reasoning-budget", 0, INT32_MAX, NULL},
};

static const struct sl_command command = {
    .name = "serve",
    .about = "Serves a model over HTTP, as OpenAI's, Anthropic's and Ollama's APIs do.",
    .usage = "sluice serve -m MODEL.gguf [options]",
    .notes = "Endpoints: / (the dashboard), /v1/chat/completions, /v1/completions, /v1/responses, "
             "/v1/messages, /v1/messages/count_tokens, /v1/embeddings, /v1/models, /api/chat, "
             "/api/generate, /api/embed, /api/tags, /api/show, /api/ps, /api/version, /completion, "
             "/infill,\n"
             "/tokenize, /detokenize, /apply-template, /props, /slots, /health, /metrics.\n"
             "On SIGTERM or Ctrl-C the server accepts no more requests, finishes those that run, "
             "and exits with 0.\n",
    .args = args,
    .n_args = SL_COUNTOF(args),
    .help_of = sl_engine_options_help,
    .limits = limits,
    .n_limits = SL_COUNTOF(limits),
    .model = &given.model,
};

int sl_cmd_serve(int argc, char **argv) {
    struct options *o = &given;
    *o = defaults;
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (!check_options(o))
        return 2;
    o->server.max_body_bytes = (uint64_t)o->max_body_mib << 20;
    if (o->response_store_bytes != STORE_DEFAULT)
        o->server.response_store_bytes =
            o->response_store_bytes ? o->response_store_bytes : SL_NO_RESPONSE_STORE;

    struct sl_api_keys keys = {.n = 0};
    struct sl_allowed_hosts allowed = {.n = 0};
    rc = sl_allowed_hosts_read(&allowed, &o->allowed_hosts) ? 0 : 2;
    if (rc == 0 && !sl_aliases_read(&o->aliases, &o->alias_words))
        rc = 2;
    if (rc == 0 && o->api_key)
        rc = sl_api_keys_take(&keys, o->api_key);
    if (rc == 0 && o->api_key_file && !sl_api_keys_read(&keys, o->api_key_file))
        rc = 1;
    if (rc == 0) {
        o->server.allowed_hosts = allowed.name;
        o->server.n_allowed_hosts = allowed.n;
        o->server.api_keys = (const char *const *)keys.key;
        o->server.n_api_keys = keys.n;
        rc = serve(o);
    }
    sl_api_keys_release(&keys);
    sl_allowed_hosts_release(&allowed);
    sl_aliases_release(&o->aliases);
    return rc;
}
