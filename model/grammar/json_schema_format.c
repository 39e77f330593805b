/* Formats as patterns. Left out where a part of the standard cannot be said by a pattern, or where
 * usual validators refuse what it allows: see docs/STRUCTURED.md. */
#include "model/grammar/json_schema_internal.h"

#include <string.h>

/* RFC 3339; leap seconds in UTC only. */
#define DATE                                                                                       \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
    "|02-(?:0[1-9]|1\\d|2[0-8]))"                                                                  \
    "|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME                                                                                       \
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?"                                      \
    "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)|23:59:60(?:\\.\\d{1,9})?(?:[Zz]|[+-]00:00))"
#define IN_TIME "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define DURATION                                                                                   \
    "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:" IN_TIME ")?|" IN_TIME ")"

/* RFC 1123. A label with two hyphens at its third place would be one of IDNA, which is more than a
 * pattern. At most 253 characters: by how many labels of which length there are. */
#define LABEL(n, less)                                                                             \
    "[A-Za-z0-9](?:[A-Za-z0-9]|[A-Za-z0-9-](?:[A-Za-z0-9](?:[A-Za-z0-9-]{0," n "}[A-Za-z0-9])?"    \
    "|-[A-Za-z0-9](?:[A-Za-z0-9-]{0," less "}[A-Za-z0-9])?))?"
#define HOST(first, rest)                                                                          \
    "(?:" LABEL("59", "58") "(?:\\." LABEL("57", "56") ")" first "|" LABEL(                        \
        "26", "25") "(?:\\." LABEL("26", "25") ")" rest ")"
/* Punycode makes at most five characters of each that is not ASCII. */
#define WIDE "A-Za-z0-9\\u3041-\\u3096\\u4e00-\\u9fff\\uac00-\\ud7a3"
#define IDN  "[" WIDE "]{1,10}(?:-[" WIDE "]{1,2})?"

#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
/* RFC 4291. */
#define H     "[0-9A-Fa-f]{1,4}"
#define UP(n) "(?:" H "(?::" H "){0," n "})?"
#define V4(n) "(?:" H ":){0," n "}" IPV4
#define L(n)  H "(?::" H "){" n "}"
#define IPV6                                                                                                                        \
    "(?:(?:" H ":){7}" H "|(?:" H ":){6}" IPV4                                                                                      \
    "|::(?:" UP("6") "|" V4("5") ")|" H "::(?:" UP("5") "|" V4("4") ")|" L("1") "::(?:" UP("4") "|" V4("3") ")|" L("2") "::(?:" UP( \
        "3") "|" V4("2") ")|" L("3") "::(?:" UP("2") "|" V4("1") ")|" L("4") "::(?:" UP("1") "|" IPV4                               \
                                                                                             ")"                                    \
                                                                                             "|" L(                                 \
                                                                                                 "5") "::(?:" H                     \
                                                                                                      ")?|" L(                      \
                                                                                                          "6") "::)"

/* RFC 5322, a dot-atom. */
#define ATOM(more)  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" more "-]+"
#define LOCAL(more) ATOM(more) "(?:\\." ATOM(more) ")*"

/* RFC 3986, and 3987 with more characters. */
#define UCS                                                                                        \
    "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"
#define PCT   "%[0-9A-Fa-f]{2}"
#define IN(s) "(?:[A-Za-z0-9._~!$&'()*+,;=" s "-]|" PCT ")"
#define AUTHORITY(u)                                                                               \
    "//(?:" IN(":" u) "*@)?(?:\\[(?:" IPV6                                                         \
                      "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" IN(                  \
                          u) "*)(?::\\d*)?(?:/" IN(":@" u) "*)*"
#define PATH(u)   "/(?:" IN(":@" u) "+(?:/" IN(":@" u) "*)*)?"
#define BEHIND(u) "(?:\\?" IN(":@/?" u) "*)?(?:#" IN(":@/?" u) "*)?"
#define URI(u)                                                                                     \
    "[A-Za-z][A-Za-z0-9+.-]*:(?:" AUTHORITY(u) "|" PATH(u) "|" IN(":@" u) "+(?:/" IN(              \
        ":@" u) "*)*)?" BEHIND(u)
#define RELATIVE(u)                                                                                \
    "(?:" AUTHORITY(u) "|" PATH(u) "|" IN("@" u) "+(?:/" IN(":@" u) "*)*)?" BEHIND(u)

/* RFC 6570. */
#define VAR_CHAR "(?:[A-Za-z0-9_]|" PCT ")"
#define VAR      VAR_CHAR "(?:\\.?" VAR_CHAR ")*(?:\\*|:[1-9]\\d{0,3})?"
#define TEMPLATE                                                                                   \
    "(?:[!#$&()*+,./:;=?@\\[\\]_~A-Za-z0-9\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef-]|" PCT    \
    "|\\{[+#./;?&]?" VAR "(?:," VAR ")*\\})*"

/* RFC 6901. */
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

/* What every dialect takes, with groups two deep. */
#define RX_ATOM                                                                                    \
    "[A-Za-z0-9 _@#%&,:;\"'<>=~`/!-]|\\\\[dDwWsSnrtfv.*+?()\\[\\]{}|^$\\\\/]|\\.|"                 \
    "\\[\\^?(?:[A-Za-z0-9_ ]|a-z|A-Z|0-9|\\\\[dwsDWS])+\\]"
#define RX_MANY "(?:[*+?]|\\{\\d{1,3}\\})?"
#define RX_DEEP "\\((?:\\?:)?(?:(?:" RX_ATOM ")" RX_MANY "|\\|)*\\)"
#define REGEX                                                                                      \
    "(?:(?:" RX_ATOM "|\\((?:\\?:)?(?:(?:" RX_ATOM "|" RX_DEEP ")" RX_MANY "|\\|)*\\))" RX_MANY    \
    "|[|^$])*"

const char *sl_schema_format(const char *format) {
    static const struct {
        const char *format, *pattern;
    } known[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "[Tt]" TIME "$"},
        {"duration", "^" DURATION "$"},
        {"uuid", "^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
        {"ipv4", "^" IPV4 "$"},
        {"ipv6", "^" IPV6 "$"},
        {"email", "^" LOCAL("") "@" HOST("{1,3}", "{1,7}") "$"},
        {"idn-email", "^" LOCAL("\\u00a1-\\ud7ff") "@" IDN "(?:\\." IDN "){1,3}$"},
        {"hostname", "^" HOST("{0,3}", "{0,7}") "$"},
        {"idn-hostname", "^" IDN "(?:\\." IDN "){0,3}$"},
        {"uri", "^" URI("") "$"},
        {"uri-reference", "^(?:" URI("") "|" RELATIVE("") ")$"},
        {"iri", "^" URI(UCS) "$"},
        {"iri-reference", "^(?:" URI(UCS) "|" RELATIVE(UCS) ")$"},
        {"uri-template", "^" TEMPLATE "$"},
        {"json-pointer", "^" POINTER "$"},
        {"relative-json-pointer", "^(?:0|[1-9]\\d*)(?:#|" POINTER ")$"},
        {"regex", "^" REGEX "$"},
        {"base64", "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
        {"base64url", "^[A-Za-z0-9_-]*$"},
        {"jwt", "^[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]*$"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(format, known[i].format) == 0)
            return known[i].pattern;
    return NULL;
}
