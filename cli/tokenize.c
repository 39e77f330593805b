/* sluice tokenize: text to token ids. */
#include "cli/options/args.h"
#include "cli/options/commands.h"
#include "common/output.h"
#include "common/utf8.h"
#include "model/tokenizer/pretokenize.h"
#include "model/tokenizer/tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    const char *model, *file, *text, *ids_out, *splits;
    bool special, no_bos, json, pieces, list_pre;
};

struct bytes {
    char *ptr;
    size_t len;
};

/* Reads a whole file, or standard input for "-". */
static bool read_all(const char *path, struct bytes *out) {
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    size_t cap = 0, n;
    *out = (struct bytes){0};
    if (!f)
        goto failed;
    do {
        if (out->len == cap) {
            cap = cap ? cap * 2 : 65536;
            char *p = realloc(out->ptr, cap);
            if (!p)
                goto failed;
            out->ptr = p;
        }
        n = fread(out->ptr + out->len, 1, cap - out->len, f);
        out->len += n;
    } while (n > 0);
    if (ferror(f))
        goto failed;
    if (f != stdin)
        fclose(f);
    return true;
failed:
    fprintf(stderr, "sluice tokenize: %s%s: cannot be read: %s\n", f == stdin ? "" : "--file ",
            f == stdin ? "standard input" : path, strerror(errno));
    if (f && f != stdin)
        fclose(f);
    free(out->ptr);
    return false;
}

/* JSON text of any bytes: what is not UTF-8 becomes U+FFFD. */
static json_t *json_text(const char *s, size_t len) {
    json_t *j = json_stringn(s, len);
    if (j)
        return j;
    char *fixed = malloc(len * 3 + 1);
    size_t n = 0;
    for (size_t i = 0; fixed && i < len;) {
        uint32_t l = sl_utf8_len((const unsigned char *)s + i, len - i);
        memcpy(fixed + n, l ? s + i : "\xef\xbf\xbd", l ? l : 3);
        n += l ? l : 3;
        i += l ? l : 1;
    }
    j = fixed ? json_stringn(fixed, n) : NULL;
    free(fixed);
    return j;
}

static int print_json(json_t *root) {
    int rc = !root || json_dumpf(root, stdout, JSON_COMPACT) != 0 || putchar('\n') == EOF;
    json_decref(root);
    if (rc)
        fprintf(stderr, "sluice tokenize: cannot write the JSON output\n");
    return rc;
}

#define MOST_IDS_BYTES (256u << 20) /* as much as `sluice score --ids` reads */

/* A list of ids has no room for a magic number: it is recognised by holding ids of this vocabulary
 * and nothing else, as no text, model or picture does. */
static bool is_ids(int fd, uint64_t size_bytes, const void *tok) {
    unsigned char le[4096];
    uint32_t n_vocab = sl_tokenizer_n_vocab(tok);
    if (size_bytes % 4 || size_bytes > MOST_IDS_BYTES)
        return false;
    for (uint64_t at = 0; at < size_bytes;) {
        ssize_t n = pread(fd, le, sizeof le, (off_t)at);
        if (n <= 0 || n % 4)
            return false;
        for (ssize_t i = 0; i < n; i += 4)
            if ((le[i] | (uint32_t)le[i + 1] << 8 | (uint32_t)le[i + 2] << 16 |
                 (uint32_t)le[i + 3] << 24) >= n_vocab)
                return false;
        at += (uint64_t)n;
    }
    return true;
}

/* Little-endian int32, as `sluice score --ids` reads them. */
static int write_ids(const char *path, const struct sl_tokenizer *tok, const struct sl_ids *ids) {
    struct sl_output out;
    struct sl_err err;
    if (sl_output_open(path, 0666, is_ids, tok, &out, &err) != SL_OK) {
        fprintf(stderr, "sluice tokenize: --ids-out %s\n", err.text);
        return 1;
    }
    int fd = dup(out.fd); /* the stream's own; out's stays open to undo what was written */
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    bool ok = f != NULL;
    for (size_t i = 0; ok && i < ids->n; i++) {
        uint32_t v = ids->ids[i];
        unsigned char le[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                               (unsigned char)(v >> 24)};
        ok = fwrite(le, 4, 1, f) == 1;
    }
    if (f && fclose(f) != 0)
        ok = false;
    else if (!f && fd >= 0)
        close(fd);
    if (!ok) {
        fprintf(stderr, "sluice tokenize: --ids-out %s: cannot be written: %s\n", path,
                strerror(errno));
        sl_output_discard(&out, path);
    }
    close(out.fd);
    return !ok;
}

static int print_ids(const struct options *o, const struct sl_tokenizer *tok,
                     const struct sl_ids *ids) {
    if (o->json) {
        json_t *list = json_array(), *pieces = json_array();
        for (size_t i = 0; i < ids->n; i++) {
            json_array_append_new(list, json_integer(ids->ids[i]));
            struct sl_str piece = sl_tokenizer_piece(tok, ids->ids[i], true);
            if (o->pieces)
                json_array_append_new(pieces, json_text(piece.ptr, piece.len));
        }
        json_t *root = json_pack("{s:s, s:I, s:o}", "tokenizer", sl_tokenizer_kind(tok), "n_tokens",
                                 (json_int_t)ids->n, "ids", list);
        if (o->pieces && root)
            json_object_set(root, "pieces", pieces);
        json_decref(pieces);
        return print_json(root);
    }
    if (o->pieces) {
        for (size_t i = 0; i < ids->n; i++) {
            struct sl_str piece = sl_tokenizer_piece(tok, ids->ids[i], true);
            json_t *j = json_text(piece.ptr, piece.len);
            char *quoted = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
            printf("%7u  %s\n", ids->ids[i], quoted ? quoted : "?");
            free(quoted);
            json_decref(j);
        }
    } else {
        for (size_t i = 0; i < ids->n; i++)
            printf(i ? " %u" : "%u", ids->ids[i]);
        putchar('\n');
    }
    return fflush(stdout) != 0;
}

static int tokenize(const struct options *o, const struct bytes *text) {
    struct sl_err err = {{0}};
    struct sl_gguf *gguf = NULL;
    struct sl_tokenizer *tok = NULL;
    struct sl_ids ids = {0};
    int rc = 1;
    enum sl_status status = sl_gguf_open(o->model, &gguf, &err);
    if (status != SL_OK) {
        fprintf(stderr, "sluice tokenize: %s\n", err.text); /* names the file */
        goto out;
    }
    status = sl_tokenizer_create(gguf, &tok, &err);
    if (status != SL_OK) {
        fprintf(stderr, "sluice tokenize: %s: %s\n", o->model, err.text);
        goto out;
    }
    unsigned flags =
        (o->no_bos ? 0 : SL_ENCODE_ADD_SPECIAL) | (o->special ? SL_ENCODE_PARSE_SPECIAL : 0);
    status = sl_tokenizer_encode(tok, text->ptr ? text->ptr : "", text->len, flags, &ids);
    if (status != SL_OK) {
        fprintf(stderr, "sluice tokenize: cannot encode %zu bytes: %s\n", text->len,
                sl_status_text(status));
        goto out;
    }
    if (o->ids_out) {
        rc = write_ids(o->ids_out, tok, &ids);
        if (rc == 0)
            fprintf(stderr, "%zu ids written to %s\n", ids.n, o->ids_out);
    } else
        rc = print_ids(o, tok, &ids);
out:
    sl_ids_release(&ids);
    sl_tokenizer_destroy(&tok);
    sl_gguf_close(&gguf);
    return rc;
}

static enum sl_status add_split(void *user, const char *word, size_t len) {
    return json_array_append_new(user, json_text(word, len)) == 0 ? SL_OK : SL_ERR_NOMEM;
}

static int print_splits(const char *name, const struct bytes *text) {
    struct sl_err err;
    struct sl_pretok *pretok;
    if (sl_pretok_create(name, strlen(name), &pretok, &err) != SL_OK) {
        fprintf(stderr, "sluice tokenize: %s\n", err.text);
        return 1;
    }
    int rc = 1;
    json_t *words = json_array();
    if (sl_utf8_valid_prefix(text->ptr, text->len) != text->len)
        fprintf(stderr, "sluice tokenize: --splits needs a text in UTF-8\n");
    else if (sl_pretok_split(pretok, text->ptr, text->len, add_split, words) != SL_OK)
        fprintf(stderr, "sluice tokenize: the splitting failed\n");
    else
        rc = print_json(json_incref(words));
    json_decref(words);
    sl_pretok_destroy(&pretok);
    return rc;
}

static bool known_split(const char *name) {
    size_t len;
    const char *known;
    for (uint32_t i = 0; (known = sl_pretok_name_at(i, &len)); i++)
        if (strlen(name) == len && memcmp(name, known, len) == 0)
            return true;
    return false;
}

static int list_pre(void) {
    size_t len;
    const char *name;
    for (uint32_t i = 0; (name = sl_pretok_name_at(i, &len)); i++)
        printf("%.*s\n", (int)len, name);
    return 0;
}

int sl_cmd_tokenize(int argc, char **argv) {
    struct options o = {0};
    const struct sl_arg args[] = {
        {SL_ARG_STRING, 'm', "--model", "FILE", &o.model,
         "the GGUF file (also as the only argument); one that holds\n"
         "a vocabulary alone will do",
         false},
        {SL_ARG_HEADING, 0, "Text (standard input unless given)", NULL, NULL, NULL, false},
        {SL_ARG_INPUT, 'f', "--file", "TEXT", &o.file, "read the text from a file, - is stdin",
         false},
        {SL_ARG_TEXT, 't', "--text", "S", &o.text, "the text itself", false},
        {SL_ARG_FLAG, 0, "--special", NULL, &o.special,
         "control tokens written in the text become their ids", false},
        {SL_ARG_FLAG, 0, "--no-bos", NULL, &o.no_bos,
         "leave out the BOS and EOS that the model asks for", false},
        {SL_ARG_HEADING, 0, "Output (ids on one line unless given)", NULL, NULL, NULL, false},
        {SL_ARG_FLAG, 0, "--pieces", NULL, &o.pieces, "print each id with its text", false},
        {SL_ARG_FLAG, 0, "--json", NULL, &o.json, "print a JSON object", false},
        {SL_ARG_OUTPUT, 0, "--ids-out", "FILE", &o.ids_out,
         "write the ids as little-endian int32, as 'sluice score --ids' reads them", false},
        {SL_ARG_HEADING, 0, "Pre-splitting alone (no model needed)", NULL, NULL, NULL, false},
        {SL_ARG_STRING, 0, "--splits", "NAME", &o.splits,
         "print the words that the pre-split NAME cuts the text into, as JSON", false},
        {SL_ARG_FLAG, 0, "--list-pre", NULL, &o.list_pre, "list the known pre-splits", false},
    };
    const struct sl_command command = {
        .name = "tokenize",
        .about = "Turns text into token ids.",
        .usage = "sluice tokenize -m FILE [--file TEXT | --text S] [options]",
        .args = args,
        .n_args = SL_COUNTOF(args),
        .model = &o.model,
        .model_optional = true,
    };
    int rc = sl_args_parse(&command, argc, argv);
    if (rc >= 0)
        return rc;
    if (o.list_pre)
        return list_pre();
    if (!o.splits && !o.model)
        return sl_usage_error("tokenize", "no model given; say which with -m MODEL.gguf");
    if (o.file && o.text)
        return sl_usage_error("tokenize", "--file and --text exclude each other");
    if (o.splits && !known_split(o.splits))
        return sl_usage_error("tokenize", "--splits is '%s': must be one that --list-pre prints",
                              o.splits);
    struct bytes text = {0};
    if (o.text)
        text = (struct bytes){strdup(o.text), strlen(o.text)};
    else if (!read_all(o.file ? o.file : "-", &text))
        return 1;
    rc = o.splits ? print_splits(o.splits, &text) : tokenize(&o, &text);
    free(text.ptr);
    return rc;
}
