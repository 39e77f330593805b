#include "model/gguf/gguf_write.h"
#include "model/synth/synth.h"

#include <stdio.h>
#include <string.h>

/* GPT-2's printable stand-in for a byte, as UTF-8: printable Latin-1 bytes stand for themselves,
 * the others for U+0100 upwards in order. Source: the GPT-2 release's encoder. */
static size_t byte_symbol(uint32_t byte, char out[3]) {
    uint32_t code = byte;
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (!printable) {
        code = 256;
        for (uint32_t b = 0; b < byte; b++)
            code += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    }
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

static const char *const control[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
enum { N_CONTROL = sizeof control / sizeof *control, N_PAIRS = 26 * 26 };

static const char chat_template[] =
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{- '<|im_start|>assistant\\n' -}}\n"
    "{%- endif -%}\n";

void sl_synth_write_vocab(struct sl_gguf_writer *w, uint32_t n_vocab) {
    uint32_t n_pairs = n_vocab - 256 - N_CONTROL;
    if (n_pairs > N_PAIRS)
        n_pairs = N_PAIRS;
    char text[32];

    sl_gguf_write_str(w, "tokenizer.ggml.model", "gpt2");
    sl_gguf_write_str(w, "tokenizer.ggml.pre", "qwen2");

    /* Bytes, two-letter merges, fillers that no text encodes to, and control tokens at the end. */
    sl_gguf_array_begin_str(w, "tokenizer.ggml.tokens");
    for (uint32_t b = 0; b < 256; b++)
        sl_gguf_array_add_str(w, text, byte_symbol(b, text));
    for (uint32_t i = 0; i < n_pairs; i++) {
        text[0] = (char)('a' + i / 26);
        text[1] = (char)('a' + i % 26);
        sl_gguf_array_add_str(w, text, 2);
    }
    for (uint32_t i = 256 + n_pairs; i < n_vocab - N_CONTROL; i++) {
        int n = snprintf(text, sizeof text, "\xc4\xa0w%u", i); /* U+0120 stands for a space */
        sl_gguf_array_add_str(w, text, (size_t)n);
    }
    for (uint32_t i = 0; i < N_CONTROL; i++)
        sl_gguf_array_add_str(w, control[i], strlen(control[i]));
    sl_gguf_array_end(w);

    sl_gguf_array_begin_i32(w, "tokenizer.ggml.token_type");
    for (uint32_t i = 0; i < n_vocab; i++)
        sl_gguf_array_add_i32(w, i < n_vocab - N_CONTROL ? 1 : 3);
    sl_gguf_array_end(w);

    sl_gguf_array_begin_str(w, "tokenizer.ggml.merges");
    for (uint32_t i = 0; i < n_pairs; i++) {
        text[0] = (char)('a' + i / 26);
        text[1] = ' ';
        text[2] = (char)('a' + i % 26);
        sl_gguf_array_add_str(w, text, 3);
    }
    sl_gguf_array_end(w);

    sl_gguf_write_u32(w, "tokenizer.ggml.bos_token_id", n_vocab - N_CONTROL);
    sl_gguf_write_u32(w, "tokenizer.ggml.eos_token_id", n_vocab - 1);
    sl_gguf_write_u32(w, "tokenizer.ggml.padding_token_id", n_vocab - N_CONTROL);
    sl_gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
    sl_gguf_write_str(w, "tokenizer.chat_template", chat_template);
}
