/* The pre-split patterns by name, written for PCRE2 with UTF and UCP.
 *
 * Differences in wording from the models' own files, none in meaning:
 * - \s and \S are spelt out: PCRE2 10.42 counts U+180E as white space, the tokenizers do not;
 * - [A&&[^B]] is turned into a negated class over all other general categories;
 * - quantifiers are possessive where a nested repeat would keep a frame per letter;
 * - patterns whose look-ahead rereads the rest of a run from each of its characters (quadratic) are
 *   a step that takes the run once and counts. */
#include "model/tokenizer/pretokenize.h"

/* The members of \s, for use inside a class. */
#define WS                                                                                         \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"       \
    "\\x{3000}"
#define S           "[" WS "]"
#define NOT_S       "[^" WS "]"
#define CONTRACTION "(?i:'(?:[sdmt]|ll|ve|re))"
#define NEWLINES    S "*[\\r\\n]+"
#define SPACES      S "+(?!" NOT_S ")|" S "+"
/* The same in a pattern that cuts runs of spaces into chunks: after a space there is no newline
 * ahead in its run, or this would have taken it, so the run is not searched from every chunk again.
 */
#define NEWLINES_JAIS                                                                              \
    "(?<![\\t\\x0b\\f "                                                                            \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"               \
    "\\x{3000}])" NEWLINES
#define NOT_WORD "[^\\r\\n\\p{L}\\p{N}]"
#define PUNCT    " ?[^" WS "\\p{L}\\p{N}]+"

#define GPT2 "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+|" PUNCT "|" SPACES

/* Llama 3, Qwen and their like: they differ in how many digits make a word. */
#define LLAMA3_WITH(words, digits, punct)                                                          \
    words NOT_WORD "?\\p{L}+|" digits "|" punct "|" NEWLINES "|" SPACES
#define LLAMA3 LLAMA3_WITH(CONTRACTION "|", "\\p{N}{1,3}", PUNCT "[\\r\\n]*")
#define QWEN2  LLAMA3_WITH(CONTRACTION "|", "\\p{N}", PUNCT "[\\r\\n]*")

/* o200k: upper then lower letters make a word. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_WITH(upper, lower, contraction, digits, punct_end)                                   \
    NOT_WORD "?" upper "*" lower "+" contraction "|" NOT_WORD "?" upper "+" lower "*" contraction  \
             "|" digits "|" PUNCT punct_end "|" NEWLINES "|" SPACES
#define O200K O200K_WITH(UPPER, LOWER, CONTRACTION "?", "\\p{N}{1,3}", "[\\r\\n/]*")

/* Kimi: the same without Han, which is a word of its own. */
#define UPPER_NOT_HAN "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"
#define LOWER_NOT_HAN "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}]"

#define ASCII_PUNCT "[!-/:-@\\[-`{-~]"
#define CJK         "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define DEEPSEEK3_WORDS                                                                            \
    ASCII_PUNCT "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define DEEPSEEK3 DEEPSEEK3_WORDS "[\\r\\n]*|" NEWLINES "|" SPACES

/* The letters that DeepSeek LLM lists one range at a time: cased letters of an older Unicode. */
#define DEEPSEEK_LLM_LETTERS                                                                       \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{"    \
    "293}"                                                                                         \
    "\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}"          \
    "\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{"    \
    "52f}"                                                                                         \
    "\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{"     \
    "1cba}"                                                                                        \
    "\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{"   \
    "1f15}"                                                                                        \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{"    \
    "1f5b}"                                                                                        \
    "\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{"    \
    "1fc4}"                                                                                        \
    "\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{"   \
    "1ff4}"                                                                                        \
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{"     \
    "2124}"                                                                                        \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"         \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"         \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{"    \
    "a76f}"                                                                                        \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{"   \
    "fb17}"                                                                                        \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"             \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"         \
    "\\x{1e900}-\\x{1e943}"
/* The models' own files have the whole ranges 0800-4E00 and, for punctuation, 3000-3002; llama.cpp
 * lets white space match nothing but \s. Ids are to equal llama.cpp's here. */
#define DEEPSEEK_CJK                                                                               \
    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"                 \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{4e00}\\x{ac00}-\\x{"   \
    "d7ff}]+"
/* S+ at the end of the piece; looking back keeps a long run from being tried at each character. */
#define TRAILING_SPACES "(?<!" S ")" S "++$"

#define BLOOM  " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define ASCII3 "[0-9][0-9][0-9]"

#define M(p)                                                                                       \
    { SL_PRETOK_MATCHES, p }
#define GROUPS3(p)                                                                                 \
    { SL_PRETOK_GROUPS3, p }
#define MARKS3(p)                                                                                  \
    { SL_PRETOK_MARKS3, p }

const struct sl_pretok_rule sl_pretok_rules[] = {
    {"default", {0}, {M("[\\p{P}$+<=>^~|]+"), M(GPT2), M("\\p{N}+"), M(ASCII3)}},
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe "
     "gigachat a.x-4.0 mellum modern-bert exaone4 mpt olmo dolma jais trillion granite-docling",
     {0},
     {M(GPT2)}},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
     {0},
     {M("\\p{N}"), M(GPT2)}},
    {"falcon", {0}, {M("[\\p{P}$+<=>^~|`]+"), M(GPT2), M(ASCII3)}},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {.ignore_merges = true, .add_bos = true},
     {M(LLAMA3)}},
    {"dbrx smaug-bpe glm4 chatglm-bpe", {0}, {M(LLAMA3)}},
    {"qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
     {0},
     {M(QWEN2)}},
    {"qwen35",
     {0},
     {M(CONTRACTION "|" NOT_WORD "?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINES "|" SPACES)}},
    {"ufakzeka", {0}, {M(LLAMA3_WITH("", "\\p{N}", PUNCT "[\\r\\n]*"))}},
    {"laguna", {0}, {M("[^\\n]+|\\n+"), M(QWEN2)}},
    {"minicpm5",
     {.ignore_merges = true},
     {M("\\p{N}{1,3}"), M(LLAMA3_WITH(CONTRACTION "|", "\\p{N}+", PUNCT "[\\r\\n]*"))}},
    {"seed-coder",
     {0},
     {M(LLAMA3_WITH(CONTRACTION "|", "\\p{N}", " ?[^" WS "\\p{L}\\p{N}\\r\\n]+"))}},
    {"bailingmoe bailingmoe2 llada-moe",
     {0},
     {M(CONTRACTION "|" NOT_WORD "?+\\p{L}+|\\p{N}|" PUNCT "[\\r\\n]*|" S "*[\\r\\n]|" SPACES)}},
    {"exaone-moe",
     {0},
     {M(CONTRACTION "|" NOT_WORD "?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++|\\p{N}|" PUNCT
                    "[\\r\\n/]?|" S "*[\\r\\n]|" SPACES)}},
    {"jais-2",
     {0},
     {M(CONTRACTION "|" NOT_WORD "?\\p{L}+|\\p{N}{1,3}|" PUNCT "[\\r\\n]*|" NEWLINES_JAIS "|" S
                    "{512}(?!" NOT_S ")|" S "{256}(?!" NOT_S ")|" S "{128}(?!" NOT_S ")|" S
                    "{64}(?!" NOT_S ")|" S "{32}(?!" NOT_S ")|" S "{16}(?!" NOT_S ")|" S
                    "{8}(?!" NOT_S ")|" S "{4}(?!" NOT_S ")|" S "{1,2}(?!" NOT_S ")|" S)}},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {0}, {M(O200K)}},
    {"granite-embed-multi-97m", {.ignore_merges = true}, {M(O200K)}},
    {"tekken",
     {.ignore_merges = true, .add_bos = true},
     {M(O200K_WITH(UPPER, LOWER, "", "\\p{N}", "[\\r\\n/]*"))}},
    {"tiny_aya cohere2moe",
     {0},
     {GROUPS3("(?<!\\d)\\d++(?![\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}])"), M(O200K)}},
    {"youtu",
     {.ignore_merges = true},
     {M("[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}"
        "\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|"
        "[\\x{3105}-\\x{312f}]+|" CJK),
      M(O200K_WITH(UPPER, LOWER, CONTRACTION "?", "\\p{N}", "[\\r\\n/]*"))}},
    {"kimi-k2",
     {0},
     {M("\\p{sc:Han}+|" O200K_WITH(UPPER_NOT_HAN, LOWER_NOT_HAN, CONTRACTION "?", "\\p{N}{1,3}",
                                   "[\\r\\n]*"))}},
    {"deepseek-llm",
     {0},
     {M("[\\r\\n]"), M(S "?[" DEEPSEEK_LLM_LETTERS "]+"),
      M(S "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3001}"
          "\\x{3002}]+"),
      M(TRAILING_SPACES), M(DEEPSEEK_CJK), M("\\p{N}+")}},
    {"deepseek-coder",
     {0},
     {M("[\\r\\n]"), M(S "?\\p{L}+"), M(S "?\\p{P}+"), M(DEEPSEEK_CJK), M("\\p{N}")}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {0}, {M("\\p{N}{1,3}"), M(CJK), M(DEEPSEEK3)}},
    {"spark2_5",
     {0},
     {M("\\p{N}{1,3}"), M(CJK), M(DEEPSEEK3_WORDS "|[\\r\\n]|" SPACES), M("\\p{N}")}},
    {"afmoe",
     {0},
     {GROUPS3("\\p{N}+"),
      M("[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}\\x{30a0}-"
        "\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{e7f}\\x{e80}-\\x{eff}"
        "\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-"
        "\\x{d7af}\\x{1100}-\\x{11ff}]+"),
      M(DEEPSEEK3)}},
    {"gemma4 granite-embed-multi-311m",
     {.raw = true, .newlines = true, .always_bos = true},
     {M("[^\\n]+|\\n+")}},
    {"sarvam-moe", {.raw = true}, {M("[^\\n]+|\\n+")}},
    {"superbpe", {0}, {M("\\p{N}+"), MARKS3("\\d{3,}+")}},
    {"poro-chat bloom gpt3-finnish", {0}, {M(BLOOM)}},
    {"viking", {0}, {M(BLOOM), M("\\p{N}")}},
    {"chameleon",
     {.add_bos = true},
     {M("<sentinel:[0-9]+>"), M("IMGIMG[A-I]{1,4}Z"), M("[\\t\\n]|    |  "), M("\\p{N}"),
      M("[\\p{P}!-/:-@\\[-`{-~]"), M(GPT2)}},
};
const uint32_t sl_pretok_n_rules = sizeof sl_pretok_rules / sizeof *sl_pretok_rules;
