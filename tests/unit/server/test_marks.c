/* Whatever a client sends, in whatever field and however it is escaped, adds no control token to
 * the prompt: for the templates of published models and for those that the project brings along. */
#include "server/api/handlers.h"
#include "offline.h"

#include "server/exchange/exchange.h"

#include <dirent.h>

#define TEMPLATES "../shared/testdata/templates"

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or "
    "[] %}"
    "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>{% endfor %}{{ tools | default([]) | "
    "tojson }}"
    "{{ word }}{{ documents | default([]) | tojson }}";
/* Texts of two clients' strings, or of one and the template, side by side; arguments as values. */
static const char together[] =
    "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }}"
    "{% endfor %}{% endfor %}<|im_end|>{% endfor %}{{ word }}";

/* ---- a template's control tokens, found by their looks ---- */

static char *texts[FAKE_MAX_WORDS];
static uint32_t n_texts;

static bool looks(const char *p, size_t *out_len) {
    char close = *p == '<' ? '>' : *p == '[' ? ']' : 0;
    const char *end = close ? strpbrk(p + 1, " \n\t'\"{}()=%<>[]") : NULL;
    if (!end || *end != close || end - p < 2 || end - p > 40)
        return false;
    for (const char *c = p + 1; *p == '[' && c < end; c++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ_/", *c))
            return false;
    *out_len = (size_t)(end - p) + 1;
    return true;
}

static void add_text(const char *p, size_t len) {
    for (uint32_t i = 0; i < n_texts; i++)
        if (strlen(texts[i]) == len && memcmp(texts[i], p, len) == 0)
            return;
    if (n_texts == FAKE_MAX_WORDS)
        return;
    texts[n_texts] = strndup(p, len);
    fake_control_word(&tok, texts[n_texts++]);
}

static void forget_texts(void) {
    for (uint32_t i = 0; i < n_texts; i++)
        free(texts[i]);
    n_texts = 0;
}

static void find_texts(const char *source) {
    size_t len;
    forget_texts();
    fake_tokenizer_init(&tok);
    for (const char *p = source; *p; p++)
        if (looks(p, &len))
            add_text(p, len);
    add_text("<|user|>", 8);
    add_text("<|im_end|>", 10);
}

/* Templates look for these in what was said, and write their own accordingly. */
static bool steers(const char *text) {
    return strstr(text, "think") || strstr(text, "tool_response") || strstr(text, "tool_call");
}

/* ---- requests ---- */

enum form { LITERAL, ESCAPED, MIXED, TWICE, N_FORMS };

static void put_unit(struct sl_buf *b, unsigned unit) {
    char hex[8];
    snprintf(hex, sizeof hex, "\\u%04x", unit);
    sl_buf_puts(b, hex);
}

/* A text as it stands in a JSON string. */
static void put_form(struct sl_buf *b, const char *text, enum form form) {
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; *p; i++) {
        unsigned n = *p < 0x80 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4, cp = *p;
        if (n > 1)
            cp &= 0xffu >> (n + 1);
        for (unsigned k = 1; k < n; k++)
            cp = cp << 6 | (p[k] & 0x3f);
        if (form == LITERAL || (form == MIXED && i % 2)) {
            sl_buf_put(b, (const char *)p, n);
        } else if (cp > 0xffff) {
            put_unit(b, 0xd800 + ((cp - 0x10000) >> 10));
            put_unit(b, 0xdc00 + ((cp - 0x10000) & 0x3ff));
        } else {
            put_unit(b, cp);
        }
        p += n;
    }
}

/* A request, with @ for the text and # for a call's arguments, JSON inside of a JSON string. */
static char *fill(const char *pattern, const char *text, enum form form) {
    struct sl_buf b = {0}, inner = {0};
    sl_buf_puts(&inner, "{\"a\":\"");
    put_form(&inner, text, form);
    sl_buf_puts(&inner, "\",\"k\":[{\"");
    put_form(&inner, text, form);
    sl_buf_puts(&inner, "\":\"v ");
    put_form(&inner, text, form);
    sl_buf_puts(&inner, "\"}]}");
    for (const char *p = pattern; *p; p++) {
        if (*p == '@') {
            put_form(&b, text, form == TWICE ? LITERAL : form);
        } else if (*p == '#' && form == TWICE) { /* the backslashes escaped again, and the quotes */
            for (const char *c = inner.ptr; c < inner.ptr + inner.len; c++)
                put_unit(&b, (unsigned char)*c);
        } else if (*p == '#') {
            for (size_t i = 0; i < inner.len; i++) {
                if (inner.ptr[i] == '"' || inner.ptr[i] == '\\')
                    sl_buf_puts(&b, "\\");
                sl_buf_put(&b, inner.ptr + i, 1);
            }
        } else {
            sl_buf_put(&b, *p == '\'' ? "\"" : p, 1);
        }
    }
    sl_buf_put(&b, "", 1);
    sl_buf_release(&inner);
    assert_false(b.failed);
    return b.ptr;
}

#define SCHEMA                                                                                     \
    "{'type':'object','description':'@','title':'@','properties':{'p@':{'type':'string',"          \
    "'description':'@','enum':['@','b'],'default':'@'}},'required':['p@']}"
#define FUNCTION "{'name':'f','description':'@','parameters':" SCHEMA "}"
static const char chat_body[] =
    "{'messages':[{'role':'system','content':'@'},"
    "{'role':'user','content':[{'type':'text','text':'a @'},{'type':'text','text':'@'}],"
    "'name':'@','extra':{'@':'@'}},"
    "{'role':'assistant','content':'@','reasoning_content':'@','tool_calls':[{'id':'@','type':"
    "'function','function':{'name':'f','arguments':'#'}}]},"
    "{'role':'tool','tool_call_id':'@','name':'@','content':'@'},"
    "{'role':'assistant','content':'@'},{'role':'user','content':'b @'}],"
    "'tools':[{'type':'function','function':" FUNCTION "}],"
    "'chat_template_kwargs':{'word':'@','documents':[{'title':'@','text':'@','doc_id':'@'}],"
    "'custom_tools':'@','date_string':'@','model_identity':'@','builtin_tools':['@'],"
    "'controls':{'@':'@'},'@':'@'},'metadata':{'k':'@'},'user':'@'}";
static const char responses_body[] =
    "{'instructions':'@','input':[{'role':'user','content':[{'type':'input_text','text':'@'}]},"
    "{'type':'function_call','call_id':'@','name':'f','arguments':'#'},"
    "{'type':'function_call_output','call_id':'@','output':'@'},"
    "{'role':'assistant','content':'@'},{'role':'user','content':'c @'}],"
    "'tools':[{'type':'function','name':'f','description':'@','parameters':" SCHEMA "}],"
    "'metadata':{'k':'@'}}";
static const char anthropic_body[] =
    "{'model':'m','max_tokens':5,'system':[{'type':'text','text':'@'}],'messages':["
    "{'role':'user','content':[{'type':'text','text':'@'}]},"
    "{'role':'assistant','content':[{'type':'text','text':'@'},"
    "{'type':'tool_use','id':'t@','name':'f','input':{'a':'@','@':['@']}}]},"
    "{'role':'user','content':[{'type':'tool_result','tool_use_id':'t@','content':"
    "[{'type':'text','text':'d @'}]}]},{'role':'assistant','content':'@'},"
    "{'role':'user','content':'e @'}],"
    "'tools':[{'name':'f','description':'@','input_schema':" SCHEMA
    "}],'metadata':{'user_id':'u'}}";

static const struct {
    const char *name;
    void (*handle)(struct sl_exchange *ex);
    const char *body;
} apis[] = {
    {"chat", sl_chat_handle, chat_body},
    {"responses", sl_responses_handle, responses_body},
    {"messages", sl_messages_handle, anthropic_body},
    {"count_tokens", sl_count_tokens_handle, anthropic_body},
};

/* The control tokens of a request's prompt, -1 if it has none: the template may refuse a text. */
static int64_t controls(size_t api, const char *text, enum form form) {
    struct sl_exchange ex;
    char *body = fill(apis[api].body, text, form);
    fake_encoded = -1;
    run(&ex, apis[api].handle, body);
    if (fake_encoded < 0 && getenv("VERBOSE"))
        print_message("%s: %s\n%s\n", apis[api].name, ex.error.err.text, body);
    done(&ex);
    free(body);
    return fake_encoded;
}

/* How often the template takes these texts in each API; fails if one adds a control token. */
static void check_template(const char *name, const char *source, bool must_take) {
    find_texts(source);
    assert_true(serve(source));
    for (size_t api = 0; api < sizeof apis / sizeof *apis; api++) {
        int64_t want = controls(api, "q", LITERAL);
        if (want < 0 && must_take)
            fail_msg("%s refuses %s with harmless text", name, apis[api].name);
        if (want >= 0 && want != fake_written)
            fail_msg("%s, %s: %lld control tokens of %lld that the template wrote", name,
                     apis[api].name, (long long)want, (long long)fake_written);
        for (uint32_t i = 0; i < n_texts && want >= 0; i++) {
            for (int form = 0; form < N_FORMS && !steers(texts[i]); form++) {
                int64_t n = controls(api, texts[i], (enum form)form);
                if (n >= 0 && n != want)
                    fail_msg(
                        "%s, %s, '%s' in form %d: %lld control tokens, %lld with harmless text",
                        name, apis[api].name, texts[i], form, (long long)n, (long long)want);
            }
        }
    }
    forget_texts();
}

static void published_templates(void **state) {
    (void)state;
    struct dirent **names;
    int n = scandir(TEMPLATES, &names, NULL, alphasort), n_checked = 0;
    for (int i = 0; i < n; i++) {
        char path[512], *source = calloc(1, 1 << 20);
        snprintf(path, sizeof path, TEMPLATES "/%s", names[i]->d_name);
        FILE *f = strstr(path, ".jinja") ? fopen(path, "rb") : NULL;
        if (f && fread(source, 1, (1 << 20) - 1, f)) {
            check_template(names[i]->d_name, source, true);
            n_checked++;
        }
        if (f)
            fclose(f);
        free(source);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    if (!n_checked) {
        print_message("%s is not there\n", TEMPLATES);
        skip();
    }
}

static void own_templates(void **state) {
    (void)state;
    check_template("all that a template can see", template, true);
    check_template("chatml", chatml, true);
    check_template("together", together, true);
    check_template("no template: the server's own", "", true);
}

/* Roles are not a client's text: they complete the template's token. */
static void roles_make_tokens(void **state) {
    (void)state;
    find_texts(together);
    assert_true(serve(together));
    struct sl_exchange ex;
    run(&ex, sl_chat_handle, "{'messages':[{'role':'user','content':'<|user|>'}]}");
    assert_int_equal(fake_encoded, 2); /* <|user|>, <|im_end|> */
    done(&ex);
    forget_texts();
}

/* What a client sends as a whole prompt is taken at its word. */
static void prompts_are_parsed(void **state) {
    (void)state;
    struct sl_exchange ex;
    run(&ex, sl_completions_handle, "{'prompt':'<|im_start|>a<|im_end|>'}");
    assert_int_equal(fake_encoded, 2);
    done(&ex);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(published_templates, setup, teardown),
        cmocka_unit_test_setup_teardown(own_templates, setup, teardown),
        cmocka_unit_test_setup_teardown(roles_make_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(prompts_are_parsed, setup, teardown),
    };
    return cmocka_run_group_tests_name("text of clients in prompts", tests, NULL, NULL);
}
