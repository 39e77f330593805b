#include "backends/gpu/driver.h"

#include <stdio.h>

const char *sl_gpu_result_text(const struct sl_gpu_driver *driver, int result, char *buf,
                               size_t buf_bytes) {
    const char *name = NULL, *text = NULL;
    if (driver->error_name && driver->error_name(result, &name) == SL_CU_OK && name &&
        driver->error_string(result, &text) == SL_CU_OK && text)
        snprintf(buf, buf_bytes, "%s: %s", name, text);
    else
        snprintf(buf, buf_bytes, "%s error %d", driver->runtime, result);
    return buf;
}
