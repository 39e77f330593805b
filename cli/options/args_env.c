#include "cli/options/args_env.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool sl_args_variable(const struct sl_arg *arg, char buf[SL_VARIABLE_BYTES]) {
    if (arg->kind == SL_ARG_HEADING || arg->kind == SL_ARG_SECRET)
        return false;
    int n = snprintf(buf, SL_VARIABLE_BYTES, "SLUICE_%s", arg->name + 2);
    if (n < 0 || (size_t)n >= SL_VARIABLE_BYTES)
        return false;
    for (char *p = buf; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return true;
}

const char *sl_args_variable_value(const char *name) {
    const char *text = getenv(name);
    if (!text || !*text)
        return NULL;
    bool kubernetes = strcmp(name, "SLUICE_PORT") == 0 && strncmp(text, "tcp://", 6) == 0;
    return kubernetes ? NULL : text;
}

bool sl_parse_switch(const char *text, bool *out_on) {
    static const char *const on[] = {"1", "on", "true", "yes"};
    static const char *const off[] = {"0", "off", "false", "no"};
    for (uint32_t i = 0; i < SL_COUNTOF(on); i++) {
        if (strcasecmp(text, on[i]) == 0 || strcasecmp(text, off[i]) == 0) {
            *out_on = strcasecmp(text, on[i]) == 0;
            return true;
        }
    }
    return false;
}
