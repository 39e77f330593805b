/* Formats as patterns. Left out where a part of the standard cannot be said by a pattern, or where
 * usual validators refuse what it allows: see docs/STRUCTURED.md. */
#include "model/grammar/json_schema_internal.h"

#include <string.h>

/* RFC 3339. A leap second is the last of a day in UTC: what the clock says then depends on the
 * offset, taken here in quarters of an hour. LEAP: an hour, 23 less it, and the next one. */
#define DATE                                                                                       \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
    "|02-(?:0[1-9]|1\\d|2[0-8]))"                                                                  \
    "|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define PART "(?:\\.\\d{1,18})?"
#define LEAP(hour, less, next)                                                                     \
    "|" hour ":(?:14:60" PART "(?:\\+" hour ":15|-" less ":45)|29:60" PART "(?:\\+" hour           \
    ":30|-" less ":30)|44:60" PART "(?:\\+" hour ":45|-" less ":15)|59:60" PART "(?:\\+" next      \
    ":00|-" less ":00))"
/* clang-format off */
#define LEAPS \
    LEAP("00", "23", "01") LEAP("01", "22", "02") LEAP("02", "21", "03") \
    LEAP("03", "20", "04") LEAP("04", "19", "05") LEAP("05", "18", "06") \
    LEAP("06", "17", "07") LEAP("07", "16", "08") LEAP("08", "15", "09") \
    LEAP("09", "14", "10") LEAP("10", "13", "11") LEAP("11", "12", "12") \
    LEAP("12", "11", "13") LEAP("13", "10", "14") LEAP("14", "09", "15") \
    LEAP("15", "08", "16") LEAP("16", "07", "17") LEAP("17", "06", "18") \
    LEAP("18", "05", "19") LEAP("19", "04", "20") LEAP("20", "03", "21") \
    LEAP("21", "02", "22") LEAP("22", "01", "23") LEAP("23", "00", "00")
/* clang-format on */
#define TIME                                                                                       \
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d" PART "(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"      \
    "|23:59:60" PART "[Zz]" LEAPS ")"
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
/* RFC 5890 to 5893, as far as a pattern goes: letters of some scripts in labels that are surely
 * short enough in Punycode, which makes at most five characters of each that is not ASCII;
 * characters that are allowed in a certain context, in that context; text from right to left with
 * its own kind, or with labels of ASCII that begin with a letter. Letters are those that stay as
 * they are: no capitals, and no marks that could be composed with what is before them. */
#define LATIN                                                                                      \
    "\\u0101\\u0103\\u0105\\u0107\\u0109\\u010b\\u010d\\u010f\\u0111\\u0113\\u0115\\u0117"         \
    "\\u0119\\u011b\\u011d\\u011f\\u0121\\u0123\\u0125\\u0127\\u0129\\u012b\\u012d\\u012f"         \
    "\\u0131\\u0135\\u0137\\u0138\\u013a\\u013c\\u013e\\u0142\\u0144\\u0146\\u0148\\u014b"         \
    "\\u014d\\u014f\\u0151\\u0153\\u0155\\u0157\\u0159\\u015b\\u015d\\u015f\\u0161\\u0163"         \
    "\\u0165\\u0167\\u0169\\u016b\\u016d\\u016f\\u0171\\u0173\\u0175\\u0177\\u017a\\u017c"         \
    "\\u017e"
#define GREEK "\\u03ac-\\u03ce"
#define KANA  "\\u3005\\u3007\\u3041-\\u3096\\u30a1-\\u30fa\\u3400-\\u4dbf\\u4e00-\\u9fff"
#define WIDE                                                                                       \
    "a-z0-9\\u00df-\\u00f6\\u00f8-\\u00ff" LATIN GREEK "\\u0430-\\u045f\\u0905-\\u0939\\u0f0b"     \
    "\\u30fc" KANA "\\uac00-\\ud7a3"
/* Devanagari: a joiner stands behind a virama, a vowel behind a letter. */
#define INDIC "[\\u0904-\\u0939]"
#define INDIC_NAME                                                                                 \
    "(?:" INDIC "(?:\\u094d[\\u200c\\u200d]?" INDIC ")?[\\u0902\\u0903\\u093e-\\u094d]?){1,4}"
#define IDN                                                                                        \
    "(?:[" WIDE "]{1,10}(?:-[" WIDE "]{1,2})?|[a-z]{0,8}l(?:\\u00b7l){1,4}[a-z]{0,8}|[" GREEK      \
    "]{0,4}\\u0375[" GREEK "]{1,5}|\\u30fb?[" KANA "][" KANA "\\u30fb\\u30fc]{0,8}|" INDIC_NAME    \
    "|[\\u06f0-\\u06f9][0-9\\u06f0-\\u06f9]{0,9}|" LABEL("26", "25") ")"
#define HEBREW "(?:[\\u05d0-\\u05ea][\\u05f3\\u05f4]?){1,5}[0-9]{0,3}"
#define ARAB   "\\u0620-\\u063a\\u0641-\\u064a\\u0679-\\u06d3\\u06fd\\u06fe"
#define JOINED                                                                                     \
    "[\\u0628\\u062a-\\u062e\\u0633-\\u063a\\u0641-"                                               \
    "\\u0647\\u064a\\u067e\\u0686\\u06a9\\u06af\\u06cc]"
#define ARABIC                                                                                     \
    "(?:[" ARAB "][" ARAB "\\u0660-\\u0669]{0,9}|(?:[" ARAB "]{0,3}" JOINED "\\u200c" JOINED       \
    "[" ARAB "]{0,2}){1,2}|[" ARAB "]{1,6}(?:-[" ARAB "]{1,4}|[0-9]{1,3}|[\\u06f0-\\u06f9]{1,3}))"
#define RTL "(?:" HEBREW "|" ARABIC ")"
#define LTR "[A-Za-z][A-Za-z0-9]{0,62}"
#define DOT "[.\\u3002\\uff0e\\uff61]"
#define IDN_HOST                                                                                   \
    "(?:" IDN "(?:" DOT IDN "){0,3}|(?:" LTR DOT "){0,1}" RTL "(?:" DOT "(?:" RTL "|" LTR ")){0,"  \
    "2})"

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

/* RFC 5321, and 6531 with more characters. */
#define ATOM(more)   "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" more "-]+"
#define DOTTED(more) ATOM(more) "(?:\\." ATOM(more) ")*"
#define LOCAL(more)  "(?:" DOTTED(more) "|\"(?:[ !#-\\[\\]-~" more "]|\\\\[ -~])*\")"
#define LITERAL      "\\[(?:" IPV4 "|IPv6:" IPV6 ")\\]"
#define BEYOND       "\\u0080-\\ud7ff\\ue000-\\uffff\\u{10000}-\\u{10ffff}"
/* A name need not be in NFC here. */
#define MAIL_LABEL "[" WIDE "](?:[" WIDE "\\u0300-\\u0304]{0,9}(?:-[" WIDE "]{1,2})?)"

/* RFC 3986, and 3987 with more characters. */
#define UCS                                                                                        \
    "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{1fffd}\\u{20000}-\\u{2fffd}"
#define PCT   "%[0-9A-Fa-f]{2}"
#define IN(s) "(?:[A-Za-z0-9._~!$&'()*+,;=" s "-]|" PCT ")"
#define AUTHORITY(u)                                                                               \
    "//(?:" IN(":" u) "*@)?(?:\\[(?:" IPV6                                                         \
                      "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" IN(                  \
                          u) "*)(?::\\d*)?(?:/" IN(":@" u) "*)*"
#define PATH(u)        "/(?:" IN(":@" u) "+(?:/" IN(":@" u) "*)*)?"
#define OWN            "\\ue000-\\uf8ff\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}" /* in queries */
#define BEHIND(u, own) "(?:\\?" IN(":@/?" u own) "*)?(?:#" IN(":@/?" u) "*)?"
#define URI(u, own)                                                                                \
    "[A-Za-z][A-Za-z0-9+.-]*:(?:" AUTHORITY(u) "|" PATH(u) "|" IN(":@" u) "+(?:/" IN(              \
        ":@" u) "*)*)?" BEHIND(u, own)
#define RELATIVE(u, own)                                                                           \
    "(?:" AUTHORITY(u) "|" PATH(u) "|" IN("@" u) "+(?:/" IN(":@" u) "*)*)?" BEHIND(u, own)

/* RFC 6570. */
#define VAR_CHAR "(?:[A-Za-z0-9_]|" PCT ")"
#define VAR      VAR_CHAR "(?:\\.?" VAR_CHAR ")*(?:\\*|:[1-9]\\d{0,3})?"
#define TEMPLATE                                                                                   \
    "(?:[!#$&'()*+,./:;=?@\\[\\]_~A-Za-z0-9" UCS OWN "-]|" PCT "|\\{[+#./;?&]?" VAR "(?:," VAR     \
    ")*\\})*"

/* RFC 6901. */
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

/* Groups two deep. What every dialect takes; and what ECMA-262 alone does: empty classes,
 * look-around, of names of groups one, at the start. */
#define RX_ATOM(class)                                                                             \
    "[A-Za-z0-9 _@#%&,:;\"'<>=~`/!-]|\\\\[dDwWsSnrtfv.*+?()\\[\\]{}|^$\\\\/]|\\.|"                 \
    "\\[\\^?(?:[A-Za-z0-9_ ]|a-z|A-Z|0-9|\\\\[dwsDWS])" class
#define RX_ALL              RX_ATOM("+\\]")
#define RX_ECMA             RX_ATOM("*\\]|\\\\c[A-Za-z]")
#define RX_MANY             "(?:[*+?]|\\{\\d{1,3}\\})?"
#define RX_DEEP(atom)       "\\((?:\\?:)?(?:(?:" atom ")" RX_MANY "|\\|)*\\)"
#define RX_IN(atom)         "(?:(?:" atom "|" RX_DEEP(atom) ")" RX_MANY "|\\|)*\\)"
#define RX_NAMED            "(?:\\(\\?<[A-Za-z_][A-Za-z0-9_]*>" RX_IN(RX_ECMA) RX_MANY ")?"
#define RX_AROUND           "|\\(\\?<?[=!]" RX_IN(RX_ECMA)
#define REGEX(atom, around) "(?:(?:" atom "|\\((?:\\?:)?" RX_IN(atom) ")" RX_MANY around "|[|^$])*"

const char *sl_schema_format(const char *format, bool open) {
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
        {"email", "^" DOTTED("") "@" HOST("{1,3}", "{1,7}") "$"},
        {"idn-email",
         "^" LOCAL(BEYOND) "@(?:" HOST("{1,3}", "{1,7}") "|" LITERAL "|" MAIL_LABEL
                                                         "(?:\\." MAIL_LABEL "){1,3})$"},
        {"hostname", "^" HOST("{0,3}", "{0,7}") "$"},
        {"idn-hostname", "^(?:" HOST("{0,3}", "{0,7}") "|" IDN_HOST ")$"},
        {"uri", "^" URI("", "") "$"},
        {"uri-reference", "^(?:" URI("", "") "|" RELATIVE("", "") ")$"},
        {"iri", "^" URI(UCS, OWN) "$"},
        {"iri-reference", "^(?:" URI(UCS, OWN) "|" RELATIVE(UCS, OWN) ")$"},
        {"uri-template", "^" TEMPLATE "$"},
        {"json-pointer", "^" POINTER "$"},
        {"relative-json-pointer", "^(?:0|[1-9]\\d*)(?:#|" POINTER ")$"},
        {"regex", "^" REGEX(RX_ALL, "") "$"},
        {"base64", "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
        {"base64url", "^[A-Za-z0-9_-]*$"},
        {"jwt", "^[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]*$"},
    };
    if (open && strcmp(format, "email") == 0)
        return "^" LOCAL("") "@(?:" HOST("{1,3}", "{1,7}") "|" LITERAL ")$";
    if (open && strcmp(format, "regex") == 0)
        return "^" RX_NAMED REGEX(RX_ECMA, RX_AROUND) "$";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(format, known[i].format) == 0)
            return known[i].pattern;
    return NULL;
}
